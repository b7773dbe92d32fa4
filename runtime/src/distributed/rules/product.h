#pragma once

#include "distributed/call.h"

namespace accel::distributed {

/// How the factors and the result of `[n, k] x [k, m]` are placed.
struct Product {
  Placement left;
  Placement right;
  Placement result;
};

/// What is known of the factors: their places, and what it costs to move them.
struct Factors {
  Placement left;
  Placement right;
  int64_t n = 0;
  int64_t k = 0;
  int64_t m = 0;
  int64_t processes = 1;
  /// A parameter that is gathered with its layer, whatever this product does.
  bool left_comes_whole = false;
  bool right_comes_whole = false;
};

/// Of the matrices, or vectors, at the end of two arguments.
Factors factors_of(const Call& call, size_t left, size_t right);

/// Whether a tensor is gathered with its layer.
bool comes_whole(const Call& call, const at::Tensor& tensor);

/// Of the ways that what is there already asks for the one that sends least, the
/// sum of a result in parts included; of equal ones the first: rows, columns, sums.
/// False where neither factor is in parts.
///
/// Sizes along further axes of a mesh are those of a part: processes that stand
/// elsewhere may take another way, which whoever puts their parts together looks at.
bool choose(const Factors& factors, Product& out);

} // namespace accel::distributed
