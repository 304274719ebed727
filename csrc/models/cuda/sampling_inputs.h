// What SampleTokens reads besides the logits: the rows' settings with their lists of biases, counts
// and masks, packed by the host and copied in one piece. Engine's thread only.
#pragma once

#include <span>

#include "kernels/cuda/sample_tokens.h"
#include "mlc_native/model.h"
#include "models/cuda/upload_buffer.h"

namespace mlc_native {

class SamplingInputs {
 public:
  // max_rows: of one call of SampleTokens.
  SamplingInputs(int64_t vocab_size, int64_t max_rows);

  static size_t Bytes(int64_t vocab_size, int64_t max_rows);

  // Packs the first of the rows, as many as there is room for, at least one, and returns their
  // number. `drawn`: on the device, the tokens of the step before, which pending_row is an index
  // of. `tokens`: of the counts that are added to positions; null if there are none.
  int64_t Upload(std::span<const TokenRow> rows, const int32_t* drawn, const TokenMemory* tokens,
                 kernels::cuda::Stream stream);
  // Of the last Upload, on the device.
  const kernels::cuda::SamplingRow* rows() const { return rows_; }
  const int32_t* positions() const { return positions_; }

 private:
  size_t ListBytes(const TokenRow& row) const;
  int64_t NumThatFit(std::span<const TokenRow> rows) const;
  kernels::cuda::SamplingRow Pack(const TokenRow& row, const int32_t* drawn);
  kernels::cuda::SamplingRow PackScored(int32_t token_id);
  void PackPenalties(const TokenRow& row, const int32_t* drawn, kernels::cuda::SamplingRow* out);

  const int64_t vocab_size_;
  UploadBuffer buffer_;
  const kernels::cuda::SamplingRow* rows_ = nullptr;
  const int32_t* positions_ = nullptr;
};

}  // namespace mlc_native
