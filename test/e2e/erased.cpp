// A trainer that knows neither the model nor the loss nor how a batch is put
// together: AnyModule, std::function, a factory of virtual functions. Original
// and migrated must print the same numbers on any number of processes.

#include <torch/torch.h>

#include <functional>
#include <iomanip>
#include <iostream>
#include <memory>
#include <utility>
#include <vector>

/// People put classes of their own into LibTorch's namespaces.
namespace torch {
namespace nn {

struct TinyImpl : torch::nn::Module {
  explicit TinyImpl(int64_t outputs)
      : first(register_module("first", torch::nn::Linear(torch::nn::LinearOptions(4, 8).bias(false)))),
        norm(register_module("norm", torch::nn::BatchNorm1d(8))),
        drop(register_module("drop", torch::nn::Dropout(0.2))),
        last(register_module("last", torch::nn::Linear(8, outputs))) {}
  torch::Tensor forward(torch::Tensor x) { return last(drop(torch::relu(norm(first(x))))); }
  torch::nn::Linear first;
  torch::nn::BatchNorm1d norm;
  torch::nn::Dropout drop;
  torch::nn::Linear last;
};
TORCH_MODULE(Tiny);

} // namespace nn

/// Loader, loss and collation are whatever the factory makes.
template <typename Factory>
class Trainer {
 public:
  using Sample = typename Factory::Sample;

  Trainer(torch::Device device, torch::nn::AnyModule model, typename Factory::Loader loader,
          std::unique_ptr<torch::optim::Optimizer> optimizer,
          std::function<torch::Tensor(torch::Tensor, torch::Tensor)> loss_function,
          std::function<Sample(std::vector<Sample>)> collate)
      : device_(device),
        model_(model),
        loader_(std::move(loader)),
        optimizer_(std::move(optimizer)),
        loss_function_(loss_function),
        collate_(collate) {
    module_ = model.ptr();
    module_->train();
    module_->to(device);
  }

  void train(size_t epochs) {
    for (size_t epoch = 0; epoch < epochs; ++epoch) {
      size_t step = 0;
      for (auto& batch : *loader_) {
        auto collated = collate_(batch);
        auto data = collated.data.to(device_);
        auto target = collated.target.to(device_);
        auto output = model_.forward(data);
        torch::Tensor loss = loss_function_(output, target);
        optimizer_->zero_grad();
        loss.backward();
        optimizer_->step();
        std::cout << "step " << step << " loss " << loss.template item<double>() << std::endl;
        ++step;
      }
      std::cout << "epoch " << epoch << " finished" << std::endl;
    }
  }

 private:
  torch::Device device_;
  torch::nn::AnyModule model_;
  std::shared_ptr<torch::nn::Module> module_;
  typename Factory::Loader loader_;
  std::unique_ptr<torch::optim::Optimizer> optimizer_;
  std::function<torch::Tensor(torch::Tensor, torch::Tensor)> loss_function_;
  std::function<Sample(std::vector<Sample>)> collate_;
};

} // namespace torch

namespace {

class Waves : public torch::data::datasets::Dataset<Waves> {
 public:
  torch::data::Example<> get(size_t index) override {
    const auto phase = static_cast<double>(index);
    return {torch::sin(torch::arange(4, torch::kDouble) * 0.7 + phase),
            torch::cos(torch::arange(3, torch::kDouble) * 0.3 + phase)};
  }
  torch::optional<size_t> size() const override { return 21; }
};

template <typename Dataset, typename Sampler>
class TaskFactory {
 public:
  using Sample = typename Dataset::ExampleType;
  using Loader = std::unique_ptr<torch::data::StatelessDataLoader<Dataset, Sampler>>;
  explicit TaskFactory(size_t batch_size) : batch_size_(batch_size) {}
  virtual ~TaskFactory() = default;
  virtual torch::nn::AnyModule make_model() = 0;
  virtual Dataset make_dataset() = 0;
  virtual std::unique_ptr<torch::optim::Optimizer> make_optimizer(torch::nn::AnyModule model) = 0;
  virtual std::function<torch::Tensor(torch::Tensor, torch::Tensor)> make_loss_function() = 0;
  virtual std::function<Sample(std::vector<Sample>)> make_collate() = 0;
  Loader make_loader() {
    auto dataset = make_dataset();
    auto size = dataset.size();
    return torch::data::make_data_loader<Dataset, Sampler>(std::move(dataset), Sampler(*size), batch_size_);
  }

 private:
  size_t batch_size_;
};

class WaveFactory : public TaskFactory<Waves, torch::data::samplers::RandomSampler> {
 public:
  explicit WaveFactory(size_t batch_size) : TaskFactory(batch_size) {}
  Waves make_dataset() override { return {}; }
  torch::nn::AnyModule make_model() override { return torch::nn::AnyModule(torch::nn::Tiny(3)); }
  std::unique_ptr<torch::optim::Optimizer> make_optimizer(torch::nn::AnyModule model) override {
    return std::make_unique<torch::optim::Adam>(model.ptr()->parameters(), torch::optim::AdamOptions(0.01));
  }
  std::function<torch::Tensor(torch::Tensor, torch::Tensor)> make_loss_function() override {
    // Each sample is weighed by how far it is from the others: no part of the batch can do that.
    return [](torch::Tensor output, torch::Tensor target) {
      const auto spread = (output - output.mean(0)).pow(2).mean(1);
      return ((output - target).pow(2).mean(1) * torch::softmax(spread, 0)).sum();
    };
  }
  std::function<Sample(std::vector<Sample>)> make_collate() override {
    return [](const std::vector<Sample>& batch) -> Sample {
      std::vector<torch::Tensor> data, targets;
      for (const auto& sample : batch) {
        data.push_back(sample.data);
        targets.push_back(sample.target);
      }
      return {torch::stack(data), torch::stack(targets)};
    };
  }
};

/// The model alone is hidden: the batches are split.
void hidden() {
  torch::nn::AnyModule any{torch::nn::Tiny(3)};
  torch::optim::SGD optimizer(any.ptr()->parameters(), 0.05);
  auto loader = torch::data::make_data_loader<torch::data::samplers::RandomSampler>(
      Waves().map(torch::data::transforms::Stack<>()), 8);
  double total = 0;
  for (auto& batch : *loader) {
    optimizer.zero_grad();
    auto loss = torch::mse_loss(any.forward(batch.data), batch.target);
    loss.backward();
    optimizer.step();
    total += loss.item<double>();
  }
  std::cout << "hidden " << total << std::endl;
}

} // namespace

int main() {
  torch::manual_seed(7);
  torch::set_default_dtype(caffe2::TypeMeta::Make<double>());
  std::cout << std::setprecision(17);

  WaveFactory factory(8);
  auto model = factory.make_model();
  auto optimizer = factory.make_optimizer(model);
  torch::Trainer<WaveFactory> trainer(torch::kCPU, model, factory.make_loader(), std::move(optimizer),
                                      factory.make_loss_function(), factory.make_collate());
  trainer.train(3);
  double sum = 0;
  for (const auto& parameter : model.ptr()->parameters()) {
    sum += parameter.abs().sum().item<double>();
  }
  std::cout << "parameters " << sum << std::endl;
  hidden();
  return 0;
}
