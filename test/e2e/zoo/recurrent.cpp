// Recurrent networks: states that go on, cells in a loop, packed sequences,
// teacher forcing.

#include "zoo.h"

#include <cmath>

namespace zoo::recurrent {

/// 17 sequences of 6 steps of 3 numbers, and a number for each.
Rows sequences() {
  const auto x = torch::randn({17, 6, 3});
  return {x, x.select(2, 0).cumsum(1).select(1, -1).unsqueeze(1).sin()};
}

/// 19 texts of 7 out of 12 words, in which a word depends on the one before.
Rows texts() {
  auto words = torch::randint(12, {19, 7}, torch::kLong);
  for (int64_t t = 1; t < 7; ++t) {
    words.select(1, t).copy_((words.select(1, t - 1) * 5 + t) % 12);
  }
  return {words.slice(1, 0, 6), words.slice(1, 1, 7)};
}

// The state goes on from batch to batch; time is the first dimension.
ZOO_MODEL(rnn_carried_state) {
  nn::RNN rnn(nn::RNNOptions(3, 6).num_layers(2).nonlinearity(torch::kReLU));
  nn::Linear head(6, 1);
  auto optimizer = run.optimizer<optim::SGD>(
      parameters(rnn, head), optim::SGDOptions(0.05).momentum(0.9));
  run.prepare(rnn, head, *optimizer);
  auto loader = run.loader<SequentialSampler>(sequences(), 5);
  Tensor state;
  for (int epoch = 0; epoch < 2; ++epoch) {
    for (auto& batch : *loader) {
      auto step = run.accumulate(rnn, head);
      const auto x = batch.data.transpose(0, 1).contiguous();
      if (!state.defined() || state.size(1) != x.size(1)) {
        state = torch::zeros({2, x.size(1), 6});
      }
      Tensor output;
      std::tie(output, state) = rnn->forward(x, state.detach());
      run.update(
          *optimizer, F::mse_loss(head->forward(output[-1]), batch.target));
    }
    run.note("state", state);
  }
  run.finish(rnn, head);
}

ZOO_MODEL(gru_both_ways) {
  nn::GRU gru(nn::GRUOptions(3, 5)
                  .num_layers(2)
                  .bidirectional(true)
                  .batch_first(true)
                  .dropout(0.25));
  nn::Linear head(10, 1);
  auto optimizer =
      run.optimizer<optim::Adam>(parameters(gru, head), optim::AdamOptions(1e-2));
  run.prepare(gru, head, *optimizer);
  auto loader = run.loader(sequences(), 6);
  for (int epoch = 0; epoch < 2; ++epoch) {
    for (auto& batch : *loader) {
      auto step = run.accumulate(gru, head);
      auto [output, last] = gru->forward(batch.data);
      // The last step there and the first one back.
      auto ends = torch::cat({last[-2], last[-1]}, /*dim=*/1);
      auto loss = F::smooth_l1_loss(head->forward(ends), batch.target) +
          1e-3 * output.pow(2).mean();
      run.update(*optimizer, loss);
    }
  }
  run.finish(gru, head);
}

// A language model; afterwards it goes on with a text by itself.
ZOO_MODEL(lstm_language) {
  nn::Embedding words(12, 8);
  nn::LSTM lstm(
      nn::LSTMOptions(8, 8).num_layers(2).batch_first(true).dropout(0.2));
  nn::Dropout drop(0.3);
  auto bias = torch::zeros({12}).requires_grad_();
  auto all = parameters(words, lstm);
  all.push_back(bias);
  auto optimizer = run.optimizer<optim::Adam>(all, optim::AdamOptions(1e-2));
  run.prepare(words, lstm, *optimizer);
  auto loader = run.loader(texts(), 5);
  for (int epoch = 0; epoch < 2; ++epoch) {
    double sum = 0;
    int64_t tokens = 0;
    for (auto& batch : *loader) {
      auto step = run.accumulate(words, lstm);
      const int64_t rows = batch.data.size(0);
      auto state = std::make_tuple(
          torch::zeros({2, rows, 8}, batch.data.options().dtype(torch::kDouble)),
          torch::zeros({2, rows, 8}));
      optimizer->zero_grad();
      // Truncated backpropagation: two pieces of a text.
      for (const auto& part : {Slice(0, 3), Slice(3, 6)}) {
        auto input = drop(words(batch.data.index({Slice(), part})));
        Tensor output;
        std::tie(output, state) = lstm->forward(input, state);
        // The same table once more.
        auto scores = drop(output).matmul(words->weight.t()) + bias;
        auto target = batch.target.index({Slice(), part});
        auto loss = F::cross_entropy(
            scores.reshape({-1, 12}), target.reshape({-1}));
        run.backward(loss);
        run.note("loss", loss);
        sum += loss.item<double>() * static_cast<double>(target.numel());
        tokens += target.numel();
        state = std::make_tuple(
            std::get<0>(state).detach(), std::get<1>(state).detach());
      }
      run.note("norm", run.clip_grad_norm_(all, 0.5));
      optimizer->step();
    }
    run.note("perplexity", std::exp(sum / static_cast<double>(tokens)));
  }
  lstm->eval();
  torch::NoGradGuard no_grad;
  auto text = torch::tensor({{3}});
  for (int i = 0; i < 6; ++i) {
    auto output = std::get<0>(lstm->forward(words(text))).select(1, -1);
    auto chances = (output.matmul(words->weight.t()) + bias).softmax(1);
    text = torch::cat({text, torch::multinomial(chances, 1)}, 1);
  }
  run.note("text", text);
  run.finish(words, lstm);
}

// Sequences of unequal length: packed, and padded again.
ZOO_MODEL(packed_sequences) {
  nn::LSTM lstm(nn::LSTMOptions(3, 6).batch_first(true).bidirectional(true));
  nn::Linear head(12, 3);
  auto optimizer = run.optimizer<optim::RMSprop>(
      parameters(lstm, head), optim::RMSpropOptions(1e-2));
  run.prepare(lstm, head, *optimizer);
  auto lengths = torch::arange(17) * 5 % 6 + 1;
  auto data = Rows(
      torch::randn({17, 6, 3}),
      torch::stack({lengths, torch::arange(17) % 3}, 1));
  auto loader = run.loader(data, 5);
  for (int epoch = 0; epoch < 2; ++epoch) {
    int64_t correct = 0;
    for (auto& batch : *loader) {
      auto step = run.accumulate(lstm, head);
      auto length = batch.target.select(1, 0);
      auto packed = nn::utils::rnn::pack_padded_sequence(
          batch.data, length.cpu(), /*batch_first=*/true, /*enforce_sorted=*/false);
      auto [output, state] = lstm->forward_with_packed_input(packed);
      auto [padded, sizes] =
          nn::utils::rnn::pad_packed_sequence(output, /*batch_first=*/true);
      auto mask = torch::arange(padded.size(1)).unsqueeze(0) <
          length.unsqueeze(1);
      auto mean = (padded * mask.unsqueeze(2)).sum(1) /
          sizes.to(padded.device(), torch::kDouble).unsqueeze(1);
      auto scores = head->forward(
          mean + torch::cat({std::get<0>(state)[0], std::get<0>(state)[1]}, 1));
      auto classes = batch.target.select(1, 1);
      run.update(*optimizer, F::cross_entropy(scores, classes));
      correct += scores.argmax(1).eq(classes).sum().item<int64_t>();
    }
    run.note("correct", static_cast<double>(correct));
  }
  run.finish(lstm, head);
}

// Cells in a loop over time; sequences that have ended keep their state.
ZOO_MODEL(cells_in_a_loop) {
  nn::LSTMCell lower(3, 6);
  nn::GRUCell upper(6, 6);
  nn::Linear head(6, 1);
  auto optimizer = run.optimizer<optim::Adagrad>(
      parameters(lower, upper, head), optim::AdagradOptions(5e-2));
  run.prepare(lower, upper, head, *optimizer);
  auto loader = run.loader(sequences(), 7);
  for (int epoch = 0; epoch < 2; ++epoch) {
    for (auto& batch : *loader) {
      auto step = run.accumulate(lower, upper, head);
      auto h = torch::zeros({batch.data.size(0), 6});
      auto c = torch::zeros_like(h);
      auto g = batch.data.new_zeros({batch.data.size(0), 6});
      const auto ends = batch.data.select(2, 1).abs().mul(3).ceil().sum(1);
      std::vector<Tensor> outputs;
      for (int64_t t = 0; t < batch.data.size(1); ++t) {
        auto [next_h, next_c] =
            lower->forward(batch.data.select(1, t), std::make_tuple(h, c));
        const auto goes_on = (ends > 2 * t).unsqueeze(1);
        h = torch::where(goes_on, next_h, h);
        c = torch::where(goes_on, next_c, c);
        g = upper->forward(h, g);
        outputs.push_back(head->forward(g));
      }
      auto all = torch::stack(outputs, /*dim=*/1).squeeze(2);
      auto weights = torch::linspace(0.1, 1, all.size(1));
      run.update(
          *optimizer, ((all - batch.target).pow(2) * weights).sum(1).mean());
    }
  }
  run.finish(lower, upper, head);
}

// An encoder, and a decoder that looks at what it says or at what it should say.
ZOO_MODEL(teacher_forcing) {
  nn::Embedding words(12, 6);
  nn::GRU encoder(nn::GRUOptions(6, 6).batch_first(true));
  nn::GRUCell decoder(12, 6);
  nn::Linear head(12, 12);
  const auto all = parameters(words, encoder, decoder, head);
  auto optimizer = run.optimizer<optim::Adam>(all, optim::AdamOptions(2e-2));
  run.prepare(words, encoder, decoder, head, *optimizer);
  auto loader = run.loader(texts(), 5);
  const auto forward = [&](const Tensor& source, const Tensor& target, bool forced) {
    auto [memory, last] = encoder->forward(words(source));
    auto state = last[0];
    auto input = torch::full({source.size(0)}, 1, torch::kLong);
    std::vector<Tensor> scores;
    for (int64_t t = 0; t < target.size(1); ++t) {
      auto looks = torch::bmm(memory, state.unsqueeze(2)).squeeze(2).softmax(1);
      auto context = torch::bmm(looks.unsqueeze(1), memory).squeeze(1);
      state = decoder->forward(torch::cat({words(input), context}, 1), state);
      scores.push_back(head->forward(torch::cat({state, context}, 1)));
      input = forced && torch::rand({1}).item<double>() < 0.5
          ? target.select(1, t)
          : scores.back().argmax(1);
    }
    return torch::stack(scores, 1);
  };
  for (int epoch = 0; epoch < 1; ++epoch) {
    for (auto& batch : *loader) {
      auto step = run.accumulate(words, encoder, decoder, head);
      auto scores = forward(batch.data, batch.target, true);
      run.update(
          *optimizer, F::cross_entropy(scores.transpose(1, 2), batch.target));
    }
  }
  torch::NoGradGuard no_grad;
  auto test = run.loader<SequentialSampler>(texts(), 8);
  for (auto& batch : *test) {
    auto guess = forward(batch.data, batch.target, false).argmax(2);
    run.note("words", guess);
    run.note("texts right", guess.eq(batch.target).all(1).sum());
  }
  run.finish(words, encoder, decoder, head);
}

// A memory that is written and read: a Turing machine with one head.
ZOO_MODEL(written_memory) {
  nn::LSTMCell controller(3 + 4, 8);
  nn::Linear keys(8, 4), values(8, 4), erase(8, 4), head(12, 1);
  const auto all = parameters(controller, keys, values, erase, head);
  auto optimizer = run.optimizer<optim::RMSprop>(
      all, optim::RMSpropOptions(5e-3).momentum(0.5).centered(true));
  run.prepare(controller, keys, values, erase, head, *optimizer);
  auto loader = run.loader(sequences(), 5);
  for (int epoch = 0; epoch < 1; ++epoch) {
    for (auto& batch : *loader) {
      auto step = run.accumulate(controller);
      const auto n = batch.data.size(0);
      auto memory = torch::full({n, 5, 4}, 0.1);
      memory += torch::arange(5.).unsqueeze(1) / 10;
      auto read = torch::zeros({n, 4});
      auto state = std::make_tuple(torch::zeros({n, 8}), torch::zeros({n, 8}));
      for (const auto& x : batch.data.unbind(1)) {
        state = controller->forward(torch::cat({x, read}, 1), state);
        const auto& h = std::get<0>(state);
        auto where = F::cosine_similarity(
                         memory, keys(h).unsqueeze(1),
                         F::CosineSimilarityFuncOptions().dim(2))
                         .mul(3)
                         .softmax(1);
        memory = memory * (1 - torch::einsum("bi,bj->bij", {where, erase(h).sigmoid()})) +
            torch::einsum("bi,bj->bij", {where, values(h)});
        read = torch::einsum("bi,bij->bj", {where, memory});
      }
      auto guess = head(torch::cat({std::get<0>(state), read}, 1));
      optimizer->zero_grad();
      auto loss = F::mse_loss(guess, batch.target);
      run.backward(loss);
      nn::utils::clip_grad_value_(all, 0.1);
      optimizer->step();
      run.note("loss", loss);
    }
  }
  run.finish(controller, keys, values, erase, head);
}

} // namespace zoo::recurrent
