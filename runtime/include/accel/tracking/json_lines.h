#pragma once

#include <accel/tracking/registry.h>

#include <memory>

namespace accel {

/// Writes one JSON object per line to `logging_dir/project_name/metrics.jsonl`
/// (option `file` names another file in that folder): the values under their
/// names, `_step` where there is one, and `_time` in seconds since 1970. The
/// configuration is a line with a single member `_config`. Numbers that JSON
/// cannot hold are the texts "NaN", "Infinity" and "-Infinity". A later run in
/// the same folder appends. Names that begin with `_` are refused.
class ACCEL_API JsonLinesTracker : public GeneralTracker {
 public:
  explicit JsonLinesTracker(const TrackerArguments& arguments);
  ~JsonLinesTracker() override;

  std::string name() const override {
    return "jsonl";
  }
  bool requires_logging_directory() const override {
    return true;
  }
  void store_init_configuration(const LogValues& values) override;
  void log(const LogValues& values, std::optional<int64_t> step = std::nullopt)
      override;
  void finish() override;

 private:
  struct File;
  std::unique_ptr<File> file_;
};

} // namespace accel
