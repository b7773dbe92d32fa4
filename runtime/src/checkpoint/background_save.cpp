#include "checkpoint/background_save.h"

#include "checkpoint/snapshot.h"
#include "checkpoint/together.h"

#include <c10/util/Exception.h>

#include <utility>

namespace accel::checkpoint {

BackgroundSave::BackgroundSave(
    const std::string& directory,
    const TrainingState& state,
    const Processes& processes,
    Sync sync,
    ExchangeBeside exchange,
    std::function<void(const Processes&)> afterwards)
    : unfinished_(directory, processes, sync),
      processes_(processes),
      afterwards_(std::move(afterwards)) {
  const auto own_files = exchange_own_files(state, processes);
  run_together(processes, unfinished_.what(), [&] {
    if (state.before_save) {
      state.before_save(unfinished_.directory());
    }
    files_ = state_files(state, processes, own_files);
    for (auto& file : files_.tensors) {
      file.tensors = snapshot(file.tensors);
    }
  });
  processes_.exchange = [this, exchange = std::move(exchange)](
                            const std::string& text) {
    return exchange(text, cancelled_);
  };
  thread_ = std::thread([this] { run(); });
}

BackgroundSave::~BackgroundSave() {
  cancelled_ = true;
  if (thread_.joinable()) {
    thread_.join();
  }
}

void BackgroundSave::finish() {
  thread_.join();
  if (error_) {
    std::rethrow_exception(error_);
  }
}

void BackgroundSave::run() noexcept {
  try {
    write();
  } catch (...) {
    error_ = std::current_exception();
  }
  done_.store(true, std::memory_order_release);
}

void BackgroundSave::write() {
  unfinished_.finish(processes_, [&](CheckpointFiles& files) {
    const auto check = [&] {
      TORCH_CHECK(
          !cancelled_,
          unfinished_.what(),
          " was given up, because the program has ended");
    };
    for (auto& [name, tensors, metadata] : files_.tensors) {
      check();
      files.write_tensors(name, tensors, metadata);
      tensors.clear(); // The memory is needed no longer.
    }
    for (const auto& [name, text] : files_.texts) {
      check();
      files.write_bytes(name, text);
    }
  });
  afterwards_(processes_);
}

} // namespace accel::checkpoint
