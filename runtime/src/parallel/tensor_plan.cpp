#include "parallel/tensor_plan.h"

#include "core/environment.h"
#include "core/named_modules.h"
#include "core/plain_text.h"

#include <c10/util/Exception.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/normalization.h>
#include <torch/nn/modules/transformerlayer.h>

#include <algorithm>
#include <map>
#include <set>

namespace accel::parallel {
namespace {

namespace nn = torch::nn;
using distributed::Placement;
using distributed::Replicate;
using distributed::Shard;

enum class Word { kColwise, kRowwise, kReplicate, kSequence };

/// `SequenceParallel` may say in which dimension: `(sequence_dim=0)`.
struct ReadWord {
  Word word;
  std::optional<int64_t> sequence_dim;
};

ReadWord read_word(const std::string& name, const std::string& word) {
  static const std::map<std::string, Word> known{
      {"colwise", Word::kColwise},      {"ColwiseParallel", Word::kColwise},
      {"colwise_rep", Word::kColwise},  {"local_colwise", Word::kColwise},
      {"rowwise", Word::kRowwise},      {"RowwiseParallel", Word::kRowwise},
      {"rowwise_rep", Word::kRowwise},  {"local_rowwise", Word::kRowwise},
      {"replicate", Word::kReplicate},  {"sequence_parallel", Word::kSequence},
      {"SequenceParallel", Word::kSequence},
  };
  static const std::set<std::string> of_engine{
      "local", "gather", "PrepareModuleInput", "PrepareModuleOutput",
      "PrepareModuleInputOutput"};
  const auto bracket = word.find('(');
  const auto found = known.find(word.substr(0, bracket));
  const bool needless = of_engine.count(word.substr(0, bracket)) != 0;
  TORCH_CHECK(
      found != known.end(), "accel: the plan of tensor parallelism says ", name,
      ": '", word, "', which is none of colwise, rowwise, sequence_parallel and "
      "replicate", needless
          ? ". Leave it out: operators bring what they are given to where they need it."
          : ".");
  if (bracket == std::string::npos) {
    return {found->second, std::nullopt};
  }
  const auto inside = word.substr(bracket);
  const std::string begin = "(sequence_dim=";
  const auto digits = inside.substr(std::min(begin.size(), inside.size()));
  TORCH_CHECK(
      found->second == Word::kSequence && inside.rfind(begin, 0) == 0 &&
          digits.size() == 2 && digits[0] >= '0' && digits[0] <= '9' &&
          digits[1] == ')',
      "accel: the plan of tensor parallelism says ", name, ": '", word,
      "'; only sequence_parallel has something in brackets, a dimension from 0 to 9: "
      "sequence_parallel(sequence_dim=0).");
  return {found->second, digits[0] - '0'};
}

/// `*` stands for anything without a dot.
bool matches(const char* pattern, const char* name) {
  for (; *pattern != '\0'; ++pattern, ++name) {
    if (*pattern == '*') {
      for (;; ++name) {
        if (matches(pattern + 1, name)) {
          return true;
        }
        if (*name == '\0' || *name == '.') {
          return false;
        }
      }
    }
    if (*pattern != *name) {
      return false;
    }
  }
  return *name == '\0';
}

class Planner {
 public:
  explicit Planner(int64_t processes) : processes_(processes) {}

  /// Norms, and what else computes each position by itself, take positions. Of the
  /// model itself, which has no name, its norms do, also where it is one layer.
  void add_in_positions(const std::string& name, const nn::Module& module) {
    TORCH_CHECK(
        name.empty() ||
            (module.as<nn::LinearImpl>() == nullptr &&
             module.as<nn::EmbeddingImpl>() == nullptr &&
             module.as<nn::MultiheadAttentionImpl>() == nullptr),
        "accel: the plan of tensor parallelism says '", name,
        "': sequence_parallel, but it is a ", module.name(), ", whose weights are "
        "cut: say colwise or rowwise. The word is for norms and dropout.");
    const auto add = [&](const std::string& prefix, const nn::Module& one) {
      for (const auto& item : one.named_parameters(/*recurse=*/false)) {
        in_positions_.push_back(
            {prefix.empty() ? item.key() : prefix + "." + item.key(), item.value(),
             Replicate()});
      }
    };
    if (!name.empty() && module.children().empty()) {
      add(name, module);
      return;
    }
    for (const auto& [prefix, one] : detail::named_modules_of(module, name)) {
      if (one->as<nn::LayerNormImpl>() != nullptr) {
        add(prefix, *one);
      }
    }
  }

  /// `strict`: throws where the word does not fit the module.
  void add(
      const std::string& name,
      const nn::Module& module,
      Word word,
      bool strict) {
    strict_ = strict;
    if (word == Word::kReplicate) {
      for (const auto& item : module.named_parameters(/*recurse=*/true)) {
        put(name, item.key(), item.value(), Replicate());
      }
      return;
    }
    const bool columns = word == Word::kColwise;
    if (const auto* linear = module.as<nn::LinearImpl>()) {
      put(name, "weight", linear->weight, Shard(columns ? 0 : 1));
      if (columns) {
        put(name, "bias", linear->bias, Shard(0));
      }
    } else if (const auto* table = module.as<nn::EmbeddingImpl>()) {
      TORCH_CHECK(
          !strict || !table->options.sparse(),
          "accel: the plan of tensor parallelism names '", name,
          "', an embedding with sparse gradients, which stays whole. Leave it "
          "out, or make it without sparse(true).");
      if (!table->options.sparse()) {
        put(name, "weight", table->weight, Shard(columns ? 1 : 0));
      }
    } else if (const auto* attention = module.as<nn::MultiheadAttentionImpl>()) {
      add_attention(name, *attention, columns);
    } else {
      TORCH_CHECK(
          !strict, "accel: the plan of tensor parallelism names '", name, "', a ",
          module.name(), "; it can name Linear, Embedding and "
          "MultiheadAttention.");
    }
  }

  TensorPlan take() {
    TensorPlan plan;
    for (auto& parameter : planned_) {
      if (parameter.place.is_shard()) {
        plan.cut.push_back(std::move(parameter));
      }
    }
    plan.in_positions = std::move(in_positions_);
    return plan;
  }

 private:
  void add_attention(
      const std::string& name,
      const nn::MultiheadAttentionImpl& attention,
      bool columns) {
    const int64_t heads = attention.options.num_heads();
    TORCH_CHECK(
        !strict_ || columns, "accel: the plan of tensor parallelism says '", name,
        "': rowwise, but it is a MultiheadAttention, whose heads are shared out: "
        "say colwise.");
    if (heads % processes_ != 0) {
      TORCH_CHECK(
          !strict_, "accel: the plan of tensor parallelism names '", name,
          "', whose ", heads, " heads cannot be shared equally by ", processes_,
          " processes. Choose a tp_size that divides ", heads, ".");
      return;
    }
    put(name, "in_proj_weight", attention.in_proj_weight, in_three(attention));
    put(name, "q_proj_weight", attention.q_proj_weight, Shard(0));
    put(name, "k_proj_weight", attention.k_proj_weight, Shard(0));
    put(name, "v_proj_weight", attention.v_proj_weight, Shard(0));
    put(name, "in_proj_bias", attention.in_proj_bias, in_three(attention));
    put(name, "out_proj.weight", attention.out_proj->weight, Shard(1));
  }

  /// Queries, keys and values have one projection: each of the three is cut, so that
  /// a process has those of the same heads.
  Placement in_three(const nn::MultiheadAttentionImpl& attention) const {
    const int64_t rows = attention.options.embed_dim();
    std::vector<int64_t> points;
    for (int64_t rank = 0; rank <= processes_; ++rank) {
      points.push_back(rows / processes_ * rank);
    }
    return Shard(
        0, c10::make_intrusive<distributed::CutPoints>(std::move(points), 3));
  }

  void put(
      const std::string& module,
      const std::string& parameter,
      const at::Tensor& tensor,
      const Placement& place) {
    if (!tensor.defined()) {
      return;
    }
    const auto name = module.empty() ? parameter : module + "." + parameter;
    if (place.is_shard() && tensor.size(place.dim()) < processes_) {
      TORCH_CHECK(
          !strict_, "accel: the plan of tensor parallelism cuts ", name,
          " of sizes ", tensor.sizes(), " in dimension ", place.dim(),
          ", which has fewer entries than there are processes along tp (",
          processes_, "). Leave it out of the plan.");
      return;
    }
    for (const auto& other : planned_) {
      if (other.tensor.is_same(tensor)) {
        TORCH_CHECK(
            !strict_ || other.place == place || other.name != name,
            "accel: the plan of tensor parallelism names '", module,
            "' in two entries, whose words cut ", name,
            " in different dimensions. Leave one of them out, or make its name narrower.");
        TORCH_CHECK(
            !strict_ || other.place == place,
            "accel: the plan of tensor parallelism cuts ", other.name, " and ",
            name, ", which are one tensor, in different dimensions. Leave one of "
            "them out.");
        return;
      }
    }
    planned_.push_back({name, tensor, place});
  }

  int64_t processes_;
  bool strict_ = false;
  std::vector<PlannedParameter> planned_;
  std::vector<PlannedParameter> in_positions_;
};

/// The dimension that is said, or that of positions in the model's layers: LibTorch's
/// attention takes `[time, batch, features]`.
int64_t sequence_dim_of(const nn::Module& model, const PlanEntries& entries) {
  std::optional<int64_t> said;
  for (const auto& [name, word] : entries) {
    const auto dim = read_word(name, word).sequence_dim;
    TORCH_CHECK(
        !said || !dim || *said == *dim,
        "accel: the plan of tensor parallelism has sequence_dim=", said.value_or(0),
        " and, for ", name, ", sequence_dim=", dim.value_or(0),
        ". Activations lie in one dimension; give the same everywhere.");
    said = dim ? dim : said;
  }
  if (said) {
    return *said;
  }
  for (const auto& [name, module] : detail::named_modules_of(model)) {
    if (module->as<nn::MultiheadAttentionImpl>() != nullptr) {
      return 0;
    }
  }
  return 1;
}

/// Everything that has a rule, in the order of the modules.
void plan_by_order(const nn::Module& model, Planner& planner) {
  std::set<const nn::Module*> done;
  const nn::LinearImpl* before = nullptr; // colwise, and nothing behind it yet
  for (const auto& item : detail::named_modules_of(model)) {
    const auto& name = item.first;
    const auto& module = *item.second;
    const auto child = [&](const char* which) {
      return name.empty() ? which : name + "." + which;
    };
    if (const auto* attention = module.as<nn::MultiheadAttentionImpl>()) {
      planner.add(name, module, Word::kColwise, /*strict=*/false);
      done.insert(attention->out_proj.get());
      before = nullptr;
    } else if (module.as<nn::EmbeddingImpl>() != nullptr) {
      planner.add(name, module, Word::kColwise, /*strict=*/false);
      before = nullptr;
    } else if (const auto* linear = module.as<nn::LinearImpl>()) {
      if (done.count(linear) != 0) {
        continue;
      }
      const bool follows = before != nullptr &&
          before->options.out_features() == linear->options.in_features();
      planner.add(
          name, module, follows ? Word::kRowwise : Word::kColwise,
          /*strict=*/false);
      before = follows ? nullptr : linear;
    } else {
      const auto pair = [&](const nn::Linear& first, const nn::Linear& second) {
        planner.add(child("linear1"), *first, Word::kColwise, /*strict=*/false);
        planner.add(child("linear2"), *second, Word::kRowwise, /*strict=*/false);
        done.insert({first.get(), second.get()});
        before = nullptr;
      };
      if (const auto* layer = module.as<nn::TransformerEncoderLayerImpl>()) {
        pair(layer->linear1, layer->linear2);
      } else if (
          const auto* other = module.as<nn::TransformerDecoderLayerImpl>()) {
        pair(other->linear1, other->linear2);
      }
    }
  }
}

} // namespace

PlanEntries resolve_tensor_plan(
    const std::optional<TorchTensorParallelPlugin>& given) {
  PlanEntries plan = given ? given->plan() : PlanEntries();
  const auto text = accel::detail::get_environment("ACCEL_TP_PLAN");
  if (plan.empty() && text) {
    size_t begin = 0;
    while (begin <= text->size()) {
      const auto end = std::min(text->find(',', begin), text->size());
      const auto entry = text->substr(begin, end - begin);
      const auto equals = entry.find('=');
      TORCH_CHECK(
          equals != std::string::npos,
          "accel: the environment variable ACCEL_TP_PLAN (--tp-plan) is '", *text,
          "'; it must be a list of name=word, such as up=colwise,down=rowwise.");
      plan.emplace_back(
          accel::detail::without_blanks(entry.substr(0, equals)),
          accel::detail::without_blanks(entry.substr(equals + 1)));
      begin = end + 1;
    }
  }
  for (const auto& [name, word] : plan) {
    (void)read_word(name, word);
  }
  return plan;
}

std::string to_text(const PlanEntries& plan) {
  std::string text;
  for (const auto& [name, word] : plan) {
    text += (text.empty() ? "" : ",") + name + "=" + word;
  }
  return text;
}

bool has_sequence_word(const PlanEntries& plan) {
  return std::any_of(plan.begin(), plan.end(), [](const auto& entry) {
    return read_word(entry.first, entry.second).word == Word::kSequence;
  });
}

TensorPlan tensor_plan(
    const nn::Module& model,
    const PlanEntries& entries,
    int64_t processes,
    std::vector<bool>& matched) {
  Planner planner(processes);
  const auto is_sequence = [](const auto& entry) {
    return read_word(entry.first, entry.second).word == Word::kSequence;
  };
  // What says nothing of the layers leaves them to the order of the modules.
  if (std::all_of(entries.begin(), entries.end(), is_sequence)) {
    plan_by_order(model, planner);
  }
  for (size_t i = 0; i < entries.size(); ++i) {
    const auto& [pattern, word] = entries[i];
    for (const auto& [name, module] : detail::named_modules_of(model)) {
      if (matches(pattern.c_str(), name.c_str())) {
        matched[i] = true;
        const auto kind = read_word(pattern, word).word;
        if (kind == Word::kSequence) {
          planner.add_in_positions(name, *module);
        } else {
          planner.add(name, *module, kind, /*strict=*/true);
        }
      }
    }
  }
  auto plan = planner.take();
  if (std::any_of(entries.begin(), entries.end(), is_sequence)) {
    plan.sequence_dim = sequence_dim_of(model, entries);
  }
  return plan;
}

} // namespace accel::parallel
