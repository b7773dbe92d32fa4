// What accel config writes, accel launch trains so: parameters, layers and samples are
// divided as the answers say, and the numbers are those of one device.

#include "training.h"

#include "build_paths.h"

#include <cstdlib>
#include <filesystem>
#include <string>

namespace accel::test {
namespace {

std::string expected(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

ACCEL_RANK_FUNCTION(config_trains) {
  const auto how = AcceleratorOptions().match_single_device(true);
  {
    Accelerator accelerator(how);
    const auto& options = accelerator.state().options();
    EXPECT_EQ(
        options.fsdp ? to_string(*options.fsdp) : "no", expected("EXPECTED_STRATEGY"));
    EXPECT_EQ(to_string(options.auto_wrap), expected("EXPECTED_UNITS"));
    EXPECT_EQ(options.parallelism ? options.parallelism->tp : 1,
              expected("EXPECTED_TP") == "2" ? 2 : 1);
  }
  expect_trains_like_one_device<optim::Adam>(how, optim::AdamOptions(0.01));
}

TEST(ConfigFiles, AreTrainedAsTheyWereAskedFor) {
  const Folder folder;
  const auto trains = [&](int processes, const std::string& answers,
                          const std::string& strategy, const std::string& tp = "1",
                          const std::string& units = "children of the model") {
    const std::string file = folder.path + "/mine.yaml";
    const std::string accel = build_paths::kAccel;
    const std::string command = "printf '" + std::to_string(processes) +
        "\\nyes\\nno\\nprogram\\nauto\\n0\\nnever\\n" + answers + "' | " + accel +
        " config --overwrite --config-file " + file + " > " + folder.path +
        "/questions && EXPECTED_STRATEGY='" + strategy + "' EXPECTED_TP=" + tp +
        " EXPECTED_UNITS='" + units + "' ACCEL_TEST_FUNCTION=config_trains " + accel +
        " launch --config-file " + file + " -- " +
        std::filesystem::read_symlink("/proc/self/exe").string();
    EXPECT_EQ(std::system(command.c_str()), 0) << command;
  };
  trains(2, "samples\\n", "no");
  trains(2, "fsdp\\n1\\nSHARD_GRAD_OP\\n\\n\\n\\n\\n\\n", "SHARD_GRAD_OP");
  trains(
      3, "fsdp\\n2\\nyes\\n\\nTRANSFORMER_BASED_WRAP\\nLinear\\n\\nyes\\n\\nyes\\n", "FULL_SHARD", "1",
      "TRANSFORMER_BASED_WRAP of Linear");
  trains(2, "deepspeed\\nnone\\n3\\n\\n0\\nnone\\nnone\\nno\\n", "FULL_SHARD");
  trains(2, "megatron\\n1\\n1\\n0\\nno\\nyes\\n", "SHARD_GRAD_OP");
  trains(2, "mesh\\n2\\n", "FULL_SHARD");
  trains(4, "mesh\\n2\\n2\\nauto\\n", "FULL_SHARD", "2");
}

} // namespace
} // namespace accel::test
