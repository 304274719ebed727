#include "models/cuda/weight_prefetch.h"

#include <algorithm>
#include <iterator>
#include <limits>

#include "models/cuda/device_form.h"
#include "support/check.h"

namespace mlc_native {
namespace {

// In the order of their products.
constexpr LinearRole kPrefetched[] = {LinearRole::kQkv, LinearRole::kOut, LinearRole::kGateUp,
                                      LinearRole::kDown};

}  // namespace

WeightPrefetch::WeightPrefetch(const CudaDecoderWeights& weights, int64_t window)
    : window_(window / kAlign * kAlign) {
  if (window_ == 0) return;
  int64_t at = 0;
  for (const CudaDecoderWeights::Layer& layer : weights.layers) {
    first_parts_.push_back(parts_.size());
    for (const LinearRole role : kPrefetched) {
      if (layer.num_experts(role) == 0) {
        at += window_;
        continue;
      }
      const CudaMatrix& matrix = layer.linear(role).matrix;
      const auto bytes =
          static_cast<int64_t>(DeviceForm().MatrixBytes(matrix.format, matrix.n, matrix.k));
      const int64_t end = at + (bytes + kAlign - 1) / kAlign * kAlign;
      parts_.push_back({static_cast<const std::byte*>(matrix.data), bytes, at, end});
      at = end;
    }
  }
}

void WeightPrefetch::Ask(size_t layer, LinearRole role, Cursor* cursor,
                         kernels::cuda::GemvArgs* args) const {
  if (window_ == 0) return;
  constexpr int64_t kVector = 16;
  const auto place = static_cast<size_t>(std::ranges::find(kPrefetched, role) - kPrefetched);
  const size_t part = first_parts_[layer] + place;
  MLC_CHECK(place < std::size(kPrefetched) && part < parts_.size()) << static_cast<int>(role);
  const int64_t own_end = parts_[part].end;
  const int64_t until = own_end + (role == LinearRole::kQkv ? window_ : window_ / 2);
  size_t next = part + 1;
  for (kernels::cuda::Prefetch& prefetch : args->prefetches) {
    while (next < parts_.size() && parts_[next].end <= *cursor) ++next;
    if (next == parts_.size()) return;
    const Part& asked = parts_[next];
    const int64_t begin = std::max(*cursor, asked.begin);
    if (begin >= until) return;
    const int64_t from = begin - asked.begin;
    const int64_t to = std::min(until - asked.begin, asked.bytes / kVector * kVector);
    *cursor = std::min(until, asked.end);
    if (from < to) prefetch = {asked.data + from, static_cast<uint32_t>(to - from)};
  }
}

}  // namespace mlc_native
