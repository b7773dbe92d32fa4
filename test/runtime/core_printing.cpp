// `stream << tensor` prints the whole tensor on every process.

#include "multiprocess.h"

#include <accel/accel.h>

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <sstream>
#include <string>
#include <vector>

using accel::Accelerator;
using accel::AcceleratorOptions;
using accel::test::run_and_expect_success;
using torch::Tensor;

namespace {

template <typename T>
std::string printed(const T& value) {
  std::ostringstream out;
  out << value;
  return out.str();
}

} // namespace

ACCEL_RANK_FUNCTION(prints_whole_tensors) {
  Accelerator accelerator(
      AcceleratorOptions().cpu(true).match_single_device(true));
  for (const auto dtype : {torch::kFloat, torch::kDouble, torch::kLong}) {
    const Tensor plain =
        torch::arange(21).view({7, 3}).sub(4).to(dtype);
    const Tensor cut = accelerator.distribute(plain);
    ASSERT_TRUE(accel::distributed::is_distributed(cut));
    EXPECT_EQ(printed(cut), printed(plain));
    EXPECT_EQ(printed(cut.t()), printed(plain.t()));
    EXPECT_EQ(printed(cut.sum()), printed(plain.sum())); // a part of a sum
    EXPECT_EQ(
        printed(std::vector<Tensor>{cut, cut[1]}),
        printed(std::vector<Tensor>{plain, plain[1]}));
  }
  const Tensor leaf = torch::ones({4, 2}, torch::requires_grad());
  EXPECT_EQ(
      printed(accelerator.distribute(leaf).mul(2)), printed(leaf.mul(2)));
  EXPECT_EQ(printed(Tensor()), "[ Tensor (undefined) ]");
}

TEST(Printing, WholeTensors) {
  run_and_expect_success("prints_whole_tensors", 2);
  run_and_expect_success("prints_whole_tensors", 3);
}
