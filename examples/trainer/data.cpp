#include "data.h"

#include <random>
#include <vector>

constexpr int64_t kSide = 12;

Bars::Bars(int64_t count, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::normal_distribution<float> noise(0, 0.7F);
  std::uniform_int_distribution<int64_t> direction(0, 3), offset(-3, 3);
  std::vector<float> pixels;
  std::vector<int64_t> labels;
  for (int64_t i = 0; i < count; ++i) {
    const int64_t label = direction(random);
    const int64_t shift = offset(random);
    for (int64_t y = 0; y < kSide; ++y) {
      for (int64_t x = 0; x < kSide; ++x) {
        const int64_t along[] = {y - kSide / 2, x - kSide / 2, y - x, y + x - kSide + 1};
        pixels.push_back((along[label] == shift ? 1.0F : 0.0F) + noise(random));
      }
    }
    labels.push_back(label);
  }
  images_ = torch::tensor(pixels).view({count, 1, kSide, kSide}).to(torch::get_default_dtype());
  labels_ = torch::tensor(labels);
}

torch::data::Example<> Bars::get(size_t index) {
  return {images_[index], labels_[index]};
}

torch::optional<size_t> Bars::size() const {
  return images_.size(0);
}
