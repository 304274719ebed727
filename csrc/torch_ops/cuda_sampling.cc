// The op `sample` on CUDA, as the engine's model samples the rows of a step.
#include <algorithm>
#include <span>

#include "models/cuda/sampling_inputs.h"
#include "torch_ops/cuda.h"
#include "torch_ops/sampling.h"

namespace mlc_native::ops {
namespace {

namespace cuda = kernels::cuda;

// The kernel's outputs for all rows. Those of log-probabilities have its fixed number of columns.
Sampled NewOutputs(const Sampled& sampled, bool has_logprobs) {
  const int64_t m = sampled.tokens.size(0);
  const int64_t columns = has_logprobs ? cuda::kMaxTopLogprobs : 0;
  return {.tokens = sampled.tokens,
          .logprobs = sampled.logprobs,
          .top_ids = Empty({m, columns}, sampled.top_ids, ScalarType::Int),
          .top_logprobs = Empty({m, columns}, sampled.top_logprobs, ScalarType::Float)};
}

int64_t LeadingDimension(int64_t vocab) { return (vocab + 3) / 4 * 4; }

// Returns rows that start at multiples of 16 bytes: the logits themselves, or a copy with a gap
// behind each row.
Tensor AlignedRows(const Tensor& logits) {
  const int64_t ld = LeadingDimension(logits.size(1));
  const auto address = reinterpret_cast<uintptr_t>(logits.data_ptr());
  if (ld == logits.size(1) && address % kCudaAlignment == 0) return logits;
  Tensor copy =
      Narrow(Empty({logits.size(0), ld}, logits, ScalarType::Float), 1, 0, logits.size(1));
  return torch::stable::copy_(copy, logits);
}

// Samples as many rows as `inputs` took, from row `begin` of the tensors on.
void SampleSome(const Tensor& logits, int64_t begin, int64_t size, const SamplingInputs& inputs,
                const Sampled& out, cuda::Stream stream) {
  const int64_t vocab = logits.size(1);
  const Tensor workspace = DeviceBytes(cuda::SampleWorkspaceBytes(size, vocab), logits);
  const auto rows = [&](const Tensor& x) {
    return x.numel() == 0 ? x : Narrow(x, 0, begin, x.size(0) - begin);
  };
  cuda::SampleTokens({.logits = rows(logits).mutable_data_ptr<float>(),
                      .ld = LeadingDimension(vocab),
                      .m = size,
                      .vocab = vocab,
                      .rows = inputs.rows(),
                      .positions = inputs.positions(),
                      .tokens = rows(out.tokens).mutable_data_ptr<int32_t>(),
                      .logprobs = rows(out.logprobs).mutable_data_ptr<float>(),
                      .top_ids = rows(out.top_ids).mutable_data_ptr<int32_t>(),
                      .top_logprobs = rows(out.top_logprobs).mutable_data_ptr<float>(),
                      .workspace = workspace.mutable_data_ptr()},
                     stream);
}

void SampleRows(const SampleBatch& batch, Sampled* sampled) {
  OptionalTensor mask;
  if (batch.mask) mask = ToHost(*batch.mask);
  std::vector<TokenRow> rows;
  for (size_t i = 0; i < batch.rows.size(); ++i) {
    const SampleRow& row = batch.rows[i];
    std::span<const int32_t> allowed;
    if (mask) {
      const auto words = static_cast<size_t>(mask->size(1));
      allowed = {mask->const_data_ptr<int32_t>() + i * words, words};
    }
    rows.push_back({.config = &row.config,
                    .counts = row.generated.counts(),
                    .sequence = row.sequence,
                    .position = row.position,
                    .allowed = allowed});
  }
  const Sampled out = NewOutputs(*sampled, batch.rows[0].config.logprobs);
  const Tensor logits = AlignedRows(batch.logits);
  const auto m = static_cast<int64_t>(rows.size());
  SamplingInputs inputs(logits.size(1), m);
  OnDevice(logits, [&](cuda::Stream stream) {
    for (int64_t begin = 0; begin < m;) {
      const int64_t size =
          inputs.Upload(std::span(rows).subspan(static_cast<size_t>(begin)), /*drawn=*/nullptr,
                        /*tokens=*/nullptr, stream);
      SampleSome(logits, begin, size, inputs, out, stream);
      begin += size;
    }
  });
  const int64_t columns = sampled->top_ids.size(1);
  if (columns == 0) return;
  torch::stable::copy_(sampled->top_ids, Narrow(out.top_ids, 1, 0, columns));
  torch::stable::copy_(sampled->top_logprobs, Narrow(out.top_logprobs, 1, 0, columns));
}

}  // namespace
}  // namespace mlc_native::ops

MLC_NATIVE_OPS_IMPL(MLC_NATIVE_OPS_CUDA_KEY, m) {
  m.impl("sample", TORCH_BOX(&mlc_native::ops::Sample<&mlc_native::ops::SampleRows>));
}
