// SimRandom: a stream of numbers that is a pure function of its seed, with the draws that the
// simulation needs. One thread.
#pragma once

#include <cmath>
#include <cstdint>
#include <vector>

#include "support/random.h"

namespace mlc_native::sim {

class SimRandom {
 public:
  explicit SimRandom(uint64_t seed) : key_(MixBits(seed)) {}

  // A stream of its own: what is drawn from it does not shift what is drawn from this one.
  SimRandom Fork(uint64_t stream) const { return SimRandom(key_ ^ MixBits(stream)); }

  uint64_t Next() { return MixBits(key_ + counter_++); }
  double Uniform() { return static_cast<double>(Next() >> 11) * 0x1.0p-53; }
  bool Chance(double probability) { return Uniform() < probability; }
  // In [low, high]; low when the range is empty.
  int64_t Range(int64_t low, int64_t high) {
    if (high <= low) return low;
    return low + static_cast<int64_t>(Next() % static_cast<uint64_t>(high - low + 1));
  }
  // In [low, high], every order of magnitude as likely as the others.
  int64_t LogRange(int64_t low, int64_t high) {
    if (high <= low) return low;
    const double span = std::log(static_cast<double>(high - low + 1));
    return low + static_cast<int64_t>(std::exp(Uniform() * span)) - 1;
  }
  template <typename T>
  const T& Pick(const std::vector<T>& values) {
    return values[Next() % values.size()];
  }

 private:
  uint64_t key_;
  uint64_t counter_ = 0;
};

}  // namespace mlc_native::sim
