// The MLflow tracker against a small HTTP server in this process.

#include "support.h"

#include <accel/tracking/mlflow.h>
#include <accel/utils/environment.h>

#if defined(ACCEL_HAS_HTTPLIB)

#include <httplib.h>

#include <cmath>
#include <mutex>
#include <thread>

namespace {

/// Keeps the requests and answers as MLflow does.
class Server {
 public:
  explicit Server(bool experiment_exists) {
    server_.Get(
        "/api/2.0/mlflow/experiments/get-by-name",
        [=](const httplib::Request& request, httplib::Response& response) {
          add("get-by-name " + request.get_param_value("experiment_name"));
          if (experiment_exists) {
            response.set_content(
                R"({"experiment":{"experiment_id":"12"}})", "application/json");
          } else {
            response.status = 404;
            response.set_content(
                R"({"error_code":"RESOURCE_DOES_NOT_EXIST"})",
                "application/json");
          }
        });
    post("experiments/create", R"({"experiment_id":"34"})");
    post("runs/create", R"({"run":{"info":{"run_id":"abc"}}})");
    post("runs/log-batch", "{}");
    post("runs/update", "{}");
    // Stopping waits for connections that are kept.
    server_.set_keep_alive_timeout(1);
    port_ = server_.bind_to_any_port("127.0.0.1");
    thread_ = std::thread([this] { server_.listen_after_bind(); });
    while (!server_.is_running()) {
      std::this_thread::yield();
    }
  }
  ~Server() {
    stop();
  }
  void stop() {
    if (thread_.joinable()) {
      server_.stop();
      thread_.join();
    }
  }

  std::string address() const {
    return "http://127.0.0.1:" + std::to_string(port_);
  }
  std::vector<std::string> requests() {
    const std::lock_guard<std::mutex> lock(mutex_);
    return requests_;
  }
  /// The JSON bodies sent to `what`.
  std::vector<nlohmann::json> bodies(const std::string& what) {
    std::vector<nlohmann::json> result;
    for (const auto& request : requests()) {
      if (request.rfind(what + " ", 0) == 0) {
        result.push_back(
            nlohmann::json::parse(request.substr(what.size() + 1)));
      }
    }
    return result;
  }
  std::string authorization() {
    const std::lock_guard<std::mutex> lock(mutex_);
    return authorization_;
  }
  /// From now on log-batch is refused.
  void refuse() {
    const std::lock_guard<std::mutex> lock(mutex_);
    refuse_ = true;
  }

 private:
  void add(const std::string& request) {
    const std::lock_guard<std::mutex> lock(mutex_);
    requests_.push_back(request);
  }
  void post(const std::string& what, const std::string& answer) {
    server_.Post(
        "/api/2.0/mlflow/" + what,
        [=](const httplib::Request& request, httplib::Response& response) {
          add(what + " " + request.body);
          const std::lock_guard<std::mutex> lock(mutex_);
          authorization_ = request.get_header_value("Authorization");
          if (refuse_ && what == "runs/log-batch") {
            response.status = 400;
            response.set_content("too long", "text/plain");
          } else {
            response.set_content(answer, "application/json");
          }
        });
  }

  httplib::Server server_;
  int port_ = 0;
  std::thread thread_;
  std::mutex mutex_;
  std::vector<std::string> requests_;
  std::string authorization_;
  bool refuse_ = false;
};

} // namespace

TEST(MLflow, RecordsARun) {
  ASSERT_TRUE(accel::MLflowTracker::is_available());
  Server server(/*experiment_exists=*/false);
  const auto environment = accel::patch_environment(
      {{"MLFLOW_TRACKING_URI", server.address() + "/"},
       {"MLFLOW_TRACKING_TOKEN", "secret"}});
  accel::MLflowTracker tracker({"my project", "", {{"run_name", "first"}}});
  EXPECT_TRUE(server.requests().empty());
  tracker.start();
  EXPECT_EQ(tracker.run_id(), "abc");
  tracker.store_init_configuration({{"lr", 0.1}, {"name", "x"}});
  tracker.log({{"loss", 0.5}, {"note", "warm"}, {"n", 3}}, 7);
  tracker.log({{"loss", std::nan("")}});
  tracker.finish();
  tracker.finish();

  EXPECT_EQ(server.requests().at(0), "get-by-name my project");
  EXPECT_EQ(server.authorization(), "Bearer secret");
  EXPECT_EQ(
      server.bodies("experiments/create"),
      (std::vector<nlohmann::json>{{{"name", "my project"}}}));
  const auto create = server.bodies("runs/create").at(0);
  EXPECT_EQ(create.at("experiment_id"), "34");
  EXPECT_EQ(create.at("run_name"), "first");
  EXPECT_GT(create.at("start_time").get<int64_t>(), 1600000000000);

  auto batches = server.bodies("runs/log-batch");
  ASSERT_EQ(batches.size(), 4u);
  EXPECT_EQ(batches[0].at("run_id"), "abc");
  EXPECT_EQ(
      batches[0].at("params"),
      nlohmann::json::parse(
          R"([{"key":"lr","value":"0.1"},{"key":"name","value":"x"}])"));
  const auto& metrics = batches[1].at("metrics");
  ASSERT_EQ(metrics.size(), 2u);
  EXPECT_EQ(metrics[0].at("key"), "loss");
  EXPECT_EQ(metrics[0].at("value"), 0.5);
  EXPECT_EQ(metrics[0].at("step"), 7);
  EXPECT_GT(metrics[0].at("timestamp").get<int64_t>(), 1600000000000);
  EXPECT_EQ(metrics[1].at("value"), 3.0);
  EXPECT_EQ(
      batches[2].at("tags"),
      nlohmann::json::parse(R"([{"key":"note","value":"warm"}])"));
  EXPECT_EQ(batches[3].at("metrics").at(0).at("value"), "NaN");
  const auto updates = server.bodies("runs/update");
  ASSERT_EQ(updates.size(), 1u);
  EXPECT_EQ(updates[0].at("status"), "FINISHED");
  EXPECT_THROWS_WITH(tracker.log({{"a", 1}}), "not active");
}

TEST(MLflow, GoesOnWithARunAndSplitsLongLists) {
  Server server(/*experiment_exists=*/true);
  accel::MLflowTracker tracker(
      {"p", "", {{"tracking_uri", server.address()}, {"run_id", "old"}}});
  tracker.start();
  EXPECT_EQ(server.bodies("runs/update").at(0).at("status"), "RUNNING");
  accel::LogValues config;
  for (int i = 0; i < 250; ++i) {
    config.emplace_back("p" + std::to_string(i), i);
  }
  tracker.store_init_configuration(config);
  const auto batches = server.bodies("runs/log-batch");
  ASSERT_EQ(batches.size(), 3u);
  EXPECT_EQ(batches[1].at("params").size(), 100u);
  EXPECT_EQ(batches[2].at("params").at(49).at("key"), "p249");
  EXPECT_EQ(batches[2].at("run_id"), "old");
}

TEST(MLflow, ErrorsNameTheServerAndWhatItSaid) {
  {
    const auto environment = accel::clear_environment();
    EXPECT_THROWS_WITH(
        accel::MLflowTracker({"p", "", {}}), "set MLFLOW_TRACKING_URI");
  }
  EXPECT_THROWS_WITH(
      accel::MLflowTracker({"p", "", {{"tracking_uri", "file:runs"}}}),
      "is 'file:runs'");
  EXPECT_THROWS_WITH(
      accel::MLflowTracker({"p", "", {{"uri", "x"}}}), "no option 'uri'");

  Server server(/*experiment_exists=*/true);
  accel::MLflowTracker tracker({"p", "", {{"tracking_uri", server.address()}}});
  EXPECT_THROWS_WITH(tracker.log({{"a", 1}}), "not active");
  tracker.start();
  EXPECT_EQ(server.bodies("runs/create").at(0).at("experiment_id"), "12");
  server.refuse();
  EXPECT_THROWS_WITH(
      tracker.log({{"a", 1}}),
      "MLflow refused runs/log-batch with status 400: too long");
  server.stop();
  EXPECT_THROWS_WITH(tracker.log({{"a", 1}}), "does not answer");
}

#else

TEST(MLflow, SaysThatItIsNotBuiltIn) {
  EXPECT_FALSE(accel::MLflowTracker::is_available());
  EXPECT_THROWS_WITH(
      accel::MLflowTracker({"p", "", {{"tracking_uri", "http://x"}}}),
      "cpp-httplib was not found");
}

#endif
