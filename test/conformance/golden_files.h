#pragma once

#include <nlohmann/json.hpp>

#include <string>
#include <vector>

/// The recorded vectors and the list of what we do differently on purpose.
namespace accel::test {

/// The file `name` of test/conformance/golden, or of the folder that
/// ACCEL_GOLDEN_DIR names. Throws where it is missing.
const nlohmann::json& golden(const std::string& name);

/// The files there whose names begin with `stem`, then have a number, then
/// `rest`: one for each number of processes that was recorded. Throws where
/// there is none.
std::vector<std::string> golden_files(
    const std::string& stem,
    const std::string& rest);

/// The files are those of the project, whose deviations are counted.
bool own_golden_files();

/// The entry `id` of deviations.json. Throws where there is none.
const nlohmann::json& deviation(const std::string& id);

} // namespace accel::test
