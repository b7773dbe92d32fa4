#include <accel/tracking/mlflow.h>

#include "append_file.h"
#include "http_client.h"

#include <c10/util/Exception.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <cstdlib>

namespace accel {
namespace {

using Json = nlohmann::json;

/// Limits of one log-batch request.
constexpr size_t kMaxParams = 100;
constexpr size_t kMaxTags = 100;
constexpr size_t kMaxMetrics = 1000;

std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

/// An option, or the environment variable that stands for it.
std::string setting(
    const TrackerArguments& arguments,
    const char* option,
    const char* variable) {
  return arguments.option(option, environment(variable));
}

int64_t milliseconds() {
  return static_cast<int64_t>(detail::now() * 1000);
}

/// As protobuf's JSON has it.
Json number(double value) {
  if (std::isnan(value)) {
    return "NaN";
  }
  if (std::isinf(value)) {
    return value < 0 ? "-Infinity" : "Infinity";
  }
  return value;
}

} // namespace

struct MLflowTracker::Client {
  Client(const TrackerArguments& arguments, const std::string& uri)
      : http(
            uri,
            environment("MLFLOW_TRACKING_TOKEN"),
            environment("MLFLOW_TRACKING_USERNAME"),
            environment("MLFLOW_TRACKING_PASSWORD")),
        experiment(
            setting(arguments, "experiment_name", "MLFLOW_EXPERIMENT_NAME")),
        run_name(arguments.option("run_name", arguments.project_name)),
        run_id(setting(arguments, "run_id", "MLFLOW_RUN_ID")) {
    if (experiment.empty()) {
      experiment = arguments.project_name;
    }
  }

  static Json checked(const std::string& what, detail::HttpResponse response) {
    TORCH_CHECK(
        response.status == 200,
        "MLflow refused ",
        what,
        " with status ",
        response.status,
        ": ",
        response.body);
    const auto json = Json::parse(response.body, nullptr, false);
    TORCH_CHECK(
        !json.is_discarded(),
        "The answer to MLflow's ",
        what,
        " is no JSON; is the address that of an MLflow server? It begins: ",
        response.body.substr(0, 80));
    return json;
  }

  Json post(const std::string& what, const Json& request) {
    return checked(
        what,
        http.post(
            "/api/2.0/mlflow/" + what,
            request.dump(-1, ' ', false, Json::error_handler_t::replace)));
  }

  std::string experiment_id() {
    const auto response = http.get(
        "/api/2.0/mlflow/experiments/get-by-name",
        {{"experiment_name", experiment}});
    if (response.status == 404 &&
        response.body.find("RESOURCE_DOES_NOT_EXIST") != std::string::npos) {
      return post("experiments/create", {{"name", experiment}})
          .at("experiment_id")
          .get<std::string>();
    }
    return checked("experiments/get-by-name", response)
        .at("experiment")
        .at("experiment_id")
        .get<std::string>();
  }

  void start() {
    if (!run_id.empty()) {
      post("runs/update", {{"run_id", run_id}, {"status", "RUNNING"}});
    } else {
      run_id = post(
                   "runs/create",
                   {{"experiment_id", experiment_id()},
                    {"run_name", run_name},
                    {"start_time", milliseconds()}})
                   .at("run")
                   .at("info")
                   .at("run_id")
                   .get<std::string>();
    }
    running = true;
  }

  /// Sends `entries` as the list `kind` of log-batch, in as many requests as
  /// it takes.
  void log_batch(
      const char* kind, const std::vector<Json>& entries, size_t limit) {
    TORCH_CHECK(running, "The MLflow run is not active and cannot log.");
    for (size_t begin = 0; begin < entries.size(); begin += limit) {
      const size_t end = std::min(begin + limit, entries.size());
      post(
          "runs/log-batch",
          {{"run_id", run_id},
           {kind,
            std::vector<Json>(
                entries.begin() + begin, entries.begin() + end)}});
    }
  }

  detail::HttpClient http;
  std::string experiment;
  std::string run_name;
  std::string run_id;
  bool running = false;
};

MLflowTracker::MLflowTracker(const TrackerArguments& arguments) {
  arguments.check_options(
      "mlflow", {"tracking_uri", "experiment_name", "run_id", "run_name"});
  std::string uri = setting(arguments, "tracking_uri", "MLFLOW_TRACKING_URI");
  TORCH_CHECK(
      !is_available() || !uri.empty(),
      "The tracker 'mlflow' needs the address of its server: set "
      "MLFLOW_TRACKING_URI or the option tracking_uri.");
  while (!uri.empty() && uri.back() == '/') {
    uri.pop_back();
  }
  client_ = std::make_unique<Client>(arguments, uri);
}

MLflowTracker::~MLflowTracker() = default;

bool MLflowTracker::is_available() {
  return detail::HttpClient::is_available();
}

void MLflowTracker::start() {
  client_->start();
}

void MLflowTracker::store_init_configuration(const LogValues& values) {
  std::vector<Json> params;
  for (const auto& [name, value] : values) {
    params.push_back({{"key", name}, {"value", value.str()}});
  }
  client_->log_batch("params", params, kMaxParams);
}

void MLflowTracker::log(const LogValues& values, std::optional<int64_t> step) {
  std::vector<Json> metrics;
  std::vector<Json> tags;
  const int64_t time = milliseconds();
  for (const auto& [name, value] : values) {
    if (value.is_text()) {
      tags.push_back({{"key", name}, {"value", value.str()}});
    } else {
      metrics.push_back(
          {{"key", name},
           {"value", number(value.number())},
           {"timestamp", time},
           {"step", step.value_or(0)}});
    }
  }
  client_->log_batch("metrics", metrics, kMaxMetrics);
  client_->log_batch("tags", tags, kMaxTags);
}

void MLflowTracker::finish() {
  if (client_->running) {
    client_->running = false;
    client_->post(
        "runs/update",
        {{"run_id", client_->run_id},
         {"status", "FINISHED"},
         {"end_time", milliseconds()}});
  }
}

const std::string& MLflowTracker::run_id() const {
  return client_->run_id;
}

} // namespace accel
