// What `module` instructions of random programs do: layers of torch::nn and
// functions that are made of several operators.

#include "random_program_layers.h"
#include "random_program_values.h"

namespace accel::distributed::test {

using at::Tensor;

namespace {

/// A batch of images, [N, C, H, W], whichever way the value's dimensions lie.
Tensor images_of(const Tensor& x, uint64_t how) {
  if (x.dim() >= 4) {
    return x.flatten(0, x.dim() - 4);
  }
  if (x.dim() == 3) {
    return how % 3 == 0 ? x.unsqueeze(0) : how % 3 == 1 ? x.unsqueeze(1) : x.unsqueeze(3);
  }
  return how % 2 == 0 ? x.reshape({1, 1, x.size(0), -1}) : x.reshape({x.size(0), -1, 1, 1});
}

/// [A, B, C]: a sequence, a batch of matrices.
Tensor three_of(const Tensor& x, uint64_t how) {
  if (x.dim() >= 3) {
    return x.flatten(0, x.dim() - 3);
  }
  if (x.dim() == 2) {
    return how % 3 == 0 ? x.unsqueeze(0) : how % 3 == 1 ? x.unsqueeze(1) : x.unsqueeze(2);
  }
  return x.reshape({1, -1, 1});
}

Tensor kernel_of(Machine& m, const std::vector<int64_t>& sizes, uint64_t which) {
  const int64_t n = c10::multiply_integers(sizes);
  return weight_of(m, n, which).slice(1, 0, 1).reshape(sizes);
}

Tensor convolved(Machine& m, const Tensor& x, const Instruction& i, bool transposed) {
  const auto images = images_of(x, i.b);
  const int64_t c = images.size(1);
  if (transposed) {
    return torch::conv_transpose2d(
        images, kernel_of(m, {c, 2, 2, 1}, i.b), {}, {1, 2});
  }
  return torch::conv2d(
      images, kernel_of(m, {2, c, 2, 2}, i.b), kernel_of(m, {2}, i.b / 2), {1, 2}, {1, 1});
}

Tensor pooled(const Tensor& x, const Instruction& i) {
  const auto images = images_of(x, i.b);
  switch (i.b / 3 % 6) {
    case 0: return torch::max_pool2d(apart(images, 0.0391), {2, 2}, {1, 2}, {1, 1});
    case 1: return torch::avg_pool2d(images, {2, 1}, {1, 1}, {1, 0});
    case 2: return torch::adaptive_avg_pool2d(images, {2, 1});
    case 3: return std::get<0>(torch::adaptive_max_pool1d(apart(three_of(x, i.b), 0.0297), 2));
    case 4: return torch::upsample_nearest2d(images, {{images.size(2) * 2, images.size(3)}});
    default:
      return torch::upsample_bilinear2d(
          images, {{images.size(2) + 1, images.size(3) * 2}}, i.b % 2 == 0);
  }
}

/// LibTorch's backward of batch norms on the CPU takes a gradient that lies otherwise
/// for one that does not.
Tensor with_usual_gradient(const Tensor& x) {
  if (x.requires_grad()) {
    x.register_hook([](const Tensor& gradient) { return gradient.contiguous(); });
  }
  return x;
}

Tensor normalised(Machine& m, const Tensor& x, const Instruction& i) {
  const auto images = images_of(apart(x, 0.0213), i.b); // of equal numbers rounding is left
  const int64_t c = images.size(1);
  const auto weight = kernel_of(m, {c}, i.b);
  if (images.numel() < 2 * images.size(0) * c) {
    return images * weight.view({c, 1, 1});
  }
  switch (i.b / 3 % 4) {
    case 0: return torch::group_norm(images, 1, weight, weight * 0.5, 1e-2);
    case 1: return torch::group_norm(images, c, weight, {}, 1e-2);
    case 2:
      return with_usual_gradient(
          torch::instance_norm(images, weight, {}, {}, {}, true, 0.1, 1e-2, false));
    default:
      return torch::layer_norm(images, {images.size(2), images.size(3)}, {}, {}, 1e-2);
  }
}

Tensor attended(Machine& m, const Tensor& x, const Instruction& i) {
  const auto queries = images_of(x, i.b);
  const auto keys = queries * 0.7 + 0.1;
  const auto values = keys.transpose(-1, -2).contiguous().transpose(-1, -2).sin();
  std::optional<Tensor> mask;
  if (i.b / 3 % 3 == 1) {
    mask = kernel_of(m, {queries.size(2), queries.size(2)}, i.b).detach();
  }
  return torch::scaled_dot_product_attention(
      queries, keys, values, mask, 0.0, /*is_causal=*/i.b / 3 % 3 == 2);
}

Tensor recurrent(Machine& m, const Tensor& x, const Instruction& i) {
  const auto sequence = three_of(x, i.b);
  const bool batch_first = i.b / 3 % 2 == 0;
  const int64_t batch = sequence.size(batch_first ? 0 : 1);
  const int64_t gates = i.b / 6 % 2 == 0 ? 3 : 4;
  const std::vector<Tensor> weights{
      kernel_of(m, {gates * 2, sequence.size(2)}, i.b), kernel_of(m, {gates * 2, 2}, i.b / 2)};
  const auto begin = torch::zeros({1, batch, 2}, sequence.options().requires_grad(false));
  if (gates == 3) {
    return std::get<0>(torch::gru(
        sequence, begin, weights, false, 1, 0.0, true, false, batch_first));
  }
  const std::vector<Tensor> state{begin, begin};
  const auto result =
      torch::lstm(sequence, state, weights, false, 1, 0.0, true, false, batch_first);
  return i.b / 12 % 2 == 0 ? std::get<0>(result) : std::get<2>(result);
}

Tensor ordered(const Tensor& x, const Instruction& i) {
  const int64_t d = dim_of(x, i.b);
  const auto distinct = apart(x, 0.0171);
  switch (i.b / 5 % 6) {
    case 0: return std::get<0>(distinct.sort(d, i.b % 2 == 0));
    case 1: return std::get<0>(distinct.topk(1 + x.size(d) / 2, d));
    case 2: return std::get<0>(distinct.kthvalue(1 + x.size(d) / 2, d));
    case 3: return distinct.cumsum(d);
    case 4: return std::get<0>(distinct.cummax(d));
    default: return distinct.logcumsumexp(d);
  }
}

Tensor lost(const Tensor& x, const Instruction& i) {
  const auto rows = x.reshape({-1, x.size(-1)});
  const auto target = torch::arange(rows.size(0), at::kLong).remainder(rows.size(1));
  switch (i.b / 5 % 7) {
    case 0: return torch::cross_entropy_loss(rows, target, {}, at::Reduction::Mean, -100, 0.1);
    case 1: return torch::cross_entropy_loss(rows, rows.detach().softmax(1));
    case 2: return torch::kl_div(rows.log_softmax(1), (rows * 0.3).softmax(1), at::Reduction::Sum);
    case 3: return torch::huber_loss(x, x * 0.5 + 0.21, at::Reduction::None, 0.3);
    case 4: return torch::smooth_l1_loss(x, (x * 0.4).detach());
    case 5: return torch::cosine_similarity(rows, rows.flip(0) + 0.31, 1);
    default: return torch::pairwise_distance(rows, rows * 0.2 - 0.41, 2, 1e-3);
  }
}

Tensor taken_apart(const Tensor& x, const Instruction& i) {
  const int64_t d = dim_of(x, i.b);
  const int64_t size = x.size(d);
  switch (i.b / 5 % 8) {
    case 0: return torch::cat(x.chunk(2, d), d);
    case 1: return torch::stack(x.unbind(d), dim_of(x, i.b / 7));
    case 2: return size > 1 ? x.unfold(d, 2, 1) : x;
    case 3: return torch::glu(torch::cat({x, x.flip(d)}, d), d);
    case 4: return torch::where(x > 0.1731, x, x * x * 0.1);
    case 5: return x.lerp(x.flip(d), 0.3).addcmul(x, x, 0.05);
    case 6: return torch::einsum("...i,...j->...ij", {x, x});
    default: return torch::reflection_pad1d(three_of(x, i.b).repeat({1, 1, 2}), {1, 1});
  }
}

Tensor solved(Machine& m, const Tensor& x, const Instruction& i) {
  const auto matrices = three_of(x, i.b);
  const auto product = torch::bmm(matrices, matrices.transpose(1, 2)) +
      torch::eye(matrices.size(1), matrices.options().requires_grad(false));
  switch (i.b / 3 % 4) {
    case 0: return product;
    case 1: return at::linalg_solve(product, matrices);
    case 2: return at::linalg_cholesky(product);
    default:
      return torch::baddbmm(
          kernel_of(m, {product.size(2)}, i.b).view({1, 1, -1}), product, product, 0.5, 0.2);
  }
}

} // namespace

void module(Machine& m, const Instruction& i) {
  auto x = m.value(i.a);
  if (x.dim() == 0) {
    x = x.view({1});
  }
  switch (i.c % 11) {
    case 0: return m.push(convolved(m, x, i, false));
    case 1: return m.push(convolved(m, x, i, true));
    case 2: return m.push(pooled(x, i));
    case 3: return m.push(normalised(m, x, i));
    case 4: return m.push(attended(m, x, i));
    case 5: return m.push(recurrent(m, x, i));
    case 6: return m.push(ordered(x, i));
    case 7: return m.push(lost(x, i));
    case 8: return m.push(taken_apart(x, i));
    case 9: return m.push(solved(m, x, i));
    default: {
      const auto weight = weight_of(m, 5, i.b);
      const auto ids = torch::arange(2 * x.size(0), at::kLong).remainder(5);
      const auto begins = torch::arange(0, 2 * x.size(0), 2, at::kLong);
      return m.push(std::get<0>(torch::embedding_bag(weight, ids, begins, false, 1)) + x.mean());
    }
  }
}

} // namespace accel::distributed::test
