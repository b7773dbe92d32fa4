// Files of models: merge-weights and estimate-memory.

#include <gtest/gtest.h>

#include <sys/stat.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "commands.h"

namespace {

std::string safetensors(const std::string& header, const std::string& data) {
  std::string padded = header;
  padded.resize((padded.size() + 7) / 8 * 8, ' ');
  std::string length(8, '\0');
  const uint64_t size = padded.size();
  std::memcpy(length.data(), &size, 8);
  return length + padded + data;
}

/// Two shards: a.weight (F32, 2x2) and a.steps (I64); b.half (F16, 3).
void write_shards(const Folder& folder) {
  write(
      folder / "model-00001-of-00002.safetensors",
      safetensors(
          R"({"__metadata__":{"format":"pt"},"a.steps":{"dtype":"I64","shape":[],"data_offsets":[0,8]},"a.weight":{"dtype":"F32","shape":[2,2],"data_offsets":[8,24]}})",
          "STEPSTEP0123456789abcdef"));
  write(
      folder / "model-00002-of-00002.safetensors",
      safetensors(
          R"({"__metadata__":{"format":"pt"},"b.half":{"dtype":"F16","shape":[3],"data_offsets":[0,6]}})",
          "halfha"));
  write(
      folder / "model.safetensors.index.json",
      R"({"metadata":{"total_size":30},"weight_map":{
        "a.steps":"model-00001-of-00002.safetensors",
        "a.weight":"model-00001-of-00002.safetensors",
        "b.half":"model-00002-of-00002.safetensors"}})");
}

TEST(MergeWeights, CopiesEveryByteInPythonsOrder) {
  const Folder folder;
  write_shards(folder);
  const Result result =
      accel({"merge-weights", ".", "out", "--overwrite"}, in(folder));
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_EQ(
      folder.read("out/model.safetensors"),
      safetensors(
          R"({"__metadata__":{"format":"pt"},"a.steps":{"dtype":"I64","shape":[],"data_offsets":[0,8]},"a.weight":{"dtype":"F32","shape":[2,2],"data_offsets":[8,24]},"b.half":{"dtype":"F16","shape":[3],"data_offsets":[24,30]}})",
          "STEPSTEP0123456789abcdefhalfha"));
  // Not over what is there, unless asked to; and never over a shard.
  EXPECT_EQ(accel({"merge-weights", ".", "out"}, in(folder)).status, 2);
  EXPECT_EQ(
      accel(
          {"merge-weights",
           "--overwrite",
           ".",
           "model-00001-of-00002.safetensors"},
          in(folder))
          .status,
      2);
}

TEST(MergeWeights, RefusesDamagedFiles) {
  const auto says = [](const std::string& name,
                       const std::function<void(std::string&)>& damage,
                       const std::string& part) {
    const Folder folder;
    write_shards(folder);
    std::string bytes = folder.read(name);
    damage(bytes);
    write(folder / name, bytes);
    const Result result = accel({"merge-weights", ".", "out"}, in(folder));
    EXPECT_EQ(result.status, 125) << part;
    expect_part(result.err, part);
    EXPECT_FALSE(folder.has("out/model.safetensors"));
  };
  const std::string first = "model-00001-of-00002.safetensors";
  says(first, [](std::string& b) { b.resize(b.size() - 1); }, "bytes instead of");
  says(first, [](std::string& b) { b += "x"; }, "bytes instead of");
  says(first, [](std::string& b) { b.resize(5); }, "fewer than 8 bytes");
  says(first, [](std::string& b) { b[5] = 1; }, "its header would have");
  says(first, [](std::string& b) { b[8] = '['; }, "its header");
  says(
      first,
      [](std::string& b) { b.replace(b.find("F32"), 3, "F31"); },
      "unknown dtype F31");
  says(
      first,
      [](std::string& b) { b.replace(b.find("[2,2]"), 5, "[2,3]"); },
      "not what its shape and dtype need");
  says(
      first,
      [](std::string& b) { b.replace(b.find("a.weight"), 8, "a.weighs"); },
      "do not belong together");
  says(
      "model.safetensors.index.json",
      [](std::string& b) { b.resize(40); },
      "is damaged");
  says(
      "model.safetensors.index.json",
      [](std::string& b) {
        b.replace(b.find("model-00002"), 11, "../../x0002");
      },
      "no file beside it");
}

/// What three processes have of a tensor of 3 x 4 bytes: a row, and two rows cut
/// between the columns; process 0 also has what is not divided.
void write_processes(const Folder& folder) {
  const auto file = [&](const char* rank, const std::string& boxes,
                        const std::string& tensors, const std::string& bytes) {
    write(
        folder / (std::string("model.process_") + rank + ".safetensors"),
        safetensors(
            R"({"__metadata__":{"accel.pieces":")" + boxes +
                R"(","format":"pt"},)" + tensors + "}",
            bytes));
  };
  file("0", R"({\"w\":[[3,4],[0,0]]})",
       R"("steps":{"dtype":"I64","shape":[],"data_offsets":[0,8]},"w":{"dtype":"U8","shape":[1,4],"data_offsets":[8,12]})",
       "STEPSTEP0123");
  file("1", R"({\"w\":[[3,4],[1,0]]})",
       R"("w":{"dtype":"U8","shape":[2,3],"data_offsets":[0,6]})", "456abc");
  file("10", R"({\"w\":[[3,4],[1,3]]})",
       R"("w":{"dtype":"U8","shape":[2,1],"data_offsets":[0,2]})", "7d");
}

TEST(MergeWeights, PutsThePartsOfProcessesTogether) {
  const Folder folder;
  write_processes(folder);
  const Result result = accel({"merge-weights", ".", "out"}, in(folder));
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_EQ(
      folder.read("out/model.safetensors"),
      safetensors(
          R"({"__metadata__":{"format":"pt"},"steps":{"dtype":"I64","shape":[],"data_offsets":[0,8]},"w":{"dtype":"U8","shape":[3,4],"data_offsets":[8,20]}})",
          "STEPSTEP01234567abcd"));
  expect_part(
      accel({"estimate-memory", "."}, in(folder)).out, "in 2 tensors, 20 B");

  const auto says = [](const std::string& name, const std::string& from,
                       const std::string& to, const std::string& part) {
    const Folder other;
    write_processes(other);
    std::string bytes = other.read(name);
    if (from.empty()) {
      std::filesystem::remove(other / name);
    } else {
      write(other / name, bytes.replace(bytes.find(from), from.size(), to));
    }
    const Result refused = accel({"merge-weights", ".", "out"}, in(other));
    EXPECT_EQ(refused.status, 125) << part;
    expect_part(refused.err, part);
    EXPECT_FALSE(other.has("out/model.safetensors"));
  };
  const std::string last = "model.process_10.safetensors";
  says(last, "", "", "have 10 of the 12 elements of w");
  says(last, "[1,3]", "[1,2]", "model.process_1.safetensors has, too");
  says(last, "[1,3]", "[2,3]", "what it has of w is no part of it");
  says(last, "[3,4]", "[3,5]", "w is of other sizes than in");
  says(last, "[[3,4]", "[{},[]", "the place of w");
  says(last, "{\\\"w", "[\\\"w", "is no JSON object");
}

TEST(MergeWeights, PutsBlocksOfProcessesTogether) {
  // A tensor of 4 x 6 bytes, "abcdefgh…x": of each of two blocks of rows and of three
  // blocks of columns a process has one row and one column; of a vector of 6 three
  // blocks of one.
  const Folder folder;
  const std::string bytes[4] = {"acemoqace", "bdfnprbdf", "giksuwACE", "hjltvxBDF"};
  for (int rank = 0; rank < 4; ++rank) {
    const std::string row = std::to_string(rank / 2), column = std::to_string(rank % 2);
    std::string boxes = R"({\"w\":[[4,6],[)" + row + "," + column + "],[2,3]]";
    std::string tensors =
        R"("w":{"dtype":"U8","shape":[2,3],"data_offsets":[0,6]})";
    if (rank < 2) {
      boxes += R"(,\"v\":[[6],[)" + column + "],[3]]";
      tensors += R"(,"v":{"dtype":"U8","shape":[3],"data_offsets":[6,9]})";
    }
    write(
        folder / ("model.process_" + std::to_string(rank) + ".safetensors"),
        safetensors(
            R"({"__metadata__":{"accel.pieces":")" + boxes + R"(}"},)" + tensors + "}",
            bytes[rank].substr(0, rank < 2 ? 9 : 6)));
  }
  const Result result = accel({"merge-weights", ".", "out"}, in(folder));
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_EQ(
      folder.read("out/model.safetensors"),
      safetensors(
          R"({"v":{"dtype":"U8","shape":[6],"data_offsets":[0,6]},"w":{"dtype":"U8","shape":[4,6],"data_offsets":[6,30]}})",
          "abcdefabcdefghijklmnopqrstuvwx"));
  const auto says = [&](const std::string& from, const std::string& to,
                        const std::string& part) {
    const Folder other;
    for (int rank = 0; rank < 4; ++rank) {
      const std::string name = "model.process_" + std::to_string(rank) + ".safetensors";
      std::string file = folder.read(name);
      if (rank == 3) {
        file.replace(file.find(from), from.size(), to);
      }
      write(other / name, file);
    }
    const Result refused = accel({"merge-weights", ".", "out"}, in(other));
    EXPECT_EQ(refused.status, 125) << part;
    expect_part(refused.err, part);
  };
  says("[1,1],[2,3]", "[1,1],[1,3]", "w is cut in other blocks than in");
  says("[1,1],[2,3]", "[1,1],[2,2]", "what it has of w is no part of it");
  says("[1,1],[2,3]", "[1,1],[0,3]", "what it has of w is no part of it");
  says("[1,1],[2,3]", "[2,1],[2,3]", "what it has of w is no part of it");
  says("[1,1],[2,3]", "[1,0],[2,3]", "model.process_2.safetensors has, too");
  says("[1,1],[2,3]", "[1,1],[2,x]", "is no JSON object");
}

TEST(EstimateMemory, CountsParametersAndWhatBelongsToThem) {
  const Folder folder;
  write_shards(folder);
  const Result result = accel({"estimate-memory", "."}, in(folder));
  EXPECT_EQ(result.status, 0) << result.err;
  // 4 + 3 of floating point, and 8 bytes that are none.
  expect_part(result.out, "7 parameters in 3 tensors, 30 B as stored\n");
  expect_part(result.out, "largest tensor: a.weight, 16 B\n");
  const std::string row = plan_line(result.out, "float32");
  EXPECT_EQ(row, "float32 36 B 28 B 56 B 120 B 120 B");

  const Result counted = accel(
      {"estimate-memory", "--parameters", "1.5K", "--optimizer",
       "sgd-momentum", "-n", "2"},
      in(folder));
  EXPECT_EQ(
      plan_line(counted.out, "bfloat16 or float16"),
      "bfloat16 or float16 2.93 KiB 2.93 KiB 2.93 KiB 8.79 KiB 17.58 KiB")
      << counted.err;

  // Divided: what is no parameter (8 B) stays whole. The process with most has 4 of the
  // 7 numbers; both tensors are so small that they are one unit, which is whole for a
  // time, with its gradient.
  const auto divided = accel({"estimate-memory", ".", "-n", "2"}, in(folder));
  const auto table = divided.out.find("per process of 2");
  ASSERT_NE(table, std::string::npos) << divided.out << divided.err;
  EXPECT_EQ(
      plan_line(divided.out.substr(table), "float32"),
      "float32 120 B 128 B 128 B");
  expect_part(counted.out, "FULL_SHARD: and two units (children of the model)");
  EXPECT_EQ(result.out.find("FULL_SHARD"), std::string::npos);
}

/// The rows of the table of processes, and what is said behind it.
std::string of_processes(const Folder& folder, Strings options) {
  options.insert(options.begin(), "estimate-memory");
  const Result result = accel(options, in(folder));
  EXPECT_EQ(result.status, 0) << result.err;
  const auto table = result.out.find("per process of ");
  EXPECT_NE(table, std::string::npos) << result.out;
  return result.out.substr(std::min(table, result.out.size()));
}

TEST(EstimateMemory, KnowsHowModelsAreDivided) {
  const Folder folder;
  // 12 blocks of 12 MiB, in the order of a file.
  std::string header;
  uint64_t end = 0;
  const auto add = [&](const std::string& name, uint64_t rows, uint64_t columns) {
    const uint64_t begin = end;
    end += 4 * rows * columns;
    header += (header.empty() ? "" : ",") + ("\"" + name) +
        R"(":{"dtype":"F32","shape":[)" + std::to_string(rows) + "," +
        std::to_string(columns) + R"(],"data_offsets":[)" + std::to_string(begin) + "," +
        std::to_string(end) + "]}";
  };
  for (const std::string block :
       {"0", "1", "10", "11", "2", "3", "4", "5", "6", "7", "8", "9"}) {
    for (const std::string layer : {"down", "gate", "up"}) {
      add("blocks." + block + "." + layer + ".weight", 1024, 1024);
    }
  }
  write(folder / "m.safetensors", safetensors("{" + header + "}", ""));
  std::filesystem::resize_file(
      folder / "m.safetensors",
      std::filesystem::file_size(folder / "m.safetensors") + end);
  const std::string file = "m.safetensors";
  // 144 MiB of weights, 576 of training state. FULL_SHARD: a fourth and two units.
  const auto plain = of_processes(folder, {file, "-n", "4"});
  EXPECT_EQ(
      plan_line(plain, "float32"), "float32 576.00 MiB 300.00 MiB 168.00 MiB");
  expect_part(plain, "largest unit: blocks.0, 12.00 MiB\n");
  // Copies in half are what is gathered.
  EXPECT_EQ(
      plan_line(plain, "float32, mixed fp16/bf16"),
      "float32, mixed fp16/bf16 648.00 MiB 246.00 MiB 180.00 MiB");
  const auto row = [&](const Strings& options) {
    Strings all{file};
    all.insert(all.end(), options.begin(), options.end());
    return plan_line(of_processes(folder, all), "float32");
  };
  // Groups that each hold all of it.
  const auto hybrid = of_processes(folder, {file, "--dp-replicate", "2", "--dp-shard", "2"});
  expect_part(hybrid, "per process of 4");
  expect_part(hybrid, "HYBRID_SHARD_ZERO2       HYBRID_SHARD\n");
  EXPECT_EQ(plan_line(hybrid, "float32"), "float32 444.00 MiB 312.00 MiB");
  // Layers; of what is left of them units come together.
  EXPECT_EQ(row({"--tp", "2"}), "float32 288.00 MiB");
  EXPECT_EQ(row({"--dp_shard", "2", "--tp", "2"}), "float32 222.00 MiB 156.00 MiB");
  // Positions: everything is whole, but for what is divided along dp_shard.
  EXPECT_EQ(row({"--cp", "4"}), "float32 576.00 MiB");
  EXPECT_EQ(row({"--dp-shard", "2", "--sp", "2", "-n", "4"}), "float32 444.00 MiB 312.00 MiB");
  // What lies in files; parts of weights only where they are divided to the end.
  EXPECT_EQ(
      row({"-n", "4", "--offload-optimizer-device", "nvme"}),
      "float32 288.00 MiB 228.00 MiB 96.00 MiB");
  const auto on_host = of_processes(folder, {file, "-n", "4", "--offload-optimizer-device", "cpu"});
  EXPECT_EQ(plan_line(on_host, "float32"), "float32 288.00 MiB 228.00 MiB 96.00 MiB");
  expect_part(
      on_host,
      "not counted, in the host's memory, where the processes use GPUs: optimizer states\n");
  const auto files = of_processes(
      folder,
      {file, "-n", "4", "--offload_optimizer_device", "nvme", "--offload_param_device", "nvme"});
  EXPECT_EQ(plan_line(files, "float32"), "float32 60.00 MiB");
  expect_part(files, "not counted, in files: optimizer states, parts of weights\n");
  EXPECT_EQ(row({"--offload-optimizer-device", "nvme"}), "float32 288.00 MiB");

  // A child with more than a quarter of the model is taken apart, what has fewer rows
  // than there are processes stays whole, and a model may have tensors of its own.
  header.clear();
  end = 0;
  add("body.deep.0.weight", 1024, 1024);
  add("body.deep.1.weight", 1024, 1024);
  add("body.wide.weight", 1024, 2048);
  add("scale", 3, 1024 * 1024);
  add("table", 2048, 1024);
  write(folder / "m.safetensors", safetensors("{" + header + "}", ""));
  std::filesystem::resize_file(
      folder / "m.safetensors",
      std::filesystem::file_size(folder / "m.safetensors") + end);
  const auto parts = of_processes(folder, {file, "-n", "4"});
  expect_part(parts, "largest unit: the model's own, 8.00 MiB\n");
  // 6 of 9 M numbers are divided: 1.5 + 3 stay, 16 bytes each; two units of 2.
  EXPECT_EQ(plan_line(parts, "float32"), "float32 144.00 MiB 104.00 MiB 88.00 MiB");
}

TEST(EstimateMemory, RefusesWhatMakesNoSense) {
  const Folder folder;
  const auto says = [&](const Strings& arguments, const std::string& part) {
    Strings all{"estimate-memory"};
    all.insert(all.end(), arguments.begin(), arguments.end());
    const Result result = accel(all, in(folder));
    EXPECT_NE(result.status, 0);
    expect_part(result.err, part);
  };
  says({}, "give either MODEL or --parameters");
  says({"--parameters", "7Q"}, "'7Q' is no count");
  says({"--parameters", "-3"}, "'-3' is no count");
  says({"--parameters", "7B", "--cp", "2", "--sp", "2"},
       "cp 2, sp 2: cp and sp share the positions of a sequence in two ways");
  says({"--parameters", "7B", "-n", "4", "--tp", "2"},
       "tp 2 make a mesh of 2 processes, but --num-processes is 4");
  says({"--parameters", "7B", "-n", "2", "--tp", "1"},
       "sizes of 1 make a mesh of 1 processes, but --num-processes is 2");
  says({"--parameters", "7B", "--tp", "0"}, "--tp: 0 is not a whole number");
  says({"--parameters", "7B", "--tp", "2", "--offload-param-device", "nvme"},
       "is for FULL_SHARD (stage 3), and nothing is divided; give");
  says({"--parameters", "7B", "--offload-optimizer-device", "disk"},
       "disk is none of none, cpu and nvme");
  says({"--parameters", "7B", "--optimiser", "sgd"}, "did you mean --optimizer?");
  says({"--parameters", "7B", "--optimizer", "adma"}, "did you mean adam?");
  says({"none.safetensors"}, "there is no such file");
  says({"7B"}, "a number of parameters is given as --parameters 7B");
}

} // namespace
