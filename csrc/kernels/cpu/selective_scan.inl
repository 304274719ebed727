// Mamba-1 of some rows: the convolution, and a block of channels. Included by cpu/delta_kernels.cc
// only, behind delta_rule.inl, whose convolution it has.
//
// A block is computed in columns of one vector, a channel in each lane, so that no sum is across
// lanes. Lanes behind the last channel have zeros, which stay zeros.
#pragma once

#include "kernels/cpu/delta_rule.inl"

namespace mlc_native::kernels {
namespace {

// Rows [begin, end) of a slice.
void ScanConvolve(const ScanArgs& a, const DeltaSequence& s, int64_t begin, int64_t end) {
  const DeltaConvolution c = a.convolved_inputs();
  for (int64_t row = begin; row < end; ++row) {
    const DeltaTaps taps(c, s, row);
    Convolve(c, taps, 0, c.channels, a.convolved + (s.row_begin + row) * a.ld_convolved);
  }
}

// The channels of a vector of a block, of which only `count` are there.
struct ScanColumns {
  int64_t first;
  int64_t count;

  ScanColumns(const ScanArgs& a, int64_t block, int64_t column)
      : first(block * kDeltaColumns + column),
        count(Max64(0, Min64(Vec::kLanes, a.shape.channels - first))) {}

  // Of a row of all channels.
  Vec Load(const float* row) const {
    return count == Vec::kLanes ? Vec::Load(row + first)
           : count == 0         ? Vec::Zero()
                                : LoadPartial(row + first, count);
  }
  void Store(float* row, Vec x) const {
    if (count == Vec::kLanes) return x.Store(row + first);
    StorePartial(row + first, x, count);
  }
};

// decays[state_dim, kDeltaColumns] = -e^A of a block.
void ScanDecays(const ScanArgs& a, int64_t block, float* decays) {
  for (int64_t i = 0; i < a.shape.state_dim; ++i) {
    for (int64_t column = 0; column < kDeltaColumns; column += Vec::kLanes) {
      const Vec decay = ScanColumns(a, block, column).Load(a.decay + i * a.shape.channels);
      (Vec::Zero() - Exp(decay)).Store(decays + i * kDeltaColumns + column);
    }
  }
}

struct ScanUpdate {
  const float* from;
  float* to;
  const float* decays;
  const float* k;
  const float* q;
  Vec step;
  Vec write;
};

// Updates the states of a vector of channels; returns what they then have for q.
inline Vec UpdateChannels(const ScanUpdate& u, int64_t state_dim) {
  Vec even = Vec::Zero(), odd = Vec::Zero();
  const auto step = [&](int64_t i, Vec sum) {
    const int64_t at = i * kDeltaColumns;
    const Vec decay = Exp(Vec::Load(u.decays + at) * u.step);
    const Vec state = Fma(Vec::Set(u.k[i]), u.write, Vec::Load(u.from + at) * decay);
    state.Store(u.to + at);
    return Fma(state, Vec::Set(u.q[i]), sum);
  };
  int64_t i = 0;
  for (; i + 2 <= state_dim; i += 2) {
    even = step(i, even);
    odd = step(i + 1, odd);
  }
  if (i < state_dim) even = step(i, even);
  return even + odd;
}

// Requires: the chunk's scratch has what ScanDecays writes.
void ScanRows(const ScanArgs& a, const DeltaChunk& chunk) {
  for (int64_t column = 0; column < kDeltaColumns; column += Vec::kLanes) {
    const ScanColumns columns(a, chunk.value_head, column);
    const Vec bias = columns.Load(a.step_bias), skip = columns.Load(a.skip);
    const float* from = chunk.from + column;
    for (int64_t i = 0; i < chunk.num_rows; ++i) {
      const int64_t row = chunk.sequence->row_begin + chunk.row_begin + i;
      const Vec u = columns.Load(a.convolved + row * a.ld_convolved);
      const Vec step = Softplus(columns.Load(a.steps + row * a.ld_steps) + bias);
      const float* const keys = a.keys + row * a.ld_keys;
      const ScanUpdate update{.from = from,
                              .to = chunk.to[i] + column,
                              .decays = chunk.scratch + column,
                              .k = keys,
                              .q = keys + a.shape.state_dim,
                              .step = step,
                              .write = step * u};
      const Vec sum = UpdateChannels(update, a.shape.state_dim);
      const Vec gate = columns.Load(a.inputs + row * a.ld_inputs + a.shape.channels);
      columns.Store(a.out + row * a.ldo, Fma(skip, u, sum) * TimesSigmoid(gate, gate));
      from = update.to;
    }
  }
}

}  // namespace
}  // namespace mlc_native::kernels
