#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

#include <cstdint>
#include <string>
#include <vector>

namespace accel::distributed::test {

/// One line of samples.txt for one of its operators and one size N.
struct TableCall {
  c10::OperatorHandle op;
  /// Plain tensors; the same ones for the same line and N.
  torch::jit::Stack arguments;
  int64_t line;
  /// 0 where the line does not speak of N.
  int64_t n;
};

/// All of samples.txt, whose first lines say how it is written. What does not fit
/// this LibTorch (it has no such operator, or one of other arguments) is put into
/// `unknown`, with its line.
std::vector<TableCall> read_sample_table(
    const std::string& path,
    std::vector<std::string>& unknown);

} // namespace accel::distributed::test
