// Examples for the reference of utilities.

#include <accel/accel.h>
#include <accel/utils/environment.h>
#include <accel/utils/local_sgd.h>
#include <accel/utils/logging.h>
#include <accel/utils/memory.h>
#include <accel/utils/progress.h>
#include <accel/utils/random.h>
#include <accel/utils/split.h>
#include <torch/torch.h>

#include <iostream>
#include <map>
#include <string>
#include <vector>

// @example accel accel::EnvironmentGuard
void environment() {
  auto patched = accel::patch_environment({{"accelerate_use_cpu", "1"}});
  TORCH_CHECK(accel::parse_flag_from_env("ACCELERATE_USE_CPU") && accel::str_to_bool("yes"));
  TORCH_CHECK(accel::get_int_from_env({"WORLD_SIZE"}, /*fallback=*/1) >= 1);
  auto empty = accel::clear_environment();
}

// @example accel::LocalSGD
void local_sgd(torch::nn::Linear model, torch::optim::SGD& optimizer) {
  accel::LocalSGD local_sgd(model->parameters(), /*local_sgd_steps=*/8);
  for (int step = 0; step < 100; ++step) {
    optimizer.zero_grad();
    model->forward(torch::randn({16, 4})).square().mean().backward();
    optimizer.step();
    local_sgd.step();
  }
}

// @example accel::Logger accel::LogOptions accel::LogLevel accel
void messages() {
  accel::Logger& logger = accel::get_logger("train", "INFO");
  logger.info("only process 0 says this");
  logger.warning("every process, one after the other",
                 accel::LogOptions().main_process_only(false).in_order(true));
  logger.warning_once("only once");
  logger.error("error");
  logger.critical("critical");
  logger.log(accel::LogLevel::kError, "the same as error");
  logger.set_level(accel::log_level("DEBUG"));
  if (logger.is_enabled_for(accel::LogLevel::kDebug)) {
    logger.debug("debug");
  }
  logger.set_stream(&std::cout);
}

// @example accel::LogProcesses accel
void without_an_accelerator() {
  accel::LogProcesses processes;
  processes.rank = 0;
  processes.world = 1;
  processes.barrier = [] {};
  accel::set_log_processes(processes);
  accel::reset_log_processes();
}

// @example accel::FindExecutableBatchSizeOptions accel
int64_t batch_that_fits(accel::Accelerator& accelerator) {
  return accel::find_executable_batch_size(
      [](int64_t batch_size) {
        torch::empty({batch_size, 1024, 1024});
        return batch_size;
      },
      accel::FindExecutableBatchSizeOptions()
          .starting_batch_size(256)
          .reduce([](int64_t size) { return size / 2; })
          .any_process([&](bool mine) {
            return accelerator.reduce(torch::tensor(mine ? 1. : 0.), "max").item<double>() > 0;
          }));
}

void out_of_memory(const std::exception& error) {
  if (accel::should_reduce_batch_size(error)) {
    accel::clear_device_cache();
  }
}

// @example accel::ProgressBar accel::ProgressBarOptions accel
void progress(accel::Accelerator& accelerator) {
  accel::ProgressBarOptions::Stream stream = &std::cerr;
  accel::ProgressBar bar(
      100,
      accel::ProgressBarOptions()
          .desc("train").unit("batch").main_process(accelerator.is_main_process())
          .stream(stream).terminal(true).min_interval(0.5));
  bar.update();
  bar.set_postfix("loss=0.3");
  TORCH_CHECK(bar.n() == 1);
  bar.close();
  std::cerr << accel::format_progress(5, 10, /*elapsed_seconds=*/5, "train") << '\n';
}

// @example accel::ProgressRange accel::ProgressRange::Iterator accel
void range() {
  std::vector<int> numbers = {1, 2, 3};
  for (int number : accel::tqdm(numbers, 3)) {
    std::cout << number;
  }
  auto counted = accel::tqdm(numbers, 3);
  counted.bar().set_postfix("three");
  for (auto it = counted.begin(); it != counted.end(); ++it) {
    TORCH_CHECK(it.inner() != numbers.end());
  }
}

// @example accel::SetSeedOptions accel
void seeds(accel::Accelerator& accelerator) {
  accel::set_seed(42);
  accel::set_seed(42, accel::SetSeedOptions()
                          .device_specific(true)
                          .process_index(accelerator.process_index())
                          .deterministic(true));
}

// @example accel
void parts(int64_t rank, int64_t world) {
  auto [begin, end] = accel::split_range(10, rank, world);
  auto words = accel::split_between_processes(std::vector<std::string>{"A", "B", "C"}, rank, world);
  auto rows = accel::split_between_processes(torch::arange(10), rank, world, /*apply_padding=*/true);
  std::map<std::string, torch::Tensor> batch = {{"x", torch::arange(10)}};
  auto part = accel::split_map_between_processes(batch, rank, world, false);
  TORCH_CHECK(end - begin <= rows.size(0) && words.size() <= 3 && part.size() == 1);
}

// @example accel
void tensors_in_values() {
  using Batch = std::pair<torch::Tensor, torch::Tensor>;
  Batch batch = {torch::randn({8, 4}), torch::zeros({8})};
  TORCH_CHECK(accel::find_batch_size(batch) == 8 && accel::find_device(batch)->is_cpu());
  Batch half = accel::slice_tensors(batch, 0, 4);
  Batch twice = accel::concatenate<Batch>({half, half});
  Batch single = accel::convert_to_fp32(twice);
  Batch doubled = accel::map_tensors(single, [](const torch::Tensor& x) { return x * 2; });
}
