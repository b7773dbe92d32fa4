#include "reach.h"

#include "file_descriptor.h"
#include "sockets.h"

namespace accel::launcher {
namespace {

constexpr double kSeconds = 5;
/// What is wrong with so many is wrong with the network.
constexpr int kEnough = 3;

} // namespace

std::string unreachable(const Hello& own, const std::vector<Hello>& hosts) {
  std::string problems;
  int count = 0;
  for (const Hello& host : hosts) {
    std::string why;
    if (count < kEnough && host.machine != own.machine &&
        !connect_to(host.address, host.port, kSeconds, why)) {
      ++count;
      problems += (problems.empty() ? "" : "; ") + own.host +
                  " cannot connect to " + host.host + " (" + host.address +
                  "): " + why;
    }
  }
  return problems;
}

std::string describe_unreachable(const std::string& problems) {
  return "the hosts do not reach each other, as their processes have to, on "
         "any port: " +
         problems + ". Look at firewalls and routes";
}

} // namespace accel::launcher
