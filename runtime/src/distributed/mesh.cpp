#include <accel/distributed/device_mesh.h>

#include "distributed/axis.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <numeric>

namespace accel::distributed {
namespace {

const Axis& axis_at(const DeviceMesh& mesh, int64_t axis) {
  TORCH_CHECK(
      axis >= 0 && axis < mesh.ndim(),
      "accel: ", mesh.str(), " has no axis ", axis, "; its axes are 0 to ",
      mesh.ndim() - 1, ".");
  return *mesh.axes()[axis];
}

} // namespace

int64_t DeviceMesh::size(int64_t axis) const {
  return axis_at(*this, axis).size();
}

int64_t DeviceMesh::size() const {
  int64_t product = 1;
  for (const auto* axis : axes_) {
    product *= axis->size();
  }
  return product;
}

int64_t DeviceMesh::coordinate(int64_t axis) const {
  return axis_at(*this, axis).rank();
}

const std::string& DeviceMesh::name(int64_t axis) const {
  return axis_at(*this, axis).name();
}

DeviceMesh DeviceMesh::operator[](const std::string& name) const {
  return (*this)[std::vector<std::string>{name}];
}

DeviceMesh DeviceMesh::operator[](const std::vector<std::string>& names) const {
  std::vector<Axis*> chosen;
  for (const auto& name : names) {
    const auto found = std::find_if(
        axes_.begin(), axes_.end(),
        [&](const Axis* axis) { return axis->name() == name; });
    TORCH_CHECK(
        found != axes_.end(),
        "accel: ", str(), " has no axis of the name '", name, "'.");
    chosen.push_back(*found);
  }
  std::sort(chosen.begin(), chosen.end(), [](const Axis* a, const Axis* b) {
    return a->index() < b->index();
  });
  TORCH_CHECK(
      std::adjacent_find(chosen.begin(), chosen.end()) == chosen.end(),
      "accel: an axis of ", str(), " was named twice.");
  return DeviceMesh(std::move(chosen));
}

std::string DeviceMesh::str() const {
  std::string text = "accel::DeviceMesh(";
  for (size_t i = 0; i < axes_.size(); ++i) {
    text += i == 0 ? "" : ", ";
    text += axes_[i]->name().empty() ? std::to_string(i) : axes_[i]->name();
    text += "=" + std::to_string(axes_[i]->size());
  }
  return text + ")";
}

} // namespace accel::distributed
