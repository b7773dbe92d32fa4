#include "parallel/sharded_parameters.h"

#include "distributed/recompute.h"

#include "distributed/collectives.h"
#include "distributed/on_host.h"
#include "distributed/part.h"
#include "distributed/sequence.h"
#include "parallel/optimizer_tensors.h"

#include <accel/distributed/tensor.h>

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <c10/util/strides.h>
#include <torch/nn/module.h>
#include <torch/optim/optimizer.h>

#include <algorithm>
#include <sstream>

namespace accel::parallel {
namespace {

using distributed::Axis;
using distributed::DeviceMesh;
using distributed::Part;
using distributed::part_at_rest;
using distributed::part_of;
using distributed::Placement;
using distributed::Shard;

/// FULL_SHARD: the unit that is in use, and the one before, which is still there when
/// backward begins with it.
constexpr size_t kGatheredUnits = 2;

std::optional<distributed::Prefetch> in_forward(std::optional<bool> prefetch) {
  using distributed::Prefetch;
  return prefetch ? std::optional(*prefetch ? Prefetch::kWithPrevious : Prefetch::kNo)
                  : std::nullopt;
}

std::optional<distributed::Prefetch> in_backward(
    std::optional<BackwardPrefetch> prefetch) {
  using distributed::Prefetch;
  if (!prefetch) {
    return std::nullopt;
  }
  return *prefetch == BackwardPrefetch::kBackwardPre ? Prefetch::kWithPrevious
      : *prefetch == BackwardPrefetch::kBackwardPost ? Prefetch::kWithGradients
                                                     : Prefetch::kNo;
}

bool contains(const std::vector<at::Tensor>& all, const at::Tensor& tensor) {
  return std::any_of(all.begin(), all.end(), [&](const at::Tensor& other) {
    return other.is_same(tensor);
  });
}

/// A tensor of this process's part, of these places along the axes; a copy, so that
/// the whole one can go.
at::Tensor own_part(
    const std::vector<Axis*>& axes,
    const std::vector<Placement>& places,
    const at::Tensor& whole) {
  distributed::install();
  const distributed::InsideGuard inside;
  struct Level {
    size_t axis;
    std::vector<int64_t> sizes;
  };
  std::vector<Level> levels;
  at::Tensor rows = whole.detach();
  for (size_t i = 0; i < axes.size(); ++i) {
    if (places[i].is_shard()) {
      levels.push_back({i, rows.sizes().vec()});
      rows = distributed::own_rows(*axes[i], rows, places[i]);
    }
  }
  rows = rows.clone();
  for (auto level = levels.rbegin(); level != levels.rend(); ++level) {
    rows = distributed::make_tensor(
        *axes[level->axis], rows, places[level->axis], level->sizes,
        whole.strides(), /*exact=*/true);
  }
  return rows;
}

} // namespace

ShardedParameters::ShardedParameters(
    const std::vector<NamedSize>& names,
    std::vector<Axis*> axes,
    ShardingStrategy strategy,
    PlanEntries plan,
    AutoWrap wrap,
    std::optional<at::ScalarType> reduce_dtype,
    std::optional<Offload> offload,
    std::optional<Offload> of_gradients,
    std::optional<bool> forward,
    std::optional<BackwardPrefetch> backward)
    : axes_(std::move(axes)),
      strategy_(strategy),
      offload_(std::move(offload)),
      plan_(std::move(plan)),
      wrap_(std::move(wrap)),
      class_names_(wrap_),
      matched_(plan_.size()),
      unit_memory_(std::make_shared<distributed::UnitMemory>(
          keeps_whole() ? 0 : kGatheredUnits, in_forward(forward),
          in_backward(backward))) {
  for (size_t i = 0; i < names.size(); ++i) {
    if (names[i].name == "dp_shard") {
      shard_ = i;
    } else if (names[i].name == "tp") {
      tensor_ = i;
    }
  }
  if (shard_) {
    gradients_ =
        std::make_shared<UnitGradients>(
            axes_, *shard_, keeps_whole() ? nullptr : unit_memory_, reduce_dtype,
            std::move(of_gradients));
    unit_memory_->before_gather = [gradients = gradients_.get()] {
      gradients->sum_complete();
    };
    unit_memory_->in_backward = [gradients = gradients_.get()] {
      return gradients->running();
    };
  }
}

ShardedParameters::~ShardedParameters() {
  // Parameters hold the memory.
  unit_memory_->before_gather = nullptr;
  unit_memory_->in_backward = nullptr;
  if (tensor_) {
    distributed::SequenceParallel::get().end(*axes_[*tensor_]);
  }
}

UnitGradients::Backward ShardedParameters::backward() {
  if (!gradients_) {
    return UnitGradients::Backward(nullptr);
  }
  std::vector<std::pair<distributed::UnitPtr, std::vector<at::Tensor>>> units;
  for (const auto& known : parameters_) {
    auto impl = known.unit ? known.parameter.lock() : nullptr;
    if (!impl) {
      continue;
    }
    if (units.empty() || units.back().first != known.unit) {
      const auto same = std::find_if(
          units.begin(), units.end(),
          [&](const auto& unit) { return unit.first == known.unit; });
      if (same == units.end()) {
        units.emplace_back(known.unit, std::vector<at::Tensor>());
      } else {
        std::iter_swap(same, units.end() - 1);
      }
    }
    at::Tensor parameter(std::move(impl));
    if (parameter.requires_grad()) {
      units.back().second.push_back(std::move(parameter));
    }
  }
  for (const auto& [unit, parameters] : units) {
    gradients_->expect(unit, parameters);
  }
  return UnitGradients::Backward(gradients_.get());
}

std::vector<Placement> ShardedParameters::places_for(
    c10::IntArrayRef sizes,
    const Placement& of_tensor) const {
  const auto dims = static_cast<int64_t>(sizes.size());
  std::vector<Placement> places(axes_.size());
  const auto& cut = of_tensor.cut();
  if (tensor_ && of_tensor.is_shard() && of_tensor.dim() < dims &&
      (cut ? sizes[of_tensor.dim()] == cut->points.back() * cut->blocks
           : sizes[of_tensor.dim()] >= axes_[*tensor_]->size())) {
    places[*tensor_] = of_tensor;
  }
  if (shard_) {
    // Of another dimension than along tp: each axis then gathers by itself. Where
    // tp has the rows, what is left is the columns.
    const bool rows = tensor_ && places[*tensor_].is_shard(0);
    const int64_t dim = rows ? 1 : 0;
    if (dim < dims && sizes[dim] >= axes_[*shard_]->size()) {
      places[*shard_] = Shard(dim);
    }
  }
  return places;
}

/// Memory that nobody frees with the tensor (torch::from_blob) is the program's, which
/// may write to it without an operator.
static bool is_programs_own(const c10::DataPtr& memory) {
  return memory.get() != nullptr &&
      (memory.get_context() == nullptr || memory.get_deleter() == nullptr);
}

bool ShardedParameters::can_be_cut(const at::Tensor& parameter) {
  if (parameter.layout() != at::kStrided || !parameter.is_leaf()) {
    return false;
  }
  if (Part* part = part_at_rest(parameter)) {
    // One with views that somebody holds stays as it is.
    return part->view == nullptr &&
        distributed::PartPtr::reclaim_copy(part).use_count() == 2;
  }
  return parameter.is_non_overlapping_and_dense() && parameter.has_storage() &&
      parameter.storage().use_count() == 1 && !parameter.is_view() &&
      !is_programs_own(parameter.storage().data_ptr());
}

bool ShardedParameters::cut(
    const at::Tensor& parameter,
    const std::vector<Placement>& places) {
  const bool is_whole = !distributed::is_distributed(parameter);
  if ((is_whole && !any_cut(places)) || !can_be_cut(parameter)) {
    return false;
  }
  const at::NoGradGuard no_grad;
  at::Tensor whole = parameter.detach();
  if (!is_whole) {
    const distributed::InsideGuard inside;
    whole = distributed::gather_all(whole, "a parameter");
  }
  if (!any_cut(places)) {
    at::Tensor(parameter).set_data(whole);
    return true;
  }
  auto part = own_part(axes_, places, whole);
  if (offload_) {
    offload_->move(part);
  }
  at::Tensor(parameter).set_data(part);
  return true;
}

void ShardedParameters::join(
    const Known& known,
    const at::Tensor& parameter) const {
  Part* part = part_at_rest(parameter);
  const bool along_shard =
      part != nullptr && shard_ && part->axis == axes_[*shard_];
  if (along_shard && keeps_whole()) {
    part->keeps_whole = true;
  }
  if (known.unit) {
    known.unit->attach(known.number, along_shard ? part : nullptr);
  }
}

void ShardedParameters::make_units(const torch::nn::Module& module) {
  class_names_.add(module);
  for (const auto& parameters : model_units(module, wrap_)) {
    distributed::UnitPtr unit;
    for (const auto& parameter : parameters) {
      Known* known = find(parameter);
      if (known == nullptr || known->unit) {
        continue;
      }
      if (!unit) {
        unit = c10::make_intrusive<distributed::Unit>(unit_memory_);
      }
      known->unit = unit;
      known->number = unit->add();
      join(*known, parameter);
    }
  }
}

void ShardedParameters::cut_again(
    const Known& known,
    const at::Tensor& parameter) {
  const auto places = places_for(parameter.sizes(), known.of_tensor);
  if (any_cut(places) && cut(parameter, places)) {
    join(known, parameter);
  }
}

ShardedParameters::Known* ShardedParameters::find(
    const at::Tensor& parameter) {
  const auto known = std::find_if(
      parameters_.begin(), parameters_.end(), [&](const Known& one) {
        return one.parameter._unsafe_get_target() ==
            parameter.unsafeGetTensorImpl();
      });
  return known == parameters_.end() ? nullptr : &*known;
}

bool ShardedParameters::build(const at::Tensor& parameter) {
  const Part* part = part_at_rest(parameter);
  if (part != nullptr && !part->placement.is_replicate()) {
    return false;
  }
  std::vector<Placement> places(axes_.size());
  const size_t axis = shard_ ? *shard_ : *tensor_;
  if (parameter.dim() > 0 && parameter.size(0) >= axes_[axis]->size()) {
    places[axis] = Shard(0);
  }
  if (!any_cut(places) || !cut(parameter, places)) {
    return false;
  }
  if (!has(parameter)) {
    parameters_.push_back(
        {Weak(parameter.getIntrusivePtr()), false, Placement(), nullptr, 0});
  }
  return true;
}

std::string ShardedParameters::add(
    const torch::nn::Module& module,
    const std::vector<at::Tensor>& but) {
  any_model_ = true;
  TensorPlan plan;
  if (tensor_) {
    plan = tensor_plan(module, plan_, axes_[*tensor_]->size(), matched_);
  }
  auto& sequence = distributed::SequenceParallel::get();
  if (plan.sequence_dim) {
    sequence.begin(*axes_[*tensor_], *plan.sequence_dim);
    for (const auto& planned : plan.in_positions) {
      sequence.add(planned.tensor);
    }
  }
  for (const auto& parameter : module.parameters()) {
    Known* known = find(parameter);
    if (known == nullptr &&
        (distributed::is_distributed(parameter) ||
         !parameter.is_floating_point())) {
      continue;
    }
    Placement of_tensor;
    for (const auto& planned : plan.cut) {
      of_tensor = planned.tensor.is_same(parameter) ? planned.place : of_tensor;
    }
    const auto places = contains(but, parameter)
        ? std::vector<Placement>(axes_.size())
        : places_for(parameter.sizes(), of_tensor);
    if (known != nullptr) {
      known->of_tensor = of_tensor;
      if (places_of(axes_, parameter) != places || !any_cut(places)) {
        cut(parameter, places);
      }
      join(*known, parameter);
      follow_gradient(*known, parameter);
    } else if (cut(parameter, places)) {
      parameters_.push_back(
          {Weak(parameter.getIntrusivePtr()), false, of_tensor, nullptr, 0});
      join(parameters_.back(), parameter);
      follow_gradient(parameters_.back(), parameter);
    }
  }
  if (shard_) {
    make_units(module);
  }
  if (!tensor_) {
    return "";
  }
  std::ostringstream text;
  text << "accel: tensor parallelism on " << axes_[*tensor_]->size()
       << " processes (" << (plan_.empty() ? "made from the model" : to_text(plan_))
       << ")\n";
  for (const auto& planned : plan.cut) {
    text << "  " << planned.name << ' ' << planned.tensor.sizes() << ' '
         << planned.place << '\n';
  }
  if (plan.cut.empty()) {
    text << "  nothing of this model is cut\n";
  }
  if (plan.sequence_dim) {
    text << "  activations between layers: positions, dimension "
         << *plan.sequence_dim << '\n';
    for (const auto& planned : plan.in_positions) {
      text << "  " << planned.name << ' ' << planned.tensor.sizes()
           << " whole, computes positions\n";
    }
  }
  return text.str();
}

void ShardedParameters::check_plan() {
  if (std::exchange(checked_, true)) {
    return;
  }
  for (size_t i = 0; i < plan_.size(); ++i) {
    // Without a name it is each model, of which there may be none.
    TORCH_CHECK(
        matched_[i] || plan_[i].first.empty(),
        "accel: the plan of tensor parallelism names '", plan_[i].first,
        "', but no module of a prepared model has such a name. "
        "Names are those of named_modules(), with * for anything without a dot.");
  }
  if (shard_) {
    class_names_.check();
  }
  const bool first = std::all_of(
      axes_.begin(), axes_.end(),
      [](const Axis* axis) { return axis->rank() == 0; });
  if (!any_model_ && first) {
    TORCH_WARN(
        "accel: nothing is divided between the processes: that is done with the "
        "parameters of models, and none was passed to prepare. Write "
        "accelerator.prepare(model, optimizer).");
  }
}

void ShardedParameters::follow_gradient(
    Known& known,
    const at::Tensor& parameter) {
  if (!known.followed && parameter.requires_grad()) {
    parameter.register_hook(
        [weak = known.parameter, axes = axes_,
         gradients = gradients_](const at::Tensor& gradient) {
          if (gradients) {
            const auto impl = weak.lock();
            if (impl && gradients->put_off(at::Tensor(impl), gradient)) {
              return gradient;
            }
          }
          return beside_parameter(gradient, weak, axes);
        });
    known.followed = true;
  }
}

void ShardedParameters::add(torch::optim::Optimizer& optimizer) {
  const at::NoGradGuard no_grad;
  each_state_tensor(
      optimizer, [&](at::Tensor& tensor, const at::Tensor& parameter) {
        const auto places = places_of(axes_, parameter);
        if (any_cut(places) && !distributed::is_distributed(tensor) &&
            tensor.sizes() == parameter.sizes()) {
          tensor = own_part(axes_, places, tensor);
        }
      });
}

void ShardedParameters::settle() {
  if (auto* recompute = distributed::Recompute::of_thread()) {
    recompute->end();
  }
  parameters_.erase(
      std::remove_if(
          parameters_.begin(), parameters_.end(),
          [](const Known& known) { return known.parameter.expired(); }),
      parameters_.end());
  unit_memory_->drop_all();
  for (auto& known : parameters_) {
    auto impl = known.parameter.lock();
    if (!impl) {
      continue;
    }
    const at::Tensor parameter(std::move(impl));
    follow_gradient(known, parameter);
    Part* part = part_at_rest(parameter);
    if (part != nullptr && part->placement.is_shard()) {
      distributed::root_of(part)->kept.reset();
      join(known, parameter); // The program may have given it another part.
      if (offload_) {
        auto again = parameter;
        offload_->move(again);
      }
    } else {
      cut_again(known, parameter);
    }
  }
  distributed::put_away_all();
}

std::optional<checkpoint::TensorPiece> ShardedParameters::piece(
    const at::Tensor& tensor) const {
  struct Level {
    Axis* axis;
    Placement placement;
    std::vector<int64_t> sizes;
  };
  checkpoint::TensorPiece piece;
  piece.offset.assign(tensor.dim(), 0);
  std::vector<Level> levels;
  std::vector<Axis*> others = axes_;
  at::Tensor inner = tensor;
  while (Part* part = part_at_rest(inner)) {
    const auto axis = std::find(others.begin(), others.end(), part->axis);
    const auto& place = part->placement;
    if (axis == others.end() || place.is_partial()) {
      return std::nullopt;
    }
    if (place.is_shard()) {
      others.erase(axis);
      const int64_t dim = place.dim();
      const bool blocks_before = !piece.blocks.empty() && piece.blocks[dim] != 1;
      if (place.in_blocks()) {
        // Rows of an axis around it would be rows of some blocks.
        if (blocks_before || inner.size(dim) != tensor.size(dim)) {
          return std::nullopt;
        }
        piece.blocks.resize(tensor.dim(), 1);
        piece.blocks[dim] = place.cut()->blocks;
      } else if (blocks_before) {
        return std::nullopt;
      }
      piece.offset[dim] += place.cut()
          ? place.cut()->points[part->axis->rank()]
          : part->axis->range(inner.size(dim), {}).first;
    }
    levels.push_back({part->axis, place, inner.sizes().vec()});
    inner = part->local;
  }
  if (levels.empty()) {
    return std::nullopt;
  }
  piece.values = inner;
  piece.writes = std::all_of(others.begin(), others.end(), [](const Axis* axis) {
    return axis->rank() == 0;
  });
  piece.like = [levels, device = tensor.device()](at::Tensor values) {
    distributed::install();
    const distributed::InsideGuard inside;
    values = values.to(device);
    for (auto level = levels.rbegin(); level != levels.rend(); ++level) {
      values = distributed::make_tensor(
          *level->axis, values, level->placement, level->sizes,
          c10::contiguous_strides(level->sizes), /*exact=*/true);
    }
    return values;
  };
  return piece;
}

bool ShardedParameters::can_be_written(const at::Tensor& tensor) const {
  const Part* part = part_at_rest(tensor);
  return is_piece(tensor) && part->placement.is_shard() &&
      part->view == nullptr && !part->whole.defined();
}

std::optional<checkpoint::TensorPiece> ShardedParameters::piece_to_write(
    const at::Tensor& tensor) const {
  if (!can_be_written(tensor)) {
    return std::nullopt;
  }
  before_write(part_at_rest(tensor));
  return piece(tensor);
}

ShardedParameters::Whole ShardedParameters::whole(
    const std::vector<const torch::nn::Module*>& models,
    const std::vector<torch::optim::Optimizer*>& optimizers,
    bool here,
    const std::function<bool(const at::Tensor&)>& but) {
  if (auto* recompute = distributed::Recompute::of_thread()) {
    recompute->end(); // It holds what parameters were.
  }
  const at::NoGradGuard no_grad;
  // The parameter and what it was.
  auto parts =
      std::make_shared<std::vector<std::pair<at::Tensor, at::Tensor>>>();
  for (const auto* model : models) {
    for (const auto& parameter : model->parameters()) {
      if (distributed::is_distributed(parameter) && !(but && but(parameter))) {
        auto all = distributed::full_tensor(parameter.detach());
        if (here) {
          // Its part itself: what is a view of that is in no unit.
          parts->emplace_back(parameter, parameter.tensor_data());
          at::Tensor(parameter).set_data(all);
        }
      }
    }
  }
  struct State {
    torch::optim::Optimizer* optimizer;
    std::vector<at::Tensor> before;
  };
  auto states = std::make_shared<std::vector<State>>();
  for (auto* optimizer : optimizers) {
    State state{optimizer, {}};
    each_state_tensor(*optimizer, [&](at::Tensor& tensor, const at::Tensor&) {
      const bool stays = but && but(tensor);
      auto all = stays ? tensor : distributed::full_tensor(tensor);
      if (here) {
        state.before.push_back(tensor);
        tensor = std::move(all);
      }
    });
    if (here) {
      states->push_back(std::move(state));
    }
  }
  Whole whole;
  whole.give_back_ = [this, parts, states](bool anew) {
    const at::NoGradGuard inner;
    for (auto& [parameter, part] : *parts) {
      if (!anew) {
        parameter.set_data(part);
        continue;
      }
      if (const Known* known = find(parameter)) {
        cut_again(*known, parameter);
      }
    }
    for (auto& state : *states) {
      if (anew) {
        add(*state.optimizer);
        continue;
      }
      size_t i = 0;
      each_state_tensor(
          *state.optimizer, [&](at::Tensor& tensor, const at::Tensor&) {
            if (i < state.before.size()) {
              tensor = state.before[i++];
            }
          });
    }
  };
  return whole;
}

ShardedParameters::Whole::~Whole() {
  if (give_back_) {
    give_back_(/*anew=*/false);
  }
}

void ShardedParameters::Whole::divide() {
  if (const auto give_back = std::exchange(give_back_, nullptr)) {
    give_back(/*anew=*/true);
  }
}

} // namespace accel::parallel
