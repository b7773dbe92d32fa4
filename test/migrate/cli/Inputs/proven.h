#include <torch/torch.h>
#include <algorithm>
inline size_t count_options() {
  std::vector<torch::optim::SGDOptions> options;
  options.push_back(torch::optim::SGDOptions(0.1));
  std::reverse(options.begin(), options.end());
  return options.size();
}
