// Small trainings in which the batch comes from everywhere but a loader, or its
// size is written into shapes: original and migrated must print the same numbers
// on any number of processes.

#include <torch/torch.h>

#include <algorithm>
#include <iomanip>
#include <iostream>
#include <string>
#include <tuple>
#include <variant>
#include <vector>

namespace {

constexpr int64_t kBatch = 6;

torch::TensorOptions real() {
  return torch::TensorOptions().dtype(torch::kDouble);
}

/// A layer of each kind that treats the samples of a batch in its own way. No
/// bias in front of the norm: its gradient is rounding, of which Adam makes steps.
struct Dense : torch::nn::Module {
  Dense()
      : first(register_module("first", torch::nn::Linear(torch::nn::LinearOptions(3, 8).bias(false)))),
        norm(register_module("norm", torch::nn::BatchNorm1d(8))),
        last(register_module("last", torch::nn::Linear(8, 1))) {}
  torch::Tensor forward(torch::Tensor x) {
    x = torch::relu(norm(first(x)));
    return last(torch::dropout(x, 0.2, is_training()));
  }
  torch::nn::Linear first;
  torch::nn::BatchNorm1d norm;
  torch::nn::Linear last;
};

/// The whole data set in each step, evaluation of other rows in between.
void whole_set() {
  auto x = torch::rand({11, 3}, real());
  const auto y = x.sum(1, true) * 0.5;
  auto other = torch::rand({5, 3}, real());
  auto net = std::make_shared<Dense>();
  net->to(torch::kDouble);
  torch::optim::Adam optimizer(net->parameters(), 0.01);
  auto total = torch::zeros({}, torch::kDouble);
  for (int64_t i = 0; i < 6; ++i) {
    net->train();
    optimizer.zero_grad();
    auto out = net->forward(x);
    auto loss = torch::mse_loss(out, y);
    loss.backward();
    optimizer.step();
    total += loss.detach();
    std::cout << "whole set " << i << ' ' << loss.item<double>() << ' ' << torch::exp(loss).item<double>() << ' '
              << out.std().item<double>() << ' ' << out[7].item<double>() << '\n';
    net->eval();
    torch::NoGradGuard no_grad;
    std::cout << "evaluated " << net->forward(other).sum().item<double>() << '\n';
  }
  net->eval();
  std::cout << "total " << total.item<double>() << ' ' << net->forward(x).sum().item<double>() << '\n';
}

/// Slices of a shuffled set; the last one is shorter.
void slices() {
  auto x = torch::rand({20, 3}, real());
  auto y = torch::randint(0, 4, {20});
  torch::nn::Sequential net(torch::nn::Linear(3, 8), torch::nn::Tanh(), torch::nn::Linear(8, 4));
  net->to(torch::kDouble);
  torch::optim::SGD optimizer(net->parameters(), torch::optim::SGDOptions(0.2).momentum(0.9));
  for (int64_t epoch = 0; epoch < 2; ++epoch) {
    auto order = torch::randperm(20);
    int64_t correct = 0;
    for (int64_t at = 0; at < x.size(0); at += kBatch) {
      auto rows = order.slice(0, at, at + kBatch);
      auto out = net->forward(x.index_select(0, rows));
      auto loss = torch::nn::functional::cross_entropy(out, y.index_select(0, rows));
      optimizer.zero_grad();
      loss.backward();
      optimizer.step();
      correct += out.argmax(1).eq(y.index_select(0, rows)).sum().item<int64_t>();
      std::cout << "slices " << at << ' ' << loss.item<double>() << '\n';
    }
    std::cout << "correct " << correct << '\n';
  }
}

/// Sequences with their samples in dimension 1, and a batch size in shapes.
struct Recurrent : torch::nn::Module {
  Recurrent()
      : steps(register_module("steps", torch::nn::LSTM(torch::nn::LSTMOptions(2, 5)))),
        both(register_module("both", torch::nn::GRU(torch::nn::GRUOptions(2, 4).batch_first(true)))),
        head(register_module("head", torch::nn::Linear(9, 1))) {}
  torch::Tensor forward(torch::Tensor x) {
    auto hidden = torch::zeros({1, kBatch, 5}, torch::kDouble);
    auto cell = torch::zeros({1, x.size(0), 5}, torch::kDouble);
    auto out = std::get<0>(steps->forward(x.transpose(0, 1), std::make_tuple(hidden, cell)));
    auto state = std::get<1>(both->forward(x));
    return head(torch::cat({out[-1], state[0]}, 1));
  }
  torch::nn::LSTM steps;
  torch::nn::GRU both;
  torch::nn::Linear head;
};

struct Waves : torch::data::datasets::Dataset<Waves> {
  torch::data::Example<> get(size_t index) override {
    auto x = torch::linspace(0, 1, 8, torch::kDouble) * static_cast<double>(index % 5 + 1);
    return {torch::stack({torch::sin(x), torch::cos(x)}, 1), torch::sin(x.sum()).view({1})};
  }
  torch::optional<size_t> size() const override { return 3 * kBatch; }
};

void sequences() {
  Recurrent net;
  net.to(torch::kDouble);
  torch::optim::Adam optimizer(net.parameters(), 0.02);
  auto loader = torch::data::make_data_loader<torch::data::samplers::SequentialSampler>(
      Waves().map(torch::data::transforms::Stack<>()), kBatch);
  std::vector<torch::Tensor> outputs;
  for (int64_t epoch = 0; epoch < 2; ++epoch) {
    for (auto& batch : *loader) {
      auto noise = torch::randn({kBatch, 1}, torch::kDouble) * 0.01;
      auto out = net.forward(batch.data.view({kBatch, 8, 2}));
      auto loss = torch::mse_loss(out, batch.target + noise);
      optimizer.zero_grad();
      loss.backward();
      optimizer.step();
      outputs.push_back(out.detach());
      std::cout << "sequences " << loss.item<double>() << '\n';
    }
  }
  std::cout << "kept " << torch::cat(outputs).pow(2).sum().item<double>() << '\n';
}

/// Windows from random places of one text, a causal mask, tokens in the loss.
struct Language : torch::nn::Module {
  Language()
      : tokens(register_module("tokens", torch::nn::Embedding(9, 6))),
        places(register_module("places", torch::nn::Embedding(5, 6))),
        query(register_module("query", torch::nn::Linear(6, 6))),
        head(register_module("head", torch::nn::Linear(6, 9))) {}
  torch::Tensor forward(torch::Tensor ids) {
    auto length = ids.size(1);
    auto x = tokens(ids) + places(torch::arange(length));
    auto scores = torch::matmul(query(x), x.transpose(1, 2));
    auto seen = torch::tril(torch::ones({length, length}, torch::kDouble));
    scores = scores.masked_fill(seen == 0, -1e9);
    return head(torch::matmul(torch::softmax(scores, -1), x));
  }
  torch::nn::Embedding tokens, places;
  torch::nn::Linear query, head;
};

std::pair<torch::Tensor, torch::Tensor> windows(const torch::Tensor& text) {
  auto starts = torch::randint(0, text.size(0) - 6, {kBatch + 1});
  std::vector<torch::Tensor> inputs, targets;
  for (int64_t i = 0; i < kBatch + 1; ++i) {
    const auto at = starts[i].item<int64_t>();
    inputs.push_back(text.slice(0, at, at + 5));
    targets.push_back(text.slice(0, at + 1, at + 6));
  }
  return {torch::stack(inputs), torch::stack(targets)};
}

void language() {
  auto text = torch::randint(0, 9, {80});
  auto model = std::make_shared<Language>();
  model->to(torch::kDouble);
  torch::optim::AdamW optimizer(model->parameters(), 0.01);
  for (int64_t i = 0; i < 4; ++i) {
    auto [x, y] = windows(text);
    auto logits = model->forward(x);
    auto loss = torch::nn::functional::cross_entropy(logits.view({-1, 9}), y.view({-1}));
    optimizer.zero_grad();
    loss.backward();
    optimizer.step();
    std::cout << "language " << loss.item<double>() << '\n';
  }
}

/// A data set that decides itself what comes next, and how much.
struct Stream : torch::data::datasets::StatefulDataset<Stream> {
  torch::optional<std::vector<torch::data::Example<>>> get_batch(size_t size) override {
    std::vector<torch::data::Example<>> batch;
    for (; batch.size() < size && next < 25; ++next)
      batch.push_back({torch::linspace(0, next, 4, torch::kDouble) + 0.01 * torch::randn({4}, torch::kDouble),
                       torch::full({1}, next % 3, torch::kDouble)});
    if (batch.empty())
      return torch::nullopt;
    return batch;
  }
  torch::optional<size_t> size() const override { return 25; }
  void reset() override { next = 0; }
  void save(torch::serialize::OutputArchive&) const override {}
  void load(torch::serialize::InputArchive&) override {}
  int64_t next = 0;
};

void stream() {
  torch::nn::Sequential net(torch::nn::Linear(4, 5), torch::nn::Dropout(0.2), torch::nn::Linear(5, 1));
  net->to(torch::kDouble);
  torch::optim::SGD optimizer(net->parameters(), 0.001);
  auto loader = torch::data::make_data_loader(Stream().map(torch::data::transforms::Stack<>()), 10);
  for (int64_t epoch = 0; epoch < 2; ++epoch) {
    double sum = 0;
    for (auto& batch : *loader) {
      auto loss = torch::mse_loss(net->forward(batch.data), batch.target);
      optimizer.zero_grad();
      loss.backward();
      optimizer.step();
      sum += loss.item<double>() * batch.data.size(0);
    }
    std::cout << "stream " << sum << '\n';
  }
}

/// A table that is written out; a tensor that only one way through the forward
/// sets; numbers drawn in place into something calculated.
struct Sampler : torch::nn::Module {
  Sampler()
      : spread(register_module("spread", torch::nn::Linear(2, 6))),
        norm(register_module("norm", torch::nn::BatchNorm1d(6))),
        drop(register_module("drop", torch::nn::Dropout(0.3))),
        last(register_module("last", torch::nn::Linear(6, 1))) {}
  torch::Tensor forward(torch::Tensor x) {
    torch::Tensor hidden;
    if (wide)
      hidden = drop(norm(spread(x)));
    else
      hidden = norm(spread(x));
    auto scale = hidden.div(2).exp_();
    return last(torch::tanh(hidden) + torch::randn_like(scale).mul_(0.01).mul(scale));
  }
  bool wide = true;
  torch::nn::Linear spread;
  torch::nn::BatchNorm1d norm;
  torch::nn::Dropout drop;
  torch::nn::Linear last;
};

double error_of(Sampler& net, const torch::Tensor& x, const torch::Tensor& y) {
  net.eval();
  torch::NoGradGuard no_grad;
  auto errors = torch::zeros({3}, torch::kDouble);
  for (int64_t k = 0; k < 3; ++k)
    errors[k] = torch::mse_loss(net.forward(x), y).item<double>();
  net.train();
  return errors.mean().item<double>();
}

void tables() {
  Sampler net;
  net.to(torch::kDouble);
  torch::optim::SGD optimizer(net.parameters(), 0.1);
  torch::Tensor x = torch::tensor({{0.0, 0.0}, {0.0, 1.0}, {1.0, 0.0}, {1.0, 1.0}, {0.5, 0.5}}, torch::kDouble);
  torch::Tensor y = torch::tensor({{0.0}, {1.0}, {1.0}, {0.0}, {0.5}}, torch::kDouble);
  for (int64_t i = 0; i < 6; ++i) {
    auto loss = torch::mse_loss(net.forward(x), y);
    optimizer.zero_grad();
    loss.backward();
    optimizer.step();
    std::cout << "tables " << loss.item<double>() << '\n';
    if (i % 2 == 1) {
      // No rows of the batch, for a model in training mode; then in a helper
      // that evaluates.
      auto samples = net.forward(torch::randn({3, 2}, torch::kDouble));
      std::cout << "samples " << samples.sum().item<double>() << ' ' << error_of(net, x, y) << '\n';
    }
  }
}

/// A loader that is a functor and puts its samples together one by one.
class Drawer {
 public:
  explicit Drawer(size_t size) : size_(size) {}
  bool operator()(std::tuple<torch::Tensor, torch::Tensor>& batch) {
    if (next_ >= size_) {
      next_ = 0;
      return false;
    }
    const size_t end = std::min(next_ + 5, size_);
    torch::Tensor rows = sample(next_).unsqueeze(0);
    std::vector<torch::Tensor> kinds = {torch::tensor(kind(next_))};
    for (size_t i = next_ + 1; i < end; ++i) {
      rows = torch::cat({rows, sample(i).unsqueeze(0)}, 0);
      kinds.push_back(torch::tensor(kind(i)));
    }
    next_ = end;
    batch = {rows.contiguous(), torch::stack(kinds)};
    return true;
  }

 private:
  static int64_t kind(size_t i) { return static_cast<int64_t>(i % 3); }
  static torch::Tensor sample(size_t i) {
    return torch::linspace(0, 1, 4, real()) * static_cast<double>(i + 1) * 0.1;
  }
  size_t size_;
  size_t next_ = 0;
};

/// What needs the samples one by one.
void show(const torch::Tensor& rows, const std::string& name) {
  std::cout << name;
  for (int64_t i = 0; i < rows.size(0); ++i)
    std::cout << ' ' << rows[i].abs().max().item<double>();
  std::cout << '\n';
}

void functor() {
  torch::nn::Sequential net(torch::nn::Linear(4, 6), torch::nn::Dropout(0.2), torch::nn::Linear(6, 1));
  net->to(torch::kDouble);
  torch::optim::SGD optimizer(net->parameters(), 0.05);
  const auto table = torch::rand({3, 1}, real());
  std::tuple<torch::Tensor, torch::Tensor> batch;
  torch::Tensor x, kinds, out, loss;
  Drawer drawer(12);
  for (int64_t epoch = 0; epoch < 2; ++epoch) {
    while (drawer(batch)) {
      x = std::get<0>(batch);
      kinds = std::get<1>(batch);
      out = net->forward(x);
      loss = torch::mse_loss(out, table.index_select(0, kinds));
      optimizer.zero_grad();
      loss.backward();
      optimizer.step();
      show(torch::cat({out.detach() * 2, out.detach()}, 0), "step");
    }
    // Of the last batch: two rows, fewer than some processes.
    std::cout << "last " << loss.item<double>() << '\n';
    show(out.detach(), "last");
  }
}

/// Padded sentences: each batch, and each process's part of one, has another
/// number of words that count.
void padded() {
  const int64_t sentences = 26, words = 5, kinds = 4, padding = 3;
  torch::nn::Sequential net(torch::nn::Embedding(7, 3), torch::nn::Linear(3, kinds));
  net->to(torch::kDouble);
  torch::optim::SGD optimizer(net->parameters(), 0.5);
  auto text = torch::randint(7, {sentences, words}, torch::kLong);
  auto targets = text.remainder(padding);
  for (int64_t i = 0; i < sentences; ++i)
    targets[i].slice(0, 1 + i * 7 % words).fill_(padding);
  const auto weights = torch::tensor({0.5, 1.0, 2.5, 9.0}, torch::kDouble);
  torch::nn::CrossEntropyLoss weighted(
      torch::nn::CrossEntropyLossOptions().weight(weights).ignore_index(padding).label_smoothing(0.1));
  for (int64_t from = 0; from < sentences; from += 6) {
    auto x = text.slice(0, from, from + 6);
    auto y = targets.slice(0, from, from + 6);
    auto scores = net->forward(x);
    auto loss = torch::nn::functional::cross_entropy(
        scores.view({-1, kinds}), y.reshape({-1}),
        torch::nn::functional::CrossEntropyFuncOptions().ignore_index(padding));
    auto second = weighted(scores.transpose(1, 2), y);
    optimizer.zero_grad();
    (loss + second).backward();
    optimizer.step();
    std::cout << loss.item<double>() << ' ' << second.item<double>() << '\n';
  }
}

struct Pairs : torch::data::datasets::Dataset<Pairs> {
  explicit Pairs(int64_t size) : x(torch::rand({size, 4}, real())), y(torch::randint(3, {size}, torch::kLong)) {}
  torch::data::Example<> get(size_t i) override {
    return {x[static_cast<int64_t>(i)], y[static_cast<int64_t>(i)]};
  }
  torch::optional<size_t> size() const override { return x.size(0); }
  torch::Tensor x, y;
};

/// A model of TorchScript, whose parameters are trained, with batch norm and
/// dropout; what it does is not to be seen here.
void scripted() {
  torch::jit::Module net("scripted");
  net.register_attribute("training", c10::BoolType::get(), true);
  net.register_parameter("first", torch::rand({4, 6}, real()).requires_grad_(), false);
  net.register_parameter("second", torch::rand({6, 3}, real()).requires_grad_(), false);
  net.register_buffer("mean", torch::zeros({6}, real()));
  net.register_buffer("var", torch::ones({6}, real()));
  net.define(R"(
def forward(self, x):
    y = torch.matmul(x, self.first)
    y = torch.batch_norm(y, None, None, self.mean, self.var, self.training, 0.1, 1e-5, False)
    y = torch.dropout(torch.tanh(y), 0.3, self.training)
    return torch.matmul(y, self.second)
)");
  std::vector<torch::Tensor> parameters;
  for (const auto& parameter : net.parameters())
    parameters.push_back(parameter);
  torch::optim::Adam optimizer(parameters, 0.05);
  // The last batch has two rows, fewer than some processes.
  auto loader = torch::data::make_data_loader(Pairs(26).map(torch::data::transforms::Stack<>()), 6);
  for (auto& batch : *loader) {
    std::vector<torch::jit::IValue> inputs;
    inputs.push_back(batch.data);
    auto scores = net.forward(inputs).toTensor();
    auto loss = torch::nn::functional::cross_entropy(scores, batch.target);
    optimizer.zero_grad();
    loss.backward();
    optimizer.step();
    std::cout << loss.item<double>() << '\n';
  }
  net.eval();
  std::cout << net.forward({torch::ones({2, 4}, real())}).toTensor().sum().item<double>() << '\n';
}

/// What a recurrent layer keeps from batch to batch; 5 samples, so that a third
/// process has none. The targets have a row for each step of each sample.
struct Speaker : torch::nn::Module {
  Speaker()
      : embed(register_module("embed", torch::nn::Embedding(7, 3))),
        gru(register_module("gru", torch::nn::GRU(torch::nn::GRUOptions(3, 4).num_layers(2).batch_first(true)))),
        head(register_module("head", torch::nn::Linear(4, 7))) {}
  std::tuple<torch::Tensor, torch::Tensor> forward(torch::Tensor x, torch::Tensor state) {
    torch::Tensor output;
    std::tie(output, state) = gru->forward(embed->forward(x), state);
    output = head->forward(output.reshape({-1, output.size(2)}));
    return std::make_tuple(torch::log_softmax(output, 1), state);
  }
  torch::nn::Embedding embed;
  torch::nn::GRU gru;
  torch::nn::Linear head;
};

void kept_states() {
  const int64_t samples = 5, steps = 4, width = 4;
  auto text = torch::randint(7, {samples, 22}, torch::kLong);
  Speaker net;
  net.to(torch::kDouble);
  torch::optim::Adam optimizer(net.parameters(), 0.05);
  for (int epoch = 0; epoch < 2; ++epoch) {
    auto h = torch::zeros({2, samples, width}, real());
    for (int64_t i = 0; i < text.size(1) - steps; i += steps) {
      auto x = text.index({torch::indexing::Slice(), torch::indexing::Slice(i, i + steps)});
      auto y = text.index({torch::indexing::Slice(), torch::indexing::Slice(i + 1, i + 1 + steps)}).reshape(-1);
      torch::Tensor output;
      std::tie(output, h) = net.forward(x, h);
      h.detach_();
      auto loss = torch::nn::functional::nll_loss(output, y);
      optimizer.zero_grad();
      loss.backward();
      optimizer.step();
      std::cout << loss.item<double>() << ' ' << torch::exp(loss).item<double>() * x.size(0) << '\n';
    }
  }
}

/// Attention by hand: einsum, positions that are written by index, tensors in a
/// list.
struct Attention : torch::nn::Module {
  Attention()
      : qkv(register_module("qkv", torch::nn::Linear(4, 12))),
        head(register_module("head", torch::nn::Linear(4, 1))),
        table(register_buffer("table", torch::rand({3, 4}, real()))) {}
  torch::Tensor turned(const torch::Tensor& x) {
    using torch::indexing::None;
    using torch::indexing::Slice;
    const auto all = table.index({"...", Slice(1, None, 2)}).repeat_interleave(2, 1).expand_as(x);
    auto crossed = torch::empty_like(x);
    crossed.index_put_({"...", Slice(0, None, 2)}, -x.index({"...", Slice(1, None, 2)}));
    crossed.index_put_({"...", Slice(1, None, 2)}, x.index({"...", Slice(0, None, 2)}));
    return x * all + crossed * table;
  }
  torch::Tensor forward(torch::Tensor x) {
    auto three = qkv(x.view({x.size(0), 3, 4})).chunk(3, 2);
    std::vector<torch::Tensor> two(three.begin(), three.end() - 1);
    auto weight = torch::einsum("btc,bsc->bts", {turned(two.at(0)), turned(two.at(1))}).softmax(-1);
    auto mixed = torch::einsum("bts, bsc -> btc", {weight, three.back()});
    three.pop_back();
    return (head(mixed) + three.back().mean(2, true)).mean({1, 2});
  }
  torch::nn::Linear qkv, head;
  torch::Tensor table;
};

void attention() {
  auto x = torch::rand({11, 3, 4}, real());
  auto y = x.sum({1, 2});
  Attention net;
  net.to(torch::kDouble);
  torch::optim::SGD optimizer(net.parameters(), 0.05);
  for (int64_t from = 0; from < 11; from += 4) {
    auto inputs = x.slice(0, from, from + 4);
    auto targets = y.slice(0, from, from + 4);
    auto loss = torch::mse_loss(net.forward(inputs), targets);
    optimizer.zero_grad();
    loss.backward();
    optimizer.step();
    std::cout << loss.item<double>() << '\n';
  }
}

/// Structs that functions are given, kept ones of which the step writes the tensors, of
/// one kind or another, and a class that only the model can read.
struct Steps {
  torch::Tensor series, target;
};
struct Rows {
  torch::Tensor first, second;
};
class Closed {
 public:
  explicit Closed(torch::Tensor rows) : rows_(std::move(rows)) {}
  torch::Tensor rows() const { return rows_; }

 private:
  torch::Tensor rows_;
};

struct Reader : torch::nn::Module {
  Reader() : linear(register_module("linear", torch::nn::Linear(4, 1))) {}
  torch::Tensor forward(const torch::Tensor& x) { return linear(x).squeeze(-1); }
  torch::Tensor loss(const Closed& closed) { return forward(closed.rows()).square().mean(); }
  torch::nn::Linear linear;
};

torch::Tensor by_steps(Reader& net, const Steps& batch) {
  auto sum = torch::zeros({}, real());
  for (int64_t t = 0; t < batch.series.size(1); ++t)
    sum = sum + (net.forward(batch.series.select(1, t)) - batch.target).square().mean();
  return sum;
}

torch::Tensor of_any(Reader& net, const std::variant<Steps, Rows>& any) {
  if (const auto* rows = std::get_if<Rows>(&any))
    return (net.forward(rows->first) * net.forward(rows->second)).mean();
  return by_steps(net, std::get<Steps>(any));
}

torch::Tensor advanced(Reader& net, const torch::Tensor& x) {
  auto left = x.slice(1, 0, 4), right = x.slice(1, 4, 8);
  return x + 0.1 * net.forward(0.5 * (left + right)).unsqueeze(1);
}

void structs() {
  Reader net;
  net.to(torch::kDouble);
  torch::optim::SGD optimizer(net.parameters(), 0.01);
  std::vector<Steps> kept;
  for (int64_t i = 0; i < 2; ++i)
    kept.push_back({torch::rand({5, 3, 4}, real()), torch::rand({5}, real())});
  const auto states = torch::rand({9, 8}, real());
  for (int64_t i = 0; i < 6; ++i) {
    Steps batch = kept[i % 2];
    auto* numbers = batch.series.data_ptr<double>();
    for (int64_t k = 0; k < batch.series.numel(); ++k)
      numbers[k] *= 0.9;
    batch.target.add_(0.1);
    auto loss = by_steps(net, batch);
    loss = loss + of_any(net, Rows{torch::rand({7, 4}, real()), torch::rand({7, 4}, real())});
    loss = loss + of_any(net, Steps{torch::rand({7, 2, 4}, real()), torch::rand({7}, real())});
    loss = loss + net.loss(Closed(torch::rand({5, 4}, real())));
    auto state = states.index_select(0, torch::randperm(9).slice(0, 0, 5));
    for (int64_t t = 0; t < 3; ++t)
      state = advanced(net, state);
    loss = loss + state.square().mean();
    optimizer.zero_grad();
    loss.backward();
    optimizer.step();
    std::cout << "structs " << loss.item<double>() << ' ' << kept[0].series.sum().item<double>() << ' '
              << kept[1].target.sum().item<double>() << '\n';
  }
}

} // namespace

int main() {
  torch::manual_seed(7);
  std::cout << std::setprecision(17);
  whole_set();
  slices();
  sequences();
  language();
  tables();
  stream();
  functor();
  padded();
  scripted();
  kept_states();
  attention();
  structs();
}
