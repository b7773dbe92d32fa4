#pragma once

#include <accel/checkpoint/state.h>

#include <functional>
#include <map>
#include <string>
#include <vector>

// Schedulers, the gradient scaler and registered objects in a checkpoint.

namespace accel::detail {

class Runtime;

/// A part of a checkpoint that is bytes to it.
struct CheckpointPart {
  std::string name;
  std::function<std::string()> save;
  std::function<void(const std::string&)> load;
  /// Loading it can be taken back by loading what it was.
  bool can_try;
  /// See `CustomObject`.
  std::string kind;
};

/// Those of the program, in the order in which they were made and registered.
std::vector<CheckpointPart> parts_of(Runtime& runtime);

/// What a checkpoint has, with schedulers by their places among those that existed:
/// earlier releases have counted those that were gone, too.
std::vector<checkpoint::Extra> with_places(std::vector<checkpoint::Extra> extras);

/// Throws where the program has others than the checkpoint.
void check_same_parts(
    const std::vector<CheckpointPart>& parts,
    const std::vector<checkpoint::Extra>& extras);

/// Throws where an object of one kind was registered in the place of another, whose
/// bytes it may well be able to read.
void check_same_kinds(
    const std::vector<CheckpointPart>& parts,
    const std::map<std::string, std::string>& saved);

/// Of a part that is there.
const std::string& bytes_of(
    const std::vector<checkpoint::Extra>& extras,
    const std::string& name);

/// Throws where a part that can be tried cannot be loaded; changes nothing.
void try_parts(
    const std::vector<CheckpointPart>& parts,
    const std::vector<checkpoint::Extra>& extras);

} // namespace accel::detail
