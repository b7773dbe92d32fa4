// What Python's packages are tried against (interop.py): a program that writes
// with accel what they read, and reads what they have written.
//
//   accel_interop tensorboard DIR      events of a run with known values
//   accel_interop mlflow DIR           the same to MLFLOW_TRACKING_URI
//   accel_interop save DIR             a model, whole and in shards, and a
//                                      checkpoint, after two steps with Adam
//   accel_interop load DIR             Accelerate's checkpoint in DIR: a further
//                                      step, then the parameters as safetensors

#include <accel/accel.h>
#include <accel/checkpoint/model_files.h>
#include <accel/checkpoint/optimizer_state.h>
#include <accel/checkpoint/safetensors.h>
#include <accel/tracking.h>

#include <torch/torch.h>

#include <cmath>
#include <cstdio>
#include <string>

namespace {

torch::nn::Sequential make_model() {
  return torch::nn::Sequential(
      torch::nn::Linear(4, 8),
      torch::nn::BatchNorm1d(8),
      torch::nn::ReLU(),
      torch::nn::Linear(8, 2));
}

/// The same numbers in Python: sin of 0, 1, 2, …
torch::Tensor input() {
  return torch::arange(12, torch::kFloat).sin().view({3, 4});
}

template <typename Optimizer>
void step(
    accel::Accelerator& accelerator,
    torch::nn::Sequential& model,
    Optimizer& optimizer) {
  optimizer.zero_grad();
  accelerator.backward(model->forward(input()).pow(2).mean());
  optimizer.step();
}

void track(const std::string& tracker, const std::string& directory) {
  accel::Accelerator accelerator(
      accel::AcceleratorOptions().cpu(true).log_with({tracker}).project_dir(
          directory));
  accelerator.init_trackers("interop", {{"lr", 0.1}, {"layers", 3}});
  for (int i = 0; i < 5; ++i) {
    accelerator.log(
        {{"train/loss", 1.0 / (i + 1)}, {"epoch", i}, {"note", "step"}}, i);
  }
  accelerator.log({{"accuracy", 0.75}}, 4);
  accelerator.end_training();
}

void save(const std::string& directory) {
  accel::Accelerator accelerator(accel::AcceleratorOptions().cpu(true));
  torch::manual_seed(3);
  auto model = make_model();
  accel::AcceleratedOptimizer<torch::optim::Adam> optimizer(
      model->parameters(), torch::optim::AdamOptions(0.05));
  accelerator.prepare(model, optimizer);
  step(accelerator, model, optimizer);
  step(accelerator, model, optimizer);
  accelerator.save_model(model, directory + "/whole");
  accelerator.save_model(model, directory + "/shards", "0.2KB");
  accelerator.save_state(directory + "/state");
  model->eval();
  const torch::NoGradGuard no_grad;
  accel::checkpoint::StateDict output;
  output.insert("output", model->forward(input()));
  accel::checkpoint::save_safetensors(output, directory + "/output.safetensors");
}

void load(const std::string& directory) {
  accel::Accelerator accelerator(accel::AcceleratorOptions().cpu(true));
  auto model = make_model();
  accel::AcceleratedOptimizer<torch::optim::Adam> optimizer(
      model->parameters(), torch::optim::AdamOptions(1));
  accelerator.prepare(model, optimizer);
  accel::checkpoint::load_model(*model, directory);
  accel::checkpoint::load_optimizer_state(
      optimizer,
      accel::checkpoint::read_python_optimizer(
          directory + "/optimizer.bin", optimizer));
  step(accelerator, model, optimizer);
  accel::checkpoint::save_safetensors(
      accelerator.get_state_dict(model), directory + "/after.safetensors");
}

} // namespace

int main(int argc, char** argv) {
  const std::string what = argc == 3 ? argv[1] : "";
  try {
    if (what == "tensorboard" || what == "mlflow") {
      track(what, argv[2]);
    } else if (what == "save") {
      save(argv[2]);
    } else if (what == "load") {
      load(argv[2]);
    } else {
      std::fprintf(
          stderr, "usage: accel_interop tensorboard|mlflow|save|load DIR\n");
      return 2;
    }
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
