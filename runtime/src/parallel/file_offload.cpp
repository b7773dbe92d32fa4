#include "parallel/file_offload.h"

#include "distributed/part.h"
#include "parallel/optimizer_tensors.h"

#include <ATen/ATen.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <utility>

namespace accel::parallel {
namespace {

/// Smaller ones would take a page each.
constexpr size_t kLeastBytes = size_t{64} << 10;

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

FileOffload::FileOffload(std::string folder) : folder_(std::move(folder)) {
  const File probe(folder_);
}

at::Tensor FileOffload::in_file(const at::Tensor& tensor) const {
  const size_t bytes = tensor.nbytes();
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
  auto result = at::empty({0}, tensor.options().requires_grad(false));
  result.set_(storage, 0, tensor.sizes(), tensor.strides());
  result.copy_(tensor);
  return result;
}

void FileOffload::move(at::Tensor& tensor) const {
  const at::NoGradGuard no_grad;
  distributed::Part* innermost = nullptr;
  at::Tensor leaf = tensor;
  while (auto* part = distributed::part_of(leaf)) {
    innermost = part;
    leaf = part->local;
  }
  const bool shared = leaf.has_storage() && leaf.storage().use_count() != 1;
  if (!leaf.device().is_cpu() || leaf.layout() != at::kStrided ||
      leaf.nbytes() < kLeastBytes || shared || leaf.is_view() ||
      !leaf.is_non_overlapping_and_dense() || lies_in_file(leaf) ||
      (innermost != nullptr && (innermost->view || innermost->whole.defined()))) {
    return;
  }
  if (innermost != nullptr) {
    innermost->local = in_file(leaf);
  } else {
    tensor.set_data(in_file(leaf));
  }
}

void FileOffload::move_states(torch::optim::Optimizer& optimizer) const {
  each_state_tensor(optimizer, [&](at::Tensor& tensor, const at::Tensor&) {
    move(tensor);
  });
}

namespace {

/// As `step` would make it of a parameter that it sees for the first time.
template <typename State, typename Options, typename Move>
void make_state(
    torch::optim::Optimizer& optimizer,
    torch::optim::OptimizerParamGroup& group,
    const Move& move) {
  const bool amsgrad = static_cast<const Options&>(group.options()).amsgrad();
  for (const auto& parameter : group.params()) {
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

} // namespace

void FileOffload::make_states(torch::optim::Optimizer& optimizer) const {
  namespace optim = torch::optim;
  const at::NoGradGuard no_grad;
  const auto to_file = [this](at::Tensor& tensor) { move(tensor); };
  for (auto& group : optimizer.param_groups()) {
    optim::OptimizerParamGroup with_gradients = group;
    with_gradients.params().clear();
    for (const auto& parameter : group.params()) {
      if (parameter.grad().defined()) {
        with_gradients.params().push_back(parameter);
      }
    }
    if (dynamic_cast<optim::AdamW*>(&optimizer) != nullptr) {
      make_state<optim::AdamWParamState, optim::AdamWOptions>(
          optimizer, with_gradients, to_file);
    } else if (dynamic_cast<optim::Adam*>(&optimizer) != nullptr) {
      make_state<optim::AdamParamState, optim::AdamOptions>(
          optimizer, with_gradients, to_file);
    }
  }
}

} // namespace accel::parallel
