#include "distributed/memory_order.h"
#include "distributed/rules/table.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <string>

// Operators on lists of tensors. Where the tensors of each place of the lists
// lie alike, the operator runs once on the lists of the parts, as a GPU's fused
// kernels want it. Otherwise it comes apart into the operator of one tensor,
// place by place, each by its own rule.

namespace accel::distributed::optimizer_rules {
namespace {

using List = std::vector<at::Tensor>;

/// The arguments that are lists of tensors, and the others that hold one.
struct Lists {
  c10::SmallVector<uint32_t, 6> lists;
  c10::SmallVector<uint32_t, 3> tensors;
  /// All lists have this length; -1 where they differ, which is an error or an
  /// empty list of what is not used.
  int64_t length = -1;
};

Lists lists_of(const Call& call) {
  Lists all;
  bool equal = true;
  for (const auto i : call.info().tensors) {
    if (call.at(i).isTensorList()) {
      const auto length =
          static_cast<int64_t>(call.at(i).toTensorList().size());
      equal = equal && (all.length < 0 || all.length == length);
      all.length = length;
      all.lists.push_back(i);
    } else if (call.has(i)) {
      all.tensors.push_back(i);
    }
  }
  if (!equal) {
    all.length = -1;
  }
  return all;
}

bool is_written(const Call& call, uint32_t i) {
  const auto& writes = call.info().writes;
  return std::find(writes.begin(), writes.end(), i) != writes.end();
}

/// The local tensors of a list in the given places; an empty list stays one.
List locals_of(
    const Call& call,
    uint32_t i,
    const std::vector<Placement>& places) {
  auto list = call.tensors(i);
  for (size_t j = 0; j < list.size(); ++j) {
    list[j] = call.local_as(list[j], places[j]);
  }
  return list;
}

/// Replaces the lists by lists of local tensors of the given places, one for
/// each place of the lists.
void use_lists(
    Call& call,
    const Lists& all,
    const std::vector<Placement>& places) {
  for (const auto i : all.lists) {
    call.set(i, locals_of(call, i, places));
  }
}

// ---- _foreach_.

/// Where the tensors of each place of the lists can be computed with each other:
/// they have the same sizes, and what is written stays where it is. False where
/// one of them is a part of a sum, or they differ.
bool places_of(
    const Call& call,
    const Lists& all,
    std::vector<Placement>& places,
    std::vector<List>& tensors) {
  for (const auto i : all.lists) {
    tensors.push_back(call.tensors(i));
  }
  const bool in_place = call.info().is_in_place;
  for (int64_t j = 0; j < all.length; ++j) {
    Placement place = call.place(tensors[0][j]);
    for (size_t k = 0; k < tensors.size(); ++k) {
      const auto& tensor = tensors[k][j];
      if (!tensor.defined() || tensor.sizes() != tensors[0][j].sizes() ||
          call.place(tensor).is_partial()) {
        return false;
      }
      if (!in_place && place.is_replicate()) {
        place = call.place(tensor);
      }
    }
    places.push_back(std::move(place));
  }
  return true;
}

/// One tensor for all places of the lists: a number, or one number for each.
bool is_number(const Call& call, uint32_t i) {
  return call.tensor(i).dim() == 0 || call.overload() == "Tensor";
}

/// The operator of one tensor, place by place: LibTorch's own kernel for every
/// device does that.
bool one_by_one(Call& call, const Lists& all) {
  if (!call.op().hasKernelForDispatchKey(
          c10::DispatchKey::CompositeExplicitAutograd)) {
    return false;
  }
  torch::jit::Stack stack;
  for (size_t i = 0; i < call.size(); ++i) {
    stack.push_back(call.at(i));
  }
  // Numbers for all places of the lists are read from memory: of further axes,
  // too, they must be whole.
  for (const auto i : all.tensors) {
    stack[i] = gather_all(
        call.local_as(call.tensor(i), Replicate()), call.name().c_str());
  }
  call.op().callBoxedForDispatchKey(
      c10::DispatchKey::CompositeExplicitAutograd, stack);
  if (call.info().results == 0) {
    call.finish({});
  } else {
    call.finish({stack.back()});
  }
  return true;
}

/// Element by element.
bool foreach(Call& call) {
  if (!call.info().writes.empty() && !call.info().is_in_place) {
    return false; // out=
  }
  const auto all = lists_of(call);
  bool numbers = true;
  for (const auto i : all.tensors) {
    numbers = numbers && is_number(call, i);
  }
  std::vector<Placement> places;
  std::vector<List> tensors;
  // A number to the power of tensors gives results in an order of their own.
  const bool own_order =
      call.has_unordered() && call.overload() == "ScalarAndTensor";
  if (all.length < 0 || !numbers || own_order ||
      !places_of(call, all, places, tensors)) {
    return one_by_one(call, all);
  }
  std::vector<Sizes> sizes;
  std::vector<Sizes> strides(tensors[0].size());
  for (size_t j = 0; j < tensors[0].size(); ++j) {
    const auto whole = tensors[0][j].sizes();
    sizes.emplace_back(whole.begin(), whole.end());
    if (call.has_unordered()) {
      List operands;
      for (const auto& list : tensors) {
        operands.push_back(list[j]);
      }
      strides[j] = strides_of_pointwise(operands, whole);
    }
  }
  for (const auto i : all.tensors) {
    call.use_whole(i);
  }
  use_lists(call, all, places);
  call.run();
  if (call.info().results != 0) {
    auto results = call.result().toTensorVector();
    for (size_t j = 0; j < results.size(); ++j) {
      results[j] = call.placed(
          results[j],
          places[j],
          places[j].is_shard() ? sizes[j][places[j].dim()] : 0,
          strides[j]);
    }
    call.result() = std::move(results);
  }
  return true;
}

/// _foreach_norm and what else reduces each tensor.
bool foreach_reduction(Call& call) {
  return call.info().writes.empty() && one_by_one(call, lists_of(call));
}

// ---- Fused optimizers.

/// Where each parameter is, if its states and its gradient can be used there.
/// The schema's names tell which list is what.
bool places_of_parameters(
    const Call& call,
    const Lists& all,
    bool writes_gradients,
    std::vector<Placement>& places) {
  const auto parameters = call.tensors(0);
  for (const auto& parameter : parameters) {
    places.push_back(call.place(parameter));
    if (places.back().is_partial()) {
      return false;
    }
  }
  for (const auto i : all.lists) {
    const auto& name = call.op().schema().arguments()[i].name();
    const auto list = call.tensors(i);
    if (list.empty()) {
      continue; // states that this optimizer does without
    }
    if (list.size() != parameters.size()) {
      return false;
    }
    for (size_t j = 0; j < list.size(); ++j) {
      const auto place = call.place(list[j]);
      if (name == "state_steps") {
        if (!place.is_replicate()) {
          return false;
        }
        continue;
      }
      const bool stays = is_written(call, i) &&
          (name != "grads" || writes_gradients);
      if (list[j].sizes() != parameters[j].sizes() ||
          (stays && place != places[j])) {
        return false;
      }
    }
  }
  return true;
}

/// The fused kernels go through memory from front to back, so that all tensors
/// of a parameter have to lie in it alike, without gaps.
at::Tensor like_parameter(const at::Tensor& tensor, const at::Tensor& parameter) {
  if (part_of(parameter) != nullptr) {
    return tensor; // distributed along a further axis, whose turn is next
  }
  return parameter.is_non_overlapping_and_dense()
      ? laid_out(tensor, parameter.strides())
      : tensor.contiguous();
}

/// LibTorch's `_fused_sgd_` for 16-bit numbers on CPUs computes whole vectors of
/// them otherwise than what is left at the end (2.11): parts end elsewhere.
bool depends_on_length(const Call& call) {
  const auto parameters = call.tensors(0);
  return !parameters.empty() && parameters[0].is_cpu() &&
      call.name() == "aten::_fused_sgd_" &&
      at::isReducedFloatingType(parameters[0].scalar_type());
}

/// _fused_adam_, _fused_adamw_, _fused_sgd_, _fused_adagrad_.
bool fused_optimizer(Call& call) {
  if (!call.info().is_in_place || call.info().results != 0 ||
      depends_on_length(call)) {
    return false; // out=, and the functional form
  }
  const auto all = lists_of(call);
  const int scale = call.index("grad_scale");
  std::vector<Placement> places;
  if (!places_of_parameters(call, all, call.has(scale), places)) {
    return false;
  }
  for (const auto i : all.tensors) {
    call.use_whole(i);
  }
  const auto parameters = locals_of(call, 0, places);
  std::vector<std::pair<at::Tensor, at::Tensor>> copies;
  for (const auto i : all.lists) {
    const bool steps =
        call.op().schema().arguments()[i].name() == "state_steps";
    if (steps) {
      call.set(i, locals_of(call, i, std::vector<Placement>(places.size())));
      continue;
    }
    auto list = locals_of(call, i, places);
    for (size_t j = 0; j < list.size(); ++j) {
      auto laid = like_parameter(list[j], parameters[j]);
      if (!laid.is_same(list[j]) && is_written(call, i)) {
        copies.emplace_back(list[j], laid);
      }
      list[j] = std::move(laid);
    }
    call.set(i, std::move(list));
  }
  call.run();
  for (const auto& [tensor, copy] : copies) {
    tensor.copy_(copy);
  }
  return true;
}

/// self (gradients), found_inf, inv_scale. A part of a sum says nothing about
/// the sum: it may overflow where its parts do not.
bool unscale(Call& call) {
  if (!call.info().is_in_place || call.info().results != 0) {
    return false;
  }
  const auto all = lists_of(call);
  std::vector<Placement> places;
  for (const auto& gradient : call.tensors(0)) {
    places.push_back(call.place(gradient));
    if (places.back().is_partial()) {
      return false;
    }
  }
  if (!call.place(1).is_replicate()) {
    return false;
  }
  const at::Tensor found = call.local(1);
  use_lists(call, all, places);
  call.use_local(1);
  call.use_whole(2);
  call.run();
  const bool in_parts = std::any_of(
      places.begin(), places.end(), [](const Placement& p) {
        return p.is_shard();
      });
  if (in_parts) {
    found.copy_(
        reduce(call.axis(), found, ReduceOp::kMax, call.name().c_str()));
  }
  return true;
}

/// The rows of an operator on lists, with its in-place form.
void add(Family& rows, const char* name, const char* in_place) {
  constexpr auto kPlaces = "any, place by place";
  constexpr auto kMoves = "tensors of one place that are cut differently";
  rows.push_back({name, foreach, kPlaces, kMoves});
  rows.push_back({in_place, foreach, kPlaces, kMoves});
}

} // namespace

const Family& family() {
  static const Family rows = [] {
    Family made{
        {"aten::_foreach_norm", foreach_reduction, "any, tensor by tensor", "as linalg_vector_norm"},
        {"aten::_foreach_powsum", foreach_reduction, "any, tensor by tensor", "as pow and sum"},
        {"aten::_foreach_max", foreach_reduction, "any, tensor by tensor", "as max"},
        {"aten::_fused_adam_", fused_optimizer, "any of parameter and states alike", "a gradient that is cut differently"},
        {"aten::_fused_adamw_", fused_optimizer, "any of parameter and states alike", "a gradient that is cut differently"},
        {"aten::_fused_sgd_", fused_optimizer, "any of parameter and states alike", "a gradient that is cut differently"},
        {"aten::_fused_adagrad_", fused_optimizer, "any of parameter and states alike", "nothing"},
        {"aten::_amp_foreach_non_finite_check_and_unscale_", unscale, "any but P", "all-reduce of found_inf"},
    };
    add(made, "aten::_foreach_copy", "aten::_foreach_copy_");
    add(made, "aten::_foreach_zero", "aten::_foreach_zero_");
    add(made, "aten::_foreach_add", "aten::_foreach_add_");
    add(made, "aten::_foreach_sub", "aten::_foreach_sub_");
    add(made, "aten::_foreach_mul", "aten::_foreach_mul_");
    add(made, "aten::_foreach_div", "aten::_foreach_div_");
    add(made, "aten::_foreach_pow", "aten::_foreach_pow_");
    add(made, "aten::_foreach_lerp", "aten::_foreach_lerp_");
    add(made, "aten::_foreach_addcmul", "aten::_foreach_addcmul_");
    add(made, "aten::_foreach_addcdiv", "aten::_foreach_addcdiv_");
    add(made, "aten::_foreach_clamp_min", "aten::_foreach_clamp_min_");
    add(made, "aten::_foreach_clamp_max", "aten::_foreach_clamp_max_");
    add(made, "aten::_foreach_minimum", "aten::_foreach_minimum_");
    add(made, "aten::_foreach_maximum", "aten::_foreach_maximum_");
    add(made, "aten::_foreach_abs", "aten::_foreach_abs_");
    add(made, "aten::_foreach_acos", "aten::_foreach_acos_");
    add(made, "aten::_foreach_asin", "aten::_foreach_asin_");
    add(made, "aten::_foreach_atan", "aten::_foreach_atan_");
    add(made, "aten::_foreach_ceil", "aten::_foreach_ceil_");
    add(made, "aten::_foreach_cos", "aten::_foreach_cos_");
    add(made, "aten::_foreach_cosh", "aten::_foreach_cosh_");
    add(made, "aten::_foreach_erf", "aten::_foreach_erf_");
    add(made, "aten::_foreach_erfc", "aten::_foreach_erfc_");
    add(made, "aten::_foreach_exp", "aten::_foreach_exp_");
    add(made, "aten::_foreach_expm1", "aten::_foreach_expm1_");
    add(made, "aten::_foreach_floor", "aten::_foreach_floor_");
    add(made, "aten::_foreach_frac", "aten::_foreach_frac_");
    add(made, "aten::_foreach_lgamma", "aten::_foreach_lgamma_");
    add(made, "aten::_foreach_log", "aten::_foreach_log_");
    add(made, "aten::_foreach_log10", "aten::_foreach_log10_");
    add(made, "aten::_foreach_log1p", "aten::_foreach_log1p_");
    add(made, "aten::_foreach_log2", "aten::_foreach_log2_");
    add(made, "aten::_foreach_neg", "aten::_foreach_neg_");
    add(made, "aten::_foreach_reciprocal", "aten::_foreach_reciprocal_");
    add(made, "aten::_foreach_round", "aten::_foreach_round_");
    add(made, "aten::_foreach_rsqrt", "aten::_foreach_rsqrt_");
    add(made, "aten::_foreach_sigmoid", "aten::_foreach_sigmoid_");
    add(made, "aten::_foreach_sign", "aten::_foreach_sign_");
    add(made, "aten::_foreach_sin", "aten::_foreach_sin_");
    add(made, "aten::_foreach_sinh", "aten::_foreach_sinh_");
    add(made, "aten::_foreach_sqrt", "aten::_foreach_sqrt_");
    add(made, "aten::_foreach_tan", "aten::_foreach_tan_");
    add(made, "aten::_foreach_tanh", "aten::_foreach_tanh_");
    add(made, "aten::_foreach_trunc", "aten::_foreach_trunc_");
    return made;
  }();
  return rows;
}

} // namespace accel::distributed::optimizer_rules
