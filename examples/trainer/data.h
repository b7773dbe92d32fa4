#pragma once

#include <torch/torch.h>

#include <cstdint>

// Images of 12 x 12 pixels with a bar in one of four directions, and noise.
class Bars : public torch::data::datasets::Dataset<Bars> {
 public:
  Bars(int64_t count, uint64_t seed);

  torch::data::Example<> get(size_t index) override;
  torch::optional<size_t> size() const override;

 private:
  torch::Tensor images_, labels_;
};
