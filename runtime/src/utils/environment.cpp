#include <accel/utils/environment.h>

#include <c10/util/Exception.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstdlib>
#include <set>

#include <unistd.h>

namespace accel {
namespace {

std::string with_case(std::string text, int (*convert)(int)) {
  std::transform(text.begin(), text.end(), text.begin(), [&](unsigned char c) {
    return static_cast<char>(convert(c));
  });
  return text;
}

std::map<std::string, std::optional<std::string>> whole_environment() {
  std::map<std::string, std::optional<std::string>> all;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string text = *entry;
    const size_t equals = text.find('=');
    if (equals != std::string::npos) {
      all[text.substr(0, equals)] = text.substr(equals + 1);
    }
  }
  return all;
}

} // namespace

bool str_to_bool(const std::string& value) {
  static const std::set<std::string> yes{"y", "yes", "t", "true", "on", "1"};
  static const std::set<std::string> no{"n", "no", "f", "false", "off", "0"};
  const std::string lower = with_case(value, std::tolower);
  TORCH_CHECK(
      yes.count(lower) + no.count(lower) == 1,
      "'",
      value,
      "' is no truth value; use yes, true, on, 1 or no, false, off, 0.");
  return yes.count(lower) == 1;
}

int64_t get_int_from_env(
    const std::vector<std::string>& names, int64_t fallback) {
  for (const auto& name : names) {
    const char* text = std::getenv(name.c_str());
    if (text == nullptr) {
      continue;
    }
    char* end = nullptr;
    errno = 0;
    const long long value = std::strtoll(text, &end, 10);
    TORCH_CHECK(
        end != text && *end == '\0' && errno == 0,
        "The environment variable ",
        name,
        " must be a whole number, but is '",
        text,
        "'.");
    if (value >= 0) {
      return value;
    }
  }
  return fallback;
}

bool parse_flag_from_env(const std::string& name, bool fallback) {
  const char* text = std::getenv(name.c_str());
  if (text == nullptr) {
    return fallback;
  }
  try {
    return str_to_bool(text);
  } catch (const c10::Error& error) {
    TORCH_CHECK(
        false,
        "The environment variable ",
        name,
        ": ",
        error.what_without_backtrace());
  }
}

EnvironmentGuard::EnvironmentGuard(
    const std::map<std::string, std::string>& values) {
  for (const auto& [name, value] : values) {
    const std::string upper = with_case(name, std::toupper);
    const char* before = std::getenv(upper.c_str());
    before_.emplace(
        upper,
        before == nullptr ? std::nullopt : std::optional<std::string>(before));
    ::setenv(upper.c_str(), value.c_str(), /*overwrite=*/1);
  }
}

EnvironmentGuard::EnvironmentGuard()
    : before_(whole_environment()), remove_others_(true) {
  ::clearenv();
}

EnvironmentGuard::~EnvironmentGuard() {
  if (remove_others_) {
    ::clearenv();
  }
  for (const auto& [name, value] : before_) {
    if (value) {
      ::setenv(name.c_str(), value->c_str(), /*overwrite=*/1);
    } else {
      ::unsetenv(name.c_str());
    }
  }
}

EnvironmentGuard patch_environment(
    const std::map<std::string, std::string>& values) {
  return EnvironmentGuard(values);
}

EnvironmentGuard clear_environment() {
  return EnvironmentGuard();
}

} // namespace accel
