#include <accel/tracking/json_lines.h>

#include "append_file.h"

#include <c10/util/Exception.h>
#include <nlohmann/json.hpp>

#include <cmath>

namespace accel {
namespace {

// Keeps the members in the order in which they were given.
using OrderedJson = nlohmann::ordered_json;

OrderedJson to_json(const LogValue& value) {
  const auto* real = std::get_if<double>(&value.value());
  if (real != nullptr && !std::isfinite(*real)) {
    return std::isnan(*real) ? "NaN" : *real < 0 ? "-Infinity" : "Infinity";
  }
  return std::visit([](const auto& v) { return OrderedJson(v); }, value.value());
}

void check_name(const std::string& name) {
  TORCH_CHECK(
      name.empty() || name[0] != '_',
      "The JSON lines tracker keeps names that begin with '_' for itself; "
      "rename '",
      name,
      "'.");
}

std::string json_line(const OrderedJson& json) {
  return json.dump(-1, ' ', false, OrderedJson::error_handler_t::replace) + "\n";
}

} // namespace

struct JsonLinesTracker::File {
  explicit File(const std::string& path) : file(path) {
    // What a crash has left half written must not swallow our first line.
    const std::string before = detail::read_if_exists(path);
    if (!before.empty() && before.back() != '\n') {
      file.append("\n");
    }
  }

  void append(const std::string& text) {
    TORCH_CHECK(open, "The JSON lines tracker is finished and cannot log.");
    file.append(text);
  }

  detail::AppendFile file;
  bool open = true;
};

JsonLinesTracker::JsonLinesTracker(const TrackerArguments& arguments) {
  arguments.check_options("jsonl", {"file"});
  file_ = std::make_unique<File>(
      arguments.logging_dir + "/" + arguments.project_name + "/" +
      arguments.option("file", "metrics.jsonl"));
}

JsonLinesTracker::~JsonLinesTracker() = default;

void JsonLinesTracker::store_init_configuration(const LogValues& values) {
  OrderedJson config = OrderedJson::object();
  for (const auto& [name, value] : values) {
    config[name] = to_json(value);
  }
  file_->append(json_line({{"_config", config}}));
}

void JsonLinesTracker::log(
    const LogValues& values, std::optional<int64_t> step) {
  OrderedJson json = OrderedJson::object();
  if (step) {
    json["_step"] = *step;
  }
  json["_time"] = detail::now();
  for (const auto& [name, value] : values) {
    check_name(name);
    json[name] = to_json(value);
  }
  file_->append(json_line(json));
}

void JsonLinesTracker::finish() {
  if (file_->open) {
    file_->file.sync();
    file_->open = false;
  }
}

} // namespace accel
