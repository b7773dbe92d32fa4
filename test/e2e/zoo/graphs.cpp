// Graphs, sets of points, tables of words and users, experts.

#include "zoo.h"

namespace zoo::graphs {

/// 17 graphs of 5 nodes: the adjacency matrix, and 3 numbers for each node; what
/// is asked for is the number of edges, as a class.
Rows graphs() {
  auto edges = torch::bernoulli(torch::full({17, 5, 5}, 0.4)).triu(1);
  edges = edges + edges.transpose(1, 2);
  auto nodes = torch::randn({17, 5, 3});
  return {
      torch::cat({edges, nodes}, 2),
      (edges.sum({1, 2}) / 2).to(torch::kLong).remainder(3)};
}

// Products with the normed adjacency matrix, and attention along the edges.
ZOO_MODEL(graph_convolution) {
  nn::Linear first(3, 6), second(6, 6), looks(12, 1), head(6, 3);
  auto optimizer = run.optimizer<optim::Adam>(
      parameters(first, second, looks, head), optim::AdamOptions(1e-2));
  run.prepare(first, second, looks, head, *optimizer);
  auto loader = run.loader(graphs(), 5);
  for (int epoch = 0; epoch < 2; ++epoch) {
    for (auto& batch : *loader) {
      auto step = run.accumulate(first, second, looks, head);
      auto edges = batch.data.slice(2, 0, 5) + torch::eye(5);
      auto nodes = batch.data.slice(2, 5);
      auto root = edges.sum(2).pow(-0.5);
      auto normed = root.unsqueeze(2) * edges * root.unsqueeze(1);
      auto h = torch::relu(torch::bmm(normed, first(nodes)));
      auto to = h.unsqueeze(2).expand({-1, -1, 5, -1});
      auto pairs = torch::cat({to, to.transpose(1, 2)}, 3);
      auto scores = torch::leaky_relu(looks(pairs).squeeze(3), 0.2)
                        .masked_fill(edges == 0, -1e9);
      h = h + torch::elu(torch::matmul(scores.softmax(2), second(h)));
      run.update(
          *optimizer, F::cross_entropy(head(h.mean(1)), batch.target));
    }
  }
  run.finish(first, second, looks, head);
}

// All graphs of a batch as one, with lists of edges and index_add.
ZOO_MODEL(messages_along_edges) {
  nn::Linear message(6, 6), own(3, 6), head(6, 3);
  auto optimizer = run.optimizer<optim::SGD>(
      parameters(message, own, head), optim::SGDOptions(0.1).momentum(0.5));
  run.prepare(message, own, head, *optimizer);
  auto loader = run.loader(graphs(), 5);
  for (int epoch = 0; epoch < 2; ++epoch) {
    int64_t seen = 0;
    for (auto& batch : *loader) {
      auto step = run.accumulate(message, own, head);
      const auto n = batch.data.size(0);
      auto nodes = batch.data.slice(2, 5).reshape({n * 5, 3});
      auto where = batch.data.slice(2, 0, 5).nonzero(); // graph, from, to
      auto from = where.select(1, 0) * 5 + where.select(1, 1);
      auto to = where.select(1, 0) * 5 + where.select(1, 2);
      auto messages = torch::relu(message(torch::cat(
          {nodes.index_select(0, from), nodes.index({to})}, 1)));
      auto h = own(nodes);
      auto sums = torch::zeros({n * 5, 6}).index_add_(0, to, messages);
      auto degree = torch::zeros({n * 5}).scatter_add_(0, to, torch::ones({to.size(0)}));
      h = h + sums / degree.clamp_min(1).unsqueeze(1);
      // The largest and the sum of each graph's nodes.
      auto graph = torch::arange(n).repeat_interleave(5);
      auto pooled = torch::zeros({n, 6}).index_add(0, graph, h) / 5 +
          torch::full({n, 6}, -1e9).scatter_reduce(
              0, graph.unsqueeze(1).expand({-1, 6}), h, "amax");
      run.update(*optimizer, F::cross_entropy(head(pooled), batch.target));
      seen += where.size(0);
    }
    run.note("edges", static_cast<double>(seen));
  }
  run.finish(message, own, head);
}

// Points: nearest neighbours, what lies around each, the largest of all.
ZOO_MODEL(point_clouds) {
  nn::Linear around(6, 8), head(8, 3);
  auto optimizer =
      run.optimizer<optim::Adam>(parameters(around, head), optim::AdamOptions(1e-2));
  run.prepare(around, head, *optimizer);
  auto loader = run.loader(Rows(torch::randn({17, 7, 3}), torch::arange(17) % 3), 5);
  for (int epoch = 0; epoch < 2; ++epoch) {
    for (auto& batch : *loader) {
      auto step = run.accumulate(around, head);
      const auto n = batch.data.size(0);
      auto points = batch.data - batch.data.mean(1, true);
      auto near = std::get<1>(torch::cdist(points, points).topk(3, 2, /*largest=*/false));
      auto rows = torch::arange(n).view({-1, 1, 1});
      auto neighbours = points.index({rows, near}); // n, 7, 3, 3
      auto center = points.unsqueeze(2).expand_as(neighbours);
      auto h = torch::relu(around(torch::cat({center, neighbours - center}, -1)));
      auto pooled = h.amax(2).amax(1);
      // The points that are farthest from each other, one after the other.
      auto taken = torch::zeros({n, 3}, torch::kLong);
      auto distance = torch::full({n, 7}, 1e9);
      auto last = torch::zeros({n}, torch::kLong);
      for (int64_t i = 0; i < 3; ++i) {
        taken.index_put_({Slice(), i}, last);
        auto point = points.gather(1, last.view({n, 1, 1}).expand({n, 1, 3}));
        distance = torch::minimum(distance, (points - point).pow(2).sum(2));
        last = distance.argmax(1);
      }
      auto spread = points.gather(1, taken.unsqueeze(2).expand({-1, -1, 3})).std(1).mean();
      run.update(
          *optimizer, F::cross_entropy(head(pooled), batch.target) * (1 + 0.1 * spread));
      run.note("taken", taken);
    }
  }
  run.finish(around, head);
}

// Users and things, with sparse gradients; others are drawn as what is not liked.
ZOO_MODEL(sparse_recommender) {
  nn::Embedding users(nn::EmbeddingOptions(7, 4).sparse(true));
  nn::Embedding things(nn::EmbeddingOptions(9, 4).sparse(true));
  nn::Embedding favour(nn::EmbeddingOptions(9, 1));
  auto sparse = run.optimizer<optim::SGD>(parameters(users, things), 0.5);
  auto dense = run.optimizer<optim::Adam>(favour->parameters(), optim::AdamOptions(1e-2));
  run.prepare(users, things, favour, *sparse, *dense);
  auto pairs = torch::stack({torch::arange(23) % 7, torch::arange(23) * 4 % 9}, 1);
  auto loader = run.loader(Rows(pairs, torch::arange(23)), 5);
  for (int epoch = 0; epoch < 2; ++epoch) {
    for (auto& batch : *loader) {
      auto step = run.accumulate(users, things, favour);
      auto user = users(batch.data.select(1, 0));
      auto liked = batch.data.index({Slice(), 1});
      auto other = torch::randint(9, {batch.data.size(0), 3}, torch::kLong);
      auto score = (user * things(liked)).sum(1) + favour(liked).squeeze(1);
      auto others = torch::bmm(things(other), user.unsqueeze(2)).squeeze(2) +
          favour(other).squeeze(2);
      auto loss = -torch::log_sigmoid(score.unsqueeze(1) - others)
                       .masked_fill(other == liked.unsqueeze(1), 0)
                       .mean();
      sparse->zero_grad();
      dense->zero_grad();
      run.backward(loss);
      sparse->step();
      dense->step();
      run.note("loss", loss);
    }
    torch::NoGradGuard no_grad;
    auto best = std::get<1>(
        users->weight.matmul(things->weight.t()).add(favour->weight.t()).topk(3, 1));
    run.note("best", best);
  }
  run.finish(users, things, favour);
}

// Bags of words, with weights, and words of which the table is kept short.
ZOO_MODEL(bags_of_words) {
  nn::EmbeddingBag bags(nn::EmbeddingBagOptions(12, 5).mode(torch::kSum));
  nn::EmbeddingBag means(nn::EmbeddingBagOptions(12, 5).mode(torch::kMean).sparse(true));
  nn::Embedding words(nn::EmbeddingOptions(12, 5).max_norm(1.).scale_grad_by_freq(true).padding_idx(0));
  nn::Linear head(15, 3);
  auto optimizer = run.optimizer<optim::SGD>(parameters(bags, means, words, head), 0.2);
  run.prepare(bags, means, words, head, *optimizer);
  auto loader = run.loader(
      Rows(torch::randint(12, {19, 4}, torch::kLong), torch::arange(19) % 3), 6);
  for (int epoch = 0; epoch < 1; ++epoch) {
    for (auto& batch : *loader) {
      auto step = run.accumulate(bags, means, words, head);
      const auto n = batch.data.size(0);
      auto weights = torch::softmax(batch.data.to(torch::kDouble) / 6, 1);
      auto sums = bags->forward(batch.data, {}, weights);
      // The same words in a row, with the places where samples begin.
      auto flat = batch.data.flatten();
      auto mean = means->forward(flat, torch::arange(0, 4 * n, 4));
      auto last = words(batch.data).sum(1);
      auto scores = head(torch::cat({sums, mean, last}, 1));
      run.update(*optimizer, F::cross_entropy(scores, batch.target));
    }
  }
  run.finish(bags, means, words, head);
}

// Words and their neighbours; what is drawn instead follows how often words are.
ZOO_MODEL(skip_grams) {
  nn::Embedding inner(10, 4), outer(10, 4);
  auto optimizer = run.optimizer<optim::Adagrad>(
      parameters(inner, outer), optim::AdagradOptions(0.1));
  run.prepare(inner, outer, *optimizer);
  auto text = torch::randint(10, {25}, torch::kLong);
  auto often = torch::bincount(text, {}, 10).to(torch::kDouble).pow(0.75);
  auto windows = text.unfold(0, 3, 1).contiguous();
  auto loader = run.loader(Rows(windows.select(1, 1), windows.index({Slice(), torch::tensor({0, 2})})), 6);
  for (int epoch = 0; epoch < 2; ++epoch) {
    for (auto& batch : *loader) {
      auto step = run.accumulate(inner, outer);
      const auto n = batch.data.size(0);
      auto word = inner(batch.data).unsqueeze(2);
      auto others = torch::multinomial(often.expand({n, 10}), 4, /*replacement=*/true);
      auto near = torch::bmm(outer(batch.target), word).squeeze(2);
      auto far = torch::bmm(outer(others).neg(), word).squeeze(2);
      auto loss =
          -(torch::log_sigmoid(near).sum(1) + torch::log_sigmoid(far).sum(1)).mean();
      run.update(*optimizer, loss);
    }
  }
  run.finish(inner, outer);
}

// Each sample goes to two experts that a gate names, as far as they have room.
ZOO_MODEL(mixture_of_experts) {
  nn::Linear gate(nn::LinearOptions(6, 4).bias(false));
  nn::ModuleList experts;
  for (int i = 0; i < 4; ++i) {
    experts->push_back(nn::Linear(6, 3));
  }
  auto optimizer = run.optimizer<optim::SGD>(parameters(gate, experts), 0.1);
  run.prepare(gate, experts, *optimizer);
  auto x = torch::randn({23, 6});
  auto loader = run.loader(Rows(x, x.slice(1, 0, 3).argmax(1)), 7);
  for (int epoch = 0; epoch < 2; ++epoch) {
    for (auto& batch : *loader) {
      auto step = run.accumulate(gate, experts);
      const auto n = batch.data.size(0);
      auto chances = gate(batch.data + 0.1 * torch::randn_like(batch.data)).softmax(1);
      auto [weights, found] = chances.topk(2, 1);
      const auto chosen = found;
      weights = weights / weights.sum(1, true);
      auto output = torch::zeros({n, 3});
      auto load = torch::zeros({4});
      for (int64_t e = 0; e < 4; ++e) {
        auto [rows, place] = [&] {
          auto both = torch::where(chosen == e);
          return std::make_pair(both[0], both[1]);
        }();
        load[e] = static_cast<double>(rows.numel());
        if (rows.numel() == 0) {
          continue;
        }
        rows = rows.slice(0, 0, 4);
        place = place.slice(0, 0, 4);
        auto made = experts[e]->as<nn::Linear>()->forward(batch.data.index_select(0, rows));
        output = output.index_add(
            0, rows, made * weights.index({rows, place}).unsqueeze(1));
      }
      auto balance = 4 * (load / load.sum() * chances.mean(0)).sum();
      run.update(
          *optimizer, F::cross_entropy(output, batch.target) + 0.01 * balance);
      run.note("load", load);
    }
  }
  run.finish(gate, experts);
}

} // namespace zoo::graphs
