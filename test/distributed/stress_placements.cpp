// Random placements on any LibTorch program, unmodified: a library to preload.
//
//     RANK=0 WORLD_SIZE=2 ACCEL_STRESS_STORE=FILE \
//       ACCEL_STRESS_PLACEMENTS=7 LD_PRELOAD=libaccel_stress_placements.so ./program
//
// started once for each rank; stress.py does it. FILE is where the processes meet:
// one that is not there before the run. Every operator of the main thread, and of backward,
// goes through the library, and results are placed at random: cut in any
// dimension at any points, parts of sums, replicated. No number that the program
// prints may change. `std::cout << tensor` prints the whole tensor; whatever else
// reads the raw memory of a tensor gets the library's error; operators of threads that the program starts itself stay plain.
//
//   ACCEL_STRESS_PLACEMENTS=seed   the placements; without it nothing is placed
//   ACCEL_STRESS_RANDOM=0          the seed of LibTorch's random numbers, where the
//                                  program gives none (also without placements)
//   ACCEL_STRESS_SHARE=0.3         how many results are placed
//   ACCEL_STRESS_BEGIN=backward    nothing is placed before the first backward, so that
//                                  threads of the program can read what was made until then
//   ACCEL_STRESS_DOUBLE=1          the default dtype is float64, so that rounding
//                                  does not hide or imitate a difference
//   ACCEL_CHECK_PLACEMENTS=1       names the operator that gives another number

#include "distributed/axis.h"
#include "distributed/part.h"
#include "distributed/watch.h"
#include "placing.h"
#include "shared_memory_ranks.h"
#include "stress_memory.h"

#include <accel/distributed/tensor.h>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/csrc/autograd/graph_task.h>
#include <torch/csrc/jit/serialization/pickler.h>

#include <dlfcn.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <thread>

namespace accel::distributed::test {
namespace {

std::string environment(const char* name, const char* otherwise) {
  const char* value = std::getenv(name);
  return value != nullptr && *value != '\0' ? value : otherwise;
}

int64_t checked_size(int64_t size) {
  TORCH_CHECK(
      size >= 1 && size <= SharedRanks::kRanks, "accel: WORLD_SIZE is ", size,
      ", random placements take 1 to ", SharedRanks::kRanks, " processes");
  return size;
}

/// Never destroyed: tensors may live until the program's last destructor.
struct Stress {
  explicit Stress(uint64_t seed)
      : shared(shared_ranks(
            environment("ACCEL_STRESS_STORE", "accel_stress_placements"))),
        processes(
            shared,
            std::stoll(environment("RANK", "0")),
            checked_size(std::stoll(environment("WORLD_SIZE", "1")))),
        axis(new Axis(&processes, /*mesh=*/1, /*index=*/0, "stress")),
        mesh({axis}),
        random(seed * 2654435761u + 1),
        share(std::stod(environment("ACCEL_STRESS_SHARE", "0.3"))),
        begun(environment("ACCEL_STRESS_BEGIN", "") != "backward") {}
  SharedRanks& shared;
  SharedMemoryCommunicator processes;
  Axis* axis;
  DeviceMesh mesh;
  std::mt19937_64 random;
  double share;
  bool begun;
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
  stress->begun = stress->begun || torch::autograd::get_current_graph_task_id() >= 0;
  if (!stress->begun || is_used_by_address(op)) {
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

/// Whether this is the thread that has loaded the library.
bool is_main_thread() {
  static const auto main = std::this_thread::get_id();
  return stress != nullptr && std::this_thread::get_id() == main;
}

void start() {
  is_main_thread();
  // Without placements, too: the plain run beside it computes alike.
  if (environment("ACCEL_STRESS_DOUBLE", "0") == "1") {
    at::globalContext();
    c10::set_default_dtype(caffe2::TypeMeta::Make<double>());
  }
  // LibTorch seeds itself by the time; processes must draw the same.
  at::manual_seed(std::stoull(environment("ACCEL_STRESS_RANDOM", "0")));
  const auto seed = environment("ACCEL_STRESS_PLACEMENTS", "");
  if (seed.empty()) {
    return;
  }
  at::set_num_threads(1);
  stress = new Stress(std::stoull(seed));
  // What the program starts (a plotting program, a shell) is no process of the run.
  ::unsetenv("LD_PRELOAD");
  watch().place = place;
  watch().any = true;
  install();
  static const pid_t started_as = ::getpid();
  std::atexit([] {
    if (::getpid() != started_as) {
      return; // a copy that the program made with fork()
    }
    stress->shared.stopped = true;
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

void with_whole(const at::Tensor& tensor, const std::function<void(const at::Tensor&)>& use) {
  // What is done with it is made of operators, whose results would be placed again.
  const bool included = c10::impl::tls_is_dispatch_key_included(kKey);
  const auto whole = tensor.defined() ? full_tensor(tensor.detach()) : tensor;
  c10::impl::tls_set_dispatch_key_included(kKey, false);
  use(whole);
  c10::impl::tls_set_dispatch_key_included(kKey, included);
}

at::TensorBase replicated(const at::TensorBase& base) {
  const at::Tensor tensor(base);
  if (!tensor.defined() || !is_main_thread() || part_of(tensor) == nullptr) {
    return base;
  }
  const InsideGuard inside;
  root_of(part_of(tensor))->kept.reset(); // it may be written
  settle(part_of(tensor));
  const at::Tensor whole = part_of(tensor)->local;
  for (int64_t d = 0; d < tensor.dim(); ++d) {
    TORCH_CHECK(
        whole.size(d) == tensor.size(d) &&
            (tensor.size(d) < 2 || whole.stride(d) == tensor.stride(d)),
        "random placements: a replicated tensor lies in another order");
  }
  return whole;
}
} // namespace accel::distributed::test

namespace torch::jit {

/// In place of LibTorch's, for programs that save tensors: it takes their storage.
__attribute__((visibility("default"))) void Pickler::pushTensor(
    const IValue& ivalue) {
  using Push = void (*)(Pickler*, const IValue&);
  static const auto push_plain = reinterpret_cast<Push>(::dlsym(
      RTLD_NEXT, "_ZN5torch3jit7Pickler10pushTensorERKN3c106IValueE"));
  TORCH_CHECK(push_plain != nullptr, "accel: LibTorch has no Pickler::pushTensor");
  const auto& tensor = ivalue.toTensor();
  using namespace accel::distributed;
  if (!tensor.defined() || !test::is_main_thread() ||
      part_of(tensor) == nullptr) {
    push_plain(this, ivalue);
    return;
  }
  push_plain(
      this,
      full_tensor(tensor.detach()).requires_grad_(tensor.requires_grad()));
}

} // namespace torch::jit
