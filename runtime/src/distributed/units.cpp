#include "distributed/units.h"

#include "core/operation_log.h"
#include "core/tensor_version.h"
#include "distributed/axis.h"
#include "distributed/collectives.h"
#include "distributed/unit_member.h"

#include <ATen/ATen.h>
#include <c10/util/hash.h>

#include <algorithm>

namespace accel::distributed {
namespace {

using accel::detail::version_of;

/// Parameters begin at multiples of this, as LibTorch's allocators have it.
constexpr int64_t kAlignment = 64;

/// Memory for the gathered parameters of a unit.
at::Tensor new_memory(int64_t bytes, c10::Device device) {
  try {
    return at::empty(
        {bytes}, at::TensorOptions().dtype(at::kByte).device(device));
  } catch (const c10::Error& error) {
    const std::string reason = error.what_without_backtrace();
    TORCH_CHECK_WITH(
        OutOfMemoryError,
        false,
        "accel: a process has no memory for ",
        (bytes >> 20) + 1,
        " MiB on ",
        device,
        ", a unit of parameters that lie in parts and are gathered to compute "
        "with (FULL_SHARD, HYBRID_SHARD, ZeRO stage 3). Two such units are whole "
        "at a time. Smaller ones need less: --fsdp-auto-wrap-policy "
        "SIZE_BASED_WRAP --fsdp-min-num-params N, or TRANSFORMER_BASED_WRAP; more "
        "processes hold smaller parts; --fsdp-activation-checkpointing true keeps "
        "fewer activations. `accel estimate-memory` says what a model takes. (",
        reason.substr(0, reason.find('\n')),
        ")");
  }
}

} // namespace

// ---- Memory.

void UnitMemory::used(Unit* unit) {
  if (!gathered_.empty() && gathered_.back() == unit) {
    return;
  }
  forget(unit);
  gathered_.push_back(unit);
}

void UnitMemory::forget(Unit* unit) {
  if (ahead_ == unit) {
    ahead_ = nullptr;
  }
  gathered_.erase(
      std::remove(gathered_.begin(), gathered_.end(), unit), gathered_.end());
}

Prefetch UnitMemory::prefetch(const Axis& axis) const {
  const auto& asked = in_backward && in_backward() ? backward_ : forward_;
  if (asked) {
    return *asked;
  }
  return axis.communicator("prefetch").works_beside() ? Prefetch::kWithPrevious
                                                      : Prefetch::kNo;
}

void UnitMemory::use(Unit* unit) {
  order_.use(unit, in_backward && in_backward());
  if (ahead_ == unit) {
    ahead_ = nullptr;
  } else if (ahead_ != nullptr && ahead_ != order_.next()) {
    Unit* const unwanted = ahead_;
    unwanted->finish(); // All processes have begun with it.
    unwanted->drop();
  }
}

void UnitMemory::gather_next() {
  Unit* const next = order_.next();
  const Part* const part =
      next == nullptr || ahead_ != nullptr || next->memory_.defined()
          ? nullptr
          : next->any_member();
  if (part == nullptr || prefetch(*part->axis) != Prefetch::kWithPrevious) {
    return;
  }
  if (before_gather) {
    before_gather();
  }
  const accel::detail::EncloseGuard nothing_travels_along(nullptr);
  next->start(*part, "prefetch");
  ahead_ = next;
}

void UnitMemory::drop_all() {
  order_.end_pass();
  if (ahead_ != nullptr) {
    ahead_->finish();
  }
  while (!gathered_.empty()) {
    gathered_.back()->drop();
  }
  if (most_ == 0) {
    free_.clear(); // All of the model: the optimizer has better use for it.
  }
}

at::Tensor UnitMemory::take(int64_t bytes, c10::Device device) {
  while (most_ > 0 && gathered_.size() >= most_) {
    gathered_.front()->drop();
  }
  auto best = free_.end();
  for (auto one = free_.begin(); one != free_.end(); ++one) {
    if (one->numel() >= bytes && one->device() == device &&
        (best == free_.end() || one->numel() < best->numel())) {
      best = one;
    }
  }
  if (best != free_.end()) {
    auto memory = std::move(*best);
    free_.erase(best);
    return memory;
  }
  // What is too small for this one goes: no more than `most_` are ever there.
  if (gathered_.size() + free_.size() >= most_) {
    free_.clear();
  }
  return new_memory(bytes, device);
}

void UnitMemory::give(at::Tensor memory) {
  if (memory.storage().use_count() == 1) {
    free_.push_back(std::move(memory));
  }
}

void UnitMemory::keep_one_free() {
  std::sort(
      free_.begin(), free_.end(), [](const at::Tensor& a, const at::Tensor& b) {
        return a.numel() > b.numel();
      });
  if (free_.size() > 1) {
    free_.resize(1);
  }
}

// ---- Units.

Unit::Unit(std::shared_ptr<UnitMemory> memory) : kept_in_(std::move(memory)) {}

Unit::~Unit() {
  drop();
  kept_in_->order_.forget(this);
}

uint32_t Unit::add() {
  slots_.emplace_back();
  return static_cast<uint32_t>(slots_.size() - 1);
}

void Unit::attach(uint32_t number, Part* part) {
  Slot& slot = slots_[number];
  if (slot.part == part) {
    return;
  }
  if (slot.part != nullptr) {
    slot.part->unit.reset(); // Whoever attaches holds the unit.
  }
  slot = Slot();
  if (part == nullptr || part->unit || !can_be_member(*part)) {
    return;
  }
  slot.part = part;
  part->unit = UnitPtr::reclaim_copy(this);
  part->number_in_unit = number;
}

void Unit::leave(const Part* part) noexcept {
  Slot& slot = slots_[part->number_in_unit];
  if (slot.part == part) {
    slot = Slot();
  }
}

bool Unit::is_right(const Slot& slot) const {
  return slot.gathered && slot.version == version_of(slot.part->local);
}

at::Tensor Unit::plain_view(const Slot& slot, const GatheredMember& member) const {
  auto whole = at::empty(
      {0}, innermost(member.part).local.options().device(memory_.device()));
  whole.set_(
      memory_.storage(),
      slot.begin / member.element_size,
      member.sizes,
      member.strides);
  return whole;
}

at::Tensor Unit::view(const Slot& slot) const {
  const GatheredMember member(*slot.part);
  return in_places_of(slot.part->local, plain_view(slot, member), &member);
}

at::Tensor Unit::whole(Part& part, const char* operation) {
  // Throws where not all processes are, even where nothing need be sent.
  (void)part.axis->communicator(operation);
  Slot& slot = slots_[part.number_in_unit];
  TORCH_INTERNAL_ASSERT(slot.part == &part);
  if (!slot.apart && can_be_member(part)) {
    kept_in_->use(this);
    const bool anew = !memory_.defined();
    if (anew) {
      const bool first =
          kept_in_->prefetch(*part.axis) == Prefetch::kWithGradients;
      if (first) {
        start(part, operation);
      }
      if (kept_in_->before_gather) {
        kept_in_->before_gather();
      }
      if (!memory_.defined()) { // Or was dropped with its own gradients.
        start(part, operation);
      }
    }
    finish();
    kept_in_->used(this);
    if (anew || is_right(slot)) {
      const auto result = view(slot); // Holds the memory.
      kept_in_->gather_next();
      return result;
    }
    written(part);
  }
  bring_if_away(innermost(part)); // Its unit may just have been dropped.
  return laid_out(
      distributed::gather(
          *part.axis, part.local, part.placement, part.sizes, operation),
      strides_of(part));
}

const Part* Unit::any_member() const {
  const auto found =
      std::find_if(slots_.begin(), slots_.end(), [](const Slot& slot) {
        return slot.part != nullptr && !slot.apart && can_be_member(*slot.part);
      });
  return found == slots_.end() ? nullptr : found->part;
}

void Unit::start(const Part& asked, const char* operation) {
  const Axis& axis = *asked.axis;
  for (const Slot& slot : slots_) {
    if (slot.part != nullptr) {
      bring_if_away(innermost(*slot.part));
    }
  }
  std::vector<size_t> numbers;
  std::vector<GatheredMember> members;
  uint64_t detail = 0;
  int64_t bytes = 0;
  const auto room = [&bytes](int64_t wanted) {
    const int64_t begin = bytes;
    bytes += (wanted + kAlignment - 1) / kAlignment * kAlignment;
    return begin;
  };
  for (size_t i = 0; i < slots_.size(); ++i) {
    Slot& slot = slots_[i];
    slot.gathered = slot.part != nullptr && !slot.apart &&
                    slot.part->axis == &axis && can_be_member(*slot.part) &&
                    slot.part->local.device() == asked.local.device();
    if (!slot.gathered) {
      continue;
    }
    Part& part = *slot.part;
    numbers.push_back(i);
    members.emplace_back(part);
    slot.version = version_of(part.local);
    slot.begin = room(members.back().bytes());
    detail = c10::hash_combine(detail, i);
    detail = c10::hash_combine(
        detail, static_cast<size_t>(part.local.scalar_type()));
    for (const int64_t n : part.sizes) {
      detail = c10::hash_combine(detail, static_cast<size_t>(n));
    }
  }
  traffic().bytes += bytes;
  // Where the processes' parts come to.
  std::vector<int64_t> begins;
  for (size_t k = 0; k < members.size(); ++k) {
    begins.push_back(
        members[k].is_in_rows() ? slots_[numbers[k]].begin : room(members[k].bytes()));
  }
  // Whose local tensors were given out travels behind all of them; on a host,
  // where their memory can be written.
  const auto n =
      static_cast<int64_t>(asked.local.is_cpu() ? members.size() : size_t{0});
  auto given_out = at::empty({n}, asked.local.options().dtype(at::kByte));
  for (int64_t k = 0; k < n; ++k) {
    given_out.mutable_data_ptr<uint8_t>()[k] = slots_[numbers[k]].given_out;
  }
  accel::detail::GatheredPieces gathered;
  gathered.whole =
      kept_in_->take(bytes + n * axis.size(), asked.local.device());
  for (const auto& member : members) {
    gathered.pieces.push_back(innermost(member.part).local);
  }
  gathered.pieces.push_back(given_out);
  for (int64_t rank = 0; rank < axis.size(); ++rank) {
    for (size_t k = 0; k < members.size(); ++k) {
      const auto [begin, end] = members[k].bytes_of(rank);
      gathered.begins.push_back(begins[k] + begin);
      gathered.counts.push_back(end - begin);
    }
    gathered.begins.push_back(bytes + n * rank);
    gathered.counts.push_back(n);
  }
  ++traffic().gathers;
  const accel::detail::PurposeGuard purpose(operation, asked.sizes, detail);
  const auto wait =
      asked.axis->communicator(operation).gather_pieces_async(gathered);
  memory_ = gathered.whole;
  finish_ = [this, wait, numbers, members, begins, bytes, flags = n * axis.size(), n] {
    wait();
    for (int64_t i = 0; i < flags; ++i) {
      Slot& slot = slots_[numbers[i % n]];
      slot.apart =
          slot.apart || memory_.const_data_ptr<uint8_t>()[bytes + i] != 0;
    }
    for (size_t k = 0; k < members.size(); ++k) {
      Slot& slot = slots_[numbers[k]];
      if (slot.gathered && !members[k].is_in_rows()) {
        put_together(
            members[k],
            memory_.narrow(0, begins[k], members[k].bytes()),
            plain_view(slot, members[k]));
      }
      slot.gathered = slot.gathered && !slot.apart;
    }
  };
  kept_in_->used(this);
}

void Unit::finish() {
  if (!finish_) {
    return;
  }
  const auto run = std::exchange(finish_, nullptr);
  try {
    run();
  } catch (...) {
    memory_.reset(); // Somebody may still write into it.
    drop();
    throw;
  }
}

void Unit::written(const Part& part) noexcept {
  slots_[part.number_in_unit].gathered = false;
  if (memory_.defined() &&
      std::none_of(slots_.begin(), slots_.end(), [](const Slot& slot) {
        return slot.gathered;
      })) {
    drop(); // So that the next one is gathered with its unit again.
  }
}

void Unit::given_out(const Part& part) noexcept {
  slots_[part.number_in_unit].given_out = true;
}

void Unit::drop() noexcept {
  kept_in_->forget(this);
  for (auto& slot : slots_) {
    slot.gathered = false;
  }
  const bool being_filled = finish_ != nullptr;
  if (being_filled) {
    // Is still being filled, by who holds it for that.
    finish_ = nullptr;
    memory_.reset();
  }
  for (const auto& slot : slots_) {
    if (slot.part != nullptr && !being_filled) {
      put_away_unwritten(innermost(*slot.part));
    }
  }
  if (memory_.defined()) {
    kept_in_->give(std::exchange(memory_, at::Tensor()));
  }
}

at::Tensor whole_of_unit(Part* part, const char* operation) {
  return part->view != nullptr ? part->view->of(whole_of_unit(
                                     part->view->parent.get(), operation))
                               : part->unit->whole(*part, operation);
}

} // namespace accel::distributed
