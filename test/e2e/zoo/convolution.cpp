// Convolution in one, two and three dimensions, there and back.

#include "zoo.h"

namespace zoo::convolution {

Rows images(int64_t rows, int64_t classes) {
  auto x = torch::rand({rows, 3, 8, 8});
  auto y = (x.mean({1, 2, 3}) * 1000).to(torch::kLong).remainder(classes);
  return {x, y};
}

// Dilated and causal, its weights normed by hand.
ZOO_MODEL(conv1d_causal) {
  std::vector<Tensor> directions, lengths;
  for (int i = 0; i < 3; ++i) {
    directions.push_back(torch::randn({4, i == 0 ? 2 : 4, 2}).requires_grad_());
    lengths.push_back(torch::ones({4, 1, 1}).requires_grad_());
  }
  nn::Conv1d head(nn::Conv1dOptions(4, 1, 1));
  auto all = head->parameters();
  all.insert(all.end(), directions.begin(), directions.end());
  all.insert(all.end(), lengths.begin(), lengths.end());
  auto optimizer = run.optimizer<optim::Adam>(all, optim::AdamOptions(1e-2));
  run.prepare(head, *optimizer);
  auto x = torch::randn({17, 2, 12});
  auto loader = run.loader(Rows(x, x.select(1, 0).roll(1, 1)), 5);
  for (int epoch = 0; epoch < 2; ++epoch) {
    for (auto& batch : *loader) {
      auto step = run.accumulate(head);
      auto h = batch.data;
      for (size_t i = 0; i < 3; ++i) {
        auto weight = lengths[i] * directions[i] /
            directions[i].norm(2, torch::IntArrayRef{1, 2}, true);
        const int64_t dilation = 1 << i;
        auto next = torch::conv1d(
            F::pad(h, F::PadFuncOptions({dilation, 0})), weight, {}, 1, torch::IntArrayRef{0}, dilation);
        h = h.size(1) == next.size(1) ? h + torch::leaky_relu(next, 0.1)
                                      : torch::leaky_relu(next, 0.1);
      }
      run.update(
          *optimizer,
          F::huber_loss(head(h).squeeze(1).slice(1, 2), batch.target.slice(1, 2)));
    }
  }
  for (const auto& tensor : all) {
    run.note("weight", tensor);
  }
}

struct ResidualImpl : nn::Module {
  ResidualImpl(int64_t from, int64_t to, int64_t stride)
      : first(register_module("first", nn::Conv2d(nn::Conv2dOptions(from, to, 3).stride(stride).padding(1).bias(false)))),
        first_norm(register_module("first_norm", nn::BatchNorm2d(to))),
        second(register_module("second", nn::Conv2d(nn::Conv2dOptions(to, to, 3).padding(1).bias(false)))),
        second_norm(register_module("second_norm", nn::BatchNorm2d(to))) {
    if (from != to) {
      shortcut = register_module(
          "shortcut",
          nn::Sequential(
              nn::Conv2d(nn::Conv2dOptions(from, to, 1).stride(stride).bias(false)),
              nn::BatchNorm2d(to)));
    }
  }
  Tensor forward(Tensor x) {
    auto y = first_norm(first(x)).relu_();
    y = second_norm(second(y));
    y += shortcut ? shortcut->forward(x) : x;
    return y.relu_();
  }
  nn::Conv2d first;
  nn::BatchNorm2d first_norm;
  nn::Conv2d second;
  nn::BatchNorm2d second_norm;
  nn::Sequential shortcut{nullptr};
};
TORCH_MODULE(Residual);

ZOO_MODEL(resnet) {
  nn::Sequential net(
      nn::Conv2d(nn::Conv2dOptions(3, 4, 3).padding(1).padding_mode(torch::kReflect)),
      nn::MaxPool2d(nn::MaxPool2dOptions(3).stride(2).padding(1)),
      Residual(4, 4, 1),
      Residual(4, 6, 2),
      nn::AdaptiveAvgPool2d(nn::AdaptiveAvgPool2dOptions(1)),
      nn::Flatten(),
      nn::Linear(6, 4));
  for (auto& module : net->modules(/*include_self=*/false)) {
    if (auto* layer = module->as<nn::Conv2d>()) {
      nn::init::kaiming_normal_(layer->weight, 0, torch::kFanOut, torch::kReLU);
    }
  }
  auto optimizer = run.optimizer<optim::SGD>(
      net->parameters(), optim::SGDOptions(0.05).momentum(0.9).weight_decay(1e-3));
  run.prepare(net, *optimizer);
  auto loader = run.loader(images(19, 4), 6);
  auto test = run.loader<SequentialSampler>(images(11, 4), 4);
  for (int epoch = 0; epoch < 2; ++epoch) {
    net->train();
    for (auto& batch : *loader) {
      auto step = run.accumulate(net);
      // Each picture is turned round or not, and moved by a pixel.
      auto turned = torch::rand({batch.data.size(0)}) < 0.5;
      auto x = torch::where(
          turned.view({-1, 1, 1, 1}), batch.data.flip(3), batch.data);
      auto padded = F::pad(x, F::PadFuncOptions({1, 1, 1, 1}));
      const auto top = torch::randint(3, {1}).item<int64_t>();
      const auto left = torch::randint(3, {1}).item<int64_t>();
      x = padded.narrow(2, top, 8).narrow(3, left, 8);
      run.update(
          *optimizer, F::cross_entropy(net->forward(x), batch.target));
    }
    net->eval();
    torch::NoGradGuard no_grad;
    double loss = 0;
    int64_t correct = 0, seen = 0;
    for (auto& batch : *test) {
      auto scores = net->forward(batch.data);
      loss += F::cross_entropy(
                  scores, batch.target,
                  F::CrossEntropyFuncOptions().reduction(torch::kSum))
                  .item<double>();
      correct += scores.argmax(1).eq(batch.target).sum().item<int64_t>();
      seen += batch.target.numel();
    }
    run.note("test loss", loss / static_cast<double>(seen));
    run.note("correct", static_cast<double>(correct));
  }
  run.finish(net);
}

ZOO_MODEL(conv3d_clips) {
  nn::Sequential net(
      nn::Conv3d(nn::Conv3dOptions(2, 4, {2, 3, 3}).padding({0, 1, 1}).bias(false)),
      nn::BatchNorm3d(4),
      nn::ELU(),
      nn::MaxPool3d(nn::MaxPool3dOptions({1, 2, 2})),
      nn::Dropout3d(0.2),
      nn::Conv3d(nn::Conv3dOptions(4, 3, 2)),
      nn::Flatten(),
      nn::Linear(3 * 2 * 2 * 2, 2));
  auto optimizer = run.optimizer<optim::Adam>(
      net->parameters(), optim::AdamOptions(1e-2).amsgrad(true));
  run.prepare(net, *optimizer);
  auto loader = run.loader(
      Rows(torch::randn({13, 2, 4, 6, 6}), torch::arange(13) % 2), 4);
  for (int epoch = 0; epoch < 2; ++epoch) {
    for (auto& batch : *loader) {
      auto step = run.accumulate(net);
      auto scores = net->forward(batch.data);
      auto target = F::one_hot(batch.target, 2).to(torch::kDouble);
      run.update(
          *optimizer, F::binary_cross_entropy_with_logits(scores, target));
    }
  }
  net->eval();
  run.note("eval", net->forward(torch::ones({3, 2, 4, 6, 6})));
  run.finish(net);
}

// Down by strides and up by transposed convolutions, in all dimensions.
ZOO_MODEL(transposed_convolutions) {
  nn::Conv1d down1(nn::Conv1dOptions(2, 3, 3).stride(2).padding(1));
  nn::ConvTranspose1d up1(
      nn::ConvTranspose1dOptions(3, 2, 3).stride(2).padding(1).output_padding(1));
  nn::Conv2d down2(nn::Conv2dOptions(1, 4, 2).stride(2));
  nn::ConvTranspose2d up2(
      nn::ConvTranspose2dOptions(4, 2, 2).stride(2).groups(2).bias(false));
  nn::ConvTranspose3d up3(nn::ConvTranspose3dOptions(1, 1, 2).dilation(2));
  auto optimizer = run.optimizer<optim::Adam>(
      parameters(down1, up1, down2, up2, up3), optim::AdamOptions(1e-2));
  run.prepare(down1, up1, down2, up2, up3, *optimizer);
  auto x = torch::randn({17, 2, 8});
  auto loader = run.loader(Rows(x, x.flip(2)), 5);
  for (int epoch = 0; epoch < 2; ++epoch) {
    for (auto& batch : *loader) {
      auto step = run.accumulate(down1, up1, down2, up2, up3);
      const auto n = batch.data.size(0);
      auto line = up1(torch::tanh(down1(batch.data)));
      auto picture = batch.data.view({n, 1, 4, 4});
      auto copy = up2(torch::celu(down2(picture)));
      auto cube = up3(batch.data.view({n, 1, 2, 2, 4}));
      auto loss = F::mse_loss(line, batch.target) +
          F::l1_loss(copy.sum(1, true), picture) +
          cube.pow(2).mean({1, 2, 3, 4}).max();
      run.update(*optimizer, loss);
    }
  }
  run.finish(down1, up1, down2, up2, up3);
}

struct UNetImpl : nn::Module {
  UNetImpl()
      : down(register_module("down", layer(3, 4))),
        middle(register_module("middle", layer(4, 6))),
        up(register_module("up", layer(10, 4))),
        out(register_module("out", nn::Conv2d(nn::Conv2dOptions(4, 1, 1)))) {}
  static nn::Sequential layer(int64_t from, int64_t to) {
    return nn::Sequential(
        nn::Conv2d(nn::Conv2dOptions(from, to, 3).padding(1).bias(false)),
        nn::GroupNorm(nn::GroupNormOptions(2, to)),
        nn::Functional(torch::silu));
  }
  Tensor forward(const Tensor& x) {
    auto high = down->forward(x);
    auto low = middle->forward(torch::max_pool2d(high, 2));
    auto wide = F::interpolate(
        low,
        F::InterpolateFuncOptions()
            .size(std::vector<int64_t>{high.size(2), high.size(3)})
            .mode(torch::kBilinear)
            .align_corners(false));
    return out(up->forward(torch::cat({high, wide}, 1)));
  }
  nn::Sequential down, middle, up;
  nn::Conv2d out;
};
TORCH_MODULE(UNet);

// Masks of pictures: cross entropy and what the areas have in common.
ZOO_MODEL(unet) {
  UNet net;
  auto optimizer =
      run.optimizer<optim::AdamW>(net->parameters(), optim::AdamWOptions(1e-2));
  run.prepare(net, *optimizer);
  auto x = torch::rand({17, 3, 8, 8});
  auto loader = run.loader(Rows(x, (x.mean(1, true) > 0.5).to(torch::kDouble)), 5);
  for (int epoch = 0; epoch < 2; ++epoch) {
    double common = 0, either = 0;
    for (auto& batch : *loader) {
      auto step = run.accumulate(net);
      auto scores = net(batch.data);
      auto chance = scores.sigmoid();
      auto weight = torch::tensor({2.});
      auto loss = F::binary_cross_entropy_with_logits(
                      scores, batch.target,
                      F::BinaryCrossEntropyWithLogitsFuncOptions().pos_weight(weight)) +
          1 - (2 * (chance * batch.target).sum() + 1) /
              (chance.sum() + batch.target.sum() + 1);
      run.update(*optimizer, loss);
      auto mask = scores > 0;
      auto truth = batch.target.to(torch::kBool);
      common += mask.logical_and(truth).sum().item<double>();
      either += (mask | truth).sum().item<double>();
    }
    run.note("common", common / either);
  }
  run.finish(net);
}

// Channels by themselves, gates for channels, pixels out of channels.
ZOO_MODEL(depthwise_and_shuffle) {
  nn::Conv2d widen(nn::Conv2dOptions(3, 8, 1)), deep(nn::Conv2dOptions(8, 8, 3).groups(8).padding(1)),
      narrow(nn::Conv2dOptions(8, 12, 1));
  nn::Linear squeeze(8, 2), excite(2, 8);
  auto all = parameters(widen, deep, narrow, squeeze, excite);
  auto optimizer = run.optimizer<optim::RMSprop>(all, optim::RMSpropOptions(1e-3));
  run.prepare(widen, deep, narrow, squeeze, excite, *optimizer);
  auto x = torch::rand({17, 3, 8, 8});
  auto loader = run.loader(
      Rows(F::avg_pool2d(x, F::AvgPool2dFuncOptions(2)), x), 5);
  for (int epoch = 0; epoch < 2; ++epoch) {
    for (auto& batch : *loader) {
      auto step = run.accumulate(widen, deep, narrow, squeeze, excite);
      auto h = torch::hardtanh(deep(F::relu6(widen(batch.data))), -1, 3);
      auto gates = F::adaptive_avg_pool2d(
                       h, F::AdaptiveAvgPool2dFuncOptions({1, 1}))
                       .flatten(1);
      gates = torch::hardsigmoid(excite(torch::relu(squeeze(gates))));
      h = h * gates.unsqueeze(-1).unsqueeze(-1);
      auto large = torch::pixel_shuffle(narrow(h), 2) +
          F::interpolate(
              batch.data,
              F::InterpolateFuncOptions()
                  .scale_factor(std::vector<double>{2., 2.})
                  .mode(torch::kNearest));
      auto difference = large - batch.target;
      // Of each picture, the worst channel counts twice.
      auto channels = difference.pow(2).mean({2, 3});
      auto loss = channels.mean() + std::get<0>(channels.max(1)).mean() +
          0.1 * (large.diff(1, 3).abs().mean() + large.diff(1, 2).abs().mean());
      run.update(*optimizer, loss);
      run.note("noise", -10 * difference.pow(2).mean().log10());
    }
  }
  run.finish(widen, deep, narrow, squeeze, excite);
}

// Convolution as a product of matrices, and pictures that are moved as a small
// network says.
ZOO_MODEL(unfold_and_grid) {
  auto kernel = torch::randn({2 * 9, 4}).mul(0.2).requires_grad_();
  nn::Linear moves(2 * 6 * 6, 6), head(4 * 9, 3);
  {
    torch::NoGradGuard no_grad;
    moves->weight.zero_();
    moves->bias.copy_(torch::tensor({1., 0., 0., 0., 1., 0.}));
  }
  auto all = parameters(moves, head);
  all.push_back(kernel);
  auto optimizer = run.optimizer<optim::SGD>(all, 0.05);
  run.prepare(moves, head, *optimizer);
  auto loader = run.loader(
      Rows(torch::rand({17, 2, 6, 6}), torch::arange(17) * 7 % 3), 5);
  for (int epoch = 0; epoch < 2; ++epoch) {
    for (auto& batch : *loader) {
      auto step = run.accumulate(moves, head);
      const auto n = batch.data.size(0);
      auto grid = F::affine_grid(
          moves(batch.data.flatten(1)).view({-1, 2, 3}), batch.data.sizes(),
          /*align_corners=*/false);
      auto moved = F::grid_sample(
          batch.data, grid,
          F::GridSampleFuncOptions()
              .mode(torch::kBilinear)
              .padding_mode(torch::kBorder)
              .align_corners(false));
      auto columns = F::unfold(
          moved, F::UnfoldFuncOptions({3, 3}).stride(2).padding(1));
      auto made = columns.transpose(1, 2).matmul(kernel).transpose(1, 2);
      auto back = F::fold(
          made.repeat({1, 4, 1}),
          F::FoldFuncOptions({6, 6}, {2, 2}).stride(2));
      auto scores = head(made.reshape({n, -1}));
      run.update(
          *optimizer,
          F::cross_entropy(scores, batch.target) + 0.01 * back.pow(2).mean());
    }
  }
  run.note("kernel", kernel);
  run.finish(moves, head);
}

} // namespace zoo::convolution
