// accel_zoo: trains all models and writes what they note.
//
//   accel_zoo --plain --out FOLDER [--only NAME,…] [--without NAME,…] [--every N]
//     [--after NAME] [--device NAME]
//   accel launch --num-processes N accel_zoo --out FOLDER …
//   accel_zoo --list
//
// `--device cuda`: what the models make lies on such a device (default_device.h):
// the first one in the plain program, with accel each process's.
//
// Process n writes FOLDER/n.tsv: a line for each thing that is noted (model,
// name, type and sizes, values), and one at the beginning and the end of each
// model. A model that throws ends the program with status 3; `--after` goes on
// behind it.

#include "default_device.h"
#include "zoo.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <iostream>
#include <sstream>
#include <stdexcept>
#include <tuple>

namespace zoo {

std::vector<Model>& models() {
  static std::vector<Model> all;
  return all;
}

bool add(Model model) {
  auto& all = models();
  const auto place = std::upper_bound(
      all.begin(), all.end(), model, [](const Model& a, const Model& b) {
        return std::tie(a.accumulation, a.name) <
            std::tie(b.accumulation, b.name);
      });
  all.insert(place, std::move(model));
  return true;
}

void Run::backward(const Tensor& loss, bool retain_graph) const {
  const NoDefaultDevice as_written;
  if (accelerator_ == nullptr) {
    loss.backward({}, retain_graph);
  } else {
    accelerator_->backward(
        loss, accel::BackwardOptions().retain_graph(retain_graph));
  }
}

double Run::clip_grad_norm_(
    const std::vector<Tensor>& parameters,
    double max_norm) const {
  const NoDefaultDevice as_written;
  return accelerator_ == nullptr
      ? torch::nn::utils::clip_grad_norm_(parameters, max_norm)
      : accelerator_->clip_grad_norm_(parameters, max_norm);
}

Tensor Run::distribute(const Tensor& tensor, int64_t dim) const {
  const NoDefaultDevice as_written;
  return accelerator_ == nullptr ? tensor
                                 : accelerator_->distribute(tensor, dim);
}

Tensor Run::full(const Tensor& tensor) const {
  const NoDefaultDevice as_written;
  // In the plain program, too: there tensors are distributed where somebody runs
  // it with random placements (test/distributed/stress_placements.cpp).
  return accel::distributed::full_tensor(tensor);
}

at::Generator Run::generator(uint64_t seed) const {
  const auto device = torch::empty({0}).device();
  auto generator = at::globalContext().defaultGenerator(device).clone();
  generator.set_current_seed(seed);
  return generator;
}

void Run::update(torch::optim::Optimizer& optimizer, const Tensor& loss) {
  optimizer.zero_grad();
  backward(loss);
  optimizer.step();
  note("loss", loss.item<double>());
  if (++updates_ == 2) {
    note_state(optimizer);
  }
}

void Run::note(const std::string& what, double value) const {
  char text[32];
  std::snprintf(text, sizeof text, "%.17g", value);
  out_ << model_ << '\t' << what << "\tnumber\t" << text << '\n';
}

void Run::note(const std::string& what, const Tensor& value) const {
  const NoDefaultDevice on_the_host;
  const auto values =
      full(value.detach().to(torch::kDouble).contiguous()).cpu();
  out_ << model_ << '\t' << what << '\t' << value.dtype().name() << ' '
       << value.sizes() << '\t';
  const double* data = values.data_ptr<double>();
  for (int64_t i = 0; i < values.numel(); ++i) {
    char text[32];
    std::snprintf(text, sizeof text, i == 0 ? "%.17g" : " %.17g", data[i]);
    out_ << text;
  }
  out_ << '\n';
}

void Run::note_module(
    const std::string& prefix, const torch::nn::Module& module) const {
  for (const auto& all : {module.named_parameters(), module.named_buffers()}) {
    for (const auto& item : all) {
      note(prefix + item.key(), item.value());
    }
  }
}

namespace {

/// The tensors that LibTorch's optimizers keep for a parameter.
std::vector<Tensor> tensors_of(const optim::OptimizerParamState& state) {
  if (const auto* adam = dynamic_cast<const optim::AdamParamState*>(&state)) {
    return {adam->exp_avg(), adam->exp_avg_sq(), adam->max_exp_avg_sq()};
  }
  if (const auto* adamw = dynamic_cast<const optim::AdamWParamState*>(&state)) {
    return {adamw->exp_avg(), adamw->exp_avg_sq(), adamw->max_exp_avg_sq()};
  }
  if (const auto* sgd = dynamic_cast<const optim::SGDParamState*>(&state)) {
    return {sgd->momentum_buffer()};
  }
  if (const auto* rms = dynamic_cast<const optim::RMSpropParamState*>(&state)) {
    return {rms->square_avg(), rms->momentum_buffer(), rms->grad_avg()};
  }
  if (const auto* sums = dynamic_cast<const optim::AdagradParamState*>(&state)) {
    return {sums->sum()};
  }
  return {};
}

} // namespace

void Run::note_state(const optim::Optimizer& optimizer) const {
  const auto& state = optimizer.state();
  for (const auto& group : optimizer.param_groups()) {
    for (const auto& parameter : group.params()) {
      const auto found = state.find(parameter.unsafeGetTensorImpl());
      if (found != state.end()) {
        for (const auto& tensor : tensors_of(*found->second)) {
          if (tensor.defined()) {
            note("state", tensor);
          }
        }
      }
    }
  }
}

namespace {

struct Options {
  bool plain = false;
  bool list = false;
  std::string out;
  std::vector<std::string> only;
  std::vector<std::string> without;
  /// Of those that are left, one of so many.
  size_t every = 1;
  std::string after;
  std::optional<torch::Device> device;
};

Options parse(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    const auto value = [&] {
      if (++i >= argc) {
        throw std::invalid_argument(argument + " needs a value");
      }
      return std::string(argv[i]);
    };
    if (argument == "--plain") {
      options.plain = true;
    } else if (argument == "--list") {
      options.list = true;
    } else if (argument == "--out") {
      options.out = value();
    } else if (argument == "--every") {
      options.every = std::max<size_t>(1, std::stoul(value()));
    } else if (argument == "--after") {
      options.after = value();
    } else if (argument == "--device") {
      options.device = torch::Device(value());
    } else if (argument == "--only" || argument == "--without") {
      auto& list = argument == "--only" ? options.only : options.without;
      std::istringstream names(value());
      for (std::string name; std::getline(names, name, ',');) {
        list.push_back(name);
      }
    } else {
      throw std::invalid_argument("unknown argument '" + argument + "'");
    }
  }
  if (!options.list && options.out.empty()) {
    throw std::invalid_argument("--out FOLDER is missing");
  }
  auto named = options.only;
  named.insert(named.end(), options.without.begin(), options.without.end());
  for (const auto& name : named) {
    if (std::none_of(models().begin(), models().end(), [&](const Model& m) {
          return m.name == name;
        })) {
      throw std::invalid_argument("there is no model '" + name + "'");
    }
  }
  return options;
}

/// In the order in which they run.
std::vector<const Model*> chosen(const Options& options) {
  std::vector<const Model*> result;
  size_t count = 0;
  bool begun = options.after.empty();
  for (const auto& model : models()) {
    const bool named =
        std::count(options.only.begin(), options.only.end(), model.name) > 0;
    const bool left_out =
        std::count(
            options.without.begin(), options.without.end(), model.name) > 0;
    if (!left_out && (options.only.empty() ? !model.wrong : named) &&
        count++ % options.every == 0 && begun) {
      result.push_back(&model);
    }
    begun = begun || model.name == options.after;
  }
  return result;
}

void train(
    const Model& model,
    accel::Accelerator* accelerator,
    std::optional<torch::Device> device,
    std::ostream& out,
    const std::string& folder) {
  out << model.name << "\t#begin" << std::endl;
  const auto start = std::chrono::steady_clock::now();
  const auto error = [&](const char* what) {
    std::string line = what;
    std::replace(line.begin(), line.end(), '\n', ' ');
    out << model.name << "\t#error\t\t" << line << std::endl;
  };
  try {
    Run run(model.name, accelerator, out, folder);
    torch::manual_seed(20);
    {
      const DefaultDevice there(device);
      model.train(run);
      // As many random numbers as the plain program has drawn.
      run.note("next random number", torch::rand({1}).item<double>());
    }
    if (device) {
      run.note("next of the host", torch::rand({1}).item<double>());
    }
  } catch (const c10::Error& e) {
    error(e.what_without_backtrace());
    throw;
  } catch (const std::exception& e) {
    error(e.what());
    throw;
  }
  const std::chrono::duration<double> time =
      std::chrono::steady_clock::now() - start;
  out << model.name << "\t#end\tseconds\t" << time.count() << std::endl;
}

int run(const Options& options) {
  std::ofstream out;
  std::optional<accel::Accelerator> accelerator;
  int64_t accumulation = 0;
  for (const auto* model : chosen(options)) {
    if (!options.plain && model->accumulation != accumulation) {
      accelerator.reset();
      accumulation = model->accumulation;
      accelerator.emplace(accel::AcceleratorOptions()
                              .match_single_device(true)
                              .gradient_accumulation_steps(accumulation));
    }
    if (!out.is_open()) {
      const auto process = accelerator ? accelerator->process_index() : 0;
      out.open(
          options.out + "/" + std::to_string(process) + ".tsv",
          options.after.empty() ? std::ios::trunc : std::ios::app);
      if (!out) {
        throw std::runtime_error("cannot write into " + options.out);
      }
    }
    auto device = options.device;
    if (device && accelerator) {
      TORCH_CHECK(
          accelerator->device().type() == device->type(),
          "the accelerator's device is ",
          accelerator->device(),
          ", not one of ",
          *device);
      device = accelerator->device();
    }
    train(
        *model, accelerator ? &*accelerator : nullptr, device, out,
        options.out);
    if (accelerator) {
      accelerator->clear();
    }
  }
  return 0;
}

} // namespace
} // namespace zoo

int main(int argc, char** argv) {
  torch::set_default_dtype(caffe2::TypeMeta::Make<double>());
  try {
    const auto options = zoo::parse(argc, argv);
    if (options.list) {
      for (const auto& model : zoo::models()) {
        std::cout << model.name << (model.wrong ? "\twrong" : "") << '\n';
      }
      return 0;
    }
    return zoo::run(options);
  } catch (const std::invalid_argument& e) {
    std::cerr << "accel_zoo: " << e.what() << '\n';
    return 2;
  } catch (const c10::Error& e) {
    std::cerr << e.what() << '\n';
  } catch (const std::exception& e) {
    std::cerr << e.what() << '\n';
  }
  return 3;
}
