#include <torch/torch.h>
#include <iostream>

// Two loops; the second one couples the samples of a batch: "x – mean(0)".
int main() {
  torch::nn::Linear net(2, 1);
  torch::optim::SGD optimizer(net->parameters(), /*lr=*/0.1);
  auto data = torch::randn({64, 2});
  for (int i = 0; i < 8; ++i) {
    auto x = data.narrow(0, i * 8, 8);
    auto y = torch::linear(x, net->weight, net->bias);
    auto centred = y - y.mean(0); /* größer */ auto loss = centred.pow(2).mean() + y.softmax(0).mean();
    optimizer.zero_grad();
    loss.backward();
    optimizer.step();
    std::cout << "<b>" << loss.item<double>() << "&</b>\n";
  }
}
