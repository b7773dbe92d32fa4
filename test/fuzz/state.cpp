// The JSON files of a checkpoint: the input has state.json, process_0.json,
// optimizer.json and a scheduler's state, with zero bytes between them. They
// are put into a checkpoint that is otherwise right, and loaded.

#include "fuzz.h"

#include <accel/accel.h>
#include <accel/checkpoint/directory.h>
#include <accel/checkpoint/optimizer_state.h>
#include <accel/checkpoint/random_state.h>

#include <c10/util/Exception.h>

#include <torch/torch.h>

namespace {

using accel::fuzz::refused;
using accel::fuzz::require;

struct Numbers : torch::data::Dataset<Numbers> {
  torch::data::Example<> get(size_t index) override {
    return {torch::full({1}, static_cast<double>(index)), torch::zeros({1})};
  }
  torch::optional<size_t> size() const override {
    return 12;
  }
};

/// A program with one of each.
struct Program {
  Program()
      : accelerator(accel::AcceleratorOptions().cpu(true)),
        model(2, 1),
        optimizer(model->parameters(), torch::optim::AdamWOptions(0.1)),
        scheduler(optimizer, 2, 0.5),
        loader(accel::data::make_data_loader(
            Numbers().map(torch::data::transforms::Stack<>()), 4)) {
    accelerator.prepare(model, optimizer, scheduler);
    model->forward(torch::ones({1, 2})).sum().backward();
    optimizer.step();
  }

  static Program& get() {
    static Program program;
    return program;
  }

  accel::Accelerator accelerator;
  torch::nn::Linear model;
  accel::AcceleratedOptimizer<torch::optim::AdamW> optimizer;
  accel::AcceleratedScheduler<torch::optim::StepLR> scheduler;
  decltype(accel::data::make_data_loader(
      Numbers().map(torch::data::transforms::Stack<>()), 4)) loader;
};

} // namespace

ACCEL_FUZZ_TARGET(state) {
  auto& program = Program::get();
  const auto texts = accel::fuzz::pieces(input, 4);
  const auto directory = (accel::fuzz::scratch() / "state").string();
  const auto optimizer = accel::checkpoint::optimizer_state(program.optimizer);
  const auto before = torch::cat(
      {program.model->weight.detach().flatten(), program.model->bias.detach()});
  accel::checkpoint::write_checkpoint(
      directory, {}, [&](accel::checkpoint::CheckpointFiles& files) {
        files.write_tensors(
            "model.safetensors",
            accel::checkpoint::state_dict(*program.model));
        files.write_tensors("optimizer.safetensors", optimizer.tensors);
        files.write_tensors(
            "random_states_0.safetensors",
            accel::checkpoint::random_state());
        files.write_bytes("state.json", texts[0]);
        files.write_bytes("process_0.json", texts[1]);
        files.write_bytes("optimizer.json", texts[2]);
        files.write_bytes("custom_checkpoint_0.bin", texts[3]);
      });
  refused<c10::Error>([&] { program.accelerator.load_state(directory); });
  const auto after = torch::cat(
      {program.model->weight.detach().flatten(), program.model->bias.detach()});
  require(before.equal(after), "a checkpoint of the same values changes nothing");
  // What was loaded can be used.
  refused<c10::Error>([&] {
    int batches = 0;
    for (auto& batch : *program.loader) {
      require(batch.data.size(0) <= 12, "a batch is one of this data set");
      require(++batches <= 12, "a pass ends");
    }
  });
  refused<c10::Error>([&] { program.scheduler.step(); });
}

// Python's optimizer.bin: the file itself.
ACCEL_FUZZ_TARGET(python_optimizer) {
  const auto path = accel::fuzz::file_with("optimizer.bin", input);
  auto& program = Program::get();
  // LibTorch's reader throws what it likes; ours throws c10::Error.
  refused<std::exception>([&] {
    const auto state = accel::checkpoint::read_python_optimizer(
        path, program.optimizer);
    refused<c10::Error>([&] {
      accel::checkpoint::load_optimizer_state(program.optimizer, state);
    });
  });
}
