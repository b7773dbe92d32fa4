#include <torch/torch.h>

/// Points of a plane.
torch::Tensor points(int64_t count) {
  auto x = torch::arange(2 * count);
  x = x.reshape({count, 2});
  x = x / 100.0;
  return x;
}

int main() {
  const auto x =
      points(/*count=*/96);
  torch::nn::Linear net(2, 1);
  torch::optim::SGD optimizer(net->parameters(), /*lr=*/0.1);
  for (int i = 0; i < 12; ++i) {
    auto loss = torch::mse_loss(net->forward(x), x.sum(/*dim=*/1, true));
    optimizer.zero_grad();
    loss.backward();
    optimizer.step();
  }
  torch::save(net, "net.pt");
}
