// Short convolutions of some channels of a sequence's rows. Included by cpu/delta_kernels.cc only.
//
// What is multiplied is one number of one channel, so bits depend neither on the rows nor on the
// channels that are computed together.
#pragma once

#include "kernels/cpu/vec_math.inl"

namespace mlc_native::kernels {
namespace {

// What a convolution reads of one row; neither: zeros.
struct ConvolutionTap {
  const float* inputs = nullptr;  // b, c and x of a row of the slice
  const float* state = nullptr;   // p of a row before it
};

// Of row `row` of the slice, which may be before the first one.
inline ConvolutionTap TapOf(const ConvolutionArgs& a, const DeltaSequence& s, int64_t row) {
  if (row >= 0) return {.inputs = a.inputs + (s.row_begin + row) * a.ld_inputs};
  return {.state = s.state == nullptr ? nullptr : s.state + (a.width - 1 + row) * a.channels};
}

// p, of the channels that `load` reads from `begin` on.
template <typename Load>
inline Vec ProductOf(const ConvolutionArgs& a, const ConvolutionTap& tap, int64_t begin,
                     Load load) {
  if (tap.inputs != nullptr) {
    return load(tap.inputs + begin) * load(tap.inputs + 2 * a.channels + begin);
  }
  return tap.state == nullptr ? Vec::Zero() : load(tap.state + begin);
}

inline void ConvolveRow(const ConvolutionArgs& a, const DeltaSequence& s, int64_t row,
                        int64_t begin, int64_t end) {
  ConvolutionTap taps[kMaxConvolutionWidth];
  for (int64_t i = 0; i < a.width; ++i) taps[i] = TapOf(a, s, row - (a.width - 1) + i);
  const float* const gates = taps[a.width - 1].inputs + a.channels + begin;
  float* const out = a.out + (s.row_begin + row) * a.ldo + begin;
  ForVectors(end - begin, [&](int64_t, auto load, auto store) {
    Vec sum = Vec::Zero();
    for (int64_t i = 0; i < a.width; ++i) {
      sum = Fma(ProductOf(a, taps[i], begin, load), load(a.weights + i * a.channels + begin), sum);
    }
    store(out, load(gates) * sum);
  });
}

inline void LeaveState(const ConvolutionArgs& a, const DeltaSequence& s, const DeltaWrite& write,
                       int64_t begin, int64_t end) {
  for (int64_t i = 0; i < a.width - 1; ++i) {
    const ConvolutionTap tap = TapOf(a, s, write.num_rows - (a.width - 1) + i);
    float* const to = write.state + i * a.channels + begin;
    ForVectors(end - begin,
               [&](int64_t, auto load, auto store) { store(to, ProductOf(a, tap, begin, load)); });
  }
}

void ConvolveChannels(const ConvolutionArgs& a, const DeltaSequence& s, int64_t begin,
                      int64_t end) {
  for (int64_t row = 0; row < s.num_rows; ++row) ConvolveRow(a, s, row, begin, end);
  for (int64_t i = 0; i < s.num_writes; ++i) LeaveState(a, s, s.writes[i], begin, end);
}

}  // namespace
}  // namespace mlc_native::kernels
