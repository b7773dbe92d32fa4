// Programs that use tensors as people do who know that a batch is a tensor: views
// and writes, loops over rows, lists of rows, tables that grow.

#include "zoo.h"

#include <algorithm>
#include <cmath>

namespace zoo::rows {

Rows samples() {
  auto x = torch::randn({19, 6});
  return {x, (x.sum(1) * 3).to(torch::kLong).remainder(4)};
}

// Writes through views of all kinds, before and behind what needs gradients.
ZOO_MODEL(writes_in_place) {
  nn::Linear net(6, 4);
  auto optimizer = run.optimizer<optim::SGD>(net->parameters(), 0.05);
  run.prepare(net, *optimizer);
  auto loader = run.loader(samples(), 5);
  for (int epoch = 0; epoch < 2; ++epoch) {
    for (auto& batch : *loader) {
      auto step = run.accumulate(net);
      auto x = batch.data;
      const auto n = x.size(0);
      x.sub_(x.mean(0)).div_(x.std(0, /*unbiased=*/false).add_(1e-3));
      auto first = x[0], columns = x.t(), pairs = x.view({n, 3, 2});
      first.fill_(0.5);
      columns[1].mul_(2);
      pairs.select(2, 1).clamp_(-1, 1);
      x.slice(0, 1, n, 2) += 0.25;
      x.index_put_({Slice(), 2}, x.index({Slice(), 3}) * 0.5);
      x.masked_fill_(x.abs() > 2, 0);
      x[n - 1][5] = x[0][0] + 1;
      run.note("first", first);
      run.note("columns", columns);
      auto y = net(x);
      auto z = y * 1;
      z.slice(1, 0, 1).mul_(2);
      z.narrow(0, 1, 2).mul_(0.5);
      z.select(0, 0).copy_(z.select(0, 1).detach());
      z.diagonal().add_(1);
      z.index_add_(0, torch::tensor({2, 2}), y.slice(0, 0, 2));
      z.transpose(0, 1).select(0, 3).zero_();
      auto loss = F::cross_entropy(z, batch.target) + (x * pairs.flatten(1)).mean();
      run.update(*optimizer, loss);
      run.note("x", x);
    }
  }
  run.finish(net);
}

// Sums over the batch, of which a process has a part, written into what all have,
// into other sums and into rows.
ZOO_MODEL(sums_into_others) {
  nn::Linear net(6, 4);
  auto optimizer = run.optimizer<optim::SGD>(net->parameters(), 0.02);
  run.prepare(net, *optimizer);
  auto loader = run.loader(samples(), 5);
  auto history = torch::ones({4});
  for (int epoch = 0; epoch < 1; ++epoch) {
    for (auto& batch : *loader) {
      auto step = run.accumulate(net);
      auto y = net(batch.data);
      auto d = y.detach();
      const auto sums = [&] { return d.t().mm(d); };
      const auto whole = [&] { return sums().relu_().add_(1); };
      const auto counts = [&] { return batch.target.unsqueeze(1).expand({-1, 4}).sum(0); };
      const auto total = d.sum(), mean = d.mean(), columns = d.mean(0);
      const std::vector<Tensor> written = {
          whole().mul_(mean), whole().div_(total + 9), whole().add_(total),
          whole().sub_(columns), whole().lerp_(columns, 0.3), whole().copy_(columns),
          whole().addcmul_(sums(), mean), whole().addcdiv_(sums(), columns + 5, -1),
          whole().pow_(mean), whole().fill_(mean), whole().clamp_max_(total),
          sums().mul_(mean), sums().div_(columns + 3), sums().add_(whole()), sums().add_(1),
          sums().sub_(sums(), 0.5), sums().neg_(), sums().sub_(total), sums().copy_(whole()),
          sums().mul_(whole()), sums().zero_(), sums().fill_(total), sums().masked_fill_(whole() > 2, 0.5),
          d.clone().mul_(mean), d.clone().div_(total + 9), d.clone().add_(columns, 2),
          d.clone().copy_(columns), d.clone().addmm_(d, sums()), d.clone().masked_fill_(d > 0, mean),
          torch::addmm(columns, d, whole()), torch::where(whole() > 2, mean, columns),
          whole().index_put_({Slice(), 0}, columns), whole().index_add_(0, torch::tensor({1}), sums().slice(0, 0, 1)),
          history.clone().mul_(mean).add_(columns), torch::ones({4}).addcmul_(columns, total),
          sums().sum(torch::kLong), sums().cumsum(0, torch::kLong), (sums() * 10).mean(0, true, torch::kDouble),
          sums().to(torch::kLong), counts().fill_(total), counts().copy_(columns), counts().mul_(counts()),
          sums().sum(torch::IntArrayRef{0}, true, torch::kInt)};
      for (const auto& tensor : written) {
        run.note("written", tensor);
      }
      history.mul_(0.9).add_(columns, 0.1);
      auto norm = torch::stack({y.norm(), y.sum(0).norm()}).norm();
      auto loss = F::cross_entropy(y, batch.target) + norm * whole().mul_(mean).mean() / 50;
      run.update(*optimizer, loss);
    }
  }
  run.note("history", history);
  run.finish(net);
}

// Sums, orders and neighbours along the batch.
ZOO_MODEL(along_the_batch) {
  nn::Linear net(6, 3);
  auto optimizer = run.optimizer<optim::Adam>(net->parameters(), optim::AdamOptions(1e-2));
  run.prepare(net, *optimizer);
  auto loader = run.loader(samples(), 7);
  for (int epoch = 0; epoch < 1; ++epoch) {
    for (auto& batch : *loader) {
      auto step = run.accumulate(net);
      auto y = net(batch.data);
      const auto n = y.size(0);
      auto sums = y.cumsum(0), largest = std::get<0>(y.cummax(0));
      auto sorted = std::get<0>(y.sort(0, /*descending=*/true));
      auto steps = y.diff(1, 0), smooth = (y + y.roll(1, 0) + y.roll(-1, 0)) / 3;
      auto top = std::get<0>(y.topk(std::min<int64_t>(3, n), 0));
      auto middle = std::get<0>(y.median(0)), kth = std::get<0>(y.kthvalue(2, 0));
      auto scores = y.logsumexp(0) + y.softmax(0).amax(0) + y.prod(0).tanh();
      auto spread = y.var(0) + y.std(torch::IntArrayRef({0, 1})) + y.norm(2, 0) + (y.amax(0) - y.amin(0));
      auto means = std::get<0>(torch::var_mean(y, 0)).sum();
      auto loss = sums.pow(2).mean() + largest.mean() + sorted.slice(0, 0, 2).sum() +
          steps.abs().sum() / n + smooth.pow(2).sum() + top.mean() + middle.sum() +
          kth.sum() + scores.sum() + spread.sum() + means + y.flip(0).mul(y).mean() +
          y.triu().sum() + y.unfold(0, 2, 1).mean(2).pow(2).sum() +
          torch::trace(y.mm(y.t())) / n + torch::cumulative_trapezoid(y, 0).mean() +
          torch::renorm(y, 2, 0, 0.5).sum() + y.rot90().select(0, 0).sum();
      run.update(*optimizer, loss);
      run.note("order", y.argsort(int64_t{0}));
      run.note("best", y.argmax(0));
      run.note("best of all", y.argmax());
      run.note("counts", torch::count_nonzero(y > 0, std::optional<int64_t>(0)));
    }
  }
  run.finish(net);
}

// Lists of rows: taken apart, sorted out by values, put together again.
ZOO_MODEL(lists_of_rows) {
  nn::Linear large(6, 4), small(6, 4);
  auto optimizer = run.optimizer<optim::SGD>(parameters(large, small), 0.1);
  run.prepare(large, small, *optimizer);
  auto loader = run.loader(samples(), 5);
  for (int epoch = 0; epoch < 2; ++epoch) {
    for (auto& batch : *loader) {
      auto step = run.accumulate(large, small);
      std::vector<Tensor> scores, targets;
      std::vector<int64_t> lengths;
      int64_t i = 0;
      for (const auto& row : batch.data.unbind(0)) {
        const bool is_large = row.norm().item<double>() > 2.2;
        scores.push_back(is_large ? large(row) : small(row.unsqueeze(0)).squeeze(0));
        targets.push_back(batch.target[i++]);
        lengths.push_back(1 + targets.back().item<int64_t>());
      }
      auto loss = F::cross_entropy(torch::stack(scores), torch::stack(targets));
      // Each row is cut off where its class says, and all are filled up again.
      std::vector<Tensor> pieces;
      for (size_t r = 0; r < scores.size(); ++r) {
        pieces.push_back(scores[r].slice(0, 0, lengths[r]));
      }
      auto padded = nn::utils::rnn::pad_sequence(pieces, /*batch_first=*/true, -1);
      auto flat = torch::cat(pieces);
      auto again = flat.split_with_sizes(lengths);
      auto sums = torch::zeros({static_cast<int64_t>(again.size())});
      for (size_t r = 0; r < again.size(); ++r) {
        sums[static_cast<int64_t>(r)] = again[r].sum();
      }
      // The two halves of the batch, and thirds.
      auto halves = batch.data.chunk(2, 0);
      auto thirds = batch.data.tensor_split(3, 0);
      loss = loss + padded.pow(2).mean() + sums.var() +
          large(halves.back()).abs().mean() + small(thirds[1]).abs().mean();
      run.update(*optimizer, loss);
      run.note("padded", padded);
    }
  }
  run.finish(large, small);
}

// A table of all that was seen, which grows and is looked into.
ZOO_MODEL(growing_memory) {
  nn::Linear net(6, 4);
  auto optimizer = run.optimizer<optim::SGD>(net->parameters(), 0.1);
  run.prepare(net, *optimizer);
  auto loader = run.loader(samples(), 5);
  std::vector<Tensor> keys, values;
  for (int epoch = 0; epoch < 2; ++epoch) {
    for (auto& batch : *loader) {
      auto step = run.accumulate(net);
      auto code = net(batch.data);
      auto loss = F::cross_entropy(code, batch.target);
      if (!keys.empty()) {
        auto all = torch::cat(keys), classes = torch::cat(values);
        auto near = std::get<1>(torch::cdist(code, all).topk(2, 1, false));
        auto said = classes.index({near});
        auto agrees = (said == batch.target.unsqueeze(1)).to(torch::kDouble).mean(1);
        loss = loss + ((1 - agrees) * (code - all.index({near.select(1, 0)})).pow(2).sum(1)).mean();
        run.note("said", said);
        auto mode = std::get<0>(torch::mode(said, 1));
        run.note("right", mode.eq(batch.target).sum());
      }
      run.update(*optimizer, loss);
      keys.push_back(code.detach());
      values.push_back(batch.target);
      if (keys.size() > 3) {
        keys.erase(keys.begin());
        values.erase(values.begin());
      }
    }
    auto all = torch::cat(keys, 0);
    run.note("mean of all", all.mean(0));
    run.note("last", all.index({-1}));
  }
  run.finish(net);
}

// The batch in other shapes: last, in the middle, folded into others.
ZOO_MODEL(other_shapes) {
  nn::Linear net(6, 4);
  auto table = torch::randn({4, 3}).requires_grad_();
  auto all = net->parameters();
  all.push_back(table);
  auto optimizer = run.optimizer<optim::SGD>(all, 0.05);
  run.prepare(net, *optimizer);
  auto loader = run.loader(samples(), 5);
  for (int epoch = 0; epoch < 1; ++epoch) {
    for (auto& batch : *loader) {
      auto step = run.accumulate(net);
      const auto sizes = batch.data.sizes().vec();
      const auto n = sizes[0];
      auto y = net(batch.data);
      auto last = y.t().contiguous();
      auto wide = last.view({2, 2, n}).permute({2, 0, 1}).reshape({n * 2, 2});
      auto more = y.repeat({2, 1}) - y.repeat_interleave(2, 0);
      auto folded = y.reshape({-1}).unfold(0, 4, 2).sum(1);
      auto outer = torch::einsum("bi,bj,jk->bik", {y, y, table}).flatten(0, 1);
      auto pairs = torch::cartesian_prod({y.select(1, 0), torch::arange(2.)});
      auto both = torch::kron(y.slice(1, 0, 2), torch::ones({1, 2})) + torch::tile(y.slice(1, 2, 4), {1, 2});
      auto moved = y.unsqueeze(0).expand({3, n, 4}).movedim(1, 2).sum(torch::IntArrayRef({0, 1}));
      auto tensordot = torch::tensordot(y, y, {0}, {0});
      auto converted = y.to(torch::kFloat).to(torch::kDouble).detach() + y - y.detach();
      auto counted = torch::repeat_interleave(y, batch.target + 1, 0);
      auto columns = torch::column_stack({y, batch.target.to(y.dtype())});
      auto square = torch::block_diag({y.slice(0, 0, 2), y.slice(0, 2, 3)});
      auto loss = wide.pow(2).mean() + more.pow(2).mean() + folded.std() + outer.abs().mean() +
          pairs.prod(1).sum() + both.norm() + moved.pow(2).mean() + tensordot.diagonal().sum() +
          converted.sum() / n + counted.mean() + columns.var() + square.sum() +
          torch::combinations(y.select(1, 1), 2).prod(1).mean() +
          (y.as_strided({n, 2}, {4, 2}) * y.select(1, 3).view({-1, 1})).sum();
      run.update(*optimizer, loss);
    }
  }
  run.note("table", table);
  run.finish(net);
}

// Rows by numbers: gathered, scattered, put, taken.
ZOO_MODEL(rows_by_numbers) {
  nn::Linear net(6, 4);
  auto optimizer = run.optimizer<optim::SGD>(net->parameters(), 0.05);
  run.prepare(net, *optimizer);
  auto loader = run.loader(samples(), 5);
  auto counts = torch::zeros({4}, torch::kLong);
  for (int epoch = 0; epoch < 1; ++epoch) {
    for (auto& batch : *loader) {
      auto step = run.accumulate(net);
      auto y = net(batch.data);
      const auto n = y.size(0);
      auto rows = torch::arange(n);
      auto own = y.index({rows, batch.target});
      auto next = y.index({(rows + 1) % n, batch.target});
      auto evens = y.index({Slice(0, None, 2), Slice(1, None)});
      auto mask = y.select(1, 0) > 0;
      auto some = y.index({mask}), others = y.masked_select(~mask.unsqueeze(1));
      auto placed = torch::zeros({n + 2, 4}).index_copy(0, rows + 1, y);
      auto added = torch::zeros({4, 4}).index_add(0, batch.target, y);
      auto means = torch::zeros({4, 4}).index_reduce(
          0, batch.target, y, "mean", /*include_self=*/false);
      auto taken = y.take(torch::tensor({0, 1, 3})), along = torch::take_along_dim(y, y.argsort(int64_t{1}), 1);
      auto scattered = torch::zeros({n, 4}).scatter(1, batch.target.unsqueeze(1), own.unsqueeze(1));
      auto filled = y.masked_scatter(mask.unsqueeze(1), y.detach().flip(0) * 0.5);
      auto put = y.clone().put_(torch::tensor({1, 2}), torch::tensor({0.5, 0.25}));
      auto chosen = torch::where(mask.unsqueeze(1), y, y.index_select(0, rows.flip(0)));
      auto loss = F::multi_margin_loss(y, batch.target) + (own - next).pow(2).mean() +
          evens.abs().sum() / n + some.sum() / n + others.pow(2).sum() / n +
          placed.var() + added.pow(2).mean() + means.abs().mean() + taken.sum() +
          (along * torch::arange(4.)).mean() + scattered.norm() + filled.pow(2).mean() +
          put.mean() + chosen.pow(2).mean() + y.index_fill(0, torch::tensor({0}), 0).sum() / n;
      run.update(*optimizer, loss);
      counts.index_put_({batch.target}, torch::ones({n}, torch::kLong), /*accumulate=*/true);
      counts += torch::searchsorted(torch::arange(4.), y.select(1, 0).contiguous()).bincount({}, 5).slice(0, 0, 4);
      auto [values, inverse, repeated] = torch::_unique2(batch.target, true, true, true);
      run.note("values", values);
      run.note("inverse", inverse);
      run.note("repeated", repeated);
      run.note("equal rows", static_cast<double>(torch::equal(batch.target, values.index({inverse}))));
      run.note("isin", torch::isin(batch.target, torch::tensor({1, 3})));
    }
  }
  run.note("counts", counts);
  run.finish(net);
}

// Boxes: which belong together, which are left out because another lies there.
ZOO_MODEL(boxes) {
  nn::Linear places(6, 12), scores(6, 3);
  auto optimizer = run.optimizer<optim::Adam>(parameters(places, scores), optim::AdamOptions(1e-2));
  run.prepare(places, scores, *optimizer);
  auto corner = torch::rand({17, 2});
  auto truth = torch::cat({corner, corner + 0.3 + 0.3 * torch::rand({17, 2})}, 1);
  auto loader = run.loader(Rows(torch::cat({truth, torch::randn({17, 2})}, 1), truth), 5);
  const auto overlap = [](const Tensor& a, const Tensor& b) {
    auto low = torch::max(a.unsqueeze(1).slice(2, 0, 2), b.unsqueeze(0).slice(2, 0, 2));
    auto high = torch::min(a.unsqueeze(1).slice(2, 2), b.unsqueeze(0).slice(2, 2));
    auto common = (high - low).clamp_min(0).prod(2);
    const auto area = [](const Tensor& t) { return (t.slice(1, 2) - t.slice(1, 0, 2)).prod(1); };
    return common / (area(a).unsqueeze(1) + area(b).unsqueeze(0) - common);
  };
  for (int epoch = 0; epoch < 1; ++epoch) {
    for (auto& batch : *loader) {
      auto step = run.accumulate(places, scores);
      const auto n = batch.data.size(0);
      auto made = places(batch.data).sigmoid().view({n, 3, 4});
      made = torch::cat({made.slice(2, 0, 2), made.slice(2, 0, 2) + made.slice(2, 2)}, 2);
      auto logits = scores(batch.data);
      auto loss = torch::zeros({});
      auto matched = torch::zeros_like(logits);
      int64_t kept_boxes = 0;
      for (int64_t i = 0; i < n; ++i) {
        auto both = overlap(made[i], batch.target[i].unsqueeze(0)).squeeze(1);
        const auto best = both.argmax().item<int64_t>();
        matched[i][best] = 1;
        loss = loss + 1 - both[best] + F::smooth_l1_loss(made[i][best], batch.target[i]);
        // The strongest first; what overlaps it is left out.
        auto order = logits[i].argsort(-1, true);
        while (order.numel() > 0) {
          const auto top = order[0];
          ++kept_boxes;
          if (order.numel() == 1) {
            break;
          }
          auto rest = order.slice(0, 1);
          auto covered = overlap(made[i].index_select(0, top.unsqueeze(0)), made[i].index_select(0, rest))[0];
          order = rest.index({covered <= 0.6});
        }
      }
      loss = loss / n + F::binary_cross_entropy_with_logits(logits, matched);
      run.update(*optimizer, loss);
      run.note("kept", static_cast<double>(kept_boxes));
    }
  }
  run.finish(places, scores);
}

// Whole tensors for algorithms in C++: paths through a table of distances, and
// weights for what they match.
ZOO_MODEL(algorithms_in_memory) {
  nn::Linear net(6, 4);
  auto optimizer = run.optimizer<optim::SGD>(net->parameters(), 0.05);
  run.prepare(net, *optimizer);
  auto loader = run.loader(samples(), 5);
  for (int epoch = 0; epoch < 2; ++epoch) {
    for (auto& batch : *loader) {
      auto step = run.accumulate(net);
      auto y = net(batch.data);
      auto far = torch::cdist(y, y.roll(1, 0));
      auto whole = run.full(far.detach()).contiguous().cpu();
      auto cost = whole.accessor<double, 2>();
      const auto n = whole.size(0);
      std::vector<double> best(static_cast<size_t>(n * n));
      for (int64_t i = 0; i < n; ++i) {
        for (int64_t j = 0; j < n; ++j) {
          const auto at = [&](int64_t a, int64_t b) {
            return a < 0 || b < 0 ? 1e9 : best[static_cast<size_t>(a * n + b)];
          };
          best[static_cast<size_t>(i * n + j)] = cost[i][j] +
              (i + j == 0 ? 0 : std::min({at(i - 1, j), at(i, j - 1), at(i - 1, j - 1)}));
        }
      }
      auto table = torch::from_blob(best.data(), {n, n}, torch::kDouble).clone().to(y.device());
      std::vector<double> labels;
      for (int64_t i = 0; i < n; ++i) {
        labels.push_back(static_cast<double>(batch.target[i].item<int64_t>() % 2));
      }
      auto target = torch::tensor(labels);
      auto loss = (far * (table / table.max())).mean() +
          F::binary_cross_entropy_with_logits(y.select(1, 0), target);
      run.update(*optimizer, loss);
      run.note("path", best.back());
    }
  }
  run.finish(net);
}

// Results into tensors that are there already, and lists of tensors at once.
ZOO_MODEL(results_in_place) {
  torch::NoGradGuard no_grad;
  auto w = torch::randn({6, 4});
  auto sum = torch::zeros({4}), table = torch::zeros({4, 4});
  auto loader = run.loader(samples(), 5);
  for (auto& batch : *loader) {
    auto step = run.accumulate();
    const auto n = batch.data.size(0);
    auto y = torch::empty({n, 4}), squares = torch::empty({0});
    torch::mm_out(y, batch.data, w);
    torch::pow_out(squares, y, 2);
    auto values = torch::empty({0}), places = torch::empty({0}, torch::kLong);
    torch::max_out(values, places, y, 0);
    sum += values;
    torch::sum_out(table, y.unsqueeze(1) * y.unsqueeze(2), 0);
    y.addmm_(batch.data, w, 1, -0.5);
    y.addcmul_(squares, squares, 0.1).addcdiv_(y, squares + 1).lerp_(squares, 0.3);
    run.note("y", y);
    run.note("places", places);
    run.note("table", table);
    auto copy = torch::empty_like(w);
    copy.copy_(batch.data.t().mm(y).div(static_cast<double>(n)));
    w.add_(copy.clamp(-1, 1), 0.1);
    w.t()[0].copy_(y.mean(1).slice(0, 0, 1).expand({6}));
    auto swapped = batch.data.slice(1, 0, 2).clone();
    auto kept = swapped.select(1, 0).clone();
    swapped.select(1, 0).copy_(swapped.select(1, 1));
    swapped.select(1, 1).copy_(kept);
    run.note("swapped", swapped);
  }
  run.note("w", w);
  run.note("sum", sum);
}

} // namespace zoo::rows
