#pragma once

#include <accel/export.h>

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace accel::detail {

/// What each process sends to each of a group, in elements of one dtype.
struct Exchange {
  /// One dimension, contiguous: what process 0 gets, then what process 1 gets, …
  at::Tensor message;
  /// How many elements each process gets of it, by rank.
  std::vector<int64_t> sends;
  /// Where in each process's message that begins which is for this one, and how
  /// many elements it has, by rank.
  std::vector<int64_t> begins;
  std::vector<int64_t> counts;
  /// Elements of the longest message; the same on all processes.
  int64_t longest = 0;
};

/// Pieces of all processes, to be put together in one memory by one message. How many
/// pieces there are is the same everywhere; their sizes are those of a process, which
/// all know.
struct GatheredPieces {
  /// This process's: of any dtypes, each dense in its memory. What is sent is their
  /// memory, one after the other.
  std::vector<at::Tensor> pieces;
  /// Where all go: bytes, one dimension, contiguous, on the pieces' device.
  at::Tensor whole;
  /// Where in `whole` piece k of process r begins, and how many bytes it has, at
  /// [r * pieces.size() + k].
  std::vector<int64_t> begins;
  std::vector<int64_t> counts;
};

/// Pieces that all processes have of the same sizes, to be summed by one message, of
/// which each process keeps some elements.
struct SummedPieces {
  /// This process's: of one floating dtype, each dense in its memory.
  std::vector<at::Tensor> pieces;
  /// Which elements of piece k, in the order of its memory, process r keeps: from
  /// `begins` on `counts`, at [r * pieces.size() + k].
  std::vector<int64_t> begins;
  std::vector<int64_t> counts;
  /// Where the sums that this process keeps go: as many as pieces, of the same dtype,
  /// dense; other memory than the pieces'.
  std::vector<at::Tensor> sums;
};

/// The collectives that the runtime is built on, over one group of processes.
///
/// World size one is not special: the single-process communicator answers
/// every call. All calls except the asynchronous ones block until the result is
/// there. *Every process of the group must make the same calls in the same
/// order, with tensors of equal shape and dtype.* A process that has died or
/// stays away makes the others throw `c10::Error` naming the operation, this
/// rank and the world size.
class ACCEL_API Communicator {
 public:
  /// Completes an asynchronous collective; to be called once. Throws like the
  /// blocking calls.
  using Waiter = std::function<void()>;

  virtual ~Communicator() = default;

  virtual int64_t rank() const = 0;
  virtual int64_t size() const = 0;

  /// Sums `tensor` over the processes, in place. Any dtype that c10d reduces;
  /// dense and contiguous.
  virtual void all_reduce(at::Tensor& tensor) = 0;

  /// Starts the same, and returns what waits for it. `tensor` must live and
  /// stay untouched until then.
  virtual Waiter all_reduce_async(at::Tensor& tensor) = 0;

  /// Every process's tensor, by rank. Same shape and dtype everywhere.
  virtual std::vector<at::Tensor> all_gather(const at::Tensor& tensor) = 0;

  /// What was started that has a tensor of each process: waits for it and returns
  /// them by rank; to be called once. Throws like the blocking calls.
  using Gathering = std::function<std::vector<at::Tensor>()>;

  /// What each process has sent to this one, by rank: one dimension each. Of the
  /// tensors only the dtype must be the same everywhere.
  std::vector<at::Tensor> all_to_all(const Exchange& exchange) {
    return all_to_all_async(exchange)();
  }

  /// Starts the same. The message must stay untouched until it is waited for. Here all
  /// messages are gathered; a communicator that can sends less.
  virtual Gathering all_to_all_async(const Exchange& exchange);

  /// Starts `all_gather`. `tensor` must stay untouched until it is waited for. Here it is
  /// done at once.
  virtual Gathering all_gather_async(const at::Tensor& tensor);

  /// Fills `gathered.whole` with the pieces of all processes.
  void gather_pieces(const GatheredPieces& gathered) {
    gather_pieces_async(gathered)();
  }

  /// Starts the same. What is sent is what the pieces hold at some moment until it is
  /// waited for. One that is never waited for still takes part, but `gathered.whole` may
  /// then be filled or not. Here the pieces are packed and gathered; a communicator that
  /// can copies them less often.
  virtual Waiter gather_pieces_async(const GatheredPieces& gathered);

  /// Whether what was started moves on while this process computes. Where not, all of it
  /// is done by who waits.
  virtual bool works_beside() const {
    return false;
  }

  /// Fills `summed.sums`, each the sum in the order of the ranks: the same bits,
  /// whatever carries them.
  void sum_pieces(const SummedPieces& summed) {
    sum_pieces_async(summed)();
  }

  /// Starts the same. The pieces must stay untouched until it is waited for.
  virtual Waiter sum_pieces_async(const SummedPieces& summed);

  /// Overwrites `tensor` with process `source`'s.
  virtual void broadcast(at::Tensor& tensor, int64_t source) = 0;

  /// Returns when every process has called it.
  virtual void barrier() = 0;
};

/// The processes of this program. Throws when no `Accelerator` exists.
///
/// Independent groups over the same processes, so that a collective that starts
/// from inside `backward` (an operator on a distributed tensor) can never be
/// matched with one of another kind that runs at the same time.
enum class Channel {
  /// Everything that user code or the loaders call: metrics, barriers, saves.
  kMain,
  /// The gradient buckets.
  kGradients,
  /// Operators on distributed tensors, in forward and backward.
  kOperators,
};
ACCEL_API Communicator& communicator(Channel channel = Channel::kMain);

/// True when an `Accelerator` exists and there is more than one process.
ACCEL_API bool distributed();

/// True when the work is shared as `match_single_device` says (and an
/// `Accelerator` exists). Also true at world size one.
ACCEL_API bool match_single_device();

} // namespace accel::detail
