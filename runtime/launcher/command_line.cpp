#include "command_line.h"

#include <algorithm>
#include <iostream>
#include <memory>
#include <sstream>
#include <utility>

#include <nlohmann/json.hpp>

#include "error.h"
#include "suggestion.h"

namespace accel::launcher {
namespace {

constexpr size_t kOptionColumn = 34;
constexpr size_t kLineWidth = 80;

/// Breaks `text` so that it fits behind the column of the options; CLI11
/// indents the lines.
std::string wrap(const std::string& text) {
  std::istringstream words(text);
  std::string result;
  std::string word;
  size_t length = 0;
  while (words >> word) {
    const bool fits = length + 1 + word.size() <= kLineWidth - kOptionColumn;
    result += result.empty() ? "" : fits ? " " : "\n";
    length = fits ? length + 1 + word.size() : word.size();
    result += word;
  }
  return result;
}

/// CLI11's help, with a usage line that says where the program begins, and
/// wrapped.
class Help : public CLI::Formatter {
 public:
  explicit Help(std::string usage) : usage_(std::move(usage)) {
    column_width(kOptionColumn);
  }

  std::string make_usage(const CLI::App* app, std::string) const override {
    return "Usage: accel " + app->get_name() + " " + usage_ + "\n";
  }

  std::string make_option_opts(const CLI::Option* option) const override {
    const std::string type = option->get_type_name();
    return type.empty() ? "" : " " + type;
  }

  std::string make_option_desc(const CLI::Option* option) const override {
    return wrap(option->get_description());
  }

  const std::string& usage() const {
    return usage_;
  }

 private:
  std::string usage_;
};

std::string with_hyphens(std::string name) {
  std::replace(name.begin(), name.end(), '_', '-');
  return name;
}

[[noreturn]] void unknown_option(
    const CLI::App& command, const std::string& name) {
  std::vector<std::string> known;
  for (const CLI::Option* option : command.get_options()) {
    for (const std::string& long_name : option->get_lnames()) {
      known.push_back("--" + long_name);
    }
  }
  const std::string instead = instead_of(name);
  throw Error(
      kUsage,
      "unknown option " + name +
          (instead.empty() ? suggest(name, known) : instead) + "\nRun accel " +
          command.get_name() +
          " --help for the options. What belongs to the program comes after "
          "its name.");
}

} // namespace

void set_help(
    CLI::App& command, const std::string& usage, const std::string& footer) {
  command.formatter(std::make_shared<Help>(usage));
  command.footer(footer);
  // Not in the help: for what makes the man pages and completions.
  command.add_flag("--help-table")->group("");
}

namespace {

/// What the help says, as data (packaging/pages).
std::string help_table(const CLI::App& command) {
  const auto* help =
      dynamic_cast<const Help*>(command.get_formatter().get());
  nlohmann::ordered_json table;
  table["name"] = "accel " + command.get_name();
  table["description"] = command.get_description();
  table["usage"] = help ? help->usage() : "";
  table["footer"] = command.get_footer();
  table["options"] = nlohmann::ordered_json::array();
  for (const CLI::Option* option : command.get_options()) {
    if (option->get_group().empty() || option->get_positional()) {
      continue;
    }
    std::vector<std::string> names;
    for (const std::string& name : option->get_snames()) {
      names.push_back("-" + name);
    }
    for (const std::string& name : option->get_lnames()) {
      names.push_back("--" + name);
    }
    const bool takes_value = option->get_items_expected_min() > 0;
    table["options"].push_back(
        {{"names", names},
         {"value", takes_value ? option->get_type_name() : ""},
         {"description", option->get_description()}});
  }
  return table.dump(2) + "\n";
}

/// Takes the option at `i`, and its value where it stands apart, to the end
/// of `options`; returns the index behind them.
size_t take_option(
    const CLI::App& command,
    const std::vector<std::string>& arguments,
    size_t i,
    std::vector<std::string>& options) {
  const std::string& argument = arguments[i];
  const bool is_long = argument[1] == '-';
  // -n4 and --num-processes=4 hold their value, -n 4 does not.
  const size_t end =
      is_long ? std::min(argument.find('='), argument.size()) : size_t{2};
  const std::string name = is_long ? with_hyphens(argument.substr(0, end))
                                   : argument.substr(0, end);
  const CLI::Option* option = command.get_option_no_throw(name);
  if (!option) {
    unknown_option(command, argument.substr(0, end));
  }
  options.push_back(name + argument.substr(end));
  const bool takes_value = option->get_items_expected_min() > 0;
  if (takes_value && end == argument.size() && i + 1 < arguments.size()) {
    options.push_back(arguments[++i]);
  }
  return i + 1;
}

bool is_option(const std::string& argument) {
  return argument.size() >= 2 && argument[0] == '-';
}

} // namespace

SplitArguments split_arguments(
    const CLI::App& command, const std::vector<std::string>& arguments) {
  SplitArguments result;
  size_t i = 0;
  while (i < arguments.size() && arguments[i] != "--" &&
         is_option(arguments[i])) {
    i = take_option(command, arguments, i, result.options);
  }
  if (i < arguments.size() && arguments[i] == "--") {
    ++i;
  }
  result.program.assign(
      arguments.begin() + static_cast<ptrdiff_t>(i), arguments.end());
  return result;
}

bool parse_arguments(
    CLI::App& command, const std::vector<std::string>& arguments) {
  std::vector<std::string> all;
  for (size_t i = 0; i < arguments.size();) {
    if (arguments[i] == "--") {
      all.insert(
          all.end(),
          arguments.begin() + static_cast<ptrdiff_t>(i),
          arguments.end());
      break;
    }
    if (is_option(arguments[i])) {
      i = take_option(command, arguments, i, all);
    } else {
      all.push_back(arguments[i++]);
    }
  }
  return parse_options(command, std::move(all));
}

bool parse_options(CLI::App& command, std::vector<std::string> options) {
  if (options == std::vector<std::string>{"--help-table"}) {
    std::cout << help_table(command);
    return false;
  }
  std::reverse(options.begin(), options.end());
  try {
    command.parse(options);
  } catch (const CLI::CallForHelp&) {
    std::cout << command.help();
    return false;
  } catch (const CLI::ParseError& error) {
    throw Error(
        kUsage,
        std::string(error.what()) + "\nRun accel " + command.get_name() +
            " --help for the options.");
  }
  return true;
}

} // namespace accel::launcher
