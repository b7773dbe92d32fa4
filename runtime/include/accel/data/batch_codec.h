#pragma once

#include <accel/detail/members.h>
#include <accel/export.h>
#include <accel/operations.h>

#include <torch/data/example.h>
#include <torch/types.h>

#include <array>
#include <cstdint>
#include <cstring>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <type_traits>
#include <unordered_map>
#include <utility>
#include <vector>

namespace accel::data {

/// Takes a batch apart into bytes, for another process.
class ACCEL_API BatchWriter {
 public:
  /// What becomes of the bytes.
  enum class Keep {
    kAll,
    /// Only a fingerprint of the first pieces, and of tensors of the first 4096
    /// bytes: enough to tell two streams of batches apart.
    kFingerprint,
  };
  explicit BatchWriter(Keep keep = Keep::kAll) : keep_(keep) {}

  /// Adds raw bytes.
  void bytes(const void* data, size_t size);
  /// Adds a number, as eight bytes.
  void number(int64_t value);
  /// Dense tensors only; throws `c10::Error` for others.
  void tensor(const torch::Tensor& value);

  /// The bytes so far; empty with `Keep::kFingerprint`.
  const std::string& text() const {
    return text_;
  }
  /// A hash of what was added. Equal streams have equal ones.
  uint64_t fingerprint() const {
    return fingerprint_;
  }

 private:
  Keep keep_;
  std::string text_;
  uint64_t fingerprint_ = 0;
  /// Pieces that the fingerprint has.
  int64_t pieces_ = 0;
};

/// Puts a batch together again.
class ACCEL_API BatchReader {
 public:
  /// Tensors that were on a GPU come to `device`. `bytes` is a one-dimensional
  /// tensor of bytes; the tensors that are read keep it alive and lie in it.
  BatchReader(torch::Tensor bytes, torch::Device device)
      : bytes_(std::move(bytes)), device_(device) {}

  /// Copies the next `size` bytes to `data`. Throws `c10::Error` where fewer are
  /// left.
  void bytes(void* data, size_t size);
  /// The next number. Throws `c10::Error` where the bytes end before it.
  int64_t number();
  /// The next tensor. Throws `c10::Error` where the bytes end before it.
  torch::Tensor tensor();

 private:
  size_t take(size_t size);

  torch::Tensor bytes_;
  torch::Device device_;
  size_t position_ = 0;
};

/// How a batch travels to another process. Known are tensors, numbers,
/// enumerations, `std::string`, `torch::data::Example`, and vectors, arrays,
/// pairs, tuples, optionals and maps by `std::string` of what is known, and structs
/// whose members are all known (what counts as one, `TensorsOf` says). For another
/// batch type of your own specialise it:
///
///     template <>
///     struct accel::data::BatchCodec<MyBatch> {
///       static void write(BatchWriter& to, const MyBatch& batch) {
///         BatchCodec<torch::Tensor>::write(to, batch.image);
///         BatchCodec<int64_t>::write(to, batch.length);
///       }
///       static MyBatch read(BatchReader& from) {
///         MyBatch batch;
///         batch.image = BatchCodec<torch::Tensor>::read(from);
///         batch.length = BatchCodec<int64_t>::read(from);
///         return batch;
///       }
///     };
template <typename T, typename = void>
struct BatchCodec;

/// Whether there is a `BatchCodec` for `T`.
template <typename T, typename = void>
struct has_codec : std::false_type {};
template <typename T>
struct has_codec<
    T,
    std::void_t<decltype(BatchCodec<T>::read(std::declval<BatchReader&>()))>>
    : std::true_type {};

template <>
struct BatchCodec<torch::Tensor> {
  static void write(BatchWriter& to, const torch::Tensor& value) {
    to.tensor(value);
  }
  static torch::Tensor read(BatchReader& from) {
    return from.tensor();
  }
};

template <typename T>
struct BatchCodec<
    T,
    std::enable_if_t<std::is_arithmetic_v<T> || std::is_enum_v<T>>> {
  static void write(BatchWriter& to, const T& value) {
    to.bytes(&value, sizeof value);
  }
  static T read(BatchReader& from) {
    T value;
    from.bytes(&value, sizeof value);
    return value;
  }
};

template <>
struct BatchCodec<std::string> {
  static void write(BatchWriter& to, const std::string& value) {
    to.number(static_cast<int64_t>(value.size()));
    to.bytes(value.data(), value.size());
  }
  static std::string read(BatchReader& from) {
    std::string value(static_cast<size_t>(from.number()), '\0');
    from.bytes(value.data(), value.size());
    return value;
  }
};

template <typename T>
struct BatchCodec<std::vector<T>, std::enable_if_t<has_codec<T>::value>> {
  static void write(BatchWriter& to, const std::vector<T>& value) {
    to.number(static_cast<int64_t>(value.size()));
    for (const T& element : value) {
      BatchCodec<T>::write(to, element);
    }
  }
  static std::vector<T> read(BatchReader& from) {
    std::vector<T> value;
    for (int64_t left = from.number(); left > 0; --left) {
      value.push_back(BatchCodec<T>::read(from));
    }
    return value;
  }
};

template <typename T, size_t N>
struct BatchCodec<std::array<T, N>, std::enable_if_t<has_codec<T>::value>> {
  static void write(BatchWriter& to, const std::array<T, N>& value) {
    for (const T& element : value) {
      BatchCodec<T>::write(to, element);
    }
  }
  static std::array<T, N> read(BatchReader& from) {
    std::array<T, N> value;
    for (T& element : value) {
      element = BatchCodec<T>::read(from);
    }
    return value;
  }
};

template <typename T>
struct BatchCodec<std::optional<T>, std::enable_if_t<has_codec<T>::value>> {
  static void write(BatchWriter& to, const std::optional<T>& value) {
    to.number(value.has_value());
    if (value) {
      BatchCodec<T>::write(to, *value);
    }
  }
  static std::optional<T> read(BatchReader& from) {
    return from.number() != 0 ? std::optional<T>(BatchCodec<T>::read(from))
                              : std::nullopt;
  }
};

template <typename A, typename B>
struct BatchCodec<
    std::pair<A, B>,
    std::enable_if_t<has_codec<A>::value && has_codec<B>::value>> {
  static void write(BatchWriter& to, const std::pair<A, B>& value) {
    BatchCodec<A>::write(to, value.first);
    BatchCodec<B>::write(to, value.second);
  }
  static std::pair<A, B> read(BatchReader& from) {
    A first = BatchCodec<A>::read(from);
    B second = BatchCodec<B>::read(from);
    return {std::move(first), std::move(second)};
  }
};

template <typename... Parts>
struct BatchCodec<
    std::tuple<Parts...>,
    std::enable_if_t<(has_codec<Parts>::value && ...)>> {
  static void write(BatchWriter& to, const std::tuple<Parts...>& value) {
    std::apply(
        [&](const Parts&... parts) {
          (BatchCodec<Parts>::write(to, parts), ...);
        },
        value);
  }
  static std::tuple<Parts...> read(BatchReader& from) {
    // Braces evaluate from left to right.
    return std::tuple<Parts...>{BatchCodec<Parts>::read(from)...};
  }
};

template <typename Data, typename Target>
struct BatchCodec<
    torch::data::Example<Data, Target>,
    std::enable_if_t<has_codec<Data>::value && has_codec<Target>::value>> {
  using Example = torch::data::Example<Data, Target>;
  static void write(BatchWriter& to, const Example& value) {
    BatchCodec<Data>::write(to, value.data);
    BatchCodec<Target>::write(to, value.target);
  }
  static Example read(BatchReader& from) {
    Data data = BatchCodec<Data>::read(from);
    Target target = BatchCodec<Target>::read(from);
    return {std::move(data), std::move(target)};
  }
};

template <typename Data>
struct BatchCodec<
    torch::data::Example<Data, torch::data::example::NoTarget>,
    std::enable_if_t<has_codec<Data>::value>> {
  using Example = torch::data::Example<Data, torch::data::example::NoTarget>;
  static void write(BatchWriter& to, const Example& value) {
    BatchCodec<Data>::write(to, value.data);
  }
  static Example read(BatchReader& from) {
    return Example(BatchCodec<Data>::read(from));
  }
};

namespace detail {
template <typename Map>
struct MapCodec {
  using Value = typename Map::mapped_type;
  static void write(BatchWriter& to, const Map& value) {
    // By key: the order of a hash table is another one in each process, and
    // fingerprints are compared.
    std::map<std::string, const Value*> ordered;
    for (const auto& [key, element] : value) {
      ordered.emplace(key, &element);
    }
    to.number(static_cast<int64_t>(ordered.size()));
    for (const auto& [key, element] : ordered) {
      BatchCodec<std::string>::write(to, key);
      BatchCodec<Value>::write(to, *element);
    }
  }
  static Map read(BatchReader& from) {
    Map value;
    for (int64_t left = from.number(); left > 0; --left) {
      std::string key = BatchCodec<std::string>::read(from);
      Value element = BatchCodec<Value>::read(from);
      value.emplace(std::move(key), std::move(element));
    }
    return value;
  }
};
} // namespace detail

namespace detail {
/// Whether all members travel and can be written. Not of a node of a tree.
template <typename T, typename Members>
struct are_members_sent : std::false_type {};
template <typename T, typename... Member>
struct are_members_sent<T, std::tuple<Member&...>> {
  static constexpr bool value = [] {
    if constexpr (
        sizeof...(Member) == 0 ||
        (accel::detail::is_made_with<T, std::remove_const_t<Member>>::value || ...)) {
      return false;
    } else {
      return ((!std::is_const_v<Member> && has_codec<Member>::value) && ...);
    }
  }();
};

template <typename T>
constexpr bool is_sent_by_members() {
  if constexpr (
      std::is_default_constructible_v<T> && accel::detail::count_members<T>() > 0) {
    return are_members_sent<
        T, decltype(accel::detail::members_of(std::declval<T&>()))>::value;
  } else {
    return false;
  }
}
} // namespace detail

template <typename T>
struct BatchCodec<T, std::enable_if_t<detail::is_sent_by_members<T>()>> {
  static void write(BatchWriter& to, const T& value) {
    std::apply(
        [&](const auto&... member) {
          (BatchCodec<std::decay_t<decltype(member)>>::write(to, member), ...);
        },
        accel::detail::members_of(value));
  }
  static T read(BatchReader& from) {
    T value;
    std::apply(
        [&](auto&... member) {
          ((member = BatchCodec<std::decay_t<decltype(member)>>::read(from)), ...);
        },
        accel::detail::members_of(value));
    return value;
  }
};

template <typename T>
struct BatchCodec<
    std::map<std::string, T>,
    std::enable_if_t<has_codec<T>::value>>
    : detail::MapCodec<std::map<std::string, T>> {};

template <typename T>
struct BatchCodec<
    std::unordered_map<std::string, T>,
    std::enable_if_t<has_codec<T>::value>>
    : detail::MapCodec<std::unordered_map<std::string, T>> {};

} // namespace accel::data
