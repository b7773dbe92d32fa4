#include <torch/torch.h>

struct Points : torch::data::datasets::Dataset<Points> {
  torch::data::Example<> get(size_t index) override {
    auto x = torch::full({2}, static_cast<double>(index) / 100);
    return {x, x.sum().reshape({1})};
  }
  torch::optional<size_t> size() const override { return 100; }
};

int main() {
  auto loader = torch::data::make_data_loader(
      Points().map(torch::data::transforms::Stack<>()), /*batch_size=*/8);
  torch::nn::Linear net(2, 1);
  torch::optim::SGD optimizer(net->parameters(), /*lr=*/0.1);
  for (auto& batch : *loader) {
    auto loss = torch::mse_loss(net->forward(batch.data), batch.target);
    optimizer.zero_grad();
    loss.backward();
    optimizer.step();
  }
  torch::save(net, "net.pt");
}
