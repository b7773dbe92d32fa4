#include "other_order.h"

#include "device.h"
#include "plain_calls.h"

#include <ATen/ATen.h>

namespace accel::distributed::test {
namespace {

/// The same values, where there is another order for them to lie in.
at::Tensor in_other_order(const at::Tensor& tensor) {
  if (tensor.layout() != at::kStrided || tensor.dim() < 2) {
    return tensor;
  }
  switch (tensor.dim()) {
    case 4: return tensor.contiguous(at::MemoryFormat::ChannelsLast);
    case 5: return tensor.contiguous(at::MemoryFormat::ChannelsLast3d);
    default: return tensor.transpose(-1, -2).contiguous().transpose(-1, -2);
  }
}

/// Of tensors, to rounding; what else there may be is not looked at.
bool same_values(const torch::jit::Stack& a, const torch::jit::Stack& b) {
  if (a.size() != b.size()) {
    return false;
  }
  for (size_t i = 0; i < a.size(); ++i) {
    std::vector<at::Tensor> of_a;
    std::vector<at::Tensor> of_b;
    if (a[i].isTensor() && b[i].isTensor()) {
      of_a.push_back(a[i].toTensor());
      of_b.push_back(b[i].toTensor());
    } else if (a[i].isTensorList() && b[i].isTensorList()) {
      of_a = a[i].toTensorVector();
      of_b = b[i].toTensorVector();
    }
    for (size_t j = 0; j < of_a.size(); ++j) {
      const bool comparable = of_a[j].defined() && of_b[j].defined() &&
          of_a[j].layout() == at::kStrided && of_a[j].sizes() == of_b[j].sizes();
      if (comparable &&
          !at::allclose(of_a[j].to(at::kComplexDouble), of_b[j].to(at::kComplexDouble),
                        1e-6, 1e-9, /*equal_nan=*/true)) {
        return false;
      }
    }
  }
  return true;
}

/// Calls whose results may lie in another order than the plain ones.
bool has_order_of_its_own(const SampleCall& call) {
  const auto& arguments = call.arguments;
  // A target of other sizes, of which LibTorch warns that it is deprecated.
  return (call.name == "aten::binary_cross_entropy" &&
          arguments[0].toTensor().sizes() != arguments[1].toTensor().sizes()) ||
      // The gradient of a sequence where a process has a single channel.
      (call.name == "aten::convolution_backward" &&
       arguments[1].toTensor().dim() == 3) ||
      // Autograd's own, which keeps what it writes to itself.
      call.name == "aten::log_sigmoid_forward.output" ||
      // Exported programs call it, not torch::batch_norm.
      call.name == "aten::batch_norm_backward";
}

} // namespace

void lay_out_in_other_order(SampleCalls& all) {
  std::vector<SampleCall> accepted;
  for (auto& call : all.calls) {
    if (has_order_of_its_own(call)) {
      continue;
    }
    const auto usual = call.arguments;
    call.arguments = changed(usual, in_other_order);
    call.origin += ", in another order";
    try {
      if (same_values(results_of(call.op, usual), results_of(call.op, call.arguments))) {
        accepted.push_back(std::move(call));
      } else {
        ++all.refused;
      }
    } catch (const std::exception&) {
      ++all.refused;
    }
  }
  all.calls = std::move(accepted);
}

} // namespace accel::distributed::test
