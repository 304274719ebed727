// CudaSteps is the StepQueue of a CudaModel: forwards and draws in order on one stream, with
// buffers that are allocated once. Of several devices that compute a model together, the first one
// draws, and the others take its tokens. A negative token in a batch is read on the device from the
// tokens that the previous step has drawn. Engine's thread only.
#pragma once

#include <vector>

#include "models/cuda/cuda_adapter.h"
#include "models/cuda/decode_graphs.h"
#include "models/cuda/decoder.h"
#include "models/cuda/drawn_tokens.h"
#include "models/cuda/model_device.h"
#include "models/cuda/sampling_inputs.h"
#include "models/cuda/step_inputs.h"
#include "models/cuda/upload_buffer.h"

namespace mlc_native {

class CudaSteps : public StepQueue {
 public:
  // All references must outlive the steps. Uses the current device. Throws OutOfDeviceMemory.
  CudaSteps(ModelDevice& device, CudaDecoder& decoder, const StepInputs::Limits& limits,
            kernels::cuda::Stream stream, const Log& log = {});

  // The device memory for so many rows of logits, except that of StepInputs.
  static size_t SamplingBytes(int64_t vocab_size, int64_t max_num_logits);

  void Forward(const ForwardBatch& batch) override;
  void Sample(std::span<const TokenRow> rows) override;
  void Collect(std::vector<DrawnToken>* tokens) override;
  void SampleInto(std::span<const TokenRow> rows, std::span<const int32_t> places) override;
  // All that was given so far has run.
  void HasRun() { adapters_.Release(num_sampled_ + 1); }
  // What is submitted from now on waits on the device for what `other` has been given so far.
  void WaitFor(CudaSteps& other);

  // The logits of the last Forward, on the device.
  const float* logits() const { return logits_; }

 private:
  void Draw(std::span<const TokenRow> rows);
  int32_t* DrawnOfNext() const;  // where Draw puts tokens

  ModelDevice& device_;
  CudaDecoder& decoder_;
  const StepInputs::Limits limits_;
  const kernels::cuda::Stream stream_;
  StepInputs inputs_;
  DecodeGraphs graphs_;
  std::vector<int32_t> streams_;  // of hidden states, that graphs_ copy
  SamplingInputs sampling_inputs_;
  kernels::cuda::DeviceMemory sampling_workspace_;
  DrawnTokens drawn_;
  UploadBuffer places_;            // of SampleInto
  kernels::cuda::Event given_;     // for queues that wait for this one
  TokenMemory* tokens_ = nullptr;  // of the last Forward
  float* logits_ = nullptr;
  size_t num_logits_ = 0;
  int64_t num_drawn_ = 0;  // rows of the last step that was sampled
  AdaptersInFlight adapters_;
  int64_t num_sampled_ = 0;  // steps of Sample, and those that have been collected
  int64_t num_collected_ = 0;
};

}  // namespace mlc_native
