#pragma once

#include <accel/data/sharding.h>
#include <accel/export.h>
#include <accel/gradient_state.h>
#include <accel/operations.h>

#include <torch/data/datasets/base.h>
#include <torch/data/datasets/map.h>
#include <torch/data/datasets/shared.h>
#include <torch/data/example.h>
#include <torch/data/transforms/base.h>
#include <torch/data/transforms/lambda.h>
#include <torch/data/transforms/stack.h>
#include <torch/types.h>

#include <cstdint>
#include <map>
#include <string>
#include <tuple>
#include <type_traits>
#include <unordered_map>
#include <utility>
#include <vector>

namespace accel::detail {

/// The distributed tensor of `n` rows of which this process has loaded its own.
/// Throws where `own` does not have as many rows.
ACCEL_API torch::Tensor place_own_rows(const torch::Tensor& own, int64_t n);

/// A tensor that all processes have loaded: distributed where it has `n` samples
/// along dimension `dim`, 0 or 1, else as it is. Nothing is communicated.
ACCEL_API torch::Tensor place_whole(
    const torch::Tensor& whole, int64_t n, int64_t dim);

/// The same of a tensor beside others that have `n` rows: cut along dimension 1 where
/// that has `n` samples, as they are packed where it has more rows (the nodes of `n`
/// graphs), and edges `[2, E]` of integers by edges. `n + 1` integers are offsets and
/// stay whole. Nothing is communicated.
ACCEL_API torch::Tensor place_beside(const torch::Tensor& whole, int64_t n);

/// Whether the tensor has `n` rows.
ACCEL_API bool has_rows(const torch::Tensor& tensor, int64_t n);

/// Whether `flag` is true on at least one process. Collective.
ACCEL_API bool on_any_process(bool flag);

} // namespace accel::detail

namespace accel::data {

/// Batches whose tensors have a row for each sample, so that the batch of some
/// samples is those rows of the batch of all: a tensor, and `Example`s, pairs,
/// tuples, maps and structs of such. (Of a vector of samples every process needs
/// all.)
///
/// For the library itself: a program has no need to name it, and it may change.
template <typename Batch, typename = void>
struct has_tensor_rows : std::false_type {};
template <>
struct has_tensor_rows<torch::Tensor> : std::true_type {};
template <typename Data, typename Target>
struct has_tensor_rows<torch::data::Example<Data, Target>>
    : std::conjunction<has_tensor_rows<Data>, has_tensor_rows<Target>> {};
template <typename Data>
struct has_tensor_rows<
    torch::data::Example<Data, torch::data::example::NoTarget>>
    : has_tensor_rows<Data> {};
template <typename First, typename Second>
struct has_tensor_rows<std::pair<First, Second>>
    : std::conjunction<has_tensor_rows<First>, has_tensor_rows<Second>> {};
template <typename... Parts>
struct has_tensor_rows<std::tuple<Parts...>>
    : std::conjunction<has_tensor_rows<Parts>...> {};
template <typename Value>
struct has_tensor_rows<std::map<std::string, Value>> : has_tensor_rows<Value> {
};
template <typename Value>
struct has_tensor_rows<std::unordered_map<std::string, Value>>
    : has_tensor_rows<Value> {};

namespace detail {
template <typename Members>
struct are_tensor_rows;
template <typename... Member>
struct are_tensor_rows<std::tuple<Member&...>>
    : std::conjunction<has_tensor_rows<Member>...> {};
} // namespace detail

template <typename Batch>
struct has_tensor_rows<
    Batch,
    std::enable_if_t<accel::detail::is_struct_of_tensors<Batch>()>>
    : detail::are_tensor_rows<
          decltype(accel::detail::members_of(std::declval<Batch&>()))> {};

namespace detail {

template <typename Member>
struct declared_in;
template <typename Class, typename Type>
struct declared_in<Type Class::*> {
  using type = Class;
};

template <typename T>
struct is_example_dataset : std::false_type {};
template <typename Self, typename Example>
struct is_example_dataset<torch::data::datasets::Dataset<Self, Example>>
    : std::true_type {};

template <typename T>
struct is_example_transform : std::false_type {};
template <typename In, typename Out>
struct is_example_transform<torch::data::transforms::Transform<In, Out>>
    : std::true_type {};

} // namespace detail

/// Whether a transform makes each row of its result of one sample. LibTorch's
/// `Stack`, and whatever transforms single examples (`Lambda`, `Normalize`).
/// Specialise it to `std::true_type` for a collation of your own that does.
template <typename Transform, typename = void>
struct transforms_rows : std::false_type {};
template <typename Example>
struct transforms_rows<torch::data::transforms::Stack<Example>>
    : std::true_type {};
template <typename Transform>
struct transforms_rows<
    Transform,
    std::enable_if_t<detail::is_example_transform<typename detail::declared_in<
        decltype(&Transform::apply_batch)>::type>::value>> : std::true_type {};

/// Whether `get_batch` of some samples gives what these samples have in the
/// batch of all: of data sets that only say how to `get` one sample, and of
/// `map`ped ones where the transform keeps rows. Then a process loads only its
/// rows; otherwise every process loads whole batches, because how the others'
/// samples count (padding to the longest, a mean over the batch) is not known.
/// Specialise it to `std::true_type` for a data set of your own that does.
template <typename Dataset, typename = void>
struct loads_rows : std::false_type {};
template <typename Dataset>
struct loads_rows<
    Dataset,
    std::enable_if_t<detail::is_example_dataset<typename detail::declared_in<
        decltype(&Dataset::get_batch)>::type>::value>> : std::true_type {};
template <typename Source, typename Transform>
struct loads_rows<torch::data::datasets::MapDataset<Source, Transform>>
    : std::conjunction<loads_rows<Source>, transforms_rows<Transform>> {};
template <typename Source>
struct loads_rows<torch::data::datasets::SharedBatchDataset<Source>>
    : loads_rows<Source> {};

/// Tells the loader's state which tensors the batch is that it hands out.
///
/// For the library itself: a program has no need to name it, and it may change.
template <typename Batch>
void watch_batch(DataLoaderState& state, const Batch& batch) {
  if constexpr (has_tensors<Batch>::value) {
    map_tensors(batch, [&](const torch::Tensor& tensor) {
      state.watch(tensor);
      return tensor;
    });
  }
}

/// How many samples a struct has that a stream was asked for `asked` of: the rows of
/// its tensors where these have equally many, else `asked` where one has so many; -1
/// where that is not known.
///
/// For the library itself: a program has no need to name it, and it may change.
template <typename Batch>
int64_t samples_of(const Batch& batch, int64_t asked) {
  int64_t rows = -1;
  bool equal = true, as_asked = false;
  map_tensors(batch, [&](const torch::Tensor& tensor) {
    if (tensor.defined() && tensor.dim() > 0) {
      equal = equal && (rows < 0 || rows == tensor.size(0));
      rows = tensor.size(0);
      as_asked = as_asked || rows == asked;
    }
    return tensor;
  });
  return rows > 0 && equal ? rows : as_asked ? asked : -1;
}

/// The batch with its tensors distributed: `by_rows` where it holds this
/// process's rows of `n`, else whole, and then those that have `n` rows, and beside
/// them those that a collation has packed. Where no tensor has `n` rows, it has put
/// the steps of sequences first: then those whose dimension 1 has `n` samples are cut
/// along that. A type that accel finds no tensors in (`TensorsOf`), and one of standard
/// containers that has others than tensors, stays as it is.
///
/// For the library itself: a program has no need to name it, and it may change.
template <typename Batch>
Batch place_batch(Batch batch, int64_t n, bool by_rows) {
  if constexpr (
      has_tensor_rows<Batch>::value ||
      accel::detail::is_struct_of_tensors<Batch>()) {
    bool any_rows = by_rows;
    map_tensors(batch, [&](const torch::Tensor& tensor) {
      any_rows = any_rows || accel::detail::has_rows(tensor, n);
      return tensor;
    });
    return map_tensors(batch, [&](const torch::Tensor& tensor) {
      if (by_rows) {
        return accel::detail::place_own_rows(tensor, n);
      }
      return any_rows && !accel::detail::has_rows(tensor, n)
          ? accel::detail::place_beside(tensor, n)
          : accel::detail::place_whole(tensor, n, any_rows ? 0 : 1);
    });
  } else {
    return batch;
  }
}

} // namespace accel::data
