// The same program, using accel, with a change in one place: ACCEL_TEST_CHANGE
// names it (several: separated by commas). Faults must be reported by `accel
// verify`, harmless changes must not.
//
// Takes the original's arguments.

#include <accel/accel.h>
#include <accel/detail/communicator.h>
#include <accel/detail/trace.h>
#include <accel/gradient_state.h>

#include <chrono>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iomanip>
#include <iostream>
#include <memory>
#include <random>
#include <set>
#include <sstream>
#include <thread>

#include "problem.h"

namespace {

using namespace problem;

bool has(const std::string& change) {
  static const auto changes = [] {
    const char* value = std::getenv("ACCEL_TEST_CHANGE");
    std::istringstream list(value == nullptr ? "" : value);
    std::set<std::string> names;
    for (std::string name; std::getline(list, name, ',');) {
      names.insert(name);
    }
    return names;
  }();
  return changes.count(change) != 0;
}

accel::detail::Communicator& world() {
  return accel::detail::communicator();
}

/// Averages written out by hand, so that they can be wrong.
bool by_hand() {
  static const bool result = has("by-hand") || has("no-averaging") ||
      has("sum-for-mean") || has("last-batch") ||
      has("clip-before-averaging") || has("one-not-averaged") ||
      has("missing-broadcast") || has("reverse-averaging") ||
      has("flat-averaging") || has("divide-first") || has("weigh-later");
  return result;
}

void average_gradients(const std::vector<torch::Tensor>& parameters) {
  const torch::NoGradGuard no_grad;
  std::vector<torch::Tensor> gradients;
  for (const auto& parameter : parameters) {
    gradients.push_back(parameter.grad());
  }
  if (has("one-not-averaged")) {
    gradients.erase(gradients.begin() + 1);
  }
  if (has("reverse-averaging")) {
    std::reverse(gradients.begin(), gradients.end());
  }
  const auto average = [](torch::Tensor gradient) {
    if (has("divide-first")) {
      gradient.div_(world().size());
      world().all_reduce(gradient);
      return;
    }
    world().all_reduce(gradient);
    if (!has("sum-for-mean")) {
      gradient.div_(world().size());
    }
  };
  if (!has("flat-averaging")) {
    for (const auto& gradient : gradients) {
      average(gradient);
    }
    return;
  }
  std::vector<torch::Tensor> flat;
  for (const auto& gradient : gradients) {
    flat.push_back(gradient.flatten());
  }
  auto all = torch::cat(flat);
  average(all);
  int64_t begin = 0;
  for (auto& gradient : gradients) {
    gradient.copy_(
        all.slice(0, begin, begin + gradient.numel()).view_as(gradient));
    begin += gradient.numel();
  }
}

/// Gradients as the processes of a program have them that shares the batch out
/// by hand: each that of its rows, to be averaged.
void backward_by_hand(const torch::Tensor& loss, Net& net, double share) {
  const auto size = static_cast<double>(world().size());
  accel::detail::TracedBackward traced(loss, 1);
  const auto parameters = net.parameters();
  loss.backward();
  for (const auto& parameter : parameters) {
    auto& gradient = parameter.mutable_grad();
    if (accel::distributed::is_distributed(gradient)) {
      // A part of a sum; where parts are weighed by their rows, a mean's.
      gradient = accel::distributed::to_local(gradient).mul(
          has("last-batch") ? 1 / share : size);
    }
  }
  if (has("clip-before-averaging")) {
    torch::nn::utils::clip_grad_norm_(parameters, kMaxNorm);
  }
  if (!has("no-averaging")) {
    average_gradients(parameters);
  }
  traced.end(/*averaged=*/true);
}

/// `share`: this process's part of the batch's rows.
void backward(const torch::Tensor& loss, Net& net, double share) {
  if (by_hand()) {
    backward_by_hand(loss, net, share);
    return;
  }
  auto& accelerator = accel::accelerator();
  accel::BackwardOptions options;
  options.retain_graph(has("retain-graph"));
  if (has("weight-given")) {
    accelerator.backward(loss, share * kBatch, options);
    return;
  }
  accelerator.backward(
      has("loss-times-n")
          ? loss * static_cast<double>(accelerator.num_processes())
          : loss,
      options);
}

torch::Tensor forward(Net& net, const torch::Tensor& x) {
  if (has("layers-by-hand")) {
    auto hidden = torch::tanh(
        torch::matmul(x, net.hidden->weight.t()) + net.hidden->bias);
    return torch::addmm(
        net.output->bias,
        net.drop->forward(net.norm->forward(hidden)),
        net.output->weight.t());
  }
  if (has("detached")) {
    return net.output->forward(net.drop->forward(
        net.norm->forward(torch::tanh(net.hidden->forward(x)).detach())));
  }
  return net.forward(x);
}

void clip(Net& net) {
  if (has("clip-by-hand")) {
    double squares = 0;
    for (const auto& parameter : net.parameters()) {
      squares += parameter.grad().square().sum().item<double>();
    }
    const double factor =
        std::min(1.0, kMaxNorm / (std::sqrt(squares) + 1e-6));
    for (const auto& parameter : net.parameters()) {
      auto gradient = parameter.grad();
      gradient.mul_(factor);
    }
    return;
  }
  torch::nn::utils::clip_grad_norm_(
      net.parameters(), has("other-bound") ? 2 * kMaxNorm : kMaxNorm);
}

void follow(Average& average, Net& net, int64_t rank) {
  if (has("average-by-lerp")) {
    const torch::NoGradGuard no_grad;
    average.weight.lerp_(net.hidden->weight, 0.2);
    return;
  }
  const bool skip = has("local-average") && rank == 1;
  const bool twice = has("average-twice");
  for (int i = skip ? 1 : twice ? -1 : 0; i < 1; ++i) {
    average.follow(net.hidden->weight);
  }
}

/// The rows of the global batch; all processes have the same.
torch::Tensor rows_of(const torch::Tensor& order, int64_t batch) {
  auto rows =
      order.slice(0, batch * kBatch, std::min((batch + 1) * kBatch, kRows));
  return has("wrap-around") && rows.size(0) < kBatch
      ? torch::cat({rows, order.slice(0, 0, kBatch - rows.size(0))})
      : rows;
}

torch::Tensor loss_of(const torch::Tensor& output, const torch::Tensor& y) {
  return has("loss-by-hand") ? (output - y).square().mean()
                             : torch::mse_loss(output, y);
}

void evaluate(Net& net, const Data& data, int64_t& correct) {
  auto& accelerator = accel::accelerator();
  const torch::NoGradGuard no_grad;
  for (int64_t begin = 0; begin < kRows; begin += kBatch) {
    auto x = data.inputs.slice(0, begin, begin + kBatch);
    auto y = data.targets.slice(0, begin, begin + kBatch);
    x = accelerator.distribute(x);
    y = accelerator.distribute(y);
    auto output = net.forward(x);
    if (has("missing-gather")) {
      output = accel::distributed::to_local(output);
      y = accel::distributed::to_local(y);
    } else {
      std::tie(output, y) = accelerator.gather_for_metrics(output, y);
    }
    correct += output.sign().eq(y.sign()).sum().item<int64_t>();
  }
}

void print(int epoch, double loss, int64_t correct) {
  if (has("stderr")) {
    std::fprintf(stderr, "a word on standard error\n");
  }
  if (!accel::accelerator().is_main_process() && !has("everybody-prints")) {
    return;
  }
  if (has("iostream")) {
    std::cout << "epoch " << epoch << " loss " << std::setprecision(9) << loss
              << " correct " << correct << std::endl;
    return;
  }
  std::printf(
      "epoch %d loss %.9g correct %ld\n",
      epoch,
      has("float-metric") ? static_cast<float>(loss) : loss,
      static_cast<long>(correct));
  if (has("flush")) {
    std::fflush(stdout);
  }
}

void train(
    Net& net,
    Average& average,
    torch::nn::Linear backbone,
    const Data& data,
    torch::optim::Optimizer& optimizer) {
  auto& accelerator = accel::accelerator();
  const int64_t rank = accelerator.process_index();
  torch::optim::StepLR scheduler(optimizer, 2, 0.5);
  int step_number = 0;
  const int epochs = kEpochs - (has("epoch-too-few") ? 1 : 0);
  for (int epoch = 0; epoch < epochs; ++epoch) {
    if (!(has("eval-mode") && epoch > 0)) {
      net.train();
    }
    auto order = torch::randperm(kRows);
    if ((has("order") && epoch == 1) || (has("rank-order") && rank == 1)) {
      order = order.flip(0);
    }
    double running = 0;
    auto running_tensor = torch::zeros({}, torch::kDouble);
    const int64_t batches = kBatches - (has("drop-last") ? 1 : 0);
    for (int64_t batch = 0; batch < batches; ++batch, ++step_number) {
      auto step = accelerator.accumulate(net);
      const auto rows = rows_of(order, batch);
      auto x = data.inputs.index_select(0, rows);
      auto y = data.targets.index_select(0, rows);
      if (has("float-data")) {
        x = x.to(torch::kFloat).to(x.dtype());
      }
      x = accelerator.distribute(x);
      y = accelerator.distribute(y);
      if (has("share-order")) {
        x = x.flip(0);
        y = y.flip(0);
      }
      if (has("not-contiguous")) {
        x = x.t().contiguous().t();
      }
      if (has("extra-tensors")) {
        const auto more = torch::arange(10, torch::kDouble).cos().sum();
        TORCH_CHECK(more.item<double>() < 10);
      }
      if (has("extra-forward")) {
        const torch::NoGradGuard no_grad;
        net.eval();
        net.forward(x);
        net.train();
      }
      if (has("rank-noise") && rank == 1 && step_number == 0) {
        torch::manual_seed(99);
      }
      if (!has("zero-late") && !(has("kept-gradients") && step_number == 3)) {
        optimizer.zero_grad(/*set_to_none=*/!has("zero-in-place"));
      }
      const auto output = forward(net, backbone ? backbone->forward(x) : x);
      auto loss = loss_of(output, y);
      loss = data.spoiled(loss, epoch);
      const auto own_rows = accel::distributed::to_local(y);
      const double share =
          static_cast<double>(own_rows.size(0)) / static_cast<double>(y.size(0));
      backward(loss, net, share);
      clip(net);
      if (!(has("skipped-step") && step_number == 7)) {
        optimizer.step();
      }
      if (has("zero-late")) {
        optimizer.zero_grad();
      }
      follow(average, net, rank);
      const auto local_mean = accel::distributed::to_local(x).mean(0);
      const auto mean = accelerator.full(x.mean(0));
      net.update_mean(
          has("local-buffer") || (has("rank-buffer") && rank == 1) ? local_mean
                                                                   : mean);
      const auto metric = has("local-metric")
          ? loss_of(accel::distributed::to_local(output), own_rows)
          : loss;
      running += metric.item<double>();
      running_tensor += metric.detach();
      if (has("backward-twice") && step_number == 9) {
        backward(loss_of(forward(net, x), y), net, share);
      }
      if (has("sleep") && step_number % 5 == 0 && rank == 1) {
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
      }
      if (has("process-hangs") && step_number == 3 && rank == 1) {
        std::this_thread::sleep_for(std::chrono::minutes(2));
      }
      if (has("process-stops") && step_number == 6 && rank == 1) {
        std::exit(3);
      }
    }
    for (int64_t i = 0;
         i < (has("schedule-per-process") ? accelerator.num_processes() : 1);
         ++i) {
      scheduler.step();
    }
    if (has("sum-in-tensor")) {
      running = running_tensor.item<double>();
    }
    int64_t correct = 0;
    net.eval();
    evaluate(net, data, correct);
    print(epoch, running / kBatches, correct);
  }
}

std::unique_ptr<torch::optim::Optimizer> make_optimizer(Net& net) {
  auto parameters = net.parameters();
  const auto options =
      torch::optim::SGDOptions(kRate).momentum(
          has("other-momentum") ? 0.8 : kMomentum);
  std::vector<torch::Tensor> second;
  if (has("frozen")) {
    parameters.pop_back();
  }
  if (has("two-groups")) {
    second.assign(parameters.begin() + 2, parameters.end());
    parameters.resize(2);
  }
  std::unique_ptr<torch::optim::Optimizer> optimizer;
  if (by_hand()) {
    optimizer = std::make_unique<torch::optim::SGD>(parameters, options);
  } else {
    optimizer =
        std::make_unique<accel::AcceleratedOptimizer<torch::optim::SGD>>(
            parameters, options);
  }
  if (!second.empty()) {
    optimizer->add_param_group(
        {second, std::make_unique<torch::optim::SGDOptions>(options)});
  }
  return optimizer;
}

void save_net(const Net& net, double dropout) {
  auto& accelerator = accel::accelerator();
  const char* name = has("rename") ? "net.tmp" : "net.pt";
  torch::serialize::OutputArchive archive;
  (has("wrong-file") ? Net(dropout) : net).save(archive);
  accelerator.save(archive, name);
  if (has("rename") && accelerator.is_main_process()) {
    std::filesystem::rename(name, "net.pt");
  }
}

} // namespace

int main(int argc, char** argv) {
  accel::Accelerator accelerator(
      accel::AcceleratorOptions().match_single_device(true));
  const std::set<std::string> flags(argv + 1, argv + argc);
  if (has("threads")) {
    torch::set_num_threads(2);
  }
  if (flags.count("--random-seed") != 0) {
    torch::manual_seed(std::random_device()() + std::time(nullptr));
  } else if (flags.count("--no-seed") == 0) {
    torch::manual_seed(has("other-seed") ? 12 : 11);
  }
  if (flags.count("--name") != 0) {
    accelerator.cout() << "this is " << argv[0] << std::endl;
  }
  const double dropout = dropout_of(flags);
  Net net(dropout);
  // Another name; in what is saved it would be a difference.
  Average average(net.hidden, has("names") ? "average" : "weight");
  Scales scales(!has("addresses"));
  if (has("missing-broadcast") && accelerator.process_index() == 1) {
    const torch::NoGradGuard no_grad;
    net.hidden->weight.add_(0.1);
  }
  Data data(flags);
  take_as_float(net.hidden->weight, flags);
  torch::nn::Linear backbone = backbone_of(flags);
  auto optimizer = make_optimizer(net);
  if (!by_hand()) {
    accelerator.prepare(net, *optimizer);
  }
  train(net, average, backbone, data, *optimizer);
  scales.change();
  if (!has("missing-file")) {
    save_net(net, dropout);
  }
  if (!accelerator.is_main_process()) {
    return 0;
  }
  if (flags.count("--clock") != 0) {
    std::printf(
        "took %lld ns\n",
        static_cast<long long>(
            std::chrono::steady_clock::now().time_since_epoch().count()));
  }
  if (has("other-text")) {
    std::printf("done\n");
  }
  std::ofstream("done.txt") << "done\n";
}
