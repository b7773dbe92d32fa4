// The operators of this LibTorch and their rules.
//
//   operator_table             every schema of the aten namespace
//   operator_table --missing   those that have no rule and could use one
//   operator_table --page      docs/operators.md

#include "build_paths.h"
#include "operators_page.h"

#include <cstdio>
#include <cstring>
#include <map>
#include <string>

namespace {

using accel::distributed::test::ListedOperator;

/// Operators that reach the fallback in a program and have no rule. `out=` forms
/// are whole on purpose, composite ones come apart before, and what has no
/// kernel at all is of another device.
bool is_missing(const ListedOperator& op) {
  return op.family.empty() && !op.out && !op.composite && op.has_kernel;
}

void print(const ListedOperator& op) {
  std::printf(
      "%-26s %s%s %s\n",
      op.family.empty() ? "none" : op.family.c_str(),
      op.pointwise_tag ? "p" : "-",
      op.composite ? "c" : "-",
      op.schema.c_str());
}

void print_totals(const std::vector<ListedOperator>& all) {
  std::map<std::string, int> by_family;
  int with_rule = 0;
  int missing = 0;
  for (const auto& op : all) {
    // A composite operator never asks for its rule, unless in inference mode.
    if (!op.family.empty() && !op.out) {
      ++by_family[op.family];
      ++with_rule;
    }
    missing += is_missing(op) ? 1 : 0;
  }
  for (const auto& [family, count] : by_family) {
    std::printf("%5d %s\n", count, family.c_str());
  }
  std::printf(
      "%zu schemas; %d with a rule (out= aside); %d without that reach the "
      "fallback\n",
      all.size(), with_rule, missing);
}

} // namespace

int main(int argc, char** argv) {
  const std::string mode = argc > 1 ? argv[1] : "";
  if (mode == "--page") {
    const auto page = accel::distributed::test::operators_page(
        std::string(build_paths::kSource) + "/test/distributed/samples.txt", build_paths::kGoldenAten);
    std::fputs(page.c_str(), stdout);
    return 0;
  }
  if (argc > 2 || (!mode.empty() && mode != "--missing")) {
    std::fprintf(stderr, "operator_table [--missing | --page]\n");
    return 2;
  }
  const auto all = accel::distributed::test::listed_operators();
  for (const auto& op : all) {
    if (mode.empty() || is_missing(op)) {
      print(op);
    }
  }
  print_totals(all);
  return 0;
}
