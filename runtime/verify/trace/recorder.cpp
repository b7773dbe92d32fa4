#include "recorder.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <torch/version.h>

#include <dlfcn.h>
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <sstream>

#include "measure.h"
#include "tensor_file.h"
#include "widen_modules.h"

namespace accel::verify {
namespace {

/// Records are written in pieces of about this many bytes, so that little is
/// lost of a program that is killed.
constexpr size_t kBuffer = size_t{1} << 16;

std::string base_name(const Recorder::Options& options) {
  return options.directory + "/rank-" + std::to_string(options.rank);
}

} // namespace

thread_local Recorder::Current Recorder::current_;

Recorder::Recorder(Options options) : options_(std::move(options)) {
  const std::string path = base_name(options_) + ".trace";
  file_ = ::open(
      path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
  TORCH_CHECK(file_ >= 0, path, ": ", std::strerror(errno));
  buffer_.assign(kTraceMagic, sizeof(kTraceMagic));
  std::ostringstream info;
  info << "{\"rank\": " << options_.rank
       << ", \"world_size\": " << options_.world_size
       << ", \"pid\": " << ::getpid() << ", \"torch\": \"" << TORCH_VERSION
       << "\", \"double\": " << (options_.widening != Widening::kNone ? "true" : "false")
       << ", \"seed\": "
       << (options_.seeded ? std::to_string(options_.seed) : "null") << "}";
  write(Record::kInfo, info.str());
  flush();
}

void Recorder::registered(
    const void* module,
    const std::string& type,
    const std::string& name,
    const at::Tensor& tensor,
    TensorKind kind) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (!ended_) {
    registry_.registered(module, type, name, tensor, kind);
  }
}

bool Recorder::busy() const {
  return current_.recording;
}

void Recorder::begin_plain(
    const std::vector<at::Tensor>& roots, double loss_value) {
  if (options_.world_size > 1 && !warned_about_plain_) {
    warned_about_plain_ = true;
    note(
        uses_runtime_
            ? "process " + std::to_string(options_.rank) +
                " calls backward past accel (loss.backward() instead of "
                "accelerator.backward(loss)): only its own loss is recorded"
            : "no backward of process " + std::to_string(options_.rank) +
                " went through accel: the losses and gradients recorded are "
                "those of one process");
  }
  if (finished()) {
    leave();
  }
  begin_record(roots, loss_value, kAveraged, /*rows=*/0);
}

void Recorder::end_plain(bool failed) {
  if (failed) {
    fail();
    return;
  }
  end_record();
}

void Recorder::fail() {
  current_ = Current();
}

bool Recorder::finished() const {
  return options_.max_steps != 0 && steps_ >= options_.max_steps;
}

void Recorder::leave() {
  finish();
  using Report = void (*)();
  if (const auto report = reinterpret_cast<Report>(
          ::dlsym(RTLD_DEFAULT, "accel_finish_placement_report"))) {
    report();
  }
  std::cout.flush();
  std::fflush(nullptr);
  ::_exit(0);
}

void Recorder::begin(
    const at::Tensor& loss, double global_loss, int64_t rows) {
  uses_runtime_ = true;
  begin_record({loss}, global_loss, kGlobal, rows);
}

void Recorder::end(bool averaged) {
  if (averaged) {
    current_.flags |= kAveraged;
  }
  end_record();
}

void Recorder::begin_record(
    const std::vector<at::Tensor>& roots,
    double loss,
    uint32_t flags,
    int64_t rows) {
  if (steps_ == 0) {
    // As late as can be, so that it runs before LibTorch's own clean-up.
    static Recorder* self;
    self = this;
    std::atexit([] { self->finish(); });
    // The current streams of CUDA are a thread's, made by now, and gone before
    // functions of atexit run. What was made later is destroyed earlier.
    struct AtEndOfMain {
      ~AtEndOfMain() {
        if (::gettid() == ::getpid()) {
          self->finish();
        }
      }
    };
    thread_local const AtEndOfMain end;
    (void)end;
  }
  const std::lock_guard<std::mutex> lock(mutex_);
  current_.recording = true;
  current_.loss = loss;
  current_.dtype = roots.empty() ? Dtype::kOther : dtype_of(roots[0]);
  current_.flags = flags;
  current_.rows = rows;
  current_.leaves.clear();
  for (const auto& [entry, tensor] : registry_.new_registered()) {
    write_tensor(*entry, tensor);
  }
  for (const auto& leaf : finder_.find(roots)) {
    bool is_new = false;
    const auto& entry = registry_.parameter(leaf, is_new);
    if (is_new) {
      write_tensor(entry, leaf);
    }
    current_.leaves.push_back({entry.id, leaf, measure_sample(leaf)});
  }
}

void Recorder::end_record() {
  const std::lock_guard<std::mutex> lock(mutex_);
  current_.recording = false;
  if (ended_) {
    return;
  }
  encoder_.clear();
  encoder_.add(current_.loss)
      .add(current_.dtype)
      .add(current_.flags)
      .add(current_.rows)
      .add(static_cast<uint32_t>(current_.leaves.size()));
  const bool comparable = (current_.flags & kAveraged) != 0;
  for (const auto& leaf : current_.leaves) {
    const auto& gradient = leaf.tensor.grad();
    const bool has_gradient = comparable && gradient.defined();
    encoder_.add(leaf.id)
        .add(static_cast<uint8_t>(has_gradient))
        .add(leaf.before)
        .add(has_gradient ? measure(gradient) : Fingerprint());
  }
  write(Record::kBackward, encoder_.bytes());
  if (options_.noise) {
    for (const auto& leaf : current_.leaves) {
      change_by_rounding(leaf.tensor.grad());
    }
  }
  current_.leaves.clear();
  if (++steps_ % 64 == 0) {
    registry_.prune();
  }
}

/// As another order of additions might: by a rounding of the largest element. What is
/// exactly zero has no terms, or such that cancel in any order.
void Recorder::change_by_rounding(const at::Tensor& gradient) {
  // A gradient that has a graph may be saved in it.
  if (!gradient.defined() || !gradient.is_floating_point() ||
      gradient.requires_grad() || gradient.layout() != at::kStrided || gradient.numel() == 0) {
    return;
  }
  const at::NoGradGuard no_grad;
  // Of its own: the program's random numbers stay those that they are.
  static at::Generator generator = at::detail::createCPUGenerator(1);
  const auto sizes = gradient.abs();
  const double rounding = gradient.scalar_type() == at::kDouble ? 0x1p-53
      : gradient.scalar_type() == at::kFloat                    ? 0x1p-24
                                                                : 0;
  const auto noise = at::empty(gradient.sizes(), gradient.options().device(at::kCPU))
                         .uniform_(-rounding, rounding, generator)
                         .to(gradient.device());
  gradient.data().add_(noise * sizes.max() * gradient.ne(0));
}

void Recorder::write_tensor(
    const Registry::Entry& entry, const at::Tensor& tensor) {
  encoder_.clear();
  encoder_.add(entry.id)
      .add(entry.kind)
      .add(dtype_of(tensor))
      .add_text(entry.name)
      .add(static_cast<uint32_t>(tensor.dim()));
  for (const int64_t size : tensor.sizes()) {
    encoder_.add(size);
  }
  encoder_.add(measure(tensor));
  write(Record::kTensor, encoder_.bytes());
}

void Recorder::note(const std::string& text) {
  const std::lock_guard<std::mutex> lock(mutex_);
  write(Record::kNote, text);
}

void Recorder::end_together() {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (ended_) {
    return;
  }
  try {
    for (auto* entry : registry_.kept()) {
      auto whole = whole_of(entry->tensor);
      if (!whole.is_same(entry->tensor)) {
        entry->whole = std::move(whole);
      }
    }
  } catch (const c10::Error& error) {
    write(
        Record::kNote,
        std::string("the final values could not be read: ") +
            error.what_without_backtrace());
  }
}

void Recorder::finish() {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (ended_) {
    return;
  }
  if (options_.widening == Widening::kModules && wrote_into_copies()) {
    write(Record::kNote, kWroteAsFloat);
  }
  write_final_values();
  write(Record::kEnd, "");
  flush();
  ended_ = true;
}

void Recorder::finish_unused() {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (steps_ == 0 && !ended_) {
    write(Record::kEnd, "");
    flush();
    ended_ = true;
  }
}

void Recorder::write_final_values() {
  try {
    auto entries = registry_.kept();
    // A batch that the program differentiates by lies in parts, and perhaps nobody
    // puts them together any more.
    std::string unread;
    size_t unread_count = 0;
    const auto is_unread = [&](Registry::Entry* entry) {
      try {
        // All processes put parameters that are in parts together, once.
        const auto whole = entry->whole.defined() ? entry->whole
                                                  : whole_of(entry->tensor);
        encoder_.clear();
        encoder_.add(entry->id).add(measure(whole));
        write(Record::kFinal, encoder_.bytes());
        if (options_.rank == 0) {
          entry->tensor = whole;
        }
        return false;
      } catch (const c10::Error& error) {
        ++unread_count;
        unread = error.what_without_backtrace();
        return true;
      }
    };
    entries.erase(
        std::remove_if(entries.begin(), entries.end(), is_unread),
        entries.end());
    if (unread_count > 0) {
      write(
          Record::kNote,
          "the final values of " + std::to_string(unread_count) +
              " tensors could not be read: " + unread);
    }
    if (registry_.left_out() > 0) {
      write(
          Record::kNote,
          std::to_string(registry_.left_out()) +
              " tensors of modules that were made during the training were "
              "not kept, and not compared at the end");
    }
    if (options_.rank == 0) {
      write_tensor_file(base_name(options_) + ".safetensors", entries);
    }
  } catch (const std::exception& error) {
    write(
        Record::kNote,
        std::string("the final values could not be written: ") + error.what());
  }
}

void Recorder::write(Record type, const std::string& bytes) {
  const uint64_t size = bytes.size();
  buffer_ += static_cast<char>(type);
  buffer_.append(reinterpret_cast<const char*>(&size), sizeof(size));
  buffer_ += bytes;
  if (buffer_.size() >= kBuffer) {
    flush();
  }
}

void Recorder::flush() {
  const char* at = buffer_.data();
  size_t left = buffer_.size();
  while (left > 0) {
    const ssize_t written = ::write(file_, at, left);
    if (written < 0 && errno == EINTR) {
      continue;
    }
    if (written < 0) {
      std::fprintf(
          stderr,
          "accel verify: the trace cannot be written: %s\n",
          std::strerror(errno));
      std::abort();
    }
    at += written;
    left -= static_cast<size_t>(written);
  }
  buffer_.clear();
}

} // namespace accel::verify
