// Examples for the reference of the Accelerator and its options.

#include <accel/accel.h>
#include <accel/activation_checkpoint.h>
#include <accel/checkpoint/model_files.h>
#include <accel/lomo.h>
#include <accel/stop.h>
#include <torch/torch.h>

#include <chrono>
#include <cstdio>
#include <ctime>
#include <fstream>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

struct Points : torch::data::datasets::Dataset<Points> {
  torch::Tensor x = torch::randn({256, 4});
  torch::data::Example<> get(size_t index) override {
    return {x[index], x[index].sum().view({1})};
  }
  torch::optional<size_t> size() const override {
    return x.size(0);
  }
};

// @example accel::AcceleratorOptions accel::MixedPrecision accel::CommHook
accel::AcceleratorOptions options() {
  return accel::AcceleratorOptions()
      .match_single_device(true)
      .mixed_precision(accel::MixedPrecision::kBF16)
      .gradient_accumulation_steps(4)
      .sync_with_dataloader(true)
      .sync_each_batch(false)
      .adjust_scheduler(false)
      .step_scheduler_with_optimizer(true)
      .project_dir("run")
      .automatic_checkpoint_naming(true)
      .total_limit(3)
      .save_on_each_node(false)
      .log_with({"csv"})
      .logging_dir("run/log")
      .timeout(std::chrono::minutes(10));
}

accel::AcceleratorOptions as_accelerate_does() {
  return accel::AcceleratorOptions()
      .split_batches(false)
      .even_batches(true)
      .dispatch_batches(false)
      .non_blocking(true)
      .cpu(true)
      .device_placement(true)
      .comm_hook(accel::CommHook::kBF16)
      .bucket_cap_mb(50)
      .broadcast_buffers(false)
      .autocast(accel::AutocastOptions().cache_enabled(true))
      .grad_scaler(accel::GradScalerOptions().init_scale(1024));
}

accel::AcceleratorOptions with_random_crops_of_the_host() {
  return accel::AcceleratorOptions().match_single_device(true).load_whole_batches(true);
}

accel::AcceleratorOptions sharded() {
  return accel::AcceleratorOptions().match_single_device(true).fsdp_plugin(
      accel::FullyShardedDataParallelPlugin().sharding_strategy(
          accel::ShardingStrategy::kFullShard));
}

// @example accel::Accelerator accel::AcceleratedOptimizer accel::AccumulateGuard
void train(torch::nn::Linear model) {
  accel::Accelerator accelerator(options());
  accel::AcceleratedOptimizer<torch::optim::SGD> optimizer(
      model->parameters(), torch::optim::SGDOptions(0.1).momentum(0.9));
  accelerator.prepare(model, optimizer);
  auto loader = accel::data::make_data_loader(
      Points().map(torch::data::transforms::Stack<>()), 64);
  for (int epoch = 0; epoch < 3; ++epoch) {
    for (auto& batch : *loader) {
      auto step = accelerator.accumulate(model);
      auto output = model->forward(batch.data.to(accelerator.device()));
      auto loss = torch::mse_loss(output, batch.target.to(accelerator.device()));
      optimizer.zero_grad();
      accelerator.backward(loss);
      accelerator.clip_grad_norm_(model->parameters(), 1.0);
      optimizer.step();
      if (accelerator.sync_gradients() && !optimizer.step_was_skipped()) {
        accelerator.print("epoch", epoch, "loss", loss.item<float>());
      }
    }
  }
  accelerator.save(model, "model.pt");
  // Half the batch, twice as many of them for an update.
  accelerator.set_gradient_accumulation_steps(2 * accelerator.gradient_accumulation_steps());
}

// @example accel::Accelerator accel::PartialState accel::AcceleratorState accel::DistributedType accel::ResolvedOptions
void who_am_i(accel::Accelerator& accelerator) {
  accelerator.print(
      accelerator.num_processes(), "processes,",
      accel::to_string(accelerator.distributed_type()), "in",
      accel::to_string(accelerator.mixed_precision()));
  if (accelerator.use_distributed()) {
    std::cerr << "process " << accelerator.process_index() << ", on this machine "
              << accelerator.local_process_index() << '\n';
  }
  const accel::AcceleratorState& state = accelerator.state();
  if (state.distributed_type() == accel::DistributedType::kMultiGPU) {
    std::cerr << state.device() << " of " << state.local_num_processes() << '\n';
  }
  TORCH_CHECK(state.process_index() < state.num_processes());
  TORCH_CHECK(state.local_process_index() < state.local_num_processes());
  TORCH_CHECK(state.is_main_process() == accelerator.is_main_process());
  TORCH_CHECK(state.is_local_main_process() == accelerator.is_local_main_process());
  TORCH_CHECK(state.is_last_process() == accelerator.is_last_process());
  TORCH_CHECK(state.use_distributed() == (state.num_processes() > 1));
  state.wait_for_everyone();
}

void what_is_in_force(const accel::AcceleratorState& state) {
  const accel::ResolvedOptions& in_force = state.options();
  std::cerr << accel::to_string(in_force) << '\n';
  if (state.match_single_device() && in_force.match_single_device &&
      state.mixed_precision() == in_force.mixed_precision) {
    std::cerr << "steps: " << in_force.gradient_accumulation_steps
              << in_force.sync_with_dataloader << in_force.sync_each_batch
              << in_force.adjust_scheduler << in_force.step_scheduler_with_optimizer
              << "\ngradients: " << accel::to_string(in_force.comm_hook)
              << in_force.bucket_cap_mb << in_force.broadcast_buffers
              << "\nprecision: " << in_force.grad_scaler.init_scale()
              << in_force.autocast.enabled()
              << "\nplaces: " << in_force.cpu << in_force.device_placement
              << in_force.non_blocking << in_force.save_on_each_node
              << "\nbatches: " << in_force.split_batches << in_force.even_batches
              << in_force.dispatch_batches.value_or(false)
              << in_force.load_whole_batches
              << "\nsharded: " << in_force.fsdp.has_value() << in_force.tp_plan.size()
              << accel::to_string(in_force.state_dict_type)
              << "\ntimeout: " << in_force.timeout.count() << " ms\n";
  }
}

// @example accel::Accelerator accel::ProcessFirstGuard
void one_after_the_other(accel::Accelerator& accelerator) {
  {
    auto first = accelerator.main_process_first();
    std::ofstream("vocabulary.txt", std::ios::app) << '\n';
  }
  {
    auto first = accelerator.local_main_process_first();
    std::ofstream("/tmp/cache", std::ios::app) << '\n';
  }
  accelerator.on_main_process([] { std::cout << "process 0\n"; });
  accelerator.on_local_main_process([] { std::cout << "first of a machine\n"; });
  accelerator.on_last_process([] { std::cout << "last process\n"; });
  accelerator.on_process(1, [] { std::cout << "process 1\n"; });
  accelerator.on_local_process(1, [] { std::cout << "second of a machine\n"; });
  accelerator.wait_for_device(); // as torch::cuda::synchronize
  accelerator.wait_for_everyone();
}

// @example accel::Accelerator accel::kExitStopped accel
int stop_together(accel::Accelerator& accelerator, double loss) {
  if (std::isnan(loss)) {
    accelerator.set_trigger();
  }
  if (accelerator.check_trigger()) {
    return 1; // on every process
  }
  if (accelerator.stop_requested()) { // SIGTERM from Slurm
    accelerator.save_state();
    return accel::kExitStopped;
  }
  return 0;
}

// @example accel::Accelerator
void values_of_all(accel::Accelerator& accelerator, torch::Tensor mine) {
  auto rows = accelerator.gather(mine); // [n * processes, …]
  auto mean = accelerator.reduce(mine, "mean");
  auto first = accelerator.broadcast(mine.clone(), /*from_process=*/0);
  auto longest = accelerator.pad_across_processes(mine, /*dim=*/0);
  torch::manual_seed(accelerator.broadcast_object(std::time(nullptr)));
  auto names = accelerator.gather_object(std::vector<std::string>{"mine"});
  accelerator.print(rows.size(0), mean.sum().item<double>(), first.size(0),
                    longest.size(0), names.size());
}

void evaluate(accel::Accelerator& accelerator, torch::nn::Linear model) {
  auto precision = accelerator.autocast();
  auto loader = accel::data::make_data_loader(
      Points().map(torch::data::transforms::Stack<>()), 64);
  int64_t correct = 0;
  for (auto& batch : *loader) {
    torch::Tensor output = model->forward(batch.data), target = batch.target;
    std::tie(output, target) = accelerator.gather_for_metrics(output, target);
    correct += output.sign().eq(target.sign()).sum().item<int64_t>();
  }
  accelerator.print("correct:", correct);
}

// @example accel::Accelerator accel::AcceleratorOptions accel::ParallelismConfig accel::ParallelSizes accel::ResolvedOptions
void places_on_a_mesh() {
  accel::Accelerator accelerator(
      accel::AcceleratorOptions().match_single_device(true).parallelism_config(
          accel::ParallelismConfig()
              .dp_replicate_size(2).dp_shard_size(2)
              .tp_size(1).cp_size(1).sp_size(1)));
  accelerator.print(accelerator.device_mesh().str());
  std::cerr << accelerator.data_parallel_rank() << accelerator.data_parallel_shard_rank()
            << accelerator.tensor_parallel_rank() << '\n';
  if (auto sizes = accelerator.state().options().parallelism) {
    TORCH_CHECK(sizes->product() == sizes->data() * sizes->tp * sizes->cp * sizes->sp);
    TORCH_CHECK(sizes->dp_replicate * sizes->dp_shard == 4);
  }
}

// @example accel::Accelerator accel::AutocastGuard accel::AutocastOptions accel::BackwardOptions
void precision_and_gradients(accel::Accelerator& accelerator, torch::Tensor loss,
                             std::vector<torch::Tensor> parameters, double tokens) {
  {
    auto full = accelerator.autocast(
        accel::AutocastOptions().enabled(false).cache_enabled(true));
    loss = loss + parameters[0].square().sum();
  }
  {
    accel::AutocastGuard low(torch::kCPU, torch::kBFloat16);
    loss = loss + parameters[0].square().sum();
  }
  accelerator.backward(loss, accel::BackwardOptions().retain_graph(true));
  accelerator.backward(loss, accel::BackwardOptions().create_graph(false));
  accelerator.backward(loss, accel::BackwardOptions().gradient(torch::tensor(-1.0)));
  accelerator.backward(loss, /*weight=*/tokens);
  accelerator.unscale_gradients();
  accelerator.clip_grad_value_(parameters, 0.5);
  if (accelerator.scaler() && accelerator.optimizer_step_was_skipped()) {
    accelerator.print("scale:", accelerator.scaler()->get_scale());
  }
}

// @example accel::Accelerator accel::JoinUnevenGuard
void uneven(accel::Accelerator& accelerator) {
  auto join = accelerator.join_uneven_inputs(/*even_batches=*/false);
}

// @example accel::Accelerator
void batches_by_hand(accel::Accelerator& accelerator, torch::Tensor data) {
  auto ids = torch::randperm(data.size(0)).slice(0, 0, 64);
  auto x = accelerator.distribute(data.index({ids})); // each process: its rows
  auto labels = data.index({ids}).argmax(1);
  std::tie(x, labels) = accelerator.distribute(x, labels); // x is cut already
  auto columns = accelerator.distribute(data, /*dim=*/1);
  const float* memory = accelerator.full(x).contiguous().data_ptr<float>();
  accelerator.full_(x).data_ptr<float>()[0] = 1; // x[0][0] is 1, on every process
  auto part = accelerator.split_between_processes(std::vector<int>{1, 2, 3});
  auto on_device = accelerator.send_to_device(data);
  accelerator.print(memory[0], columns.size(1), part.size(), on_device.size(0));
}

// @example accel::Accelerator accel::SaveStateOptions accel::LoadStateOptions accel::CheckpointHookHandle accel::CheckpointHook
template <typename Loader>
void checkpoints(accel::Accelerator& accelerator, torch::nn::Linear model, Loader& loader) {
  int64_t epoch = 0;
  accelerator.register_for_checkpointing(epoch);
  accel::CheckpointHook note = [](std::vector<torch::nn::Module*>& models,
                                  const std::string& directory) {
    std::cerr << models.size() << " models, " << directory << '\n';
  };
  accel::CheckpointHookHandle saving = accelerator.register_save_state_pre_hook(note);
  accelerator.register_load_state_pre_hook(note);
  if (!accelerator.resume()) { // accel launch --resume auto
    accelerator.load_state("run/last", accel::LoadStateOptions().verify_checksums(false));
  }
  accelerator.skip_first_batches(*loader, 10);
  if (std::optional<int64_t> steps = accelerator.num_batches(*loader)) {
    accelerator.print("a pass has", *steps, "batches");
  }
  accelerator.leave(*loader);
  accelerator.save_state("run/last", accel::SaveStateOptions().asynchronous(true).sync(false));
  accelerator.wait_for_checkpoint();
  saving.remove();
  accelerator.save_model(model, "run/model", "500MB");
  auto state = accelerator.get_state_dict(accelerator.unwrap_model(model));
  accelerator.print(state.size(), "tensors");
  accelerator.clear();
  accelerator.free_memory();
}

// @example accel
std::ostream& log_stream = accel::main_process_cout(); // made before main
std::ostream& error_stream = accel::main_process_cerr();
std::FILE* log_file = accel::main_process_stdout();

// @example accel::Accelerator
void input_and_output(accel::Accelerator& accelerator) {
  int epochs = 1;
  accelerator.cout() << "epochs: ";
  accelerator.cin() >> epochs;
  std::getc(accelerator.c_stdin());
  accelerator.printf("%d epochs\n", epochs);
  accelerator.cerr() << accelerator.plan();
  std::fputs("done\n", accelerator.c_stdout());
  std::fputs("no validation set\n", accelerator.c_stderr());
  std::ofstream log(accelerator.main_process_path("loss.csv"));
  std::ifstream words(accelerator.readable_path("words.txt"));
  FILE* plot = popen(accelerator.main_process_command("gnuplot"), "w");
  pclose(plot);
}

// @example accel::Accelerator
void record(accel::Accelerator& accelerator, torch::Tensor loss) {
  accelerator.init_trackers("digits", {{"lr", 0.1}}, {{"csv", {{"file", "loss.csv"}}}});
  accelerator.log({{"loss", loss.item()}}, /*step=*/1);
  accelerator.get_tracker("csv").finish();
  accelerator.end_training();
}

// @example accel::Profile accel::ProfileOptions accel::ProfileSchedule accel::ProfileActivity accel::Accelerator
void profile_steps(accel::Accelerator& accelerator) {
  auto profile = accelerator.profile(
      accel::ProfileOptions()
          .activities({accel::ProfileActivity::kCPU, accel::ProfileActivity::kCUDA})
          .schedule(accel::ProfileSchedule()
                        .skip_first(2).wait(1).warmup(1).active(3).repeat(1))
          .output_trace_dir("trace")
          .on_trace_ready([](const std::string& file) { std::cerr << file << '\n'; })
          .record_shapes(true)
          .profile_memory(true)
          .with_flops(true));
  for (int step = 0; step < 8; ++step) {
    profile.step();
  }
  profile.stop();
  TORCH_CHECK(profile.files().size() == 1);
}

// @example accel
void anywhere() {
  accel::accelerator().print("The program's Accelerator, from any function.");
  for (const auto& option : accel::options_in_force(accel::AcceleratorOptions())) {
    std::cerr << option.name << " = " << option.value << " (" << option.source << ")\n";
  }
  accel::ResolvedOptions resolved = accel::resolve(accel::AcceleratorOptions().cpu(true));
  TORCH_CHECK(resolved.cpu);
}

// @example accel::AutoWrapPolicy accel::AutoWrap accel::MixedPrecisionPolicy accel::FullyShardedDataParallelPlugin accel::ResolvedOptions
void units_from_a_size() {
  auto options = accel::AcceleratorOptions().match_single_device(true).fsdp_plugin(
      accel::FullyShardedDataParallelPlugin()
          .auto_wrap_policy(accel::AutoWrapPolicy::kSizeBasedWrap)
          .min_num_params(1'000'000));
  const auto in_force = accel::resolve(options);
  const accel::AutoWrap& wrap = in_force.auto_wrap;
  TORCH_CHECK(wrap.policy && wrap.class_names.empty() && wrap.min_num_params == 1'000'000);
  std::cout << accel::to_string(wrap) << in_force.cpu_offload
            << in_force.forward_prefetch.value_or(false)
            << accel::to_string(in_force.backward_prefetch.value_or(
                   accel::BackwardPrefetch::kNoPrefetch))
            << in_force.activation_checkpointing
            << in_force.reduce_dtype.has_value() << '\n';
  TORCH_CHECK(!accel::MixedPrecisionPolicy().output_dtype());
}

// @example accel::OptionInForce accel::BackwardPrefetch accel::MixedPrecisionPolicy accel::FullyShardedDataParallelPlugin accel::ShardingStrategy accel::StateDictType
std::string sources_of_options() {
  std::string text;
  auto options = accel::AcceleratorOptions().fsdp_plugin(
      accel::FullyShardedDataParallelPlugin()
          .sharding_strategy(accel::ShardingStrategy::kShardGradOp)
          .fsdp_version(2)
          .state_dict_type(accel::StateDictType::kShardedStateDict)
          .auto_wrap_policy(accel::AutoWrapPolicy::kTransformerBasedWrap)
          .transformer_cls_names_to_wrap({"Block", "TransformerEncoderLayer"})
          .cpu_offload(true)
          .forward_prefetch(true)
          .backward_prefetch(accel::BackwardPrefetch::kBackwardPost)
          .limit_all_gathers(true)
          .activation_checkpointing(true)
          .mixed_precision_policy(accel::MixedPrecisionPolicy()
                                      .param_dtype(torch::kBFloat16)
                                      .reduce_dtype(torch::kFloat)
                                      .cast_forward_inputs(false)));
  for (const accel::OptionInForce& option : accel::options_in_force(options)) {
    text += option.name + "=" + option.value + " (" + option.source + ")\n";
  }
  return text;
}

// @example accel::DeepSpeedPlugin accel::OffloadOptions accel::ResolvedOptions accel::AcceleratorOptions
accel::AcceleratorOptions in_the_words_of_deepspeed() {
  auto options = accel::AcceleratorOptions().match_single_device(true).deepspeed_plugin(
      accel::DeepSpeedPlugin()
          .hf_ds_config("ds_config.json")
          .zero_stage(3)
          .gradient_accumulation_steps(4)
          .gradient_clipping(1.0)
          .offload_optimizer_device("nvme")
          .offload_optimizer_nvme_path("/scratch")
          .offload_param_device("nvme")
          .offload_param_nvme_path("/scratch")
          .zero3_init_flag(true)
          .zero3_save_16bit_model(false));
  const accel::ResolvedOptions resolved = accel::resolve(options);
  const accel::OffloadOptions& offload = resolved.offload;
  TORCH_CHECK(offload.optimizer && offload.parameters);
  TORCH_CHECK(offload.optimizer_folder == offload.parameters_folder);
  TORCH_CHECK(resolved.gradient_clipping == 1.0 && resolved.zero3_init);
  return options;
}

// @example accel::MegatronLMPlugin accel::ResolvedOptions accel::AcceleratorOptions
accel::AcceleratorOptions in_the_words_of_megatron_lm() {
  auto options = accel::AcceleratorOptions().match_single_device(true).megatron_lm_plugin(
      accel::MegatronLMPlugin()
          .tp_degree(2)
          .pp_degree(1)
          .num_micro_batches(4)
          .gradient_clipping(1.0)
          .sequence_parallelism(false)
          .recompute_activations(true)
          .use_distributed_optimizer(true));
  const accel::ResolvedOptions resolved = accel::resolve(options);
  TORCH_CHECK(resolved.fill_mesh && resolved.parallelism->tp == 2);
  return options;
}

// @example accel::ParallelismConfig accel::ParallelSizes accel::TorchTensorParallelPlugin accel::AcceleratorOptions accel
accel::AcceleratorOptions on_a_mesh() {
  accel::TorchTensorParallelPlugin::Plan words{{"blocks.*.up", "colwise"}, {"blocks.*.down", "rowwise"}};
  auto options = accel::AcceleratorOptions()
      .match_single_device(true)
      .torch_tp_plugin(accel::TorchTensorParallelPlugin().tp_size(2).plan(words))
      .parallelism_config(
          accel::ParallelismConfig()
              .dp_replicate_size(1)
              .dp_shard_size(2)
              .cp_size(1)
              .sp_size(1)
              .tp_size(2));
  const accel::ResolvedOptions resolved = accel::resolve(options);
  const accel::ParallelSizes sizes = resolved.parallelism.value();
  TORCH_CHECK(sizes.product() == 4 && sizes.data() == 2 && resolved.tp_plan == words);
  TORCH_CHECK(sizes.dp_replicate * sizes.dp_shard * sizes.cp * sizes.sp * sizes.tp == 4);
  std::cerr << accel::to_string(sizes) << '\n'; // dp_shard 2, tp 2
  return options;
}

// @example accel::CpCommStrategy accel::TorchContextParallelConfig accel::ParallelismConfig accel::ResolvedOptions accel
accel::AcceleratorOptions keys_and_values_in_a_ring() {
  const auto ring = accel::TorchContextParallelConfig().cp_comm_strategy(accel::CpCommStrategy::kAlltoall);
  auto options = accel::AcceleratorOptions().match_single_device(true).parallelism_config(
      accel::ParallelismConfig().cp_size(2).cp_handler(ring));
  const accel::ResolvedOptions resolved = accel::resolve(options);
  TORCH_CHECK(resolved.cp_comm_strategy == accel::CpCommStrategy::kAlltoall);
  std::cerr << accel::to_string(resolved.cp_comm_strategy) << '\n'; // alltoall
  return options;
}

// @example accel::ShardedInitGuard
void a_model_that_no_process_holds(accel::Accelerator& accelerator) {
  auto model = [] {
    accel::ShardedInitGuard guard;
    return torch::nn::Linear(4096, 4096);
  }();
  accel::checkpoint::load_model(*model, "model/model.safetensors");
  accelerator.prepare(model);
}

// @example accel::Accelerator
void on_which_place(accel::Accelerator& accelerator) {
  const auto mesh = accelerator.device_mesh();
  std::cerr << mesh.str() << ": " << accelerator.data_parallel_rank() << ", "
            << accelerator.data_parallel_shard_rank() << ", "
            << accelerator.context_parallel_rank() << ", "
            << accelerator.tensor_parallel_rank() << '\n';
}

// @example accel::Accelerator accel::ContextParallelGuard
void sequences_in_parts(accel::Accelerator& accelerator, torch::nn::Embedding& table) {
  auto words = torch::randint(11, {2, 4096}, torch::kLong);
  accel::ContextParallelGuard context = accelerator.maybe_context_parallel({words}, {1}, {words});
  accelerator.print(table->forward(words).sum());
}

// @example accel
torch::Tensor in_less_memory(std::vector<torch::nn::Sequential>& blocks, torch::Tensor x) {
  for (auto& block : blocks) {
    x = accel::checkpoint_activations(
        [block](const torch::Tensor& y) mutable { return block->forward(y); }, x);
  }
  return x;
}

// @example accel accel::LomoOptions
void update_in_backward(torch::nn::Linear model, const torch::Tensor& batch, const torch::Tensor& target) {
  accel::Accelerator accelerator;
  accelerator.prepare(model);
  auto loss = torch::mse_loss(model->forward(batch), target);
  accel::lomo_backward(
      loss, /*learning_rate=*/1e-3, accel::LomoOptions().clip_grad_value(1).clip_grad_norm(10));
}

// @example accel::GradientState
void last_batch(accel::Accelerator& accelerator) {
  const accel::GradientState& state = accel::GradientState::get();
  if (state.in_dataloader() && state.end_of_dataloader() && state.sync_gradients) {
    accelerator.print("samples of the last batch:", state.remainder(), state.num_steps);
  }
}
