// Losses in which all samples of a batch meet.

#include "zoo.h"

#include <algorithm>
#include <limits>

namespace zoo::metric {

Rows classes() {
  auto y = torch::arange(23) * 5 % 4;
  auto x = torch::randn({23, 6});
  x.select(1, 0).add_(y);
  return {x, y};
}

nn::Sequential encoder() {
  return nn::Sequential(
      nn::Linear(nn::LinearOptions(6, 8).bias(false)), nn::BatchNorm1d(8), nn::ReLU(), nn::Linear(8, 4));
}

// Two views of each sample among all others (SimCLR).
ZOO_MODEL(info_nce) {
  auto net = encoder();
  auto optimizer = run.optimizer<optim::SGD>(
      net->parameters(), optim::SGDOptions(0.1).momentum(0.9));
  run.prepare(net, *optimizer);
  auto loader = run.loader(classes(), 6);
  for (int epoch = 0; epoch < 2; ++epoch) {
    for (auto& batch : *loader) {
      auto step = run.accumulate(net);
      const auto n = batch.data.size(0);
      const auto view = [&] {
        return batch.data * (torch::rand_like(batch.data) > 0.2) +
            0.1 * torch::randn_like(batch.data);
      };
      auto first = view(), second = view();
      auto z = F::normalize(net->forward(torch::cat({first, second}, 0)));
      auto alike = z.mm(z.t()) / 0.5;
      alike.masked_fill_(torch::eye(2 * n, torch::kBool), -INFINITY);
      auto partners = torch::cat({torch::arange(n, 2 * n), torch::arange(n)});
      run.update(*optimizer, F::cross_entropy(alike, partners));
      auto rank = (alike >= alike.gather(1, partners.unsqueeze(1))).sum(1);
      run.note("rank", rank.to(torch::kDouble).mean());
    }
  }
  run.finish(net);
}

// The hardest of each kind, looked for sample by sample.
ZOO_MODEL(triplet_mining) {
  auto net = encoder();
  auto optimizer = run.optimizer<optim::Adam>(net->parameters(), optim::AdamOptions(1e-2));
  run.prepare(net, *optimizer);
  auto loader = run.loader(classes(), 7);
  for (int epoch = 0; epoch < 2; ++epoch) {
    for (auto& batch : *loader) {
      auto step = run.accumulate(net);
      auto z = net->forward(batch.data);
      auto far = torch::cdist(z, z);
      std::vector<Tensor> losses;
      for (int64_t i = 0; i < z.size(0); ++i) {
        int64_t positive = -1, negative = -1;
        double farthest = -1, nearest = std::numeric_limits<double>::max();
        for (int64_t j = 0; j < z.size(0); ++j) {
          const double d = far[i][j].item<double>();
          const bool same = batch.target[i].item<int64_t>() ==
              batch.target[j].item<int64_t>();
          if (same && i != j && d > farthest) {
            farthest = d;
            positive = j;
          } else if (!same && d < nearest) {
            nearest = d;
            negative = j;
          }
        }
        if (positive >= 0 && negative >= 0) {
          losses.push_back(torch::relu(
              (z[i] - z[positive]).norm() - (z[i] - z[negative]).norm() + 0.5));
        }
      }
      run.note("triplets", static_cast<double>(losses.size()));
      if (losses.empty()) {
        continue;
      }
      run.update(*optimizer, torch::stack(losses).mean());
    }
  }
  run.finish(net);
}

// The same without loops, and pairs that PyTorch's losses take.
ZOO_MODEL(pairs_and_triplets) {
  auto net = encoder();
  auto optimizer = run.optimizer<optim::SGD>(net->parameters(), 0.05);
  run.prepare(net, *optimizer);
  auto loader = run.loader(classes(), 7);
  for (int epoch = 0; epoch < 1; ++epoch) {
    for (auto& batch : *loader) {
      auto step = run.accumulate(net);
      auto z = net->forward(batch.data);
      auto squares = z.pow(2).sum(1);
      auto far = (squares.unsqueeze(0) + squares.unsqueeze(1) - 2 * z.matmul(z.t()))
                     .clamp_min(1e-12)
                     .sqrt();
      auto same = batch.target.unsqueeze(0) == batch.target.unsqueeze(1);
      auto positive = std::get<0>(far.masked_fill(~same, 0).max(1));
      auto negative = far.masked_fill(same, 1e9).amin(1);
      auto hard = F::softplus(positive - negative.clamp_max(10));
      auto shifted = torch::roll(z, 1, 0);
      auto sign = torch::where(
          batch.target == batch.target.roll(1), torch::ones({}), -torch::ones({}));
      auto loss = hard.mean() +
          F::cosine_embedding_loss(
              z, shifted, sign, F::CosineEmbeddingLossFuncOptions().margin(0.2)) +
          F::hinge_embedding_loss(
              (z - shifted).abs().sum(1), sign,
              F::HingeEmbeddingLossFuncOptions().margin(2)) +
          F::margin_ranking_loss(positive, negative.clamp_max(10), -torch::ones({z.size(0)})) +
          F::triplet_margin_loss(
              z, shifted, z.flip(0), F::TripletMarginLossFuncOptions().swap(true)) +
          F::triplet_margin_with_distance_loss(z, z * 0.9, shifted);
      run.update(*optimizer, loss);
    }
  }
  run.finish(net);
}

// What has one class is drawn together; features of a batch are decorrelated.
ZOO_MODEL(supervised_contrast) {
  auto net = encoder();
  auto optimizer = run.optimizer<optim::SGD>(net->parameters(), 0.1);
  run.prepare(net, *optimizer);
  auto loader = run.loader(classes(), 6);
  for (int epoch = 0; epoch < 1; ++epoch) {
    for (auto& batch : *loader) {
      auto step = run.accumulate(net);
      const auto n = batch.data.size(0);
      auto z = F::normalize(net->forward(batch.data));
      auto scores = z.mm(z.t()) / 0.3;
      scores = scores - scores.amax(1, true).detach();
      auto others = 1 - torch::eye(n);
      auto same = batch.target.view({-1, 1}).eq(batch.target.view({1, -1})) * others;
      auto log_chance =
          scores - (scores.exp() * others).sum(1, true).log();
      auto loss = -(same * log_chance).sum(1) / same.sum(1).clamp_min(1);
      // Barlow's twins: correlation of features with those of a second view.
      auto other = net->forward(batch.data + 0.1 * torch::randn({n, 6}));
      auto a = (z - z.mean(0)) / (z.std(0) + 1e-3);
      auto b = (other - other.mean(0)) / (other.std(0) + 1e-3);
      auto correlation = a.t().mm(b) / n;
      auto diagonal = correlation.diagonal();
      auto rest = correlation.pow(2).sum() - diagonal.pow(2).sum();
      // And the spread of each feature is kept up.
      auto spread = F::relu(1 - (other.var(0) + 1e-4).sqrt()).mean();
      run.update(
          *optimizer,
          loss.mean() + (diagonal - 1).pow(2).sum() + 0.01 * rest + spread);
    }
  }
  run.finish(net);
}

// A queue of keys that a slow encoder has made (MoCo).
ZOO_MODEL(momentum_queue) {
  nn::Sequential query(nn::Linear(6, 8), nn::Tanh(), nn::Linear(8, 4));
  auto key = std::dynamic_pointer_cast<nn::SequentialImpl>(query->clone());
  for (auto& p : key->parameters()) {
    p.set_requires_grad(false);
  }
  auto queue = F::normalize(torch::randn({10, 4}));
  int64_t place = 0;
  auto optimizer = run.optimizer<optim::SGD>(
      query->parameters(), optim::SGDOptions(0.1).momentum(0.9));
  run.prepare(query, key, *optimizer);
  auto loader = run.loader(classes(), 5);
  for (int epoch = 0; epoch < 3; ++epoch) {
    for (auto& batch : *loader) {
      auto step = run.accumulate(query);
      auto q = F::normalize(query->forward(batch.data));
      Tensor k;
      {
        torch::NoGradGuard no_grad;
        auto to = key->parameters(), from = query->parameters();
        for (size_t i = 0; i < to.size(); ++i) {
          to[i].copy_(to[i] * 0.8 + from[i] * 0.2);
        }
        auto order = torch::randperm(batch.data.size(0));
        auto shuffled = batch.data.index({order}) + 0.05;
        k = F::normalize(key->forward(shuffled)).index({order.argsort()});
      }
      auto positive = torch::einsum("nc,nc->n", {q, k}).unsqueeze(-1);
      auto negative = torch::einsum("nc,ck->nk", {q, queue.t().clone().detach()});
      auto scores = torch::cat({positive, negative}, 1) / 0.2;
      run.update(
          *optimizer,
          F::cross_entropy(scores, torch::zeros({scores.size(0)}, torch::kLong)));
      torch::NoGradGuard no_grad;
      for (int64_t i = 0; i < k.size(0); ++i) {
        queue[place] = k[i];
        place = (place + 1) % queue.size(0);
      }
    }
    run.note("queue", queue);
  }
  run.finish(query, key);
}

// Means of classes from one half of the batch judge the other half.
ZOO_MODEL(prototypes) {
  nn::Sequential net(nn::Linear(6, 8), nn::GELU(), nn::Linear(8, 4));
  auto optimizer = run.optimizer<optim::Adam>(net->parameters(), optim::AdamOptions(1e-2));
  run.prepare(net, *optimizer);
  auto loader = run.loader(classes(), 11);
  for (int epoch = 0; epoch < 3; ++epoch) {
    for (auto& batch : *loader) {
      auto step = run.accumulate(net);
      const auto half = batch.data.size(0) / 2 + 1;
      if (half >= batch.data.size(0)) {
        continue;
      }
      auto z = net->forward(batch.data);
      auto support = z.slice(0, 0, half), queries = z.slice(0, half);
      auto labels = batch.target.slice(0, 0, half);
      auto present = std::get<0>(torch::_unique2(labels));
      std::vector<Tensor> means;
      for (int64_t i = 0; i < present.size(0); ++i) {
        auto rows = (labels == present[i]).nonzero().squeeze(1);
        means.push_back(support.index_select(0, rows).mean(0));
      }
      auto scores = -torch::cdist(queries, torch::stack(means)).pow(2);
      // Only those whose class is among them.
      auto hits = batch.target.slice(0, half).unsqueeze(1) == present.unsqueeze(0);
      auto known = hits.any(1);
      if (!known.any().item<bool>()) {
        continue;
      }
      auto target = hits.to(torch::kLong).argmax(1).masked_select(known);
      auto loss = F::cross_entropy(scores.index({known}), target);
      run.update(*optimizer, loss);
      run.note("classes", present);
    }
  }
  run.finish(net);
}

// Optimal transport from the made points to the given ones, by Sinkhorn's steps.
ZOO_MODEL(sinkhorn) {
  nn::Linear maker(3, 6);
  auto optimizer = run.optimizer<optim::Adam>(maker->parameters(), optim::AdamOptions(5e-2));
  run.prepare(maker, *optimizer);
  auto loader = run.loader(classes(), 6);
  for (int epoch = 0; epoch < 2; ++epoch) {
    for (auto& batch : *loader) {
      auto step = run.accumulate(maker);
      const auto n = batch.data.size(0);
      auto made = maker(torch::randn({n, 3}));
      auto cost = (made.unsqueeze(1) - batch.data.unsqueeze(0)).pow(2).sum(2);
      auto f = torch::zeros({n}), g = torch::zeros({n});
      const double size = static_cast<double>(n);
      for (int i = 0; i < 8; ++i) {
        f = -torch::logsumexp(g.unsqueeze(0) - cost / 0.5 - std::log(size), 1);
        g = -torch::logsumexp(f.unsqueeze(1) - cost / 0.5 - std::log(size), 0);
        auto rows = (f.unsqueeze(1) + g.unsqueeze(0) - cost / 0.5).exp().sum(1) / (size * size);
        if ((rows - 1 / size).abs().sum().item<double>() < 1e-4) {
          break;
        }
      }
      auto plan = (f.unsqueeze(1) + g.unsqueeze(0) - cost / 0.5).exp() / (size * size);
      run.update(*optimizer, (plan.detach() * cost).sum());
      run.note("matches", plan.argmax(1));
    }
  }
  run.finish(maker);
}

// Distances between distributions: kernels of a width that the batch decides, and
// sorted projections.
ZOO_MODEL(two_sample_distances) {
  nn::Linear maker(3, 6);
  auto optimizer = run.optimizer<optim::SGD>(maker->parameters(), 0.1);
  run.prepare(maker, *optimizer);
  auto loader = run.loader(classes(), 6);
  for (int epoch = 0; epoch < 1; ++epoch) {
    for (auto& batch : *loader) {
      auto step = run.accumulate(maker);
      const auto n = batch.data.size(0);
      auto made = maker(torch::randn({n + 2, 3}));
      auto all = torch::vstack({made, batch.data});
      auto far = torch::cdist(all, all).square();
      auto width = far.detach().masked_select(far.detach() > 0).median();
      auto kernel = torch::exp(-far / width);
      auto weights = torch::cat(
          {torch::full({n + 2}, 1. / static_cast<double>(n + 2)), torch::full({n}, -1. / static_cast<double>(n))});
      auto distance = weights.dot(kernel.mv(weights));
      auto directions = F::normalize(torch::randn({6, 4}), F::NormalizeFuncOptions().dim(0));
      auto made_sorted = std::get<0>(made.slice(0, 0, n).matmul(directions).sort(0));
      auto given_sorted = std::get<0>(batch.data.matmul(directions).sort(0));
      run.update(
          *optimizer, distance + (made_sorted - given_sorted).pow(2).mean());
    }
  }
  run.finish(maker);
}

// Centers of classes that follow their samples, and angles with a margin.
ZOO_MODEL(centers_and_angles) {
  auto net = encoder();
  auto weight = torch::randn({4, 4}).requires_grad_();
  auto centers = torch::zeros({4, 4}), counts = torch::zeros({4}, torch::kLong);
  auto all = net->parameters();
  all.push_back(weight);
  auto optimizer = run.optimizer<optim::SGD>(all, 0.1);
  run.prepare(net, *optimizer);
  auto loader = run.loader(classes(), 6);
  for (int epoch = 0; epoch < 2; ++epoch) {
    for (auto& batch : *loader) {
      auto step = run.accumulate(net);
      auto z = net->forward(batch.data);
      auto cosine = F::linear(F::normalize(z), F::normalize(weight));
      auto angle = torch::acos(cosine.clamp(-1 + 1e-7, 1 - 1e-7));
      auto hot = torch::zeros_like(cosine).scatter_(1, batch.target.view({-1, 1}), 1);
      auto scores = torch::cos(angle + 0.2 * hot) * 4;
      auto loss = F::cross_entropy(scores, batch.target) +
          0.1 * (z - centers.index_select(0, batch.target)).pow(2).sum(1).mean();
      run.update(*optimizer, loss);
      torch::NoGradGuard no_grad;
      auto sums = torch::zeros_like(centers).index_add_(0, batch.target, z.detach());
      auto now = torch::zeros({4}).scatter_add_(
          0, batch.target, torch::ones({batch.target.size(0)}));
      auto present = now > 0;
      auto means = sums / now.clamp_min(1).unsqueeze(1);
      centers = torch::where(present.unsqueeze(1), centers * 0.7 + means * 0.3, centers);
      counts += now.to(torch::kLong);
    }
    run.note("centers", centers);
    run.note("counts", counts);
  }
  run.note("weight", weight);
  run.finish(net);
}

// Lists are ranked: by pairs, by the whole list, and what a user would see first.
ZOO_MODEL(learning_to_rank) {
  // No offset of all scores: pairs and lists do not see it, and Adam would make a
  // step of what rounding leaves of its gradient.
  nn::Sequential net(
      nn::Linear(6, 8), nn::SELU(), nn::Linear(nn::LinearOptions(8, 1).bias(false)));
  auto optimizer = run.optimizer<optim::Adam>(net->parameters(), optim::AdamOptions(1e-2));
  run.prepare(net, *optimizer);
  auto loader = run.loader(classes(), 8);
  for (int epoch = 0; epoch < 2; ++epoch) {
    for (auto& batch : *loader) {
      auto step = run.accumulate(net);
      auto score = net->forward(batch.data).squeeze(-1);
      auto worth = batch.target.to(torch::kDouble);
      auto better = worth.unsqueeze(1) > worth.unsqueeze(0);
      auto pairs = torch::log_sigmoid(score.unsqueeze(1) - score.unsqueeze(0));
      auto by_pairs = -pairs.masked_select(better).sum() / better.sum().clamp_min(1);
      auto [sorted, order] = worth.sort(/*stable=*/true, /*dim=*/0, /*descending=*/true);
      auto listed = score.index_select(0, order);
      auto by_list =
          (torch::logcumsumexp(listed.flip(0), 0).flip(0) - listed).mean();
      run.update(*optimizer, by_pairs + by_list);
      auto seen = std::get<1>(score.topk(std::min<int64_t>(5, score.size(0))));
      auto discount =
          1 / (torch::arange(seen.size(0)).to(torch::kDouble) + 2).log2();
      auto gain = (worth.index_select(0, seen) * discount).sum();
      auto best = (sorted.slice(0, 0, seen.size(0)) * discount).sum();
      run.note("gain", gain / best.clamp_min(1e-9));
      // One sample after another, as people count.
      int64_t inversions = 0;
      for (int64_t i = 1; i < score.size(0); ++i) {
        inversions += (score[i] < score[i - 1]).item<bool>() ? 1 : 0;
      }
      run.note("inversions", static_cast<double>(inversions));
    }
  }
  run.finish(net);
}

} // namespace zoo::metric
