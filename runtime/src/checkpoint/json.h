#pragma once

#include "checkpoint/files.h"

#include <c10/util/Exception.h>
#include <nlohmann/json.hpp>

#include <cmath>
#include <limits>
#include <string>

namespace accel::checkpoint {

/// Members are sorted by name, as Python writes them.
using Json = nlohmann::json;

/// Parses a text that may come from anywhere. Throws where it is no JSON or
/// nested deeper than anything that we write; `what` names it in messages.
Json parse_json(const std::string& text, const std::string& what);

/// A text with two spaces of indentation and a newline at the end.
std::string dump_json(const Json& json);

/// The member `key` of the object `json` as a T; throws where it is not there
/// or of another type.
const Json& member(
    const Json& json, const std::string& key, const std::string& what);
int64_t member_int(
    const Json& json,
    const std::string& key,
    const std::string& what,
    int64_t lowest = std::numeric_limits<int64_t>::min());
std::string member_text(
    const Json& json, const std::string& key, const std::string& what);

/// A whole number that is at least `lowest`.
int64_t to_int(
    const Json& json,
    const std::string& what,
    int64_t lowest = std::numeric_limits<int64_t>::min());

/// Doubles keep all their bits; what JSON has no number for is a text.
Json to_json(double value);
double to_double(const Json& json, const std::string& what);

} // namespace accel::checkpoint
