#pragma once

#include <accel/tracking/registry.h>

#include <memory>

namespace accel {

/// Writes a table to `logging_dir/project_name/metrics.csv` (option `file`
/// names another file in that folder): a column `step`, a column `time` in
/// seconds since 1970, and one column per name in the order of appearance.
/// Values that a call does not have are empty fields. A name that appears later
/// adds a column: the file is written anew beside the old one and renamed, so
/// that a reader always finds a whole table. A later run in the same folder
/// appends. The configuration goes to `metrics.config.csv` with the columns
/// `name` and `value`. Names `step` and `time` are refused.
class ACCEL_API CsvTracker : public GeneralTracker {
 public:
  explicit CsvTracker(const TrackerArguments& arguments);
  ~CsvTracker() override;

  std::string name() const override {
    return "csv";
  }
  bool requires_logging_directory() const override {
    return true;
  }
  void store_init_configuration(const LogValues& values) override;
  void log(const LogValues& values, std::optional<int64_t> step = std::nullopt)
      override;
  void finish() override;

 private:
  struct Table;
  std::unique_ptr<Table> table_;
};

} // namespace accel
