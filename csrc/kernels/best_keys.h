// The best of the scores of keys, for the .cc files of this folder that are not compiled for a
// particular ISA. Pure; any thread.
#pragma once

#include <array>
#include <cstdint>
#include <cstring>

namespace mlc_native::kernels {

// Ordered as the floats are; what is not a number is the largest. No score is a negative zero: its
// sum begins with a positive one.
inline uint32_t OrderedBits(float x) {
  uint32_t bits;
  std::memcpy(&bits, &x, sizeof(bits));
  if ((bits & 0x7fffffff) > 0x7f800000) return 0xffffffff;
  return (bits & 0x80000000) != 0 ? ~bits : bits | 0x80000000;
}

// The smallest of the `wanted` largest of the scores, and how many that are equal to it are among
// these: from the first bits to the last, some at a time.
class Threshold {
 public:
  Threshold(const float* scores, int64_t n, int64_t wanted) : left_(wanted) {
    for (const int bits : {11, 11, 10}) Narrow(scores, n, bits);
  }
  uint32_t value() const { return value_; }
  int64_t num_equal() const { return left_; }

 private:
  static constexpr int kMostBits = 11;

  void Narrow(const float* scores, int64_t n, int bits) {
    std::array<int64_t, size_t{1} << kMostBits> counts{};
    const int shift = known_from_ - bits;
    for (int64_t i = 0; i < n; ++i) {
      const uint32_t key = OrderedBits(scores[i]);
      if ((uint64_t{key} >> known_from_) != (uint64_t{value_} >> known_from_)) continue;
      ++counts[key >> shift & ((1U << bits) - 1)];
    }
    uint32_t digit = (1U << bits) - 1;
    while (counts[digit] < left_) left_ -= counts[digit--];
    value_ |= digit << shift;
    known_from_ = shift;
  }

  uint32_t value_ = 0;  // its bits from known_from_ on
  int known_from_ = 32;
  int64_t left_;
};

// Writes the positions of the best of [0, n), ascending. Requires: n > num_chosen.
inline void ChooseBest(const float* scores, int64_t n, int64_t num_chosen, int32_t* chosen) {
  const Threshold threshold(scores, n, num_chosen);
  int64_t equal_left = threshold.num_equal();
  for (int64_t i = 0; i < n; ++i) {
    const uint32_t key = OrderedBits(scores[i]);
    if (key < threshold.value()) continue;
    if (key == threshold.value() && equal_left-- <= 0) continue;
    *chosen++ = static_cast<int32_t>(i);
  }
}

}  // namespace mlc_native::kernels
