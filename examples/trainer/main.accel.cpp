// A trainer class in several files: bars in four directions, told apart by a
// small residual network. For one device.
//
//   ./trainer [--epochs N] [--double]

#include "trainer.h"

#include <iomanip>
#include <iostream>
#include <string>
#include <accel/accel.h>

int main(int argc, char** argv) {
  accel::Accelerator accelerator(accel::AcceleratorOptions().match_single_device(true));
  TrainerOptions options;
  for (int i = 1; i < argc; ++i) {
    const std::string arg = argv[i];
    if (arg == "--double") {
      torch::set_default_dtype(caffe2::TypeMeta::Make<double>());
    } else if (arg == "--epochs" && i + 1 < argc) {
      options.epochs = std::stoi(argv[++i]);
    } else {
      std::cerr << "usage: trainer [--epochs N] [--double]" << std::endl;
      return 2;
    }
  }
  torch::manual_seed(4);
  accelerator.cout() << std::setprecision(12);
  torch::Device device = accelerator.device();

  Trainer trainer(BarNet(4), Bars(1200, /*seed=*/1), Bars(300, /*seed=*/2), options, device);
  const auto best = trainer.fit();
  accelerator.cout() << "best: validation " << best.loss << " (" << 100 * best.accuracy << "%)" << std::endl;
  return 0;
}
