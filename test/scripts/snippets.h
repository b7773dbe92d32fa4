// What the pieces of code on the pages use and do not declare (snippets.py).
// Behind a line `//// PAGE` what only that page needs.

#include <accel/accel.h>
#include <accel/activation_checkpoint.h>
#include <accel/data/batch_codec.h>
#include <accel/data/rows.h>
#include <accel/data/seedable_random_sampler.h>
#include <accel/distributed/device_mesh.h>
#include <accel/distributed/tensor.h>
#include <accel/lomo.h>
#include <accel/operations.h>
#include <accel/optim/schedulers.h>
#include <accel/parallel/fully_sharded.h>
#include <accel/parallel/parallelism_config.h>
#include <accel/parallel/tensor_parallel.h>
#include <accel/profile.h>
#include <accel/stop.h>
#include <accel/tracking.h>
#include <accel/utils/environment.h>
#include <accel/utils/local_sgd.h>
#include <accel/utils/memory.h>
#include <accel/utils/progress.h>
#include <accel/utils/split.h>
#include <torch/torch.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <future>
#include <iostream>
#include <random>
#include <string>
#include <thread>
#include <vector>

using torch::Tensor;
using torch::data::transforms::Stack;

struct NetImpl : torch::nn::Module {
  Tensor forward(Tensor x);
};
TORCH_MODULE(Net);
struct Data : torch::data::datasets::Dataset<Data> {
  torch::data::Example<> get(size_t) override;
  torch::optional<size_t> size() const override;
};
using Loader = torch::data::StatelessDataLoader<
    torch::data::datasets::MapDataset<Data, Stack<>>,
    torch::data::samplers::RandomSampler>;

extern accel::Accelerator& accelerator;
extern Net net, model, generator;
extern std::unique_ptr<Loader> loader;
extern torch::data::Example<> batch;
extern Tensor output, target, loss, x, y, points, labels, accuracy;
extern accel::AcceleratedOptimizer<torch::optim::SGD> optimizer;
extern Tensor rows, ids;
extern torch::data::datasets::MapDataset<Data, Stack<>> data, dataset;
extern bool resume;
extern int64_t batches, warmup_steps;
extern char line[80];
extern int epoch, epochs, step;
extern int64_t steps;
extern std::string path;
std::tuple<Tensor, Tensor> next_batch(const Tensor& points);
struct TaggedWords {
  Tensor words, tags;
};
TaggedWords tagged_words();
struct Tagger {
  Tensor forward(const TaggedWords& batch);
};
extern std::shared_ptr<Tagger> tagger;
double elapsed();
extern double limit;
void save_image(const char* file, const Tensor& image);
void save_images(const char* file, const std::vector<Tensor>& images);
void save_image(const Tensor& image);
std::string output_of(const char* command);

namespace cv {
struct Mat {};
bool imwrite(const std::string& file, const Mat& image);
int waitKey(int milliseconds);
} // namespace cv
extern cv::Mat image;

struct MyBatch {
  Tensor image, label;
  int64_t length;
};

//// docs/index.md
Data dataset();

//// docs/distributed-tensors.md
extern Tensor data, weight, batch;

//// docs/parallelism.md
extern std::vector<torch::nn::Linear> blocks;
extern double learning_rate;

//// runtime/include/accel/activation_checkpoint.h
extern std::vector<torch::nn::Linear> blocks;

//// docs/tracking.md
struct Mine : accel::GeneralTracker {
  explicit Mine(const accel::TrackerArguments& arguments);
  std::string name() const override;
  bool requires_logging_directory() const override;
  void store_init_configuration(const accel::LogValues& values) override;
  void log(const accel::LogValues& values, std::optional<int64_t> step)
      override;
};

//// docs/rules/broadcast.md
extern volatile bool interrupted;
extern std::ofstream log;
extern std::random_device device;
extern std::uniform_int_distribution<int64_t> pick;
extern std::vector<double> times;
extern std::vector<int64_t> rows;
extern std::array<unsigned, 8> words;
namespace fs = std::filesystem;
std::string timestamp();

//// docs/rules/distribute.md
Tensor powers_of(const Tensor& x);
struct Memory {
  Tensor states;
};
extern Memory memory;

//// docs/rules/full.md
void plot(const float* values);

//// docs/rules/gather-metrics.md
extern Tensor data;
extern double loss;
extern int64_t correct;

//// docs/rules/input.md
extern std::string name;
extern int batch_size;

//// docs/rules/loader.md
extern Data set;

//// docs/rules/main-process-path.md
extern torch::serialize::OutputArchive archive;

//// docs/rules/main-process.md
extern std::vector<double> losses;
extern int n;
std::string run_folder(int number);
namespace plt {
void plot(const std::vector<double>& values);
}
namespace images {
void save_point(const char* file, double value);
}

//// docs/rules/optimizer.md
template <typename T>
struct Schedule {
  template <typename Optimizer>
  explicit Schedule(Optimizer& optimizer);
};

//// docs/rules/prepare.md
extern torch::Device device;

//// docs/rules/print.md
extern double loss;

//// docs/rules/seed.md
extern std::random_device device;

//// docs/findings/ACL0015.md
struct Trainer {
  explicit Trainer(Net net);
  void run();
};

//// docs/findings/ACL0105.md
extern int argc;
extern char** argv;
int MPI_Init(int* argc, char*** argv);

//// docs/findings/ACL0109.md
extern Tensor gradient;

//// docs/findings/ACL0135.md
struct ThreadPool {
  void enqueue(std::function<void()> task);
};
extern ThreadPool pool;
extern std::vector<Net> nets;
void train(Net& net, std::unique_ptr<Loader>& loader);

//// docs/findings/ACL0152.md
int print_banner();

//// docs/findings/ACL0154.md
namespace spdlog {
namespace level {
enum level_enum { off };
}
void set_level(level::level_enum level);
template <typename... Arguments>
void info(const char* format, Arguments&&... arguments);
} // namespace spdlog

//// docs/findings/ACL0160.md
struct NetImpl : torch::nn::Module {
  Tensor forward(Tensor x);
};
TORCH_MODULE(Net);

//// docs/findings/ACL0184.md
struct Trainer {};
Trainer make_trainer();

//// docs/findings/ACL0187.md
using Optimizer = torch::optim::Adam;
void warm_up();

//// docs/findings/ACL0185.md
// LibTorch's, whose headers need CUDA's.
namespace at::cuda {
struct CUDAStream {};
CUDAStream getStreamFromPool();
} // namespace at::cuda
namespace c10::cuda {
struct CUDAStreamGuard {
  explicit CUDAStreamGuard(at::cuda::CUDAStream stream);
};
} // namespace c10::cuda

//// runtime/include/accel/accelerator.h
void download_if_missing();

//// runtime/include/accel/output.h
namespace fmt {
template <typename... Arguments>
void print(std::FILE* file, const char* format, Arguments&&... arguments);
}

//// runtime/include/accel/data/seedable_random_sampler.h
extern Data dataset;
extern size_t size;

//// runtime/include/accel/distributed/device_mesh.h
using namespace accel::distributed;
extern Tensor weight, batch;

//// runtime/include/accel/utils/memory.h
extern accel::FindExecutableBatchSizeOptions options;
std::unique_ptr<Loader> make_loader(int64_t batch_size);
void train(std::unique_ptr<Loader> loader);

//// runtime/include/accel/utils/local_sgd.h
Tensor loss_of(const torch::data::Example<>& batch);

//// runtime/include/accel/utils/progress.h
extern int64_t batches_per_epoch;

//// runtime/include/accel/utils/split.h
using accel::split_between_processes;
