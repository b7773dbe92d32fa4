#pragma once

#include "core/shared_memory.h"

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>

namespace accel::detail {

/// Sums tensors over the processes of one host through memory that they share.
///
/// Gloo moves every byte through a socket and several threads; for the small
/// gradients of a training step the waking of these threads costs far more than
/// the sum. The sum is the same on all processes to the last bit: all add in
/// the order of the ranks, in the tensor's dtype.
class SharedSum {
 public:
  /// How much memory `chunk` bytes at a time take for `size` processes.
  static int64_t bytes_for(int64_t size, int64_t chunk);

  /// `memory` has `bytes_for(size, chunk)` bytes. `chunk`: a multiple of 64.
  SharedSum(
      std::unique_ptr<SharedMemory> memory,
      int64_t rank,
      int64_t size,
      int64_t chunk);

  /// Whether tensors of this kind can be summed: dense on the CPU, of a dtype
  /// that Gloo sums, too.
  static bool takes(const at::Tensor& tensor);

  /// In place. All processes must call it with a contiguous tensor of the same
  /// number of elements and dtype. Throws where they do not, and what
  /// `SharedMemory::meet` throws.
  void sum(at::Tensor& tensor);

  SharedMemory& memory() {
    return *memory_;
  }

 private:
  struct Header;

  Header& header(int64_t rank) const;
  char* slot(int64_t rank) const;
  char* result() const;
  at::Tensor
  part(char* memory, int64_t first, int64_t count, at::ScalarType type) const;
  void sum_chunk(at::Tensor& mine, int64_t all);
  void check_same(const at::Tensor& mine, int64_t all) const;
  /// The sum of elements [first, first + count) of all slots into `out`.
  void add_slots(at::Tensor& out, int64_t first, int64_t count) const;

  std::unique_ptr<SharedMemory> memory_;
  const int64_t rank_;
  const int64_t size_;
  const int64_t chunk_;
  /// Chunks take two halves of the memory in turn: who writes into one has met
  /// the others since they have last read from it.
  int64_t turn_ = 0;
};

} // namespace accel::detail
