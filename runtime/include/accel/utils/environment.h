#pragma once

#include <accel/export.h>

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace accel {

/// The truth value of y, yes, t, true, on, 1 or n, no, f, false, off, 0, in any
/// case. Throws for anything else.
ACCEL_API bool str_to_bool(const std::string& value);

/// The first of the environment variables `names` that holds a number of at
/// least 0, or `fallback`. Throws for one that is not a number.
ACCEL_API int64_t
get_int_from_env(const std::vector<std::string>& names, int64_t fallback);

/// The truth value of an environment variable, or `fallback` where it is unset.
ACCEL_API bool parse_flag_from_env(
    const std::string& name, bool fallback = false);

/// Puts the environment back when the scope ends. The environment belongs to
/// the whole process: no other thread may use it while it is changed.
class ACCEL_API EnvironmentGuard {
 public:
  ~EnvironmentGuard();
  EnvironmentGuard(const EnvironmentGuard&) = delete;
  EnvironmentGuard& operator=(const EnvironmentGuard&) = delete;

 private:
  friend ACCEL_API EnvironmentGuard
  patch_environment(const std::map<std::string, std::string>& values);
  friend ACCEL_API EnvironmentGuard clear_environment();

  explicit EnvironmentGuard(const std::map<std::string, std::string>& values);
  EnvironmentGuard();

  /// What to restore; an empty optional is a variable to remove.
  std::map<std::string, std::optional<std::string>> before_;
  bool remove_others_ = false;
};

/// Sets environment variables until the guard's scope ends; others that are set
/// meanwhile stay. Names become upper case, as Accelerate's do.
///
/// \code
/// auto environment = accel::patch_environment({{"accelerate_use_cpu", "1"}});
/// \endcode
[[nodiscard]] ACCEL_API EnvironmentGuard
patch_environment(const std::map<std::string, std::string>& values);

/// An empty environment until the guard's scope ends; then exactly the one from
/// before.
[[nodiscard]] ACCEL_API EnvironmentGuard clear_environment();

} // namespace accel
