#include "core/failure_note.h"
#include "core/introduction.h"
#include "core/operation_log.h"
#include "core/rendezvous.h"
#include "core/watchdog.h"
#include "core/world.h"

#include <ATen/ATen.h>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include <array>
#include <functional>
#include <future>
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
constexpr const char* kWatchdogStore = "watchdog";
/// A start that takes longer than this does not succeed any more.
constexpr auto kLongestStart = std::chrono::minutes(5);

/// The message without the C++ backtrace that c10 adds.
std::string message_of(const std::exception& error) {
  if (const auto* c10_error = dynamic_cast<const c10::Error*>(&error)) {
    return c10_error->what_without_backtrace();
  }
  return error.what();
}

/// Gloo, whose connections can be cut while operations are waiting.
class CuttableGloo : public c10d::ProcessGroupGloo {
 public:
  using c10d::ProcessGroupGloo::ProcessGroupGloo;

  void cut() {
    for (const auto& context : contexts_) {
      context->closeConnections();
    }
  }
};

class GlooCommunicator : public Communicator {
 public:
  GlooCommunicator(
      const c10::intrusive_ptr<c10d::Store>& store,
      const Environment& environment,
      const c10::intrusive_ptr<c10d::ProcessGroupGloo::Options>& options,
      Channel channel,
      std::shared_ptr<OperationLog> log,
      std::function<std::string()> verdict)
      : rank_(environment.rank),
        size_(environment.world_size),
        channel_(channel),
        log_(std::move(log)),
        verdict_(std::move(verdict)),
        group_(c10::make_intrusive<CuttableGloo>(
            store,
            static_cast<int>(rank_),
            static_cast<int>(size_),
            options)) {}

  int64_t rank() const override {
    return rank_;
  }

  int64_t size() const override {
    return size_;
  }

  void all_reduce(at::Tensor& tensor) override {
    all_reduce_async(tensor)();
  }

  Waiter all_reduce_async(at::Tensor& tensor) override {
    TORCH_CHECK(
        tensor.is_contiguous(),
        "accel: all_reduce needs a contiguous tensor, got strides ",
        tensor.strides(),
        " for sizes ",
        tensor.sizes());
    std::vector<at::Tensor> tensors{tensor};
    c10::intrusive_ptr<c10d::Work> work;
    const auto operation = log_->begin(channel_, "all_reduce", tensor);
    guarded(operation, [&] { work = group_->allreduce(tensors); });
    return [this, work, operation] {
      guarded(operation, [&] { work->wait(); });
    };
  }

  std::vector<at::Tensor> all_gather(const at::Tensor& tensor) override {
    auto input = tensor.detach().contiguous();
    std::vector<at::Tensor> outputs;
    std::vector<std::vector<at::Tensor>> output_bytes(1);
    for (int64_t i = 0; i < size_; ++i) {
      outputs.push_back(at::empty_like(input));
      output_bytes[0].push_back(bytes(outputs.back()));
    }
    if (input.numel() == 0) {
      barrier(); // keeps the calls of all processes matched
      return outputs;
    }
    std::vector<at::Tensor> input_bytes{bytes(input)};
    guarded(log_->begin(channel_, "all_gather", tensor), [&] {
      group_->allgather(output_bytes, input_bytes)->wait();
    });
    return outputs;
  }

  void broadcast(at::Tensor& tensor, int64_t source) override {
    TORCH_CHECK(
        source >= 0 && source < size_,
        "accel: broadcast from process ",
        source,
        ", but there are processes 0 to ",
        size_ - 1,
        " only.");
    auto contiguous = tensor.detach().contiguous();
    if (contiguous.numel() == 0) {
      barrier();
      return;
    }
    std::vector<at::Tensor> tensors{bytes(contiguous)};
    c10d::BroadcastOptions options;
    options.rootRank = source;
    guarded(log_->begin(channel_, "broadcast", tensor), [&] {
      group_->broadcast(tensors, options)->wait();
    });
    if (!contiguous.is_alias_of(tensor)) {
      tensor.detach().copy_(contiguous);
    }
  }

  void barrier() override {
    guarded(log_->begin(channel_, "barrier", at::Tensor()), [&] {
      group_->barrier()->wait();
    });
  }

  void cut() {
    group_->cut();
  }

 private:
  /// Gloo moves some dtypes only; bytes are bytes.
  static at::Tensor bytes(const at::Tensor& tensor) {
    return at::from_blob(
        tensor.data_ptr(),
        {static_cast<int64_t>(tensor.nbytes())},
        at::TensorOptions().dtype(at::kByte));
  }

  template <typename F>
  void guarded(const Operation& operation, F&& f) const {
    try {
      const OperationLog::Waiting waiting(*log_, operation);
      f();
    } catch (const std::exception& error) {
      const std::string reason = message_of(error);
      if (const auto verdict = verdict_(); !verdict.empty()) {
        TORCH_CHECK(
            false,
            "accel: ",
            operation.describe(),
            " failed on process ",
            rank_,
            " of ",
            size_,
            ": ",
            verdict);
      }
      // At once: the launcher does not wait for long.
      note_lost_peer(operation.describe() + ": " + reason);
      const std::string news = failure_news();
      const std::string site = channel_ == Channel::kMain
          ? operation.site.describe()
          : "forward or backward";
      TORCH_CHECK(
          false,
          "accel: ",
          operation.describe(),
          " failed on process ",
          rank_,
          " of ",
          size_,
          site.empty() ? "" : ", called at " + site,
          ": ",
          news.empty()
              ? "another process has probably ended, or has called something "
                "else; look at its output"
              : news,
          " (",
          reason,
          ")");
    }
  }

  int64_t rank_;
  int64_t size_;
  Channel channel_;
  std::shared_ptr<OperationLog> log_;
  std::function<std::string()> verdict_;
  c10::intrusive_ptr<CuttableGloo> group_;
};

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

class GlooWorld : public World {
 public:
  GlooWorld(const Environment& environment, milliseconds timeout)
      : environment_(environment), timeout_(timeout) {
    const auto deadline = steady_clock::now() +
        std::min<milliseconds>(timeout, kLongestStart);
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
    constexpr std::array<const char*, 3> kNames{
        "main", "gradients", "statistics"};
    for (size_t i = 0; i < kNames.size(); ++i) {
      try {
        communicators_[i] = std::make_unique<GlooCommunicator>(
            c10::make_intrusive<c10d::PrefixStore>(kNames[i], store_),
            environment_,
            options,
            static_cast<Channel>(i),
            log_,
            [this] { return watchdog_ ? watchdog_->verdict() : ""; });
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
    start_watchdog(timeout);
    if (!environment_.single_host()) {
      before.newer().keep_alive();
    }
  }

  ~GlooWorld() override {
    abandon();
  }

  Communicator& communicator(Channel channel) override {
    auto& communicator = communicators_[static_cast<size_t>(channel)];
    TORCH_CHECK(
        communicator != nullptr,
        "accel: the connection to the other processes has been ended.");
    return *communicator;
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
    // Only calls that do not block: the program's thread uses the store, too.
    const std::string own = turn + std::to_string(environment_.rank);
    store_->set(own, text);
    std::vector<std::string> texts;
    auto pause = milliseconds(1);
    for (int64_t rank = 0; rank < environment_.world_size; ++rank) {
      const std::string key = turn + std::to_string(rank);
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

  void leave() noexcept override {
    try {
      const auto deadline = steady_clock::now() + kLeaveTimeout;
      log_->leave();
      const std::string text = log_->status().to_text();
      store_->set(
          kWatchdogStore + ("/" + watchdog_ended_key(environment_.rank)),
          std::vector<uint8_t>(text.begin(), text.end()));
      wait_for_count("finished", environment_.world_size, deadline);
      watchdog_.reset();
      communicators_ = {};
      // The store goes last, and its host after everybody who asks it.
      if (hosts_store()) {
        wait_for_count("left", environment_.world_size, deadline);
      } else {
        store_->add("left", 1);
      }
    } catch (...) {
      // Somebody has ended before; there is nobody left to wait for.
    }
    close();
  }

  void abandon() noexcept override {
    if (store_ != nullptr) {
      MeetingPlace::get().store.reset();
    }
    close();
  }

 private:
  void close() noexcept {
    watchdog_.reset();
    for (auto& communicator : communicators_) {
      try {
        if (communicator) {
          communicator->cut();
        }
        communicator.reset();
      } catch (...) {
        // A connection that cannot be cut is gone already.
      }
    }
    store_.reset();
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
    c10d::TCPStoreOptions options;
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
        [this] { connections_.shut_down(); });
  }

  c10::intrusive_ptr<c10d::Store> open_store(
      milliseconds timeout,
      steady_clock::time_point deadline) const {
    c10d::TCPStoreOptions options;
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
          " could not meet the others at ",
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
      return c10d::ProcessGroupGloo::createDeviceForInterface(*interface);
    }
    if (environment_.single_host()) {
      return c10d::ProcessGroupGloo::createDeviceForHostname("127.0.0.1");
    }
    return c10d::ProcessGroupGloo::createDeviceForHostname(
        local_address(environment_));
  }

  /// Adds this process to the count and waits until it has reached `goal`.
  void wait_for_count(
      const std::string& key,
      int64_t goal,
      steady_clock::time_point deadline) {
    int64_t count = store_->add(key, 1);
    auto pause = milliseconds(1);
    // Others may be in an operation that will not come any more here.
    auto look = steady_clock::now() + std::chrono::seconds(2);
    while (count < goal && steady_clock::now() < deadline &&
           (!watchdog_ || watchdog_->verdict().empty())) {
      if (steady_clock::now() > look) {
        store_->add(
            kWatchdogStore + (std::string("/") + kWatchdogQuestions), 1);
        look += std::chrono::seconds(2);
      }
      std::this_thread::sleep_for(pause);
      pause = std::min(pause * 2, milliseconds(20));
      count = store_->add(key, 0);
    }
  }

  Environment environment_;
  milliseconds timeout_;
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
  std::array<std::unique_ptr<GlooCommunicator>, 3> communicators_;
  /// Theirs.
  Connections connections_;
  std::unique_ptr<Watchdog> watchdog_;
};

} // namespace

std::unique_ptr<World> make_gloo_world(
    const Environment& environment,
    milliseconds timeout) {
  return std::make_unique<GlooWorld>(environment, timeout);
}

} // namespace accel::detail
