#include "checkpoint/snapshot.h"

#include "checkpoint/file_pieces.h"
#include "checkpoint/files.h"
#include "checkpoint/mapped_memory.h"
#include "checkpoint/safetensors_read.h"
#include "checkpoint/safetensors_write.h"
#include "checkpoint/threads.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <cerrno>
#include <memory>
#include <utility>
#include <vector>

namespace accel::checkpoint {

namespace {

/// What LibTorch's own allocator promises.
constexpr size_t kAlignment = 64;

/// Of a tensor that several threads copy.
constexpr size_t kPiece = 8 << 20;

/// Memory that nobody has used yet. Getting it in pages of 4 KiB takes several
/// times as long as copying into it does.
MappedMemory fresh_memory(size_t size) {
  MappedMemory memory(
      std::max<size_t>(size, 1),
      PROT_READ | PROT_WRITE,
      MAP_PRIVATE | MAP_ANONYMOUS,
      -1,
      0);
  TORCH_CHECK(
      memory,
      "There is no memory for a copy of what is to be saved (",
      size,
      " bytes): ",
      system_message(errno),
      ". Save without asynchronous(true).");
  advise_large_pages(memory);
  return memory;
}

/// Bytes that are copied as they are.
struct Piece {
  char* to;
  const char* from;
  size_t size;
};

void add_pieces(
    std::vector<Piece>& pieces, char* to, const char* from, size_t size) {
  for (size_t done = 0; done < size; done += kPiece) {
    pieces.push_back({to + done, from + done, std::min(size - done, kPiece)});
  }
}

} // namespace

StateDict snapshot(const StateDict& tensors) {
  const at::NoGradGuard no_grad;
  size_t size = 0;
  std::vector<size_t> offsets;
  for (const auto& item : tensors) {
    check_writable(item.key(), item.value());
    offsets.push_back(size);
    size += (item.value().nbytes() + kAlignment - 1) / kAlignment * kAlignment;
  }
  const auto memory = std::make_shared<MappedMemory>(fresh_memory(size));
  StateDict result;
  result.reserve(tensors.size());
  std::vector<Piece> pieces;
  for (size_t i = 0; i < tensors.size(); ++i) {
    const at::Tensor& tensor = tensors[i].value();
    char* to = memory->data() + offsets[i];
    at::Tensor copy = at::from_blob(
        to,
        tensor.sizes(),
        [memory](void*) {},
        at::TensorOptions(tensor.scalar_type()));
    if (can_be_read_into(tensor)) {
      add_pieces(
          pieces,
          to,
          static_cast<const char*>(tensor.const_data_ptr()),
          tensor.nbytes());
    } else {
      copy.copy_(tensor.detach());
    }
    result.insert(tensors[i].key(), std::move(copy));
  }
  on_threads(pieces.size(), copying_threads(size), [&](size_t i) {
    copy_past_cache(pieces[i].to, pieces[i].from, pieces[i].size);
  });
  return result;
}

} // namespace accel::checkpoint
