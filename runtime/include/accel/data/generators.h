#pragma once

#include <accel/detail/communicator.h>
#include <accel/export.h>

#include <ATen/core/Tensor.h>

namespace accel::detail {

/// Where the default CPU generator stood when this was made (5 kB, about a
/// microsecond).
class ACCEL_API GeneratorMark {
 public:
  GeneratorMark();

  /// Whether random numbers have been drawn since.
  bool moved() const;

  /// Takes back what has been drawn since.
  void restore() const;

 private:
  at::Tensor state_;
};

/// Gives every process the state and the seed of process 0's default CPU
/// generator, and of that of `device`; warns of nothing. LibTorch seeds each
/// process by chance, so that a program without torch::manual_seed would draw
/// other data and other parameters in each. Every process must call it.
ACCEL_API void adopt_main_process_generators(
    Communicator& communicator,
    at::Device device);

/// Gives every process the state of process 0's default CPU generator, and
/// warns, once for each process, where it was another one: the processes had
/// not drawn the same random numbers, so what they computed since the last call
/// is not what one device would have computed. Every process must call it.
ACCEL_API void synchronize_generators();

/// The same without a warning: where process 0 has drawn for all.
ACCEL_API void follow_main_process_generator();

/// While it lives, the default CPU generator is a copy of process 0's, as it
/// was then. Afterwards it is the process's own again; where both were equal,
/// they stay equal. Every process must make one at the same time.
class ACCEL_API MainProcessGenerator {
 public:
  MainProcessGenerator();
  ~MainProcessGenerator();
  MainProcessGenerator(const MainProcessGenerator&) = delete;
  MainProcessGenerator& operator=(const MainProcessGenerator&) = delete;

 private:
  GeneratorMark own_;
  bool foreign_ = false;
};

} // namespace accel::detail
