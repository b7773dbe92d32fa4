#include "core/runtime.h"
#include "core/tensor_checksum.h"
#include "core/text_hash.h"

#include <accel/distributed/tensor.h>

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <optional>
#include <sstream>

namespace accel::detail {
namespace {

using NamedTensors = std::vector<std::pair<std::string, at::Tensor>>;

/// Messages of at most this size.
constexpr int64_t kMessageBytes = int64_t{25} << 20;

bool has_tensor(const std::vector<at::Tensor>& all, const at::Tensor& tensor) {
  return std::any_of(all.begin(), all.end(), [&](const at::Tensor& other) {
    return other.is_same(tensor);
  });
}

void check_same_tensors(
    Communicator& communicator,
    const NamedTensors& all,
    const std::vector<at::Tensor>& sparse) {
  std::ostringstream description;
  int64_t numel = 0;
  for (const auto& [name, tensor] : all) {
    description << name << ' ' << tensor.scalar_type() << tensor.sizes()
                << (tensor.layout() == at::kStrided ? "" : " in another layout")
                << (has_tensor(sparse, tensor) ? " sparse\n" : "\n");
    numel += tensor.numel();
  }
  const auto mine = at::tensor(
      {static_cast<int64_t>(all.size()), numel, static_cast<int64_t>(text_hash(description.str()))},
      at::kLong);
  const auto theirs = communicator.all_gather(mine);
  for (size_t rank = 0; rank < theirs.size(); ++rank) {
    TORCH_CHECK(
        at::equal(theirs[rank], mine),
        "accel: prepare was given other tensors on process ",
        rank,
        " (",
        theirs[rank][0].item<int64_t>(),
        " with ",
        theirs[rank][1].item<int64_t>(),
        " elements) than on process ",
        communicator.rank(),
        " (",
        all.size(),
        " with ",
        numel,
        " elements). Every process must prepare the same models and "
        "optimizers, with the same names, shapes, dtypes and sparse options, "
        "in the same order.");
  }
}

/// Gives a sparse tensor process 0's entries, of which each process may have another
/// number. Throws for layouts that cannot be given other ones in place.
void broadcast_sparse(Communicator& communicator, const at::Tensor& tensor) {
  TORCH_CHECK(
      tensor.layout() == at::kSparse,
      "accel: prepare was given a ",
      tensor.layout(),
      " tensor of sizes ",
      tensor.sizes(),
      " that differs between the processes, and this layout cannot be changed in "
      "place. Make it alike on all of them, or a Sparse (COO) tensor.");
  const at::Tensor own = tensor.detach();
  auto form = at::tensor(
      std::vector<int64_t>{own._nnz(), own.is_coalesced() ? 1 : 0}, at::kLong);
  communicator.broadcast(form, /*source=*/0);
  const int64_t entries = form[0].item<int64_t>();
  auto of_entries = own._values().sizes().vec();
  of_entries[0] = entries;
  const bool sends = communicator.rank() == 0;
  auto indices = sends
      ? own._indices().contiguous()
      : at::empty({own.sparse_dim(), entries}, own._indices().options());
  auto values = sends ? own._values().contiguous()
                      : at::empty(of_entries, own._values().options());
  if (entries > 0) {
    communicator.broadcast(indices, /*source=*/0);
    communicator.broadcast(values, /*source=*/0);
  }
  if (!sends) {
    // Not to `own`, which would have new entries of its own.
    tensor.copy_(at::sparse_coo_tensor(
        indices, values, own.sizes(), own.options(), form[1].item<int64_t>() != 0));
  }
}

/// Gives the tensors process 0's values. A process writes to a tensor only where
/// it has others.
void broadcast_differing(
    Communicator& communicator,
    const std::vector<at::Tensor>& tensors) {
  if (tensors.empty()) {
    return;
  }
  const at::NoGradGuard no_grad;
  const auto count = static_cast<int64_t>(tensors.size());
  auto checksums = at::zeros({count}, at::kLong);
  auto* mine = checksums.mutable_data_ptr<int64_t>();
  for (size_t i = 0; i < tensors.size(); ++i) {
    const auto checksum = checksum_of(tensors[i]);
    // Without one: another number on each process.
    mine[i] = checksum ? static_cast<int64_t>(*checksum) : communicator.rank();
  }
  const auto all = communicator.all_gather(checksums);
  std::vector<at::Tensor> differing;
  for (int64_t i = 0; i < count; ++i) {
    const auto of = [&](size_t rank) {
      return all[rank].const_data_ptr<int64_t>()[i];
    };
    bool differs = false;
    for (size_t rank = 1; rank < all.size(); ++rank) {
      differs = differs || of(rank) != of(0);
    }
    if (differs) {
      const auto& tensor = tensors[static_cast<size_t>(i)];
      if (!components(tensor).empty()) {
        broadcast_sparse(communicator, tensor);
        continue;
      }
      const bool equal_here = communicator.rank() != 0 && mine[i] == of(0);
      differing.push_back(equal_here ? at::empty_like(tensor) : tensor);
    }
  }
  broadcast_all(communicator, differing);
}

/// Without distributed tensors (inputs that an optimizer changes): no process has
/// the others' parts of them, and their gradients are distributed as they are.
/// Parameters that were built in parts are among `sharded`.
NamedTensors without_distributed(
    const NamedTensors& tensors,
    parallel::ShardedParameters* sharded) {
  NamedTensors left;
  for (const auto& named : tensors) {
    if (!distributed::is_distributed(named.second) ||
        (sharded != nullptr && sharded->has(named.second))) {
      left.push_back(named);
    }
  }
  return left;
}

} // namespace

void broadcast_all(
    Communicator& communicator,
    const std::vector<at::Tensor>& tensors) {
  const at::NoGradGuard no_grad;
  std::vector<at::Tensor> pending = tensors;
  while (!pending.empty()) {
    std::vector<at::Tensor> message;
    std::vector<at::Tensor> rest;
    int64_t bytes = 0;
    for (auto& tensor : pending) {
      const bool fits = message.empty() ||
          (tensor.scalar_type() == message[0].scalar_type() &&
           tensor.device() == message[0].device() &&
           bytes + static_cast<int64_t>(tensor.nbytes()) <= kMessageBytes);
      if (fits) {
        bytes += static_cast<int64_t>(tensor.nbytes());
      }
      (fits ? message : rest).push_back(tensor);
    }
    std::vector<at::Tensor> flattened;
    for (const auto& tensor : message) {
      flattened.push_back(tensor.detach().reshape(-1));
    }
    auto flat = at::cat(flattened);
    communicator.broadcast(flat, /*source=*/0);
    if (communicator.rank() != 0) {
      int64_t offset = 0;
      for (const auto& tensor : message) {
        tensor.detach().copy_(
            flat.narrow(0, offset, tensor.numel()).view(tensor.sizes()));
        offset += tensor.numel();
      }
    }
    pending = std::move(rest);
  }
}

void Runtime::drop_unused() {
  buffers_.erase(
      std::remove_if(
          buffers_.begin(),
          buffers_.end(),
          [](const at::Tensor& buffer) { return buffer.use_count() == 1; }),
      buffers_.end());
  if (reducer_) {
    reducer_->prune();
  }
}

Registry& Runtime::registry() {
  // So that models that are gone can be told by their tensors.
  drop_unused();
  return registry_;
}

void Runtime::add_tensors(
    const NamedTensors& given_parameters,
    const NamedTensors& given_buffers,
    const std::vector<at::Tensor>& sparse) {
  drop_unused();
  const auto parameters = without_distributed(given_parameters, sharded());
  const auto buffers = without_distributed(given_buffers, nullptr);
  auto added = reducer_->add(parameters);
  // What was built in parts is the same on all processes.
  added.erase(
      std::remove_if(
          added.begin(), added.end(),
          [](const at::Tensor& one) { return distributed::is_distributed(one); }),
      added.end());
  for (const auto& parameter : sparse) {
    reducer_->expect_sparse(parameter);
  }
  for (const auto& [name, buffer] : buffers) {
    if (!has_tensor(buffers_, buffer)) {
      buffers_.push_back(buffer);
      added.push_back(buffer);
    }
  }
  if (!state_->use_distributed()) {
    return;
  }
  reducer_->watch();
  auto all = parameters;
  all.insert(all.end(), buffers.begin(), buffers.end());
  check_same_tensors(communicator(), all, sparse);
  broadcast_differing(communicator(), added);
}

} // namespace accel::detail
