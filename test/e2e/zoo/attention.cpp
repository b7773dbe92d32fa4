// Attention: masks of padding and of the future, encoders and decoders, patches,
// attention between the samples of a batch.

#include "zoo.h"

#include <cmath>

namespace zoo::attention {

/// 17 texts of 6 words, 0 for what is behind the end; of each the next word.
Rows padded_texts() {
  auto words = torch::randint(1, 10, {17, 7}, torch::kLong);
  words.slice(1, 1).copy_((words.slice(1, 0, 6) * 3 + 1).remainder(9) + 1);
  const auto length = torch::arange(17) % 5 + 2;
  words.masked_fill_(torch::arange(7).unsqueeze(0) > length.unsqueeze(1), 0);
  return {words.slice(1, 0, 6), words.slice(1, 1, 7)};
}

Tensor positions(int64_t length, int64_t width) {
  auto angle = torch::arange(static_cast<double>(length)).unsqueeze(1) /
      torch::pow(100., torch::arange(0., static_cast<double>(width), 2.) /
                     static_cast<double>(width));
  auto table = torch::zeros({length, width});
  table.index_put_({Slice(), Slice(0, None, 2)}, angle.sin());
  table.index_put_({Slice(), Slice(1, None, 2)}, angle.cos());
  return table;
}

// Time is the first dimension, as in torch's modules.
ZOO_MODEL(transformer_encoder) {
  nn::Embedding words(nn::EmbeddingOptions(10, 8).padding_idx(0));
  nn::TransformerEncoder encoder(nn::TransformerEncoderOptions(
      nn::TransformerEncoderLayerOptions(8, 2).dim_feedforward(16).dropout(0.1),
      2));
  nn::Linear head(8, 10);
  auto optimizer = run.optimizer<optim::AdamW>(
      parameters(words, encoder, head), optim::AdamWOptions(5e-3));
  run.prepare(words, encoder, head, *optimizer);
  auto loader = run.loader(padded_texts(), 5);
  const auto table = positions(6, 8).unsqueeze(1);
  for (int epoch = 0; epoch < 1; ++epoch) {
    for (auto& batch : *loader) {
      auto step = run.accumulate(words, encoder, head);
      auto padding = batch.data.eq(0);
      auto future =
          torch::triu(torch::full({6, 6}, -INFINITY), /*diagonal=*/1);
      auto x = words(batch.data).transpose(0, 1) * std::sqrt(8.) + table;
      auto scores = head(encoder->forward(x, future, padding)).transpose(0, 1);
      auto loss = F::cross_entropy(
          scores.reshape({-1, 10}), batch.target.reshape({-1}),
          F::CrossEntropyFuncOptions().ignore_index(0));
      run.update(*optimizer, loss);
    }
  }
  encoder->eval();
  torch::NoGradGuard no_grad;
  auto test = run.loader<SequentialSampler>(padded_texts(), 6);
  for (auto& batch : *test) {
    auto x = words(batch.data).transpose(0, 1) * std::sqrt(8.) + table;
    run.note("codes", encoder->forward(x, {}, batch.data.eq(0)).sum(2));
  }
  run.finish(words, encoder, head);
}

ZOO_MODEL(transformer_decoder) {
  nn::Embedding words(10, 8);
  nn::Transformer transformer(nn::TransformerOptions(8, 2, 1, 2)
                                  .dim_feedforward(12)
                                  .dropout(0.2)
                                  .activation(torch::kGELU));
  nn::Linear head(8, 10);
  auto optimizer = run.optimizer<optim::SGD>(
      parameters(words, transformer, head), optim::SGDOptions(0.05).nesterov(true).momentum(0.8));
  run.prepare(words, transformer, head, *optimizer);
  auto loader = run.loader(padded_texts(), 6);
  const auto table = positions(6, 8).unsqueeze(1);
  for (int epoch = 0; epoch < 1; ++epoch) {
    for (auto& batch : *loader) {
      auto step = run.accumulate(words, transformer, head);
      auto padding = batch.data == 0;
      auto source = words(batch.data).transpose(0, 1) + table;
      // What it should say, from the second word on: the source turned round.
      auto said = torch::flip(batch.data, {1});
      auto target = words(said.slice(1, 0, 5)).transpose(0, 1) +
          table.slice(0, 0, 5);
      auto future = nn::TransformerImpl::generate_square_subsequent_mask(5)
                        .to(torch::kDouble);
      auto output = transformer->forward(
          source, target, {}, future, {}, padding, {}, padding);
      auto loss = F::nll_loss(
          head(output).log_softmax(2).permute({1, 2, 0}), said.slice(1, 1, 6));
      run.update(*optimizer, loss);
    }
  }
  run.finish(words, transformer, head);
}

// Queries of the samples to a memory that all of them share, and to themselves.
ZOO_MODEL(multihead_attention) {
  nn::MultiheadAttention to_itself(
      nn::MultiheadAttentionOptions(6, 3).dropout(0.1).add_bias_kv(true));
  nn::MultiheadAttention to_memory(
      nn::MultiheadAttentionOptions(6, 2).kdim(4).vdim(4).add_zero_attn(true));
  auto memory = torch::randn({3, 1, 4}).requires_grad_();
  auto all = parameters(to_itself, to_memory);
  all.push_back(memory);
  auto optimizer = run.optimizer<optim::Adam>(all, optim::AdamOptions(1e-2));
  run.prepare(to_itself, to_memory, *optimizer);
  auto x = torch::randn({17, 4, 6});
  auto loader = run.loader(Rows(x, x.mean({1, 2})), 5);
  for (int epoch = 0; epoch < 2; ++epoch) {
    for (auto& batch : *loader) {
      auto step = run.accumulate(to_itself, to_memory);
      const auto n = batch.data.size(0);
      auto steps = batch.data.transpose(0, 1);
      auto hidden = batch.data.select(2, 0) > 0.8; // of each sample others
      hidden.select(1, 0).fill_(false);
      auto [own, looks] = to_itself->forward(
          steps, steps, steps, hidden, /*need_weights=*/true,
          torch::eye(4, torch::kBool).logical_not());
      auto keys = memory.expand({3, n, 4});
      auto values = torch::tanh(keys + 0.1 * own.mean(0, true).slice(2, 0, 4));
      auto [found, found_looks] = to_memory->forward(own, keys, values);
      auto loss = (found.mean(torch::IntArrayRef({0, 2})) - batch.target).abs().mean() +
          0.1 * looks.pow(2).sum({1, 2}).mean() -
          0.1 * (found_looks + 1e-6).log().mean();
      run.update(*optimizer, loss);
    }
  }
  run.note("memory", memory);
  run.finish(to_itself, to_memory);
}

/// A block of a small GPT, written by hand.
struct BlockImpl : nn::Module {
  explicit BlockImpl(int64_t width)
      : before(register_module("before", nn::LayerNorm(nn::LayerNormOptions({width})))),
        after(register_module("after", nn::LayerNorm(nn::LayerNormOptions({width})))),
        qkv(register_module("qkv", nn::Linear(nn::LinearOptions(width, 3 * width).bias(false)))),
        out(register_module("out", nn::Linear(width, width))),
        up(register_module("up", nn::Linear(width, 2 * width))),
        down(register_module("down", nn::Linear(2 * width, width))),
        future(register_buffer(
            "future", torch::tril(torch::ones({16, 16})).view({1, 1, 16, 16}))) {}
  Tensor forward(Tensor x) {
    const auto n = x.size(0), length = x.size(1), width = x.size(2);
    auto parts = qkv(before(x)).chunk(3, -1);
    for (auto& part : parts) {
      part = part.view({n, length, 2, width / 2}).transpose(1, 2);
    }
    auto scores = parts[0].matmul(parts[1].transpose(-2, -1)) /
        std::sqrt(static_cast<double>(width) / 2);
    scores = scores.masked_fill(
        future.slice(2, 0, length).slice(3, 0, length) == 0, -INFINITY);
    scores = torch::dropout(scores.softmax(-1), 0.1, is_training());
    auto heads = scores.matmul(parts[2]);
    x = x + out(heads.transpose(1, 2).contiguous().view({n, length, width}));
    return x + down(torch::gelu(up(after(x))));
  }
  nn::LayerNorm before, after;
  nn::Linear qkv, out, up, down;
  Tensor future;
};
TORCH_MODULE(Block);

ZOO_MODEL(gpt_by_hand) {
  nn::Embedding words(10, 8), places(6, 8);
  nn::Sequential blocks(Block(8), Block(8));
  // Weights with and without decay.
  std::vector<Tensor> large, small;
  for (const auto& p : parameters(words, places, blocks)) {
    (p.dim() > 1 ? large : small).push_back(p);
  }
  std::vector<optim::OptimizerParamGroup> groups;
  groups.emplace_back(
      large, std::make_unique<optim::AdamWOptions>(optim::AdamWOptions(1e-2).weight_decay(0.1)));
  groups.emplace_back(
      small, std::make_unique<optim::AdamWOptions>(optim::AdamWOptions(1e-2).weight_decay(0)));
  auto optimizer = run.optimizer<optim::AdamW>(groups, optim::AdamWOptions(1e-2));
  run.prepare(words, places, blocks, *optimizer);
  auto loader = run.loader(padded_texts(), 5);
  const auto scores_of = [&](const Tensor& text) {
    auto x = words(text) + places(torch::arange(text.size(1)));
    return blocks->forward(x).matmul(words->weight.t());
  };
  for (int epoch = 0; epoch < 2; ++epoch) {
    for (auto& batch : *loader) {
      auto step = run.accumulate(words, places, blocks);
      auto scores = scores_of(batch.data);
      // The mean over the words that count.
      auto counts = batch.target.ne(0);
      auto losses = F::cross_entropy(
          scores.view({-1, 10}), batch.target.reshape({-1}),
          F::CrossEntropyFuncOptions().reduction(torch::kNone));
      auto loss = losses.masked_select(counts.view({-1})).sum() / counts.sum();
      run.update(*optimizer, loss);
    }
  }
  blocks->eval();
  torch::NoGradGuard no_grad;
  auto loader_of_starts = run.loader<SequentialSampler>(padded_texts(), 9);
  for (auto& batch : *loader_of_starts) {
    auto text = batch.data.slice(1, 0, 2);
    while (text.size(1) < 6) {
      auto scores = scores_of(text).select(1, -1);
      auto limit = std::get<0>(scores.topk(3, 1)).select(1, -1).unsqueeze(1);
      scores = scores.masked_fill(scores < limit, -INFINITY);
      text = torch::cat({text, torch::multinomial(scores.softmax(1), 1)}, 1);
    }
    run.note("texts", text);
  }
  run.finish(words, places, blocks);
}

ZOO_MODEL(vision_transformer) {
  nn::Linear patch(3 * 2 * 2, 8), head(8, 4);
  auto token = torch::zeros({1, 1, 8}).requires_grad_();
  auto place = torch::randn({1, 10, 8}).mul(0.02).requires_grad_();
  nn::Linear query(8, 8), key(8, 8), value(8, 8);
  nn::LayerNorm norm(nn::LayerNormOptions({8}));
  auto all = parameters(patch, head, query, key, value, norm);
  all.push_back(token);
  all.push_back(place);
  auto optimizer = run.optimizer<optim::Adam>(all, optim::AdamOptions(1e-2));
  run.prepare(patch, head, query, key, value, norm, *optimizer);
  auto x = torch::rand({17, 3, 6, 6});
  auto loader = run.loader(Rows(x, torch::arange(17) % 4), 5);
  for (int epoch = 0; epoch < 2; ++epoch) {
    for (auto& batch : *loader) {
      auto step = run.accumulate(patch, head);
      const auto n = batch.data.size(0);
      auto patches = batch.data.unfold(2, 2, 2)
                         .unfold(3, 2, 2)
                         .permute({0, 2, 3, 1, 4, 5})
                         .reshape({n, 9, 12});
      auto seen = torch::cat({token.expand({n, -1, -1}), patch(patches)}, 1) + place;
      seen = norm(seen);
      const auto split = [&](const Tensor& t) {
        return t.unflatten(2, {2, 4}).transpose(1, 2);
      };
      auto mixed = torch::scaled_dot_product_attention(
          split(query(seen)), split(key(seen)), split(value(seen)));
      seen = seen + mixed.transpose(1, 2).flatten(2);
      auto scores = head(seen.index({Slice(), 0}));
      run.update(
          *optimizer,
          F::cross_entropy(
              scores, batch.target,
              F::CrossEntropyFuncOptions().label_smoothing(0.1)));
    }
  }
  run.note("token", token);
  run.note("place", place);
  run.finish(patch, head, query, key, value, norm);
}

// Sums over time instead of scores; positions that turn pairs of numbers.
ZOO_MODEL(linear_attention) {
  nn::Linear query(6, 6), key(6, 6), value(6, 6), head(6, 1);
  auto optimizer = run.optimizer<optim::Adam>(
      parameters(query, key, value, head), optim::AdamOptions(1e-2));
  run.prepare(query, key, value, head, *optimizer);
  auto x = torch::randn({17, 5, 6});
  auto loader = run.loader(Rows(x, x.cumsum(1).select(2, 0).tanh()), 5);
  auto turns = torch::polar(
      torch::ones({5, 3}), torch::outer(torch::arange(5.), torch::tensor({1., 0.1, 0.01})));
  const auto turned = [&](const Tensor& t) {
    auto pairs = torch::view_as_complex(t.reshape({t.size(0), t.size(1), 3, 2}));
    return torch::view_as_real(pairs * turns).flatten(2);
  };
  for (int epoch = 0; epoch < 2; ++epoch) {
    for (auto& batch : *loader) {
      auto step = run.accumulate(query, key, value, head);
      auto q = turned(F::elu(query(batch.data)) + 1);
      auto k = turned(F::elu(key(batch.data)) + 1);
      auto sums = torch::einsum("btd,bte->btde", {k, value(batch.data)}).cumsum(1);
      auto mixed = torch::einsum("btd,btde->bte", {q, sums}) /
          (1 + (q * k.cumsum(1)).sum(2, true).abs());
      run.update(
          *optimizer, F::mse_loss(head(mixed).squeeze(-1), batch.target));
    }
  }
  run.finish(query, key, value, head);
}

// Samples look at each other, not at themselves, and at a queue of those before.
ZOO_MODEL(samples_look_at_samples) {
  nn::Linear query(4, 4), key(4, 4), value(4, 4), head(4, 3);
  auto optimizer = run.optimizer<optim::SGD>(
      parameters(query, key, value, head), optim::SGDOptions(0.1).weight_decay(1e-3));
  run.prepare(query, key, value, head, *optimizer);
  auto x = torch::randn({22, 4});
  auto loader = run.loader(Rows(x, x.slice(1, 0, 3).argmax(1)), 5);
  Tensor queue = torch::zeros({0, 4});
  for (int epoch = 0; epoch < 2; ++epoch) {
    for (auto& batch : *loader) {
      auto step = run.accumulate(query, key, value, head);
      const auto n = batch.data.size(0);
      auto all = torch::cat({batch.data, queue});
      auto scores = query(batch.data).mm(key(all).t()) / 2;
      auto itself = torch::zeros_like(scores, torch::kBool);
      itself.slice(1, 0, n).fill_diagonal_(true);
      scores = scores.masked_fill(itself, -INFINITY);
      auto seen = scores.softmax(1).mm(value(all));
      run.update(
          *optimizer, F::cross_entropy(head(batch.data + seen), batch.target));
      queue = all.slice(0, 0, std::min<int64_t>(all.size(0), 9)).detach();
    }
    run.note("queue", queue);
  }
  run.finish(query, key, value, head);
}

// Masks of all forms that the fused kernel takes: of the batch, of samples, of
// places, as numbers; a memory without a batch; fewer heads for keys.
ZOO_MODEL(fused_attention) {
  nn::Linear query(8, 8), key(8, 8), value(8, 8), head(8, 3);
  auto memory = torch::randn({1, 2, 3, 4}).requires_grad_();
  auto all = parameters(query, key, value, head);
  all.push_back(memory);
  auto optimizer = run.optimizer<optim::Adam>(all, optim::AdamOptions(1e-2));
  run.prepare(query, key, value, head, *optimizer);
  auto loader = run.loader(Rows(torch::randn({17, 5, 8}), torch::arange(17) % 3), 5);
  for (int epoch = 0; epoch < 2; ++epoch) {
    for (auto& batch : *loader) {
      auto step = run.accumulate(query, key, value, head);
      const auto n = batch.data.size(0);
      const auto split = [&](const Tensor& t) { return t.view({n, 5, 2, 4}).transpose(1, 2); };
      auto q = split(query(batch.data)), k = split(key(batch.data)), v = split(value(batch.data));
      auto length = batch.target + 2;
      auto padding = torch::arange(5).view({1, 1, 1, 5}) < length.view({n, 1, 1, 1});
      auto near = (torch::arange(5).unsqueeze(0) - torch::arange(5).unsqueeze(1)).abs().le(2);
      auto slopes = -torch::arange(5.).unsqueeze(0) * torch::tensor({0.5, 0.1}).view({2, 1, 1});
      auto mixed = torch::scaled_dot_product_attention(q, k, v, padding);
      mixed = mixed + torch::scaled_dot_product_attention(q, k, v, near);
      mixed = mixed + torch::scaled_dot_product_attention(q, k, v, slopes.expand({2, 5, 5}));
      mixed = mixed + torch::scaled_dot_product_attention(q, k, v, padding & near);
      mixed = mixed + torch::scaled_dot_product_attention(
          q, k, v, (batch.data.slice(2, 0, 5) * 0.1).unsqueeze(1));
      mixed = mixed + torch::scaled_dot_product_attention(q, k, v, {}, 0.2, /*is_causal=*/true);
      mixed = mixed + torch::scaled_dot_product_attention(
          q, memory.expand({n, 2, 3, 4}), memory.expand({n, -1, -1, -1}).tanh(), {}, 0., false, 0.3);
      mixed = mixed + torch::scaled_dot_product_attention(
          q, k.slice(1, 0, 1), v.slice(1, 0, 1), {}, 0., false, std::nullopt, /*enable_gqa=*/true);
      auto flat = torch::scaled_dot_product_attention(
          batch.data, batch.data.roll(1, 1), batch.data * 0.5);
      auto scores = head(mixed.transpose(1, 2).flatten(2).mean(1) + flat.amax(1));
      run.update(*optimizer, F::cross_entropy(scores, batch.target));
    }
  }
  run.note("memory", memory);
  run.finish(query, key, value, head);
}

} // namespace zoo::attention
