#include "checkpoint/piece_files.h"

#include "checkpoint/blocks.h"
#include "checkpoint/files.h"
#include "checkpoint/json.h"

#include <ATen/ATen.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <memory>
#include <utility>

namespace accel::checkpoint {

namespace {

constexpr const char* kBoxes = "accel.pieces";

/// A box of a tensor, or of each of its blocks, in a file.
struct Box {
  SafetensorsFile file;
  std::string name;
  /// In a block.
  std::vector<int64_t> offset;
  /// Of all blocks together.
  std::vector<int64_t> sizes;
};

struct Divided {
  at::ScalarType dtype;
  std::vector<int64_t> shape;
  std::vector<int64_t> blocks;
  std::vector<Box> boxes;
};

std::string describe(const Box& box) {
  return in_quotes(box.file.path());
}

std::vector<int64_t> numbers(const Json& json, const std::string& what) {
  TORCH_CHECK(json.is_array(), what, ": ", in_quotes(json.dump()), " is no list");
  std::vector<int64_t> result;
  for (const Json& number : json) {
    result.push_back(to_int(number, what));
    TORCH_CHECK(result.back() >= 0, what, " has the number ", result.back());
  }
  return result;
}

/// Adds the tensors of one file.
void add_file(std::map<std::string, Divided>& all, const SafetensorsFile& file) {
  const std::string what = "The file " + in_quotes(file.path());
  const auto text = file.metadata().find(kBoxes);
  const Json boxes = text == file.metadata().end()
      ? Json::object()
      : parse_json(text->second, what);
  TORCH_CHECK(boxes.is_object(), what, ": ", kBoxes, " is no JSON object");
  for (const auto& info : file.tensors()) {
    const std::string tensor = what + ": tensor " + in_quotes(info.name);
    std::vector<int64_t> shape = info.shape;
    std::vector<int64_t> offset(info.shape.size(), 0);
    std::vector<int64_t> blocks(info.shape.size(), 1);
    const auto box = boxes.find(info.name);
    if (box != boxes.end()) {
      TORCH_CHECK(
          box->is_array() && (box->size() == 2 || box->size() == 3), tensor,
          ": no sizes and offset");
      shape = numbers((*box)[0], tensor);
      offset = numbers((*box)[1], tensor);
      if (box->size() == 3) {
        blocks = numbers((*box)[2], tensor);
      }
    }
    bool fits = shape.size() == info.shape.size() &&
        offset.size() == info.shape.size() && blocks.size() == info.shape.size();
    for (size_t i = 0; fits && i < shape.size(); ++i) {
      const int64_t rows = info.shape[i];
      // No more blocks than rows: they are gone over.
      fits = rows <= shape[i] && blocks[i] > 0 &&
          blocks[i] <= std::max<int64_t>(1, rows) && rows % blocks[i] == 0 &&
          shape[i] % blocks[i] == 0 &&
          offset[i] <= (shape[i] - rows) / blocks[i];
    }
    TORCH_CHECK(
        fits, tensor, " of sizes ", at::IntArrayRef(info.shape), " at ",
        at::IntArrayRef(offset), " of blocks ", at::IntArrayRef(blocks),
        " is no part of one of sizes ", at::IntArrayRef(shape));
    const auto place =
        all.emplace(info.name, Divided{info.dtype, shape, blocks, {}}).first;
    TORCH_CHECK(
        place->second.dtype == info.dtype && place->second.shape == shape,
        tensor, " is a part of ", info.dtype, ' ', at::IntArrayRef(shape),
        ", in ", describe(place->second.boxes.front()), " of ",
        place->second.dtype, ' ', at::IntArrayRef(place->second.shape));
    TORCH_CHECK(
        place->second.blocks == blocks, tensor, " is cut in blocks ",
        at::IntArrayRef(blocks), ", in ", describe(place->second.boxes.front()),
        " in blocks ", at::IntArrayRef(place->second.blocks));
    place->second.boxes.push_back({file, info.name, offset, info.shape});
  }
}

/// In one block, and so in each.
bool overlap(const Box& a, const Box& b, const std::vector<int64_t>& blocks) {
  for (size_t i = 0; i < a.sizes.size(); ++i) {
    if (std::max(a.offset[i], b.offset[i]) >=
        std::min(
            a.offset[i] + a.sizes[i] / blocks[i],
            b.offset[i] + b.sizes[i] / blocks[i])) {
      return false;
    }
  }
  return true;
}

/// Products of sizes that fit into a file each, of which the shape need not.
double volume(const std::vector<int64_t>& sizes) {
  double result = 1;
  for (const int64_t size : sizes) {
    result *= static_cast<double>(size);
  }
  return result;
}

/// Every element is in one box.
void check_complete(const std::string& name, const Divided& tensor) {
  double held = 0;
  for (size_t i = 0; i < tensor.boxes.size(); ++i) {
    held += volume(tensor.boxes[i].sizes);
    for (size_t j = 0; j < i; ++j) {
      TORCH_CHECK(
          !overlap(tensor.boxes[i], tensor.boxes[j], tensor.blocks), "Tensor ",
          in_quotes(name), ": what ", describe(tensor.boxes[i]), " and ",
          describe(tensor.boxes[j]), " hold of it overlaps");
    }
  }
  TORCH_CHECK(
      held == volume(tensor.shape), "Tensor ", in_quotes(name), " of sizes ",
      at::IntArrayRef(tensor.shape), " is not complete: its parts have ", held,
      " elements");
}

/// Copies what the boxes have of the box at `offset` that has `to`'s sizes.
void copy_boxes(
    const Divided& tensor,
    at::Tensor& to,
    at::IntArrayRef offset) {
  for (const auto& box : tensor.boxes) {
    for (const auto& part :
         block_boxes(tensor.shape, box.sizes, box.offset, tensor.blocks)) {
      std::vector<int64_t> from, into, sizes;
      bool empty = false;
      for (size_t i = 0; i < part.sizes.size(); ++i) {
        const auto dim = static_cast<int64_t>(i);
        const int64_t begin = std::max(part.offset[i], offset[i]);
        const int64_t end =
            std::min(part.offset[i] + part.sizes[i], offset[i] + to.size(dim));
        empty = empty || begin >= end;
        from.push_back(part.within[i] + begin - part.offset[i]);
        into.push_back(begin - offset[i]);
        sizes.push_back(end - begin);
      }
      if (!empty) {
        at::Tensor place = box_of(to, into, sizes);
        copy_values(place, box_of(box.file.map(box.name), from, sizes));
      }
    }
  }
}

} // namespace

Pieces::Pieces(const StateDict& tensors, const PieceOf& piece_of) {
  for (const auto& item : tensors) {
    const auto piece = piece_of(item.value());
    values.insert(item.key(), piece ? piece->values : item.value());
    if (piece) {
      boxes.emplace(item.key(), *piece);
      sizes.emplace(item.key(), item.value().sizes().vec());
    }
  }
}

PieceFile piece_file(const Pieces& pieces, bool main) {
  PieceFile file;
  Json boxes = Json::object();
  for (const auto& item : pieces.values) {
    const auto box = pieces.boxes.find(item.key());
    if (box == pieces.boxes.end() ? !main : !box->second.writes) {
      continue;
    }
    file.tensors.insert(item.key(), item.value());
    if (box != pieces.boxes.end()) {
      auto& place = boxes[item.key()] = {
          pieces.sizes.at(item.key()), box->second.offset};
      if (!box->second.blocks.empty()) {
        place.push_back(box->second.blocks);
      }
    }
  }
  file.metadata = {{"format", "pt"}, {kBoxes, boxes.dump()}};
  return file;
}

TensorSources piece_sources(const std::vector<std::string>& paths) {
  std::map<std::string, Divided> all;
  for (const auto& path : paths) {
    add_file(all, SafetensorsFile(path));
  }
  TensorSources sources;
  for (auto& [name, divided] : all) {
    check_complete(name, divided);
    const auto tensor = std::make_shared<const Divided>(std::move(divided));
    const auto copy = [tensor](at::Tensor& to, at::IntArrayRef offset) {
      copy_boxes(*tensor, to, offset);
    };
    const std::vector<int64_t> origin(tensor->shape.size(), 0);
    sources.emplace(
        name,
        TensorSource{
            tensor->dtype,
            tensor->shape,
            [tensor, copy, origin] {
              auto whole = at::empty(tensor->shape, at::TensorOptions(tensor->dtype));
              copy(whole, origin);
              return whole;
            },
            [copy, origin](at::Tensor& to) { copy(to, origin); },
            copy});
  }
  return sources;
}

} // namespace accel::checkpoint
