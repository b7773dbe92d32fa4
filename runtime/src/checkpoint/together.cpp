#include <accel/checkpoint/directory.h>

#include "checkpoint/together.h"

#include <c10/util/Exception.h>

#include <exception>

namespace accel::checkpoint {

std::vector<std::string> gather_results(
    const Processes& processes,
    const std::string& what,
    const std::function<std::string()>& work) {
  std::string message;
  std::exception_ptr error;
  try {
    message = "+" + work();
  } catch (const c10::Error& failure) {
    error = std::current_exception();
    message = std::string("-") + failure.what_without_backtrace();
  } catch (const std::exception& failure) {
    error = std::current_exception();
    message = std::string("-") + failure.what();
  } catch (...) {
    error = std::current_exception();
    message = "-an exception of unknown type";
  }
  auto results = processes.exchange(message);
  if (error) {
    std::rethrow_exception(error);
  }
  TORCH_CHECK(
      results.size() == static_cast<size_t>(processes.size),
      what,
      ": ",
      results.size(),
      " answers from ",
      processes.size,
      " processes");
  for (size_t rank = 0; rank < results.size(); ++rank) {
    TORCH_CHECK(
        !results[rank].empty() && results[rank][0] == '+',
        what,
        " failed on process ",
        rank,
        ": ",
        results[rank].substr(results[rank].empty() ? 0 : 1));
    results[rank].erase(0, 1);
  }
  return results;
}

void run_together(
    const Processes& processes,
    const std::string& what,
    const std::function<void()>& work) {
  gather_results(processes, what, [&] {
    work();
    return std::string();
  });
}

} // namespace accel::checkpoint
