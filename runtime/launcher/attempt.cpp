#include "attempt.h"

namespace accel::launcher {

int Attempt::world_size() const {
  int size = 0;
  for (const Share& share : shares) {
    size += share.processes;
  }
  return size;
}

int Attempt::first_rank(int machine) const {
  int first = 0;
  for (const Share& share : shares) {
    if (share.machine == machine) {
      break;
    }
    first += share.processes;
  }
  return first;
}

int Attempt::processes(int machine) const {
  for (const Share& share : shares) {
    if (share.machine == machine) {
      return share.processes;
    }
  }
  return 0;
}

int Attempt::hosts() const {
  int count = 0;
  for (const Share& share : shares) {
    count += share.processes > 0;
  }
  return count;
}

int Attempt::host_number(int machine) const {
  int number = 0;
  for (const Share& share : shares) {
    if (share.machine == machine) {
      break;
    }
    number += share.processes > 0;
  }
  return number;
}

int Attempt::machine_of(int rank) const {
  int end = 0;
  for (const Share& share : shares) {
    end += share.processes;
    if (rank < end) {
      return share.machine;
    }
  }
  return -1;
}

} // namespace accel::launcher
