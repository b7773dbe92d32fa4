#include <accel/distributed/device_mesh.h>

#include "core/device_mesh.h"
#include "core/runtime.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <memory>
#include <set>
#include <sstream>

namespace accel {
namespace detail {
namespace {

std::string text_of(
    const std::vector<int64_t>& sizes,
    const std::vector<std::string>& names) {
  std::ostringstream text;
  text << "init_device_mesh({";
  for (size_t i = 0; i < sizes.size(); ++i) {
    text << (i == 0 ? "" : ", ") << sizes[i];
  }
  text << '}';
  for (size_t i = 0; i < names.size(); ++i) {
    text << (i == 0 ? ", {" : ", ") << '\'' << names[i] << '\'';
  }
  text << (names.empty() ? ")" : "})");
  return text.str();
}

/// Throws on all processes where one asks for another mesh. Collective.
void check_all_ask_for(const std::string& text) {
  constexpr int64_t kRoom = 1024;
  auto own = at::zeros({kRoom}, at::kByte);
  auto* bytes = own.mutable_data_ptr<uint8_t>();
  std::copy_n(text.data(), std::min<size_t>(text.size(), kRoom - 1), bytes);
  const auto all = communicator().all_gather(own);
  for (size_t rank = 1; rank < all.size(); ++rank) {
    const auto said = [&](size_t process) {
      return std::string(reinterpret_cast<const char*>(
          all[process].const_data_ptr<uint8_t>()));
    };
    TORCH_CHECK(
        at::equal(all[rank], all[0]),
        "accel: the processes ask for different meshes: process 0 calls ",
        said(0), ", process ", rank, " ", said(rank),
        ". All processes must call it with the same sizes and names.");
  }
}

void check_mesh(
    const std::vector<int64_t>& sizes,
    const std::vector<std::string>& names,
    int64_t processes) {
  const auto call = text_of(sizes, names);
  TORCH_CHECK(!sizes.empty(), "accel: ", call, ": a mesh has at least one axis.");
  int64_t product = 1;
  for (const int64_t size : sizes) {
    TORCH_CHECK(
        size >= 1 && size <= processes, "accel: ", call, ": an axis of ", size,
        " processes cannot be; there are ", processes, ".");
    product *= size;
  }
  TORCH_CHECK(
      product == processes, "accel: ", call, " is a mesh of ", product,
      " processes, but there are ", processes,
      ". The product of the sizes must be the number of processes.");
  TORCH_CHECK(
      names.empty() || names.size() == sizes.size(), "accel: ", call, ": ",
      names.size(), " names for ", sizes.size(),
      " axes. Give one for each, or none.");
  std::set<std::string> seen;
  for (const auto& name : names) {
    TORCH_CHECK(
        !name.empty(), "accel: ", call, ": an axis' name is empty. Give one to "
        "each axis, or leave the names out.");
    TORCH_CHECK(
        seen.insert(name).second, "accel: ", call, ": two axes have the name '",
        name, "'.");
  }
}

/// The processes along one axis that stand where this one does on the others.
struct Line {
  /// 0 to (number of processes / size of the axis) - 1.
  int64_t number = 0;
  std::vector<int64_t> processes;
};

Line line_of(const std::vector<int64_t>& sizes, size_t axis, int64_t rank) {
  int64_t step = 1;
  for (size_t behind = axis + 1; behind < sizes.size(); ++behind) {
    step *= sizes[behind];
  }
  const int64_t size = sizes[axis];
  const int64_t first = rank - rank / step % size * step;
  Line line;
  line.number = first / (step * size) * step + first % step;
  for (int64_t i = 0; i < size; ++i) {
    line.processes.push_back(first + i * step);
  }
  return line;
}

} // namespace

distributed::Axis* new_axis(
    Communicator& processes,
    int64_t mesh,
    int64_t index,
    const std::string& name,
    int64_t further,
    int64_t line) {
  static auto* const axes = new std::vector<std::unique_ptr<distributed::Axis>>();
  axes->push_back(std::make_unique<distributed::Axis>(
      &processes, mesh, index, name, further, line));
  return axes->back().get();
}

int64_t next_mesh() {
  static int64_t meshes = 0;
  return meshes++;
}

const std::vector<distributed::Axis*>& Runtime::mesh(
    const std::vector<int64_t>& sizes,
    const std::vector<std::string>& names) {
  // First, so that all processes throw where one asks for what cannot be.
  check_all_ask_for(text_of(sizes, names));
  check_mesh(sizes, names, state_->num_processes());
  for (const auto& mesh : meshes_) {
    if (mesh->sizes == sizes && mesh->names == names) {
      return mesh->axes;
    }
  }
  auto made = std::make_unique<Mesh>();
  made->sizes = sizes;
  made->names = names;
  const int64_t id = next_mesh();
  const auto title = [&] {
    std::string text = "accel::DeviceMesh(";
    for (size_t i = 0; i < sizes.size(); ++i) {
      text += (i == 0 ? "" : ", ") +
          (names.empty() ? std::to_string(i) : names[i]) + "=" +
          std::to_string(sizes[i]);
    }
    return text + ")";
  }();
  for (size_t i = 0; i < sizes.size(); ++i) {
    const auto line = line_of(sizes, i, state_->process_index());
    auto group = std::make_shared<OperationGroup>();
    group->key = "mesh/" + std::to_string(meshes_.size()) + "/" +
        std::to_string(i) + "/" + std::to_string(line.number);
    group->name =
        "axis " + (names.empty() ? std::to_string(i) : "'" + names[i] + "'") +
        " of " + title;
    group->processes = line.processes;
    made->axes.push_back(new_axis(
        world_->connect_group(group), id, static_cast<int64_t>(i),
        names.empty() ? "" : names[i],
        static_cast<int64_t>(sizes.size() - i - 1), line.number));
  }
  meshes_.push_back(std::move(made));
  return meshes_.back()->axes;
}

} // namespace detail

namespace distributed {

DeviceMesh::DeviceMesh()
    : axes_{&accel::detail::Runtime::require().axis()} {}

DeviceMesh init_device_mesh(
    const std::vector<int64_t>& sizes,
    const std::vector<std::string>& names) {
  return DeviceMesh(accel::detail::Runtime::require().mesh(sizes, names));
}

} // namespace distributed
} // namespace accel
