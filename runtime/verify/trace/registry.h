#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/intrusive_ptr.h>

#include <cstdint>
#include <map>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "../trace_format.h"

namespace accel::verify {

/// The tensors of the program that are recorded: what a backward has reached,
/// and the parameters and buffers that modules have registered, such as those
/// of a moving average of the model, which no backward reaches.
///
/// They are kept alive, so that their final values can be written when the
/// program has ended its `main`: those that are there at the first backward,
/// and those that a second backward reaches. What comes later and may be made
/// anew for each batch (copies of a module, tensors that no module has
/// registered) must not pile up: it is kept within a budget.
class Registry {
 public:
  struct Entry {
    uint32_t id;
    TensorKind kind;
    std::string name;
    at::Tensor tensor;
    /// Until it is kept.
    c10::weak_intrusive_ptr<at::TensorImpl> weak;
    /// Of one that was in parts when the last Accelerator ended: its last value.
    at::Tensor whole = {};
  };

  /// A module has registered a tensor. `type` is the module's C++ type.
  void registered(
      const void* module,
      const std::string& type,
      const std::string& name,
      const at::Tensor& tensor,
      TensorKind kind);

  /// The entry of a leaf; `is_new` is set when it is seen for the first time.
  Entry& parameter(const at::Tensor& leaf, bool& is_new);

  /// What was registered since the last call and still exists.
  std::vector<std::pair<Entry*, at::Tensor>> new_registered();

  /// Forgets tensors that are gone.
  void prune();

  /// What still exists, by id.
  std::vector<Entry*> kept();

  /// Registered tensors that were not kept, and may be gone.
  size_t left_out() const {
    return left_out_;
  }

 private:
  struct Registered {
    std::string name;
    TensorKind kind;
    c10::weak_intrusive_ptr<at::TensorImpl> weak;
  };
  struct Module {
    std::string label;
    std::vector<std::string> names;
  };

  std::string label(
      const void* module, const std::string& type, const std::string& name);
  Entry& add(const at::Tensor& tensor, TensorKind kind, std::string name);
  /// Keeps it where it is of the first ones or the budget allows.
  void keep(Entry& entry, const at::Tensor& tensor);

  uint32_t next_id_ = 0;
  /// By address and type: another module may be made where one has been.
  std::map<std::pair<const void*, std::string>, Module> modules_;
  std::map<std::string, int> modules_of_type_;
  std::unordered_map<const at::TensorImpl*, Registered> registered_;
  std::vector<c10::weak_intrusive_ptr<at::TensorImpl>> pending_;
  /// Before the second backward.
  bool first_ = true;
  size_t later_ = 0;
  size_t later_bytes_ = 0;
  size_t left_out_ = 0;
  std::unordered_map<const at::TensorImpl*, Entry> entries_;
};

} // namespace accel::verify
