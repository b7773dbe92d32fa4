// Runs random programs on plain and on distributed tensors, compares what they
// leave, and shrinks those that differ.

#include "distributed/recompute.h"
#include "random_program_machine.h"
#include "thread_ranks.h"

#include <accel/distributed/tensor.h>

#include <ATen/Parallel.h>

#include <algorithm>
#include <cmath>
#include <mutex>
#include <optional>
#include <random>
#include <stdexcept>

namespace accel::distributed::test {

using at::Tensor;

namespace {

/// Which instruction has thrown.
struct Thrown : std::runtime_error {
  Thrown(size_t index, const std::string& what)
      : std::runtime_error(what), index(index) {}
  size_t index;
};

} // namespace

bool& recompute_on_mesh() {
  static bool on = false;
  return on;
}

bool& all_strides() {
  static bool all = false;
  return all;
}

Left run(
    const Program& program,
    uint64_t seed,
    const DeviceMesh* mesh,
    std::string* trace,
    bool recomputes) {
  std::optional<Recompute> recompute;
  if (recomputes) {
    recompute.emplace();
  }
  std::mt19937_64 ends(seed * 7 + 3);
  auto generator = at::make_generator<at::CPUGeneratorImpl>(seed + 1);
  std::mt19937_64 random(seed * 31 + 5);
  const auto fresh = [&](std::vector<int64_t> sizes) {
    return at::randn(sizes, generator, at::kDouble);
  };
  Machine m;
  m.mesh = mesh;
  m.trace = trace;
  for (int k = 0; k < 5; ++k) {
    std::vector<int64_t> sizes;
    const auto dims = 1 + random() % 3;
    for (uint64_t d = 0; d < dims; ++d) {
      sizes.push_back(1 + static_cast<int64_t>(random() % 6));
    }
    const auto placing = random();
    m.values.push_back(m.place(fresh(sizes), placing));
  }
  for (int k = 0; k < 3; ++k) {
    const auto placing = random();
    auto p = fresh({2 + k, 3}) * 0.4;
    m.parameters.push_back(
        (placing % 2 == 0 ? m.place(p, placing) : p.clone()).requires_grad_());
  }
  if (seed % 3 == 0) {
    // A gradient that is zero but for rounding must not become a step.
    m.optimizer = std::make_unique<torch::optim::Adam>(
        m.parameters, torch::optim::AdamOptions(1e-2).eps(1e-5));
  } else {
    m.optimizer = std::make_unique<torch::optim::SGD>(
        m.parameters, torch::optim::SGDOptions(0.05).momentum(seed % 2 == 0 ? 0.9 : 0));
  }
  for (size_t k = 0; k < program.size(); ++k) {
    if (recompute && ends() % 3 == 0) {
      recompute->begin();
    }
    const auto& instruction = program[k];
    const auto found = std::find_if(
        actions().begin(), actions().end(),
        [&](const Named& named) { return instruction.name == named.name; });
    if (trace != nullptr) {
      *trace += c10::str(
          "    ", instruction.name, " of value ", instruction.a % m.values.size(),
          describe(m.value(instruction.a)), ", b=", instruction.b, " (value ",
          instruction.b % m.values.size(), describe(m.value(instruction.b)),
          "), c=", instruction.c, " ->");
    }
    try {
      found->action(m, instruction);
      if (trace != nullptr) {
        *trace += '\n';
      }
    } catch (const c10::Error& error) {
      throw Thrown(k, error.what_without_backtrace());
    } catch (const std::exception& error) {
      throw Thrown(k, error.what());
    }
  }
  Left left;
  left.numbers = m.numbers;
  for (const auto& list : {m.values, m.parameters}) {
    for (const auto& tensor : list) {
      left.tensors.push_back(full_tensor(tensor.detach()).clone());
      left.strides.push_back(
          mesh != nullptr || tensor.is_non_overlapping_and_dense()
              ? tensor.strides().vec()
              : std::vector<int64_t>());
    }
  }
  for (const auto& parameter : m.parameters) {
    left.tensors.push_back(
        parameter.grad().defined() ? full_tensor(parameter.grad()).detach().clone()
                                   : Tensor());
  }
  return left;
}

namespace {

/// Where plain tensors are beside plain tensors the same bits are expected.
thread_local bool exactly = false;

bool near(double a, double b) {
  return exactly ? a == b || (std::isnan(a) && std::isnan(b)) : a == b || (std::isnan(a) && std::isnan(b)) ||
      std::abs(a - b) <= 1e-6 * std::max({std::abs(a), std::abs(b), 1e-2});
}

/// Whether strides are equal; `ones`: those of dimensions of one entry, too.
bool same_strides(
    c10::IntArrayRef sizes,
    c10::IntArrayRef a,
    c10::IntArrayRef b,
    bool ones) {
  for (size_t d = 0; d < sizes.size(); ++d) {
    if (a[d] != b[d] && (ones || sizes[d] != 1)) {
      return false;
    }
  }
  return true;
}

/// `ones`: dimensions of one entry have the plain ones' strides, too.
std::string difference(const Left& plain, const Left& got, bool ones) {
  if (plain.numbers.size() != got.numbers.size()) {
    return "went another way";
  }
  for (size_t i = 0; i < plain.numbers.size(); ++i) {
    if (!near(plain.numbers[i], got.numbers[i])) {
      return c10::str(
          "number ", i, " is ", got.numbers[i], " instead of ", plain.numbers[i]);
    }
  }
  for (size_t i = 0; i < plain.strides.size(); ++i) {
    // What has gaps is copied where it is placed.
    if (!plain.strides[i].empty() && got.tensors[i].sizes() == plain.tensors[i].sizes() &&
        !same_strides(
            plain.tensors[i].sizes(), plain.strides[i],
            got.strides[i], ones)) {
      return c10::str(
          "tensor ", i, " of sizes ", plain.tensors[i].sizes(), " has strides ",
          got.strides[i], " instead of ", plain.strides[i]);
    }
  }
  for (size_t i = 0; i < plain.tensors.size(); ++i) {
    const auto& a = plain.tensors[i];
    const auto& b = got.tensors[i];
    if (a.defined() != b.defined()) {
      return c10::str("tensor ", i, b.defined() ? " is there" : " is not there");
    }
    if (!a.defined()) {
      continue;
    }
    if (a.sizes() != b.sizes() || a.scalar_type() != b.scalar_type()) {
      return c10::str(
          "tensor ", i, " is ", b.scalar_type(), b.sizes(), " instead of ",
          a.scalar_type(), a.sizes());
    }
    if (a.numel() > 0 &&
        !at::allclose(
            b, a, exactly ? 0 : 1e-6, exactly ? 0 : 1e-8, /*equal_nan=*/true)) {
      return c10::str(
          "tensor ", i, " of sizes ", a.sizes(), " differs by ",
          (a - b).abs().max().item<double>());
    }
  }
  return "";
}

} // namespace

Left run_plain(Program& program, uint64_t seed) {
  while (true) {
    try {
      return run(program, seed, nullptr);
    } catch (const Thrown& thrown) {
      program.erase(program.begin() + static_cast<int64_t>(thrown.index));
    }
  }
}

std::string failure_of(
    const Program& program,
    uint64_t seed,
    const World& world,
    const Left& plain) {
  std::mutex mutex;
  std::string found;
  try {
    if (world.sizes.empty()) {
      exactly = true;
      const auto got = run(program, seed, nullptr, nullptr, /*recomputes=*/true);
      found = difference(plain, got, true);
      exactly = false;
      return found;
    }
    as_mesh(world.sizes, [&](const DeviceMesh& mesh) {
      at::set_num_threads(1);
      const auto got = run(program, seed, &mesh, nullptr, recompute_on_mesh());
      // A view with gaps that is gathered along one of several axes is dense.
      const auto text = difference(
          plain, got, all_strides() && world.sizes.size() == 1);
      if (!text.empty()) {
        const std::lock_guard<std::mutex> lock(mutex);
        found = text;
      }
    });
  } catch (const Thrown& thrown) {
    const auto& i = program[thrown.index];
    return c10::str(
        i.name, " c=", i.c, " throws: ",
        std::string(thrown.what()).substr(0, 300));
  } catch (const std::exception& error) {
    return std::string(error.what()).substr(0, 300);
  }
  return found;
}

Program shrink(Program program, uint64_t seed, const World& world) {
  for (size_t chunk = program.size() / 2; chunk > 0; chunk /= 2) {
    for (size_t begin = 0; begin < program.size();) {
      Program smaller = program;
      const auto end = std::min(begin + chunk, program.size());
      smaller.erase(
          smaller.begin() + static_cast<int64_t>(begin),
          smaller.begin() + static_cast<int64_t>(end));
      bool fails = false;
      try {
        const auto plain = run(smaller, seed, nullptr);
        fails = !failure_of(smaller, seed, world, plain).empty();
      } catch (const Thrown&) {
        fails = false;
      }
      if (fails) {
        program = std::move(smaller);
      } else {
        begin += chunk;
      }
    }
  }
  return program;
}

std::pair<std::string, std::string> traces_of(
    const Program& program,
    uint64_t seed,
    const World& world) {
  std::pair<std::string, std::string> traces;
  run(program, seed, nullptr, &traces.first);
  try {
    if (world.sizes.empty()) {
      run(program, seed, nullptr, &traces.second, /*recomputes=*/true);
      return traces;
    }
    as_mesh(world.sizes, [&](const DeviceMesh& mesh) {
      at::set_num_threads(1);
      bool first = true;
      for (int64_t axis = 0; axis < mesh.ndim(); ++axis) {
        first = first && mesh.coordinate(axis) == 0;
      }
      std::string own;
      run(program, seed, &mesh, first ? &traces.second : &own, recompute_on_mesh());
    });
  } catch (const std::exception&) {
    traces.second += " (throws)\n";
  }
  return traces;
}

} // namespace accel::distributed::test
