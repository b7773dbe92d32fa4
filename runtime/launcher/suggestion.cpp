#include "suggestion.h"

#include <algorithm>
#include <map>

namespace accel::launcher {

size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::vector<size_t>> distance(
      a.size() + 1, std::vector<size_t>(b.size() + 1));
  for (size_t i = 0; i <= a.size(); ++i) {
    for (size_t j = 0; j <= b.size(); ++j) {
      size_t& here = distance[i][j];
      if (i == 0 || j == 0) {
        here = i + j;
        continue;
      }
      here = std::min(
          {distance[i - 1][j] + 1,
           distance[i][j - 1] + 1,
           distance[i - 1][j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1)});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        here = std::min(here, distance[i - 2][j - 2] + 1);
      }
    }
  }
  return distance[a.size()][b.size()];
}

std::string suggest(
    std::string_view word, const std::vector<std::string>& candidates) {
  const std::string* nearest = nullptr;
  size_t least = std::max<size_t>(1, word.size() * 2 / 5) + 1;
  for (const std::string& candidate : candidates) {
    // A beginning is as good as a slip of the finger.
    const size_t distance =
        candidate.rfind(word, 0) == 0 ? 1 : edit_distance(word, candidate);
    if (distance < least) {
      least = distance;
      nearest = &candidate;
    }
  }
  return nearest ? " (did you mean " + *nearest + "?)" : std::string();
}

std::string instead_of(std::string option) {
  std::replace(option.begin(), option.end(), '_', '-');
  static const std::map<std::string, const char*> kInstead{
      {"--multi-gpu", "leave it out: -n N starts N processes, on GPUs where there are any"},
      {"--debug", "leave it out: the processes' operations are always compared"},
      {"--quiet", "leave it out, and see --output"},
      {"-q", "leave it out, and see --output"},
      {"--same-network", "leave it out: hosts meet at --main-process-ip"},
      {"--rdzv-backend", "leave it out: hosts meet at --main-process-ip"},
      {"--rdzv-conf", "leave it out: hosts meet at --main-process-ip"},
      {"--rdzv-id", "leave it out: hosts meet at --main-process-ip"},
      {"--monitor-interval", "leave it out: the end of a process is noticed at once"},
      {"--main-training-function", "leave it out: the program's main is called"},
      {"--module", "leave it out: a program is started"},
      {"--no-python", "leave it out: a program is started"},
      {"--log-dir", "--tee DIR/, or --output DIR/"},
      {"--role", "leave it out: lines are named with --output prefix"},
      {"--dynamo-backend", "leave it out: it is a compiler of Python's bytecode"},
      {"--downcast-bf16", "leave it out: it is for TPUs"},
      {"--tpu", "there are no TPUs here"},
      {"--use-xpu", "leave it out: the device that LibTorch has is taken"},
      {"--mps", "leave it out: the device that LibTorch has is taken"},
      {"--ipex", "leave it out: --cpu, with --mixed-precision bf16"},
      {"--mpirun-hostfile", "start it by mpirun: accel reads what that says"},
      {"--num-cpu-threads", "--num-cpu-threads-per-process N"}};
  const auto found = kInstead.find(option);
  return found == kInstead.end() ? std::string()
                                 : " (" + std::string(found->second) + ")";
}

} // namespace accel::launcher
