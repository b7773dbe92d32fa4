#pragma once

#include <accel/tracking/registry.h>

#include <memory>

namespace accel {

/// Records to an MLflow server over its REST interface, version 2.0.
///
/// Options, each with the environment variable that gives its default:
/// `tracking_uri` (MLFLOW_TRACKING_URI; `http://host:port`,
/// required),
/// `experiment_name` (MLFLOW_EXPERIMENT_NAME; default: the project name),
/// `run_id` (MLFLOW_RUN_ID; a run to go on with), `run_name`. A token or a user
/// come from MLFLOW_TRACKING_TOKEN, or MLFLOW_TRACKING_USERNAME and
/// MLFLOW_TRACKING_PASSWORD.
///
/// Numbers become metrics and the configuration becomes parameters. MLflow has
/// no texts in time: a text becomes a tag of the run, which keeps the last one.
///
/// A call returns when the server has answered. What the server refuses, or
/// does not answer in three attempts, is an error.
///
/// Needs cpp-httplib when accel is built, with OpenSSL for https; without it
/// the constructor throws.
class ACCEL_API MLflowTracker : public GeneralTracker {
 public:
  explicit MLflowTracker(const TrackerArguments& arguments);
  ~MLflowTracker() override;

  /// Whether this build of accel can talk to MLflow.
  static bool is_available();

  std::string name() const override {
    return "mlflow";
  }
  /// Finds or makes the experiment and begins the run.
  void start() override;
  void store_init_configuration(const LogValues& values) override;
  void log(const LogValues& values, std::optional<int64_t> step = std::nullopt)
      override;
  /// Ends the run as FINISHED.
  void finish() override;

  /// MLflow's id of the run; empty before `start`.
  const std::string& run_id() const;

 private:
  struct Client;
  std::unique_ptr<Client> client_;
};

} // namespace accel
