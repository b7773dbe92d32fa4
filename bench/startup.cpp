// How soon the first optimizer step is done: prints the time after it, in
// seconds since the epoch, on the main process. startup_accelerate.py is the
// same in Python; startup.py measures both.

#include <accel/accel.h>
#include <torch/torch.h>

#include <chrono>
#include <cstdio>

int main() {
  accel::Accelerator accelerator(accel::AcceleratorOptions().cpu(true));
  torch::manual_seed(0);
  torch::nn::Sequential model(
      torch::nn::Linear(784, 128),
      torch::nn::ReLU(),
      torch::nn::Linear(128, 10));
  accel::AcceleratedOptimizer<torch::optim::Adam> optimizer(
      model->parameters(), 1e-3);
  accelerator.prepare(model, optimizer);
  auto loader = accel::data::make_data_loader(
      torch::data::datasets::TensorDataset(torch::randn({256, 784}))
          .map(torch::data::transforms::Stack<torch::data::TensorExample>()),
      64);
  for (auto& batch : *loader) {
    auto step = accelerator.accumulate(model);
    const auto targets =
        torch::arange(batch.data.size(0)).remainder(10);
    const auto loss = torch::nn::functional::cross_entropy(
        model->forward(batch.data), targets);
    optimizer.zero_grad();
    accelerator.backward(loss);
    optimizer.step();
    break;
  }
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  accelerator.printf(
      "%.6f\n", std::chrono::duration<double>(now).count());
}
