#include "core/device_communicator.h"
#include "core/failure_note.h"
#include "core/gather_texts.h"
#include "core/gloo_communicator.h"
#include "core/guarded_operation.h"
#include "core/introduction.h"
#include "core/libtorch_releases.h"
#include "core/operation_log.h"
#include "core/rendezvous.h"
#include "core/watchdog.h"
#include "core/world.h"

#include <ATen/ATen.h>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include <algorithm>
#include <array>
#include <cstring>
#include <functional>
#include <future>
#include <mutex>
#include <thread>

namespace accel::detail {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

/// Longer than any honest process needs from one call to another; only where
/// something has gone wrong is it waited for in full.
constexpr auto kLeaveTimeout = std::chrono::seconds(30);
/// Seconds in an operation before the other processes are asked.
constexpr int64_t kStallTimeout = 60;
/// Bytes of a tensor that go through shared memory at a time.
constexpr int64_t kGradientChunk = 1 << 20;
constexpr int64_t kSmallChunk = 1 << 16;
constexpr const char* kWatchdogStore = "watchdog";
/// A start that takes longer than this does not succeed any more.
constexpr auto kLongestStart = std::chrono::minutes(5);

/// The store, or its error after `deadline`. What listens at the port may be
/// anything: a client whose greeting is never answered would wait for ever,
/// so it is made on a thread that can be left behind.
c10::intrusive_ptr<c10d::Store> make_store(
    const std::string& address,
    const c10d::TCPStoreOptions& options,
    steady_clock::time_point deadline) {
  std::packaged_task<c10::intrusive_ptr<c10d::Store>()> task(
      [address, options]() -> c10::intrusive_ptr<c10d::Store> {
        return c10::make_intrusive<c10d::TCPStore>(address, options);
      });
  auto store = task.get_future();
  std::thread thread(std::move(task));
  // The store has a timeout of its own, with a better message.
  if (store.wait_until(deadline + std::chrono::seconds(1)) ==
      std::future_status::timeout) {
    thread.detach();
    TORCH_CHECK(
        false,
        "somebody listens there who does not answer as process 0 would; "
        "MASTER_PORT may belong to another program");
  }
  thread.join();
  return store.get();
}

/// The store that the processes have met at, kept from one Accelerator of this
/// program to the next: who comes back early must not reach the one that
/// process 0 is about to close.
struct MeetingPlace {
  Environment environment;
  c10::intrusive_ptr<c10d::Store> store;
  /// Accelerators that have met.
  int64_t meetings = 0;

  static MeetingPlace& get() {
    static MeetingPlace place;
    return place;
  }
  bool serves(const Environment& other) const {
    return store != nullptr && environment.rank == other.rank &&
        environment.world_size == other.world_size &&
        environment.master_addr == other.master_addr &&
        environment.master_port == other.master_port &&
        environment.agent_store == other.agent_store;
  }
};

class ProcessWorld : public World {
 public:
  ProcessWorld(
      const Environment& environment,
      const Placement& placement,
      milliseconds timeout)
      : environment_(environment), placement_(placement), timeout_(timeout) {
    const auto deadline =
        steady_clock::now() + std::min<milliseconds>(timeout, kLongestStart);
    const auto before = Connections::open_now();
    connect_store(deadline);
    try {
      introduce(*store_, environment_);
    } catch (...) {
      MeetingPlace::get().store.reset(); // so that nobody waits there
      throw;
    }
    const auto with_store = Connections::open_now();
    const auto options = c10d::ProcessGroupGloo::Options::create(timeout);
    options->devices.push_back(device());
    for (size_t i = 0; i < communicators_.size(); ++i) {
      try {
        communicators_[i] = connect_hosts(static_cast<Channel>(i), options);
      } catch (const std::exception& error) {
        MeetingPlace::get().store.reset(); // so that nobody waits there
        const std::string reason = message_of(error);
        // Perhaps one has come as far as this and died.
        note_lost_peer("the start: " + reason);
        const std::string news = failure_news();
        TORCH_CHECK(
            false,
            "accel: process ",
            environment_.rank,
            " of ",
            environment_.world_size,
            " could not connect to the others: ",
            news.empty() ? "" : news + ". It was noticed here by: ",
            reason,
            ". Look at the output of the other processes; on several "
            "machines, GLOO_SOCKET_IFNAME names the network interface to "
            "use.");
      }
    }
    connections_ = with_store.newer();
    try {
      connect_devices();
    } catch (...) {
      MeetingPlace::get().store.reset(); // so that nobody waits there
      throw;
    }
    start_watchdog(timeout);
    if (!environment_.single_host()) {
      before.newer().keep_alive();
    }
  }

  ~ProcessWorld() override {
    abandon();
  }

  Communicator& communicator(Channel channel) override {
    auto& communicator = communicators_[static_cast<size_t>(channel)];
    TORCH_CHECK(
        communicator != nullptr,
        "accel: the connection to the other processes has been ended.");
    return *communicator;
  }

  Communicator& connect_group(const OperationGroupPtr& group) override {
    auto connected = std::make_unique<ConnectedGroup>();
    if (group->processes.size() == 1) {
      connected->communicator = make_single_process_communicator();
    } else {
      const auto before = Connections::open_now();
      try {
        connect(*connected, group);
      } catch (const std::exception& error) {
        const std::string reason = message_of(error);
        note_lost_peer("connecting " + group->name + ": " + reason);
        const std::string news = failure_news();
        TORCH_CHECK(
            false,
            "accel: process ", environment_.rank, " of ",
            environment_.world_size, " could not connect to the others of ",
            group->name, ": ", news.empty() ? "" : news + ". It was noticed here by: ",
            reason, ". Look at the output of the other processes.");
      }
      connected->connections = before.newer();
      if (!environment_.single_host()) {
        connected->connections.keep_alive();
      }
    }
    auto& communicator = *connected->communicator;
    const std::lock_guard<std::mutex> lock(groups_mutex_);
    groups_.push_back(std::move(connected));
    return communicator;
  }

  bool carries_enclosed() const override {
    const auto gradients = static_cast<size_t>(Channel::kGradients);
    return hosts_[gradients] != nullptr &&
        hosts_[gradients]->shares_memory() && devices_[gradients] == nullptr;
  }

  std::vector<std::string> exchange_beside(
      const std::string& name,
      const std::string& text,
      const std::atomic<bool>& cancelled) override {
    if (name != beside_.name) {
      beside_.name = name;
      beside_.turns = 0;
    }
    const std::string turn = "beside/" + name + "/" +
        std::to_string(beside_.turns++) + "/";
    const auto deadline = steady_clock::now() + timeout_;
    const std::string own = turn + std::to_string(environment_.rank);
    store_->set(own, text);
    std::vector<std::string> texts;
    for (int64_t rank = 0; rank < environment_.world_size; ++rank) {
      const std::string key = turn + std::to_string(rank);
      wait_for_key(key, rank, deadline, cancelled);
      const auto bytes = store_->get(key);
      texts.emplace_back(bytes.begin(), bytes.end());
    }
    // All are here, so all have read what they came from.
    if (!beside_.last.empty()) {
      store_->deleteKey(beside_.last);
    }
    beside_.last = own;
    return texts;
  }

  void follow_first(const std::string& name) override {
    const std::string key = "first/" + name;
    if (environment_.rank == 0) {
      store_->set(key, "");
    } else {
      wait_for_key(key, 0, steady_clock::now() + timeout_, /*cancelled=*/false);
    }
  }

  std::vector<std::string> leave(const std::string& last_words) noexcept
      override {
    std::vector<std::string> all;
    try {
      const auto deadline = steady_clock::now() + kLeaveTimeout;
      log_->leave();
      const std::string text = log_->status().to_text();
      store_->set(
          kWatchdogStore + ("/" + watchdog_ended_key(environment_.rank)),
          std::vector<uint8_t>(text.begin(), text.end()));
      const auto key_of = [](int64_t rank) {
        return "last_words/" + std::to_string(rank);
      };
      if (!last_words.empty()) {
        store_->set(key_of(environment_.rank), last_words);
      }
      if (wait_for_count("finished", environment_.world_size, deadline) &&
          !last_words.empty()) {
        for (int64_t rank = 0; rank < environment_.world_size; ++rank) {
          const auto bytes = store_->get(key_of(rank));
          all.emplace_back(bytes.begin(), bytes.end());
        }
      }
      watchdog_.reset();
      // The devices' groups end while all are there, and before what they have
      // met over.
      for (auto* device : devices_) {
        if (device != nullptr) {
          device->shutdown();
        }
      }
      for (const auto& group : groups_) {
        if (group->device != nullptr) {
          group->device->shutdown();
        }
      }
      {
        const std::lock_guard<std::mutex> lock(groups_mutex_);
        groups_.clear();
      }
      devices_ = {};
      hosts_ = {};
      communicators_ = {};
      // The store goes last, and its host after everybody who asks it.
      if (hosts_store()) {
        wait_for_count("left", environment_.world_size, deadline);
      } else {
        store_->add("left", 1);
      }
    } catch (...) {
      // Somebody has ended before; there is nobody left to wait for.
      all.clear();
    }
    close();
    return all;
  }

  void abandon() noexcept override {
    if (store_ != nullptr) {
      MeetingPlace::get().store.reset();
    }
    close();
  }

 private:
  /// What `connect_group` has made.
  struct ConnectedGroup {
    /// Null where one process is alone.
    GlooCommunicator* host = nullptr;
    /// Null without a device backend.
    DeviceCommunicator* device = nullptr;
    std::unique_ptr<Communicator> communicator;
    Connections connections;
  };

  /// Ends what anybody waits in along an axis of a mesh. From any thread.
  void give_up_groups() noexcept {
    const std::lock_guard<std::mutex> lock(groups_mutex_);
    for (const auto& group : groups_) {
      group->connections.shut_down();
      if (group->host != nullptr) {
        group->host->leave_memory();
      }
      if (group->device != nullptr) {
        group->device->abort();
      }
    }
  }

  void close() noexcept {
    watchdog_.reset();
    // The others hear of it from Gloo at once; ending NCCL can take a while.
    for (auto*& host : hosts_) {
      try {
        if (host != nullptr) {
          host->cut();
        }
      } catch (...) {
        // A connection that cannot be cut is gone already.
      }
      host = nullptr;
    }
    for (const auto& group : groups_) {
      try {
        if (group->host != nullptr) {
          group->host->cut();
        }
      } catch (...) {
        // The same.
      }
    }
    abort_devices();
    for (const auto& group : groups_) {
      if (group->device != nullptr) {
        group->device->abort();
      }
    }
    groups_.clear(); // nobody else is there: the watchdog has ended
    devices_ = {};
    communicators_ = {};
    store_.reset();
  }

  static std::string name_of(Channel channel) {
    constexpr std::array<const char*, 3> kNames{
        "main", "gradients", "operators"};
    return kNames[static_cast<size_t>(channel)];
  }

  GuardedOperations operations_of(Channel channel) {
    GuardedOperations operations;
    operations.rank = environment_.rank;
    operations.size = environment_.world_size;
    operations.world_size = environment_.world_size;
    operations.channel = channel;
    operations.log = log_;
    operations.verdict = [this] {
      return watchdog_ ? watchdog_->verdict() : std::string();
    };
    return operations;
  }

  GuardedOperations operations_of(const OperationGroupPtr& group) {
    auto operations = operations_of(Channel::kOperators);
    const auto& processes = group->processes;
    operations.rank =
        std::find(processes.begin(), processes.end(), environment_.rank) -
        processes.begin();
    operations.size = static_cast<int64_t>(processes.size());
    operations.group = group;
    return operations;
  }

  /// Gloo, and the device backend in front of it, between a group's processes.
  void connect(ConnectedGroup& connected, const OperationGroupPtr& group) {
    log_->add_group(group);
    const auto options = c10d::ProcessGroupGloo::Options::create(timeout_);
    options->devices.push_back(device());
    auto host = std::make_unique<GlooCommunicator>(
        c10::make_intrusive<c10d::PrefixStore>(group->key, store_),
        options,
        operations_of(group));
    if (environment_.single_host()) {
      host->share_memory(
          shares_memory_,
          kSmallChunk, timeout_);
    }
    connected.host = host.get();
    if (placement_.staged) {
      connected.communicator = std::make_unique<StagedCommunicator>(
          std::move(host), placement_.staged);
      return;
    }
    connected.communicator = std::move(host);
    if (placement_.backend != nullptr) {
      auto routed = make_device_communicator(
          std::move(connected.communicator), *connected.host,
          operations_of(group), group->key);
      connected.device = routed.get();
      connected.communicator = std::move(routed);
    }
  }

  /// The device backend's group in front of a host's communicator.
  std::unique_ptr<DeviceCommunicator> make_device_communicator(
      std::unique_ptr<Communicator> communicator,
      GlooCommunicator& host,
      GuardedOperations operations,
      const std::string& name) {
    DeviceGroupRequest request;
    request.store =
        c10::make_intrusive<c10d::PrefixStore>("device/" + name, store_);
    request.rank = operations.rank;
    request.size = operations.size;
    request.device = placement_.choice.device;
    request.timeout = timeout_;
    request.name = "accel_" + name;
    c10::intrusive_ptr<c10d::Backend> group;
    try {
      group = placement_.backend->make(request);
    } catch (const std::exception& error) {
      TORCH_CHECK(
          false,
          "accel: ",
          operations.process(),
          " could not connect its device ",
          request.device.str(),
          " with the others: ",
          message_of(error),
          ". Look at the output of the other processes.",
          placement_.backend->advice);
    }
    // Over Gloo it would cost more than the operation itself.
    std::function<void(const Operation&)> compare;
    if (operations.channel == Channel::kOperators && host.shares_memory()) {
      compare = [&host](const Operation& operation) { host.compare(operation); };
    }
    return std::make_unique<DeviceCommunicator>(
        std::move(communicator), std::move(group), *placement_.backend,
        request.device, std::move(operations), std::move(compare));
  }

  std::unique_ptr<Communicator> connect_hosts(
      Channel channel,
      const c10::intrusive_ptr<c10d::ProcessGroupGloo::Options>& options) {
    auto host = std::make_unique<GlooCommunicator>(
        c10::make_intrusive<c10d::PrefixStore>(name_of(channel), store_),
        options,
        operations_of(channel));
    if (environment_.single_host()) {
      host->share_memory(
          shares_memory_,
          channel == Channel::kGradients ? kGradientChunk : kSmallChunk,
          timeout_);
    }
    hosts_[static_cast<size_t>(channel)] = host.get();
    if (placement_.staged) {
      return std::make_unique<StagedCommunicator>(
          std::move(host), placement_.staged);
    }
    return host;
  }

  /// Puts the device backend's groups in front of Gloo's.
  void connect_devices() {
    if (placement_.backend == nullptr) {
      return;
    }
    check_devices_differ(gather_texts(
        *communicators_[0],
        placement_.backend->identity(placement_.choice.device),
        /*most=*/120));
    for (size_t i = 0; i < communicators_.size(); ++i) {
      const auto channel = static_cast<Channel>(i);
      auto routed = make_device_communicator(
          std::move(communicators_[i]), *hosts_[i], operations_of(channel),
          name_of(channel));
      devices_[i] = routed.get();
      communicators_[i] = std::move(routed);
    }
  }

  void abort_devices() noexcept {
    for (auto* device : devices_) {
      if (device != nullptr) {
        device->abort();
      }
    }
  }

  /// Until process `rank` has set it. By calls that do not block: other threads use
  /// the store, too.
  void wait_for_key(
      const std::string& key,
      int64_t rank,
      steady_clock::time_point deadline,
      const std::atomic<bool>& cancelled) {
    auto pause = milliseconds(1);
    while (!store_->check({key})) {
      TORCH_CHECK(
          !cancelled,
          "accel: process ",
          environment_.rank,
          " has stopped waiting for process ",
          rank,
          ", because the program ends.");
      TORCH_CHECK(
          steady_clock::now() < deadline,
          "accel: process ",
          environment_.rank,
          " has waited for process ",
          rank,
          " for ",
          timeout_.count(),
          " ms, the timeout of the Accelerator's options.");
      std::this_thread::sleep_for(pause);
      pause = std::min(pause * 2, milliseconds(50));
    }
  }

  bool hosts_store() const {
    return environment_.rank == 0 && !environment_.agent_store;
  }

  void connect_store(steady_clock::time_point deadline) {
    auto& place = MeetingPlace::get();
    const auto timeout = std::max(
        milliseconds(100),
        std::chrono::duration_cast<milliseconds>(
            deadline - steady_clock::now()));
    if (place.serves(environment_)) {
      place.store->setTimeout(timeout);
    } else {
      place.store = open_store(timeout, deadline);
      place.environment = environment_;
    }
    // A launcher that restarts the processes keeps its store.
    prefix_ = "accel/" +
        get_environment("TORCHELASTIC_RESTART_COUNT").value_or("0") + "/" +
        std::to_string(place.meetings++);
    store_ = c10::make_intrusive<c10d::PrefixStore>(prefix_, place.store);
  }

  void start_watchdog(milliseconds timeout) {
    const int64_t seconds =
        get_environment_integer("ACCEL_STALL_TIMEOUT", 0, 1 << 20)
            .value_or(kStallTimeout);
    if (seconds == 0) {
      return;
    }
    auto options = store_options();
    options.port = environment_.master_port;
    options.waitWorkers = false;
    options.timeout = timeout;
    watchdog_ = std::make_unique<Watchdog>(
        Watchdog::Options{
            environment_.rank,
            environment_.world_size,
            std::chrono::seconds(seconds)},
        c10::make_intrusive<c10d::PrefixStore>(
            prefix_ + "/" + kWatchdogStore,
            make_store(
                environment_.master_addr,
                options,
                steady_clock::now() + std::chrono::seconds(30))),
        log_,
        [this] {
          connections_.shut_down();
          give_up_groups();
          for (auto* host : hosts_) {
            if (host != nullptr) {
              host->leave_memory();
            }
          }
          abort_devices();
        });
  }

  c10::intrusive_ptr<c10d::Store> open_store(
      milliseconds timeout,
      steady_clock::time_point deadline) const {
    auto options = store_options();
    options.port = environment_.master_port;
    options.isServer = hosts_store();
    if (hosts_store()) {
      options.masterListenFd = listen_at_master(environment_);
    } else {
      wait_for_master(environment_, deadline);
    }
    if (!environment_.agent_store) {
      options.numWorkers = environment_.world_size;
    } else {
      options.waitWorkers = false;
    }
    options.timeout = timeout;
    try {
      return make_store(environment_.master_addr, options, deadline);
    } catch (const std::exception& error) {
      TORCH_CHECK(
          false,
          "accel: process ",
          environment_.rank,
          " of ",
          environment_.world_size,
          " could not connect to the others at ",
          environment_.master_addr,
          ":",
          environment_.master_port,
          ": ",
          message_of(error),
          ". Have all processes been started? Look at their output.");
    }
  }

  std::shared_ptr<::gloo::transport::Device> device() const {
    if (const auto interface = get_environment("GLOO_SOCKET_IFNAME")) {
      try {
        return c10d::ProcessGroupGloo::createDeviceForInterface(*interface);
      } catch (const std::exception&) { // Gloo's own text has no name of the variable.
        TORCH_CHECK(
            false,
            "accel: the environment variable GLOO_SOCKET_IFNAME is '",
            *interface,
            "', but this host has no network interface of that name that has an "
            "address. Name another one (ip address lists them), or unset it.");
      }
    }
    if (environment_.single_host()) {
      return c10d::ProcessGroupGloo::createDeviceForHostname("127.0.0.1");
    }
    return c10d::ProcessGroupGloo::createDeviceForHostname(
        local_address(environment_));
  }

  /// Adds this process to the count and waits until it has reached `goal`.
  /// Returns whether it has.
  bool wait_for_count(
      const std::string& key,
      int64_t goal,
      steady_clock::time_point deadline) {
    int64_t count = store_->add(key, 1);
    auto pause = milliseconds(1);
    // Others may be in an operation that will not come any more here.
    auto look = steady_clock::now() + std::chrono::seconds(2);
    while (count < goal && steady_clock::now() < deadline &&
           !(watchdog_ && watchdog_->has_verdict())) {
      if (steady_clock::now() > look) {
        store_->add(
            kWatchdogStore + (std::string("/") + kWatchdogQuestions), 1);
        look += std::chrono::seconds(2);
      }
      std::this_thread::sleep_for(pause);
      pause = std::min(pause * 2, milliseconds(20));
      count = store_->add(key, 0);
    }
    return count >= goal;
  }

  Environment environment_;
  Placement placement_;
  milliseconds timeout_;
  /// Read before anything is connected, so that a wrong value is said as one.
  bool shares_memory_ =
      get_environment_flag("ACCEL_SHARED_MEMORY").value_or(true);
  c10::intrusive_ptr<c10d::Store> store_;
  /// Where `exchange_beside` stands: what it is called for, how often it was,
  /// and the key that this process has still there.
  struct {
    std::string name;
    int64_t turns = 0;
    std::string last;
  } beside_;
  /// Of the keys of this meeting.
  std::string prefix_;
  const std::shared_ptr<OperationLog> log_ = std::make_shared<OperationLog>();
  /// By channel.
  std::array<std::unique_ptr<Communicator>, 3> communicators_;
  /// What those are made of: each has a host's, with NCCL a device's, too.
  std::array<GlooCommunicator*, 3> hosts_{};
  std::array<DeviceCommunicator*, 3> devices_{};
  /// Theirs.
  Connections connections_;
  /// Of the axes of meshes. Changed by the program's thread; the watchdog's looks.
  std::mutex groups_mutex_;
  std::vector<std::unique_ptr<ConnectedGroup>> groups_;
  std::unique_ptr<Watchdog> watchdog_;
};

} // namespace

Placement make_placement(const DeviceChoice& choice) {
  Placement placement;
  placement.choice = choice;
  if (choice.transport == Transport::kDevice) {
    placement.backend = &backend_for(choice.device.type());
  } else if (!choice.device.is_cpu()) {
    placement.staged = [](const at::Tensor& tensor) {
      return !tensor.is_cpu();
    };
  }
  return placement;
}

std::unique_ptr<World> make_process_world(
    const Environment& environment,
    const Placement& placement,
    std::chrono::milliseconds timeout) {
  return std::make_unique<ProcessWorld>(environment, placement, timeout);
}

} // namespace accel::detail
