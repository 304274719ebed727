// CudaDecoderWeights are the weights of a CudaDecoder as views of device memory. Values.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/formats.h"
#include "weights/decoder_weights.h"

namespace mlc_native {

// A matrix [n, k] on the device, row-major or as PackGemvWeights makes it.
struct CudaMatrix {
  kernels::WeightFormat format = kernels::WeightFormat::kBFloat16;
  const void* data = nullptr;
  int64_t n = 0;
  int64_t k = 0;
};

struct CudaRope {
  const float* cos = nullptr;  // [positions, rotary_dim / 2]
  const float* sin = nullptr;
  const uint8_t* components = nullptr;  // [rotary_dim / 2]: RopeConfig::components; null: none
};

// Vectors have the decoder's type; kCorrection, kExpertScales, those of layers with linear
// attention and the matrices kRouter and kDeltaGates are float32. The matrices of a layer's experts
// have one format and one distance from each to the next, and so do their biases and the matrices
// of its heads. Of several devices that compute a model together, each has HeadRows of the head, or
// all of it where it is the table of embeddings.
struct CudaDecoderWeights : DecoderWeights<CudaMatrix, const void*> {
  const void* embeddings = nullptr;        // [vocab, hidden]
  const void* layer_embeddings = nullptr;  // [vocab, inputs of all layers]; null: none
  const void* positions = nullptr;      // [positions, hidden], added to the embeddings; null: none
  const void* text_types = nullptr;     // [types, hidden], likewise
  std::vector<CudaRope> ropes;          // as ModelConfig::ropes
  const float* query_scales = nullptr;  // [positions]; null: none
  kernels::DistanceBias distance_bias{};  // of the device's heads
  // Of a draft head: the token of the target of each of its own; null: the same.
  const int32_t* target_ids = nullptr;
};

}  // namespace mlc_native
