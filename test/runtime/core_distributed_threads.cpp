// What threads keep of distributed tensors' memory.

#include <accel/accelerator.h>
#include <accel/distributed/tensor.h>

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <malloc.h>

#include <thread>
#include <vector>

namespace {

/// Bytes that the program has of malloc, when threads that each have freed a
/// thousand distributed tensors are gone.
size_t bytes_after_threads(const torch::Tensor& tensor, int threads) {
  for (int i = 0; i < threads; ++i) {
    std::vector<torch::Tensor> views;
    for (int k = 0; k < 1000; ++k) {
      views.push_back(tensor.view({-1}));
    }
    std::thread([views = std::move(views)]() mutable { views.clear(); }).join();
  }
  return ::mallinfo2().uordblks;
}

TEST(DistributedThreads, GiveBackWhatTheyKept) {
  const accel::Accelerator accelerator(accel::AcceleratorOptions().cpu(true));
  const torch::NoGradGuard no_grad;
  const accel::distributed::DeviceMesh mesh;
  const auto tensor = accel::distributed::distribute_tensor(
      torch::ones({6, 4}), mesh, {accel::distributed::Shard(0)});
  const auto before = bytes_after_threads(tensor, 5);
  const auto after = bytes_after_threads(tensor, 40);
  // A thread's views take several hundred kilobytes.
  EXPECT_LT(after, before + (size_t{1} << 20));
}

} // namespace
