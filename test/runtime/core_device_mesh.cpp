// Meshes of several axes over real processes: every pair of placements gives what
// plain tensors give, training with batch and weights cut along different axes is
// that of one process, and what cannot be is an error on all processes.

#include "expectations.h"
#include "multiprocess.h"

#include <accel/accelerator.h>
#include <accel/distributed/tensor.h>

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <chrono>
#include <csignal>
#include <functional>
#include <iostream>
#include <string>
#include <thread>
#include <vector>

using accel::Accelerator;
using accel::AcceleratorOptions;
using accel::distributed::DeviceMesh;
using accel::distributed::distribute_tensor;
using accel::distributed::from_local;
using accel::distributed::full_tensor;
using accel::distributed::init_device_mesh;
using accel::distributed::Partial;
using accel::distributed::Placement;
using accel::distributed::placements;
using accel::distributed::redistribute;
using accel::distributed::Replicate;
using accel::distributed::Shard;
using accel::test::both_ways;
using accel::test::contains;
using accel::test::error_of;
using accel::test::expect_all_fail;
using accel::test::run;
using accel::test::run_and_expect_success;
using accel::test::RunOptions;
using torch::Tensor;

namespace {

AcceleratorOptions of_meshes() {
  return AcceleratorOptions().cpu(true).match_single_device(true);
}

/// 2 x 2 of four processes, 2 x 3 of six, 1 x 1 of one.
std::vector<int64_t> sizes_for(const Accelerator& accelerator) {
  const auto processes = accelerator.num_processes();
  return processes == 1 ? std::vector<int64_t>{1, 1}
                        : std::vector<int64_t>{2, processes / 2};
}

Tensor values(std::vector<int64_t> sizes) {
  return torch::sin(torch::arange(c10::multiply_integers(sizes), torch::kDouble))
      .view(sizes);
}

} // namespace

ACCEL_RANK_FUNCTION(stands_in_the_mesh) {
  Accelerator accelerator(of_meshes());
  const auto sizes = sizes_for(accelerator);
  const auto mesh = init_device_mesh(sizes, {"dp", "tp"});
  const auto rank = accelerator.process_index();
  EXPECT_EQ(mesh.ndim(), 2);
  EXPECT_EQ(mesh.size(), accelerator.num_processes());
  EXPECT_EQ(mesh.size(0), sizes[0]);
  EXPECT_EQ(mesh.size(1), sizes[1]);
  EXPECT_EQ(mesh.coordinate(0), rank / sizes[1]);
  EXPECT_EQ(mesh.coordinate(1), rank % sizes[1]);
  EXPECT_EQ(mesh.name(0), "dp");
  EXPECT_EQ(
      mesh.str(), c10::str(
                      "accel::DeviceMesh(dp=", sizes[0], ", tp=", sizes[1], ")"));
  EXPECT_EQ(mesh["tp"].ndim(), 1);
  EXPECT_EQ(mesh["tp"].coordinate(0), rank % sizes[1]);
  EXPECT_EQ((mesh[std::vector<std::string>{"tp", "dp"}]), mesh);
  // Made once; other names are another mesh.
  EXPECT_EQ(init_device_mesh(sizes, {"dp", "tp"}), mesh);
  EXPECT_NE(init_device_mesh(sizes), mesh);

  // Each line along an axis puts its own parts together.
  const auto own = torch::full({1}, rank, torch::kDouble);
  const auto row = full_tensor(from_local(own, mesh["tp"], Shard(0)));
  const auto column = full_tensor(from_local(own, mesh["dp"], Shard(0)));
  ASSERT_EQ(row.numel(), sizes[1]);
  ASSERT_EQ(column.numel(), sizes[0]);
  for (int64_t i = 0; i < sizes[1]; ++i) {
    EXPECT_EQ(row[i].item<double>(), rank / sizes[1] * sizes[1] + i);
  }
  for (int64_t i = 0; i < sizes[0]; ++i) {
    EXPECT_EQ(column[i].item<double>(), i * sizes[1] + rank % sizes[1]);
  }
}

TEST(DeviceMesh, ProcessesStandInRowsAndColumns) {
  for (const auto& way : both_ways()) {
    for (const int world : {1, 4, 6}) {
      run_and_expect_success("stands_in_the_mesh", world, way);
    }
  }
}

ACCEL_RANK_FUNCTION(places_in_all_ways) {
  Accelerator accelerator(of_meshes());
  const auto mesh = init_device_mesh(sizes_for(accelerator), {"dp", "tp"});
  const std::vector<Placement> all{
      Replicate(), Shard(0), Shard(1), Partial()};
  const auto weight = values({4, 5});
  for (const auto& sizes : {std::vector<int64_t>{7, 4}, {6, 4}, {1, 4}}) {
    for (const auto& a : all) {
      for (const auto& b : all) {
        const auto plain = values(sizes).requires_grad_();
        const auto expected = plain.matmul(weight).tanh();
        expected.pow(2).sum().backward();
        for (const auto& c : all) {
          for (const auto& d : all) {
            const auto leaf = values(sizes).requires_grad_();
            const auto placed = distribute_tensor(leaf, mesh, {a, b});
            const auto moved = redistribute(placed * 1, mesh, {c, d});
            EXPECT_TRUE(torch::equal(full_tensor(moved), plain))
                << a << b << " to " << c << d;
            const auto result = moved.matmul(weight).tanh();
            EXPECT_TRUE(torch::allclose(full_tensor(result), expected, 1e-12));
            result.pow(2).sum().backward();
            EXPECT_TRUE(torch::allclose(
                full_tensor(leaf.grad()), plain.grad(), 1e-12))
                << a << b << " to " << c << d;
          }
        }
      }
    }
  }
}

ACCEL_RANK_FUNCTION(places_along_one_axis_after_the_other) {
  Accelerator accelerator(of_meshes());
  const auto mesh = init_device_mesh(sizes_for(accelerator), {"dp", "tp"});
  const auto whole = values({9, 7});
  for (const bool dp_first : {true, false}) {
    for (const int64_t dp_dim : {0, 1}) {
      for (const int64_t tp_dim : {0, 1}) {
        const auto along = [&](const Tensor& x, bool dp) {
          return distribute_tensor(
              x, mesh[dp ? "dp" : "tp"], {Shard(dp ? dp_dim : tp_dim)});
        };
        const auto x = along(along(whole, dp_first), !dp_first);
        const auto once =
            distribute_tensor(whole, mesh, {Shard(dp_dim), Shard(tp_dim)});
        EXPECT_EQ(placements(x), placements(once));
        EXPECT_TRUE(torch::equal(full_tensor(x), whole));
        EXPECT_TRUE(torch::equal(full_tensor(x + once), whole * 2));
        // Only one axis changes.
        const auto back = distribute_tensor(x, mesh["dp"], {Replicate()});
        EXPECT_TRUE(torch::equal(full_tensor(back + x), whole * 2));
        EXPECT_EQ(accel::distributed::mesh(back), mesh["tp"]);
      }
    }
  }
}

TEST(DeviceMesh, ASubMeshLeavesTheOtherAxisAsItIs) {
  run_and_expect_success("places_along_one_axis_after_the_other", 4);
  run_and_expect_success("places_along_one_axis_after_the_other", 6);
}

TEST(DeviceMesh, EveryPairOfPlacementsGivesThePlainValues) {
  run_and_expect_success("places_in_all_ways", 4);
  run_and_expect_success("places_in_all_ways", 6);
}

namespace {

struct Net : torch::nn::Module {
  Net() : first(5, 6), second(6, 3) {
    register_module("first", first);
    register_module("second", second);
    to(torch::kDouble);
  }
  Tensor forward(const Tensor& x) {
    return second->forward(torch::relu(first->forward(x)));
  }
  torch::nn::Linear first, second;
};

/// Losses of some steps; `place` places the weights, `batch` the rows.
std::vector<double> train(
    const std::function<void(Net&)>& place,
    const std::function<Tensor(const Tensor&)>& batch,
    const std::function<void(const Tensor&)>& backward) {
  torch::manual_seed(3);
  Net net;
  place(net);
  torch::optim::Adam optimizer(net.parameters(), torch::optim::AdamOptions(0.05));
  const auto x = batch(values({7, 5}));
  const auto y = batch(values({7, 3}).cos());
  std::vector<double> losses;
  for (int step = 0; step < 8; ++step) {
    optimizer.zero_grad();
    const auto loss = torch::mse_loss(net.forward(x), y);
    backward(loss);
    optimizer.step();
    losses.push_back(loss.item<double>());
  }
  for (const auto& parameter : net.parameters()) {
    losses.push_back(full_tensor(parameter.detach()).pow(2).sum().item<double>());
  }
  return losses;
}

void expect_near(
    const std::vector<double>& got, const std::vector<double>& expected) {
  ASSERT_EQ(got.size(), expected.size());
  for (size_t i = 0; i < got.size(); ++i) {
    EXPECT_NEAR(got[i], expected[i], 1e-11) << "number " << i;
  }
}

} // namespace

ACCEL_RANK_FUNCTION(trains_along_two_axes) {
  Accelerator accelerator(of_meshes());
  const auto mesh = init_device_mesh(sizes_for(accelerator), {"dp", "tp"});
  const auto by_autograd = [](const Tensor& loss) { loss.backward(); };
  const auto expected =
      train([](Net&) {}, [](const Tensor& x) { return x; }, by_autograd);
  // Columns, then rows of the weights: tensor parallelism. The batch by rows.
  expect_near(
      train(
          [&](Net& net) {
            const auto put = [&](Tensor& tensor, const Placement& placement) {
              tensor.set_data(distribute_tensor(
                  tensor.detach(), mesh, {Replicate(), placement}));
            };
            put(net.first->weight, Shard(0));
            put(net.first->bias, Shard(0));
            put(net.second->weight, Shard(1));
          },
          [&](const Tensor& x) {
            return distribute_tensor(x, mesh, {Shard(0), Replicate()});
          },
          by_autograd),
      expected);
  // Plain weights, whose gradients are summed by the reducer: lines that hold the
  // same count once.
  for (const auto& way : std::vector<std::vector<Placement>>{
           {Shard(0), Replicate()},
           {Replicate(), Shard(0)},
           {Shard(0), Shard(0)},
           {Shard(0), Shard(1)}}) {
    accelerator.clear();
    expect_near(
        train(
            [&](Net& net) { accelerator.prepare(net); },
            [&](const Tensor& x) { return distribute_tensor(x, mesh, way); },
            [&](const Tensor& loss) { accelerator.backward(loss); }),
        expected);
  }
  // A sub-mesh: the other axis has the same once more.
  accelerator.clear();
  expect_near(
      train(
          [&](Net& net) { accelerator.prepare(net); },
          [&](const Tensor& x) {
            return distribute_tensor(x, mesh["tp"], {Shard(0)});
          },
          [&](const Tensor& loss) { accelerator.backward(loss); }),
      expected);
}

TEST(DeviceMesh, TrainingAlongTwoAxesIsThatOfOneProcess) {
  for (const auto& way : both_ways()) {
    for (const int world : {4, 6}) {
      run_and_expect_success("trains_along_two_axes", world, way);
    }
  }
}

// ---- What cannot be.

ACCEL_RANK_FUNCTION(asks_for_other_meshes) {
  Accelerator accelerator(of_meshes());
  const auto of = [](std::vector<int64_t> sizes,
                     std::vector<std::string> names = {}) {
    return error_of([&] { init_device_mesh(sizes, names); });
  };
  EXPECT_TRUE(contains(
      of({3, 2}, {"dp", "tp"}),
      "init_device_mesh({3, 2}, {'dp', 'tp'}) is a mesh of 6 processes, but there "
      "are 4"));
  EXPECT_TRUE(contains(of({4, 0}), "an axis of 0 processes cannot be"));
  EXPECT_TRUE(contains(of({}), "at least one axis"));
  EXPECT_TRUE(contains(of({2, 2}, {"dp"}), "1 names for 2 axes"));
  EXPECT_TRUE(contains(of({2, 2}, {"dp", "dp"}), "two axes have the name 'dp'"));
  EXPECT_TRUE(contains(of({2, 2}, {"dp", ""}), "name is empty"));
  const auto mesh = init_device_mesh({2, 2}, {"dp", "tp"});
  EXPECT_TRUE(contains(
      error_of([&] { mesh["pp"]; }),
      "accel::DeviceMesh(dp=2, tp=2) has no axis of the name 'pp'"));
  EXPECT_TRUE(contains(
      error_of([&] { mesh[std::vector<std::string>{"dp", "dp"}]; }),
      "named twice"));
  EXPECT_TRUE(contains(error_of([&] { mesh.size(2); }), "has no axis 2"));
  EXPECT_TRUE(contains(
      error_of([&] { distribute_tensor(torch::ones({4}), mesh, {Shard(0)}); }),
      "1 placements were given for accel::DeviceMesh(dp=2, tp=2)"));
  // Processes that ask for different ones all hear of both.
  const auto error =
      of(accelerator.is_main_process() ? std::vector<int64_t>{4, 1}
                                       : std::vector<int64_t>{2, 2});
  EXPECT_TRUE(contains(error, "process 0 calls init_device_mesh({4, 1})")) << error;
  EXPECT_TRUE(contains(error, "process 1 init_device_mesh({2, 2})")) << error;
  // And all go on together.
  const auto x = distribute_tensor(values({4, 4}), mesh, {Shard(0), Shard(1)});
  EXPECT_TRUE(torch::equal(full_tensor(x), values({4, 4})));
}

TEST(DeviceMeshErrors, WhatCannotBeIsSaidOnAllProcesses) {
  run_and_expect_success("asks_for_other_meshes", 4);
}

ACCEL_RANK_FUNCTION(outlives_its_accelerator) {
  Tensor x;
  {
    Accelerator accelerator(of_meshes());
    const auto mesh = init_device_mesh({2, 2}, {"dp", "tp"});
    x = distribute_tensor(values({4, 4}), mesh, {Shard(0), Shard(1)});
  }
  EXPECT_TRUE(contains(
      error_of([&] { full_tensor(x); }), "the Accelerator has ended"));
  EXPECT_TRUE(contains(error_of([] { init_device_mesh({2, 2}); }), "Accelerator"));
  // Another one makes its own.
  Accelerator accelerator(of_meshes());
  const auto mesh = init_device_mesh({2, 2}, {"dp", "tp"});
  x = distribute_tensor(values({4, 4}), mesh, {Shard(0), Shard(1)});
  EXPECT_TRUE(torch::equal(full_tensor(x), values({4, 4})));
}

TEST(DeviceMeshErrors, AMeshEndsWithItsAccelerator) {
  run_and_expect_success("outlives_its_accelerator", 4);
}

namespace {

__attribute__((noinline)) void sorts_along(const Tensor& x) {
  std::cout << std::get<0>(x.sort(0)).sum().item<double>();
}

__attribute__((noinline)) void puts_together(const Tensor& x) {
  std::cout << full_tensor(x).sum().item<double>();
}

} // namespace

// Processes 2 and 3, one line along tp, are in different operators; 0 and 1 are
// not, and hear of it when they need the others.
ACCEL_RANK_FUNCTION(differs_along_an_axis) {
  Accelerator accelerator(of_meshes());
  const auto mesh = init_device_mesh({2, 2}, {"dp", "tp"});
  const auto x = distribute_tensor(values({8, 3}), mesh["tp"], {Shard(0)});
  if (accelerator.process_index() == 2) {
    sorts_along(x);
  } else {
    puts_together(x);
  }
  accelerator.wait_for_everyone();
}

TEST(DeviceMeshErrors, OperatorsThatDifferAlongAnAxisAreNamed) {
  for (const auto& way : both_ways()) {
    const auto results = run("differs_along_an_axis", 4, way);
    for (const int rank : {2, 3}) {
      for (const auto* part :
           {"the processes are out of step", "process 2 is in all_gather #1",
            "process 3 is in all_gather #1", "for aten::sort", "for full_tensor",
            "along axis 'tp' of accel::DeviceMesh(dp=2, tp=2)", "sorts_along",
            "puts_together"}) {
        EXPECT_TRUE(contains(results[rank].error, part))
            << part << "\nis not what process " << rank << " says:\n"
            << results[rank].error;
      }
    }
    expect_all_fail(results, {});
  }
}

// Only one process of a line comes: the watchdog sees it.
ACCEL_RANK_FUNCTION(waits_along_an_axis) {
  Accelerator accelerator(of_meshes());
  const auto mesh = init_device_mesh({2, 2}, {"dp", "tp"});
  const auto x = distribute_tensor(values({8, 3}), mesh["dp"], {Shard(0)});
  if (accelerator.process_index() != 3) {
    puts_together(x);
  }
  accelerator.wait_for_everyone();
}

TEST(DeviceMeshErrors, WhoWaitsAlongAnAxisIsNamed) {
  for (auto way : both_ways()) {
    way.environment["ACCEL_STALL_TIMEOUT"] = "2";
    expect_all_fail(
        run("waits_along_an_axis", 4, way),
        {"the processes are out of step",
         "process 1 has waited",
         "along axis 'dp' of accel::DeviceMesh(dp=2, tp=2)"});
  }
}

ACCEL_RANK_FUNCTION(dies_along_an_axis) {
  Accelerator accelerator(of_meshes());
  const auto mesh = init_device_mesh({2, 2}, {"dp", "tp"});
  auto x = distribute_tensor(values({8, 4}), mesh, {Shard(0), Shard(1)});
  for (int step = 0;; ++step) {
    if (step == 20 && accelerator.process_index() == 1) {
      std::raise(SIGKILL);
    }
    x = x / full_tensor(x).norm();
  }
}

TEST(DeviceMeshErrors, AProcessThatDiesLeavesNoOtherHanging) {
  for (const auto& way : both_ways()) {
    const auto results = run("dies_along_an_axis", 4, way);
    EXPECT_EQ(results[1].signal, SIGKILL);
    for (const int rank : {0, 2, 3}) {
      EXPECT_FALSE(results[rank].timed_out) << "process " << rank;
      EXPECT_NE(results[rank].exit_code, 0) << "process " << rank;
      EXPECT_LT(results[rank].elapsed.count(), 30000) << "process " << rank;
    }
  }
}
