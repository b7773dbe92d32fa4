#include <filesystem>
#include <iostream>

#include "command_line.h"
#include "commands.h"
#include "error.h"
#include "safetensors_files.h"

namespace accel::launcher {

int merge_weights_command(const std::vector<std::string>& arguments) {
  namespace fs = std::filesystem;
  CLI::App command(
      "Makes one safetensors file of a model that lies in several.",
      "merge-weights");
  set_help(
      command,
      "[OPTIONS] MODEL OUTPUT",
      R"(MODEL is a folder with model.safetensors.index.json, or that file, or a
checkpoint of which each process has saved its part (--fsdp-state-dict-type
SHARDED_STATE_DICT). OUTPUT is a file that ends with .safetensors, or a folder that gets model.safetensors.
The bytes of the tensors are copied, the order is that of Python's
safetensors, the result that of a model that is not divided. The shards stay.

Example:
  accel merge-weights checkpoints/checkpoint_7 merged/)");
  std::string model;
  std::string output;
  bool overwrite = false;
  command.add_option("model", model, "A folder, or an index")
      ->required()
      ->type_name("");
  command.add_option("output", output, "A file or a folder")
      ->required()
      ->type_name("");
  command.add_flag("--overwrite", overwrite, "Replace OUTPUT where it exists");
  if (!parse_arguments(command, arguments)) {
    return 0;
  }
  const ModelFiles files = read_model_files(model);
  fs::path path(output);
  if (path.extension() != ".safetensors") {
    std::error_code error;
    fs::create_directories(path, error);
    if (error) {
      throw Error(
          kLauncherFailed,
          "cannot make the folder " + output + ": " + error.message());
    }
    path /= "model.safetensors";
  }
  std::error_code none;
  for (const TensorEntry& entry : files.tensors) {
    bool merged = fs::equivalent(entry.file, path, none);
    for (const TensorPiece& piece : entry.pieces) {
      merged = merged || fs::equivalent(piece.file, path, none);
    }
    if (merged) {
      throw Error(
          kUsage, path.string() + " is one of the files that are merged");
    }
  }
  if (!overwrite && fs::exists(path, none)) {
    throw Error(
        kUsage, path.string() + " exists. Give --overwrite to replace it");
  }
  write_merged(files, path.string());
  std::cout << "wrote " << path.string() << ": " << files.tensors.size()
            << " tensors, " << fs::file_size(path, none) << " bytes\n";
  return 0;
}

} // namespace accel::launcher
