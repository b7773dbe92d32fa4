#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <optional>

#include "command_line.h"
#include "commands.h"
#include "error.h"
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
--fsdp): with SHARD_GRAD_OP all weights are there between forward and backward,
with FULL_SHARD the one that is being used, and its gradient. Activations, what is
computed in between, and LibTorch itself (some 200 MiB) come on top.

Examples:
  accel estimate-memory model.safetensors
  accel estimate-memory --parameters 7B --optimizer sgd --num-processes 4)";

struct Training {
  const char* name;
  /// Bytes per parameter.
  double weights;
  double gradients;
  double state;
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

/// What each of several processes has, by how the training is divided.
/// `largest`: the elements of the largest parameter; 0 where it is not known.
void print_divided(
    const Training* rows,
    size_t number,
    double count,
    double other_bytes,
    double largest,
    int processes) {
  std::printf(
      "\n%-26s %14s %14s %14s\n",
      ("per process of " + std::to_string(processes)).c_str(),
      "NO_SHARD",
      "SHARD_GRAD_OP",
      "FULL_SHARD");
  for (size_t i = 0; i < number; ++i) {
    const Training& row = rows[i];
    const double all = count * (row.weights + row.gradients + row.state);
    const double part = all / processes + other_bytes;
    std::printf(
        "%-26s %14s %14s %14s\n",
        row.name,
        format_bytes(all + other_bytes).c_str(),
        format_bytes(part + count * row.weights).c_str(),
        format_bytes(part + largest * (row.weights + row.gradients)).c_str());
  }
  if (largest == 0) {
    std::printf("FULL_SHARD: and the largest weight, twice\n");
  }
}

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
          "Processes on one host; 1 if not given")
      ->type_name("N")
      ->check(CLI::Range(1, 4096).description(""));
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

  double count = 0;
  // Buffers that are whole numbers, as they are.
  double other_bytes = 0;
  double largest_parameter = 0;
  if (!parameters.empty()) {
    const auto given = parse_count(parameters);
    if (!given) {
      throw Error(
          kUsage,
          "--parameters: '" + parameters +
              "' is no count; write 124439808, 125M, 1.5B or the like");
    }
    count = *given;
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
        largest_parameter = std::max(
            largest_parameter, static_cast<double>(entry.elements));
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
  }
  const double state = kept->numbers;
  const Training rows[] = {
      {"float32", 4, 4, 4 * state},
      // Autocast keeps copies of the weights in the lower precision.
      {"float32, mixed fp16/bf16", 4 + 2, 4, 4 * state},
      {"bfloat16 or float16", 2, 2, 2 * state},
      {"float64", 8, 8, 8 * state},
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
    const double total =
        count * (row.weights + row.gradients + row.state) + other_bytes;
    std::printf(
        "%-26s %12s %12s %12s %14s %16s\n",
        row.name,
        format_bytes(count * row.weights + other_bytes).c_str(),
        format_bytes(count * row.gradients).c_str(),
        format_bytes(count * row.state).c_str(),
        format_bytes(total).c_str(),
        format_bytes(total * processes).c_str());
  }
  if (processes > 1) {
    print_divided(
        rows, std::size(rows), count, other_bytes, largest_parameter, processes);
  }
  std::fflush(stdout);
  return 0;
}

} // namespace accel::launcher
