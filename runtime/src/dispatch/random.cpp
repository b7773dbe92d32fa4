// Random numbers of the global batch.
//
// The generators of all processes are in the same state. What holds numbers for
// the rows of this process (rows_of_draw) is drawn for the rows of all processes
// by LibTorch's own kernel, into a tensor laid out as one device would lay it
// out, and this process's rows are kept: the numbers of the single-device
// program, and generators that stay equal. Everything else is drawn plainly,
// the same on all processes.
//
// rand, randn, randint, their _like forms, normal(double, double, size),
// dropout in all its forms and bernoulli end in the in-place functions below,
// so those are what is replaced. Where numbers depend on values of the input
// (how many are drawn, or which), the inputs of the other processes' rows are
// gathered first; every process must call such a function at the same time.
//
// Left as they are, and so equal on all processes or different in distribution
// only: the *_out forms of normal with tensors, randperm (see there), and
// generators other than the CPU's.

#include "dispatch/kernels.h"
#include "dispatch/share.h"

#include <accel/data/whole_batch.h>
#include <accel/detail/communicator.h>

#include <ATen/ATen.h>
#include <ATen/ExpandUtils.h>
#include <ATen/NativeFunctions.h>
#include <ATen/native/Resize.h>

#include <algorithm>
#include <numeric>

namespace accel::detail {
namespace {

using at::Generator;
using at::Tensor;
using OptionalGenerator = std::optional<Generator>;

Tensor rows_of(const Tensor& full, const RowsOfDraw& rows, int64_t size) {
  return full.narrow(rows.dim, rows.offset, size);
}

/// An uninitialised tensor of the size and the layout in memory that `part` has
/// on one device. The order in which kernels fill a tensor follows its layout.
Tensor empty_full(const Tensor& part, const RowsOfDraw& rows) {
  auto sizes = part.sizes().vec();
  auto strides = part.strides().vec();
  const int64_t own = sizes[rows.dim];
  int64_t& step = strides[rows.dim];
  // The stride of a dimension of size one means nothing where the dimensions
  // inside of it do not fit; then the samples are outermost.
  int64_t end = 1;
  bool fits = step > 0;
  for (int64_t dim = 0; dim < part.dim(); ++dim) {
    if (dim != rows.dim && sizes[dim] > 1) {
      end = std::max(end, strides[dim] * sizes[dim]);
      fits = fits &&
          (strides[dim] >= step || strides[dim] * sizes[dim] <= step);
    }
  }
  if (own == 1 && !fits) {
    step = end;
  }
  // Dimensions outside of the samples' move apart as far as there are more of
  // them now.
  for (int64_t dim = 0; dim < part.dim(); ++dim) {
    if (dim != rows.dim && strides[dim] >= step) {
      strides[dim] = strides[dim] % own == 0 ? strides[dim] / own * rows.full
                                             : strides[dim] * rows.full;
    }
  }
  sizes[rows.dim] = rows.full;
  return at::empty_strided(sizes, strides, part.options());
}

/// Fills `self` by `stock`, LibTorch's kernel.
template <typename Stock>
Tensor& fill(Draw draw, Tensor& self, Stock&& stock) {
  const auto rows = rows_of_draw(draw, self.sizes());
  const WholeBatchGuard whole_batch;
  if (!rows) {
    stock(self, rows);
    return self;
  }
  auto full = empty_full(self, *rows);
  stock(full, rows);
  self.copy_(rows_of(full, *rows, self.size(rows->dim)));
  return self;
}

using Rows = std::optional<RowsOfDraw>;

Tensor& normal_(Tensor& self, double mean, double std, OptionalGenerator g) {
  return fill(Draw::kNormal, self, [&](Tensor& to, const Rows&) {
    at::native::normal_(to, mean, std, g);
  });
}

Tensor& uniform_(Tensor& self, double from, double to, OptionalGenerator g) {
  return fill(Draw::kUniform, self, [&](Tensor& target, const Rows&) {
    at::native::uniform_(target, from, to, g);
  });
}

Tensor& cauchy_(Tensor& self, double median, double sigma, OptionalGenerator g) {
  return fill(Draw::kCauchy, self, [&](Tensor& to, const Rows&) {
    at::native::cauchy_(to, median, sigma, g);
  });
}

Tensor& log_normal_(Tensor& self, double mean, double std, OptionalGenerator g) {
  return fill(Draw::kLogNormal, self, [&](Tensor& to, const Rows&) {
    at::native::log_normal_(to, mean, std, g);
  });
}

Tensor& exponential_(Tensor& self, double lambda, OptionalGenerator g) {
  return fill(Draw::kExponential, self, [&](Tensor& to, const Rows&) {
    at::native::exponential_(to, lambda, g);
  });
}

Tensor& geometric_(Tensor& self, double p, OptionalGenerator g) {
  return fill(Draw::kGeometric, self, [&](Tensor& to, const Rows&) {
    at::native::geometric_(to, p, g);
  });
}

Tensor& random_from_(
    Tensor& self,
    int64_t from,
    std::optional<int64_t> to,
    OptionalGenerator g) {
  return fill(Draw::kRandom, self, [&](Tensor& target, const Rows&) {
    at::native::random_(target, from, to, g);
  });
}

Tensor& random_to_(Tensor& self, int64_t to, OptionalGenerator g) {
  return fill(Draw::kRandom, self, [&](Tensor& target, const Rows&) {
    at::native::random_(target, to, g);
  });
}

Tensor& random_(Tensor& self, OptionalGenerator g) {
  return fill(Draw::kRandom, self, [&](Tensor& to, const Rows&) {
    at::native::random_(to, g);
  });
}

Tensor& bernoulli_float_(Tensor& self, double p, OptionalGenerator g) {
  return fill(Draw::kBernoulli, self, [&](Tensor& to, const Rows&) {
    at::native::bernoulli_(to, p, g);
  });
}

// A number is drawn for each element whatever its probability is, so those of
// the other processes' rows do not matter.
Tensor& bernoulli_tensor_(Tensor& self, const Tensor& p, OptionalGenerator g) {
  return fill(Draw::kBernoulli, self, [&](Tensor& to, const Rows& rows) {
    if (!rows) {
      at::native::bernoulli_(to, p, g);
      return;
    }
    auto full = at::zeros(to.sizes(), p.options());
    rows_of(full, *rows, self.size(rows->dim)).copy_(p.expand_as(self));
    at::native::bernoulli_(to, full, g);
  });
}

// The three that take tensors, as LibTorch composes them, to the last bit.
Tensor normal_tensor_float(const Tensor& mean, double std, OptionalGenerator g) {
  auto result = at::empty_like(mean, at::MemoryFormat::Contiguous);
  return normal_(result, 0, std, g).add_(mean);
}

Tensor normal_tensor_tensor(
    const Tensor& mean,
    const Tensor& std,
    OptionalGenerator g) {
  auto result = at::empty(
      at::infer_size(mean.sizes(), std.sizes()), std.options());
  normal_(result, 0, 1, g);
  return at::addcmul_out(result, mean, result, std, 1);
}

Tensor normal_float_tensor(double mean, const Tensor& std, OptionalGenerator g) {
  return normal_tensor_tensor(at::full({}, mean, std.options()), std, g);
}

// As many numbers are drawn for each row whatever the weights are, if there
// are any.
Tensor multinomial(
    const Tensor& self,
    int64_t num_samples,
    bool replacement,
    OptionalGenerator g) {
  const auto rows = self.dim() == 2
      ? rows_of_draw(Draw::kMultinomial, self.sizes())
      : std::nullopt;
  const WholeBatchGuard whole_batch;
  if (!rows || rows->dim != 0) {
    return at::native::multinomial(self, num_samples, replacement, g);
  }
  auto full = at::ones({rows->full, self.size(1)}, self.options());
  rows_of(full, *rows, self.size(0)).copy_(self);
  return rows_of(
             at::native::multinomial(full, num_samples, replacement, g),
             *rows,
             self.size(0))
      .contiguous();
}

// A permutation of the rows of the batch would take rows of other processes.
// This one permutes the process's own rows, in the order that they have in the
// permutation of the batch.
Tensor& randperm_out(int64_t n, OptionalGenerator g, Tensor& out) {
  const auto rows = rows_of_draw(Draw::kPermutation, {n});
  const WholeBatchGuard whole_batch;
  if (!rows) {
    return at::native::randperm_out_cpu(n, g, out);
  }
  TORCH_WARN_ONCE(
      "accel: randperm(",
      n,
      ") has the size of this process's part of the batch: it permutes the "
      "process's own rows only, so what mixes samples of a batch differs from "
      "one device. Permute before shard_batch to mix the whole batch.");
  auto full = at::empty({rows->full}, out.options().dtype(at::kLong));
  at::native::randperm_out_cpu(rows->full, g, full);
  at::native::resize_output(out, {n});
  return out.copy_(rows_of(full, *rows, n).argsort());
}

/// The rows of all processes, in the order of the global batch. A collective
/// call.
Tensor gather_rows(const Tensor& part, const RowsOfDraw& rows) {
  auto& processes = communicator(Channel::kStatistics);
  const int64_t per_sample = rows.full / active_share()->global;
  const auto share_of = [&](int64_t rank) {
    return BatchShare::of(
        rows.full / per_sample, rank, processes.size());
  };
  auto own = part.movedim(rows.dim, 0).contiguous();
  auto sizes = own.sizes().vec();
  sizes[0] = share_of(0).rows() * per_sample;
  auto padded = at::zeros(sizes, own.options());
  padded.narrow(0, 0, own.size(0)).copy_(own);
  auto all = processes.all_gather(padded);
  for (int64_t rank = 0; rank < processes.size(); ++rank) {
    all[rank] = all[rank].narrow(0, 0, share_of(rank).local * per_sample);
  }
  return at::cat(all).movedim(0, rows.dim).contiguous();
}

/// Draws by `stock` out of values that are known for this process's rows.
template <typename Stock>
Tensor from_rows(const Tensor& self, Stock&& stock) {
  const auto rows = rows_of_draw(Draw::kFromRows, self.sizes());
  if (!rows) {
    const WholeBatchGuard whole_batch;
    return stock([](const Tensor& same) { return same; });
  }
  const auto gather = [&](const Tensor& part) {
    return gather_rows(part.expand_as(self), *rows);
  };
  return rows_of(stock(gather), *rows, self.size(rows->dim)).contiguous();
}

Tensor poisson(const Tensor& self, OptionalGenerator g) {
  return from_rows(self, [&](const auto& all) {
    return at::native::_s_poisson_cpu(all(self), g);
  });
}

Tensor binomial(const Tensor& count, const Tensor& p, OptionalGenerator g) {
  return from_rows(count, [&](const auto& all) {
    return at::native::_s_binomial_cpu(all(count), all(p), g);
  });
}

Tensor standard_gamma(const Tensor& self, OptionalGenerator g) {
  return from_rows(self, [&](const auto& all) {
    return at::native::_s_gamma_cpu(all(self), g);
  });
}

Tensor sample_dirichlet(const Tensor& self, OptionalGenerator g) {
  return from_rows(self, [&](const auto& all) {
    return at::native::_s_dirichlet_cpu(all(self), g);
  });
}

// Draws for negative elements only.
Tensor rrelu_with_noise(
    const Tensor& self,
    Tensor& noise,
    const at::Scalar& lower,
    const at::Scalar& upper,
    bool training,
    OptionalGenerator g) {
  const auto rows = training ? rows_of_draw(Draw::kFromRows, self.sizes())
                             : std::nullopt;
  if (!rows) {
    return at::native::rrelu_with_noise_cpu(
        self, noise, lower, upper, training, g);
  }
  const auto full = gather_rows(self, *rows);
  auto full_noise = at::empty_like(full);
  const auto result = at::native::rrelu_with_noise_cpu(
      full, full_noise, lower, upper, training, g);
  const int64_t size = self.size(rows->dim);
  noise.copy_(rows_of(full_noise, *rows, size));
  return rows_of(result, *rows, size).contiguous();
}

// Dropout draws through bernoulli_; these only tell it that it is dropout.
template <Tensor (*stock)(const Tensor&, double, bool)>
Tensor dropout(const Tensor& input, double p, bool train) {
  const DropoutGuard guard;
  return stock(input, p, train);
}

template <Tensor& (*stock)(Tensor&, double, bool)>
Tensor& dropout_(Tensor& self, double p, bool train) {
  const DropoutGuard guard;
  return stock(self, p, train);
}

} // namespace

void add_dropout(torch::Library& autograd) {
  autograd.impl("dropout", dropout<at::native::dropout>);
  autograd.impl("dropout_", dropout_<at::native::dropout_>);
  autograd.impl("feature_dropout", dropout<at::native::feature_dropout>);
  autograd.impl("feature_dropout_", dropout_<at::native::feature_dropout_>);
  autograd.impl("alpha_dropout", dropout<at::native::alpha_dropout>);
  autograd.impl("alpha_dropout_", dropout_<at::native::alpha_dropout_>);
  autograd.impl(
      "feature_alpha_dropout", dropout<at::native::feature_alpha_dropout>);
  autograd.impl(
      "feature_alpha_dropout_", dropout_<at::native::feature_alpha_dropout_>);
}

void add_random_numbers(torch::Library& cpu) {
  cpu.impl("normal_", TORCH_FN(normal_));
  cpu.impl("uniform_", TORCH_FN(uniform_));
  cpu.impl("cauchy_", TORCH_FN(cauchy_));
  cpu.impl("log_normal_", TORCH_FN(log_normal_));
  cpu.impl("exponential_", TORCH_FN(exponential_));
  cpu.impl("geometric_", TORCH_FN(geometric_));
  cpu.impl("random_.from", TORCH_FN(random_from_));
  cpu.impl("random_.to", TORCH_FN(random_to_));
  cpu.impl("random_", TORCH_FN(random_));
  cpu.impl("bernoulli_.float", TORCH_FN(bernoulli_float_));
  cpu.impl("bernoulli_.Tensor", TORCH_FN(bernoulli_tensor_));
  cpu.impl("normal.Tensor_float", TORCH_FN(normal_tensor_float));
  cpu.impl("normal.float_Tensor", TORCH_FN(normal_float_tensor));
  cpu.impl("normal.Tensor_Tensor", TORCH_FN(normal_tensor_tensor));
  cpu.impl("multinomial", TORCH_FN(multinomial));
  cpu.impl("randperm.generator_out", TORCH_FN(randperm_out));
  cpu.impl("poisson", TORCH_FN(poisson));
  cpu.impl("binomial", TORCH_FN(binomial));
  cpu.impl("_standard_gamma", TORCH_FN(standard_gamma));
  cpu.impl("_sample_dirichlet", TORCH_FN(sample_dirichlet));
  cpu.impl("rrelu_with_noise", TORCH_FN(rrelu_with_noise));
}

} // namespace accel::detail
