#include "distributed/rules/attention_length.h"
#include "distributed/rules/strategy.h"
#include "distributed/rules/table.h"

#include <ATen/ATen.h>

#include <string>

// Fused attention. Samples and heads are computed by themselves, so that a cut
// of either stays; a mask is cut with them, but where it is broadcast. A cut of
// the sequence is context parallelism: attention_length.cpp. A cut of the features
// runs whole, and so does dropout, whose kernels draw their numbers inside.

namespace accel::distributed::attention_rules {
namespace {

bool starts_with(const std::string& text, const char* start) {
  return text.rfind(start, 0) == 0;
}

/// What an argument is, by its name in the schema.
enum class Operand { kSamples, kStatistics, kMask, kOther };

Operand operand(const std::string& name) {
  if (starts_with(name, "attn_") || name == "bias") {
    return Operand::kMask;
  }
  if (name == "logsumexp") {
    return Operand::kStatistics;
  }
  for (const auto* known : {"query", "key", "value", "out", "grad_out", "grad_out_"}) {
    if (name == known) {
      return Operand::kSamples;
    }
  }
  return Operand::kOther;
}

/// The dimension of a mask that is broadcast to the samples (4 from the back)
/// or the heads (3).
int8_t of_mask(const at::Tensor& mask, int64_t back) {
  const int64_t dim = mask.dim() - back;
  return dim < 0 || mask.size(dim) == 1 ? kWhole : static_cast<int8_t>(dim);
}

/// Sequences of different lengths in one, slopes by head, sizes of dropout: what
/// the ways below say nothing of.
bool is_plain_attention(const Call& call) {
  const int dropout = call.index("dropout_p");
  const int debug = call.index("return_debug_mask");
  if (!call.info().writes.empty() || call.overload() == "quantized" ||
      (dropout >= 0 && call.at(dropout).toDouble() > 0) ||
      (debug >= 0 && call.boolean(debug))) {
    return false;
  }
  for (const auto i : call.info().tensors) {
    const auto& name = call.op().schema().arguments()[i].name();
    if (operand(name) == Operand::kOther && !starts_with(name, "philox") &&
        name != "rng_state" && name != "unused" && call.has(i) &&
        call.tensor(i).numel() != 0) {
      return false;
    }
    if (operand(name) == Operand::kSamples && call.tensor(i).dim() != 4) {
      return false;
    }
  }
  return true;
}

/// The results of an operator: the attention and its statistics, or the
/// gradients of query, key, value and mask.
void add_results(const Call& call, Strategy& way, int8_t dim, int8_t statistics, int8_t mask) {
  const bool backward =
      call.name().find("backward") != std::string::npos;
  way.results.assign(call.info().results, kWhole);
  way.results[0] = dim;
  way.results[1] = backward ? dim : statistics;
  if (backward) {
    way.results[2] = dim;
    if (call.info().results == 4) {
      // What a broadcast mask is given by all parts is a sum.
      way.results[3] = mask == kWhole ? kSum : mask;
    }
  }
}

/// `dim` of samples, `statistics` of logsumexp, and the mask's counted from the
/// back.
Strategy attention_way(const Call& call, int8_t dim, int8_t statistics, int64_t back) {
  Strategy way;
  int8_t mask = kWhole;
  for (const auto i : call.info().tensors) {
    int8_t role = kWhole;
    switch (operand(call.op().schema().arguments()[i].name())) {
      case Operand::kSamples:
        role = dim;
        break;
      case Operand::kStatistics:
        role = statistics;
        break;
      case Operand::kMask:
        role = call.has(i) ? of_mask(call.tensor(i), back) : kWhole;
        mask = role;
        break;
      case Operand::kOther:
        break;
    }
    way.arguments.push_back(role);
  }
  add_results(call, way, dim, statistics, mask);
  if (call.name() == "aten::_scaled_dot_product_flash_attention_for_cpu") {
    way.transposed = 1; // logsumexp, of which the heads are innermost
    way.innermost = 1;
  }
  return way;
}

/// query, key, value as `[samples, heads, length, features]` or, with `heads` 2,
/// as `[samples, length, heads, features]`; logsumexp as `[samples, heads, …]`.
template <int heads>
bool attention(Call& call) {
  if (!is_plain_attention(call)) {
    return false;
  }
  const auto by_heads = attention_way(call, heads, 1, 3);
  return in_parts(call, {attention_way(call, 0, 0, 4), by_heads}) ||
      attention_of_positions(call, by_heads, heads == 1 ? 2 : 1);
}

/// Which kernel LibTorch would take: asked of the tensors as they are, of which
/// only the sizes, the type and the device are looked at.
bool choice(Call& call) {
  const auto& query = call.tensor(0);
  const auto kernels = c10::computeDispatchKey(
      query.scalar_type(), c10::kStrided, query.device());
  if (!call.op().hasKernelForDispatchKey(kernels)) {
    return false;
  }
  torch::jit::Stack stack;
  for (size_t i = 0; i < call.size(); ++i) {
    stack.push_back(call.at(i));
  }
  call.op().callBoxedForDispatchKey(kernels, stack);
  call.finish({stack.back()});
  return true;
}

/// qkv, bias: three tensors `[samples, heads, length, features]`.
bool transform_bias_rescale(Call& call) {
  return in_parts(call, Strategy{{0, kWhole}, {0, 0, 0}});
}

/// How a mask of a fused layer is cut with the samples; nothing where that is
/// not known. The types are LibTorch's: 0 is length x length, 1 samples x
/// length, 2 has all dimensions.
std::optional<int8_t> of_typed_mask(
    const Call& call,
    size_t mask,
    size_t type,
    int64_t samples) {
  if (!call.has(mask)) {
    return kWhole;
  }
  if (call.at(type).isNone()) {
    return {};
  }
  const auto& tensor = call.tensor(mask);
  switch (call.integer(type)) {
    case 0:
      return tensor.dim() == 2 ? std::optional<int8_t>(kWhole) : std::nullopt;
    case 1:
      return tensor.dim() == 2 && tensor.size(0) == samples
          ? std::optional<int8_t>(0)
          : std::nullopt;
    case 2:
      return tensor.dim() == 4 && tensor.size(0) == samples
          ? std::optional<int8_t>(0)
          : std::nullopt;
    default:
      return {};
  }
}

/// query, key, value, qkv_weight, qkv_bias, proj_weight, proj_bias, mask.
bool multi_head(Call& call) {
  const auto mask = of_typed_mask(
      call, call.index("mask"), call.index("mask_type"), call.tensor(0).size(0));
  return mask &&
      in_parts(
             call,
             Strategy{{0, 0, 0, kWhole, kWhole, kWhole, kWhole, *mask}, {0, 0}});
}

/// src, twelve parameters, mask.
bool encoder_layer(Call& call) {
  const auto mask = of_typed_mask(
      call, call.index("mask"), call.index("mask_type"), call.tensor(0).size(0));
  if (!mask || call.tensor(0).dim() != 3) {
    return false;
  }
  Strategy way;
  way.arguments.assign(call.info().tensors.size(), kWhole);
  way.arguments.front() = 0;
  way.arguments.back() = *mask;
  way.results.push_back(0);
  return in_parts(call, way);
}

constexpr auto kPlaces = "samples, heads, positions of queries; no dropout";
constexpr auto kMoves = "keys and values, or positions for heads, where positions are cut";
constexpr auto kPasses =
    "keys and values, gathered or passed on, or positions for heads, where positions are cut";

} // namespace

const Family& family() {
  static const Family rows{
      {"aten::_scaled_dot_product_flash_attention_for_cpu", attention<1>, kPlaces, kPasses},
      {"aten::_scaled_dot_product_flash_attention_for_cpu_backward", attention<1>, kPlaces, kPasses},
      {"aten::_scaled_dot_product_flash_attention", attention<1>, kPlaces, kMoves},
      {"aten::_scaled_dot_product_flash_attention_backward", attention<1>, kPlaces, kMoves},
      {"aten::_scaled_dot_product_efficient_attention", attention<1>, kPlaces, kMoves},
      {"aten::_scaled_dot_product_efficient_attention_backward", attention<1>, "as forward; the gradient of a broadcast mask is P", kMoves},
      {"aten::_scaled_dot_product_cudnn_attention", attention<1>, kPlaces, kMoves},
      {"aten::_scaled_dot_product_cudnn_attention_backward", attention<1>, kPlaces, kMoves},
      {"aten::_cudnn_attention_forward", attention<1>, kPlaces, kMoves},
      {"aten::_cudnn_attention_backward", attention<1>, kPlaces, kMoves},
      {"aten::_scaled_dot_product_fused_attention_overrideable", attention<1>, kPlaces, kMoves},
      {"aten::_scaled_dot_product_fused_attention_overrideable_backward", attention<1>, "as forward; the gradient of a broadcast mask is P", kMoves},
      {"aten::_flash_attention_forward", attention<2>, kPlaces, kMoves},
      {"aten::_flash_attention_backward", attention<2>, kPlaces, kMoves},
      {"aten::_efficient_attention_forward", attention<2>, kPlaces, kMoves},
      {"aten::_efficient_attention_backward", attention<2>, "as forward; the gradient of a broadcast mask is P", kMoves},
      {"aten::_fused_sdp_choice", choice, "any", "nothing"},
      {"aten::_transform_bias_rescale_qkv", transform_bias_rescale, "samples", "nothing"},
      {"aten::_native_multi_head_attention", multi_head, "samples", "nothing"},
      {"aten::_transformer_encoder_layer_fwd", encoder_layer, "samples", "nothing"},
  };
  return rows;
}

} // namespace accel::distributed::attention_rules
