#pragma once

#include <CLI/CLI.hpp>

#include <string>
#include <vector>

namespace accel::distributed::test {

/// "2", "3" or "2x2": the mesh that a test is asked for; empty for all of them.
void add_world(CLI::App& app, std::string& world);

/// Operators by a part of their name, several with commas between them.
void add_filter(CLI::App& app, std::vector<std::string>& filter);

/// Whether a name is asked for: no filter asks for all, "aten::add$" for the
/// overloads of just `add`. `name` has the overload, `schema` has not.
bool is_asked_for(
    const std::vector<std::string>& filter,
    const std::string& name,
    const std::string& schema);

/// The arguments: GoogleTest's are taken out, the others go to `app`. Returns
/// whether the program goes on; else `status` is what it ends with: 0 after
/// --help, 2 where an argument is wrong, which has been said.
bool parse_options(CLI::App& app, int& argc, char** argv, int& status);

} // namespace accel::distributed::test
