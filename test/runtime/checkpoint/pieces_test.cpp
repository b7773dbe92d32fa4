#include "support.h"
#include "threads_as_processes.h"

#include <accel/checkpoint/directory.h>
#include <accel/checkpoint/state.h>

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

/// Checkpoints of which each process has saved a part, without an Accelerator: what
/// is divided is said by hand.
namespace accel::checkpoint::test {
namespace {

namespace fs = std::filesystem;

/// A weight of 4 x 3, of which this "process" holds the rows from `begin` on, or all.
struct Part {
  explicit Part(int64_t begin, int64_t rows)
      : begin(begin), rows(rows), model(3, 4) {
    const torch::NoGradGuard no_grad;
    model->weight.copy_(torch::arange(12).view({4, 3}));
    model->bias.fill_(7);
  }
  TrainingState state() {
    TrainingState result;
    result.models = {model.get()};
    result.in_pieces = true;
    result.piece_of =
        [this](const at::Tensor& tensor) -> std::optional<TensorPiece> {
      if (tensor.dim() != 2) {
        return std::nullopt;
      }
      TensorPiece piece;
      piece.offset = {begin, 0};
      piece.values = tensor.detach().narrow(0, begin, rows);
      return piece;
    };
    return result;
  }

  int64_t begin, rows;
  torch::nn::Linear model;
};

/// Two processes with two rows each.
void save(const std::string& directory) {
  run_processes(2, [&](const Processes& processes) {
    Part part(2 * processes.rank, 2);
    save_state(directory, part.state(), processes);
  });
}

TEST(Pieces, AreReadByWhoHoldsOthers) {
  const TemporaryDirectory directory;
  save(directory / "c");
  // The first one has what is not divided, too.
  EXPECT_EQ(
      load_safetensors(directory / "c/model.process_0.safetensors").size(), 2);
  EXPECT_EQ(
      load_safetensors(directory / "c/model.process_1.safetensors").size(), 1);
  Part middle(1, 2);
  {
    const torch::NoGradGuard no_grad;
    middle.model->weight.zero_();
    middle.model->bias.zero_();
  }
  load_state(directory / "c", middle.state());
  auto expected = torch::arange(12, torch::kFloat).view({4, 3}).clone();
  expected[0].zero_();
  expected[3].zero_();
  EXPECT_TRUE(torch::equal(middle.model->weight, expected));
  EXPECT_TRUE(torch::equal(middle.model->bias, torch::full({4}, 7.0)));
}

/// What loading says where the second process's file says this of its part.
std::string error_with(const std::string& boxes, at::IntArrayRef sizes) {
  const TemporaryDirectory directory;
  save(directory / "good");
  run_processes(2, [&](const Processes& processes) {
    write_checkpoint(directory / "bad", processes, [&](CheckpointFiles& files) {
      if (!processes.main()) {
        StateDict tensors;
        tensors.insert("weight", torch::zeros(sizes));
        files.write_tensors(
            "model.process_1.safetensors", tensors, {{"accel.pieces", boxes}});
        return;
      }
      for (const auto& entry : fs::directory_iterator(directory / "good")) {
        const auto name = entry.path().filename().string();
        if (name != "manifest.json" && name != "model.process_1.safetensors") {
          files.write_bytes(name, read_file(entry.path().string()));
        }
      }
    });
  });
  Part whole(0, 4);
  return error_of([&] { load_state(directory / "bad", whole.state()); });
}

TEST(Pieces, ThatDoNotFitAreRefused) {
  const auto expect = [](const std::string& boxes,
                         const std::vector<int64_t>& sizes,
                         const std::string& part) {
    const auto error = error_with(boxes, sizes);
    EXPECT_NE(error.find(part), std::string::npos) << part << "\n" << error;
  };
  expect(R"({"weight":[[4,3],[1,0]]})", {2, 3}, "overlaps");
  expect(R"({"weight":[[4,3],[3,0]]})", {1, 3}, "is not complete");
  expect(R"({"weight":[[4,3],[3,0]]})", {2, 3}, "is no part of one of sizes");
  expect(R"({"weight":[[5,3],[2,0]]})", {2, 3}, "is a part of");
  expect(R"({"weight":[[4,3],[-2,0]]})", {2, 3}, "has the number -2");
  expect(R"({"weight":[[4,3]]})", {2, 3}, "no sizes and offset");
  expect(R"({"weight":7})", {2, 3}, "no sizes and offset");
  expect("[]", {2, 3}, "is no JSON object");
  expect("{", {2, 3}, "not JSON");
}

} // namespace
} // namespace accel::checkpoint::test
