#include "sample_runs.h"

#include "device.h"
#include "distributed/rules/table.h"

#include <accel/distributed/tensor.h>

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <torch/autograd.h>

#include <algorithm>
#include <functional>
#include <optional>

namespace accel::distributed::test {
namespace {

using Place = std::function<at::Tensor(const at::Tensor&)>;
using Tensors = std::vector<at::Tensor>;

/// Of half precision only what CUDA has no other kernels for (samples_cuda.txt).
bool is_differentiable(const at::Tensor& tensor) {
  return tensor.defined() &&
      (tensor.scalar_type() == at::kDouble || tensor.scalar_type() == at::kFloat ||
       tensor.scalar_type() == at::kComplexDouble ||
       (tensor.is_cuda() && at::isReducedFloatingType(tensor.scalar_type()))) &&
      tensor.layout() == at::kStrided;
}

/// The tensors among these values, lists included.
Tensors tensors_of(const torch::jit::Stack& values) {
  Tensors all;
  for (const auto& value : values) {
    if (value.isTensor()) {
      all.push_back(value.toTensor());
    } else if (value.isTensorList()) {
      for (const at::Tensor& tensor : value.toTensorVector()) {
        all.push_back(tensor);
      }
    }
  }
  return all;
}

Tensors with_gradient(const Tensors& tensors) {
  Tensors some;
  for (const auto& tensor : tensors) {
    if (is_differentiable(tensor) && tensor.requires_grad()) {
      some.push_back(tensor);
    }
  }
  return some;
}

/// Incoming gradients: numbers that are all different, the same on all ranks.
Tensors gradients_for(const Tensors& outputs, double shift, const Place& place) {
  Tensors gradients;
  for (const auto& output : outputs) {
    auto numbers = at::arange(output.numel(), at::kDouble).add(shift).cos();
    if (output.is_complex()) {
      numbers = at::complex(numbers, numbers.mul(0.5).add(shift));
    }
    numbers = numbers.view(output.sizes()).to(output.scalar_type()).to(output.device());
    gradients.push_back(place(numbers).detach().requires_grad_());
  }
  return gradients;
}

torch::jit::Stack stack_of(const Tensors& tensors) {
  torch::jit::Stack stack;
  for (const auto& tensor : tensors) {
    stack.emplace_back(tensor);
  }
  return stack;
}

/// Makes leaves of the arguments' tensors. What the operator writes becomes a
/// copy of a leaf, as autograd wants it.
Tensors make_leaves(
    const OperatorInfo& info,
    const std::vector<bool>& by,
    torch::jit::Stack& arguments) {
  Tensors leaves;
  size_t next = 0;
  const auto leaf = [&](const at::Tensor& tensor, bool written) {
    if (!is_differentiable(tensor)) {
      return tensor;
    }
    const size_t k = next++;
    if (k < by.size() && !by[k]) {
      return tensor;
    }
    auto own = tensor.detach();
    own.requires_grad_();
    leaves.push_back(own);
    return written ? own.clone() : own;
  };
  for (const auto i : info.tensors) {
    // Statistics that are written beside the result have no gradient.
    const bool written =
        std::find(info.writes.begin(), info.writes.end(), i) != info.writes.end();
    if (written && i != 0) {
      continue;
    }
    auto& value = arguments[i];
    if (value.isTensor()) {
      value = leaf(value.toTensor(), written);
    } else if (value.isTensorList()) {
      auto list = value.toTensorVector();
      for (auto& tensor : list) {
        tensor = leaf(tensor, written);
      }
      value = std::move(list);
    }
  }
  return leaves;
}

/// Operators may change the list that they were given.
torch::jit::Stack with_own_lists(torch::jit::Stack values) {
  for (auto& value : values) {
    if (value.isTensorList()) {
      value = value.toTensorList().copy();
    } else if (value.isOptionalTensorList()) {
      value = value.toOptionalTensorList().copy();
    }
  }
  return values;
}

/// The last result is memory that only this operator's gradient can read: all of
/// it, or what the operator has not written.
bool leaves_workspace(const SampleCall& sample) {
  const auto& name = sample.op.schema().name();
  return name == "aten::mkldnn_rnn_layer" || name == "aten::_ctc_loss";
}

/// The gradient is a composite kernel that reads memory itself: an error that
/// says so. It is only ever called by grid_sampler_2d's own kernel.
bool has_no_gradient(const SampleCall& sample) {
  return sample.op.schema().name() == "aten::_grid_sampler_2d_cpu_fallback";
}

Left run(
    const SampleCall& sample,
    torch::jit::Stack arguments,
    const Gradients& how,
    const Place& place) {
  const auto info = describe(sample.op);
  const auto depth = how.depth;
  const at::AutoGradMode grad_mode(depth != Depth::kNone);
  Left left;
  Tensors leaves;
  if (depth != Depth::kNone) {
    leaves = make_leaves(info, how.by, arguments);
    TORCH_CHECK(!leaves.empty(), "nothing to differentiate by");
  }
  if (draws(sample)) {
    at::manual_seed(17);
  }
  torch::jit::Stack results = with_own_lists(arguments);
  sample.op.callBoxed(results);
  if (leaves_workspace(sample)) {
    auto compared = results;
    compared.pop_back();
    left.results = snapshot(compared);
  } else {
    left.results = snapshot(written_results(sample.op.schema(), results));
  }
  left.arguments = snapshot(arguments);
  if (draws(sample)) {
    left.next_random = at::rand({4}, device());
  }
  finish_device();
  if (depth == Depth::kNone) {
    return left;
  }
  auto outputs = with_gradient(tensors_of(results));
  if (info.results == 0 && !info.writes.empty()) {
    outputs = with_gradient(tensors_of({arguments[0]}));
  }
  TORCH_CHECK(!outputs.empty(), "no result has a gradient");
  const auto incoming = gradients_for(outputs, 0.5, place);
  const bool twice = depth == Depth::kTwice;
  const auto gradients = torch::autograd::grad(
      outputs, leaves, incoming, /*retain_graph=*/twice, /*create_graph=*/twice,
      /*allow_unused=*/true);
  left.gradients = snapshot(stack_of(gradients));
  if (twice) {
    const auto again = with_gradient(gradients);
    TORCH_CHECK(!again.empty(), "no gradient has a gradient");
    leaves.insert(leaves.end(), incoming.begin(), incoming.end());
    left.second = snapshot(stack_of(torch::autograd::grad(
        again, leaves, gradients_for(again, 1.5, place),
        /*retain_graph=*/false, /*create_graph=*/false, /*allow_unused=*/true)));
  }
  finish_device();
  return left;
}

/// Whether the operator writes to tensors that the caller hands over, which are
/// never differentiated.
bool has_out(const SampleCall& sample) {
  const auto& arguments = sample.op.schema().arguments();
  return !arguments.empty() && arguments.back().is_out();
}

/// The values of fresh memory are not compared.
bool is_fresh_memory(const SampleCall& sample) {
  const auto& name = sample.op.schema().name();
  return name.find("empty") != std::string::npos || name == "aten::resize_" ||
      name == "aten::_reshape_alias_copy";
}

/// A distributed tensor has no gaps, so that strides which come from an argument
/// with gaps are not expected.
bool are_dense(const Snapshot& arguments) {
  for (size_t i = 0; i < arguments.tensors.size(); ++i) {
    if (arguments.tensors[i].defined() &&
        !at::empty_strided(
             arguments.sizes[i], arguments.strides[i], at::device(at::kMeta))
             .is_non_overlapping_and_dense()) {
      return false;
    }
  }
  return true;
}

void compare(
    const char* what,
    const Snapshot& plain,
    const Snapshot& got,
    const Tolerance& tolerance) {
  const auto text = difference(plain, got, tolerance);
  if (!text.empty()) {
    throw Difference(std::string(what) + ", " + text);
  }
}

std::string first_line(const char* text) {
  const std::string all = text;
  return all.substr(0, std::min<size_t>(all.find('\n'), 400));
}

} // namespace

bool draws(const SampleCall& sample) {
  return sample.op.hasTag(at::Tag::nondeterministic_seeded);
}

/// How many tensors of the call could be differentiated by.
size_t candidates(const SampleCall& sample) {
  size_t count = 0;
  arguments_of(sample, [&](const at::Tensor& tensor) {
    count += is_differentiable(tensor) ? 1 : 0;
    return tensor;
  });
  return count;
}

/// The call on plain tensors; nothing where it has no such gradients.
std::optional<Left> try_plain(const SampleCall& sample, const Gradients& how) {
  const Place as_it_is = [](const at::Tensor& tensor) { return tensor; };
  try {
    return run(sample, arguments_of(sample, as_it_is), how, as_it_is);
  } catch (const std::exception&) {
    return std::nullopt;
  }
}

/// The tensors by which the call can be differentiated each alone. Those that are
/// written without being argument 0 count, but are never asked.
std::vector<bool> differentiable_by(const SampleCall& sample) {
  std::vector<bool> by;
  const size_t count = candidates(sample);
  for (size_t k = 0; k < count; ++k) {
    Gradients alone{Depth::kOnce, std::vector<bool>(count, false)};
    alone.by[k] = true;
    by.push_back(try_plain(sample, alone).has_value());
  }
  return by;
}

Left run_plain(const SampleCall& sample, Gradients& gradients) {
  const bool may = sample.first_dtype && !has_out(sample) && !has_no_gradient(sample);
  for (const bool some : {false, true}) {
    gradients.by.clear();
    if (may && some) {
      gradients.by = differentiable_by(sample);
      if (std::find(gradients.by.begin(), gradients.by.end(), true) ==
          gradients.by.end()) {
        break;
      }
    }
    for (const auto depth : {Depth::kTwice, Depth::kOnce}) {
      gradients.depth = depth;
      if (auto left = may ? try_plain(sample, gradients) : std::nullopt) {
        return std::move(*left);
      }
    }
  }
  gradients = {};
  const Place as_it_is = [](const at::Tensor& tensor) { return tensor; };
  return run(sample, arguments_of(sample, as_it_is), gradients, as_it_is);
}

int64_t placements_of(const SampleCall& sample, int64_t asked) {
  const bool line = sample.origin.rfind("form of ", 0) != 0 && sample.first_dtype;
  return line ? asked : std::max<int64_t>(1, asked * 2 / 5);
}

std::vector<PlacedCall> placed_calls(
    const SampleCall& sample,
    int64_t world,
    int64_t limit,
    uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<std::vector<Way>> all;
  double combinations = 1;
  arguments_of(sample, [&](const at::Tensor& tensor) {
    all.push_back(ways(tensor, world));
    combinations *= static_cast<double>(all.back().size());
    return tensor;
  });
  std::vector<PlacedCall> calls;
  const auto count = static_cast<int64_t>(
      std::min(combinations - 1, static_cast<double>(limit)));
  const bool every = combinations - 1 <= static_cast<double>(limit);
  for (int64_t k = 1; k <= count; ++k) {
    PlacedCall call;
    call.seed = random();
    auto digits = static_cast<uint64_t>(k);
    bool any = false;
    for (const auto& choices : all) {
      const uint64_t choice = (every ? digits : random()) % choices.size();
      digits /= choices.size();
      call.ways.push_back(choices[choice]);
      any = any || choice != 0;
    }
    if (any) {
      calls.push_back(std::move(call));
    }
  }
  return calls;
}

void run_placed(
    const DeviceMesh& mesh,
    const SampleCall& sample,
    const PlacedCall& placed,
    const Left& plain,
    const Gradients& gradients) {
  std::mt19937_64 random(placed.seed);
  std::string where;
  size_t next = 0;
  const auto put = [&](const at::Tensor& tensor, const Way& way) {
    auto distributed = place(mesh, tensor, way, random);
    where += c10::str(
        " ", tensor.sizes(),
        way.kind == Way::kPlain ? "plain" : placements(distributed).at(0).str());
    return distributed;
  };
  const auto put_at_random = [&](const at::Tensor& tensor) {
    where += c10::str(" ", tensor.sizes());
    return place_at_random(mesh, tensor, random, &where);
  };
  const bool at_random = placed.ways.empty();
  auto arguments = arguments_of(sample, [&](const at::Tensor& tensor) {
    return at_random ? put_at_random(tensor) : put(tensor, placed.ways.at(next++));
  });
  const auto place_gradient = [&](const at::Tensor& tensor) {
    where += " gradient";
    if (at_random) {
      return put_at_random(tensor);
    }
    const auto choices = ways(tensor, mesh.axes().at(0)->size());
    return put(tensor, choices[random() % choices.size()]);
  };
  try {
    const auto got = run(sample, std::move(arguments), gradients, place_gradient);
    Tolerance tolerance;
    tolerance.only_shapes = is_fresh_memory(sample);
    // Of tensors with single rows a mesh of several axes does not know the order.
    tolerance.strides = mesh.axes().size() == 1 && are_dense(plain.arguments) &&
        !has_own_strides(sample.op.schema());
    compare("result", plain.results, got.results, tolerance);
    // An argument that nobody touched has the strides that it was given.
    tolerance.strides = false;
    compare("argument", plain.arguments, got.arguments, tolerance);
    compare("gradient", plain.gradients, got.gradients, tolerance);
    compare("second gradient", plain.second, got.second, tolerance);
    if (plain.next_random.defined() &&
        !at::equal(plain.next_random, got.next_random)) {
      throw Difference("the random generator stands elsewhere afterwards");
    }
  } catch (const Difference& error) {
    throw Difference(error.what() + ("; placed" + where));
  } catch (const c10::Error& error) {
    throw std::runtime_error(
        first_line(error.what_without_backtrace()) + "; placed" + where);
  } catch (const std::exception& error) {
    throw std::runtime_error(first_line(error.what()) + "; placed" + where);
  }
}

} // namespace accel::distributed::test
