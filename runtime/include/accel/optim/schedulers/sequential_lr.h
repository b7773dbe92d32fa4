#pragma once

#include <accel/optim/schedulers/lr_scheduler.h>

#include <memory>

namespace accel::optim {

/// Several schedulers one after the other: `schedulers[0]` until epoch
/// `milestones[0]`, where `schedulers[1]` begins with its epoch 0, and so on.
///
/// \code
/// using namespace accel::optim;
/// SequentialLR scheduler(
///     optimizer,
///     {std::make_shared<LinearLR>(optimizer),
///      std::make_shared<CosineAnnealingLR>(optimizer, 95)},
///     {5});
/// \endcode
///
/// All are constructed on the same optimizer; construction puts it back to the
/// first one's epoch 0. Do not step them directly.
class ACCEL_API SequentialLR final : public LRScheduler {
 public:
  SequentialLR(
      torch::optim::Optimizer& optimizer,
      std::vector<std::shared_ptr<LRScheduler>> schedulers,
      std::vector<int64_t> milestones);

  void restart() override;

 protected:
  double get_lr(size_t group, double current) override;
  void on_epoch() override;
  /// Names the parts too: "SequentialLR[LinearLR,CosineAnnealingLR]".
  std::string name() const override;
  std::map<std::string, std::vector<double>> options() const override;
  void save_values(SchedulerState& state) const override;
  void load_values(const SchedulerState& state) override;

 private:
  std::vector<std::shared_ptr<LRScheduler>> schedulers_;
  std::vector<int64_t> milestones_;
};

} // namespace accel::optim
