// Rows in place of tokens, on CUDA: what takes the place of embeddings, and what layers add.
//
// Copies from the host wait for the stream where the memory is not pinned, so all of them come in
// front of the first layer.
#include "models/cuda/decoder_ops.h"

namespace mlc_native {

using kernels::cuda::CopyToDevice;
using kernels::cuda::MoveRows;

// The embeddings are there. What of them counts for rows, too, are learned positions.
void CudaDecoder::Ops::PlaceInputRows(const InputRows& rows) const {
  const int64_t hidden = config_.hidden_size;
  const int64_t width = config_.input_size();
  float* const place = residual_ + rows.first_row * hidden;
  float* const copy =
      buffers_.input_rows == nullptr ? place : buffers_.input_rows + rows.first_row * width;
  CopyToDevice(copy, rows.values, static_cast<size_t>(rows.num_rows * width) * sizeof(float),
               stream_);
  const float scale = config_.InputScale();
  if (copy != place || scale != 1) {
    MoveRows({.from = copy,
              .ld_from = width,
              .to = place,
              .ld_to = hidden,
              .scale = scale,
              .m = rows.num_rows,
              .k = hidden},
             stream_);
  }
  if (weights_.positions == nullptr) return;
  MoveRows({.from_dtype = weights_.dtype,
            .from = weights_.positions,
            .ld_from = hidden,
            .from_rows = batch_.positions + rows.first_row,
            .to = place,
            .ld_to = hidden,
            .adds = true,
            .m = rows.num_rows,
            .k = hidden},
           stream_);
}

// DeepStack: part 1 + layer of each row.
void CudaDecoder::Ops::AddInputRows(size_t layer) {
  if (const Added added = TakeAdded(); added.output != nullptr) LaunchAddNorm(added, {}, nullptr);
  const int64_t hidden = config_.hidden_size;
  const int64_t width = config_.input_size();
  const int64_t part = (static_cast<int64_t>(layer) + 1) * hidden;
  for (const InputRows& rows : batch_.input_rows) {
    MoveRows({.from = buffers_.input_rows + rows.first_row * width + part,
              .ld_from = width,
              .to = residual_ + rows.first_row * hidden,
              .ld_to = hidden,
              .adds = true,
              .m = rows.num_rows,
              .k = hidden},
             stream_);
  }
}

}  // namespace mlc_native
