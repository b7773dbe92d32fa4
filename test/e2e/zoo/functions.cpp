// Functions that programs call now and then, each on rows of a batch, on sums over
// it, or on both: what they return and, where they write, what is there behind it.

#include "zoo.h"

#include <sstream>
#include <utility>

namespace zoo::functions {

ZOO_MODEL(functions_of_all_kinds) {
  auto loader = run.loader<SequentialSampler>(
      Rows(torch::randn({12, 6}), torch::arange(12) % 4), 6);
  for (auto& batch : *loader) {
    auto step = run.accumulate();
    auto x = batch.data, y = batch.target;
    auto sum = x.sum(0), total = x.sum(), gram = x.t().mm(x);
    const auto note = [&](const char* name, const std::function<Tensor()>& function) {
      try {
        run.note(name, function());
      } catch (const c10::NotImplementedError&) {
        // A device may have no such kernel (a histogram on CUDA).
        if (x.is_cpu()) {
          throw;
        }
        run.note(std::string(name) + " is not there", 0.);
      }
    };
    note("tensor_split tensor", [&] { return x.tensor_split(std::get<0>(y.slice(0, 1, 3).sort(0)).cpu(), 0)[1]; });
    note("pack_sequence", [&] { const NoDefaultDevice lengths_of_the_host; std::vector<Tensor> v; for (int i = 0; i < 6; ++i) v.push_back(x[i].slice(0, 0, 6 - i)); return nn::utils::rnn::pack_sequence(v).data(); });
    note("pad_packed total", [&] { auto p = nn::utils::rnn::pack_padded_sequence(x.unsqueeze(2), (y + 1).cpu(), true, false); return std::get<0>(nn::utils::rnn::pad_packed_sequence(p, true, 0., 6)); });
    note("linspace tensor", [&] { return torch::linspace(total, total + 1, 4); });
    note("full tensor", [&] { return torch::full({2}, total.item()); });
    note("quantile q", [&] { return torch::quantile(x, total.sigmoid()); });
    note("histogram", [&] { return std::get<0>(torch::histogram(x, 5)); });
    note("histogram edges", [&] { return std::get<0>(torch::histogram(x, std::get<0>(sum.sort(0)))); });
    note("histogramdd", [&] { return std::get<0>(torch::histogramdd(x.slice(1, 0, 2), {3, 3})); });
    note("bincount weights", [&] { return torch::bincount(y, x.select(1, 0)); });
    note("nonzero_static", [&] { return torch::nonzero_static(x > 0, 5); });
    note("isin", [&] { return torch::isin(y, y.slice(0, 0, 2)); });
    note("unique_dim", [&] { return std::get<0>(torch::unique_dim(y.view({3, 2}), 0)); });
    note("clamp tensors", [&] { return x.clamp(sum - 1, sum + 1); });
    note("lerp tensor", [&] { return gram.lerp(torch::eye(6), total.sigmoid()); });
    note("where scalar", [&] { return torch::where(x > total, 1., 0.); });
    note("polyval-like", [&] { return torch::polygamma(1, x.abs() + 1); });
    note("roll tensor size", [&] { return x.roll(y[0].item<int64_t>(), 0); });
    note("index bool row", [&] { return x.index({y > 1, Slice(0, 2)}); });
    note("index mixed", [&] { return x.index({Slice(None, None, 2), y.slice(0, 0, 3)}); });
    note("index none", [&] { return x.index({None, Slice(), Ellipsis, 1}); });
    note("index tensor row", [&] { return x.index({y}); });
    note("index_put slice", [&] { auto z = x.clone(); z.index_put_({y}, sum); return z; });
    note("index_put accumulate", [&] { auto z = gram.clone(); z.index_put_({y, y}, x.select(1, 0), true); return z; });
    note("index_put gram slice", [&] { gram.index_put_({Slice(0, 2)}, x.slice(0, 0, 2)); return gram; });
    note("scatter reduce mean", [&] { return torch::zeros({4, 6}).scatter_reduce(0, y.unsqueeze(1).expand({-1, 6}), x, "mean", false); });
    note("scatter multiply", [&] { return torch::ones({4, 6}).scatter(0, y.unsqueeze(1).expand({-1, 6}), x, "multiply"); });
    note("segment", [&] { return torch::segment_reduce(x, "sum", torch::tensor({2, 4})); });
    note("embedding_bag max", [&] { return std::get<0>(torch::embedding_bag(gram, y, torch::tensor({0, 2}), false, 2)); });
    note("one_hot auto", [&] { return F::one_hot(y); });
    note("combinations", [&] { return torch::combinations(y, 2); });
    note("cartesian", [&] { return torch::cartesian_prod({y, y.slice(0, 0, 2)}); });
    note("meshgrid", [&] { return torch::meshgrid({x.select(1, 0), sum}, "ij")[0]; });
    note("kron", [&] { return torch::kron(x, torch::ones({2, 1})); });
    note("block_diag", [&] { return torch::block_diag({x, gram}); });
    note("cov weights", [&] { return torch::cov(x.t(), 1, y + 1); });
    note("bartlett", [&] { return torch::trapezoid(x, x.cumsum(0), 0); });
    note("vander", [&] { return torch::linalg_vander(x.select(1, 0)); });
    note("lu", [&] { return std::get<0>(torch::linalg_lu_factor(gram + 9 * torch::eye(6))); });
    note("eigvals", [&] { return torch::linalg_eigvals(gram).abs().sum(); });
    note("pinv", [&] { return torch::linalg_pinv(gram); });
    note("matrix_rank", [&] { return torch::linalg_matrix_rank(gram); });
    note("cond", [&] { return torch::linalg_cond(gram); });
    note("tensorinv", [&] { return torch::linalg_tensorsolve(gram.view({6, 2, 3}), sum); });
    note("householder", [&] { auto [a, tau] = torch::geqrf(gram); return torch::linalg_householder_product(a, tau); });
    note("ormqr", [&] { auto [a, tau] = torch::geqrf(gram); return torch::ormqr(a, tau, x.t()); });
    note("cdist p0", [&] { return torch::cdist(x, gram, 0.); });
    note("pdist", [&] { return torch::pdist(x, 1.5); });
    note("cumulative max idx", [&] { return std::get<1>(x.cummax(0)); });
    note("kthvalue idx", [&] { return std::get<1>(x.kthvalue(3, 0)); });
    note("mode idx", [&] { return std::get<1>(y.mode(0)); });
    note("sort stable", [&] { return std::get<1>(y.sort(true, 0, true)); });
    note("argsort multi", [&] { return torch::argsort(x, true, 0, true); });
    note("topk sorted false", [&] { return std::get<0>(std::get<0>(x.topk(3, 0, true, false)).sort(0)); });
    note("median", [&] { return x.median(); });
    note("nanquantile", [&] { return torch::nanquantile(x, 0.3, 0); });
    note("logcumsumexp", [&] { return x.logcumsumexp(0); });
    note("searchsorted batch", [&] { return torch::searchsorted(std::get<0>(x.sort(1)), x); });
    note("to_sparse mm", [&] { return torch::mm(x.relu().to_sparse(), gram); });
    note("sparse values", [&] { return torch::sparse_coo_tensor(torch::stack({y, y}), x.select(1, 0), {4, 4}).to_dense(); });
    note("sparse csr", [&] { return torch::mm(torch::eye(6).to_sparse_csr(), x); });
    note("sparse sum", [&] { return torch::sparse_coo_tensor(y.unsqueeze(0), x, {4, 6}).coalesce().values(); });
    note("mul sparse dense", [&] { return (torch::eye(6).to_sparse() * x).to_dense(); });
    note("add sparse", [&] { return x + torch::eye(6).to_sparse(); });
    note("complex", [&] { return torch::view_as_real(torch::complex(x, -x).matmul(torch::complex(gram, gram))); });
    note("fft2", [&] { return torch::abs(torch::fft::fft2(x)); });
    note("fftshift", [&] { return torch::fft::fftshift(x, torch::IntArrayRef{0}); });
    note("quantize", [&] { return torch::dequantize(torch::quantize_per_tensor(x.to(torch::kFloat), 0.1, 0, torch::kQInt8)); });
    note("dynamic quantize", [&] { return torch::dequantize(torch::quantize_per_tensor_dynamic(x.to(torch::kFloat), torch::kQInt8, false)); });
    note("quantize tensor params", [&] { return torch::dequantize(torch::quantize_per_tensor(x.to(torch::kFloat), total.abs() * 0 + 0.1, y[0] * 0, torch::kQInt8)); });
    note("fake quant channel", [&] { return torch::fake_quantize_per_channel_affine(x.to(torch::kFloat), (sum.abs() + 0.1).to(torch::kFloat), torch::zeros({6}, torch::kInt), 1, -8, 7); });
    note("nested", [&] { return torch::cat({x.narrow(0, 0, 0), x}); });
    note("int_repr", [&] { return x.to(torch::kInt).bitwise_and(3); });
    note("view dtype", [&] { return x.to(torch::kFloat).view(torch::kInt); });
    note("frexp", [&] { return std::get<0>(torch::frexp(x)); });
    note("dirichlet", [&] { return torch::_sample_dirichlet(x.abs() + 1); });
    note("gamma", [&] { return torch::_standard_gamma(x.abs() + 1); });
    note("binomial", [&] { return torch::binomial(torch::full({6, 6}, 5.), x.sigmoid()); });
    note("geometric", [&] { return torch::empty_like(x).geometric_(0.3); });
    note("log_normal", [&] { return torch::empty_like(x).log_normal_(); });
    note("random_", [&] { return torch::empty_like(y).random_(3, 9); });
    note("randint_like", [&] { return torch::randint_like(x, 2, 9); });
    note("randperm like", [&] { return torch::randperm(6).index({y}); });
    note("normal tensor", [&] { return at::normal(x, x.abs() + 0.1); });
    note("normal sum", [&] { return at::normal(sum, 0.1); });
    note("bernoulli sum", [&] { return torch::bernoulli(sum.sigmoid()); });
    note("dropout sum", [&] { return torch::dropout(gram, 0.5, true); });
    note("multinomial sum", [&] { return torch::multinomial(gram.abs(), 3, true); });
    note("rrelu sum", [&] { return torch::rrelu(gram, 0.1, 0.3, true); });
    note("allclose", [&] { return torch::tensor(torch::allclose(x, x + 1e-12)); });
    note("is_nonzero", [&] { return torch::tensor(total.is_nonzero()); });
    note("item bool", [&] { return torch::tensor((total > 0).item<bool>()); });
    note("resize", [&] { auto z = x.clone(); z.resize_({3, 12}); return z; });
    note("resize grow", [&] { auto z = x.clone(); z.resize_({7, 6}); return z.slice(0, 0, 6); });
    note("set", [&] { auto z = torch::zeros({1}); z.set_data(x); return z; });
    note("set_", [&] { auto z = x.clone(); auto w = torch::empty({0}); w.set_(z); return w; });
    note("swap", [&] { auto a = x.clone(), b = gram.clone(); std::swap(a, b); return a; });
    note("squeeze_", [&] { auto z = x.clone().unsqueeze_(1); z.squeeze_(1); return z; });
    note("as_strided_", [&] { auto z = x.clone(); z.as_strided_({2, 3}, {6, 1}); return z; });
    note("swapdims_", [&] { auto z = x.clone(); z.swapdims_(0, 1); return z; });
    note("out reuse", [&] { auto o = torch::empty({6, 6}); torch::matmul_out(o, x, gram); return o; });
    note("out dist", [&] { auto o = torch::empty_like(x); torch::add_out(o, x, x); return o; });
    note("out resize", [&] { auto o = torch::empty({0}); torch::cat_out(o, {x, x}); return o; });
    note("cat out", [&] { auto o = torch::empty_like(gram); torch::stack_out(o, {sum, sum, sum, sum, sum, sum}); return o; });
    note("copy to int", [&] { auto o = torch::zeros({6, 6}, torch::kInt); o.copy_(x * 10); return o; });
    note("copy sum to int", [&] { auto o = torch::zeros({6}, torch::kInt); o.copy_(sum * 10); return o; });
    note("float sum", [&] { return (sum * 10).to(torch::kInt); });
    note("type_as", [&] { return (sum * 10).type_as(y); });
    note("int add float sum", [&] { auto o = torch::zeros({6}, torch::kFloat); o += sum.to(torch::kFloat); return o.round(); });
    note("mean int", [&] { return (sum * 10).to(torch::kInt).sum(); });
    note("round sum", [&] { return (sum * 10).round().sum(); });
    note("floor_divide", [&] { return torch::floor_divide(sum * 10, 3); });
    note("floor_divide_", [&] { auto z = sum * 10; z.floor_divide_(3); return z; });
    note("div_ floor", [&] { auto z = sum * 10; z.div_(3, "floor"); return z; });
    note("mul_ bool", [&] { auto z = sum * 1; z.mul_(sum > 0); return z; });
    note("mul int sum", [&] { return y.sum() * x.sum(); });
    note("pow sum", [&] { return sum.pow(2) + 2 * sum; });
    note("isfinite", [&] { return torch::isfinite(sum / 0.).sum(); });
    note("inf times zero", [&] { return torch::nan_to_num((sum / 0.) * 0, 7.); });
    note("inf sum mul", [&] { return (x.masked_fill(x > 1, INFINITY).sum(0) * 2).isinf().sum(); });
    note("abs neg sum", [&] { return (-sum).abs(); });
    note("cat sums", [&] { return torch::cat({sum, x.mean(0), torch::ones({2})}); });
    note("stack mixed", [&] { return torch::stack({sum, torch::ones({6}), x[0]}); });
    note("int sum index", [&] { return x.index({(y.sum() % 6)}); });
    note("slice by sum", [&] { return x.slice(0, 0, 1 + y.sum().item<int64_t>() % 5); });
    note("narrow tensor", [&] { return x.narrow(0, y.min(), 2); });
    note("select tensor", [&] { return x[y.min()]; });
    note("repeat_interleave scalar", [&] { return torch::repeat_interleave(y); });
    note("expand sum", [&] { return sum.expand({3, 6}).contiguous(); });
    note("sum to size", [&] { return x.sum_to_size({1, 6}); });
    note("unfold sum", [&] { return sum.unfold(0, 2, 2); });
    note("split sizes", [&] { return x.split_with_sizes({1, 2, 3}, 0)[1]; });
    note("chunk sum", [&] { return gram.chunk(2, 1)[1]; });
    note("dsplit", [&] { return x.view({3, 2, 6}).dsplit(2)[1]; });
    note("movedim", [&] { return x.view({6, 2, 3}).movedim({0, 1}, {2, 0}); });
    note("take_along", [&] { return torch::take_along_dim(x, y.unsqueeze(0), 0); });
    note("gather rows", [&] { return x.gather(0, y.unsqueeze(1).expand({6, 6})); });
    note("rot90", [&] { return x.rot90(); });
    note("tril sum", [&] { return gram.tril().triu(-1); });
    note("diag", [&] { return sum.diag().diagonal(1); });
    note("trace", [&] { return gram.trace(); });
    note("logdet", [&] { return torch::logdet(gram + 9 * torch::eye(6)); });
    note("cross entropy sum", [&] { return F::cross_entropy(gram, y); });
    note("bce sum", [&] { return F::binary_cross_entropy(gram.sigmoid(), (x > 0).to(torch::kDouble)); });
    note("softmax sum", [&] { return gram.softmax(0) + sum.log_softmax(0); });
    note("layer norm sum", [&] { return F::layer_norm(gram, F::LayerNormFuncOptions({6})); });
    note("batch norm sum", [&] { return F::batch_norm(gram, {}, {}, F::BatchNormFuncOptions().training(true)); });
    note("conv sum", [&] { return torch::conv1d(gram.view({6, 1, 6}), torch::ones({2, 1, 3})); });
    note("conv weight sum", [&] { return torch::conv1d(x.view({6, 1, 6}), sum.view({2, 1, 3})); });
    note("maxpool sum", [&] { return torch::max_pool1d(gram.view({6, 1, 6}), 2); });
    note("embedding sum", [&] { return torch::embedding(gram, y); });
    note("linear all", [&] { return F::linear(x, gram, sum); });
    note("baddbmm", [&] { return torch::baddbmm(gram.view({6, 2, 3}), x.view({6, 2, 3}), gram.slice(1, 0, 1).unsqueeze(2).expand({6, 3, 3})); });
    note("addr", [&] { return torch::addr(gram, sum, sum); });
    note("addbmm", [&] { return torch::addbmm(gram.slice(0, 0, 2).slice(1, 0, 2), x.view({6, 2, 3}), x.view({6, 3, 2})); });
    note("dot", [&] { return sum.dot(x.mean(0)) + torch::vdot(sum, sum); });
    note("einsum", [&] { return torch::einsum("bi,ij,bj->b", {x, gram, x}); });
    note("bilinear", [&] { return torch::bilinear(x, x, gram.view({1, 6, 6}), {}); });
    note("cosine", [&] { return torch::cosine_similarity(x, sum.unsqueeze(0), 1); });
    note("renorm", [&] { return gram.renorm(2, 0, 1.); });
    note("norms", [&] { return torch::stack({gram.norm(), gram.norm(1), gram.norm(INFINITY), torch::linalg_norm(gram)}); });
    note("dist", [&] { return torch::dist(gram, x); });
    note("std_mean", [&] { return std::get<0>(torch::std_mean(gram, 0)); });
    note("prod", [&] { return gram.prod(0) + x.prod(0); });
    note("aminmax", [&] { auto [a, b] = torch::aminmax(gram); return a + b; });
    note("argmax sum", [&] { return gram.argmax(0) + sum.argmin(); });
    note("any all", [&] { return (gram > 0).any(0).logical_xor((gram > 0).all(0)); });
    note("count_nonzero", [&] { return torch::count_nonzero(gram); });
    note("std::cout sizes", [&] { std::ostringstream s; s << x.sizes() << x.dtype() << x.dim(); return torch::tensor(static_cast<double>(s.str().size())); });
  }
}

/// A tensor to write into, and what it shares its memory with.
struct Target {
  Tensor base;
  Tensor written;
};

// What each kind of place does to each other: rows, sums over the batch, what all
// have behind an operator in place, and views; written into by sums, numbers that
// are sums, rows and plain tensors.
ZOO_MODEL(writes_between_places) {
  torch::NoGradGuard no_grad;
  auto loader = run.loader<SequentialSampler>(
      Rows(torch::randn({6, 6}), torch::arange(6) % 4), 6);
  for (auto& batch : *loader) {
    auto step = run.accumulate();
    auto x = batch.data;
    const auto sums = [&] { return x.t().mm(x); };
    const auto all = [&] { return sums().relu_().add_(1); };
    const auto itself = [](Tensor t) { return Target{t, t}; };
    const std::vector<std::pair<std::string, std::function<Target()>>> targets = {
        {"rows", [&] { return itself(x.clone()); }},
        {"sums", [&] { return itself(sums()); }},
        {"all", [&] { return itself(all()); }},
        {"view of sums", [&] { auto t = sums(); return Target{t, t.t()}; }},
        {"view of all", [&] { auto t = all(); return Target{t, t.slice(0, 0, 6).t()}; }}};
    const std::vector<std::pair<std::string, std::function<Tensor()>>> others = {
        {"sums", [&] { return sums() * 0.3; }},
        {"a number", [&] { return x.mean(); }},
        {"columns", [&] { return x.sum(0); }},
        {"plain", [] { return torch::linspace(1, 2, 36).view({6, 6}); }}};
    using Write = std::function<Tensor(Tensor, const Tensor&)>;
    const std::vector<std::pair<std::string, Write>> writes = {
        {"add_", [](Tensor t, const Tensor& o) { return t.add_(o, 2); }},
        {"sub_", [](Tensor t, const Tensor& o) { return t.sub_(o); }},
        {"mul_", [](Tensor t, const Tensor& o) { return t.mul_(o); }},
        {"div_", [](Tensor t, const Tensor& o) { return t.div_(o); }},
        {"div_ trunc", [](Tensor t, const Tensor& o) { return t.div_(o, "trunc"); }},
        {"copy_", [](Tensor t, const Tensor& o) { return t.copy_(o); }},
        {"clamp_max_", [](Tensor t, const Tensor& o) { return t.clamp_max_(o); }},
        {"lerp_", [](Tensor t, const Tensor& o) { return t.lerp_(o.expand({6, 6}), 0.3); }},
        {"addcmul_", [](Tensor t, const Tensor& o) { return t.addcmul_(o, o, 0.5); }},
        {"fill_", [](Tensor t, const Tensor& o) { return t.fill_(o.flatten()[0]); }},
        {"masked_fill_", [](Tensor t, const Tensor& o) { return t.masked_fill_(o > 0.5, 3); }},
        {"a row", [](Tensor t, const Tensor& o) { t[2] = o.dim() > 1 ? o[0] : o; return t; }},
        {"a column", [](Tensor t, const Tensor& o) { t.select(1, 2).copy_(o.dim() > 1 ? o.select(1, 0) : o); return t; }},
        {"several", [](Tensor t, const Tensor& o) { return t.neg_().mul_(2).sub_(1).mul_(o).add_(o); }},
        {"foreach", [](Tensor t, const Tensor& o) { const std::vector<Tensor> to = {t}, by = {o}; at::_foreach_mul_(to, by); return t; }},
        {"shared", [](Tensor t, const Tensor& o) { auto d = t.detach(); t.add_(1); d.mul_(o); return t; }}};
    for (const auto& [target, make] : targets) {
      for (const auto& [other, value] : others) {
        for (const auto& [name, write] : writes) {
          const auto made = make();
          const auto operand = value();
          const auto result = write(made.written, operand);
          run.note(
              name + " " + target + " " + other,
              torch::cat({made.base.flatten(), made.written.flatten(), result.flatten(), operand.flatten()}));
        }
      }
    }
  }
}

} // namespace zoo::functions
