#include "distributed/result_order.h"

#include "distributed/memory_order.h"

#include <ATen/ATen.h>

#include <unordered_map>

namespace accel::distributed {
namespace {

enum class Order {
  /// Always a new tensor's.
  kUsual,
  /// Channels-last where argument 0 is, else a new tensor's.
  kSuggested,
  /// That of argument 0, as `empty_like` has it.
  kLikeFirst,
  /// `[samples, heads, positions, …]` with positions outside of heads.
  kPositionsOutside,
};

const std::unordered_map<std::string, Order>& orders() {
  static const std::unordered_map<std::string, Order> all{
      {"aten::_adaptive_avg_pool3d", Order::kUsual},
      {"aten::_adaptive_avg_pool3d_backward", Order::kUsual},
      {"aten::_dirichlet_grad", Order::kUsual},
      {"aten::_grid_sampler_2d_cpu_fallback", Order::kUsual},
      {"aten::_logcumsumexp", Order::kUsual},
      {"aten::_prelu_kernel_backward", Order::kLikeFirst},
      {"aten::_scaled_dot_product_flash_attention_for_cpu", Order::kLikeFirst},
      {"aten::_scaled_dot_product_flash_attention_for_cpu_backward", Order::kPositionsOutside},
      {"aten::_standard_gamma_grad", Order::kUsual},
      {"aten::_unsafe_index_put", Order::kLikeFirst},
      {"aten::adaptive_avg_pool3d", Order::kUsual},
      {"aten::batch_norm_backward", Order::kSuggested},
      {"aten::col2im", Order::kUsual},
      {"aten::frexp", Order::kLikeFirst},
      {"aten::glu_backward", Order::kUsual},
      {"aten::grid_sampler_2d", Order::kUsual},
      {"aten::grid_sampler_2d_backward", Order::kUsual},
      {"aten::grid_sampler_3d", Order::kUsual},
      {"aten::grid_sampler_3d_backward", Order::kUsual},
      {"aten::huber_loss", Order::kLikeFirst},
      {"aten::huber_loss_backward", Order::kUsual},
      {"aten::index_put", Order::kLikeFirst},
      {"aten::index_select", Order::kUsual},
      {"aten::log_sigmoid_backward", Order::kLikeFirst},
      {"aten::max_unpool3d", Order::kUsual},
      {"aten::mse_loss_backward", Order::kUsual},
      {"aten::native_layer_norm", Order::kUsual},
      {"aten::native_layer_norm_backward", Order::kUsual},
      {"aten::pixel_shuffle", Order::kSuggested},
      {"aten::pixel_unshuffle", Order::kSuggested},
      {"aten::reflection_pad3d", Order::kSuggested},
      {"aten::reflection_pad3d_backward", Order::kSuggested},
      {"aten::replication_pad2d", Order::kSuggested},
      {"aten::replication_pad3d", Order::kSuggested},
      {"aten::rrelu_with_noise", Order::kUsual},
      {"aten::slow_conv_transpose2d", Order::kSuggested},
  };
  return all;
}

} // namespace

Sizes positions_outside(c10::IntArrayRef sizes) {
  Sizes order{0, 2, 1};
  if (sizes.size() == 4) {
    order.push_back(3);
  }
  Sizes strides;
  dense_strides(sizes, order, strides);
  return strides;
}

Sizes known_strides(
    const std::string& name,
    size_t k,
    const std::vector<c10::IValue>& arguments,
    c10::IntArrayRef sizes) {
  if (name == "aten::log_sigmoid_forward" && k == 1) {
    return usual_strides(sizes); // the buffer
  }
  if (name == "aten::angle" && arguments[0].toTensor().is_complex()) {
    return usual_strides(sizes);
  }
  if (name == "aten::_scaled_dot_product_flash_attention_for_cpu" && k == 1) {
    return positions_outside(sizes); // of sums
  }
  const auto found = orders().find(name);
  if (found == orders().end()) {
    return {};
  }
  const auto order = found->second;
  if (order == Order::kPositionsOutside) {
    return positions_outside(sizes);
  }
  if (order == Order::kUsual || arguments.empty() || !arguments[0].isTensor()) {
    return usual_strides(sizes);
  }
  const auto& first = arguments[0].toTensor();
  if (order == Order::kLikeFirst) {
    return first.sizes() == sizes ? strides_without_gaps(sizes, first.strides())
                                  : Sizes();
  }
  const auto format = first.suggest_memory_format();
  const bool last =
      (sizes.size() == 4 && format == at::MemoryFormat::ChannelsLast) ||
      (sizes.size() == 5 && format == at::MemoryFormat::ChannelsLast3d);
  return last ? channels_last(sizes) : usual_strides(sizes);
}

} // namespace accel::distributed
