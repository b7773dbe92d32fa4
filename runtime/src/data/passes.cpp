// What loaders with the usual samplers and batches need, compiled once.

#include <accel/data/batch_dealer.h>
#include <accel/data/dealt_pass.h>
#include <accel/data/sampler_pass.h>

namespace accel::data {

template class SamplerPass<torch::data::samplers::RandomSampler>;
template class SamplerPass<torch::data::samplers::SequentialSampler>;

template class BatchDealer<torch::data::Example<>>;
template class BatchDealer<std::vector<torch::data::Example<>>>;

template class DealtPass<torch::data::Example<>>;
template class DealtPass<std::vector<torch::data::Example<>>>;

} // namespace accel::data
