// What trainings do around a model: accumulation, clipping, schedules, closures,
// averages, teachers, several losses, checkpoints.

#include "zoo.h"

#include <algorithm>
#include <cmath>
#include <sstream>

namespace zoo::loops {

Rows samples(int64_t rows = 17) {
  auto x = torch::randn({rows, 6});
  return {x, x.slice(1, 0, 3).argmax(1)};
}

nn::Sequential dense() {
  return nn::Sequential(
      nn::Linear(6, 8), nn::Tanh(), nn::Dropout(0.2), nn::Linear(8, 3));
}

// The Accelerator's windows: the last one of an epoch is shorter.
ZOO_MODEL_ACCUMULATING(windows_of_accumulate, 3) {
  auto net = dense();
  auto optimizer = run.optimizer<optim::Adam>(net->parameters(), optim::AdamOptions(1e-2));
  run.prepare(net, *optimizer);
  auto loader = run.loader(samples(), 4);
  const int64_t batches = 5, window = 3;
  for (int epoch = 0; epoch < 2; ++epoch) {
    int64_t i = 0;
    for (auto& batch : *loader) {
      auto step = run.accumulate(net);
      auto loss = F::cross_entropy(net->forward(batch.data), batch.target);
      const int64_t first = i / window * window;
      const bool last = ++i == batches || i == first + window;
      if (run.accelerator() != nullptr) {
        run.backward(loss);
        run.clip_grad_norm_(net->parameters(), 1);
        optimizer->step();
        optimizer->zero_grad();
      } else {
        const auto length = std::min(window, batches - first);
        (loss / length).backward();
        if (last) {
          nn::utils::clip_grad_norm_(net->parameters(), 1);
          optimizer->step();
          optimizer->zero_grad();
        }
      }
      run.note("loss", loss);
    }
  }
  run.finish(net);
}

// Windows that the program counts itself, and a batch in pieces.
ZOO_MODEL(windows_by_hand) {
  auto net = dense();
  auto optimizer = run.optimizer<optim::AdamW>(net->parameters(), optim::AdamWOptions(1e-2));
  run.prepare(net, *optimizer);
  auto loader = run.loader(samples(), 5);
  int64_t count = 0;
  optimizer->zero_grad();
  for (int epoch = 0; epoch < 3; ++epoch) {
    for (auto& batch : *loader) {
      auto step = run.accumulate(net);
      double sum = 0;
      auto rows = batch.data.split(2, 0), targets = batch.target.split(2, 0);
      for (size_t i = 0; i < rows.size(); ++i) {
        auto loss = F::cross_entropy(
            net->forward(rows[i]), targets[i],
            F::CrossEntropyFuncOptions().reduction(torch::kSum));
        run.backward(loss / (3 * batch.data.size(0)));
        sum += loss.item<double>();
      }
      run.note("loss", sum);
      if (++count % 3 == 0) {
        double square = 0;
        for (const auto& p : net->parameters()) {
          square += p.grad().norm().pow(2).item<double>();
        }
        const double scale = std::min(1., 0.5 / (std::sqrt(square) + 1e-6));
        for (auto& p : net->parameters()) {
          p.grad().mul_(scale).add_(torch::randn_like(p), 1e-3);
        }
        optimizer->step();
        optimizer->zero_grad();
        run.note("norm", std::sqrt(square));
      }
    }
  }
  run.finish(net);
}

ZOO_MODEL(lbfgs_closure) {
  nn::Sequential net(nn::Linear(6, 8), nn::Tanh(), nn::Linear(8, 3));
  auto optimizer = run.optimizer<optim::LBFGS>(
      net->parameters(), optim::LBFGSOptions(0.5).max_iter(4).line_search_fn("strong_wolfe"));
  run.prepare(net, *optimizer);
  auto loader = run.loader(samples(), 9);
  for (int epoch = 0; epoch < 2; ++epoch) {
    for (auto& batch : *loader) {
      auto step = run.accumulate(net);
      int64_t calls = 0;
      auto loss = optimizer->step([&] {
        optimizer->zero_grad();
        auto now = F::cross_entropy(net->forward(batch.data), batch.target);
        for (const auto& p : net->parameters()) {
          now = now + 1e-3 * p.pow(2).sum();
        }
        run.backward(now);
        ++calls;
        return now;
      });
      run.note("loss", loss);
      run.note("calls", static_cast<double>(calls));
    }
  }
  run.finish(net);
}

// Rates by the step, by the epoch and by hand, and by how the evaluation goes.
ZOO_MODEL(schedules) {
  auto net = dense();
  auto optimizer = run.optimizer<optim::SGD>(net->parameters(), optim::SGDOptions(0.2).momentum(0.9));
  optim::StepLR by_epoch(*optimizer, 1, 0.7);
  optim::ReduceLROnPlateauScheduler by_value(
      *optimizer, optim::ReduceLROnPlateauScheduler::min, 0.5f, 0);
  run.prepare(net, *optimizer);
  auto loader = run.loader(samples(), 5);
  int64_t steps = 0;
  for (int epoch = 0; epoch < 3; ++epoch) {
    double sum = 0;
    for (auto& batch : *loader) {
      auto step = run.accumulate(net);
      const double warm = std::min(1., (++steps) / 5.);
      for (auto& group : optimizer->param_groups()) {
        static_cast<optim::SGDOptions&>(group.options()).weight_decay(1e-3 * warm);
      }
      auto loss = F::cross_entropy(net->forward(batch.data), batch.target);
      run.update(*optimizer, loss);
      sum += loss.item<double>();
    }
    by_epoch.step();
    by_value.step(static_cast<float>(sum));
    run.note("rate", static_cast<optim::SGDOptions&>(optimizer->param_groups()[0].options()).lr());
  }
  run.finish(net);
}

// Parts that are frozen, that are never used, that are thawed later with an
// optimizer's group of their own, and that only some batches use.
ZOO_MODEL(frozen_and_unused) {
  nn::Linear body(6, 6), head(6, 3), never(6, 3), sometimes(6, 3);
  for (auto& p : body->parameters()) {
    p.set_requires_grad(false);
  }
  auto optimizer = run.optimizer<optim::Adam>(
      parameters(head, never, sometimes), optim::AdamOptions(2e-2));
  run.prepare(body, head, never, sometimes, *optimizer);
  auto loader = run.loader(samples(), 5);
  for (int epoch = 0; epoch < 3; ++epoch) {
    if (epoch == 1) {
      for (auto& p : body->parameters()) {
        p.set_requires_grad(true);
      }
      optimizer->add_param_group(optim::OptimizerParamGroup(
          body->parameters(), std::make_unique<optim::AdamOptions>(1e-3)));
    }
    for (auto& batch : *loader) {
      auto step = run.accumulate(body, head, never, sometimes);
      auto h = torch::relu(body(batch.data));
      auto scores = head(h);
      // The batch decides.
      if ((batch.target == 1).sum().item<int64_t>() >= 2) {
        scores = scores + sometimes(h);
      }
      run.update(*optimizer, F::cross_entropy(scores, batch.target));
      run.note("has gradients", static_cast<double>(sometimes->weight.grad().defined()));
      run.note("has none", static_cast<double>(never->weight.grad().defined()));
    }
  }
  run.finish(body, head, never, sometimes);
}

// Tasks that weigh what they have learned to weigh, and whose gradients are turned
// away from each other where they disagree.
ZOO_MODEL(several_tasks) {
  nn::Linear trunk(6, 8), first(8, 3), second(8, 1);
  auto weights = torch::zeros({2}).requires_grad_();
  auto all = parameters(trunk, first, second);
  all.push_back(weights);
  auto optimizer = run.optimizer<optim::SGD>(all, optim::SGDOptions(0.1).momentum(0.5));
  run.prepare(trunk, first, second, *optimizer);
  auto loader = run.loader(samples(), 5);
  for (int epoch = 0; epoch < 2; ++epoch) {
    for (auto& batch : *loader) {
      auto step = run.accumulate(trunk, first, second);
      auto h = torch::tanh(trunk(batch.data));
      auto class_loss = F::cross_entropy(first(h), batch.target);
      auto value_loss = F::mse_loss(second(h).squeeze(1), batch.data.prod(1));
      if (epoch == 0) {
        auto losses = torch::stack({class_loss, value_loss});
        run.update(*optimizer, (losses * (-weights).exp() + weights).sum());
        continue;
      }
      // Each by itself; then a step with what has been put together.
      std::vector<std::vector<Tensor>> gradients;
      for (const auto& loss : {class_loss, value_loss}) {
        optimizer->zero_grad();
        run.backward(loss, /*retain_graph=*/true);
        std::vector<Tensor> now;
        for (const auto& p : all) {
          now.push_back(
              p.grad().defined() ? p.grad().clone().flatten() : torch::zeros({p.numel()}));
        }
        gradients.push_back({torch::cat(now)});
      }
      auto a = gradients[0][0], b = gradients[1][0];
      const double product = a.dot(b).item<double>();
      auto sum = a + b;
      if (product < 0) {
        sum = sum - product / b.dot(b) * b - product / a.dot(a) * a;
      }
      optimizer->zero_grad();
      int64_t at = 0;
      for (auto& p : all) {
        p.mutable_grad() = sum.slice(0, at, at + p.numel()).view_as(p).clone();
        at += p.numel();
      }
      optimizer->step();
      run.note("loss", class_loss + value_loss);
      run.note("product", product);
    }
  }
  run.note("weights", weights);
  run.finish(trunk, first, second);
}

// Up the hill and back before each step (SAM), and slow weights behind (lookahead).
ZOO_MODEL(steps_of_several_passes) {
  auto net = dense();
  auto optimizer = run.optimizer<optim::SGD>(net->parameters(), optim::SGDOptions(0.1).momentum(0.9));
  run.prepare(net, *optimizer);
  auto loader = run.loader(samples(), 5);
  std::vector<Tensor> slow;
  for (const auto& p : net->parameters()) {
    slow.push_back(p.detach().clone());
  }
  int64_t steps = 0;
  for (int epoch = 0; epoch < 2; ++epoch) {
    for (auto& batch : *loader) {
      auto step = run.accumulate(net);
      optimizer->zero_grad();
      auto loss = F::cross_entropy(net->forward(batch.data), batch.target);
      run.backward(loss);
      std::vector<Tensor> moves;
      {
        torch::NoGradGuard no_grad;
        std::vector<Tensor> norms;
        for (const auto& p : net->parameters()) {
          norms.push_back(p.grad().norm());
        }
        auto scale = 0.05 / (torch::stack(norms).norm() + 1e-12);
        for (auto& p : net->parameters()) {
          moves.push_back(p.grad() * scale);
          p.add_(moves.back());
        }
      }
      optimizer->zero_grad();
      auto there = F::cross_entropy(net->forward(batch.data), batch.target);
      run.backward(there);
      torch::NoGradGuard no_grad;
      auto all = net->parameters();
      for (size_t i = 0; i < all.size(); ++i) {
        all[i].sub_(moves[i]);
      }
      optimizer->step();
      if (++steps % 3 == 0) {
        for (size_t i = 0; i < all.size(); ++i) {
          slow[i].add_(all[i] - slow[i], 0.5);
          all[i].copy_(slow[i]);
        }
      }
      run.note("loss", loss);
      run.note("there", there);
    }
  }
  run.finish(net);
}

// A teacher that follows, labels that it gives where it is sure, and samples
// without labels from a second loader.
ZOO_MODEL(teacher_and_student) {
  nn::Sequential student(nn::Linear(6, 8), nn::BatchNorm1d(8), nn::Dropout(0.3), nn::Linear(8, 3));
  auto teacher = std::dynamic_pointer_cast<nn::SequentialImpl>(student->clone());
  teacher->eval();
  auto optimizer = run.optimizer<optim::SGD>(student->parameters(), optim::SGDOptions(0.1).momentum(0.9));
  run.prepare(student, teacher, *optimizer);
  auto labelled = run.loader(samples(11), 4);
  auto others = run.loader(samples(23), 5);
  for (int epoch = 0; epoch < 2; ++epoch) {
    auto some = labelled->begin();
    for (auto& batch : *others) {
      auto step = run.accumulate(student);
      if (some == labelled->end()) {
        break;
      }
      auto known = *some;
      ++some;
      Tensor chances;
      {
        torch::NoGradGuard no_grad;
        chances = teacher->forward(batch.data).softmax(1);
      }
      auto [best, said] = chances.max(1);
      auto sure = best > 0.4;
      auto both = student->forward(torch::cat(
          {known.data, batch.data + 0.1 * torch::randn_like(batch.data)}));
      auto scores = both.slice(0, 0, known.data.size(0));
      auto there = both.slice(0, known.data.size(0));
      auto losses = F::cross_entropy(
          there, said, F::CrossEntropyFuncOptions().reduction(torch::kNone));
      auto loss = F::cross_entropy(scores, known.target) + (losses * sure).mean() +
          2 * F::kl_div(
                  (there / 2).log_softmax(1), (chances + 1e-6).log(),
                  F::KLDivFuncOptions().log_target(true).reduction(torch::kBatchMean)) +
          0.1 * F::mse_loss(there.softmax(1), chances);
      run.update(*optimizer, loss);
      run.note("sure", sure.sum());
      torch::NoGradGuard no_grad;
      auto from = student->named_parameters();
      for (auto& item : teacher->named_parameters()) {
        item.value().mul_(0.8).add_(from[item.key()], 0.2);
      }
      auto buffers = student->named_buffers();
      for (auto& item : teacher->named_buffers()) {
        item.value().copy_(buffers[item.key()]);
      }
    }
  }
  run.finish(student, teacher);
}

// The best model is kept as bytes and taken again; the loop ends early.
ZOO_MODEL(early_end) {
  auto net = dense();
  auto optimizer = run.optimizer<optim::Adam>(net->parameters(), optim::AdamOptions(0.2));
  run.prepare(net, *optimizer);
  auto data = samples(23);
  auto loader = run.loader(data, 6);
  auto test = run.loader<SequentialSampler>(samples(10), 4);
  double best = 1e9;
  std::string kept;
  int64_t worse = 0;
  for (int epoch = 0; epoch < 6 && worse < 2; ++epoch) {
    net->train();
    int64_t count = 0;
    for (auto& batch : *loader) {
      auto step = run.accumulate(net);
      run.update(*optimizer, F::cross_entropy(net->forward(batch.data), batch.target));
      if (++count == 3) {
        break;
      }
    }
    net->eval();
    torch::NoGradGuard no_grad;
    double sum = 0;
    int64_t rows = 0;
    for (auto& batch : *test) {
      sum += F::cross_entropy(net->forward(batch.data), batch.target).item<double>() *
          batch.data.size(0);
      rows += batch.data.size(0);
    }
    run.note("test", sum / rows);
    if (sum / rows < best) {
      best = sum / rows;
      worse = 0;
      std::ostringstream bytes;
      torch::save(net, bytes);
      kept = bytes.str();
    } else {
      ++worse;
    }
  }
  std::istringstream bytes(kept);
  torch::load(net, bytes);
  net->eval();
  run.note("best", net->forward(torch::ones({2, 6})));
  run.finish(net);
}

/// Data sets draw on the host, whatever the models' device is.
template <typename Draw>
Tensor on_host(Draw&& draw) {
  const NoDefaultDevice as_written;
  return draw();
}

// Samples as structs, collated by the program; a data set of batches; a data set
// whose samples draw random numbers.
struct Noisy : torch::data::datasets::Dataset<Noisy> {
  explicit Noisy(Tensor x) : x(std::move(x)) {}
  torch::data::Example<> get(size_t index) override {
    const auto i = static_cast<int64_t>(index);
    auto row = x[i] + 0.1 * on_host([] { return torch::randn({6}); }).to(x.device());
    if (on_host([] { return torch::rand({1}); }).item<double>() < 0.5) {
      row = row.flip(0);
    }
    return {row, torch::tensor(i % 3)};
  }
  torch::optional<size_t> size() const override {
    return static_cast<size_t>(x.size(0));
  }
  Tensor x;
};

struct Texts : torch::data::datasets::BatchDataset<
                   Texts, std::vector<torch::data::Example<>>> {
  std::vector<torch::data::Example<>> get_batch(torch::ArrayRef<size_t> indices) override {
    std::vector<torch::data::Example<>> result;
    for (const auto index : indices) {
      const auto i = static_cast<int64_t>(index);
      result.emplace_back(torch::arange(i % 4 + 1) + i, torch::tensor(i % 3));
    }
    return result;
  }
  torch::optional<size_t> size() const override {
    return 17;
  }
};

ZOO_MODEL(other_data_sets) {
  nn::Embedding words(24, 6);
  auto net = dense();
  auto optimizer = run.optimizer<optim::Adam>(parameters(words, net), optim::AdamOptions(1e-2));
  run.prepare(words, net, *optimizer);
  auto noisy = run.loader(Noisy(torch::randn({17, 6})), 5);
  auto texts = run.loader_of<RandomSampler>(Texts(), 5);
  for (int epoch = 0; epoch < 2; ++epoch) {
    for (auto& batch : *noisy) {
      auto step = run.accumulate(words, net);
      run.update(*optimizer, F::cross_entropy(net->forward(batch.data), batch.target));
      run.note("data", batch.data);
    }
    for (auto& batch : *texts) {
      auto step = run.accumulate(words, net);
      std::vector<Tensor> rows, classes;
      for (auto& example : batch) {
        rows.push_back(example.data);
        classes.push_back(example.target);
      }
      auto padded = run.distribute(nn::utils::rnn::pad_sequence(rows, true, 23));
      auto target = run.distribute(torch::stack(classes));
      auto counts = padded.ne(23);
      auto means = (words(padded) * counts.unsqueeze(2)).sum(1) / counts.sum(1, true);
      run.update(*optimizer, F::cross_entropy(net->forward(means), target));
    }
  }
  run.finish(words, net);
}

// It is saved in the middle of an epoch and goes on with a new model and a new
// optimizer; the plain program is never stopped.
ZOO_MODEL(checkpoint_and_resume) {
  // Loaders are known by the order in which they are made: this one is the same.
  auto loader = run.loader(samples(23), 5);
  const auto train = [&](const std::string& save, const std::string& load) {
    nn::Sequential net(
        nn::Linear(nn::LinearOptions(6, 8).bias(false)), nn::BatchNorm1d(8), nn::Dropout(0.3),
        nn::Linear(8, 3));
    auto optimizer = run.optimizer<optim::Adam>(net->parameters(), optim::AdamOptions(1e-2));
    auto average = torch::zeros({8, 6});
    int64_t epoch = 0, steps = 0;
    run.prepare(net, *optimizer);
    if (auto* accelerator = run.accelerator()) {
      const NoDefaultDevice as_written;
      accelerator->register_for_checkpointing(epoch, steps, average);
      if (!load.empty()) {
        accelerator->load_state(load);
      }
    }
    for (; epoch < 3; ++epoch) {
      for (auto& batch : *loader) {
        auto step = run.accumulate(net);
        auto noisy = batch.data + 0.1 * torch::randn_like(batch.data);
        run.update(*optimizer, F::cross_entropy(net->forward(noisy), batch.target));
        {
          torch::NoGradGuard no_grad;
          average.mul_(0.9).add_(net->parameters()[0], 0.1);
        }
        if (++steps == 7 && !save.empty()) {
          const NoDefaultDevice as_written;
          run.accelerator()->save_state(save);
          return;
        }
      }
      run.note("epoch", static_cast<double>(epoch));
    }
    run.note("average", average);
    run.finish(net);
  };
  auto* accelerator = run.accelerator();
  if (accelerator == nullptr) {
    return train("", "");
  }
  const auto folder = run.folder() + "/checkpoint";
  train(folder, "");
  accelerator->clear();
  train("", folder);
}

} // namespace zoo::loops
