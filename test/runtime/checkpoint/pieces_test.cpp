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

/// A row of each of two blocks of rows, and one column after the other; read where
/// nothing is cut in blocks, and by who holds other blocks.
TEST(Pieces, OfBlocksAreReadByWhoHoldsOthers) {
  const TemporaryDirectory directory;
  const auto whole = torch::arange(24, torch::kFloat).view({4, 6});
  const auto state = [](torch::nn::Linear& model, int64_t row, int64_t column) {
    TrainingState result;
    result.models = {model.get()};
    result.in_pieces = true;
    result.piece_of =
        [row, column](const at::Tensor& tensor) -> std::optional<TensorPiece> {
      if (tensor.dim() != 2) {
        return std::nullopt;
      }
      TensorPiece piece;
      piece.offset = {row, column};
      piece.blocks = {2, 3};
      const auto index = torch::tensor({row, 2 + row});
      const auto columns = torch::tensor({column, 2 + column, 4 + column});
      piece.values = tensor.detach().index_select(0, index).index_select(1, columns);
      return piece;
    };
    return result;
  };
  run_processes(4, [&](const Processes& processes) {
    torch::nn::Linear model(6, 4);
    const torch::NoGradGuard no_grad;
    model->weight.copy_(whole);
    model->bias.fill_(7);
    save_state(
        directory / "c", state(model, processes.rank / 2, processes.rank % 2),
        processes);
  });
  EXPECT_TRUE(torch::equal(
      load_safetensors(directory / "c/model.process_2.safetensors")["weight"],
      torch::tensor({{6., 8., 10.}, {18., 20., 22.}}, torch::kFloat)));
  torch::nn::Linear all(6, 4);
  TrainingState plain;
  plain.models = {all.get()};
  load_state(directory / "c", plain);
  EXPECT_TRUE(torch::equal(all->weight, whole));
  EXPECT_TRUE(torch::equal(all->bias, torch::full({4}, 7.0)));
  // Columns of two blocks.
  torch::nn::Linear other(6, 4);
  at::Tensor values = torch::zeros({4, 2});
  plain.models = {other.get()};
  plain.piece_of = [&](const at::Tensor& tensor) -> std::optional<TensorPiece> {
    if (tensor.dim() != 2) {
      return std::nullopt;
    }
    TensorPiece piece;
    piece.offset = {0, 1};
    piece.blocks = {1, 2};
    piece.values = values;
    return piece;
  };
  load_state(directory / "c", plain);
  EXPECT_TRUE(torch::equal(values, whole.index_select(1, torch::tensor({1, 4}))));
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
  expect(R"({"weight":[[4,3],[2,0],[1,1],[1,1]]})", {2, 3}, "no sizes and offset");
  expect(R"({"weight":[[4,3],[1,0],[2,1]]})", {2, 3}, "is cut in blocks");
  // Blocks that do not divide the part, a row behind the block's end, none, and more
  // than there are rows of a part that has none.
  for (const char* bad : {"[0,0],[3,1]", "[2,0],[2,1]", "[0,0],[0,1]", "[0,0],[1]"}) {
    expect(
        std::string(R"({"weight":[[4,3],)") + bad + "]}", {2, 3},
        "is no part of one of sizes");
  }
  expect(R"({"weight":[[4,3],[0,0],[4,1]]})", {0, 3}, "is no part of one of sizes");
  expect(R"({"weight":7})", {2, 3}, "no sizes and offset");
  expect("[]", {2, 3}, "is no JSON object");
  expect("{", {2, 3}, "not JSON");
}

} // namespace
} // namespace accel::checkpoint::test
