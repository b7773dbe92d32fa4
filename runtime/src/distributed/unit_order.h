#pragma once

#include <cstddef>
#include <map>
#include <utility>
#include <vector>

// Which unit is needed next: as in the last pass.

namespace accel::distributed {

class Unit;

/// The order in which units are used. A *pass* is a forward, or a backward: the units that
/// are used one after the other until the other begins, or until the first one comes again
/// and what follows is as before. Of each pass the next one that begins with the same unit
/// is expected to be like it; where it is not, nothing more is said of it, and its own
/// order is what counts afterwards.
///
/// All of this is decided by what is the same on all processes.
class UnitOrder {
 public:
  /// A unit is used, in backward or not; the same one several times in a row is once.
  void use(Unit* unit, bool backward);

  /// The unit that is expected behind the one used last; null where nobody knows.
  Unit* next() const;

  /// The pass that is under way is over.
  void end_pass();

  /// There is no such unit any more.
  void forget(Unit* unit);

 private:
  using Pass = std::vector<Unit*>;
  /// Whether backward, and the first unit.
  using Key = std::pair<bool, Unit*>;

  /// More than any pass has; a loop of them that never ends must not grow.
  static constexpr size_t kLongest = 1 << 16;

  void restart(Unit* unit);

  bool backward_ = false;
  Pass now_;
  /// In front of `now_`, where that is a pass of its own only if it goes on as this did.
  Pass before_;
  /// It did not: the first unit comes several times in this pass.
  bool first_comes_again_ = false;
  /// What `now_` is like so far; null where it is like none.
  const Pass* like_ = nullptr;
  std::map<Key, Pass> passes_;
};

} // namespace accel::distributed
