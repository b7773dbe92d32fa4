#include "trainer.h"

#include <iostream>
#include <utility>

using torch::data::samplers::RandomSampler;
using torch::data::samplers::SequentialSampler;

Trainer::Trainer(BarNet model, Bars train, Bars validation, TrainerOptions options, torch::Device device)
    : options_(std::move(options)), device_(device), model_(std::move(model)), log_(options_.log_path) {
  model_->to(device_);
  optimizer_ = std::make_unique<torch::optim::AdamW>(
      model_->parameters(), torch::optim::AdamWOptions(options_.learning_rate));
  scheduler_ = std::make_unique<torch::optim::StepLR>(*optimizer_, 3, 0.5);
  train_loader_ = torch::data::make_data_loader<RandomSampler>(
      std::move(train).map(torch::data::transforms::Stack<>()), options_.batch_size);
  validation_loader_ = torch::data::make_data_loader<SequentialSampler>(
      std::move(validation).map(torch::data::transforms::Stack<>()), options_.batch_size);
  log_ << "epoch,train_loss,train_accuracy,loss,accuracy\n";
}

Metrics Trainer::fit() {
  Metrics best;
  int bad_epochs = 0;
  for (int epoch = 1; epoch <= options_.epochs; ++epoch) {
    const auto train = train_epoch();
    const auto validation = evaluate();
    scheduler_->step();
    log_ << epoch << ',' << train.loss << ',' << train.accuracy << ',' << validation.loss << ','
         << validation.accuracy << '\n';
    std::cout << "epoch " << epoch << ": train " << train.loss << " (" << 100 * train.accuracy
              << "%), validation " << validation.loss << " (" << 100 * validation.accuracy << "%)"
              << std::endl;
    if (epoch == 1 || validation.loss < best.loss) {
      best = validation;
      bad_epochs = 0;
      torch::save(model_, options_.model_path);
    } else if (++bad_epochs == options_.patience) {
      std::cout << "no improvement in " << options_.patience << " epochs" << std::endl;
      break;
    }
  }
  torch::load(model_, options_.model_path);
  return best;
}

Metrics Trainer::train_epoch() {
  model_->train();
  Metrics sum;
  int64_t samples = 0;
  for (auto& batch : *train_loader_) {
    auto images = batch.data.to(device_);
    auto labels = batch.target.to(device_);
    optimizer_->zero_grad();
    auto scores = model_->forward(images);
    auto loss = torch::nn::functional::cross_entropy(scores, labels);
    loss.backward();
    torch::nn::utils::clip_grad_norm_(model_->parameters(), options_.max_norm);
    optimizer_->step();
    sum.loss += loss.item<double>() * images.size(0);
    sum.accuracy += scores.argmax(1).eq(labels).sum().item<double>();
    samples += images.size(0);
  }
  return {sum.loss / samples, sum.accuracy / samples};
}

Metrics Trainer::evaluate() {
  torch::NoGradGuard no_grad;
  model_->eval();
  Metrics sum;
  int64_t samples = 0;
  for (auto& batch : *validation_loader_) {
    auto images = batch.data.to(device_);
    auto labels = batch.target.to(device_);
    auto scores = model_->forward(images);
    sum.loss += torch::nn::functional::cross_entropy(scores, labels).item<double>() * images.size(0);
    sum.accuracy += scores.argmax(1).eq(labels).sum().item<double>();
    samples += images.size(0);
  }
  return {sum.loss / samples, sum.accuracy / samples};
}
