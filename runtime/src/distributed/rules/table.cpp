#include "distributed/rules/table.h"

#include "distributed/lineage.h"
#include "distributed/rules/registered.h"

#include <ATen/core/jit_type.h>

#include <string>
#include <unordered_map>

namespace accel::distributed {
namespace {

const std::unordered_map<std::string, Rule>& by_name() {
  static const auto* const rules = [] {
    auto* made = new std::unordered_map<std::string, Rule>();
    for (const auto& family : families()) {
      for (const auto& row : family.rows()) {
        TORCH_INTERNAL_ASSERT(
            made->emplace(row.op, row.rule).second,
            "two rules for ", row.op);
      }
    }
    return made;
  }();
  return *rules;
}

bool holds_tensors(const c10::Argument& argument) {
  auto type = argument.type();
  if (type->kind() == c10::TypeKind::OptionalType) {
    type = type->expectRef<c10::OptionalType>().getElementType();
  }
  if (type->kind() == c10::TypeKind::ListType) {
    type = type->expectRef<c10::ListType>().getElementType();
    if (type->kind() == c10::TypeKind::OptionalType) {
      type = type->expectRef<c10::OptionalType>().getElementType();
    }
  }
  return type->kind() == c10::TypeKind::TensorType;
}

/// Operators that write arguments of which their schema does not say so.
bool writes_silently(const std::string& op, const std::string& argument) {
  static const std::unordered_map<std::string, bool> operators{
      {"aten::native_batch_norm", true},
      {"aten::cudnn_batch_norm", true},
      {"aten::miopen_batch_norm", true},
      {"aten::batch_norm_update_stats", true},
      {"aten::batch_norm_gather_stats", true},
      {"aten::batch_norm_gather_stats_with_counts", true},
      {"aten::_batch_norm_impl_index", true},
  };
  return operators.count(op) != 0 &&
      (argument == "running_mean" || argument == "running_var");
}

/// What a row says of an operator; null where none does.
Rule in_table(const c10::FunctionSchema& schema) {
  const auto& rules = by_name();
  if (!schema.overload_name().empty()) {
    const auto exact = rules.find(schema.name() + "." + schema.overload_name());
    if (exact != rules.end()) {
      return exact->second;
    }
  }
  const auto found = rules.find(schema.name());
  return found != rules.end() ? found->second : nullptr;
}

} // namespace

const std::vector<NamedFamily>& families() {
  static const auto* const all = new std::vector<NamedFamily>{
      {"Pointwise", pointwise_rules::family},
      {"Activations", activation_rules::family},
      {"Matrix products", matrix_rules::family},
      {"Reductions", reduction_rules::family},
      {"Views", view_rules::family},
      {"Slicing", slicing_rules::family},
      {"Backward of views, and writes into copies", view_backward_rules::family},
      {"Indexing", indexing_rules::family},
      {"Rows named by an index", index_rows_rules::family},
      {"Masks", mask_rules::family},
      {"Embeddings", embedding_rules::family},
      {"Bags of embeddings", embedding_bag_rules::family},
      {"Joining", joining_rules::family},
      {"Copies of other shapes", shapes_rules::family},
      {"Factories and conversions", factories_rules::family},
      {"Random numbers", random_rules::family},
      {"Softmax", softmax_rules::family},
      {"Normalisation", normalization_rules::family},
      {"Batch norm", batch_norm_rules::family},
      {"Batch norm, backward", batch_norm_backward_rules::family},
      {"Synchronised batch norm", sync_batch_norm_rules::family},
      {"Losses", loss_rules::family},
      {"Connectionist temporal classification", ctc_loss_rules::family},
      {"Sorting and scanning", ordering_rules::family},
      {"Pairs of rows", pair_rules::family},
      {"Linear algebra", linalg_rules::family},
      {"Convolution", convolution_rules::family},
      {"Pooling and sampling", pooling_rules::family},
      {"Attention", attention_rules::family},
      {"Recurrent layers", recurrent_rules::family},
      {"Lists of tensors", optimizer_rules::family},
  };
  return *all;
}

bool has_rule(const c10::FunctionSchema& schema) {
  return in_table(schema) != nullptr;
}

Rule rule_of(const c10::OperatorHandle& op) {
  const auto& schema = op.schema();
  if (const Rule rule = in_table(schema)) {
    return rule;
  }
  if (const Rule rule = registered_rule(op)) {
    return rule;
  }
  const bool one_tensor = schema.returns().size() == 1 &&
      schema.returns()[0].type()->kind() == c10::TypeKind::TensorType;
  return one_tensor && op.hasTag(at::Tag::pointwise) ? pointwise : nullptr;
}

OperatorInfo describe(const c10::OperatorHandle& op) {
  const auto& schema = op.schema();
  OperatorInfo info;
  info.rule = rule_of(op);
  info.takes_blocks = takes_blocks(op, info.rule);
  info.takes_sparse = matrix_rules::takes_sparse(info.rule);
  info.is_composite = info.rule == nullptr &&
      op.hasKernelForDispatchKey(c10::DispatchKey::CompositeImplicitAutograd);
  info.arguments = schema.arguments().size();
  info.results = schema.returns().size();
  const auto& name = schema.name();
  info.draws = op.hasTag(at::Tag::nondeterministic_seeded);
  info.copies = name == "aten::clone" || name == "aten::detach" || name == "aten::alias";
  info.overwrites = name == "aten::zero_" || name == "aten::fill_" ||
      name == "aten::copy_" || (info.draws && !name.empty() && name.back() == '_');
  info.id = id_of(name.c_str(), schema.overload_name().c_str());
  info.reads_value = name == "aten::_local_scalar_dense" ||
      name == "aten::equal" || name == "aten::is_nonzero" ||
      name == "aten::allclose";
  for (uint32_t i = 0; i < info.arguments; ++i) {
    const auto& argument = schema.arguments()[i];
    if (argument.name() == "dim") {
      info.dim = static_cast<int>(i);
    } else if (argument.name() == "keepdim") {
      info.keepdim = static_cast<int>(i);
    }
    if (!holds_tensors(argument)) {
      continue;
    }
    info.tensors.push_back(i);
    const auto* alias = argument.alias_info();
    if ((alias != nullptr && alias->isWrite()) ||
        writes_silently(schema.name(), argument.name())) {
      info.writes.push_back(i);
      info.is_in_place = info.is_in_place || i == 0;
    } else if (alias != nullptr && i == 0 && info.results > 0) {
      info.is_view = true;
    }
  }
  return info;
}

} // namespace accel::distributed
