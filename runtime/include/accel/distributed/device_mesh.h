#pragma once

#include <accel/export.h>

#include <cstdint>
#include <string>
#include <vector>

namespace accel::detail {
class Communicator;
} // namespace accel::detail

namespace accel::distributed {

class Axis;

/// The processes of this program as a grid of one or more axes, PyTorch's
/// `DeviceMesh`: process r of a mesh of sizes {a, b} stands at row r / b and
/// column r % b. A tensor has one placement for each axis.
///
/// A cheap handle: copies are the same mesh, and sub-meshes share its axes.
class ACCEL_API DeviceMesh {
 public:
  /// All processes of the Accelerator on one axis. Throws `c10::Error` where no
  /// Accelerator exists. Not collective; the mesh is made once.
  DeviceMesh();

  /// Number of axes.
  int64_t ndim() const {
    return static_cast<int64_t>(axes_.size());
  }
  /// Processes on one axis; throws where there is no such axis.
  int64_t size(int64_t axis) const;
  /// Processes on all axes.
  int64_t size() const;
  /// Where this process stands on an axis.
  int64_t coordinate(int64_t axis) const;
  /// The axis' name; empty where it has none.
  const std::string& name(int64_t axis) const;

  /// The sub-mesh of one axis through this process; PyTorch's `mesh["dp"]`.
  /// Throws where no axis has that name.
  DeviceMesh operator[](const std::string& name) const;
  /// The sub-mesh of several axes, in the mesh's order.
  DeviceMesh operator[](const std::vector<std::string>& names) const;

  /// Whether both have the same axes of the same mesh.
  bool operator==(const DeviceMesh& other) const {
    return axes_ == other.axes_;
  }
  bool operator!=(const DeviceMesh& other) const {
    return axes_ != other.axes_;
  }

  /// "accel::DeviceMesh(dp=2, tp=4)".
  std::string str() const;

  /// For the library and its tests: a mesh of these axes.
  explicit DeviceMesh(std::vector<Axis*> axes) : axes_(std::move(axes)) {}
  const std::vector<Axis*>& axes() const {
    return axes_;
  }

 private:
  std::vector<Axis*> axes_;
};

} // namespace accel::distributed
