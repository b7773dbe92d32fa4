#include "operators_page.h"

#include "distributed/rules/table.h"
#include "sample_exclusions.h"
#include "sample_runs.h"

#include <ATen/core/dispatch/Dispatcher.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <sstream>

namespace accel::distributed::test {
namespace {

/// "aten::add.Tensor" and the family that has a row for it, or for all
/// overloads by "aten::add".
const std::map<std::string, std::string>& family_by_row() {
  static const auto* const rows = [] {
    auto* made = new std::map<std::string, std::string>();
    for (const auto& family : families()) {
      for (const auto& row : family.rows()) {
        made->emplace(row.op, family.name);
      }
    }
    return made;
  }();
  return *rows;
}

std::string full_name(const c10::OperatorName& name) {
  return name.overload_name.empty() ? name.name
                                    : name.name + "." + name.overload_name;
}

std::string family_of(const c10::OperatorHandle& op) {
  const auto& name = op.schema().operator_name();
  for (const auto& row : {full_name(name), name.name}) {
    const auto found = family_by_row().find(row);
    if (found != family_by_row().end()) {
      return found->second;
    }
  }
  return rule_of(op) != nullptr ? "Pointwise, by tag" : "";
}

bool is_out(const c10::FunctionSchema& schema) {
  return std::any_of(
      schema.arguments().begin(), schema.arguments().end(),
      [](const c10::Argument& argument) {
        return argument.is_out();
      });
}

std::string cell(std::string text) {
  for (size_t i = 0; (i = text.find('|', i)) != std::string::npos; i += 2) {
    text.replace(i, 1, "\\|");
  }
  return text;
}

/// "aten::add.Tensor" as people write it: "add.Tensor".
std::string short_name(const std::string& op) {
  constexpr auto kAten = "aten::";
  return op.rfind(kAten, 0) == 0 ? op.substr(6) : op;
}

/// How far the tests go with every operator, by its name with and without its
/// overload.
class Tested {
 public:
  Tested(const std::string& table, const std::string& recorded) {
    const GoldenCalls calls(recorded);
    for (const auto& call : calls.calls()) {
      add(call.op, Depth::kNone);
    }
    SampleOptions options;
    options.dtypes = false;
    const auto samples = sample_calls({table}, &calls, options);
    for (const auto& sample : samples.calls) {
      if (depth_of(sample.name) != Depth::kTwice) {
        Gradients gradients;
        run_plain(sample, gradients);
        add(sample.op, gradients.depth);
      }
    }
  }

  std::string text(const std::string& op) const {
    const auto depth = depth_of(op);
    if (!depth) {
      const char* const why = why_without_sample(op);
      return why != nullptr ? std::string("not here: ") + why : "nothing";
    }
    return *depth == Depth::kNone ? "results"
        : *depth == Depth::kOnce  ? "results, gradients"
                                  : "results, gradients, second gradients";
  }

 private:
  std::optional<Depth> depth_of(const std::string& op) const {
    const auto found = depths_.find(op);
    return found == depths_.end() ? std::nullopt : std::optional(found->second);
  }

  void add(const c10::OperatorHandle& op, Depth depth) {
    const auto& name = op.operator_name();
    for (const auto& row : {full_name(name), name.name}) {
      auto& known = depths_.emplace(row, depth).first->second;
      known = std::max(known, depth);
    }
  }

  std::map<std::string, Depth> depths_;
};

void add_family(
    std::ostream& page,
    const NamedFamily& family,
    const Tested& tested) {
  page << "\n## " << family.name << "\n\n"
       << "| operator | stays in parts | communicates | compared |\n"
       << "|---|---|---|---|\n";
  // Rows that say the same, one behind the other, share a line.
  const auto& rows = family.rows();
  for (size_t i = 0; i < rows.size();) {
    std::string names = '`' + short_name(rows[i].op) + '`';
    const auto compared = tested.text(rows[i].op);
    size_t end = i + 1;
    while (end < rows.size() &&
           std::string(rows[end].places) == rows[i].places &&
           std::string(rows[end].communicates) == rows[i].communicates &&
           tested.text(rows[end].op) == compared) {
      names += ", `" + short_name(rows[end].op) + '`';
      ++end;
    }
    page << "| " << names << " | " << cell(rows[i].places) << " | "
         << cell(rows[i].communicates) << " | " << compared << " |\n";
    i = end;
  }
}

} // namespace

std::string operators_page(
    const std::string& table,
    const std::string& recorded) {
  const Tested tested(table, recorded);
  std::ostringstream page;
  page <<
      R"(# Operators on distributed tensors

A distributed tensor holds this process's part of a tensor. Every operator takes one and gives the result that it gives on one device.
Operators in the tables below compute on the parts. All others gather their arguments, run on every process, and return a replicated tensor:
the result is right, but the work is not shared. `ACCEL_PLACEMENT_REPORT=1` lists those that a program uses.

How to read a row:

- S: a shard, contiguous rows of one dimension. "Samples" and "rows" are dimension 0 unless the row says otherwise.
- P: a part of a sum; the value is the sum over the processes. P(max), P(min) and P(product) likewise.
- R: replicated, the same on all processes, as a plain tensor is.
- A name without overload stands for all overloads (`add` for `add.Tensor`, `add.Scalar`). In-place forms (`add_`) are operators of their
  own. `out=` forms run on whole tensors.
- With placements that its row does not name, an operator is gathered.

Operators that LibTorch tags as pointwise and that return one tensor need no row: the result is cut as the operands are, and only operands
that are cut in different ways are communicated. A number that is added to a P of one element, as a weight penalty to a loss, is added by one
process. LibTorch splits composite operators (`linear`, `conv2d`, `layer_norm`,
`cross_entropy_loss`, …) into others first; they need no row either.

The last column says what the tests compare with plain tensors, in many placements of the arguments, on two and three ranks. They use calls
recorded from PyTorch's own tests (`test/distributed/golden`) and sample calls (`test/distributed/samples.txt`), of pointwise, composite,
in-place and `out=` forms, too. "Not here" are kernels of other devices; their rules are those of the CPU's kernels.

This page is made from the table of rules (`runtime/src/distributed/rules`) by `operator_table --page`; a test compares the two.
)";
  for (const auto& family : families()) {
    if (!family.rows().empty()) {
      add_family(page, family, tested);
    }
  }
  return page.str();
}

std::vector<ListedOperator> listed_operators() {
  std::vector<ListedOperator> all;
  auto& dispatcher = c10::Dispatcher::singleton();
  for (const auto& name : dispatcher.getAllOpNames()) {
    const auto op = dispatcher.findSchema(name);
    if (!op || name.name.rfind("aten::", 0) != 0) {
      continue;
    }
    const auto has = [&](c10::DispatchKey key) {
      return op->hasKernelForDispatchKey(key);
    };
    ListedOperator listed;
    listed.name = full_name(name);
    listed.schema = c10::toString(op->schema());
    listed.family = family_of(*op);
    listed.pointwise_tag = op->hasTag(at::Tag::pointwise);
    listed.composite = has(c10::DispatchKey::CompositeImplicitAutograd);
    listed.has_kernel = has(c10::DispatchKey::CPU) ||
        has(c10::DispatchKey::CUDA) ||
        has(c10::DispatchKey::CompositeExplicitAutograd) ||
        has(c10::DispatchKey::CompositeExplicitAutogradNonFunctional);
    listed.out = is_out(op->schema());
    all.push_back(std::move(listed));
  }
  std::sort(all.begin(), all.end(), [](const auto& a, const auto& b) {
    return a.name < b.name;
  });
  return all;
}

std::vector<std::string> unknown_rows() {
  std::set<std::string> known;
  for (const auto& name : c10::Dispatcher::singleton().getAllOpNames()) {
    if (c10::Dispatcher::singleton().findSchema(name)) {
      known.insert(name.name);
      known.insert(full_name(name));
    }
  }
  std::vector<std::string> unknown;
  for (const auto& [row, family] : family_by_row()) {
    if (known.count(row) == 0) {
      unknown.push_back(row);
    }
  }
  return unknown;
}

} // namespace accel::distributed::test
