#include "distributed/rules/attention_ring.h"

#include "distributed/passing.h"

#include <ATen/ATen.h>

#include <limits>
#include <optional>
#include <tuple>
#include <vector>

namespace accel::distributed::attention_rules {
namespace {

constexpr double kNothing = -std::numeric_limits<double>::infinity();

/// Whose queries see whose keys, and which of them.
class Blocks {
 public:
  Blocks(const Call& call, const Places& places)
      : axis_(call.axis()),
        query_cut_(places.query.cut()),
        key_cut_(places.key.cut()),
        queries_(size_of(call, "query")),
        keys_(size_of(call, "key")),
        causal_(call.boolean(argument(call, "is_causal"))) {
    const auto mask = argument(call, "attn_mask");
    if (call.has(mask)) {
      const auto& given = call.tensor(mask);
      const int64_t dim = given.dim() - 2;
      mask_ = call.local_as(
          given, dim < 0 || given.size(dim) == 1
              ? Replicate()
              : Placement(Shard(dim, query_cut_)));
    }
  }

  static size_t argument(const Call& call, const char* name) {
    return static_cast<size_t>(call.index(name));
  }

  /// Whether any key of process `keys` counts for any query of process `queries`.
  bool meet(int64_t queries, int64_t keys) const {
    const auto [first, end] = axis_.range(queries_, query_cut_, queries);
    const auto [key, key_end] = axis_.range(keys_, key_cut_, keys);
    return first < end && key < key_end && (!causal_ || key < end);
  }
  /// Rows of keys of each process.
  std::vector<int64_t> key_rows() const {
    std::vector<int64_t> rows;
    for (int64_t rank = 0; rank < axis_.size(); ++rank) {
      rows.push_back(axis_.rows(keys_, key_cut_, rank));
    }
    return rows;
  }
  bool has_mask() const {
    return mask_.has_value();
  }

  /// The mask of this process's queries and the keys of process `keys`, and whether
  /// causality is not in it but has to be asked for. Both begin at the same position
  /// then.
  std::pair<std::optional<at::Tensor>, bool> mask_of(
      const at::Tensor& query,
      int64_t keys) const {
    const auto [first, end] = axis_.range(queries_, query_cut_);
    const auto [key, key_end] = axis_.range(keys_, key_cut_, keys);
    auto mask = mask_;
    if (mask && mask->size(-1) != 1) {
      mask = mask->narrow(-1, key, key_end - key);
    }
    if (!causal_ || key_end - 1 <= first) {
      return {mask, false};
    }
    if (!mask && key == first) {
      return {mask, true};
    }
    const auto causal = causal_mask(
        mask ? *mask : query, first, end - first, key, key_end - key);
    return {mask ? *mask + causal : causal, false};
  }

 private:
  static int64_t size_of(const Call& call, const char* name) {
    return call.tensor(argument(call, name)).size(2);
  }

  Axis& axis_;
  Cut query_cut_;
  Cut key_cut_;
  int64_t queries_;
  int64_t keys_;
  bool causal_;
  std::optional<at::Tensor> mask_;
};

/// Attention to parts of the keys, put together.
class Attention {
 public:
  /// `logsumexp` is -inf where a query sees none of the part's keys.
  void add(const at::Tensor& out, const at::Tensor& logsumexp) {
    // As exact as logsumexp is.
    const auto part = out.to(logsumexp.scalar_type());
    if (!out_.defined()) {
      out_ = part;
      logsumexp_ = logsumexp;
      return;
    }
    const auto both = at::logaddexp(logsumexp_, logsumexp);
    const auto none = both.eq(kNothing);
    const auto share = [&](const at::Tensor& one) {
      return at::exp(one - both).masked_fill(none, 0).unsqueeze(-1);
    };
    out_ = out_ * share(logsumexp_) + part * share(logsumexp);
    logsumexp_ = both;
  }
  bool empty() const {
    return !out_.defined();
  }
  at::Tensor out(at::ScalarType dtype) const {
    return out_.to(dtype);
  }
  /// As the kernel has it: 0 where a query sees nothing.
  at::Tensor logsumexp() const {
    return logsumexp_.masked_fill(logsumexp_.eq(kNothing), 0);
  }

 private:
  at::Tensor out_;
  at::Tensor logsumexp_;
};

/// What the call is given beside query, key, value and mask.
struct Given {
  explicit Given(const Call& call) {
    const auto& value = call.at(Blocks::argument(call, "scale"));
    if (!value.isNone()) {
      scale = value.toDouble();
    }
  }
  std::optional<double> scale;
};

/// Samples, positions, heads, features, as the kernel works on them, and back.
at::Tensor positions_first(const at::Tensor& tensor) {
  return tensor.transpose(1, 2);
}

/// The keys and values of the process before. Those of the last round are let go first.
void take_next(PassedOn& passed, at::Tensor& key, at::Tensor& value) {
  key.reset();
  value.reset();
  const auto others = passed.next();
  key = positions_first(others[0]);
  value = positions_first(others[1]);
}

void forward(Call& call, const Places& places) {
  Axis& axis = call.axis();
  const Blocks blocks(call, places);
  const Given given(call);
  const auto local = [&](const char* name, const Placement& place) {
    return call.local_as(call.tensor(Blocks::argument(call, name)), place);
  };
  const auto query = local("query", places.query);
  auto key = local("key", places.key);
  auto value = local("value", places.key);
  PassedOn passed(
      axis, {positions_first(key), positions_first(value)}, 1,
      blocks.key_rows(), call.name().c_str());
  Attention attention;
  for (int64_t round = 0; round < axis.size(); ++round) {
    if (round > 0) {
      take_next(passed, key, value);
    }
    const int64_t owner = (axis.rank() + axis.size() - round) % axis.size();
    if (!blocks.meet(axis.rank(), owner)) {
      continue;
    }
    const auto [mask, causal] = blocks.mask_of(query, owner);
    const auto [out, logsumexp] =
        at::_scaled_dot_product_flash_attention_for_cpu(
            query, key, value, 0.0, causal, mask, given.scale);
    attention.add(
        out,
        // Of a query that sees none of these keys the kernel says 0.
        mask ? logsumexp.masked_fill(mask->eq(kNothing).all(-1), kNothing)
             : logsumexp);
  }
  if (attention.empty()) {
    const auto [out, logsumexp] = attention_of_none(query);
    call.finish({out, logsumexp});
  } else {
    call.finish(
        {attention.out(query.scalar_type()), attention.logsumexp()});
  }
}

void backward(Call& call, const Places& places) {
  Axis& axis = call.axis();
  const int64_t n = axis.size();
  const int64_t me = axis.rank();
  const Blocks blocks(call, places);
  const Given given(call);
  const auto local = [&](const char* name, const Placement& place) {
    return call.local_as(call.tensor(Blocks::argument(call, name)), place);
  };
  const auto grad_out = local("grad_out", places.query);
  const auto query = local("query", places.query);
  auto key = local("key", places.key);
  auto value = local("value", places.key);
  const auto out = local("out", places.query);
  const auto logsumexp = local("logsumexp", places.query);
  const auto rows = blocks.key_rows();
  const auto* operation = call.name().c_str();
  PassedOn passed(
      axis, {positions_first(key), positions_first(value)}, 1, rows, operation);
  // As exact as logsumexp is. In the order of memory that the kernel's have.
  const auto zeros = [&](const at::Tensor& like) {
    return positions_first(at::zeros_like(
        positions_first(like),
        like.options().dtype(logsumexp.scalar_type()),
        at::MemoryFormat::Contiguous));
  };
  auto query_grad = zeros(query);
  auto key_grad = zeros(key);
  auto value_grad = zeros(value);
  for (int64_t round = 0; round < n; ++round) {
    if (round > 0) {
      take_next(passed, key, value);
    }
    const int64_t owner = (me + n - round) % n;
    at::Tensor for_key, for_value;
    if (blocks.meet(me, owner)) {
      const auto [mask, causal] = blocks.mask_of(query, owner);
      at::Tensor for_query;
      std::tie(for_query, for_key, for_value) =
          at::_scaled_dot_product_flash_attention_for_cpu_backward(
              grad_out, query, key, value, out, logsumexp, 0.0, causal, mask,
              given.scale);
      query_grad = query_grad + for_query;
    } else {
      for_key = key.narrow(2, 0, 0);
      for_value = value.narrow(2, 0, 0);
    }
    if (round > 0) {
      std::vector<int64_t> sent;
      for (int64_t rank = 0; rank < n; ++rank) {
        const int64_t whose = (rank + n - round) % n;
        sent.push_back(
            blocks.meet(rank, whose) ? rows[static_cast<size_t>(whose)] : 0);
      }
      const auto received = sent_along(
          axis, {positions_first(for_key), positions_first(for_value)}, 1, sent,
          n - round, operation);
      for_key = positions_first(received[0]);
      for_value = positions_first(received[1]);
    }
    if (for_key.size(2) > 0) {
      key_grad = key_grad + for_key;
      value_grad = value_grad + for_value;
    }
  }
  const auto dtype = query.scalar_type();
  call.finish({query_grad.to(dtype), key_grad.to(dtype), value_grad.to(dtype)});
}

} // namespace

at::Tensor causal_mask(
    const at::Tensor& like,
    int64_t query,
    int64_t queries,
    int64_t key,
    int64_t keys) {
  return at::full(
             {queries, keys}, kNothing,
             at::TensorOptions().dtype(like.scalar_type()).device(like.device()))
      .triu(query - key + 1);
}

std::pair<at::Tensor, at::Tensor> attention_of_none(const at::Tensor& query) {
  const auto out = at::zeros_like(query);
  const auto statistics =
      query.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  return {
      out,
      at::zeros_like(
          out.transpose(1, 2).select(3, 0), query.options().dtype(statistics),
          at::MemoryFormat::Contiguous)
          .transpose(1, 2)};
}

void attention_by_ring(Call& call, const Places& places) {
  if (call.index("grad_out") >= 0) {
    backward(call, places);
  } else {
    forward(call, places);
  }
}

} // namespace accel::distributed::attention_rules
