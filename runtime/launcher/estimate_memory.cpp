#include <unistd.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "command_line.h"
#include "commands.h"
#include "divided_memory.h"
#include "error.h"
#include "launch_settings.h"
#include "parallel/deepspeed_settings.h"
#include "parallel/parallelism_settings.h"
#include "safetensors_files.h"
#include "settings.h"
#include "suggestion.h"

namespace accel::launcher {
namespace {

constexpr const char* kEstimateFooter =
    R"(MODEL is a safetensors file, an index of several, or a folder with one of
them; only headers are read. Tensors of floating point are taken for
parameters, so that the running statistics of batch norm count as such.

Every process of data parallelism has all of it. For several processes a second
table says what each one has where it is divided between them (accel launch
--fsdp): with SHARD_GRAD_OP a part of everything, and all weights between forward
and backward; with FULL_SHARD a part, and two units (children of the model), or one
and its gradient. --dp-replicate, --dp-shard, --cp, --sp and --tp are those of accel
launch: along dp_replicate, cp and sp parameters are whole, and with dp_replicate
and dp_shard it is HYBRID_SHARD; along tp matrices are taken to be divided, as in a
plan that is made from the model. What lies in files (nvme) does not count, for the
system keeps of it what there is room for; with cpu it counts, for it is the memory
of the processes. Activations, which are divided with the batch, and LibTorch itself
(some 200 MiB) come on top.

Examples:
  accel estimate-memory model.safetensors
  accel estimate-memory --parameters 7B --optimizer sgd --num-processes 4
  accel estimate-memory model.safetensors --dp-replicate 2 --dp-shard 2 --tp 2
  accel estimate-memory model/ -n 2 --offload-optimizer-device nvme)";

struct Training {
  const char* name;
  /// Bytes per parameter: of a weight, of its copy in a lower precision that autocast
  /// keeps, …
  double weights;
  double copies;
  double gradients;
  double state;

  double all() const {
    return weights + copies + gradients + state;
  }
  /// Of a weight that is gathered.
  double gathered() const {
    return copies > 0 ? copies : weights;
  }
};

/// What an optimizer keeps per parameter, in numbers of its dtype.
struct Optimizer {
  const char* name;
  double numbers;
};
constexpr Optimizer kOptimizers[] = {
    {"adam", 2}, {"adamw", 2}, {"sgd", 0}, {"sgd-momentum", 1},
    {"adagrad", 1}, {"rmsprop", 1}};

std::string format_bytes(double bytes) {
  const char* units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
  size_t unit = 0;
  while (bytes >= 1024 && unit + 1 < std::size(units)) {
    bytes /= 1024;
    ++unit;
  }
  char text[64];
  std::snprintf(
      text, sizeof(text), unit == 0 ? "%.0f %s" : "%.2f %s", bytes, units[unit]);
  return text;
}

/// "7B", "125M", "1.5e9", "124439808"; nothing where it is no count.
std::optional<double> parse_count(const std::string& text) {
  char* end = nullptr;
  double count = std::strtod(text.c_str(), &end);
  const std::string unit = end;
  const bool known = unit.empty() || unit == "K" || unit == "M" ||
                     unit == "B" || unit == "T";
  if (end == text.c_str() || !known || !(count > 0) || !std::isfinite(count)) {
    return std::nullopt;
  }
  count *= unit == "K"   ? 1e3
           : unit == "M" ? 1e6
           : unit == "B" ? 1e9
           : unit == "T" ? 1e12
                         : 1;
  return std::round(count);
}

/// What lies in files.
struct Offload {
  bool states = false;
  bool weights = false;
  /// Where they lie.
  std::string where;
};

/// What each of several processes has, by how the training is divided.
void print_divided(
    const std::vector<Training>& rows,
    const HeldParameters& held,
    const HeldParameters& undivided,
    double other_bytes,
    const MeshSizes& sizes,
    bool is_mesh,
    const Offload& offload) {
  struct Column {
    std::string name;
    const HeldParameters& held;
    /// How much of the weights comes together, and how much of the gradients.
    double weights;
    double gradients;
  };
  const bool divided = size_of(sizes, "dp_shard") > 1;
  const std::string hybrid = size_of(sizes, "dp_replicate") > 1 ? "HYBRID_SHARD" : "";
  std::vector<Column> columns;
  if (!offload.weights && (!is_mesh || !divided)) {
    columns.push_back({"NO_SHARD", undivided, 0, 0});
  }
  if (divided && !offload.weights) {
    columns.push_back(
        {hybrid.empty() ? "SHARD_GRAD_OP" : hybrid + "_ZERO2", held, held.gathered,
         held.largest_unit});
  }
  if (divided) {
    columns.push_back(
        {hybrid.empty() ? "FULL_SHARD" : hybrid, held, held.largest_unit,
         held.largest_unit});
  }
  if (is_mesh) {
    std::printf("\nmesh: %s\n", to_text(sizes).c_str());
  } else {
    std::printf("\n");
  }
  std::printf(
      "%-26s", ("per process of " + std::to_string(product_of(sizes))).c_str());
  for (const auto& column : columns) {
    std::printf(" %18s", column.name.c_str());
  }
  for (const Training& row : rows) {
    std::printf("\n%-26s", row.name);
    for (const auto& column : columns) {
      const double kept = row.all() - (offload.states ? row.state : 0) -
          (offload.weights ? row.weights : 0);
      const double bytes = column.held.parts * kept +
          column.weights * row.gathered() + column.gradients * row.gradients;
      std::printf(" %18s", format_bytes(bytes + other_bytes).c_str());
    }
  }
  std::printf("\n");
  if (divided && held.unit.empty()) {
    std::printf(
        "%s: and two units (children of the model), which a number does not tell\n",
        columns.back().name.c_str());
  } else if (divided) {
    std::printf(
        "largest unit: %s, %s\n", held.unit.c_str(),
        format_bytes(held.largest_unit * sizeof(float)).c_str());
  }
  if (offload.states || offload.weights) {
    std::printf(
        "not counted, in %s: %s%s%s\n", offload.where.c_str(),
        offload.states ? "optimizer states" : "",
        offload.states && offload.weights ? ", " : "",
        offload.weights ? "parts of weights" : "");
  }
}

/// Options for the sizes of a mesh, as accel launch has them.
class MeshOptions {
 public:
  explicit MeshOptions(CLI::App& command) {
    for (const auto& axis : parallel::parallelism_settings()) {
      auto& value = values_[axis.name];
      command.add_option(axis.options, value, axis.help)
          ->type_name("N")
          ->check(CLI::Validator(
              [](std::string& text) { return check_mesh_size(text); }, ""));
    }
  }

  /// Nothing where none was given.
  std::optional<MeshSizes> read() const {
    std::optional<MeshSizes> sizes;
    for (const auto& [name, value] : values_) {
      if (!value.empty()) {
        sizes = sizes.value_or(MeshSizes());
        (*sizes)[name] = std::atol(value.c_str());
      }
    }
    if (sizes && size_of(*sizes, "cp") > 1 && size_of(*sizes, "sp") > 1) {
      throw Error(
          kUsage,
          to_text(*sizes) + ": cp and sp share the positions of a sequence in two "
                            "ways; leave one of them out");
    }
    return sizes;
  }

 private:
  std::map<std::string, std::string> values_;
};

/// Options for what lies elsewhere, as accel launch has them.
class OffloadOptions {
 public:
  explicit OffloadOptions(CLI::App& command) {
    add(command, "offload_optimizer_device", states_);
    add(command, "offload_param_device", weights_);
  }

  Offload read(bool divided) const {
    const auto states = parallel::in_lower_case(states_);
    const auto weights = parallel::in_lower_case(weights_);
    const auto is_moved = [](const std::string& device) {
      return !device.empty() && device != "none";
    };
    const bool all_in_files = (!is_moved(states) || states == "nvme") &&
        (!is_moved(weights) || weights == "nvme");
    if (is_moved(weights) && !divided) {
      throw Error(
          kUsage,
          "--offload-param-device " + weights +
              " is for FULL_SHARD (stage 3), and nothing is divided; give "
              "--num-processes N or --dp-shard N, too");
    }
    return {
        is_moved(states), is_moved(weights),
        all_in_files ? "files" : "the host's memory, where the processes use GPUs"};
  }

 private:
  static void add(CLI::App& command, const char* name, std::string& value) {
    const auto* setting = parallel::find_setting(parallel::deepspeed_settings(), name);
    command.add_option(setting->option, value, setting->help)
        ->type_name(setting->type)
        ->check(CLI::Validator(
            [check = setting->check](std::string& text) { return check(text); }, ""));
  }

  std::string states_;
  std::string weights_;
};

} // namespace

int estimate_memory_command(const std::vector<std::string>& arguments) {
  CLI::App command(
      "Says how much memory a model's weights, gradients and optimizer need.",
      "estimate-memory");
  set_help(command, "[OPTIONS] [MODEL]", kEstimateFooter);
  std::string model;
  std::string parameters;
  std::string optimizer = "adam";
  int processes = 1;
  command.add_option("model", model, "A file or a folder")->type_name("");
  command
      .add_option(
          "--parameters", parameters, "A number in place of MODEL: 125M, 7B")
      ->type_name("COUNT");
  command
      .add_option(
          "--optimizer",
          optimizer,
          "adam (if not given), adamw, sgd, sgd-momentum, adagrad, rmsprop")
      ->type_name("NAME");
  command
      .add_option(
          "-n,--num-processes",
          processes,
          "Processes; 1 if not given, or as many as the sizes below make")
      ->type_name("N")
      ->check(CLI::Range(1, 4096).description(""));
  const MeshOptions mesh(command);
  const OffloadOptions offloads(command);
  if (!parse_arguments(command, arguments)) {
    return 0;
  }
  if (model.empty() == parameters.empty()) {
    throw Error(
        kUsage,
        "give either MODEL or --parameters COUNT\nRun accel estimate-memory "
        "--help for examples.");
  }
  const Optimizer* kept = nullptr;
  std::vector<std::string> names;
  for (const Optimizer& known : kOptimizers) {
    names.emplace_back(known.name);
    if (optimizer == known.name) {
      kept = &known;
    }
  }
  if (!kept) {
    throw Error(kUsage, "--optimizer: " + one_of(names)(optimizer));
  }
  const auto given = mesh.read();
  if (given && command.count("--num-processes") != 0 && product_of(*given) != processes) {
    throw Error(
        kUsage,
        (to_text(*given).empty() ? "sizes of 1" : to_text(*given)) +
            " make a mesh of " + std::to_string(product_of(*given)) +
            " processes, but --num-processes is " + std::to_string(processes) +
            "; the product of the sizes must be the number of processes");
  }
  // Without sizes all of them divide it.
  const MeshSizes sizes = given.value_or(MeshSizes{{"dp_shard", processes}});
  processes = static_cast<int>(product_of(sizes));
  const Offload offload = offloads.read(size_of(sizes, "dp_shard") > 1);
  MeshSizes undivided = sizes;
  undivided["dp_shard"] = 1;

  double count = 0;
  // Buffers that are whole numbers, as they are.
  double other_bytes = 0;
  HeldParameters held;
  HeldParameters whole;
  if (!parameters.empty()) {
    const auto number = parse_count(parameters);
    if (!number) {
      throw Error(
          kUsage,
          "--parameters: '" + parameters +
              "' is no count; write 124439808, 125M, 1.5B or the like");
    }
    count = *number;
    held = divide(count, sizes);
    whole = divide(count, undivided);
    std::printf("%.0f parameters\n", count);
  } else {
    if (parse_count(model) && ::access(model.c_str(), F_OK) != 0) {
      throw Error(
          kUsage,
          "there is no file or folder " + model +
              "; a number of parameters is given as --parameters " + model);
    }
    const ModelFiles files = read_model_files(model);
    double stored = 0;
    const TensorEntry* largest = nullptr;
    for (const TensorEntry& entry : files.tensors) {
      stored += static_cast<double>(entry.bytes);
      if (is_floating(entry.dtype)) {
        count += static_cast<double>(entry.elements);
      } else {
        other_bytes += static_cast<double>(entry.bytes);
      }
      if (!largest || entry.bytes > largest->bytes) {
        largest = &entry;
      }
    }
    std::printf(
        "%.0f parameters in %zu tensors, %s as stored\n",
        count,
        files.tensors.size(),
        format_bytes(stored).c_str());
    if (largest) {
      std::printf(
          "largest tensor: %s, %s\n",
          largest->name.c_str(),
          format_bytes(static_cast<double>(largest->bytes)).c_str());
    }
    held = divide(files.tensors, sizes);
    whole = divide(files.tensors, undivided);
  }
  const double state = kept->numbers;
  const std::vector<Training> rows{
      {"float32", 4, 0, 4, 4 * state},
      {"float32, mixed fp16/bf16", 4, 2, 4, 4 * state},
      {"bfloat16 or float16", 2, 0, 2, 2 * state},
      {"float64", 8, 0, 8, 8 * state},
  };
  std::printf(
      "\n%-26s %12s %12s %12s %14s %16s\n",
      "training in",
      "weights",
      "gradients",
      kept->name,
      "per process",
      (std::to_string(processes) + " process" + (processes == 1 ? "" : "es"))
          .c_str());
  for (const Training& row : rows) {
    const double total = count * row.all() + other_bytes;
    std::printf(
        "%-26s %12s %12s %12s %14s %16s\n",
        row.name,
        format_bytes(count * (row.weights + row.copies) + other_bytes).c_str(),
        format_bytes(count * row.gradients).c_str(),
        format_bytes(count * row.state).c_str(),
        format_bytes(total).c_str(),
        format_bytes(total * processes).c_str());
  }
  if (processes > 1 || offload.states) {
    print_divided(
        rows, held, whole, other_bytes, sizes, given.has_value(), offload);
  }
  std::fflush(stdout);
  return 0;
}

} // namespace accel::launcher
