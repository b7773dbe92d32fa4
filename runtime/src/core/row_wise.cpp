#include <accel/accelerator.h>
#include <accel/data/whole_batch.h>
#include <accel/row_wise.h>

#include <ATen/ATen.h>
#include <ATen/Context.h>
#include <torch/csrc/jit/api/function_impl.h>
#include <torch/csrc/jit/api/module.h>
#include <torch/csrc/jit/ir/constants.h>
#include <torch/csrc/jit/ir/ir.h>
#include <torch/csrc/jit/passes/inliner.h>
#include <torch/csrc/jit/runtime/graph_executor.h>

#include <algorithm>
#include <list>
#include <map>
#include <mutex>
#include <set>
#include <string>

namespace accel {
namespace {

using c10::IValue;
using torch::jit::Block;
using torch::jit::Graph;
using torch::jit::Module;
using torch::jit::Node;
using torch::jit::Value;

constexpr const char* kRemedy =
    " Write it as a torch::nn::Module, which accel-migrate can look into, or "
    "train it with one process.";

/// Whether the tensor is made of sizes alone, as tracing writes
/// `x.view({x.size(0), -1})`.
bool made_of_sizes(const Value* value) {
  const Node* node = value->node();
  if (node->kind() == c10::prim::NumToTensor ||
      node->kind() == c10::prim::Constant) {
    return true;
  }
  const auto inputs = node->inputs();
  return node->kind().is_aten() && !inputs.empty() &&
      std::all_of(inputs.begin(), inputs.end(), [](const Value* input) {
           return made_of_sizes(input);
         });
}

/// The first operation that turns what tensors hold into what the program does
/// next, or into a shape: whether it keeps samples apart may then depend on
/// them. Null where there is none.
const Node* reads_numbers(const Block* block) {
  static const std::set<std::string> reading = {
      "aten::Bool",           "aten::Int",
      "aten::Float",          "aten::item",
      "aten::is_nonzero",     "aten::IntImplicit",
      "aten::FloatImplicit",  "aten::ScalarImplicit",
      "aten::equal",          "aten::allclose",
      "aten::tolist",         "prim::tolist",
      "aten::nonzero",        "aten::nonzero_numpy",
      "aten::masked_select",  "aten::unique_dim",
      "aten::_unique2",       "aten::unique_consecutive",
      "aten::bincount",       "prim::RaiseException"};
  for (const Node* node : block->nodes()) {
    if (reading.count(node->kind().toQualString()) != 0) {
      const auto inputs = node->inputs();
      const bool tensors = std::any_of(
          inputs.begin(), inputs.end(), [](const Value* input) {
            return input->type()->isSubtypeOf(*c10::TensorType::get()) &&
                !made_of_sizes(input);
          });
      if (tensors) {
        return node;
      }
    }
    for (const Block* inner : node->blocks()) {
      if (const Node* found = reads_numbers(inner)) {
        return found;
      }
    }
  }
  return nullptr;
}

/// The model's forward with the submodules' in it.
std::shared_ptr<Graph> graph_of(const Module& model) {
  auto graph = model.get_method("forward").graph()->copy();
  torch::jit::Inline(*graph);
  return graph;
}

void check_graph(const Graph& graph) {
  const Node* node = reads_numbers(graph.block());
  TORCH_CHECK(
      node == nullptr,
      "accel: row_wise: what the TorchScript model does depends on the numbers "
      "in its tensors (",
      node == nullptr ? "" : node->kind().toQualString(),
      "), so that nobody can tell whether it always keeps the samples of a "
      "batch apart.",
      kRemedy);
}

/// Rows [begin, begin + count) of what has `rows` of them.
std::vector<IValue> part_of(
    const std::vector<IValue>& inputs,
    int64_t rows,
    int64_t begin,
    int64_t count) {
  std::vector<IValue> part;
  for (const auto& input : inputs) {
    const bool batch = input.isTensor() && input.toTensor().dim() > 0 &&
        input.toTensor().size(0) == rows;
    part.emplace_back(
        batch ? IValue(input.toTensor().narrow(0, begin, count)) : input);
  }
  return part;
}

/// The tensors in a result, in order.
void collect(const IValue& value, std::vector<at::Tensor>& into) {
  if (value.isTensor()) {
    into.push_back(value.toTensor());
  } else if (value.isTuple()) {
    for (const auto& element : value.toTupleRef().elements()) {
      collect(element, into);
    }
  } else if (value.isList()) {
    for (const IValue& element : value.toListRef()) {
      collect(element, into);
    }
  } else if (value.isGenericDict()) {
    for (const auto& entry : value.toGenericDict()) {
      collect(entry.value(), into);
    }
  }
}

/// Lets batch norm and dropout do what they do in evaluation, whatever the model
/// says: in training the runtime does them for the global batch, so that they
/// are no reason to refuse a model.
void quieten(Block* block) {
  static const std::map<std::string, size_t> training = {
      {"aten::batch_norm", 5},
      {"aten::dropout", 2},
      {"aten::dropout_", 2},
      {"aten::feature_dropout", 2},
      {"aten::feature_dropout_", 2},
      {"aten::alpha_dropout", 2},
      {"aten::alpha_dropout_", 2},
      {"aten::feature_alpha_dropout", 2},
      {"aten::feature_alpha_dropout_", 2}};
  for (Node* node : block->nodes()) {
    const auto found = training.find(node->kind().toQualString());
    if (found != training.end()) {
      const torch::jit::WithInsertPoint here(node);
      node->replaceInput(
          found->second, node->owningGraph()->insertConstant(false));
    }
    for (Block* inner : node->blocks()) {
      quieten(inner);
    }
  }
}

/// Runs a graph of a model as it stands. TorchScript's own executors put
/// derivatives of their own in the place of autograd's: a batch norm would be
/// differentiated as if this process's rows were all, and dropout would draw
/// other numbers.
class PlainForward {
 public:
  PlainForward(const Module& model, std::shared_ptr<Graph> graph)
      : schema_(model.get_method("forward").function().getSchema()),
        function_(
            "forward",
            std::move(graph),
            nullptr,
            torch::jit::ExecutorExecutionMode::SIMPLE) {}

  IValue operator()(const Module& model, std::vector<IValue> inputs) {
    inputs.insert(inputs.begin(), model._ivalue());
    schema_.checkAndNormalizeInputs(inputs); // adds the defaults
    const torch::jit::GraphOptimizerEnabledGuard as_it_stands(false);
    return function_(std::move(inputs));
  }

 private:
  const c10::FunctionSchema schema_;
  torch::jit::GraphFunction function_;
};

/// How far results of the same row may be apart: kernels add in another order
/// for another number of rows.
double allowed(at::ScalarType type) {
  switch (type) {
    case at::kDouble:
      return 1e-9;
    case at::kHalf:
    case at::kBFloat16:
      return 3e-2;
    default:
      return 1e-4;
  }
}

/// Whether `part` is rows [begin, …) of `whole`.
bool same_rows(const at::Tensor& whole, const at::Tensor& part, int64_t begin) {
  if (!whole.is_floating_point() && !whole.is_complex()) {
    return at::equal(whole.narrow(0, begin, part.size(0)), part);
  }
  const auto expected = whole.narrow(0, begin, part.size(0));
  const auto finite = at::where(whole.isfinite(), whole, 0);
  const double size = finite.numel() == 0
      ? 0
      : finite.abs().max().to(at::kDouble).item<double>();
  return at::allclose(
      part,
      expected,
      /*rtol=*/0,
      /*atol=*/allowed(whole.scalar_type()) * size + 1e-30,
      /*equal_nan=*/true);
}

/// Random numbers that are drawn while one lives are drawn again after it.
class SameRandomNumbers {
 public:
  explicit SameRandomNumbers(c10::Device device) {
    keep(at::globalContext().defaultGenerator(at::kCPU));
    if (!device.is_cpu()) {
      keep(at::globalContext().defaultGenerator(device));
    }
  }
  ~SameRandomNumbers() {
    for (auto& [generator, state] : states_) {
      const std::lock_guard<std::mutex> lock(generator.mutex());
      generator.set_state(state);
    }
  }
  SameRandomNumbers(const SameRandomNumbers&) = delete;
  SameRandomNumbers& operator=(const SameRandomNumbers&) = delete;

 private:
  void keep(at::Generator generator) {
    const std::lock_guard<std::mutex> lock(generator.mutex());
    auto state = generator.get_state();
    states_.emplace_back(std::move(generator), std::move(state));
  }
  std::vector<std::pair<at::Generator, at::Tensor>> states_;
};

/// Calls a copy of the model, by its `quiet` graph, on all rows and on two parts
/// of them.
void check_rows(
    const Module& model,
    PlainForward& quiet,
    const std::vector<IValue>& inputs,
    int64_t rows) {
  const at::NoGradGuard no_grad;
  const detail::WholeBatchGuard as_they_are;
  const SameRandomNumbers same(inputs[0].toTensor().device());
  const Module copy = model.deepcopy();
  const auto results = [&](int64_t begin, int64_t count) {
    std::vector<at::Tensor> tensors;
    try {
      collect(quiet(copy, part_of(inputs, rows, begin, count)), tensors);
    } catch (const std::exception& error) {
      TORCH_CHECK(
          count == rows,
          "accel: row_wise: the TorchScript model takes ",
          rows,
          " rows but not ",
          count,
          ": a size of the batch is written into it, so that it cannot work on "
          "a process's part.",
          kRemedy,
          " It said: ",
          error.what());
      throw;
    }
    return tensors;
  };
  const int64_t half = rows / 2;
  const auto whole = results(0, rows);
  for (const auto& [begin, count] :
       {std::pair<int64_t, int64_t>{0, half}, {half, rows - half}}) {
    const auto part = results(begin, count);
    TORCH_CHECK(
        part.size() == whole.size(),
        "accel: row_wise: the TorchScript model returns ",
        whole.size(),
        " tensors for ",
        rows,
        " rows and ",
        part.size(),
        " for ",
        count,
        ".",
        kRemedy);
    for (size_t i = 0; i < whole.size(); ++i) {
      TORCH_CHECK(
          whole[i].dim() > 0 && whole[i].size(0) == rows &&
              part[i].dim() == whole[i].dim() && part[i].size(0) == count &&
              part[i].sizes().slice(1) == whole[i].sizes().slice(1),
          "accel: row_wise: the TorchScript model does not return one row for "
          "each sample: sizes ",
          whole[i].sizes(),
          " for ",
          rows,
          " rows, ",
          part[i].sizes(),
          " for ",
          count,
          ".",
          kRemedy);
      TORCH_CHECK(
          same_rows(whole[i], part[i], begin),
          "accel: row_wise: the TorchScript model does not keep the samples of "
          "a batch apart: what it returns for a row depends on the rows beside "
          "it, which are ",
          rows,
          " on this process.",
          kRemedy);
    }
  }
}

/// Which of the model's parts are in training: what it does may depend on that.
std::string mode_of(const Module& model) {
  std::string mode;
  for (const Module& part : model.modules()) {
    mode += part.is_training() ? 't' : 'e';
  }
  return mode;
}

/// What is known of a model.
struct Known {
  c10::weak_intrusive_ptr<c10::ivalue::Object> model;
  /// The modes in which it has been looked at.
  std::set<std::string> modes;
  std::shared_ptr<PlainForward> forward;
  /// The same without batch norm and dropout, for the look.
  std::shared_ptr<PlainForward> quiet;
};

/// That of `model`, which is kept while the model lives. Throws where its graph
/// alone tells that it cannot be called on rows.
Known& known(const Module& model) {
  static std::mutex mutex;
  static std::list<Known> all;
  const std::lock_guard<std::mutex> lock(mutex);
  all.remove_if([](const Known& one) { return one.model.expired(); });
  for (auto& one : all) {
    if (one.model.lock() == model._ivalue()) {
      return one;
    }
  }
  auto graph = graph_of(model);
  check_graph(*graph);
  auto quiet = graph->copy();
  quieten(quiet->block());
  all.push_back(
      {c10::weak_intrusive_ptr<c10::ivalue::Object>(model._ivalue()),
       {},
       std::make_shared<PlainForward>(model, std::move(graph)),
       std::make_shared<PlainForward>(model, std::move(quiet))});
  return all.back();
}

} // namespace

RowWiseModel::RowWiseModel(const Module& model, bool look)
    : model_(std::make_shared<Module>(model)), look_(look) {}

IValue RowWiseModel::forward(std::vector<IValue> inputs) {
  if (!look_) {
    return model_->forward(std::move(inputs));
  }
  TORCH_CHECK(
      !inputs.empty() && inputs[0].isTensor() && inputs[0].toTensor().dim() > 0,
      "accel: row_wise: the first input of the TorchScript model is no tensor "
      "with a row for each sample.");
  Known& about = known(*model_);
  const std::string mode = mode_of(*model_);
  if (about.modes.count(mode) == 0) {
    // One row tells nothing; a larger batch will, here or elsewhere.
    if (const int64_t rows = inputs[0].toTensor().size(0); rows > 1) {
      check_rows(*model_, *about.quiet, inputs, rows);
      about.modes.insert(mode);
    }
  }
  return (*about.forward)(*model_, std::move(inputs));
}

RowWiseModel Accelerator::row_wise(const Module& model) const {
  return RowWiseModel(model, num_processes() > 1);
}

} // namespace accel
