#pragma once

#include <accel/detail/communicator.h>

#include "core/operation_log.h"
#include "core/shared_memory.h"

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <vector>

namespace accel::detail {

/// Sums and gathers tensors over the processes of one host through memory that
/// they share.
///
/// Gloo moves every byte through a socket and several threads; for the small
/// tensors of a training step the waking of these threads costs far more than
/// the work. A sum is the same on all processes to the last bit: all add in
/// the order of the ranks, in the tensor's dtype.
///
/// With the data of each process lies the fingerprint of its operation. Where
/// they differ nothing is read: all processes throw `OutOfStep`, which names the
/// operations of all of them.
class SharedCollectives {
 public:
  /// How much memory `chunk` bytes at a time take for `size` processes.
  static int64_t bytes_for(int64_t size, int64_t chunk);

  /// `memory` has `bytes_for(size, chunk)` bytes. `chunk`: a multiple of 64, and
  /// at least 4096.
  SharedCollectives(
      std::unique_ptr<SharedMemory> memory,
      int64_t rank,
      int64_t size,
      int64_t chunk);

  /// Whether tensors of this kind can be summed: dense on the CPU, of a dtype
  /// that Gloo sums, too.
  static bool sums(const at::Tensor& tensor);

  /// In place. All processes must call it, with a contiguous tensor. Throws
  /// `OutOfStep`, and what `SharedMemory::meet` throws.
  void sum(at::Tensor& tensor, const Operation& operation);

  /// `outputs[rank]` becomes the tensor of process `rank`; all are contiguous
  /// tensors on the CPU, of the sizes and the dtype of `tensor`. Otherwise as
  /// `sum`.
  void gather(
      const at::Tensor& tensor,
      const std::vector<at::Tensor>& outputs,
      const Operation& operation);

  /// `outputs[rank]` becomes what the message of process `rank` has from byte
  /// `begins[rank]` on. Messages are contiguous, the longest has `longest` bytes.
  /// Otherwise as `sum`.
  void exchange(
      const at::Tensor& message,
      const std::vector<int64_t>& begins,
      const std::vector<at::Tensor>& outputs,
      int64_t longest,
      const Operation& operation);

  /// `Communicator::gather_pieces`, of pieces on the CPU. Otherwise as `sum`.
  void gather_pieces(const GatheredPieces& gathered, const Operation& operation);

  /// `Communicator::sum_pieces`, of pieces on the CPU. Otherwise as `sum`.
  void sum_pieces(const SummedPieces& summed, const Operation& operation);

  /// Compares the operations only. Otherwise as `sum`.
  void compare(const Operation& operation);

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
  void sum_chunk(at::Tensor& mine, const Operation& operation);
  /// Waits for the others' headers, and throws where they differ.
  void meet_for(const Operation& operation);
  [[noreturn]] void throw_out_of_step(const Operation& operation);
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
