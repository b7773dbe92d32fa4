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
  /// For the library: the axes, from the outermost.
  const std::vector<Axis*>& axes() const {
    return axes_;
  }

 private:
  std::vector<Axis*> axes_;
};

/// The processes as a grid of these sizes, PyTorch's `init_device_mesh`: process r
/// of `{2, 3}` stands at row r / 3 and column r % 3. `names`, one for each axis or
/// none, are what `mesh["name"]` and errors call the axes.
///
///     auto mesh = accel::distributed::init_device_mesh({2, 4}, {"dp", "tp"});
///     auto w = distribute_tensor(weight, mesh, {Replicate(), Shard(0)});
///     auto x = distribute_tensor(batch, mesh["dp"], {Shard(0)});
///
/// Every process must call it, in the same order and with the same arguments; it
/// connects them along each axis. Asked for again, it is the same mesh, and
/// tensors of both can meet. Tensors of different meshes cannot: bring them to
/// one with `full_tensor` and `distribute_tensor`.
///
/// Throws `c10::Error`, on all processes alike, where no Accelerator exists, where
/// the product of the sizes is not the number of processes, where a name is empty
/// or there twice, where there are more or fewer names than axes, and where the
/// processes ask for different meshes. With a process that has died it throws
/// naming it, after the start's timeout at the latest.
ACCEL_API DeviceMesh init_device_mesh(
    const std::vector<int64_t>& sizes,
    const std::vector<std::string>& names = {});

} // namespace accel::distributed
