// The rows of a batch split before a model is called and gathered behind it, so
// that autograd goes through both. What every process has in full has the same
// gradient g everywhere. What is split has, on each process, the gradient of its
// rows times the number of processes: parameters then get sums whose average
// over the processes, which `backward` takes, is the gradient of the whole
// batch. So
//
//   gather, backward: the rows' part of g, times the number of processes;
//   scatter, backward: the rows of all processes, divided by their number.
//
// Each is the other's derivative, which makes higher derivatives right, too.

#include <accel/detail/data_parallel.h>

#include "core/gathering.h"
#include "core/runtime.h"
#include "core/share_guard.h"

#include <accel/batch_share.h>
#include <accel/gradient_state.h>

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

namespace accel::detail {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::Function;
using torch::autograd::variable_list;

/// How rows are dealt out: `per_sample` of them for each of `global` samples.
struct Dealt {
  int64_t global = 0;
  int64_t per_sample = 1;

  BatchShare own() const {
    const auto& processes = communicator();
    return BatchShare::of(global, processes.rank(), processes.size());
  }
  void save(AutogradContext* context) const {
    context->saved_data["global"] = global;
    context->saved_data["per_sample"] = per_sample;
  }
  static Dealt saved(AutogradContext* context) {
    return {
        context->saved_data["global"].toInt(),
        context->saved_data["per_sample"].toInt()};
  }
};

at::Tensor gather_rows(const at::Tensor& part, Dealt dealt, Channel channel);

/// This process's rows. `counting`: a ghost has zeros, since its rows do not
/// count; else it has its two rows.
at::Tensor scatter_rows(const at::Tensor& whole, Dealt dealt, bool counting);

class Gather : public Function<Gather> {
 public:
  static at::Tensor forward(
      AutogradContext* context,
      const at::Tensor& part,
      int64_t global,
      int64_t per_sample,
      int64_t channel) {
    Dealt{global, per_sample}.save(context);
    return gather_parts(
        communicator(static_cast<Channel>(channel)), part, global, per_sample);
  }
  static variable_list backward(
      AutogradContext* context,
      const variable_list& gradients) {
    const auto processes = static_cast<double>(communicator().size());
    const auto rows = scatter_rows(
        gradients[0], Dealt::saved(context), /*counting=*/true);
    return {rows * processes, at::Tensor(), at::Tensor(), at::Tensor()};
  }
};

class Scatter : public Function<Scatter> {
 public:
  static at::Tensor forward(
      AutogradContext* context,
      const at::Tensor& whole,
      int64_t global,
      int64_t per_sample,
      bool counting) {
    const Dealt dealt{global, per_sample};
    dealt.save(context);
    const auto own = dealt.own();
    const auto rows = whole.narrow(
        0, own.offset * per_sample, own.rows() * per_sample);
    // No view: models may work in place on their input.
    return own.ghost() && counting ? at::zeros_like(rows) : rows.clone();
  }
  static variable_list backward(
      AutogradContext* context,
      const variable_list& gradients) {
    const auto processes = static_cast<double>(communicator().size());
    // While backward runs, the main channel is the program's.
    const auto whole = gather_rows(
        gradients[0], Dealt::saved(context), Channel::kStatistics);
    return {whole / processes, at::Tensor(), at::Tensor(), at::Tensor()};
  }
};

at::Tensor gather_rows(const at::Tensor& part, Dealt dealt, Channel channel) {
  return Gather::apply(
      part, dealt.global, dealt.per_sample, static_cast<int64_t>(channel));
}

at::Tensor scatter_rows(const at::Tensor& whole, Dealt dealt, bool counting) {
  return Scatter::apply(whole, dealt.global, dealt.per_sample, counting);
}

} // namespace

struct DataParallelCall::Step {
  Step(Runtime& runtime, const BatchShare& share)
      : runtime(runtime), share(share), guard(GradientState::get(), share) {}

  Runtime& runtime;
  /// The whole inputs.
  std::vector<at::Tensor> inputs;
  BatchShare share;
  ShareGuard guard;
};

DataParallelCall::DataParallelCall(
    Runtime& runtime,
    const std::vector<at::Tensor>& rows) {
  TORCH_CHECK(
      !rows.empty(),
      "accel: data_parallel was given no tensor whose rows could be shared out.");
  for (const auto& tensor : rows) {
    TORCH_CHECK(
        tensor.dim() > 0 && tensor.size(0) > 0 &&
            tensor.size(0) == rows.front().size(0),
        "accel: data_parallel was given tensors of sizes ",
        rows.front().sizes(),
        " and ",
        tensor.sizes(),
        ". All are split along dimension 0 and must have equally many rows "
        "there, at least one. Use what is no batch inside of a lambda: "
        "data_parallel([&](const torch::Tensor& x) { return net->forward(x, "
        "table); }, x).");
  }
  runtime.check_same_batch("data_parallel", rows);
  const int64_t global = rows.front().size(0);
  step_ = std::make_unique<Step>(
      runtime,
      BatchShare::of(global, communicator().rank(), communicator().size()));
  const auto& share = step_->share;
  step_->inputs = rows;
  for (const auto& tensor : rows) {
    // No view: what a model does in place must come to all processes.
    parts_.push_back(
        tensor.requires_grad() && at::GradMode::is_enabled()
            ? scatter_rows(tensor, {global, 1}, /*counting=*/false)
            : tensor.detach().narrow(0, share.offset, share.rows()).clone());
  }
}

/// A model that works in place on its input changes it for what comes behind.
void DataParallelCall::bring_changes_back() const {
  const auto& share = step_->share;
  for (size_t i = 0; i < parts_.size(); ++i) {
    const auto& part = parts_[i];
    if (part.is_inference() || part._version() == 0) {
      continue;
    }
    TORCH_CHECK(
        !part.requires_grad(),
        "accel: data_parallel: the model changes its input, of sizes ",
        step_->inputs[i].sizes(),
        ", in place, with a gradient. Give it a copy: data_parallel(net, "
        "x.clone()).");
    const at::NoGradGuard no_grad;
    step_->inputs[i].copy_(
        gather_parts(communicator(), part, share.global, /*multiple=*/1));
  }
}

DataParallelCall::~DataParallelCall() = default;

std::vector<at::Tensor> DataParallelCall::gathered(
    const std::vector<at::Tensor>& outputs) const {
  const auto& share = step_->share;
  // How many rows there are for each sample must be the same everywhere.
  // `wrong`: an output that has no such number, -1 where all have; it travels,
  // so that all processes throw.
  std::vector<at::Tensor> per_sample;
  int64_t wrong = -1;
  for (size_t i = 0; i < outputs.size(); ++i) {
    const auto& tensor = outputs[i];
    if (tensor.dim() > 0 && tensor.size(0) % share.rows() == 0) {
      per_sample.push_back(tensor.detach().unflatten(
          0, at::IntArrayRef{share.rows(), tensor.size(0) / share.rows()}));
    } else {
      per_sample.push_back(tensor.detach().unsqueeze(0));
      wrong = static_cast<int64_t>(i);
    }
  }
  step_->runtime.finish_batch_check();
  bring_changes_back();
  const auto all = check_alike(
      "data_parallel", communicator(), per_sample, /*first_dim=*/1, wrong);
  for (size_t rank = 0; rank < all.size(); ++rank) {
    TORCH_CHECK(
        all[rank] < 0,
        "accel: data_parallel: the model returns a tensor of sizes ",
        outputs[static_cast<size_t>(all[rank])].sizes(),
        " for this process's ",
        share.rows(),
        " of the ",
        share.global,
        " rows of the batch. It must have a row, or a fixed number of rows, for "
        "each of them; a number that is calculated over the batch belongs "
        "behind the call, on the output of all rows.");
  }
  std::vector<at::Tensor> result;
  for (const auto& tensor : outputs) {
    result.push_back(gather_rows(
        tensor,
        {share.global, tensor.size(0) / share.rows()},
        Channel::kMain));
  }
  return result;
}

} // namespace accel::detail
