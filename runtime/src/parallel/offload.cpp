#include "parallel/offload.h"

#include "distributed/on_host.h"
#include "distributed/part.h"
#include "parallel/optimizer_tensors.h"

#include <ATen/ATen.h>
#include <c10/core/InferenceMode.h>
#include <accel/optim/optimizer.h>

#include <torch/optim/adagrad.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/rmsprop.h>
#include <torch/optim/sgd.h>

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <typeinfo>
#include <unordered_set>
#include <utility>
#include <vector>

namespace accel::parallel {
namespace {

/// Smaller ones would take a page of a file each; a copy from the device or to it takes as
/// long as one of so many bytes.
constexpr size_t kLeastInFile = size_t{64} << 10;
constexpr size_t kLeastOffDevice = size_t{4} << 10;

/// On a GPU an optimizer steps parameters of so many bytes at a time.
constexpr size_t kStepBytes = size_t{16} << 20;

struct Mapping {
  void* address;
  size_t bytes;
};

/// Also the mark of a tensor that lies in a file.
void unmap(void* context) {
  const std::unique_ptr<Mapping> mapping(static_cast<Mapping*>(context));
  ::munmap(mapping->address, mapping->bytes);
}

bool lies_in_file(const at::Tensor& tensor) {
  return tensor.storage().data_ptr().get_deleter() == &unmap;
}

class File {
 public:
  explicit File(const std::string& folder) {
    fd_ = ::open(folder.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    if (fd_ < 0 && (errno == EOPNOTSUPP || errno == EISDIR || errno == EINVAL)) {
      // A file system without files that have no name.
      std::string name = folder + "/accel_offload_XXXXXX";
      fd_ = ::mkostemp(name.data(), O_CLOEXEC);
      if (fd_ >= 0) {
        ::unlink(name.c_str());
      }
    }
    TORCH_CHECK(
        fd_ >= 0, "accel: no file can be made in ", folder, ": ",
        std::strerror(errno),
        ". Give a folder that exists and can be written (offload_optimizer_nvme_path, "
        "offload_param_nvme_path).");
  }
  ~File() {
    ::close(fd_);
  }
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  int fd() const {
    return fd_;
  }

 private:
  int fd_ = -1;
};

} // namespace

Offload::Offload(c10::Device device, std::string folder)
    : device_(device), folder_(std::move(folder)) {
  if (!folder_.empty()) {
    const File probe(folder_);
  }
}

at::Tensor Offload::in_file(const at::Tensor& like) const {
  const size_t bytes = like.nbytes();
  const File file(folder_);
  // Reserved now: a full disk is no error of mmap, but a signal at some write.
  const int failure = ::posix_fallocate(file.fd(), 0, static_cast<off_t>(bytes));
  TORCH_CHECK(
      failure == 0, "accel: ", bytes, " bytes cannot be put into a file in ", folder_,
      ": ", std::strerror(failure),
      ". Make room there, or name another folder (offload_optimizer_nvme_path, "
      "offload_param_nvme_path).");
  void* address = ::mmap(
      nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file.fd(), 0);
  TORCH_CHECK(
      address != MAP_FAILED, "accel: a file of ", bytes, " bytes in ", folder_,
      " cannot be mapped: ", std::strerror(errno), ".");
  auto* mapping = new Mapping{address, bytes};
  c10::Storage storage(
      c10::Storage::use_byte_size_t(), bytes,
      c10::DataPtr(address, mapping, &unmap, c10::DeviceType::CPU));
  auto result =
      at::empty({0}, like.options().device(at::kCPU).requires_grad(false));
  result.set_(storage, 0, like.sizes(), like.strides());
  return result;
}

at::Tensor Offload::memory_for(const at::Tensor& like) const {
  return folder_.empty()
      ? at::empty_strided(
            like.sizes(), like.strides(),
            like.options().device(at::kCPU).requires_grad(false).pinned_memory(true))
      : in_file(like);
}

bool Offload::is_movable(const at::Tensor& tensor) const {
  return tensor.device() == device_ && tensor.layout() == at::kStrided &&
      tensor.nbytes() >= (on_cpu() ? kLeastInFile : kLeastOffDevice) &&
      tensor.has_storage() && tensor.storage().use_count() == 1 &&
      !tensor.is_view() && tensor.is_non_overlapping_and_dense() &&
      !lies_in_file(tensor) &&
      (on_cpu() ||
       (distributed::is_plain(tensor) && !tensor.is_inference() &&
        tensor.use_count() == 1));
}

void Offload::move(at::Tensor& tensor) const {
  const at::NoGradGuard no_grad;
  const c10::InferenceMode no_inference(false);
  distributed::Part* part = nullptr;
  const at::Tensor* leaf = &tensor; // Held once, as the part does.
  while (auto* next = distributed::part_at_rest(*leaf)) {
    part = next;
    leaf = &part->local;
  }
  if (part != nullptr) {
    distributed::put_away(*part);
  }
  const bool is_view = part != nullptr && (part->view || part->whole.defined());
  if ((part != nullptr && part->on_host != nullptr) || is_view || !is_movable(*leaf)) {
    return;
  }
  auto memory = memory_for(*leaf);
  memory.copy_(*leaf);
  if (part != nullptr && on_cpu()) {
    part->local = std::move(memory);
  } else if (part != nullptr) {
    distributed::keep_on_host(*part, std::move(memory));
  } else if (on_cpu()) {
    tensor.set_data(memory);
  } else {
    tensor = std::move(memory);
  }
}

void Offload::move_states(torch::optim::Optimizer& optimizer) const {
  each_state_tensor(optimizer, [&](at::Tensor& tensor, const at::Tensor&) {
    move(tensor);
  });
}

namespace {

/// As `step` would make it of parameters with gradients that it sees for the first time,
/// and each moved at once, so that never all of it is there.
template <typename State, typename Options, typename Move>
void make_state(
    torch::optim::Optimizer& optimizer,
    torch::optim::OptimizerParamGroup& group,
    const Move& move) {
  const bool amsgrad = static_cast<const Options&>(group.options()).amsgrad();
  for (const auto& parameter : group.params()) {
    if (!parameter.grad().defined()) {
      continue;
    }
    auto& known = optimizer.state()[parameter.unsafeGetTensorImpl()];
    if (known != nullptr) {
      continue;
    }
    auto state = std::make_unique<State>();
    const auto zeros = [&] {
      at::Tensor tensor = at::zeros_like(parameter, at::MemoryFormat::Preserve);
      move(tensor);
      return tensor;
    };
    state->step(0);
    state->exp_avg(zeros());
    state->exp_avg_sq(zeros());
    if (amsgrad) {
      state->max_exp_avg_sq(zeros());
    }
    known = std::move(state);
  }
}

template <typename Move>
void make_states(torch::optim::Optimizer& optimizer, const Move& move) {
  namespace optim = torch::optim;
  const at::NoGradGuard no_grad;
  for (auto& group : optimizer.param_groups()) {
    if (dynamic_cast<optim::AdamW*>(&optimizer) != nullptr) {
      make_state<optim::AdamWParamState, optim::AdamWOptions>(
          optimizer, group, move);
    } else if (dynamic_cast<optim::Adam*>(&optimizer) != nullptr) {
      make_state<optim::AdamParamState, optim::AdamOptions>(
          optimizer, group, move);
    }
  }
}

template <typename... Known>
bool is_exactly_one_of(const torch::optim::Optimizer& optimizer) {
  return ((typeid(optimizer) == typeid(AcceleratedOptimizer<Known>)) || ...);
}

/// Whether a step without some gradients, and then one with only these, is the same as one
/// with all. A class of the program's may count its steps.
bool steps_parameters_one_by_one(const torch::optim::Optimizer& optimizer) {
  namespace optim = torch::optim;
  return is_exactly_one_of<
      optim::SGD, optim::Adam, optim::AdamW, optim::RMSprop, optim::Adagrad>(
      optimizer);
}

/// Takes all gradients of an optimizer's parameters away; gives them back when it ends.
class HiddenGradients {
 public:
  explicit HiddenGradients(torch::optim::Optimizer& optimizer) {
    for (auto& group : optimizer.param_groups()) {
      for (auto& parameter : group.params()) {
        if (parameter.grad().defined()) {
          hidden_.emplace_back(parameter, parameter.grad());
          parameter.mutable_grad() = at::Tensor();
        }
      }
    }
  }
  ~HiddenGradients() {
    for (auto& [parameter, gradient] : hidden_) {
      parameter.mutable_grad() = gradient;
    }
  }
  HiddenGradients(const HiddenGradients&) = delete;
  HiddenGradients& operator=(const HiddenGradients&) = delete;

  /// Shows those of the next parameters, about `bytes` of them, and hides those that were
  /// shown before. Which parameters; none: all have been shown.
  std::unordered_set<const c10::TensorImpl*> next(size_t bytes) {
    std::unordered_set<const c10::TensorImpl*> shown;
    for (; begin_ < end_; ++begin_) {
      hidden_[begin_].first.mutable_grad() = at::Tensor();
    }
    for (size_t sum = 0; end_ < hidden_.size() && sum < bytes; ++end_) {
      auto& [parameter, gradient] = hidden_[end_];
      const auto* part = distributed::part_at_rest(parameter);
      sum += (part != nullptr ? part->local : parameter).nbytes();
      parameter.mutable_grad() = gradient;
      shown.insert(parameter.unsafeGetTensorImpl());
    }
    return shown;
  }

 private:
  std::vector<std::pair<at::Tensor, at::Tensor>> hidden_;
  /// Those that are shown.
  size_t begin_ = 0;
  size_t end_ = 0;
};

/// What an optimizer keeps on the host, as plain tensors, for parameters that `wanted` is
/// true for is brought to the device. Returns where it is now, and what it was. Parts of
/// distributed tensors come by themselves.
template <typename Wanted>
std::vector<std::pair<at::Tensor*, at::Tensor>> bring_states(
    torch::optim::Optimizer& optimizer, c10::Device device, const Wanted& wanted) {
  std::vector<std::pair<at::Tensor*, at::Tensor>> brought;
  each_state_tensor(optimizer, [&](at::Tensor& tensor, const at::Tensor& parameter) {
    if (tensor.is_cpu() && parameter.device() == device && wanted(parameter)) {
      brought.emplace_back(&tensor, tensor);
      tensor = tensor.to(device);
    }
  });
  return brought;
}

} // namespace

at::Tensor Offload::step(
    torch::optim::Optimizer& optimizer,
    bool at_once,
    const std::function<at::Tensor()>& update) const {
  const auto move_one = [this](at::Tensor& tensor) { move(tensor); };
  at::Tensor result;
  if (on_cpu() || at_once || !steps_parameters_one_by_one(optimizer)) {
    if (on_cpu() && !at_once) {
      make_states(optimizer, move_one);
    }
    if (!on_cpu()) {
      bring_states(optimizer, device_, [](const at::Tensor&) { return true; });
    }
    result = update();
    move_states(optimizer);
    distributed::put_away_all();
    return result;
  }
  HiddenGradients gradients(optimizer);
  for (auto shown = gradients.next(kStepBytes); !shown.empty();
       shown = gradients.next(kStepBytes)) {
    make_states(optimizer, move_one);
    const auto brought =
        bring_states(optimizer, device_, [&](const at::Tensor& parameter) {
          return shown.count(parameter.unsafeGetTensorImpl()) != 0;
        });
    result = update();
    for (const auto& [tensor, host] : brought) {
      host.copy_(*tensor);
      *tensor = host;
    }
    move_states(optimizer);
    distributed::put_away_all();
  }
  return result;
}

} // namespace accel::parallel
