// Rows whose q, k and v are not rotated yet, as RopeDecodeAttention and QkRopeWriteKv take them.
// The keys and values of their own tokens are NaN in the pages. One thread.
#pragma once

#include <algorithm>
#include <memory>
#include <random>
#include <vector>

#include "cuda/paged_kv.h"

namespace mlc_native::kernels::cuda {

struct RopeRule {
  int64_t rotary_dim = 0;  // 0: no rope
  bool has_norm = false;
  bool has_own_weights = false;  // of each head
  bool subtract_mean = false;
  bool rope_first = false;
  bool interleaved = false;
  bool scales_queries = false;
};

class RopeRows {
 public:
  // The same arguments make the same rows. Length 0: an unused row.
  RopeRows(const KvShape& shape, const std::vector<int64_t>& lengths, const RopeRule& rule,
           const std::vector<uint32_t>& seeds, int64_t window = 0)
      : paged(shape, lengths, seeds),
        m_(static_cast<int64_t>(lengths.size())),
        lengths_(std::vector<int32_t>(lengths.begin(), lengths.end())),
        positions_(lengths.size()),
        slots_(lengths.size()) {
    std::mt19937 random(7);
    std::uniform_real_distribution<float> uniform(-2, 2);
    const auto floats = [&](int64_t n) {
      Floats x(static_cast<size_t>(n));
      for (float& value : x) value = uniform(random);
      return x;
    };
    const auto activations = [&](int64_t n) {
      return std::make_unique<DeviceBytes>(Encode(shape.dtype, floats(n)));
    };
    const int64_t heads = shape.q_heads + 2 * shape.kv_heads;
    const int64_t weight_heads = rule.has_own_weights ? shape.q_heads : 1;
    const int64_t ld = heads * shape.head_dim + 8;
    qkv_ = activations(m_ * ld);
    q_norm_ = activations(weight_heads * shape.head_dim);
    k_norm_ = activations(weight_heads * shape.head_dim);
    int64_t max_length = 0, max_splits = 0;
    std::vector<int32_t> positions;
    std::vector<int64_t> slots;
    for (size_t i = 0; i < lengths.size(); ++i) {
      const int64_t last = lengths[i] - 1;
      max_length = std::max(max_length, lengths[i]);
      max_splits += MaxDecodeSplits(lengths[i]);
      positions.push_back(static_cast<int32_t>(std::max<int64_t>(last, 0)));
      slots.push_back(last < 0 ? -1 : paged.SlotOf(i, last));
      if (last >= 0) paged.ForgetKeys(i, last, lengths[i]);
    }
    positions_.Upload(positions);
    slots_.Upload(slots);
    cos_ = std::make_unique<DeviceArray<float>>(floats(max_length * rule.rotary_dim / 2 + 1));
    sin_ = std::make_unique<DeviceArray<float>>(floats(max_length * rule.rotary_dim / 2 + 1));
    q_scales_ = std::make_unique<DeviceArray<float>>(floats(max_length));
    workspace_ = std::make_unique<DeviceBytes>(
        std::vector<uint8_t>(DecodeWorkspaceBytes(max_splits, shape.q_heads, shape.head_dim), 0));
    splits_ = std::make_unique<DeviceBytes>(DecodeSplitsBytes(max_splits));
    out_ = std::make_unique<DeviceBytes>(static_cast<size_t>(m_ * shape.q_heads * shape.head_dim) *
                                         DTypeSize(shape.dtype));
    rows = {.lengths = lengths_.data(),
            .m = m_,
            .max_splits = max_splits,
            .workspace = workspace_->data(),
            .splits = splits_->data()};
    ListSplits(rows, window, nullptr);
    rope = {.dtype = shape.dtype,
            .qkv = qkv_->data(),
            .ld = ld,
            .m = m_,
            .q_heads = shape.q_heads,
            .q_norm = rule.has_norm ? q_norm_->data() : nullptr,
            .k_norm = rule.has_norm ? k_norm_->data() : nullptr,
            .ld_norm = rule.has_own_weights ? shape.head_dim : 0,
            .weight_offset = 0.5f,
            .eps = 1e-5f,
            .subtract_mean = rule.subtract_mean,
            .rope_first = rule.rope_first,
            .rotary_dim = rule.rotary_dim,
            .positions = positions_.data(),
            .slots = slots_.data(),
            .cos = cos_->data(),
            .sin = sin_->data(),
            .interleaved = rule.interleaved,
            .q_scales = rule.scales_queries ? q_scales_->data() : nullptr};
    args = {.dtype = shape.dtype,
            .q = qkv_->data(),
            .ldq = ld,
            .out = out_->data(),
            .ldo = shape.q_heads * shape.head_dim,
            .q_heads = shape.q_heads,
            .scale = 0.1f,
            .window = window,
            .block_tables = paged.tables->data(),
            .ld_block_tables = paged.ld_tables};
  }

  std::vector<uint8_t> Out() const { return out_->Download(); }

  PagedKv paged;
  DecodeRows rows;
  QkRopeWriteKvArgs rope;
  AttentionArgs args;

 private:
  int64_t m_;
  DeviceArray<int32_t> lengths_;
  DeviceArray<int32_t> positions_;
  DeviceArray<int64_t> slots_;
  std::unique_ptr<DeviceArray<float>> cos_, sin_, q_scales_;
  std::unique_ptr<DeviceBytes> qkv_, q_norm_, k_norm_, workspace_, splits_, out_;
};

}  // namespace mlc_native::kernels::cuda
