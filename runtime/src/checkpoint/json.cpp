#include "checkpoint/json.h"

namespace accel::checkpoint {

Json parse_json(const std::string& text, const std::string& what) {
  constexpr int kDeepest = 32;
  // Later code walks through values recursively.
  const auto depth_limit = [&](int depth, Json::parse_event_t, Json&) {
    TORCH_CHECK(depth <= kDeepest, what, " is nested too deeply");
    return true;
  };
  // The parser would take it for the end of the text.
  TORCH_CHECK(
      text.find('\0') == std::string::npos,
      what,
      " is not JSON: it contains a zero byte");
  try {
    return Json::parse(text, depth_limit);
  } catch (const Json::exception& error) {
    TORCH_CHECK(false, what, " is not JSON: ", in_quotes(error.what()));
  }
}

std::string dump_json(const Json& json) {
  return json.dump(2) + "\n";
}

const Json& member(
    const Json& json, const std::string& key, const std::string& what) {
  TORCH_CHECK(json.is_object(), what, " is not a JSON object");
  const auto found = json.find(key);
  TORCH_CHECK(found != json.end(), what, " has no ", in_quotes(key));
  return *found;
}

int64_t member_int(
    const Json& json,
    const std::string& key,
    const std::string& what,
    int64_t lowest) {
  return to_int(member(json, key, what), what + ": " + in_quotes(key), lowest);
}

std::string member_text(
    const Json& json, const std::string& key, const std::string& what) {
  const Json& value = member(json, key, what);
  TORCH_CHECK(
      value.is_string(),
      what,
      ": ",
      in_quotes(key),
      " is ",
      in_quotes(value.dump()),
      ", which is not a text");
  return value.get<std::string>();
}

int64_t to_int(const Json& json, const std::string& what, int64_t lowest) {
  const bool fits =
      json.is_number_unsigned()
          ? json.get<uint64_t>() <=
                static_cast<uint64_t>(std::numeric_limits<int64_t>::max())
          : json.is_number_integer();
  TORCH_CHECK(
      fits && json.get<int64_t>() >= lowest,
      what,
      " is ",
      in_quotes(json.dump()),
      ", which is not a whole number of this range");
  return json.get<int64_t>();
}

Json to_json(double value) {
  if (std::isfinite(value)) {
    return value;
  }
  return std::isnan(value) ? "nan" : value > 0 ? "inf" : "-inf";
}

double to_double(const Json& json, const std::string& what) {
  if (json == "nan") {
    return std::numeric_limits<double>::quiet_NaN();
  }
  if (json == "inf" || json == "-inf") {
    return json == "inf" ? std::numeric_limits<double>::infinity()
                         : -std::numeric_limits<double>::infinity();
  }
  TORCH_CHECK(
      json.is_number(), what, " is ", in_quotes(json.dump()), ", not a number");
  return json.get<double>();
}

} // namespace accel::checkpoint
