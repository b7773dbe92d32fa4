#include "distributed/rules/recurrent.h"

#include "distributed/rules/common.h"
#include "distributed/rules/table.h"
#include "distributed/rules/strategy.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <mutex>
#include <vector>

// Cells and fused recurrent layers. Each sample goes through the layer by
// itself, so that a cut of samples stays; gradients of weights are parts of
// sums. Layers of sequences of different lengths, and dropout inside of a layer,
// run whole.
//
// A fused layer in training hands its backward a buffer whose contents and size
// only the library knows (the reserve of cuDNN, the workspace of oneDNN). Where
// the layer has run in parts every process has one of its own, and backward
// must run in parts, too: `hide` makes a distributed tensor of it, `found` says
// that there is one.

namespace accel::distributed::recurrent_rules {
namespace {

// ---- Buffers of the library.

/// A buffer that processes have of their own, and how the samples were cut when
/// it was made.
struct Buffer {
  at::Tensor tensor;
  Cut cut;
  int64_t n = 0;
};

/// A distributed tensor `[samples]`, cut like the samples, whose local tensor is
/// the whole buffer: autograd clones it when a graph is kept.
at::Tensor hide(const Call& call, const at::Tensor& buffer, const Chosen& chosen) {
  if (!buffer.defined()) {
    return buffer;
  }
  const auto local = part_of(buffer) != nullptr
      ? buffer // hidden along a further axis
      : buffer.view({-1});
  return make_tensor(
      call.axis(), local, Shard(0, chosen.cut), {chosen.n});
}

/// Told from a buffer that was cut into parts by its size: it has more than one
/// element for each sample, or none.
bool is_hidden(const Part& part) {
  if (!part.placement.is_shard(0) || part.sizes.size() != 1) {
    return false;
  }
  if (const Part* inner = part_of(part.local)) {
    return is_hidden(*inner);
  }
  return part.local.numel() !=
      part.axis->rows(part.sizes[0], part.placement.cut());
}

/// The buffer of a layer that has run in parts; undefined where it has run
/// whole.
Buffer found(const Call& call, size_t i) {
  const Part* part = call.has(i) ? call.part(call.tensor(i)) : nullptr;
  if (part == nullptr || !is_hidden(*part)) {
    return {};
  }
  return {part->local, part->placement.cut(), part->sizes[0]};
}

// ---- Cells: gates and states are `[samples, features]`.

/// input_gates, hidden_gates, state, input_bias, hidden_bias.
bool cell(Call& call) {
  Strategy way{{0, 0, 0, kWhole, kWhole}, {}};
  way.results.assign(call.info().results, 0);
  return in_parts(call, way);
}

/// grad_hy, grad_cy, cx, cy, workspace.
bool lstm_cell_backward(Call& call) {
  return in_parts(call, Strategy{{0, 0, 0, 0, 0}, {0, 0, kSum}});
}

/// grad_hy, workspace.
bool gru_cell_backward(Call& call) {
  return in_parts(call, Strategy{{0, 0}, {0, 0, 0, kSum, kSum}});
}

// ---- Layers.

/// The ways of a layer: every argument in `samples` has its samples in dimension
/// 1, or 0 of `[samples, length, …]`, or the last but one of a state.
struct Layer {
  /// What is cut, by name, and whether it is a state.
  struct Operand {
    const char* name;
    bool is_state;
  };
  std::vector<Operand> operands;
  /// Of the sequences.
  int8_t samples;
};

int8_t samples_of(const at::Tensor& tensor, const Layer& layer, bool is_state) {
  return is_state ? static_cast<int8_t>(tensor.dim() - 2) : layer.samples;
}

Strategy way_of(const Call& call, const Layer& layer) {
  Strategy way;
  for (const auto i : call.info().tensors) {
    int8_t role = kWhole;
    const auto& name = call.op().schema().arguments()[i].name();
    for (const auto& operand : layer.operands) {
      if (name == operand.name && call.has(i)) {
        role = samples_of(call.tensor(i), layer, operand.is_state);
      }
    }
    way.arguments.push_back(role);
  }
  return way;
}

/// Lists of weights, which `run_strategy` leaves alone.
void use_whole_lists(Call& call) {
  for (const auto i : call.info().tensors) {
    if (call.at(i).isTensorList()) {
      auto list = call.tensors(i);
      for (auto& tensor : list) {
        if (tensor.defined()) {
          tensor = call.local_as(tensor, Replicate());
        }
      }
      call.set(i, std::move(list));
    }
  }
}

bool whole_layer(const Call& call) {
  const int dropout = call.index("dropout");
  return !call.info().writes.empty() ||
      !call.integers(call.index("batch_sizes")).empty() ||
      (dropout >= 0 && call.at(dropout).toDouble() > 0 &&
       call.boolean(call.index("train")));
}

int8_t samples_of_sequences(const Call& call) {
  return call.boolean(call.index("batch_first")) ? 0 : 1;
}

/// _cudnn_rnn and miopen_rnn: output, hy, cy, reserve, weight_buf.
bool rnn(Call& call) {
  if (whole_layer(call)) {
    return false;
  }
  const auto samples = samples_of_sequences(call);
  auto way = way_of(
      call, {{{"input", false}, {"hx", true}, {"cx", true}}, samples});
  way.results = {samples, 1, 1, kWhole, kWhole};
  const auto chosen = choose(call, way);
  if (!chosen) {
    return false;
  }
  use_whole_lists(call);
  run_strategy(call, chosen);
  call.result(3) = hide(call, call.local_result(3), chosen);
  return true;
}

/// grad_input, grad_hx, grad_cx, gradients of the weights.
bool rnn_backward(Call& call) {
  if (!call.info().writes.empty()) {
    return false;
  }
  const auto at = call.index("reserve");
  const auto reserve = found(call, at);
  if (!reserve.tensor.defined()) {
    return false;
  }
  const auto samples = samples_of_sequences(call);
  auto way = way_of(
      call,
      {{{"input", false},
        {"output", false},
        {"grad_output", false},
        {"hx", true},
        {"cx", true},
        {"grad_hy", true},
        {"grad_cy", true}},
       samples});
  way.results = {samples, 1, 1, kWhole};
  call.set(at, reserve.tensor);
  use_whole_lists(call);
  run_strategy(call, {&way, reserve.cut, reserve.n});
  auto gradients = call.result(3).toTensorVector();
  for (auto& gradient : gradients) {
    gradient = call.placed(gradient, Partial());
  }
  call.result(3) = std::move(gradients);
  return true;
}

/// One layer and direction of oneDNN, whose sequences are always
/// `[length, samples, features]`: output, hy, cy, workspace.
bool mkldnn_layer(Call& call) {
  if (whole_layer(call)) {
    return false;
  }
  auto way =
      way_of(call, {{{"input", false}, {"hx_", true}, {"cx_", true}}, 1});
  const auto state = static_cast<int8_t>(
      call.tensor(call.index("hx_")).dim() - 2);
  way.results = {1, state, state, kWhole};
  const auto chosen = choose(call, way);
  if (!chosen) {
    return false;
  }
  run_strategy(call, chosen);
  call.result(3) = hide(call, call.local_result(3), chosen);
  return true;
}

/// grad_input, four gradients of weights, grad_hx, grad_cx.
bool mkldnn_layer_backward(Call& call) {
  if (!call.info().writes.empty()) {
    return false;
  }
  const auto at = call.index("workspace");
  const auto workspace = found(call, at);
  if (!workspace.tensor.defined()) {
    return false;
  }
  auto way = way_of(
      call,
      {{{"input", false},
        {"output", false},
        {"grad_output", false},
        {"hx_", true},
        {"cx_tmp", true},
        {"hy_", true},
        {"cy_", true},
        {"grad_hy", true},
        {"grad_cy", true}},
       1});
  const auto state = static_cast<int8_t>(
      call.tensor(call.index("hx_")).dim() - 2);
  way.results = {1, kSum, kSum, kSum, kSum, state, state};
  call.set(at, workspace.tensor);
  run_strategy(call, {&way, workspace.cut, workspace.n});
  return true;
}

/// Batch sizes of packed sequences, which go from the packing through the layers to
/// the unpacking as they are.
struct Packed {
  struct Entry {
    c10::weak_intrusive_ptr<at::TensorImpl> batch_sizes;
    Axis* axis;
  };
  std::mutex mutex;
  std::vector<Entry> entries;

  static Packed& get() {
    static Packed packed;
    return packed;
  }
};

/// `(input, lengths, batch_first)`: the rows of each step lie behind those of the step
/// before, so that no process has rows of its own.
bool pack_padded_sequence(Call& call) {
  if (has_out(call)) {
    return false;
  }
  const int64_t samples = call.boolean(2) ? 0 : 1;
  const at::Tensor input = call.tensor(0);
  const Part* part = call.part(input);
  if (part == nullptr || !call.place(0).is_shard(samples)) {
    return false;
  }
  // Samples are not cut again where a process has one only: what lies here is not
  // what lies on the others.
  const bool other_axes =
      cut_further(call, 0, samples) || part_of(part->local) != nullptr;
  call.use_whole(0);
  call.use_whole(1);
  call.run();
  if (!other_axes) {
    auto& packed = Packed::get();
    const std::lock_guard<std::mutex> lock(packed.mutex);
    auto& entries = packed.entries;
    entries.erase(
        std::remove_if(
            entries.begin(), entries.end(),
            [](const auto& entry) { return entry.batch_sizes.expired(); }),
        entries.end());
    const at::Tensor batch_sizes = call.result(1).toTensor();
    entries.push_back(
        {c10::weak_intrusive_ptr<at::TensorImpl>(batch_sizes.getIntrusivePtr()),
         &call.axis()});
  }
  return true;
}

} // namespace

const Family& family() {
  static const Family rows{
      {"aten::_pack_padded_sequence", pack_padded_sequence, "samples", "the sequences and their lengths; each process computes some of them in the layer, whose results travel, too"},
      {"aten::_thnn_fused_lstm_cell", cell, "samples", "nothing"},
      {"aten::_thnn_fused_lstm_cell_backward_impl", lstm_cell_backward, "samples; the bias' gradient is P", "nothing"},
      {"aten::_thnn_fused_gru_cell", cell, "samples", "nothing"},
      {"aten::_thnn_fused_gru_cell_backward", gru_cell_backward, "samples; the biases' gradients are P", "nothing"},
      {"aten::_cudnn_rnn", rnn, "samples; no dropout, no packed sequences", "nothing"},
      {"aten::_cudnn_rnn_backward", rnn_backward, "samples; the weights' gradients are P", "nothing"},
      {"aten::miopen_rnn", rnn, "samples; no dropout, no packed sequences", "nothing"},
      {"aten::miopen_rnn_backward", rnn_backward, "samples; the weights' gradients are P", "nothing"},
      {"aten::mkldnn_rnn_layer", mkldnn_layer, "samples; no packed sequences", "nothing"},
      {"aten::mkldnn_rnn_layer_backward", mkldnn_layer_backward, "samples; the weights' gradients are P", "nothing"},
  };
  return rows;
}

} // namespace accel::distributed::recurrent_rules

namespace accel::distributed {

OwnBuffer own_buffer(const c10::OperatorHandle& op) {
  const auto& name = op.schema().name();
  for (const auto* layer :
       {"aten::_cudnn_rnn", "aten::miopen_rnn", "aten::mkldnn_rnn_layer"}) {
    if (name == layer) {
      return {3, false};
    }
    if (name == std::string(layer) + "_backward") {
      return {-1, true};
    }
  }
  return {};
}

Axis* axis_of_packed(const at::Tensor& batch_sizes) {
  auto& packed = recurrent_rules::Packed::get();
  const std::lock_guard<std::mutex> lock(packed.mutex);
  for (const auto& entry : packed.entries) {
    if (entry.batch_sizes._unsafe_get_target() ==
        batch_sizes.unsafeGetTensorImpl()) {
      return entry.batch_sizes.expired() ? nullptr : entry.axis;
    }
  }
  return nullptr;
}

} // namespace accel::distributed
