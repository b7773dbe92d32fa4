#pragma once

#include "distributed/unit_order.h"

#include <accel/export.h>

#include <ATen/core/Tensor.h>
#include <c10/util/intrusive_ptr.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

// Parameters that are gathered together: one message for a layer instead of one
// for each of its parameters, in memory that the next layer uses again.

namespace accel::distributed {

struct GatheredMember;
struct Part;
class Axis;
class Unit;

/// When the gathering of a unit begins.
enum class Prefetch {
  /// When it is needed.
  kNo,
  /// When the one before it has been gathered: beside what is computed with that.
  kWithPrevious,
  /// When it is needed, but beside the sum of the gradients of the one before it.
  kWithGradients,
};

/// The memory of the gathered units of an axis: which units are gathered, and
/// what is free for the next one. Belongs to the axis' thread, as units do.
class UnitMemory {
 public:
  /// At most `most` units are there at a time, those last used, or that which is expected
  /// next; 0: all that were gathered since `drop_all`. `forward`, `backward`: when units
  /// are gathered; nothing: kWithPrevious where what was started moves on by itself, else
  /// kNo. The same on all processes.
  explicit UnitMemory(
      size_t most,
      std::optional<Prefetch> forward = std::nullopt,
      std::optional<Prefetch> backward = std::nullopt)
      : most_(most), forward_(forward), backward_(backward) {}

  /// Drops all units. Nothing of them is right any more when their parameters
  /// change together: between two steps. May wait for other processes, which must call
  /// it, too.
  void drop_all();

  /// Lets go of memory that is free but for one unit's: backward needs no more, and has
  /// gradients to keep.
  void keep_one_free();

  /// Is called before another unit is gathered, on all processes alike. May be
  /// empty.
  std::function<void()> before_gather;
  /// Whether a backward runs. May be empty: none does.
  std::function<bool()> in_backward;

 private:
  friend class Unit;

  /// Now, along this axis.
  Prefetch prefetch(const Axis& axis) const;
  /// A unit is about to be read. What was gathered ahead in vain is dropped.
  void use(Unit* unit);
  /// Starts to gather the unit that is expected behind the one that is in use.
  void gather_next();

  /// `bytes` of memory. The unit that was used longest ago makes room for it.
  at::Tensor take(int64_t bytes, c10::Device device);
  /// Back for the next one, unless somebody else still reads it.
  void give(at::Tensor memory);
  /// The unit is the one last used.
  void used(Unit* unit);
  void forget(Unit* unit);

  const size_t most_;
  const std::optional<Prefetch> forward_;
  const std::optional<Prefetch> backward_;
  UnitOrder order_;
  /// Has been gathered ahead, and not been used yet; else null.
  Unit* ahead_ = nullptr;
  /// The oldest first.
  std::vector<Unit*> gathered_;
  std::vector<at::Tensor> free_;
};

/// Parameters of which each process holds rows (`Shard(0)` along one axis; columns
/// where a further axis has the rows) and that are used at the same time: a layer. When one of them is read whole all
/// are gathered, in one message; the others are then answered from that memory,
/// until the unit is dropped.
///
/// What is answered is what the processes hold at that moment: a parameter that
/// was written since (`written`, or through what `to_local` has given, which
/// the version of the local tensor shows) is gathered by itself. All of this is
/// decided by what is the same on all processes, as long as all of them write
/// at the same place of the program.
class ACCEL_API Unit : public c10::intrusive_ptr_target {
 public:
  explicit Unit(std::shared_ptr<UnitMemory> memory);
  ~Unit() override;

  /// Room for one more parameter; returns its number.
  uint32_t add();

  /// `part` is parameter `number` from now on, where it can be one: of a root, dense, in
  /// the order in which the rows lie in the whole tensor's memory, plain or cut in
  /// another dimension along further axes. Null: none is. All processes must call it
  /// alike.
  void attach(uint32_t number, Part* part);
  /// It no longer is: the parameter has become another part, or this one is
  /// gone.
  void leave(const Part* part) noexcept;

  /// The gathered value of one of the parameters, for reading, which it is good
  /// for until the next collective; laid out as the whole tensor. Collective.
  at::Tensor whole(Part& part, const char* operation);

  /// A parameter is about to be written.
  void written(const Part& part) noexcept;
  /// Its local tensor was given out: somebody may write to it without telling.
  /// It is gathered by itself as soon as all processes know.
  void given_out(const Part& part) noexcept;

  /// Lets go of what is gathered.
  void drop() noexcept;

 private:
  friend class UnitMemory;

  struct Slot {
    Part* part = nullptr;
    /// Where it lies in `memory_`, if it does.
    bool gathered = false;
    int64_t begin = 0;
    /// Of the local tensor, when it was gathered.
    int64_t version = 0;
    /// On this process; on any process, as all know.
    bool given_out = false;
    bool apart = false;
  };

  /// Begins to gather; `finish` waits.
  void start(const Part& asked, const char* operation);
  void finish();
  /// One that can be gathered with the unit; null where there is none.
  const Part* any_member() const;
  at::Tensor view(const Slot& slot) const;
  at::Tensor plain_view(const Slot& slot, const GatheredMember& member) const;
  bool is_right(const Slot& slot) const;

  std::shared_ptr<UnitMemory> kept_in_;
  std::vector<Slot> slots_;
  at::Tensor memory_;
  /// Waits until `memory_` is filled; empty where it is.
  std::function<void()> finish_;
};
using UnitPtr = c10::intrusive_ptr<Unit>;

/// The gathered value of a part whose root belongs to a unit, for reading.
/// Collective.
at::Tensor whole_of_unit(Part* part, const char* operation);

} // namespace accel::distributed
