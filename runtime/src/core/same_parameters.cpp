#include "core/same_parameters.h"

#include "core/tensor_checksum.h"
#include "core/tensor_version.h"

#include <accel/distributed/tensor.h>

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <c10/util/hash.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <sstream>

namespace accel::detail {
namespace {

/// Of one parameter, each time.
constexpr uint64_t kSamples = 8;

/// How often a parameter was written to since all processes had it alike.
int64_t writes_to(const Parameter& parameter) {
  return version_of(parameter.tensor) - parameter.compared_version.value_or(0);
}

/// Bytes of some elements, which every process chooses alike.
uint64_t sample_of(const at::Tensor& tensor, uint64_t turn) {
  const auto numel = static_cast<uint64_t>(tensor.numel());
  if (!tensor.is_cpu() || tensor.layout() != at::kStrided || numel == 0 ||
      !tensor.is_non_overlapping_and_dense()) {
    return 0;
  }
  const auto* bytes = static_cast<const char*>(tensor.const_data_ptr());
  const size_t size = tensor.element_size();
  size_t hash = 0;
  for (uint64_t i = 0; i < std::min(kSamples, numel); ++i) {
    // Steps of the golden section, which come everywhere.
    const uint64_t element = (turn * kSamples + i) * 0x9e3779b97f4a7c15ULL % numel;
    std::array<uint64_t, 2> value{};
    std::memcpy(value.data(), bytes + element * size, std::min(size, sizeof value));
    hash = c10::hash_combine(c10::hash_combine(hash, value[0]), value[1]);
  }
  return hash;
}

/// What is known of one parameter on one process.
struct Content {
  int64_t checksum = 0;
  int64_t writes = 0;
  /// Of its values and of their sizes.
  double sum = 0;
  double size = 0;
  int64_t had_gradient = 0;
};
constexpr int64_t kNumbers = 5;
static_assert(sizeof(Content) == kNumbers * sizeof(int64_t));

Content content_of(const Parameter& parameter) {
  Content content;
  content.writes = writes_to(parameter);
  content.had_gradient = parameter.had_gradient ? 1 : 0;
  if (distributed::is_distributed(parameter.tensor)) {
    content.checksum = content.writes; // Each process has other values.
    return content;
  }
  const auto checksum = checksum_of(parameter.tensor);
  content.checksum = checksum ? static_cast<int64_t>(*checksum) : 0;
  if (parameter.tensor.layout() == at::kStrided && !parameter.tensor.is_quantized()) {
    const auto values = parameter.tensor.detach().abs().to(at::kDouble);
    content.size = values.sum().item<double>();
    content.sum = parameter.tensor.is_complex()
        ? content.size
        : parameter.tensor.detach().to(at::kDouble).sum().item<double>();
  }
  return content;
}

/// As far as values go apart that processors compute in other orders.
double rounding_of(at::ScalarType dtype) {
  return dtype == at::kDouble || dtype == at::kComplexDouble ? 1e-10
      : dtype == at::kFloat || dtype == at::kComplexFloat    ? 1e-5
                                                             : 1e-2;
}

bool is_rounding(const Content& one, const Content& other, at::ScalarType dtype) {
  const double most = rounding_of(dtype) * std::max(one.size, other.size);
  return std::abs(one.size - other.size) <= most && std::abs(one.sum - other.sum) <= most;
}

[[noreturn]] void throw_different(
    const Parameter& parameter, const std::vector<Content>& contents) {
  std::ostringstream text;
  const bool in_parts = distributed::is_distributed(parameter.tensor);
  text << "accel: the parameter '" << parameter.name << "' (" << parameter.tensor.scalar_type()
       << ' ' << parameter.tensor.sizes()
       << (in_parts ? ") was not written to alike on all processes, each of which holds a part"
                    : ") is no longer the same on all processes")
       << ", so that they would train different models:";
  text.precision(17);
  for (size_t rank = 0; rank < contents.size(); ++rank) {
    text << "\n  process " << rank << ": written " << contents[rank].writes
         << " times since all had it alike";
    if (!in_parts) {
      text << ", the sum of its absolute values is " << contents[rank].size;
    }
  }
  text << "\nWrite to parameters on every process, not under is_main_process(), and the "
          "same numbers: seed every generator with a constant, read the same files "
          "everywhere. What only one process knows it gives to all with "
          "accelerator.broadcast(tensor). ACCEL_CHECK_VALUES=0 goes on without looking.";
  TORCH_CHECK(false, text.str());
}

[[noreturn]] void throw_other_gradients(
    const Parameter& parameter, const std::vector<Content>& contents) {
  std::ostringstream text;
  text << "accel: not all processes have a gradient of the parameter '" << parameter.name
       << "' that backward would add to:";
  for (size_t rank = 0; rank < contents.size(); ++rank) {
    text << "\n  process " << rank << (contents[rank].had_gradient != 0 ? ": has one" : ": none");
  }
  text << "\nCall zero_grad, backward and whatever puts gradients in place on every process, "
          "not under is_main_process(). ACCEL_CHECK_VALUES=0 goes on without looking.";
  TORCH_CHECK(false, text.str());
}

} // namespace

uint64_t SameParameters::digest(const All& parameters) {
  size_t hash = 0;
  for (const auto& parameter : parameters) {
    const auto& tensor = parameter->tensor;
    if (!parameter->compared_version) {
      parameter->compared_version = version_of(tensor); // `prepare` made it alike.
    }
    hash = c10::hash_combine(hash, static_cast<size_t>(writes_to(*parameter)));
    parameter->had_gradient = tensor.grad().defined();
    hash = c10::hash_combine(hash, parameter->had_gradient ? 1 : 0);
    if (!rounded_ && !distributed::is_distributed(tensor)) {
      hash = c10::hash_combine(hash, sample_of(tensor, asked_));
    }
  }
  ++asked_;
  return hash;
}

void SameParameters::look_closer(Communicator& communicator, const All& parameters) {
  const at::NoGradGuard no_grad;
  const auto count = static_cast<int64_t>(parameters.size());
  auto mine = at::empty({count, kNumbers}, at::kLong);
  auto* contents = static_cast<char*>(mine.mutable_data_ptr());
  for (const auto& parameter : parameters) {
    const auto content = content_of(*parameter);
    std::memcpy(contents, &content, sizeof content);
    contents += sizeof content;
  }
  const auto all = communicator.all_gather(mine);
  for (int64_t i = 0; i < count; ++i) {
    const auto& parameter = *parameters[static_cast<size_t>(i)];
    std::vector<Content> these(all.size());
    for (size_t rank = 0; rank < all.size(); ++rank) {
      std::memcpy(
          &these[rank],
          static_cast<const char*>(all[rank].const_data_ptr()) +
              static_cast<size_t>(i) * sizeof(Content),
          sizeof(Content));
    }
    for (const auto& other : these) {
      if (other.had_gradient != these[0].had_gradient) {
        throw_other_gradients(parameter, these);
      }
      if (other.checksum == these[0].checksum) {
        continue;
      }
      if (distributed::is_distributed(parameter.tensor) ||
          !is_rounding(these[0], other, parameter.tensor.scalar_type())) {
        throw_different(parameter, these);
      }
      rounded_ = true;
    }
  }
  for (const auto& parameter : parameters) {
    parameter->compared_version = version_of(parameter->tensor);
  }
}

} // namespace accel::detail
