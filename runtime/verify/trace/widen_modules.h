#pragma once

#include <ATen/core/Tensor.h>

namespace accel::verify {

/// `Widening::kModules`: makes what meets a module's parameters compute in
/// float64, and leaves what the program makes by itself in float32, as it may
/// fill and read the elements as float. To be called once, in the main thread,
/// before main.
void widen_operators();

/// A module has registered the tensor: float32 becomes float64, in place.
void widen_registered(const at::Tensor& tensor);

/// For a tensor (a const at::TensorBase*) that has become float64 and whose
/// elements the program wants as float: a copy of them with the tensor's
/// strides, to be read only, that stays to the end of the process. Null for a
/// tensor of another dtype.
float* read_as_float(const void* tensor);

/// Whether the program has written into one of these copies: it has not computed
/// what it says then.
bool wrote_into_copies();

} // namespace accel::verify
