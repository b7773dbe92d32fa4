// `prepare` gives every process the values of process 0, and writes to nothing
// that has them.

#include "expectations.h"

#include <accel/accelerator.h>
#include <accel/optim/optimizer.h>

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cstdint>
#include <vector>

using accel::Accelerator;
using accel::AcceleratorOptions;

namespace {

struct NormedNetImpl : torch::nn::Module {
  NormedNetImpl() {
    register_module("first", first);
    register_module("norm", norm);
    register_module("last", last);
    to(torch::kDouble);
  }
  torch::Tensor forward(const torch::Tensor& x) {
    return last(torch::relu(norm(first(x))));
  }
  torch::nn::Linear first{4, 5};
  torch::nn::BatchNorm1d norm{5};
  torch::nn::Linear last{5, 1};
};
TORCH_MODULE(NormedNet);

std::vector<torch::Tensor> tensors_of(const torch::nn::Module& model) {
  auto all = model.parameters();
  for (const auto& buffer : model.buffers()) {
    all.push_back(buffer);
  }
  return all;
}

std::vector<uint32_t> versions_of(const torch::nn::Module& model) {
  std::vector<uint32_t> versions;
  for (const auto& tensor : tensors_of(model)) {
    versions.push_back(tensor._version());
  }
  return versions;
}

} // namespace

// A forward pass, `prepare`, and the backward pass of that forward.
ACCEL_RANK_FUNCTION(prepared_behind_a_forward) {
  Accelerator accelerator(AcceleratorOptions().match_single_device(true));
  for (const bool distributes : {false, true}) {
    torch::manual_seed(5);
    NormedNet model;
    torch::manual_seed(5);
    NormedNet reference;
    const auto x = torch::rand({7, 4}, torch::kDouble);
    accel::AcceleratedOptimizer<torch::optim::SGD> optimizer(
        model->parameters(), 0.1);
    auto loss =
        model->forward(distributes ? accelerator.distribute(x) : x).pow(2).mean();
    const auto before = versions_of(*model);
    accelerator.prepare(model, optimizer);
    EXPECT_EQ(versions_of(*model), before);
    accelerator.backward(loss);

    reference->forward(x).pow(2).mean().backward();
    for (size_t i = 0; i < reference->parameters().size(); ++i) {
      EXPECT_TRUE(torch::allclose(
          model->parameters()[i].grad(),
          reference->parameters()[i].grad(),
          1e-10,
          1e-12))
          << i << (distributes ? " distributed" : "");
    }
    optimizer.step();
    for (const auto& other :
         accelerator.gather_object(std::vector{model->last->weight.sum().item<double>()})) {
      EXPECT_EQ(other, model->last->weight.sum().item<double>());
    }
  }
}

TEST(Prepare, AGraphThatWasBuiltBeforeStaysValid) {
  accel::test::run_all("prepared_behind_a_forward");
}

ACCEL_RANK_FUNCTION(models_that_differ) {
  for (const bool match : {true, false}) {
    Accelerator accelerator(AcceleratorOptions().match_single_device(match));
    const auto rank = accelerator.process_index();
    torch::manual_seed(5);
    NormedNet model;
    // One number of a large table, on one process.
    torch::nn::Embedding table(30000, 7);
    const auto last = accelerator.num_processes() - 1;
    const auto expected = table->weight.detach().clone();
    const auto shift = model->norm->running_mean.detach().clone();
    {
      const torch::NoGradGuard no_grad;
      table->weight[12345][3] += static_cast<double>(rank == last ? last : 0);
      // A buffer, on all of them.
      model->norm->running_mean += static_cast<double>(rank);
    }
    const auto table_before = versions_of(*table);
    const auto before = versions_of(*model);
    accelerator.prepare(model, table);
    EXPECT_TRUE(torch::equal(table->weight, expected));
    EXPECT_TRUE(torch::equal(model->norm->running_mean, shift));
    // Written where it was another one, and only there.
    const bool several = accelerator.use_distributed();
    EXPECT_EQ(versions_of(*table) != table_before, several && rank == last);
    const auto after = versions_of(*model);
    const auto tensors = tensors_of(*model);
    for (size_t i = 0; i < tensors.size(); ++i) {
      const bool differed =
          rank > 0 && tensors[i].is_same(model->norm->running_mean);
      EXPECT_EQ(after[i] != before[i], differed) << i;
    }
    // Initialised by another seed on each process.
    torch::manual_seed(100 + rank);
    NormedNet random;
    accelerator.prepare(random);
    const auto numbers = random->first->weight.detach().contiguous();
    const auto all = accelerator.gather(numbers.reshape({1, -1}));
    for (int64_t i = 0; i < accelerator.num_processes(); ++i) {
      EXPECT_TRUE(torch::equal(all[i], all[0]));
    }
  }
}

TEST(Prepare, ModelsThatDifferBecomeProcessZeros) {
  accel::test::run_all("models_that_differ");
}

// Checksums are of all values, however they lie in memory, and of any type.
ACCEL_RANK_FUNCTION(kinds_of_tensors) {
  Accelerator accelerator;
  const auto rank = accelerator.process_index();
  struct Kinds : torch::nn::Module {};
  Kinds model;
  const auto make = [&](int64_t value) {
    return std::vector<torch::Tensor>{
        torch::arange(6).reshape({2, 3}).t() + value,
        torch::full({3}, 0.5 + static_cast<double>(value), torch::kHalf),
        torch::tensor({true, value != 0}),
        torch::full({}, value),
        torch::full({2}, c10::complex<double>(1, static_cast<double>(value))),
        torch::empty({0})};
  };
  const auto tensors = make(rank);
  for (size_t i = 0; i < tensors.size(); ++i) {
    model.register_buffer("b" + std::to_string(i), tensors[i]);
  }
  accelerator.prepare(model);
  const auto expected = make(0);
  for (size_t i = 0; i < tensors.size(); ++i) {
    EXPECT_TRUE(torch::equal(tensors[i], expected[i])) << i;
  }
}

TEST(Prepare, ComparesTensorsOfAnyKind) {
  accel::test::run_all("kinds_of_tensors");
}

// A graph's adjacency: the same on all processes, and with another number of entries.
ACCEL_RANK_FUNCTION(sparse_buffers) {
  Accelerator accelerator;
  const auto make = [](int64_t entries) {
    const auto at = torch::arange(entries);
    return torch::sparse_coo_tensor(
        torch::stack({at, 2 * at}), torch::full({entries}, 0.5) + at, {9, 18});
  };
  struct Graph : torch::nn::Module {};
  Graph model;
  const auto rank = accelerator.process_index();
  const auto same = model.register_buffer("same", make(4).coalesce());
  const auto other = model.register_buffer("other", make(3 + rank));
  const auto rows = model.register_buffer("rows", torch::eye(4).to_sparse_csr());
  const auto before = versions_of(model);
  accelerator.prepare(model);
  EXPECT_TRUE(torch::equal(same.to_dense(), make(4).to_dense()));
  EXPECT_TRUE(torch::equal(other.to_dense(), make(3).to_dense()));
  EXPECT_EQ(other._nnz(), 3);
  EXPECT_TRUE(torch::equal(rows.to_dense(), torch::eye(4)));
  EXPECT_EQ(versions_of(model)[0], before[0]);
}

TEST(Prepare, SparseBuffersAreThoseOfProcessZero) {
  accel::test::run_all("sparse_buffers");
}
