#include "models/cuda/sampling_inputs.h"

#include <algorithm>
#include <tuple>

#include "sampling/logit_processor.h"
#include "sampling/sampler.h"
#include "support/check.h"
#include "support/token_mask.h"

namespace mlc_native {
namespace {

using kernels::cuda::SamplingRow;

constexpr int64_t kUsualLength = 64;  // of a list of biases or counts

// Arrays that each row has.
size_t RowBytes(int64_t rows) {
  return UploadBuffer::ArrayBytes(rows, sizeof(SamplingRow)) +
         2 * UploadBuffer::ArrayBytes(rows, sizeof(int32_t));
}

bool IsBehind(const TokenRow& row) { return row.behind != TokenRow::kNone; }

}  // namespace

SamplingInputs::SamplingInputs(int64_t vocab_size, int64_t max_rows)
    : vocab_size_(vocab_size), buffer_(Bytes(vocab_size, max_rows)) {}

// Room for the longest lists of one row and for usual lists of all rows.
size_t SamplingInputs::Bytes(int64_t vocab_size, int64_t max_rows) {
  const size_t mask = UploadBuffer::ArrayBytes(TokenMaskWords(vocab_size), sizeof(int32_t));
  const size_t longest = 4 * UploadBuffer::ArrayBytes(vocab_size, sizeof(int32_t)) + mask;
  const size_t usual = mask + 4 * UploadBuffer::ArrayBytes(kUsualLength, sizeof(int32_t));
  return RowBytes(max_rows) + longest + static_cast<size_t>(max_rows) * usual;
}

size_t SamplingInputs::ListBytes(const TokenRow& row) const {
  if (row.scored_token != TokenRow::kNone) {
    return UploadBuffer::ArrayBytes(TokenMaskWords(vocab_size_), sizeof(int32_t));
  }
  const auto bias = static_cast<int64_t>(row.config->logit_bias.size());
  const int64_t counts = HasPenalties(*row.config) ? static_cast<int64_t>(row.counts.size()) : 0;
  return 2 * UploadBuffer::ArrayBytes(bias, sizeof(int32_t)) +
         2 * UploadBuffer::ArrayBytes(counts, sizeof(int32_t)) +
         UploadBuffer::ArrayBytes(static_cast<int64_t>(row.allowed.size()), sizeof(int32_t));
}

int64_t SamplingInputs::NumThatFit(std::span<const TokenRow> rows) const {
  size_t lists = 0;
  for (size_t i = 0; i < rows.size(); ++i) {
    lists += ListBytes(rows[i]);
    if (lists + RowBytes(static_cast<int64_t>(i) + 1) > buffer_.free()) {
      return static_cast<int64_t>(i);
    }
  }
  return static_cast<int64_t>(rows.size());
}

int64_t SamplingInputs::Upload(std::span<const TokenRow> rows, const int32_t* drawn,
                               const TokenMemory* tokens, kernels::cuda::Stream stream) {
  buffer_.Begin();
  const int64_t size = NumThatFit(rows);
  MLC_CHECK(size > 0) << rows.size() << " rows, " << buffer_.free() << " bytes";
  const auto packed = buffer_.Add(size, &rows_);
  const auto positions = buffer_.Add(size, &positions_);
  const int32_t* counts = nullptr;
  const bool adds_counts = std::ranges::any_of(rows.first(size), IsBehind);
  const auto behind = buffer_.Add(adds_counts ? size : 0, &counts);
  for (int64_t i = 0; i < size; ++i) {
    packed[i] = Pack(rows[i], drawn);
    positions[i] = static_cast<int32_t>(rows[i].position);
    if (adds_counts) behind[i] = rows[i].behind;
  }
  buffer_.Upload(stream);
  if (adds_counts) {
    kernels::cuda::AddCounts({.tokens = tokens->data(),
                              .counts = counts,
                              .values = const_cast<int32_t*>(positions_),
                              .m = size},
                             stream);
  }
  return size;
}

SamplingRow SamplingInputs::Pack(const TokenRow& row, const int32_t* drawn) {
  if (row.scored_token != TokenRow::kNone) return PackScored(row.scored_token);
  const GenerationConfig& config = *row.config;
  SamplingRow out;
  out.greedy = IsGreedy(config);
  out.inverse_temperature = InverseTemperature(config);
  out.top_p = static_cast<float>(config.top_p);
  out.min_p = static_cast<float>(config.min_p);
  out.top_k = std::max(config.top_k, 0);
  out.logprobs = config.logprobs;
  out.seed = static_cast<uint64_t>(config.seed.value_or(0));
  out.sequence = row.sequence;
  if (!config.logit_bias.empty()) {
    out.num_bias = static_cast<int32_t>(config.logit_bias.size());
    const auto ids = buffer_.Add(out.num_bias, &out.bias_ids);
    const auto values = buffer_.Add(out.num_bias, &out.bias_values);
    for (size_t i = 0; i < ids.size(); ++i) {
      ids[i] = config.logit_bias[i].first;
      values[i] = static_cast<float>(config.logit_bias[i].second);
    }
  }
  if (HasPenalties(config)) PackPenalties(row, drawn, &out);
  if (!row.allowed.empty()) {
    MLC_CHECK(static_cast<int64_t>(row.allowed.size()) >= TokenMaskWords(vocab_size_))
        << row.allowed.size() << " words of mask";
    std::ranges::copy(row.allowed,
                      buffer_.Add(static_cast<int64_t>(row.allowed.size()), &out.mask).begin());
  }
  return out;
}

// A draw that allows one token: log-probabilities are those of the model's own logits all the same.
SamplingRow SamplingInputs::PackScored(int32_t token_id) {
  SamplingRow out;
  out.greedy = true;
  out.logprobs = true;
  const auto mask = buffer_.Add(TokenMaskWords(vocab_size_), &out.mask);
  std::ranges::fill(mask, 0);
  SetTokenBit(mask, token_id, true);
  return out;
}

void SamplingInputs::PackPenalties(const TokenRow& row, const int32_t* drawn, SamplingRow* out) {
  const GenerationConfig& config = *row.config;
  out->presence_penalty = static_cast<float>(config.presence_penalty);
  out->frequency_penalty = static_cast<float>(config.frequency_penalty);
  out->repetition_penalty = static_cast<float>(config.repetition_penalty);
  out->num_counts = static_cast<int32_t>(row.counts.size());
  const auto ids = buffer_.Add(out->num_counts, &out->count_ids);
  const auto values = buffer_.Add(out->num_counts, &out->count_values);
  for (size_t i = 0; i < ids.size(); ++i) std::tie(ids[i], values[i]) = row.counts[i];
  if (row.pending_row != TokenRow::kNone) out->pending = drawn + row.pending_row;
}

}  // namespace mlc_native
