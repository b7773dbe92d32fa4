#pragma once

#include "default_device.h"

#include <accel/accel.h>

#include <torch/torch.h>

#include <functional>
#include <memory>
#include <optional>
#include <ostream>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

/// Small trainings, each written once and run twice: as a LibTorch program on one
/// device, in which nothing of accel is called, and with accel as several
/// processes in `match_single_device`. Everything that they note must be equal.
///
///     ZOO_MODEL(linear) {
///       nn::Linear net(6, 2);
///       auto optimizer = run.optimizer<optim::SGD>(net->parameters(), 0.1);
///       run.prepare(net, *optimizer);
///       auto loader = run.loader(Rows(torch::randn({17, 6}), targets), 5);
///       for (auto& batch : *loader) {
///         auto step = run.accumulate(net);
///         run.update(*optimizer, F::mse_loss(net->forward(batch.data), batch.target));
///       }
///       run.finish(net);
///     }
///
/// The default type is float64. Every model begins with the same random numbers,
/// and how many it has drawn is compared, too. `Run` is all the difference
/// between the two programs: what a person adds to a program for accel.
namespace zoo {

using torch::Tensor;
using torch::indexing::Ellipsis;
using torch::indexing::None;
using torch::indexing::Slice;
namespace F = torch::nn::functional;
namespace nn = torch::nn;
namespace optim = torch::optim;

using RandomSampler = torch::data::samplers::RandomSampler;
using SequentialSampler = torch::data::samplers::SequentialSampler;

/// Sample i is row i of both tensors.
struct Rows : torch::data::datasets::Dataset<Rows> {
  Rows(Tensor data, Tensor target)
      : data(std::move(data)), target(std::move(target)) {}
  torch::data::Example<> get(size_t index) override {
    const auto i = static_cast<int64_t>(index);
    return {data[i], target[i]};
  }
  torch::optional<size_t> size() const override {
    return static_cast<size_t>(data.size(0));
  }
  Tensor data, target;
};

/// The parameters of several modules, in one list.
template <typename... Modules>
std::vector<Tensor> parameters(const Modules&... modules) {
  std::vector<Tensor> all;
  for (const auto& list : {modules->parameters()...}) {
    all.insert(all.end(), list.begin(), list.end());
  }
  return all;
}

/// One model in one of the two programs.
class Run {
 public:
  /// `accelerator` is null in the plain program. What is noted goes to `out`,
  /// behind the model's name; files may be written into `folder`.
  Run(std::string model,
      accel::Accelerator* accelerator,
      std::ostream& out,
      std::string folder)
      : model_(std::move(model)),
        accelerator_(accelerator),
        out_(out),
        folder_(std::move(folder)) {}

  /// Null in the plain program: for what only one of the two does.
  accel::Accelerator* accelerator() const {
    return accelerator_;
  }
  const std::string& folder() const {
    return folder_;
  }

  template <typename Optimizer, typename... Args>
  std::unique_ptr<Optimizer> optimizer(const Args&... args) const {
    const NoDefaultDevice as_written;
    if (accelerator_ == nullptr) {
      return std::make_unique<Optimizer>(args...);
    }
    return std::make_unique<accel::AcceleratedOptimizer<Optimizer>>(args...);
  }

  /// Notes the initial weights of the models, too, where nothing was trained yet: the
  /// plain program prepares none that take over.
  template <typename... Objects>
  void prepare(Objects&&... objects) {
    {
      const NoDefaultDevice as_written;
      if (accelerator_ != nullptr) {
        accelerator_->prepare(objects...);
      }
    }
    (note_initial(objects), ...);
  }

  /// Of a data set as it is.
  template <typename Sampler, typename Dataset>
  auto loader_of(Dataset data, const torch::data::DataLoaderOptions& options)
      const {
    const NoDefaultDevice as_written;
    return accelerator_ == nullptr
        ? torch::data::make_data_loader<Sampler>(std::move(data), options)
        : accel::data::make_data_loader<Sampler>(std::move(data), options);
  }
  /// Of samples that are stacked.
  template <typename Sampler = RandomSampler, typename Dataset>
  auto loader(Dataset data, const torch::data::DataLoaderOptions& options)
      const {
    return loader_of<Sampler>(
        std::move(data).map(torch::data::transforms::Stack<>()), options);
  }

  template <typename... Models>
  [[nodiscard]] std::optional<accel::AccumulateGuard> accumulate(
      const Models&... models) const {
    const NoDefaultDevice as_written;
    std::optional<accel::AccumulateGuard> guard;
    if (accelerator_ != nullptr) {
      guard.emplace(accelerator_->accumulate(models...));
    }
    return guard;
  }

  void backward(const Tensor& loss, bool retain_graph = false) const;
  double clip_grad_norm_(
      const std::vector<Tensor>& parameters,
      double max_norm) const;
  /// For batches that no loader makes; the tensor itself in the plain program.
  Tensor distribute(const Tensor& tensor, int64_t dim = 0) const;
  /// For what reads memory.
  Tensor full(const Tensor& tensor) const;

  /// A whole step on a loss, which is noted; of the second step also what the
  /// optimizer keeps.
  void update(torch::optim::Optimizer& optimizer, const Tensor& loss);

  /// One of its own, of the device that tensors are made on.
  at::Generator generator(uint64_t seed) const;

  /// What the program prints.
  void note(const std::string& what, double value) const;
  void note(const std::string& what, const Tensor& value) const;

  /// All parameters and buffers at the end.
  template <typename... Modules>
  void finish(const Modules&... modules) const {
    int64_t position = 0;
    ((void)note_module(std::to_string(position++) + ".", *modules), ...);
  }

 private:
  /// All parameters and buffers, behind `prefix`.
  void note_module(const std::string& prefix, const torch::nn::Module& module)
      const;
  void note_state(const torch::optim::Optimizer& optimizer) const;

  /// Optimizers and schedulers have no weights.
  template <typename Object>
  void note_initial(Object& object) {
    const auto none = [](const void*) {};
    accel::detail::visit_preparable(
        object,
        [&](const torch::nn::Module* module) {
          if (updates_ == 0) {
            note_module("initial " + std::to_string(models_++) + ".", *module);
          }
        },
        none,
        none);
  }

  std::string model_;
  accel::Accelerator* accelerator_;
  std::ostream& out_;
  std::string folder_;
  /// That were prepared, and updates that were made.
  int64_t models_ = 0;
  int64_t updates_ = 0;
};

struct Model {
  std::string name;
  std::function<void(Run&)> train;
  int64_t accumulation;
  bool wrong;
};

/// In the order in which they run: by `accumulation` (an Accelerator has one), then
/// by name.
std::vector<Model>& models();
bool add(Model model);

} // namespace zoo

#define ZOO_ADD(name, accumulation, wrong)                      \
  static void name(zoo::Run& run);                              \
  [[maybe_unused]] static const bool name##_is_there =          \
      zoo::add({#name, &name, accumulation, wrong});            \
  static void name([[maybe_unused]] zoo::Run& run)

/// A model, trained by the body that follows.
#define ZOO_MODEL(name) ZOO_ADD(name, 1, false)
/// With an Accelerator that accumulates gradients over so many micro-steps.
#define ZOO_MODEL_ACCUMULATING(name, steps) ZOO_ADD(name, steps, false)
/// One that is not alike in the two programs: what the comparison must find.
/// Runs only where it is asked for by name.
#define ZOO_WRONG_MODEL(name) ZOO_ADD(name, 1, true)
