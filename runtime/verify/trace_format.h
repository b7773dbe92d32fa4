#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <type_traits>

/// The file in which the library that `accel verify` loads into a program
/// (trace/) writes down what the program computes, and from which the command
/// reads it. One file per process; both are of the same build, so there is one
/// version only, in the machine's byte order.
///
/// A file is the magic and then records: a `Record`, the number of bytes that
/// follow (uint64), and these. A program that is killed leaves a file whose
/// last record may be cut off.
namespace accel::verify {

constexpr char kTraceMagic[8] = {'a', 'c', 'c', 'l', 't', 'r', 'c', '1'};

enum class Record : uint8_t {
  /// JSON about the process: see `ProcessInfo` in trace_reader.h.
  kInfo = 1,
  /// A tensor that is recorded, when it is seen for the first time:
  /// id uint32, `TensorKind`, `Dtype`, name, number of dimensions uint32, the
  /// sizes int64, and its `Fingerprint` at that time.
  kTensor = 2,
  /// A backward: loss double, its `Dtype`, flags uint32, rows int64, number of
  /// entries uint32, and for each the tensor's id uint32, 1 or 0 uint8 for
  /// with or without a gradient, its `Fingerprint` before the backward (of a
  /// sample of its elements, see measure.h), and the gradient's after it.
  kBackward = 3,
  /// At the end: id uint32 and the `Fingerprint` of all of the tensor.
  kFinal = 4,
  /// Text for the person: something that could not be recorded.
  kNote = 5,
  /// The program ended in an orderly way; nothing follows.
  kEnd = 6,
};

enum class TensorKind : uint8_t { kParameter = 0, kBuffer = 1 };

/// How a program is made to compute in float64.
enum class Widening : uint8_t {
  kNone,
  /// What names no dtype. The program may read as float what it has named so.
  kDefault,
  /// What names float32, too.
  kAll,
  /// What modules register, and what meets it; the rest stays float32.
  kModules,
};

/// c10's dtypes as far as tolerances differ.
enum class Dtype : uint8_t { kDouble, kFloat, kHalf, kBFloat16, kOther };

/// Flags of a backward.
enum : uint32_t {
  /// Loss and gradients are those of all processes (the runtime said so).
  kGlobal = 1,
  /// The gradients were averaged; those of others are not comparable.
  kAveraged = 2,
};

/// A tensor in three numbers, each of which changes with every element.
///
/// Sums of all elements with fixed random signs are linear, and their
/// difference for two tensors has the expected square |a - b|^2. So, unlike
/// checksums, they tell how far two tensors are apart, and unlike norms they
/// notice elements that changed places or signs.
struct Fingerprint {
  double norm = 0;
  double projection[2] = {0, 0};
};

/// Collects one record.
class Encoder {
 public:
  template <typename T>
  Encoder& add(const T& value) {
    static_assert(std::is_trivially_copyable<T>::value, "only plain data");
    bytes_.append(reinterpret_cast<const char*>(&value), sizeof(value));
    return *this;
  }
  Encoder& add_text(const std::string& text) {
    add<uint32_t>(static_cast<uint32_t>(text.size()));
    bytes_ += text;
    return *this;
  }
  const std::string& bytes() const {
    return bytes_;
  }
  void clear() {
    bytes_.clear();
  }

 private:
  std::string bytes_;
};

/// Reads one record; `ok()` is false after reading behind its end.
class Decoder {
 public:
  Decoder(const char* begin, const char* end) : at_(begin), end_(end) {}

  template <typename T>
  T get() {
    T value{};
    if (static_cast<size_t>(end_ - at_) < sizeof(T)) {
      ok_ = false;
      at_ = end_;
      return value;
    }
    std::memcpy(&value, at_, sizeof(T));
    at_ += sizeof(T);
    return value;
  }
  std::string get_text() {
    const auto size = get<uint32_t>();
    if (static_cast<size_t>(end_ - at_) < size) {
      ok_ = false;
      at_ = end_;
      return "";
    }
    std::string text(at_, size);
    at_ += size;
    return text;
  }
  bool ok() const {
    return ok_;
  }

 private:
  const char* at_;
  const char* end_;
  bool ok_ = true;
};

/// How the command talks to the library.
constexpr const char* kTraceDirectory = "ACCEL_TRACE_DIRECTORY";
constexpr const char* kTraceDouble = "ACCEL_TRACE_DOUBLE";
constexpr const char* kTraceDoubleDefault = "default";
constexpr const char* kTraceDoubleAll = "all";
constexpr const char* kTraceDoubleModules = "modules";

/// The note of a process that cannot be believed with `Widening::kModules`.
constexpr const char* kWroteAsFloat =
    "the program writes float elements into a tensor that has become float64";
constexpr const char* kTraceSeed = "ACCEL_TRACE_SEED";
/// Seconds since 1970: what time() says when the program begins.
constexpr const char* kTraceTime = "ACCEL_TRACE_TIME";
/// Any value: gradients are changed by as much as another order of additions might.
constexpr const char* kTraceNoise = "ACCEL_TRACE_NOISE";
constexpr const char* kTraceMaxSteps = "ACCEL_TRACE_MAX_STEPS";

} // namespace accel::verify
