#include <accel/tracking/tensorboard.h>

#include "append_file.h"
#include "event_file.h"

#include <c10/util/Exception.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <cstdio>

namespace accel {
namespace {

/// Quoted as in JSON, which YAML reads.
std::string quoted(const std::string& text) {
  return nlohmann::json(text).dump(
      -1, ' ', false, nlohmann::json::error_handler_t::replace);
}

std::string yaml(const LogValue& value) {
  if (value.is_text()) {
    return quoted(value.str());
  }
  const auto* real = std::get_if<double>(&value.value());
  if (real == nullptr) {
    return value.str();
  }
  if (!std::isfinite(*real)) {
    return std::isnan(*real) ? ".nan" : *real < 0 ? "-.inf" : ".inf";
  }
  // YAML 1.1 takes 1e-05 for a text: there must be a point.
  std::string digits = value.str();
  if (digits.find('.') == std::string::npos) {
    digits.insert(std::min(digits.find('e'), digits.size()), ".0");
  }
  return digits;
}

std::string yaml(const LogValues& values) {
  std::string text;
  for (const auto& [name, value] : values) {
    text += quoted(name) + ": " + yaml(value) + "\n";
  }
  return text;
}

std::string table_cell(const std::string& text) {
  std::string cell;
  for (const char c : text) {
    if (c == '\n') {
      cell += "<br>";
      continue;
    }
    if (c == '|') {
      cell += '\\';
    }
    cell += c;
  }
  return cell;
}

std::string markdown_table(const LogValues& values) {
  std::string text = "| name | value |\n|---|---|\n";
  for (const auto& [name, value] : values) {
    text += "| " + table_cell(name) + " | " + table_cell(value.str()) + " |\n";
  }
  return text;
}

} // namespace

struct TensorBoardTracker::Writer {
  detail::EventFile file;
  bool open = true;
};

TensorBoardTracker::TensorBoardTracker(const TrackerArguments& arguments)
    : directory_(arguments.logging_dir + "/" + arguments.project_name) {
  arguments.check_options("tensorboard", {});
  writer_.reset(new Writer{detail::EventFile(directory_)});
}

TensorBoardTracker::~TensorBoardTracker() = default;

void TensorBoardTracker::store_init_configuration(const LogValues& values) {
  add_text("hparams", markdown_table(values), 0);
  char time[32];
  std::snprintf(time, sizeof time, "%.6f", detail::now());
  detail::replace_file(directory_ + "/" + time + "/hparams.yml", yaml(values));
}

void TensorBoardTracker::log(
    const LogValues& values, std::optional<int64_t> step) {
  std::vector<std::string> encoded;
  for (const auto& [name, value] : values) {
    encoded.push_back(
        value.is_text()
            ? detail::text_value(name, value.str())
            : detail::scalar_value(name, static_cast<float>(value.number())));
  }
  TORCH_CHECK(
      writer_->open, "The TensorBoard tracker is finished and cannot log.");
  if (!encoded.empty()) {
    writer_->file.write(encoded, step.value_or(0));
  }
}

void TensorBoardTracker::add_scalar(
    const std::string& tag, double value, int64_t step) {
  log({{tag, value}}, step);
}

void TensorBoardTracker::add_text(
    const std::string& tag, const std::string& text, int64_t step) {
  log({{tag, text}}, step);
}

void TensorBoardTracker::finish() {
  if (writer_->open) {
    writer_->file.sync();
    writer_->open = false;
  }
}

const std::string& TensorBoardTracker::path() const {
  return writer_->file.path();
}

} // namespace accel
