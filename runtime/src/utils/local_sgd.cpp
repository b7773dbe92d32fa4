#include <accel/utils/local_sgd.h>

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <c10/util/Exception.h>

#include <exception>
#include <map>
#include <utility>

namespace accel {

LocalSGD::LocalSGD(
    detail::Communicator& communicator,
    std::vector<at::Tensor> parameters,
    int64_t local_sgd_steps,
    bool enabled)
    : communicator_(communicator),
      parameters_(std::move(parameters)),
      steps_(local_sgd_steps),
      enabled_(enabled && communicator.size() > 1),
      exceptions_(std::uncaught_exceptions()) {
  TORCH_CHECK(
      local_sgd_steps >= 1,
      "LocalSGD: local_sgd_steps must be at least 1, but is ",
      local_sgd_steps,
      ".");
  for (const auto& parameter : parameters_) {
    TORCH_CHECK(
        parameter.is_floating_point(),
        "LocalSGD averages floating-point parameters only, but one is ",
        parameter.scalar_type(),
        ".");
  }
}

LocalSGD::~LocalSGD() noexcept(false) {
  if (enabled_ && std::uncaught_exceptions() == exceptions_) {
    average();
  }
}

void LocalSGD::step() {
  if (!enabled_) {
    return;
  }
  if (++count_ % steps_ == 0) {
    average();
  }
}

void LocalSGD::average() {
  const at::NoGradGuard no_grad;
  // One message for each dtype and device instead of one for each parameter.
  std::map<std::pair<at::ScalarType, std::string>, std::vector<at::Tensor>>
      groups;
  for (const auto& parameter : parameters_) {
    groups[{parameter.scalar_type(), parameter.device().str()}].push_back(
        parameter);
  }
  for (auto& [kind, tensors] : groups) {
    std::vector<at::Tensor> flat;
    for (const auto& tensor : tensors) {
      flat.push_back(tensor.reshape({-1}));
    }
    auto sum = at::cat(flat);
    if (at::isReducedFloatingType(kind.first)) {
      sum = sum.to(at::kFloat);
    }
    communicator_.all_reduce(sum);
    sum.div_(static_cast<double>(communicator_.size()));
    int64_t offset = 0;
    for (auto& tensor : tensors) {
      tensor.copy_(
          sum.slice(0, offset, offset + tensor.numel()).view_as(tensor));
      offset += tensor.numel();
    }
  }
}

} // namespace accel
