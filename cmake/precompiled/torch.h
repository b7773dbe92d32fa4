// What a program that trains includes: nothing of accel's, so that a program
// that forgets one of accel's headers does not compile by chance.
#include <torch/torch.h>

// The virtual functions of LibTorch's modules are templates' members. Clang
// instantiates them where tables of virtual functions are made, which is at the
// end of a source and never in a precompiled header: in every source once more,
// used or not, which takes four fifths of the time of an empty one. They are
// called by name here, in functions that nobody calls, and so are instantiated
// with this header.
namespace accel_precompiled {

#define ACCEL_MODULES(MODULE)                                                                                           \
  MODULE(AdaptiveLogSoftmaxWithLoss) MODULE(Bilinear) MODULE(Conv1d) MODULE(Conv2d) MODULE(Conv3d)                      \
  MODULE(ConvTranspose1d) MODULE(ConvTranspose2d) MODULE(ConvTranspose3d) MODULE(CrossMapLRN2d) MODULE(Embedding)       \
  MODULE(EmbeddingBag) MODULE(Fold) MODULE(FractionalMaxPool2d) MODULE(FractionalMaxPool3d) MODULE(GRU)                 \
  MODULE(GRUCell) MODULE(GroupNorm) MODULE(LSTM) MODULE(LSTMCell) MODULE(LayerNorm) MODULE(Linear)                      \
  MODULE(LocalResponseNorm) MODULE(LogSoftmax) MODULE(ModuleDict) MODULE(MultiheadAttention) MODULE(ParameterDict)      \
  MODULE(RNN) MODULE(RNNCell) MODULE(Sequential) MODULE(Softmax) MODULE(Softmin) MODULE(Threshold)                      \
  MODULE(TransformerDecoder) MODULE(TransformerDecoderLayer) MODULE(TransformerEncoder)                                 \
  MODULE(TransformerEncoderLayer) MODULE(Unflatten) MODULE(Unfold)
#define ACCEL_CONVOLUTIONS(MODULE)                                                                                      \
  MODULE(1, Conv1d) MODULE(2, Conv2d) MODULE(3, Conv3d)                                                                 \
  MODULE(1, ConvTranspose1d) MODULE(2, ConvTranspose2d) MODULE(3, ConvTranspose3d)

#define MODULE(Name)                                                  \
  inline void clone(const torch::nn::Name##Impl& module) {            \
    (void)module.torch::nn::Cloneable<torch::nn::Name##Impl>::clone(); \
  }
ACCEL_MODULES(MODULE)
#undef MODULE

// A private member may be named where a template is instantiated explicitly.
template <auto>
struct Member {};
#define MODULE(Name) template struct Member<&torch::nn::Cloneable<torch::nn::Name##Impl>::clone_>;
ACCEL_MODULES(MODULE)
#undef MODULE

#define MODULE(Dimensions, Name)                                                            \
  inline void print(torch::nn::Name##Impl& module, std::ostream& stream) {                  \
    module.torch::nn::ConvNdImpl<Dimensions, torch::nn::Name##Impl>::reset();               \
    module.torch::nn::ConvNdImpl<Dimensions, torch::nn::Name##Impl>::pretty_print(stream);  \
  }
ACCEL_CONVOLUTIONS(MODULE)
#undef MODULE

template <c10::TypeKind Kind, typename Type>
bool equal(const Type& type) {
  return type.c10::template SingleElementType<Kind, Type>::equals(type);
}
inline void types(
    const c10::AwaitType& await,
    const c10::FutureType& future,
    const c10::ListType& list,
    const c10::RRefType& reference) {
  (void)(equal<c10::TypeKind::AwaitType>(await) && equal<c10::TypeKind::FutureType>(future) &&
         equal<c10::TypeKind::ListType>(list) && equal<c10::TypeKind::RRefType>(reference));
}

inline void batch(torch::data::datasets::TensorDataset& data) {
  (void)data.torch::data::datasets::Dataset<torch::data::datasets::TensorDataset, torch::data::TensorExample>::get_batch({});
}

#undef ACCEL_MODULES
#undef ACCEL_CONVOLUTIONS

} // namespace accel_precompiled
