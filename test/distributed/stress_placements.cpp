// Random placements on any LibTorch program, unmodified: a library to preload.
//
//     RANK=0 WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=29400 \
//       ACCEL_STRESS_PLACEMENTS=7 LD_PRELOAD=libaccel_stress_placements.so ./program
//
// started once for each rank. Every operator of the main thread, and of backward,
// goes through the library, and results are placed at random: cut in any
// dimension at any points, parts of sums, replicated. No number that the program
// prints may change. What reads the raw memory of a tensor gets the library's
// error; operators of threads that the program starts itself stay plain.
//
//   ACCEL_STRESS_PLACEMENTS=seed   the placements; without it nothing happens
//   ACCEL_STRESS_SHARE=0.3         how many results are placed
//   ACCEL_STRESS_STORE=FILE        processes meet by a file instead of a port
//   ACCEL_STRESS_DOUBLE=1          the default dtype is float64, so that rounding
//                                  does not hide or imitate a difference
//   ACCEL_CHECK_PLACEMENTS=1       names the operator that gives another number

#include "distributed/axis.h"
#include "distributed/part.h"
#include "distributed/watch.h"
#include "placing.h"

#include <accel/detail/communicator.h>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <torch/csrc/distributed/c10d/FileStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <random>
#include <string>

namespace accel::distributed::test {
namespace {

std::string environment(const char* name, const char* otherwise) {
  const char* value = std::getenv(name);
  return value != nullptr && *value != '\0' ? value : otherwise;
}

class Gloo final : public accel::detail::Communicator {
 public:
  Gloo(int64_t rank, int64_t size) : rank_(rank), size_(size) {
    auto options = c10d::ProcessGroupGloo::Options::create();
    options->devices.push_back(
        c10d::ProcessGroupGloo::createDeviceForHostname("127.0.0.1"));
    group_ = c10::make_intrusive<c10d::ProcessGroupGloo>(
        store(rank, size), static_cast<int>(rank), static_cast<int>(size),
        options);
  }

  int64_t rank() const override {
    return rank_;
  }
  int64_t size() const override {
    return size_;
  }
  void all_reduce(at::Tensor& tensor) override {
    auto parts = all_gather(tensor);
    auto sum = parts[0].clone();
    for (size_t r = 1; r < parts.size(); ++r) {
      sum.add_(parts[r]);
    }
    tensor.copy_(sum);
  }
  Waiter all_reduce_async(at::Tensor& tensor) override {
    all_reduce(tensor);
    return [] {};
  }
  std::vector<at::Tensor> all_gather(const at::Tensor& tensor) override {
    // As bytes: Gloo does not move every dtype.
    const auto own = tensor.contiguous();
    std::vector<at::Tensor> all;
    std::vector<at::Tensor> bytes;
    for (int64_t r = 0; r < size_; ++r) {
      all.push_back(at::empty_like(own));
      bytes.push_back(bytes_of(all.back()));
    }
    if (own.numel() > 0) {
      std::vector<at::Tensor> inputs{bytes_of(own)};
      std::vector<std::vector<at::Tensor>> outputs{bytes};
      group_->allgather(outputs, inputs)->wait();
    }
    return all;
  }
  void broadcast(at::Tensor& tensor, int64_t source) override {
    tensor.copy_(all_gather(tensor)[source]);
  }
  void barrier() override {
    group_->barrier()->wait();
  }

 private:
  static at::Tensor bytes_of(const at::Tensor& tensor) {
    return at::from_blob(
        const_cast<void*>(tensor.const_data_ptr()),
        {static_cast<int64_t>(tensor.nbytes())}, at::kByte);
  }

  static c10::intrusive_ptr<c10d::Store> store(int64_t rank, int64_t size) {
    const auto file = environment("ACCEL_STRESS_STORE", "");
    if (!file.empty()) {
      return c10::make_intrusive<c10d::FileStore>(file, static_cast<int>(size));
    }
    c10d::TCPStoreOptions options;
    options.port = static_cast<uint16_t>(
        std::stoi(environment("MASTER_PORT", "29400")));
    options.isServer = rank == 0 &&
        environment("TORCHELASTIC_USE_AGENT_STORE", "") != "True";
    options.numWorkers = static_cast<size_t>(size);
    return c10::make_intrusive<c10d::TCPStore>(
        environment("MASTER_ADDR", "127.0.0.1"), options);
  }

  int64_t rank_;
  int64_t size_;
  c10::intrusive_ptr<c10d::ProcessGroupGloo> group_;
};

/// Never destroyed: tensors may live until the program's last destructor.
struct Stress {
  explicit Stress(uint64_t seed)
      : gloo(std::stoll(environment("RANK", "0")),
             std::stoll(environment("WORLD_SIZE", "1"))),
        axis(new Axis(&gloo, /*mesh=*/1, /*index=*/0, "stress")),
        mesh({axis}),
        random(seed * 2654435761u + 1),
        share(std::stod(environment("ACCEL_STRESS_SHARE", "0.3"))) {}
  Gloo gloo;
  Axis* axis;
  DeviceMesh mesh;
  std::mt19937_64 random;
  double share;
  int64_t operators = 0;
  int64_t placed = 0;
};

Stress* stress = nullptr;

/// Memory that the program, or LibTorch behind `torch::tensor({1, 2})` and in its
/// `RandomSampler` (a permutation), fills or reads by its address.
bool is_used_by_address(const c10::OperatorHandle& op) {
  const auto& name = op.schema().name();
  return name.find("empty") != std::string::npos ||
      name == "aten::from_file" || name == "aten::scalar_tensor" ||
      name == "aten::randperm";
}

void place(
    const c10::OperatorHandle& op,
    const OperatorInfo& info,
    torch::jit::Stack& stack) {
  ++stress->operators;
  if (is_used_by_address(op)) {
    return;
  }
  const auto placed = [&](const at::Tensor& tensor) {
    const double drawn =
        static_cast<double>(stress->random() >> 11) * 0x1.0p-53;
    if (drawn >= stress->share || !tensor.defined() || tensor.numel() == 0 ||
        tensor.layout() != at::kStrided || part_of(tensor) != nullptr ||
        tensor.is_quantized()) {
      return tensor;
    }
    ++stress->placed;
    return place_at_random(stress->mesh, tensor, stress->random);
  };
  const auto& returns = op.schema().returns();
  for (size_t k = 0; k < info.results; ++k) {
    if (returns[k].alias_info() != nullptr) {
      continue; // memory that the program holds already
    }
    auto& value = stack[stack.size() - info.results + k];
    if (value.isTensor()) {
      value = placed(value.toTensor());
    } else if (value.isTensorList()) {
      auto list = value.toTensorVector();
      for (auto& tensor : list) {
        tensor = placed(tensor);
      }
      value = std::move(list);
    }
  }
}

void start() {
  const auto seed = environment("ACCEL_STRESS_PLACEMENTS", "");
  if (seed.empty()) {
    return;
  }
  at::set_num_threads(1);
  if (environment("ACCEL_STRESS_DOUBLE", "0") == "1") {
    at::globalContext();
    c10::set_default_dtype(caffe2::TypeMeta::Make<double>());
  }
  stress = new Stress(std::stoull(seed));
  watch().place = place;
  watch().any = true;
  install();
  std::atexit([] {
    std::fprintf(
        stderr,
        "accel: random placements: process %lld saw %lld operators on plain "
        "tensors and placed %lld results\n",
        static_cast<long long>(stress->axis->rank()),
        static_cast<long long>(stress->operators),
        static_cast<long long>(stress->placed));
  });
}

[[maybe_unused]] const bool started = [] {
  start();
  return true;
}();

} // namespace
} // namespace accel::distributed::test
