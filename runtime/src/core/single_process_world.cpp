#include "core/world.h"

#include <ATen/ATen.h>

namespace accel::detail {
namespace {

class SingleProcessCommunicator : public Communicator {
 public:
  int64_t rank() const override {
    return 0;
  }
  int64_t size() const override {
    return 1;
  }
  void all_reduce(at::Tensor&) override {}
  Waiter all_reduce_async(at::Tensor&) override {
    return [] {};
  }
  std::vector<at::Tensor> all_gather(const at::Tensor& tensor) override {
    return {tensor.detach().clone()};
  }
  void broadcast(at::Tensor&, int64_t source) override {
    TORCH_CHECK(
        source == 0,
        "accel: broadcast from process ",
        source,
        ", but there is only process 0.");
  }
  void barrier() override {}
};

class SingleProcessWorld : public World {
 public:
  Communicator& communicator(Channel) override {
    return communicator_;
  }
  Communicator& connect_group(const OperationGroupPtr&) override {
    return communicator_;
  }
  std::vector<std::string> exchange_beside(
      const std::string&,
      const std::string& text,
      const std::atomic<bool>&) override {
    return {text};
  }
  void follow_first(const std::string&) override {}
  std::vector<std::string> leave(const std::string&) noexcept override {
    return {};
  }
  void abandon() noexcept override {}

 private:
  SingleProcessCommunicator communicator_;
};

} // namespace

std::unique_ptr<World> make_single_process_world() {
  return std::make_unique<SingleProcessWorld>();
}

std::unique_ptr<Communicator> make_single_process_communicator() {
  return std::make_unique<SingleProcessCommunicator>();
}

std::unique_ptr<World> World::connect(
    const Environment& environment,
    const Placement& placement,
    std::chrono::milliseconds timeout) {
  return environment.distributed()
      ? make_process_world(environment, placement, timeout)
      : make_single_process_world();
}

} // namespace accel::detail
