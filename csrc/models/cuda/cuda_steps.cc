#include "models/cuda/cuda_steps.h"

#include <algorithm>

#include "support/check.h"

namespace mlc_native {

using kernels::cuda::SampleArgs;
using kernels::cuda::SampleWorkspaceBytes;

CudaSteps::CudaSteps(ModelDevice& device, CudaDecoder& decoder, const StepInputs::Limits& limits,
                     kernels::cuda::Stream stream, const Log& log)
    : device_(device),
      decoder_(decoder),
      limits_(limits),
      stream_(stream),
      inputs_(limits),
      graphs_(stream, log),
      sampling_inputs_(limits.vocab_size, limits.batch.max_num_logits),
      sampling_workspace_(SampleWorkspaceBytes(limits.batch.max_num_logits, limits.vocab_size)),
      drawn_(limits.batch.max_num_logits) {}

size_t CudaSteps::SamplingBytes(int64_t vocab_size, int64_t max_num_logits) {
  return SamplingInputs::Bytes(vocab_size, max_num_logits) +
         SampleWorkspaceBytes(max_num_logits, vocab_size) + DrawnTokens::Bytes(max_num_logits);
}

void CudaSteps::Forward(const ForwardBatch& batch) {
  device_.Run([&] {
    CudaBatch inputs = inputs_.Upload(batch, num_drawn_, stream_);
    inputs.sampled = drawn_.tokens();
    const std::span<const int32_t> streams = inputs.streams.streams;
    if (!streams.empty() && !std::ranges::equal(streams, streams_)) {
      graphs_.Clear();
      streams_.assign(streams.begin(), streams.end());
    }
    const auto forward = [&] { logits_ = decoder_.Forward(inputs); };
    if (inputs_.is_decode()) {
      graphs_.Run({.num_rows = inputs.num_rows,
                   .sampled = inputs.sampled,
                   .states_out = inputs.streams.out,
                   .target_states = inputs.target_states},
                  forward);
    } else {
      forward();
    }
    num_logits_ = batch.logits_rows.size();
  });
}

void CudaSteps::Sample(std::span<const TokenRow> rows) {
  MLC_CHECK(rows.size() == num_logits_) << rows.size() << " of " << num_logits_;
  device_.Run([&] {
    for (size_t first = 0; first < rows.size();) {
      const int64_t size = sampling_inputs_.Upload(rows.subspan(first), drawn_.tokens(), stream_);
      const auto at = static_cast<int64_t>(first);
      SampleArgs args{.logits = logits_ + at * decoder_.ld_logits(),
                      .ld = decoder_.ld_logits(),
                      .m = size,
                      .vocab = limits_.vocab_size,
                      .rows = sampling_inputs_.rows(),
                      .positions = sampling_inputs_.positions(),
                      .workspace = sampling_workspace_.data()};
      drawn_.PlaceInto(at, &args);
      kernels::cuda::SampleTokens(args, stream_);
      first += static_cast<size_t>(size);
    }
    drawn_.Submit(rows, stream_);
    num_drawn_ = static_cast<int64_t>(rows.size());
  });
}

void CudaSteps::Collect(std::vector<DrawnToken>* tokens) {
  device_.Run([&] { drawn_.Collect(tokens); });
}

}  // namespace mlc_native
