#include "gradients/sparse.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <c10/util/accumulate.h>

#include <algorithm>
#include <cstdint>
#include <utility>

namespace accel::detail {
namespace {

/// What a process tells the others about its gradient of a parameter.
struct Facts {
  enum Kind : int64_t { kNothing, kSparse, kDense };
  static constexpr int64_t kCount = 4;

  explicit Facts(const int64_t* numbers)
      : used(numbers[0] != 0),
        kind(numbers[1]),
        rows(numbers[2]),
        sparse_dim(numbers[3]) {}

  bool used;
  int64_t kind;
  int64_t rows;
  int64_t sparse_dim;
};

/// By process, then by parameter.
using AllFacts = std::vector<std::vector<Facts>>;

AllFacts exchange_facts(
    Communicator& communicator,
    const std::vector<SparseGradient>& gradients) {
  std::vector<int64_t> mine;
  for (const auto& gradient : gradients) {
    const auto& grad = gradient.parameter->tensor.grad();
    const bool sparse = grad.defined() && grad.is_sparse();
    mine.insert(
        mine.end(),
        {gradient.parameter->used ? 1 : 0,
         sparse               ? Facts::kSparse
             : grad.defined() ? Facts::kDense
                              : Facts::kNothing,
         sparse ? grad._nnz() : 0,
         sparse ? grad.sparse_dim() : 0});
  }
  AllFacts all;
  for (const auto& numbers :
       communicator.all_gather(at::tensor(mine, at::kLong))) {
    const auto* first = numbers.const_data_ptr<int64_t>();
    auto& facts = all.emplace_back();
    for (size_t i = 0; i < gradients.size(); ++i) {
      facts.emplace_back(first + static_cast<int64_t>(i) * Facts::kCount);
    }
  }
  return all;
}

AveragedLayout layout_of(const AllFacts& all, size_t i) {
  bool used = false;
  bool dense = false;
  int64_t sparse_dim = 0;
  for (const auto& facts : all) {
    const auto& its = facts[i];
    used = used || its.used;
    dense = dense || its.kind == Facts::kDense;
    if (its.kind == Facts::kSparse) {
      dense = dense || (sparse_dim != 0 && sparse_dim != its.sparse_dim);
      sparse_dim = its.sparse_dim;
    }
  }
  return !used ? AveragedLayout::kNone
      : dense  ? AveragedLayout::kMixed
               : AveragedLayout::kSparse;
}

void average_densely(
    Communicator& communicator,
    const SparseGradient& gradient) {
  const auto& tensor = gradient.parameter->tensor;
  auto& grad = gradient.parameter->tensor.mutable_grad();
  // What lies in the bucket has been counted there.
  const bool counted = gradient.average.defined() && grad.defined() &&
      grad.layout() == at::kStrided;
  auto sum = at::zeros(
      tensor.sizes(),
      at::TensorOptions().dtype(tensor.dtype()).device(tensor.device()));
  if (grad.defined() && !counted) {
    sum.add_(grad);
  }
  communicator.all_reduce(sum);
  sum.div_(communicator.size());
  grad = gradient.average.defined() ? gradient.average.add_(sum) : sum;
}

/// The gradients of one device, whose rows travel in one message.
class Rows {
 public:
  Rows(const std::vector<SparseGradient>& gradients, const AllFacts& all)
      : gradients_(gradients), all_(all) {}

  void add(size_t i) {
    members_.push_back(i);
  }

  c10::Device device() const {
    return parameter(members_.front()).device();
  }

  void average(Communicator& communicator) {
    int64_t size = 0;
    for (const auto& facts : all_) {
      int64_t bytes = 0;
      for (const size_t i : members_) {
        bytes += index_bytes(facts[i]) + value_bytes(facts[i], i);
      }
      size = std::max(size, bytes);
    }
    std::vector<at::Tensor> messages(all_.size());
    if (size > 0) {
      messages = communicator.all_gather(pack(size));
    }
    std::vector<int64_t> offsets(all_.size(), 0);
    for (const size_t i : members_) {
      auto sum = unpack(messages, offsets, i);
      sum._values().div_(communicator.size());
      parameter(i).mutable_grad() = std::move(sum);
    }
  }

 private:
  const at::Tensor& parameter(size_t i) const {
    return gradients_[i].parameter->tensor;
  }

  /// Numbers of any type may begin at such an offset.
  static int64_t aligned(int64_t bytes) {
    constexpr int64_t kAlignment = 16;
    return (bytes + kAlignment - 1) / kAlignment * kAlignment;
  }

  static int64_t index_bytes(const Facts& facts) {
    return aligned(
        facts.rows * facts.sparse_dim * static_cast<int64_t>(sizeof(int64_t)));
  }

  /// Sizes of the values: `rows` of the dimensions that are dense.
  std::vector<int64_t> value_sizes(const Facts& facts, size_t i) const {
    const auto sizes = parameter(i).sizes().slice(facts.sparse_dim);
    std::vector<int64_t> result{facts.rows};
    result.insert(result.end(), sizes.begin(), sizes.end());
    return result;
  }

  int64_t value_bytes(const Facts& facts, size_t i) const {
    return aligned(
        c10::multiply_integers(value_sizes(facts, i)) *
        static_cast<int64_t>(parameter(i).element_size()));
  }

  at::Tensor pack(int64_t size) const {
    auto message = at::zeros(
        {size}, at::TensorOptions().dtype(at::kByte).device(device()));
    int64_t offset = 0;
    const auto put = [&](const at::Tensor& numbers) {
      const auto bytes = numbers.contiguous().view({-1}).view(at::kByte);
      message.narrow(0, offset, bytes.numel()).copy_(bytes);
      offset += aligned(bytes.numel());
    };
    for (const size_t i : members_) {
      const auto& grad = parameter(i).grad();
      if (grad.defined() && grad._nnz() > 0) {
        put(grad._indices());
        put(grad._values());
      }
    }
    return message;
  }

  /// The sum of all processes' gradients of one parameter; moves `offsets`, one
  /// for each message, behind it.
  at::Tensor unpack(
      const std::vector<at::Tensor>& messages,
      std::vector<int64_t>& offsets,
      size_t i) const {
    const auto& tensor = parameter(i);
    std::vector<at::Tensor> indices;
    std::vector<at::Tensor> values;
    int64_t sparse_dim = 1;
    for (size_t rank = 0; rank < messages.size(); ++rank) {
      const auto& facts = all_[rank][i];
      if (facts.kind == Facts::kSparse) {
        sparse_dim = facts.sparse_dim;
      }
      if (facts.rows == 0) {
        continue;
      }
      const auto get = [&](at::IntArrayRef sizes, at::ScalarType type) {
        const int64_t bytes = c10::multiply_integers(sizes) *
            static_cast<int64_t>(c10::elementSize(type));
        auto numbers = messages[rank]
                           .narrow(0, offsets[rank], bytes)
                           .view(type)
                           .view(sizes);
        offsets[rank] += aligned(bytes);
        return numbers;
      };
      indices.push_back(get({facts.sparse_dim, facts.rows}, at::kLong));
      values.push_back(
          get(value_sizes(facts, i), tensor.scalar_type()));
    }
    const auto options =
        at::TensorOptions().dtype(tensor.dtype()).device(tensor.device());
    if (indices.empty()) {
      std::vector<int64_t> sizes = tensor.sizes().slice(sparse_dim).vec();
      sizes.insert(sizes.begin(), 0);
      indices.push_back(at::zeros({sparse_dim, 0}, options.dtype(at::kLong)));
      values.push_back(at::zeros(sizes, options));
    }
    return at::sparse_coo_tensor(
               at::cat(indices, 1), at::cat(values, 0), tensor.sizes(), options)
        .coalesce();
  }

  const std::vector<SparseGradient>& gradients_;
  const AllFacts& all_;
  std::vector<size_t> members_;
};

} // namespace

std::vector<AveragedLayout> average_sparse(
    Communicator& communicator,
    const std::vector<SparseGradient>& gradients) {
  const at::NoGradGuard no_grad;
  for (const auto& gradient : gradients) {
    // A row of the table that the batch has twice need not travel twice.
    auto& grad = gradient.parameter->tensor.mutable_grad();
    if (grad.defined() && grad.is_sparse()) {
      grad = grad.coalesce();
    }
  }
  const auto all = exchange_facts(communicator, gradients);
  std::vector<AveragedLayout> layouts;
  std::vector<Rows> devices;
  for (size_t i = 0; i < gradients.size(); ++i) {
    layouts.push_back(layout_of(all, i));
    if (layouts.back() == AveragedLayout::kMixed) {
      average_densely(communicator, gradients[i]);
    } else if (layouts.back() == AveragedLayout::kSparse) {
      const auto device = gradients[i].parameter->tensor.device();
      auto rows = std::find_if(
          devices.begin(), devices.end(), [&](const Rows& other) {
            return other.device() == device;
          });
      if (rows == devices.end()) {
        devices.emplace_back(gradients, all);
        rows = devices.end() - 1;
      }
      rows->add(i);
    }
  }
  for (auto& rows : devices) {
    rows.average(communicator);
  }
  return layouts;
}

} // namespace accel::detail
