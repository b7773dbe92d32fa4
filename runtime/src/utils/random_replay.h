#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <vector>

namespace accel::detail {

/// The default generators of the CPU and of a device, as they are now, to be put back
/// into that state later.
class RandomState {
 public:
  /// `other`: a further generator that is drawn from; it may be undefined.
  explicit RandomState(c10::Device device, const at::Generator& other = {});

  /// They draw what they drew from here on.
  void restore() const;

 private:
  std::vector<at::Generator> all_;
  std::vector<at::Tensor> states_;
};

/// While it lives, random numbers are drawn as they were at `then`; later the
/// generators go on where they stood.
class RandomReplay {
 public:
  RandomReplay(const RandomState& then, c10::Device device) : now_(device) {
    then.restore();
  }
  ~RandomReplay() {
    now_.restore();
  }
  RandomReplay(const RandomReplay&) = delete;
  RandomReplay& operator=(const RandomReplay&) = delete;

 private:
  RandomState now_;
};

} // namespace accel::detail
