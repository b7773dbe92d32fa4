#include "sample_exclusions.h"

#include "device.h"
#include "plain_calls.h"

#include <ATen/ATen.h>

#include <fnmatch.h>

#include <algorithm>

namespace accel::distributed::test {
namespace {

/// Operators of which there is no sample, and why.
struct Without {
  const char* name;
  const char* why;
};

const Without kWithout[] = {
    // Other devices' kernels.
    {"aten::cudnn_*", "cuDNN"},
    {"aten::_cudnn_*", "cuDNN"},
    {"aten::miopen_*", "MIOpen"},
    {"aten::_scaled_dot_product_cudnn_attention*", "cuDNN"},
    {"aten::_scaled_dot_product_efficient_attention*", "CUDA"},
    {"aten::_scaled_dot_product_flash_attention", "CUDA"},
    {"aten::_scaled_dot_product_flash_attention.quantized", "CUDA"},
    {"aten::_scaled_dot_product_flash_attention_backward", "CUDA"},
    {"aten::_scaled_dot_product_fused_attention_overrideable*", "other devices"},
    {"aten::_flash_attention_*", "CUDA"},
    {"aten::_efficient_attention_*", "CUDA"},
    {"aten::_thnn_fused_*", "CUDA"},
    {"aten::batch_norm_stats*", "CUDA"},
    {"aten::batch_norm_elemt*", "CUDA"},
    {"aten::batch_norm_backward_elemt*", "CUDA"},
    {"aten::batch_norm_backward_reduce*", "CUDA"},
    {"aten::_fused_dropout*", "CUDA"},
    {"aten::_masked_scale*", "CUDA"},
    {"aten::_fused_rms_norm_backward", "CUDA"},
    {"aten::_conv_depthwise2d*", "CUDA"},
    {"aten::conv_depthwise3d*", "CUDA"},
    {"aten::convolution_overrideable*", "other devices"},
    {"aten::convolution_backward_overrideable*", "other devices"},
    {"aten::max_pool2d_backward*", "Metal"},
    {"aten::*mm.dtype*", "CUDA"},
    // Dimensions with names; taken apart into the overloads with numbers.
    {"aten::*.dimname*", "names"},
    {"aten::*.Dimname*", "names"},
    {"aten::*.dim_Dimname*", "names"},
    {"aten::*.*DimnameList*", "names"},
    {"aten::*.names*", "names"},
    // Leaves memory unwritten behind a short sequence's end.
    {"aten::_ctc_loss.*out", "unwritten memory"},
    // Takes a workspace that only the forward operator makes: it is reached as
    // the gradient of mkldnn_rnn_layer.
    {"aten::mkldnn_rnn_layer.out", "workspace"},
    {"aten::mkldnn_rnn_layer_backward*", "workspace"},
};

} // namespace

const char* why_without_sample(const std::string& name) {
  for (const auto& row : kWithout) {
    if (::fnmatch(row.name, name.c_str(), 0) == 0) {
      return row.why;
    }
  }
  return nullptr;
}

bool may_have_sample(const std::string& name) {
  const char* const why = why_without_sample(name);
  const std::string text = why != nullptr ? why : "";
  return text.empty() || (device().is_cuda() && (text == "CUDA" || text == "cuDNN"));
}

const char* why_not_on_device(
    const c10::OperatorHandle& op,
    const torch::jit::Stack& arguments) {
  static const Without calls[] = {
      {"aten::*_cpu*", "a kernel of the CPU, which reads memory"},
      {"aten::max_unpool3d*", "which of two values for one place remains"},
      {"aten::_cudnn_rnn.out", "memory that only cuDNN reads"},
      {"aten::_cudnn_init_dropout_state.out", "memory that only cuDNN reads"}};
  const auto name = full_name(op.operator_name());
  for (const auto& row : calls) {
    if (::fnmatch(row.name, name.c_str(), 0) == 0) {
      return row.why;
    }
  }
  if (::fnmatch("aten::_fused_*", name.c_str(), 0) == 0 &&
      std::any_of(arguments.begin(), arguments.end(), [](const c10::IValue& value) {
        return value.isTensor() && value.toTensor().defined() &&
            value.toTensor().scalar_type() == at::kHalf;
      })) {
    return "the scale, which is read as float";
  }
  return nullptr;
}

} // namespace accel::distributed::test
