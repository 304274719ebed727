// The op `sample` on the CPU: the engine's sampler, row after row.
#include <algorithm>
#include <limits>
#include <span>

#include "kernels/cuda/sample_tokens.h"
#include "sampling/sampler.h"
#include "torch_ops/library.h"
#include "torch_ops/sampling.h"

namespace mlc_native::ops {
namespace {

// The code for a row that could not be sampled from, as on other devices.
int32_t SamplingCode(std::span<const float> logits) {
  const bool bad = std::ranges::any_of(
      logits, [](float x) { return !(x < std::numeric_limits<float>::infinity()); });
  return bad ? kernels::cuda::kBadLogits : kernels::cuda::kNothingAllowed;
}

void SampleRows(const SampleBatch& batch, Sampled* sampled) {
  Sampler sampler;
  const auto vocab = static_cast<size_t>(batch.logits.size(1));
  OptionalTensor mask;
  if (batch.mask) mask = torch::stable::contiguous(*batch.mask);
  const int64_t n = sampled->top_ids.size(1);
  torch::stable::fill_(sampled->top_ids, -1);
  torch::stable::fill_(sampled->top_logprobs, -std::numeric_limits<float>::infinity());
  for (size_t i = 0; i < batch.rows.size(); ++i) {
    const SampleRow& row = batch.rows[i];
    SamplingContext context{.config = &row.config,
                            .generated = row.generated.counts(),
                            .sequence = row.sequence,
                            .position = row.position};
    if (mask) {
      const auto words = static_cast<size_t>(mask->size(1));
      context.allowed = {mask->const_data_ptr<int32_t>() + i * words, words};
    }
    const std::span<float> logits(batch.logits.mutable_data_ptr<float>() + i * vocab, vocab);
    auto& token = sampled->tokens.mutable_data_ptr<int32_t>()[i];
    try {
      const SampleResult result = sampler.Sample(logits, context);
      token = result.token.token_id;
      if (row.config.logprobs) {
        sampled->logprobs.mutable_data_ptr<float>()[i] = result.token.logprob;
      }
      for (size_t j = 0; j < result.top_logprobs.size(); ++j) {
        const size_t at = i * static_cast<size_t>(n) + j;
        sampled->top_ids.mutable_data_ptr<int32_t>()[at] = result.top_logprobs[j].token_id;
        sampled->top_logprobs.mutable_data_ptr<float>()[at] = result.top_logprobs[j].logprob;
      }
    } catch (const SamplingError&) {
      token = SamplingCode(logits);
    }
  }
}

}  // namespace
}  // namespace mlc_native::ops

MLC_NATIVE_OPS_IMPL(CPU, m) {
  m.impl("sample", TORCH_BOX(&mlc_native::ops::Sample<&mlc_native::ops::SampleRows>));
}
