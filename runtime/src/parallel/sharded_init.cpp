#include <accel/data/generators.h>
#include <accel/parallel/sharded_init.h>

#include "core/runtime.h"
#include "distributed/watch.h"
#include "parallel/sharded_parameters.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <vector>

#ifdef __GLIBC__
#include <malloc.h>
#endif

namespace accel {

/// Follows what operators make until it has become a parameter, or is gone.
class ShardedInitGuard::Builder : public distributed::PlainOperators {
 public:
  explicit Builder(parallel::ShardedParameters& sharded) : sharded_(sharded) {}
  ~Builder() override {
    try {
      divide();
      give_back();
    } catch (const c10::Error& error) {
      TORCH_WARN("accel: a parameter stays whole: ", error.msg());
    }
  }

 private:
  using Weak = c10::weak_intrusive_ptr<at::TensorImpl>;

  void before() override {
    divide();
  }

  void after(
      const c10::OperatorHandle& op,
      const distributed::OperatorInfo& info,
      const torch::jit::Stack& stack) override {
    const auto& returns = op.schema().returns();
    for (size_t k = 0; k < info.results; ++k) {
      const auto& value = stack[stack.size() - info.results + k];
      if (returns[k].alias_info() == nullptr && value.isTensor() &&
          value.toTensor().defined() && value.toTensor().is_floating_point()) {
        made_.emplace_back(value.toTensor().getIntrusivePtr());
      }
    }
  }

  /// Those of what was made that are parameters by now. What has become one may
  /// become whole once more while it is filled: LibTorch looks at the sizes of
  /// `weight[0][0]`.
  void divide() {
    made_.erase(
        std::remove_if(
            made_.begin(), made_.end(),
            [&](const Weak& weak) {
              auto impl = weak.lock();
              if (!impl) {
                return true;
              }
              const at::Tensor tensor(std::move(impl));
              if (tensor.requires_grad() && tensor.is_leaf() &&
                  sharded_.build(tensor)) {
                freed_ += tensor.nbytes();
              }
              return false;
            }),
        made_.end());
    if (freed_ > kMostFreed) {
      give_back();
    }
  }

  /// Whole tensors leave gaps between the parts that are as large as they were, but
  /// too small for the next one of that size, which is aligned: the system gets them.
  void give_back() {
#ifdef __GLIBC__
    ::malloc_trim(0);
#endif
    freed_ = 0;
  }

  static constexpr size_t kMostFreed = size_t{16} << 20;

  parallel::ShardedParameters& sharded_;
  /// What is still there of it.
  std::vector<Weak> made_;
  /// Bytes of tensors that have been whole since memory was given back.
  size_t freed_ = 0;
};

ShardedInitGuard::ShardedInitGuard() {
  auto* sharded = detail::Runtime::require().sharded();
  if (sharded != nullptr && !distributed::PlainOperators::are_followed()) {
    detail::synchronize_generators(); // Each process is to keep its rows of one draw.
    builder_ = std::make_unique<Builder>(*sharded);
  }
}

ShardedInitGuard::~ShardedInitGuard() = default;

} // namespace accel
