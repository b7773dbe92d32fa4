#include "measure.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <cmath>

namespace accel::verify {
namespace {

/// Elements are taken in groups of this many. Within a group the signs of a
/// projection are the same everywhere; each group has a sign of its own.
constexpr int64_t kGroup = 64;
/// Elements of other dtypes are converted in pieces of this many.
constexpr int64_t kPiece = 4096;
/// Of more elements than this, one piece in four is read: to read 40 MB takes a
/// tenth of the time in which a small batch goes through them.
constexpr int64_t kReadWhole = 1 << 20;
constexpr int64_t kPieceStride = 4;
constexpr int64_t kSampleBlocks = 8;
constexpr int64_t kSampleBlock = 4096;

constexpr uint64_t scramble(uint64_t value) {
  value += 0x9e3779b97f4a7c15ull;
  value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9ull;
  value = (value ^ (value >> 27)) * 0x94d049bb133111ebull;
  return value ^ (value >> 31);
}

constexpr std::array<double, kGroup> signs(uint64_t seed) {
  std::array<double, kGroup> result{};
  for (int64_t i = 0; i < kGroup; ++i) {
    result[i] = (scramble(seed) >> i & 1) != 0 ? 1.0 : -1.0;
  }
  return result;
}

constexpr std::array<double, kGroup> kFirst = signs(1u << 20);
constexpr std::array<double, kGroup> kSecond = signs(2u << 20);

struct Sums {
  double squares = 0;
  double projection[2] = {0, 0};
};

/// Adds `groups` whole groups, the first of which is group number `number`.
template <typename T>
inline __attribute__((always_inline)) void add_groups(
    const T* x, int64_t groups, uint64_t number, Sums& sums) {
  for (int64_t group = 0; group < groups; ++group, x += kGroup) {
    double squares = 0;
    double first = 0;
    double second = 0;
    for (int64_t i = 0; i < kGroup; ++i) {
      const double value = x[i];
      squares += value * value;
      first += value * kFirst[i];
      second += value * kSecond[i];
    }
    const uint64_t bits = scramble(number + group);
    sums.squares += squares;
    sums.projection[0] += (bits & 1) != 0 ? first : -first;
    sums.projection[1] += (bits & 2) != 0 ? second : -second;
  }
}

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#define ACCEL_CLONES __attribute__((target_clones("default", "arch=haswell")))
#else
#define ACCEL_CLONES
#endif

ACCEL_CLONES void add_groups_of(
    const float* x, int64_t groups, uint64_t number, Sums& sums) {
  add_groups(x, groups, number, sums);
}

ACCEL_CLONES void add_groups_of(
    const double* x, int64_t groups, uint64_t number, Sums& sums) {
  add_groups(x, groups, number, sums);
}

template <typename T>
void add_same(const T* x, int64_t count, uint64_t number, Sums& sums) {
  const int64_t groups = count / kGroup;
  add_groups_of(x, groups, number, sums);
  if (count % kGroup != 0) {
    T rest[kGroup] = {};
    std::copy(x + groups * kGroup, x + count, rest);
    add_groups_of(rest, 1, number + groups, sums);
  }
}

/// `number` of the group that `x` begins.
template <typename T>
void add(const T* x, int64_t count, uint64_t number, Sums& sums) {
  if constexpr (std::is_same_v<T, float> || std::is_same_v<T, double>) {
    add_same(x, count, number, sums);
  } else {
    double piece[kPiece];
    for (int64_t begin = 0; begin < count; begin += kPiece) {
      const int64_t size = std::min(kPiece, count - begin);
      for (int64_t i = 0; i < size; ++i) {
        piece[i] = static_cast<double>(x[begin + i]);
      }
      add_same(piece, size, number + begin / kGroup, sums);
    }
  }
}

template <typename T>
Sums sums_of(const void* data, int64_t count, bool sample) {
  const auto* x = static_cast<const T*>(data);
  Sums sums;
  if (count <= kSampleBlocks * kSampleBlock ||
      (!sample && count <= kReadWhole)) {
    add(x, count, 0, sums);
    return sums;
  }
  if (!sample) {
    for (int64_t begin = 0; begin < count; begin += kPieceStride * kPiece) {
      add(x + begin, std::min(kPiece, count - begin), begin / kGroup, sums);
    }
    return sums;
  }
  for (int64_t block = 0; block < kSampleBlocks; ++block) {
    const int64_t begin =
        (count - kSampleBlock) / (kSampleBlocks - 1) * block / kGroup * kGroup;
    add(x + begin, kSampleBlock, begin / kGroup, sums);
  }
  return sums;
}

/// The elements as this file reads them: on the CPU, dense, contiguous, real.
at::Tensor readable(const at::Tensor& tensor) {
  if (tensor.is_cpu() && tensor.layout() == at::kStrided &&
      !tensor.is_complex() && tensor.is_contiguous() && !tensor.is_neg() &&
      !tensor.is_quantized()) {
    return tensor;
  }
  const c10::NoGradGuard no_grad;
  auto copy = tensor.detach();
  if (copy.is_quantized()) {
    copy = copy.dequantize();
  }
  if (copy.layout() != at::kStrided) {
    copy = copy.to_dense();
  }
  if (copy.is_complex()) {
    copy = at::view_as_real(copy.resolve_conj());
  }
  return copy.resolve_neg().cpu().contiguous();
}

Fingerprint measure(const at::Tensor& tensor, bool sample) {
  if (!tensor.defined() || tensor.numel() == 0) {
    return {};
  }
  const auto x = readable(whole_of(tensor));
  const void* data = x.const_data_ptr();
  const int64_t count = x.numel();
  Sums sums;
  switch (x.scalar_type()) {
#define ACCEL_CASE(type, name)                  \
  case at::ScalarType::name:                    \
    sums = sums_of<type>(data, count, sample);  \
    break;
    AT_FORALL_SCALAR_TYPES_AND3(Bool, Half, BFloat16, ACCEL_CASE)
#undef ACCEL_CASE
    default:
      sums = sums_of<float>(
          x.to(at::kFloat).const_data_ptr(), count, sample);
  }
  return {std::sqrt(sums.squares), {sums.projection[0], sums.projection[1]}};
}

} // namespace

Fingerprint measure(const at::Tensor& tensor) {
  return measure(tensor, false);
}

Fingerprint measure_sample(const at::Tensor& tensor) {
  return measure(tensor, true);
}

Dtype dtype_of(const at::Tensor& tensor) {
  switch (tensor.scalar_type()) {
    case at::kDouble:
    case at::kComplexDouble:
      return Dtype::kDouble;
    case at::kFloat:
    case at::kComplexFloat:
      return Dtype::kFloat;
    case at::kHalf:
      return Dtype::kHalf;
    case at::kBFloat16:
      return Dtype::kBFloat16;
    default:
      return Dtype::kOther;
  }
}

at::Tensor whole_of(const at::Tensor& tensor) {
  // The dispatch key of distributed tensors (runtime/src/distributed/part.h).
  if (!tensor.defined() ||
      !tensor.unsafeGetTensorImpl()->key_set().has(c10::DispatchKey::Fake)) {
    return tensor;
  }
  using Full = void (*)(const at::Tensor*, at::Tensor*);
  static const auto full =
      reinterpret_cast<Full>(dlsym(RTLD_DEFAULT, "accel_full_tensor"));
  TORCH_CHECK(
      full != nullptr,
      "accel verify met a distributed tensor, but the program's libaccel does "
      "not offer accel_full_tensor; it is of another version.");
  at::Tensor whole;
  full(&tensor, &whole);
  return whole;
}

} // namespace accel::verify
