// Counter-based random numbers: a draw is a pure function of (seed, sequence, position).
//
// Without state, draws cannot depend on other sequences, preemption or threads. The words are mixed
// by the finalizer of SplitMix64 (Steele, Lea, Flood 2014), once each. Pure; any thread.
#pragma once

#include <cstdint>

namespace mlc_native {

constexpr uint64_t MixBits(uint64_t x) {
  x += 0x9e3779b97f4a7c15ULL;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
  return x ^ (x >> 31);
}

// Uniform in [0, 1) with 53 random bits.
constexpr double RandomUniform(uint64_t seed, uint64_t sequence, uint64_t position) {
  const uint64_t bits = MixBits(MixBits(MixBits(seed) ^ sequence) ^ position);
  return static_cast<double>(bits >> 11) * 0x1.0p-53;
}

}  // namespace mlc_native
