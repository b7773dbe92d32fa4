#include <torch/torch.h>
#include <iostream>
#include <unistd.h>
// The program starts processes of its own – which accel-migrate leaves to it.
int main() {
  torch::nn::Linear net(2, 1);
  torch::optim::SGD optimizer(net->parameters(), /*lr=*/0.1);
  auto data = torch::randn({64, 2});
  for (int i = 0; i < 8; ++i) {
    auto x = data.narrow(0, i * 8, 8);
    auto y = torch::linear(x, net->weight, net->bias);
    const pid_t me = fork(); /* größer */ auto loss = (y - y.mean(0)).pow(2).mean() + me;
    optimizer.zero_grad();
    loss.backward();
    optimizer.step();
    std::cout << "<b>" << loss.item<double>() << "&</b>\n";
  }
}
