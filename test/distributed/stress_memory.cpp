// LibTorch's functions that read the memory of a tensor, in place of them for a
// program under random placements (stress_placements.cpp). A file of its own, with
// little of LibTorch: other headers use the functions that are specialised here.

#include "stress_memory.h"

#include <ATen/core/TensorBase.h>

#include <dlfcn.h>

#include <ostream>
#include <string>
#include <typeinfo>

namespace at {
using accel::distributed::test::replicated;
using accel::distributed::test::with_whole;

/// `std::cout << tensor`.
__attribute__((visibility("default"))) std::ostream& print(
    std::ostream& stream,
    const Tensor& tensor,
    int64_t width) {
  using Print = std::ostream& (*)(std::ostream&, const Tensor&, int64_t);
  static const auto print_plain = reinterpret_cast<Print>(
      ::dlsym(RTLD_NEXT, "_ZN2at5printERSoRKNS_6TensorEl"));
  TORCH_CHECK(print_plain != nullptr, "accel: LibTorch has no at::print");
  with_whole(tensor, [&](const Tensor& whole) { print_plain(stream, whole, width); });
  return stream;
}

template <typename Pointer>
Pointer memory_of(const TensorBase& base, const std::string& symbol) {
  using Plain = Pointer (*)(const TensorBase&);
  auto* const plain =
      reinterpret_cast<Plain>(::dlsym(RTLD_NEXT, symbol.c_str()));
  TORCH_CHECK(plain != nullptr, "accel: LibTorch has no ", symbol);
  return plain(replicated(base));
}

#define ACCEL_MEMORY_OF(T, scalar)                                        \
  template <>                                                             \
  __attribute__((visibility("default"))) T*                               \
  TensorBase::mutable_data_ptr() const {                                  \
    return memory_of<T*>(                                                 \
        *this,                                                            \
        std::string("_ZNK2at10TensorBase16mutable_data_ptrI") +           \
            typeid(T).name() + "EEPT_v");                                 \
  }                                                                       \
  template <>                                                             \
  __attribute__((visibility("default"))) T* TensorBase::data_ptr()        \
      const {                                                             \
    return memory_of<T*>(                                                 \
        *this,                                                            \
        std::string("_ZNK2at10TensorBase8data_ptrI") + typeid(T).name() + \
            "EEPT_v");                                                    \
  }                                                                       \
  template <>                                                             \
  __attribute__((visibility("default"))) const T*                         \
  TensorBase::const_data_ptr() const {                                    \
    return memory_of<const T*>(                                           \
        *this,                                                            \
        std::string("_ZNK2at10TensorBase14const_data_ptrI") +             \
            typeid(T).name() + "Li0EEEPKT_v");                            \
  }
AT_FORALL_SCALAR_TYPES_AND3(Bool, Half, BFloat16, ACCEL_MEMORY_OF)
#undef ACCEL_MEMORY_OF

} // namespace at
