// The entry of a draft head (draft_layout.h), which its forward computes instead of embeddings.
#include "models/cuda/decoder_ops.h"

namespace mlc_native {

using kernels::cuda::AddNorm;
using kernels::cuda::GatherRows;
using kernels::cuda::MoveRows;
using kernels::cuda::SetToZero;

void CudaDecoder::Ops::JoinTokensAndStates() {
  const DraftHeadConfig& head = *config_.draft_head;
  const auto& entry = weights_.entry;
  const int64_t hidden = config_.hidden_size;
  // The two halves of the joined rows lie one below the other first.
  void* const first = buffers_.halves;
  void* const second = Advance(first, decoder_.limits_.max_rows * hidden, weights_.dtype);
  void* const tokens = head.layout->states_first ? second : first;
  void* const states = head.layout->states_first ? first : second;
  const bool in_attention = head.layout->joins_in_attention;
  GatherEmbeddings();
  Round(residual_, entry.embedding_norm, hidden, num_rows_, tokens);
  TakeStates(states);
  const bool norm_first = !in_attention || head.norm_before_residual;
  if (norm_first) NormalizeColumns(states, hidden, entry.state_norm, 0, hidden);
  if (in_attention) KeepAsResidual(states, norm_first ? nullptr : entry.state_norm);
  GatherRows(first, batch_.joined_rows, 2 * num_rows_,
             hidden * static_cast<int64_t>(DTypeSize(weights_.dtype)), buffers_.joined, stream_);
  if (in_attention) return;
  LaunchLinear(LinearArgs(entry.fuse, buffers_.joined, buffers_.hidden));
  KeepAsResidual(buffers_.hidden, nullptr);
}

// The states of the target become one state in attention's heads, and are one in the others.
void CudaDecoder::Ops::TakeStates(void* out) {
  const DraftHeadConfig& head = *config_.draft_head;
  const bool of_target = batch_.target_states != nullptr;
  const bool is_joined = of_target && head.layout->joins_in_attention;
  const int64_t width = of_target ? config_.draft_input_size() : config_.hidden_size;
  MoveRows({.from = of_target ? batch_.target_states : buffers_.own_states,
            .ld_from = width,
            .from_rows = batch_.state_rows,
            .to_dtype = weights_.dtype,
            .to = is_joined ? buffers_.states : out,
            .ld_to = width,
            .m = num_rows_,
            .k = width},
           stream_);
  if (!is_joined) return;
  const auto& entry = weights_.entry;
  const int64_t one = head.target_hidden_size;
  NormalizeColumns(buffers_.states, width, entry.fuse_norm, 0, width);
  for (size_t i = 0; i < entry.state_norms.size(); ++i) {
    NormalizeColumns(buffers_.states, width, entry.state_norms[i], static_cast<int64_t>(i) * one,
                     one);
  }
  LaunchLinear(LinearArgs(entry.fuse, buffers_.states, out));
}

void CudaDecoder::Ops::Round(const float* x, const void* weight, int64_t dim, int64_t num_rows,
                             void* out) const {
  AddNorm({.dtype = weights_.dtype,
           .residual = const_cast<float*>(x),  // without `x`, it is only read
           .pre_weight = weight,
           .y = out,
           .weight_offset = config_.norm_weight_offset,
           .eps = config_.norm_eps,
           .m = num_rows,
           .dim = dim},
          stream_);
}

void CudaDecoder::Ops::NormalizeColumns(void* x, int64_t width, const void* weight, int64_t begin,
                                        int64_t columns) const {
  if (weight == nullptr) return;
  kernels::cuda::Normalize({.dtype = weights_.dtype,
                            .x = Advance(x, begin, weights_.dtype),
                            .ld = width,
                            .weight = weight,
                            .weight_offset = config_.norm_weight_offset,
                            .eps = config_.norm_eps,
                            .m = num_rows_,
                            .dim = columns},
                           stream_);
}

void CudaDecoder::Ops::KeepAsResidual(void* x, const void* weight) const {
  SetToZero(residual_, static_cast<size_t>(num_rows_ * config_.hidden_size) * sizeof(float),
            stream_);
  AddNorm({.dtype = weights_.dtype,
           .residual = residual_,
           .x = x,
           .pre_weight = weight,
           .y = weight != nullptr ? x : nullptr,
           .weight_offset = config_.norm_weight_offset,
           .eps = config_.norm_eps,
           .m = num_rows_,
           .dim = config_.hidden_size},
          stream_);
}

}  // namespace mlc_native
