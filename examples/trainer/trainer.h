#pragma once

#include "data.h"
#include "model.h"

#include <torch/torch.h>

#include <cstdint>
#include <fstream>
#include <memory>
#include <string>

struct TrainerOptions {
  int epochs = 8;
  int64_t batch_size = 40;
  double learning_rate = 5e-3;
  double max_norm = 1;
  // Epochs without an improvement, after which training ends.
  int patience = 3;
  // Of the best model, and of a line for each epoch.
  std::string model_path = "trainer.pt";
  std::string log_path = "trainer.csv";
};

struct Metrics {
  double loss = 0;
  double accuracy = 0;
};

// Trains a model, keeps the best one, and stops when it does not improve.
class Trainer {
 public:
  using Dataset = torch::data::datasets::MapDataset<Bars, torch::data::transforms::Stack<>>;

  Trainer(BarNet model, Bars train, Bars validation, TrainerOptions options, torch::Device device);

  // The metrics of the best epoch.
  Metrics fit();

 private:
  Metrics train_epoch();
  Metrics evaluate();

  TrainerOptions options_;
  torch::Device device_;
  BarNet model_;
  std::unique_ptr<torch::optim::Optimizer> optimizer_;
  std::unique_ptr<torch::optim::LRScheduler> scheduler_;
  std::unique_ptr<torch::data::StatelessDataLoader<Dataset, torch::data::samplers::RandomSampler>> train_loader_;
  std::unique_ptr<torch::data::StatelessDataLoader<Dataset, torch::data::samplers::SequentialSampler>>
      validation_loader_;
  std::ofstream log_;
};
