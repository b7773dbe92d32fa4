#pragma once

#include <ATen/core/ivalue.h>
#include <torch/serialize/output-archive.h>

#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

namespace accel::detail {

/// While it lives, the distributed tensors that were written into an archive, and into
/// the archives in it, are whole. Collective to make.
class WholeArchive {
 public:
  /// Without `keep` this process only helps to put the tensors together.
  WholeArchive(torch::serialize::OutputArchive& archive, bool keep);
  ~WholeArchive();
  WholeArchive(const WholeArchive&) = delete;
  WholeArchive& operator=(const WholeArchive&) = delete;

 private:
  struct Replaced {
    /// No reference: LibTorch's writer marks what has several.
    c10::ivalue::Object* object;
    size_t slot;
    c10::IValue before;
  };

  using Object = c10::intrusive_ptr<c10::ivalue::Object>;

  void find_names(const Object& object);
  /// An archive's values, in an order that is the same on all processes.
  std::vector<size_t> slots_of(const Object& object) const;
  void visit(const Object& object);
  at::Tensor whole(const at::Tensor& tensor);

  bool keep_;
  std::vector<Replaced> replaced_;
  /// A tensor that was written twice stays one.
  std::unordered_map<const c10::TensorImpl*, at::Tensor> whole_;
  /// What shares memory (a parameter, and `detach` of it) does so in the file, too.
  std::unordered_map<const void*, at::Tensor> memory_;
  /// Tensors that nobody else has: what takes their place must have one reference,
  /// too, for the same bytes.
  std::unordered_set<const c10::TensorImpl*> held_here_;
  /// An optimizer's archive names the states of parameters by their addresses, in no
  /// order, and lists these names for each group: the place of each in the lists.
  std::unordered_map<std::string, size_t> places_;
};

} // namespace accel::detail
