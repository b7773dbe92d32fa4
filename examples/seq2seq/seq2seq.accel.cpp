// Sequence to sequence: a GRU reads digits, another writes them sorted, with
// attention and teacher forcing. For one device.
//
//   ./seq2seq [--epochs N] [--double]

#include <torch/torch.h>
#include <accel/accel.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <iostream>
#include <numeric>
#include <random>
#include <string>
#include <tuple>
#include <vector>

namespace nn = torch::nn;
namespace F = torch::nn::functional;

// 0 to 9 are digits.
constexpr int64_t kBegin = 10;
constexpr int64_t kEnd = 11;
constexpr int64_t kPad = 12;
constexpr int64_t kVocabulary = 13;
constexpr int64_t kMaxLength = 8;

constexpr int64_t kTrainSize = 1920;
constexpr int64_t kTestSize = 200;
constexpr int64_t kBatchSize = 64;

struct Pairs {
  std::vector<std::vector<int64_t>> sources, targets;
};

Pairs make_pairs(int64_t count, std::mt19937& random) {
  std::uniform_int_distribution<int64_t> length(3, kMaxLength), digit(0, 9);
  Pairs pairs;
  for (int64_t i = 0; i < count; ++i) {
    std::vector<int64_t> source(length(random));
    for (auto& value : source) {
      value = digit(random);
    }
    auto target = source;
    std::sort(target.begin(), target.end());
    target.push_back(kEnd);
    pairs.sources.push_back(source);
    pairs.targets.push_back(target);
  }
  return pairs;
}

// The sequences `rows` as a tensor, filled up to the longest of them.
torch::Tensor pad(
    const std::vector<std::vector<int64_t>>& sequences,
    const std::vector<int64_t>& rows) {
  std::vector<torch::Tensor> tensors;
  for (auto row : rows) {
    tensors.push_back(torch::tensor(sequences[row]));
  }
  return nn::utils::rnn::pad_sequence(tensors, /*batch_first=*/true, kPad);
}

struct EncoderImpl : nn::Module {
  explicit EncoderImpl(int64_t size)
      : embedding(nn::EmbeddingOptions(kVocabulary, size).padding_idx(kPad)),
        gru(nn::GRUOptions(size, size).batch_first(true)) {
    register_module("embedding", embedding);
    register_module("gru", gru);
  }

  std::tuple<torch::Tensor, torch::Tensor> forward(const torch::Tensor& source) {
    return gru(embedding(source));
  }

  nn::Embedding embedding;
  nn::GRU gru;
};
TORCH_MODULE(Encoder);

struct DecoderImpl : nn::Module {
  explicit DecoderImpl(int64_t size)
      : embedding(kVocabulary, size),
        gru(nn::GRUOptions(2 * size, size).batch_first(true)),
        output(2 * size, kVocabulary) {
    register_module("embedding", embedding);
    register_module("gru", gru);
    register_module("dropout", dropout);
    register_module("output", output);
  }

  // One token for each sequence: the scores of the next one, and the new state.
  std::tuple<torch::Tensor, torch::Tensor> forward(
      const torch::Tensor& token,
      const torch::Tensor& state,
      const torch::Tensor& memory,
      const torch::Tensor& mask) {
    auto query = state.transpose(0, 1);
    auto weights = torch::bmm(query, memory.transpose(1, 2));
    weights = torch::softmax(weights.masked_fill(mask.unsqueeze(1), -1e9), -1);
    auto context = torch::bmm(weights, memory);
    auto input = torch::cat({dropout(embedding(token)), context}, 2);
    auto [hidden, next] = gru(input, state);
    auto scores = output(torch::cat({hidden, context}, 2));
    return {scores.squeeze(1), next};
  }

  nn::Embedding embedding;
  nn::GRU gru;
  nn::Dropout dropout{0.1};
  nn::Linear output;
};
TORCH_MODULE(Decoder);

struct Seq2SeqImpl : nn::Module {
  explicit Seq2SeqImpl(int64_t size) : encoder(size), decoder(size) {
    register_module("encoder", encoder);
    register_module("decoder", decoder);
  }

  // Scores of `steps` tokens. Where there is a target, each step is given its
  // token before with probability `forcing`, otherwise what was predicted.
  torch::Tensor forward(
      const torch::Tensor& source,
      const torch::Tensor& target,
      int64_t steps,
      double forcing) {
    auto [memory, state] = encoder(source);
    auto mask = source.eq(kPad);
    auto token = torch::full({source.size(0), 1}, kBegin, source.options());
    std::vector<torch::Tensor> scores;
    for (int64_t step = 0; step < steps; ++step) {
      torch::Tensor score;
      std::tie(score, state) = decoder(token, state, memory, mask);
      scores.push_back(score);
      const bool teach = target.defined() && torch::rand({1}).item<double>() < forcing;
      token = teach ? target.slice(1, step, step + 1) : score.argmax(1, /*keepdim=*/true);
    }
    return torch::stack(scores, 1);
  }

  Encoder encoder;
  Decoder decoder;
};
TORCH_MODULE(Seq2Seq);

// The share of test sequences that are sorted without a mistake.
double evaluate(Seq2Seq& model, const Pairs& pairs, torch::Device device) {
  auto& accelerator = accel::accelerator();
  torch::NoGradGuard no_grad;
  model->eval();
  int64_t correct = 0;
  for (int64_t begin = 0; begin < kTestSize; begin += kBatchSize) {
    std::vector<int64_t> rows(std::min(kBatchSize, kTestSize - begin));
    std::iota(rows.begin(), rows.end(), begin);
    auto source = pad(pairs.sources, rows).to(device);
    auto target = pad(pairs.targets, rows).to(device);
    auto guess = model(accelerator.distribute(source), torch::Tensor(), target.size(1), 0.0).argmax(2);
    auto right = guess.eq(target).logical_or(target.eq(kPad)).all(1);
    correct += right.sum().item<int64_t>();
  }
  model->train();
  return static_cast<double>(correct) / kTestSize;
}

int main(int argc, char** argv) {
  accel::Accelerator accelerator(accel::AcceleratorOptions().match_single_device(true));
  int epochs = 8;
  for (int i = 1; i < argc; ++i) {
    const std::string arg = argv[i];
    if (arg == "--double") {
      torch::set_default_dtype(caffe2::TypeMeta::Make<double>());
    } else if (arg == "--epochs" && i + 1 < argc) {
      epochs = std::stoi(argv[++i]);
    } else {
      std::cerr << "usage: seq2seq [--epochs N] [--double]" << std::endl;
      return 2;
    }
  }
  torch::manual_seed(11);
  std::mt19937 random(11);
  torch::Device device = accelerator.device();

  const auto train = make_pairs(kTrainSize, random);
  const auto test = make_pairs(kTestSize, random);
  Seq2Seq model(48);
  model->to(device);
  accel::AcceleratedOptimizer<torch::optim::Adam> optimizer(model->parameters(), torch::optim::AdamOptions(5e-3));
  accelerator.prepare(model, optimizer);
  accel::AcceleratedScheduler<torch::optim::StepLR> scheduler(optimizer, /*step_size=*/3, /*gamma=*/0.6);

  std::vector<int64_t> order(kTrainSize);
  std::iota(order.begin(), order.end(), 0);
  for (int epoch = 1; epoch <= epochs; ++epoch) {
    std::shuffle(order.begin(), order.end(), random);
    const double forcing = std::max(0.3, 1.0 - 0.15 * (epoch - 1));
    double loss_sum = 0;
    int64_t tokens = 0;
    for (int64_t begin = 0; begin < kTrainSize; begin += kBatchSize) {
      auto step = accelerator.accumulate(model);
      std::vector<int64_t> rows(order.begin() + begin, order.begin() + begin + kBatchSize);
      auto source = pad(train.sources, rows).to(device);
      auto target = pad(train.targets, rows).to(device);
      std::tie(source, target) = accelerator.distribute(source, target);

      optimizer.zero_grad();
      auto scores = model(source, target, target.size(1), forcing);
      auto loss = F::cross_entropy(
          scores.view({-1, kVocabulary}),
          target.view({-1}),
          F::CrossEntropyFuncOptions().ignore_index(kPad));
      accelerator.backward(loss);
      accelerator.clip_grad_norm_(model->parameters(), 1.0);
      optimizer.step();

      const int64_t count = target.ne(kPad).sum().item<int64_t>();
      loss_sum += loss.item<double>() * count;
      tokens += count;
    }
    scheduler.step();
    accelerator.printf(
        "epoch %d: loss %.10f a token, %.1f%% of the test sequences sorted\n",
        epoch,
        loss_sum / tokens,
        100 * evaluate(model, test, device));
  }

  accelerator.save(model, "seq2seq.pt");
  return 0;
}
