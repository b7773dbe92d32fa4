#pragma once

#include <future>
#include <string>
#include <vector>

namespace accel::checkpoint {

/// Removes checkpoints that have been replaced, large ones on threads of their
/// own: a file system takes a tenth of a second and more to give a GB back, for
/// which a program that has saved need not stand still. What a process that is
/// killed meanwhile leaves is what the next save removes in any case.
class Removals {
 public:
  /// Throws where a small directory cannot be removed. Of a large one the next
  /// save in its place says so.
  void remove(const std::string& directory);
  /// Returns when everything is gone, as the destructor does.
  void wait();

 private:
  std::vector<std::future<void>> under_way_;
};

} // namespace accel::checkpoint
