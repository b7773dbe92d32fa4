#include <accel/distributed/tensor.h>
#include <accel/output.h>

#include "core/environment.h"
#include "core/runtime.h"
#include "core/whole_archive.h"
#include "written_files.h"

#include <ATen/core/grad_mode.h>
#include <c10/util/Exception.h>

#include <cstdarg>
#include <cstdio>
#include <fstream>
#include <iostream>
#include <streambuf>
#include <utility>
#include <vector>

namespace accel::detail {
namespace {

constexpr const char* kNullDevice = "/dev/null";

/// Takes everything, keeps nothing. The stream above it stays good, so that
/// manipulators and checks behave as they do on the main process.
class NullBuffer : public std::streambuf {
 protected:
  int_type overflow(int_type character) override {
    return traits_type::not_eof(character);
  }
  std::streamsize xsputn(const char*, std::streamsize count) override {
    return count;
  }
};

/// Tensors of a model that the program itself has given values of a distributed
/// tensor, `weight.set_data(batch.mean(0))`: whole while it lives. Collective.
class WholeTensors {
 public:
  explicit WholeTensors(const torch::nn::Module& model) {
    const torch::NoGradGuard no_grad;
    for (const auto& tensors : {model.parameters(), model.buffers()}) {
      for (const auto& tensor : tensors) {
        if (distributed::is_distributed(tensor)) {
          parts_.emplace_back(tensor, tensor.variable_data());
          parts_.back().first.set_data(
              distributed::full_tensor(tensor.detach()));
        }
      }
    }
  }
  ~WholeTensors() {
    for (auto& [tensor, part] : parts_) {
      tensor.set_data(part);
    }
  }
  WholeTensors(const WholeTensors&) = delete;
  WholeTensors& operator=(const WholeTensors&) = delete;

 private:
  std::vector<std::pair<at::Tensor, at::Tensor>> parts_;
};

/// Never destroyed: global variables may print when they are.
std::ostream& make_null_stream() {
  return *new std::ostream(new NullBuffer);
}

std::ostream& null_stream() {
  static std::ostream& stream = make_null_stream();
  return stream;
}

const AcceleratorState& process() {
  return Runtime::output_state();
}

/// Kept open: whoever was given it may print until the program ends.
std::FILE* null_file() {
  static std::FILE* nowhere = std::fopen(kNullDevice, "w");
  TORCH_CHECK(
      nowhere, "accel: ", kNullDevice, " cannot be opened for writing.");
  return nowhere;
}

} // namespace

void MainProcessOutput::throw_not_written(
    const std::string& path, const c10::Error& error) {
  const std::string reason = error.what_without_backtrace();
  TORCH_CHECK(
      false,
      "accel: ",
      path,
      " could not be written. The folder must exist, be writable, and have room. (",
      reason.substr(0, reason.find('\n')),
      ")");
}

bool MainProcessOutput::saves() {
  return process().options().save_on_each_node
      ? process().is_local_main_process()
      : process().is_main_process();
}

at::Tensor MainProcessOutput::whole_tensors(const at::Tensor& tensor) {
  if (!distributed::is_distributed(tensor)) {
    return tensor;
  }
  // Files say whether a tensor requires gradients, which it also does where nobody
  // computes any.
  const at::NoGradGuard no_grad;
  return distributed::full_tensor(tensor.detach()).set_requires_grad(tensor.requires_grad());
}

std::vector<at::Tensor> MainProcessOutput::whole_tensors(
    const std::vector<at::Tensor>& tensors) {
  std::vector<at::Tensor> whole;
  for (const auto& tensor : tensors) {
    whole.push_back(whole_tensors(tensor));
  }
  return whole;
}

std::shared_ptr<void> MainProcessOutput::make_whole(
    const torch::nn::Module* model,
    const torch::optim::Optimizer* optimizer,
    bool writes) {
  auto& runtime = Runtime::require();
  if (runtime.sharded() == nullptr) {
    return model == nullptr ? nullptr : std::make_shared<WholeTensors>(*model);
  }
  std::vector<const torch::nn::Module*> models;
  std::vector<torch::optim::Optimizer*> optimizers;
  if (model != nullptr) {
    models.push_back(model);
  }
  if (optimizer != nullptr) {
    optimizers.push_back(const_cast<torch::optim::Optimizer*>(optimizer));
  }
  return std::make_shared<parallel::ShardedParameters::Whole>(
      runtime.whole(models, optimizers, writes));
}

std::shared_ptr<void> MainProcessOutput::make_whole(
    torch::serialize::OutputArchive& archive, bool writes) {
  return std::make_shared<WholeArchive>(archive, writes);
}

bool MainProcessOutput::is_own(const std::ostream& stream) {
  return dynamic_cast<const std::ofstream*>(&stream) == nullptr &&
      dynamic_cast<const std::fstream*>(&stream) == nullptr;
}

namespace {

/// As the environment has it; where that cannot be read, what makes an Accelerator
/// says so.
bool is_main_by_environment() {
  static const bool is_main = [] {
    try {
      return read_environment().rank == 0;
    } catch (const c10::Error&) {
      return true;
    }
  }();
  return is_main;
}

} // namespace

std::ostream& MainProcessOutput::cout() {
  return process().is_main_process() ? std::cout : null_stream();
}

std::ostream& MainProcessOutput::cerr() {
  static std::ostream& stream = make_null_stream();
  return process().is_main_process() ? std::cerr : stream;
}

int MainProcessOutput::printf(const char* format, ...) {
  std::va_list arguments;
  va_start(arguments, format);
  const int count = process().is_main_process()
      ? std::vprintf(format, arguments)
      : std::vsnprintf(nullptr, 0, format, arguments);
  va_end(arguments);
  return count;
}

std::FILE* MainProcessOutput::c_stdout() const {
  return process().is_main_process() ? stdout : null_file();
}

std::FILE* MainProcessOutput::c_stderr() const {
  return process().is_main_process() ? stderr : null_file();
}

void MainProcessOutput::wait_for_readers_of(const std::string& path) {
  if (process().use_distributed() && WrittenFiles::get().opened(path)) {
    process().wait_for_everyone();
  }
}

const char* MainProcessOutput::main_process_path(const char* path) const {
  wait_for_readers_of(path);
  return process().is_main_process() ? path : kNullDevice;
}

std::string MainProcessOutput::main_process_path(
    const std::string& path) const {
  return main_process_path(path.c_str());
}

std::filesystem::path MainProcessOutput::main_process_path(
    const std::filesystem::path& path) const {
  return main_process_path(path.string());
}

const char* MainProcessOutput::readable_path(const char* path) const {
  if (!process().use_distributed()) {
    return path;
  }
  auto& files = WrittenFiles::get();
  std::string name;
  switch (files.read(path, name)) {
    case WrittenFiles::Wait::kForNobody:
      break;
    case WrittenFiles::Wait::kForEveryone:
      process().wait_for_everyone();
      break;
    case WrittenFiles::Wait::kForFirst:
      Runtime::require().follow_first(name);
      files.completed(path, name);
      break;
  }
  return path;
}

std::string MainProcessOutput::readable_path(const std::string& path) const {
  return readable_path(path.c_str());
}

std::filesystem::path MainProcessOutput::readable_path(
    const std::filesystem::path& path) const {
  readable_path(path.c_str());
  return path;
}

const char* MainProcessOutput::main_process_command(const char* command) const {
  return process().is_main_process() ? command : "cat >/dev/null";
}

} // namespace accel::detail

namespace accel {

std::ostream& main_process_cout() {
  return detail::is_main_by_environment() ? std::cout : detail::null_stream();
}

std::ostream& main_process_cerr() {
  static std::ostream& stream = detail::make_null_stream();
  return detail::is_main_by_environment() ? std::cerr : stream;
}

std::FILE* main_process_stdout() {
  return detail::is_main_by_environment() ? stdout : detail::null_file();
}

} // namespace accel
