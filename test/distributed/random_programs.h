#pragma once

#include <accel/distributed/device_mesh.h>

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

/// Programs over tensors that are made at random, and what they leave.
namespace accel::distributed::test {

/// One instruction: what is done with which values. Values are named by any
/// number, taken modulo how many there are, so that a program stays one when
/// instructions are taken out of it.
struct Instruction {
  std::string name;
  uint64_t a = 0;
  uint64_t b = 0;
  uint64_t c = 0;
  /// Of its own random choices.
  uint64_t seed = 0;
};
using Program = std::vector<Instruction>;

/// The program of a seed; its last instruction is a step of training. `layers`:
/// every second one of the others is a layer of torch::nn or the like.
Program make_program(uint64_t seed, int64_t length, bool layers);
/// One instruction a line.
std::string text_of(const Program& program);

/// What a program leaves, whole and plain.
struct Left {
  std::vector<at::Tensor> tensors;
  /// Of the first tensors, those that have a value; of a plain one with gaps empty.
  std::vector<std::vector<int64_t>> strides;
  std::vector<double> numbers;
};

/// Runs a program: on plain tensors where `mesh` is null. `trace`, where it is
/// there, gets a line for each instruction. `recomputes`: what autograd saves is let go
/// between instructions, at random, and made again. Throws what an instruction throws.
Left run(
    const Program& program,
    uint64_t seed,
    const DeviceMesh* mesh,
    std::string* trace = nullptr,
    bool recomputes = false);

/// Whether programs on a mesh recompute.
bool& recompute_on_mesh();

/// Whether the stride of a dimension of one entry must be the plain one's, too, on
/// meshes of one axis. It leads to nothing in memory, and PyTorch's own tests do not
/// compare it (`check_significant_strides`); where LibTorch looks at it, something
/// else comes to differ.
bool& all_strides();

/// Takes out what plain tensors refuse, such as writes that autograd forbids;
/// what is left runs.
Left run_plain(Program& program, uint64_t seed);

struct World {
  std::string name;
  /// Empty: plain tensors, with the same bits, where programs recompute.
  std::vector<int64_t> sizes;
};

/// Empty where the program gives what plain tensors give.
std::string failure_of(
    const Program& program,
    uint64_t seed,
    const World& world,
    const Left& plain);

/// Takes out instructions as long as it still fails.
Program shrink(Program program, uint64_t seed, const World& world);

/// What the program makes, of plain tensors and on rank 0.
std::pair<std::string, std::string> traces_of(
    const Program& program,
    uint64_t seed,
    const World& world);

} // namespace accel::distributed::test
