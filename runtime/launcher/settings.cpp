#include "settings.h"

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstdlib>
#include <sstream>
#include <utility>

#include "core/plain_text.h"
#include "error.h"
#include "suggestion.h"

namespace accel::launcher {

void Settings::add(const Known& known) {
  auto entry = std::make_unique<Entry>();
  entry->known = known;
  if (known.type.empty()) {
    entry->option =
        command_.add_flag(known.names, entry->flag, known.help);
  } else {
    entry->option =
        command_.add_option(known.names, entry->value, known.help);
    entry->option->type_name(known.type)
        ->check(CLI::Validator(
            [check = known.check](std::string& value) { return check(value); },
            ""));
  }
  // The first name is the one that messages say.
  const std::string name = "--" + entry->option->get_lnames().front();
  entries_.emplace(name, std::move(entry));
}

std::optional<Choice> Settings::find(
    const std::string& name, const ConfigFile& config) const {
  const Entry& entry = *entries_.at(name);
  if (entry.option->count() > 0) {
    return Choice{entry.known.type.empty() ? "true" : entry.value, name};
  }
  std::optional<Choice> choice;
  if (!entry.known.variable.empty()) {
    const char* value = std::getenv(entry.known.variable.c_str());
    if (value != nullptr && *value != '\0') {
      choice = Choice{value, "environment " + entry.known.variable};
    }
  }
  if (!choice && !entry.known.key.empty()) {
    if (const auto value = config.find(entry.known.key)) {
      choice = Choice{*value, config.path};
    }
  }
  if (choice) {
    const auto check = entry.known.type.empty() ? yes_or_no() : entry.known.check;
    const std::string wrong = check(choice->value);
    if (!wrong.empty()) {
      const std::string what = choice->source == config.path
                                   ? config.path + ": " + entry.known.key
                                   : choice->source;
      throw Error(kUsage, what + ": " + wrong);
    }
  }
  return choice;
}

std::function<std::string(const std::string&)> whole_number(
    long least, long most) {
  return [=](const std::string& text) -> std::string {
    char* end = nullptr;
    errno = 0;
    const long value = std::strtol(text.c_str(), &end, 10);
    const bool number = !text.empty() && *end == '\0' && errno == 0 &&
                        !std::isspace(static_cast<unsigned char>(text[0]));
    if (number && value >= least && value <= most) {
      return "";
    }
    return text + " is not a whole number from " + std::to_string(least) +
           " to " + std::to_string(most);
  };
}

std::function<std::string(const std::string&)> real_number(
    double least, double most) {
  return [=](const std::string& text) -> std::string {
    char* end = nullptr;
    const double value = std::strtod(text.c_str(), &end);
    if (!text.empty() && *end == '\0' && value >= least && value <= most) {
      return "";
    }
    std::ostringstream message;
    message << text << " is not a number from " << least << " to " << most;
    return message.str();
  };
}

std::function<std::string(const std::string&)> one_of(
    std::vector<std::string> words) {
  return [words = std::move(words)](const std::string& text) -> std::string {
    if (std::find(words.begin(), words.end(), text) != words.end()) {
      return "";
    }
    std::string list;
    for (size_t i = 0; i < words.size(); ++i) {
      list += (i == 0 ? "" : i + 1 == words.size() ? " and " : ", ") + words[i];
    }
    return text + " is none of " + list + suggest(text, words);
  };
}

std::function<std::string(const std::string&)> anything() {
  return [](const std::string& text) -> std::string {
    return text.empty() ? "an empty value makes no sense" : "";
  };
}

std::optional<bool> read_flag(const std::string& text) {
  return detail::flag_in(text);
}

std::function<std::string(const std::string&)> yes_or_no() {
  return [](const std::string& text) -> std::string {
    return read_flag(text) ? "" : text + " is neither yes nor no";
  };
}

} // namespace accel::launcher
