#pragma once

#include <nlohmann/json.hpp>

#include <string>

/// The recorded vectors and the list of what we do differently on purpose.
namespace accel::test {

/// The file `name` of test/conformance/golden, or of the folder that
/// ACCEL_GOLDEN_DIR names. Throws where it is missing.
const nlohmann::json& golden(const std::string& name);

/// The entry `id` of deviations.json. Throws where there is none.
const nlohmann::json& deviation(const std::string& id);

} // namespace accel::test
