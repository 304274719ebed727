#include "sampling/candidates.h"

#include <algorithm>
#include <bit>
#include <functional>
#include <limits>

#include "support/check.h"

namespace mlc_native {
namespace {

// Up to this size, sorting is cheaper than a histogram.
constexpr size_t kSortLimit = 1024;

// The upper half of the bits of a non-negative float grows with its value. Weights are at most 1.
size_t BucketOf(float weight) { return std::bit_cast<uint32_t>(weight) >> 16; }
constexpr size_t kNumBuckets = (std::bit_cast<uint32_t>(1.0f) >> 16) + 1;

}  // namespace

RowThreshold TopMass::Find(std::span<const float> weights, double mass) {
  double sum = 0;
  if (weights.size() <= kSortLimit) {
    values_.assign(weights.begin(), weights.end());
  } else {
    sum = Narrow(weights, mass);
  }
  std::sort(values_.begin(), values_.end(), std::greater<>());
  RowThreshold threshold;
  for (float value : values_) {
    if (value != threshold.value) threshold = {value, 0};
    ++threshold.num_ties;
    sum += value;
    if (sum >= mass) break;
  }
  return threshold;
}

double TopMass::Narrow(std::span<const float> weights, double mass) {
  histogram_.assign(kNumBuckets, 0.0);
  for (float weight : weights) histogram_[BucketOf(weight)] += weight;
  double sum = 0;
  size_t bucket = kNumBuckets - 1;
  while (bucket > 0 && sum + histogram_[bucket] < mass) sum += histogram_[bucket--];
  // Includes the bucket below, because rounding may leave the sum of this one short of the mass.
  values_.clear();
  for (float weight : weights) {
    const size_t b = BucketOf(weight);
    if (b == bucket || b + 1 == bucket) values_.push_back(weight);
  }
  return sum;
}

double Candidates::Sum() const {
  double sum = 0;
  for (const Candidate& item : items_) sum += item.value;
  return sum;
}

void Candidates::SelectAtLeast(std::span<const float> row, std::span<const float> upper,
                               float threshold) {
  threshold = std::max(threshold, std::numeric_limits<float>::lowest());
  items_.clear();
  for (size_t block = 0; block < upper.size(); ++block) {
    if (upper[block] < threshold) continue;
    const size_t end = std::min(row.size(), (block + 1) * kRowBlock);
    for (size_t i = block * kRowBlock; i < end; ++i) {
      if (row[i] >= threshold) items_.push_back({row[i], static_cast<int32_t>(i)});
    }
  }
}

void Candidates::SelectTopK(std::span<const float> row, const RowScan& scan, size_t k) {
  // k blocks have a maximum of at least the k-th largest one, so at least k tokens reach it.
  float threshold = std::numeric_limits<float>::lowest();
  if (k <= scan.block_max.size()) {
    values_ = scan.block_max;
    const auto kth = values_.begin() + static_cast<ptrdiff_t>(k - 1);
    std::nth_element(values_.begin(), kth, values_.end(), std::greater<>());
    threshold = *kth;
  }
  SelectAtLeast(row, scan.block_max, threshold);
  KeepBest(k);
}

void Candidates::Exponentiate(float max, float inverse_temperature) {
  for (Candidate& item : items_) {
    item.value = ExpNonPositive((item.value - max) * inverse_temperature);
  }
}

void Candidates::KeepBest(size_t k) {
  if (items_.size() <= k) return;
  CopyValues();
  const auto kth = values_.begin() + static_cast<ptrdiff_t>(k - 1);
  std::nth_element(values_.begin(), kth, values_.end(), std::greater<>());
  const auto num_ties = std::count(values_.begin(), kth + 1, *kth);
  KeepAbove({*kth, static_cast<size_t>(num_ties)});
}

void Candidates::KeepTopMass(double mass) {
  CopyValues();
  KeepAbove(top_mass_.Find(values_, mass));
}

void Candidates::KeepAtLeast(float threshold) {
  std::erase_if(items_, [threshold](const Candidate& item) { return item.value < threshold; });
}

void Candidates::CopyValues() {
  values_.clear();
  for (const Candidate& item : items_) values_.push_back(item.value);
}

void Candidates::KeepAbove(RowThreshold threshold) {
  std::erase_if(items_, [&threshold](const Candidate& item) {
    if (item.value != threshold.value) return item.value < threshold.value;
    if (threshold.num_ties == 0) return true;
    --threshold.num_ties;
    return false;
  });
}

int32_t Candidates::Draw(double u) const {
  const double target = u * Sum();
  double sum = 0;
  int32_t last = -1;
  for (const Candidate& item : items_) {
    if (item.value <= 0) continue;
    sum += item.value;
    last = item.token_id;
    if (sum > target) break;
  }
  MLC_CHECK(last >= 0) << "no candidate of " << items_.size() << " has a weight";
  return last;
}

}  // namespace mlc_native
