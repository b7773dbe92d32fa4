// TorchScript's values: the operations of the Accelerator find the tensors in them.

#include "multiprocess.h"

#include <accel/accel.h>

#include <gtest/gtest.h>
#include <torch/script.h>
#include <torch/torch.h>

#include <string>
#include <tuple>
#include <vector>

using accel::Accelerator;
using accel::AcceleratorOptions;
using torch::Tensor;

ACCEL_RANK_FUNCTION(whole_script_values) {
  Accelerator accelerator(
      AcceleratorOptions().cpu(true).match_single_device(true));
  const auto whole = torch::arange(14).view({7, 2});
  const auto cut = accelerator.distribute(whole);
  ASSERT_TRUE(accel::distributed::is_distributed(cut));
  const auto is_whole = [&](const c10::IValue& value) {
    return !accel::distributed::is_distributed(value.toTensor()) &&
        value.toTensor().equal(whole);
  };
  EXPECT_TRUE(is_whole(accelerator.full(c10::IValue(cut))));
  EXPECT_EQ(accelerator.full(c10::IValue("text")).toStringRef(), "text");

  c10::impl::GenericDict inner(c10::StringType::get(), c10::AnyType::get());
  inner.insert("list", c10::List<Tensor>({cut, torch::Tensor()}));
  inner.insert("tuple", std::make_tuple(cut, 3.5));
  c10::impl::GenericDict dict(c10::StringType::get(), c10::AnyType::get());
  dict.insert("z", cut);
  dict.insert("a", inner);
  const auto full = accelerator.full(dict);
  EXPECT_TRUE(is_whole(full.at("z")));
  EXPECT_EQ(full.begin()->key().toStringRef(), "z"); // in its order
  const auto of_inner = full.at("a").toGenericDict();
  EXPECT_TRUE(is_whole(of_inner.at("list").toTensorList().get(0)));
  EXPECT_FALSE(of_inner.at("list").toTensorList().get(1).defined());
  EXPECT_TRUE(is_whole(of_inner.at("tuple").toTuple()->elements()[0]));
  EXPECT_EQ(of_inner.at("tuple").toTuple()->elements()[1].toDouble(), 3.5);
  EXPECT_TRUE(accel::distributed::is_distributed(dict.at("z").toTensor()));

  c10::Dict<std::string, Tensor> named;
  named.insert("x", cut);
  EXPECT_TRUE(is_whole(accelerator.full(named).at("x")));
  EXPECT_TRUE(is_whole(accelerator.full(c10::List<Tensor>({cut})).get(0)));
  const std::vector<torch::jit::IValue> inputs{cut, 2};
  EXPECT_TRUE(is_whole(accelerator.full(inputs)[0]));
  EXPECT_TRUE(accel::distributed::is_distributed(
      accelerator.distribute(accelerator.full(inputs))[0].toTensor()));
  EXPECT_TRUE(is_whole(torch::pickle_load(
      torch::pickle_save(accelerator.full(c10::IValue(cut))))));
}

TEST(ScriptValues, TensorsInThemAreFound) {
  for (const int processes : {2, 3}) {
    accel::test::run_and_expect_success("whole_script_values", processes);
  }
}
