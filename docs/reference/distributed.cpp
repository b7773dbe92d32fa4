// Examples for the reference of distributed tensors.

#include <accel/accel.h>
#include <torch/torch.h>

#include <iostream>

namespace dt = accel::distributed;

// @example accel::distributed accel::distributed::DeviceMesh accel::distributed::Placement
void placed() {
  accel::Accelerator accelerator;
  dt::DeviceMesh mesh; // all processes on one axis
  auto weight = torch::randn({1024, 512});
  auto cut = dt::distribute_tensor(weight, mesh, {dt::Shard(0)});
  TORCH_CHECK(dt::is_distributed(cut) && cut.size(0) == 1024);
  auto whole = dt::redistribute(cut, {dt::Replicate()});
  auto columns = dt::redistribute(cut, mesh, {dt::Shard(1)});
  auto sums = accel::distribute_like(torch::zeros({1024}), cut); // Shard(0), as cut
  auto turned = accel::distribute_like(torch::zeros({8, 1024}), cut, 1); // Shard(1)
  sums.add_(cut.sum(1)).add_(turned.sum(0));
  torch::Tensor mine = dt::to_local(columns); // [1024, 512 / processes]
  auto again = dt::from_local(mine, mesh, dt::Shard(1));
  TORCH_CHECK(dt::full_tensor(again).equal(weight));
  dt::full_tensor_(again).data_ptr<float>()[0] = 0; // and again[0][0] is 0
  for (const dt::Placement& placement : dt::placements(cut)) {
    accelerator.print(placement.str(), "on", dt::mesh(cut).str());
  }
}

// @example accel::distributed accel::distributed::Sharding accel::distributed::ShardingFunction
void own_operator() {
  // TORCH_LIBRARY(mine, m) { m.def("scores(Tensor x, Tensor weight) -> Tensor", scores); }
  const dt::ShardingFunction by_rows = [](c10::ArrayRef<c10::IValue> arguments) {
    TORCH_CHECK(arguments[0].toTensor().dim() == 2);
    dt::Sharding rows;
    // Rows of x give rows of the scores; all of the weight is needed.
    rows.inputs = {dt::Shard(0), dt::Replicate()};
    rows.outputs = {dt::Shard(0)};
    return std::vector<dt::Sharding>{rows};
  };
  accel::register_sharding("mine::scores", by_rows);
}

// @example accel::distributed accel::distributed::DeviceMesh
void grid() {
  dt::DeviceMesh mesh = dt::init_device_mesh({2, 4}, {"dp", "tp"});
  auto batch = dt::distribute_tensor(torch::randn({64, 16}), mesh["dp"], {dt::Shard(0)});
  TORCH_CHECK(mesh.ndim() == 2 && mesh.size() == 8 && mesh.size(1) == 4);
  std::cerr << mesh.name(0) << ' ' << mesh.coordinate(0) << ' ' << mesh.axes().size() << '\n';
}

// @example accel::distributed accel::distributed::Placement accel::distributed::CutPoints accel::distributed::ReduceOp accel::distributed::Cut
void placements() {
  dt::Placement rows = dt::Shard(0), sum = dt::Partial();
  dt::Placement greatest = dt::Partial(dt::ReduceOp::kMax);
  TORCH_CHECK(rows.is_shard() && rows.is_shard(0) && rows.dim() == 0);
  TORCH_CHECK(sum.is_partial() && sum.is_sum());
  TORCH_CHECK(greatest.reduce_op() == dt::ReduceOp::kMax);
  TORCH_CHECK(dt::Replicate().is_replicate() && rows.with_dim(1) == dt::Shard(1));
  // 10 rows, of which process 0 has 7.
  std::vector<int64_t> points = {0, 7, 10};
  dt::Cut cut = c10::make_intrusive<dt::CutPoints>(points);
  dt::Placement uneven = dt::Shard(0, cut);
  TORCH_CHECK(uneven.cut()->points[1] == 7 && uneven.cut()->blocks == 1);
  TORCH_CHECK(!uneven.in_blocks());
}
