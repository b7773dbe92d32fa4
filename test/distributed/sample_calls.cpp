#include "sample_calls.h"

#include "device.h"
#include "other_order.h"
#include "plain_calls.h"
#include "sample_exclusions.h"
#include "sample_table.h"

#include <ATen/ATen.h>
#include <ATen/core/jit_type.h>

#include <algorithm>
#include <map>
#include <unordered_map>

namespace accel::distributed::test {
namespace {

at::Tensor as_it_is(const at::Tensor& tensor) {
  return tensor;
}

/// Whether the CPU refuses a call only because it has no kernel for it.
bool lacks_kernel(const std::string& error) {
  for (const char* text :
       {"not implemented", "Could not run", "No kernel", "CUDA", "cuda", "GPU",
        "cuDNN", "cudnn", "not supported"}) {
    if (error.find(text) != std::string::npos) {
      return true;
    }
  }
  return false;
}

/// Throws where the CPU would refuse these values, such as an index behind the
/// end: on a CUDA device that would be the end of the process.
void check_on_host(const c10::OperatorHandle& op, const torch::jit::Stack& arguments) {
  auto stack = changed(
      arguments, [](const at::Tensor& tensor) { return tensor.cpu(); });
  for (auto& value : stack) {
    if (value.isDevice()) {
      value = at::Device(at::kCPU);
    }
  }
  try {
    results_of(op, stack);
  } catch (const std::exception& error) {
    // The simulated device has the CPU's kernels.
    if (!device().is_cuda() || !lacks_kernel(error.what())) {
      throw;
    }
  }
}

std::string first_line(const std::string& text) {
  return text.substr(0, text.find('\n'));
}

/// For every argument of `form` but those of `out=` the index of the argument of
/// `base` that is passed for it: the one at its place, or of its name, where some
/// are left out (`zeros_like.out` has no dtype). Empty where the types are others.
std::vector<size_t> passed(
    const c10::FunctionSchema& form,
    const c10::FunctionSchema& base) {
  std::vector<size_t> from;
  const auto inputs = [](const c10::FunctionSchema& schema) {
    return std::count_if(
        schema.arguments().begin(), schema.arguments().end(),
        [](const c10::Argument& argument) { return !argument.is_out(); });
  };
  const bool all = inputs(form) == inputs(base);
  for (const auto& argument : form.arguments()) {
    if (argument.is_out()) {
      continue;
    }
    const auto named = base.argumentIndexWithName(argument.name());
    const size_t i = all ? from.size()
        : named         ? static_cast<size_t>(*named)
                        : base.arguments().size();
    if (i >= base.arguments().size() ||
        base.arguments()[i].type()->str() != argument.type()->str()) {
      return {};
    }
    from.push_back(i);
  }
  return from;
}

bool has_out(const c10::FunctionSchema& schema) {
  return !schema.arguments().empty() && schema.arguments().back().is_out();
}

/// Names of operators of which `name` may be a form.
std::vector<std::string> bases_of(const std::string& name) {
  std::vector<std::string> bases{name, name + "_"};
  const auto cut_end = [&](const std::string& end) {
    if (name.size() > end.size() &&
        name.compare(name.size() - end.size(), end.size(), end) == 0) {
      bases.push_back(name.substr(0, name.size() - end.size()));
    }
  };
  cut_end("_");
  cut_end("_copy");
  const std::string unsafe = "aten::unsafe_";
  if (name.rfind(unsafe, 0) == 0) {
    bases.push_back("aten::" + name.substr(unsafe.size()));
  }
  return bases;
}

/// Whether the call says what dtype its tensors have or become.
bool names_dtype(const SampleCall& call) {
  const auto& arguments = call.op.schema().arguments();
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (arguments[i].name().find("dtype") != std::string::npos &&
        !call.arguments[i].isNone()) {
      return true;
    }
  }
  return false;
}

/// The arguments of `base`'s call for one of its forms; tensors to write to have
/// the sizes and dtypes of the results.
torch::jit::Stack arguments_for(
    const c10::FunctionSchema& schema,
    const std::vector<size_t>& from,
    const SampleCall& base) {
  std::vector<at::Tensor> results;
  std::vector<c10::IValue> lists;
  if (has_out(schema)) {
    for (const auto& result : results_of(base.op, base.arguments)) {
      if (result.isTensorList()) {
        lists.push_back(result);
      } else {
        TORCH_CHECK(result.isTensor(), "a result that is no tensor");
        results.push_back(result.toTensor());
      }
    }
  }
  const auto to_write = [](const at::Tensor& like) {
    TORCH_CHECK(like.defined(), "an undefined result");
    return at::ones_like(like, at::MemoryFormat::Contiguous);
  };
  torch::jit::Stack stack;
  size_t input = 0;
  size_t result = 0;
  size_t list = 0;
  for (const auto& argument : schema.arguments()) {
    if (!argument.is_out()) {
      stack.push_back(base.arguments.at(from.at(input++)));
    } else if (argument.type()->kind() == c10::TypeKind::TensorType) {
      stack.emplace_back(to_write(results.at(result++)));
    } else {
      stack.push_back(changed(lists.at(list++), to_write));
    }
  }
  return stack;
}

/// Makes the samples; see sample_calls.h.
class Collector {
 public:
  Collector(SampleCalls& all, const SampleOptions& options)
      : all_(all), options_(options) {}

  void add_table(const std::string& path) {
    const auto file = path.substr(path.rfind('/') + 1);
    for (auto& call : read_sample_table(path, all_.unknown)) {
      auto origin = file + ":" + std::to_string(call.line);
      if (call.n != 0) {
        origin += " N=" + std::to_string(call.n);
      }
      try {
        auto arguments = accepted(call.op, call.arguments);
        add(call.op, std::move(arguments), std::move(origin));
      } catch (const std::exception& error) {
        all_.refused_lines.push_back(
            origin + ": " + full_name(call.op.operator_name()) + ": " +
            first_line(error.what()));
      }
    }
    for (const auto& sample : all_.calls) {
      all_.names.insert(sample.name);
    }
  }

  /// The first calls of operators that have no line.
  void add_recorded(const GoldenCalls& recorded) {
    constexpr int64_t kEach = 3;
    std::map<std::string, int64_t> taken;
    for (const auto& call : recorded.calls()) {
      const auto name = full_name(call.op.operator_name());
      if (all_.names.count(name) != 0 || taken[name] == kEach) {
        continue;
      }
      try {
        auto arguments = accepted(call.op, recorded.arguments(call, as_it_is));
        ++taken[name];
        add(call.op, std::move(arguments),
            "calls.jsonl:" + std::to_string(call.line));
      } catch (const std::exception& error) {
        refused_here(name, error);
      }
    }
  }

  void add_forms() {
    std::unordered_map<std::string, std::vector<size_t>> by_name;
    for (size_t i = 0; i < all_.calls.size(); ++i) {
      by_name[all_.calls[i].op.schema().name()].push_back(i);
    }
    auto& dispatcher = c10::Dispatcher::singleton();
    auto names = dispatcher.getAllOpNames();
    std::sort(names.begin(), names.end(), [](const auto& a, const auto& b) {
      return full_name(a) < full_name(b);
    });
    const std::set<std::string> have = [&] {
      std::set<std::string> made;
      for (const auto& call : all_.calls) {
        made.insert(call.name);
      }
      return made;
    }();
    for (const auto& name : names) {
      const auto op = dispatcher.findSchema(name);
      if (op && name.name.rfind("aten::", 0) == 0 &&
          have.count(full_name(name)) == 0 &&
          may_have_sample(full_name(name))) {
        add_form(*op, by_name);
      }
    }
  }

  void add_dtypes() {
    const size_t count = all_.calls.size();
    for (size_t i = 0; i < count; ++i) {
      // A copy: the vector grows.
      const auto call = all_.calls[i];
      // One size of a line is enough.
      if (call.origin.find(" N=8") != std::string::npos ||
          call.origin.find(" N=2") != std::string::npos) {
        continue;
      }
      for (const auto dtype : {at::kHalf, at::kLong, at::kBool}) {
        add_dtype(call, dtype);
      }
    }
  }

 private:
  void add(
      const c10::OperatorHandle& op,
      torch::jit::Stack arguments,
      std::string origin,
      bool first_dtype = true) {
    all_.calls.push_back(
        {full_name(op.operator_name()), op, std::move(origin),
         std::move(arguments), first_dtype});
  }

  void add_form(
      const c10::OperatorHandle& op,
      const std::unordered_map<std::string, std::vector<size_t>>& by_name) {
    // Many lines are one too many: a form shares the rule with its base.
    constexpr int kEach = 6;
    int added = 0;
    for (const auto& base : bases_of(op.schema().name())) {
      const auto found = by_name.find(base);
      if (found == by_name.end()) {
        continue;
      }
      for (const size_t i : found->second) {
        const auto& call = all_.calls[i];
        const bool other_size = call.origin.find(" N=8") != std::string::npos ||
            call.origin.find(" N=2") != std::string::npos;
        if (added == (has_out(op.schema()) ? 1 : kEach) || other_size ||
            has_out(call.op.schema())) {
          continue;
        }
        const auto from = passed(op.schema(), call.op.schema());
        if (from.empty()) {
          continue;
        }
        try {
          auto arguments = arguments_for(op.schema(), from, call);
          try_call(op, arguments);
          // Before `add`, which moves the calls.
          auto origin = "form of " + call.origin;
          const bool of_table = all_.names.count(call.name) != 0;
          add(op, std::move(arguments), std::move(origin));
          if (of_table) {
            all_.names.insert(all_.calls.back().name);
          }
          ++added;
        } catch (const std::exception& error) {
          ++all_.refused;
          refused_here(full_name(op.operator_name()), error);
        }
      }
      if (added > 0) {
        return;
      }
    }
  }

  void add_dtype(const SampleCall& call, at::ScalarType dtype) {
    // LibTorch 2.9 divides by zero here (half steps, as whole numbers).
    if (names_dtype(call) || (dtype == at::kLong && call.name == "aten::mvlgamma_")) {
      return;
    }
    bool any = false;
    auto arguments = changed(call.arguments, [&](const at::Tensor& tensor) {
      if (tensor.scalar_type() != at::kDouble || tensor.layout() != at::kStrided) {
        return tensor;
      }
      any = true;
      return dtype == at::kBool ? tensor > 0
          : dtype == at::kLong  ? (tensor * 3).round().to(at::kLong)
                                : tensor.to(dtype);
    });
    if (!any) {
      return;
    }
    try {
      try_call(call.op, arguments);
    } catch (const std::exception&) {
      ++all_.refused;
      return;
    }
    add(call.op, std::move(arguments), call.origin + " " + c10::toString(dtype),
        /*first_dtype=*/false);
  }

  /// The call on plain tensors; throws where it is refused.
  void try_call(const c10::OperatorHandle& op, const torch::jit::Stack& arguments) {
    if (device().is_cpu()) {
      results_of(op, arguments);
      return;
    }
    const int64_t number = tried_++;
    if (options_.trying) {
      options_.trying(number, full_name(op.operator_name()));
    }
    TORCH_CHECK(
        options_.without.count(number) == 0, "ends the process (call ", number, ")");
    const char* why = why_not_on_device(op, arguments);
    TORCH_CHECK(why == nullptr, why);
    check_on_host(op, arguments);
    try {
      results_of(op, arguments);
      finish_device();
    } catch (const std::exception&) {
      if (!device_works()) {
        throw DeviceIsLost();
      }
      throw;
    }
  }

  /// The arguments on the device; where it refuses them so, with one of their
  /// small tensors on the host (lengths, numbers).
  torch::jit::Stack accepted(
      const c10::OperatorHandle& op,
      const torch::jit::Stack& arguments) {
    auto moved = on_device(op.schema(), arguments);
    try {
      try_call(op, moved);
      return moved;
    } catch (const std::exception&) {
      if (device().is_cpu()) {
        throw;
      }
      for (size_t i = 1; i < moved.size(); ++i) {
        if (!arguments[i].isTensor() || !arguments[i].toTensor().defined() ||
            arguments[i].toTensor().dim() > 1) {
          continue;
        }
        auto mixed = moved;
        mixed[i] = arguments[i];
        try {
          try_call(op, mixed);
          return mixed;
        } catch (const std::exception&) {
        }
      }
      throw;
    }
  }

  void refused_here(const std::string& name, const std::exception& error) {
    if (!device().is_cpu()) {
      all_.refused_on_device.emplace(name, first_line(error.what()));
    }
  }

  SampleCalls& all_;
  const SampleOptions& options_;
  int64_t tried_ = 0;
};

} // namespace

SampleCalls sample_calls(
    const std::vector<std::string>& tables,
    const GoldenCalls* recorded,
    const SampleOptions& options) {
  SampleCalls all;
  Collector collector(all, options);
  for (const auto& table : tables) {
    collector.add_table(table);
  }
  if (recorded != nullptr) {
    collector.add_recorded(*recorded);
  }
  if (options.forms) {
    collector.add_forms();
  }
  if (options.dtypes) {
    collector.add_dtypes();
  }
  if (options.other_order) {
    lay_out_in_other_order(all);
  }
  for (const auto& call : all.calls) {
    all.refused_on_device.erase(call.name);
  }
  return all;
}

torch::jit::Stack arguments_of(
    const SampleCall& sample,
    const std::function<at::Tensor(const at::Tensor&)>& place) {
  return changed(sample.arguments, [&](const at::Tensor& tensor) {
    return place(copy_of(tensor));
  });
}

} // namespace accel::distributed::test
