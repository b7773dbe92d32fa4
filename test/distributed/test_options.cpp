#include "test_options.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace accel::distributed::test {

void add_world(CLI::App& app, std::string& world) {
  app.add_option("--world", world, "Only this mesh: 2, 3 or 2x2")
      ->check(CLI::IsMember({"2", "3", "2x2"}));
}

void add_filter(CLI::App& app, std::vector<std::string>& filter) {
  app.add_option(
         "--filter", filter,
         "Operators whose name contains the text (several: a,b; a name that ends "
         "with '$' must be the operator's own: aten::add$ takes all overloads of "
         "add)")
      ->delimiter(',');
}

bool is_asked_for(
    const std::vector<std::string>& filter,
    const std::string& name,
    const std::string& schema) {
  return filter.empty() ||
      std::any_of(filter.begin(), filter.end(), [&](const std::string& text) {
        return !text.empty() && text.back() == '$'
            ? schema == text.substr(0, text.size() - 1)
            : name.find(text) != std::string::npos;
      });
}

bool parse_options(CLI::App& app, int& argc, char** argv, int& status) {
  ::testing::InitGoogleTest(&argc, argv);
  try {
    app.parse(argc, argv);
    return true;
  } catch (const CLI::ParseError& error) {
    status = app.exit(error) == 0 ? 0 : 2;
    return false;
  }
}

} // namespace accel::distributed::test
