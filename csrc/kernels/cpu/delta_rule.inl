// The gated delta rule of some rows and one value head. Included by cpu/delta_kernels.cc only.
//
// A state is updated in columns of two vectors, which stay in the level-1 cache from row to row. In
// the same pass it is multiplied with the key of the next row, in the order that a pass of its own
// has, so that bits do not depend on which rows are computed together.
//
// kOfChannels: each row of a state, a channel of the keys, has a decay of its own. What a decayed
// state has for a key is then what the state has for the key times the decays.
#pragma once

#include "kernels/cpu/vec_math.inl"

namespace mlc_native::kernels {
namespace {

constexpr int64_t kDeltaPair = 2 * Vec::kLanes;  // columns that are updated together
static_assert(kDeltaColumns % kDeltaPair == 0);

// The sums over the rows of a state, of even rows and of odd ones.
struct DeltaSums {
  Vec even[2] = {Vec::Zero(), Vec::Zero()};
  Vec odd[2] = {Vec::Zero(), Vec::Zero()};

  Vec Total(int i) const { return even[i] + odd[i]; }
};

// The rows of a chunk between the convolutions and the norm, [kDeltaRows, ...] each.
struct DeltaScratch {
  int64_t ld_keys;
  int64_t ld_values;
  float* q;
  float* k;
  float* v;
  float* out;
  float* decays;        // of channels, as the next one
  float* decayed_keys;  // k times the decays of its row

  DeltaScratch(const DeltaShape& shape, float* scratch)
      : ld_keys((shape.key_dim + 15) / 16 * 16),
        ld_values((shape.value_dim + kDeltaColumns - 1) / kDeltaColumns * kDeltaColumns),
        q(scratch),
        k(q + kDeltaRows * ld_keys),
        v(k + kDeltaRows * ld_keys),
        out(v + kDeltaRows * ld_values),
        decays(out + kDeltaRows * ld_values),
        decayed_keys(decays + kDeltaRows * ld_keys) {}
};

// Of a row: the rows that the convolution reads, the oldest first. Null: zeros.
struct DeltaTaps {
  const float* rows[kMaxDeltaWidth];

  DeltaTaps(const DeltaConvolution& c, const DeltaSequence& s, int64_t row) {
    for (int64_t i = 0; i < c.width; ++i) {
      const int64_t from = row - (c.width - 1) + i;
      if (from >= 0) {
        rows[i] = c.inputs + (s.row_begin + from) * c.ld_inputs;
      } else {
        rows[i] = s.state == nullptr ? nullptr : s.state + (c.width - 1 + from) * c.channels;
      }
    }
  }
};

inline void Convolve(const DeltaConvolution& c, const DeltaTaps& taps, int64_t begin, int64_t count,
                     float* out) {
  ForVectors(count, [&](int64_t, auto load, auto store) {
    Vec sum = c.bias == nullptr ? Vec::Zero() : load(c.bias + begin);
    for (int64_t i = 0; i < c.width; ++i) {
      if (taps.rows[i] == nullptr) continue;
      sum = Fma(load(taps.rows[i] + begin), load(c.weights + i * c.channels + begin), sum);
    }
    store(out, TimesSigmoid(sum, sum));
  });
}

inline void ScaleToLength(float* x, int64_t n, float length) {
  Vec sum = Vec::Zero();
  ForVectors(n, [&](int64_t, auto load, auto) { sum = Fma(load(x), load(x), sum); });
  const Vec factor = Vec::Set(length / __builtin_sqrtf(Sum(sum) + 1e-6f));
  ForVectors(n, [&](int64_t, auto load, auto store) { store(x, load(x) * factor); });
}

inline void PrepareRows(const DeltaArgs& a, const DeltaChunk& chunk, const DeltaScratch& scratch) {
  const DeltaShape& shape = a.shape;
  const int64_t key = chunk.value_head / (shape.value_heads / shape.key_heads) * shape.key_dim;
  const float q_length = 1.0f / __builtin_sqrtf(static_cast<float>(shape.key_dim));
  const DeltaConvolution c = a.convolved();
  for (int64_t i = 0; i < chunk.num_rows; ++i) {
    const DeltaTaps taps(c, *chunk.sequence, chunk.row_begin + i);
    float* const q = scratch.q + i * scratch.ld_keys;
    float* const k = scratch.k + i * scratch.ld_keys;
    float* const v = scratch.v + i * scratch.ld_values;
    Convolve(c, taps, key, shape.key_dim, q);
    Convolve(c, taps, shape.keys() + key, shape.key_dim, k);
    Convolve(c, taps, 2 * shape.keys() + chunk.value_head * shape.value_dim, shape.value_dim, v);
    ScaleToLength(q, shape.key_dim, q_length);
    ScaleToLength(k, shape.key_dim, 1.0f);
    for (int64_t j = shape.value_dim; j < scratch.ld_values; ++j) v[j] = 0.0f;
  }
}

// The decays of the channels, and what the keys are then compared with.
inline void PrepareDecays(const DeltaArgs& a, const DeltaChunk& chunk,
                          const DeltaScratch& scratch) {
  const int64_t dim = a.shape.key_dim, first = chunk.value_head * dim;
  const Vec rate = Exp(Vec::Set(a.decay[chunk.value_head]));
  for (int64_t i = 0; i < chunk.num_rows; ++i) {
    const int64_t row = chunk.sequence->row_begin + chunk.row_begin + i;
    const float* const x = a.channel_decays + row * a.ld_channel_decays + first;
    const float* const k = scratch.k + i * scratch.ld_keys;
    float* const decays = scratch.decays + i * scratch.ld_keys;
    float* const keys = scratch.decayed_keys + i * scratch.ld_keys;
    ForVectors(dim, [&](int64_t, auto load, auto store) {
      const Vec decay = Exp(Vec::Zero() - rate * Softplus(load(x) + load(a.decay_bias + first)));
      store(decays, decay);
      store(keys, decay * load(k));
    });
  }
}

// What the state has for a key.
inline DeltaSums Recall(const float* state, const float* k, int64_t key_dim) {
  DeltaSums sums;
  const auto add = [&](int64_t row, Vec* to) {
    const Vec key = Vec::Set(k[row]);
    const float* const at = state + row * kDeltaColumns;
    to[0] = Fma(Vec::Load(at), key, to[0]);
    to[1] = Fma(Vec::Load(at + Vec::kLanes), key, to[1]);
  };
  int64_t row = 0;
  for (; row + 2 <= key_dim; row += 2) {
    add(row, sums.even);
    add(row + 1, sums.odd);
  }
  if (row < key_dim) add(row, sums.even);
  return sums;
}

struct DeltaUpdate {
  const float* from;
  float* to;
  Vec decay;     // of the head
  Vec write[2];  // of each column
  const float* k;
  const float* q;
  const float* next_k;            // of the next row
  const float* decays = nullptr;  // of the channels, in place of the head's
};

// Updates the state; returns what it then has for q, and in *next for the next row's key.
template <bool kOfChannels, bool kHasNext>
inline DeltaSums Update(const DeltaUpdate& u, int64_t key_dim, DeltaSums* next) {
  DeltaSums out, recalled;
  const auto step = [&](int64_t row, Vec* sums, Vec* next_sums) {
    const Vec key = Vec::Set(u.k[row]), query = Vec::Set(u.q[row]);
    const float* const from = u.from + row * kDeltaColumns;
    float* const to = u.to + row * kDeltaColumns;
    const Vec decay = kOfChannels ? Vec::Set(u.decays[row]) : u.decay;
    for (int i = 0; i < 2; ++i) {
      const Vec state = Fma(key, u.write[i], Vec::Load(from + i * Vec::kLanes) * decay);
      state.Store(to + i * Vec::kLanes);
      sums[i] = Fma(state, query, sums[i]);
      if constexpr (kHasNext) next_sums[i] = Fma(state, Vec::Set(u.next_k[row]), next_sums[i]);
    }
  };
  int64_t row = 0;
  for (; row + 2 <= key_dim; row += 2) {
    step(row, out.even, recalled.even);
    step(row + 1, out.odd, recalled.odd);
  }
  if (row < key_dim) step(row, out.even, recalled.even);
  *next = recalled;
  return out;
}

// Columns [column, column + kDeltaPair) of the state, which are in one block.
template <bool kOfChannels>
inline void UpdateColumns(const DeltaShape& shape, const DeltaChunk& chunk,
                          const DeltaScratch& scratch, int64_t column) {
  const int64_t in_block = column % kDeltaColumns;
  const int64_t at = (column - in_block) * shape.key_dim + in_block;
  const float* from = chunk.from + at;
  const float* const compared = kOfChannels ? scratch.decayed_keys : scratch.k;
  DeltaSums recalled = Recall(from, compared, shape.key_dim);
  for (int64_t i = 0; i < chunk.num_rows; ++i) {
    const float* const v = scratch.v + i * scratch.ld_values + column;
    const Vec decay = Vec::Set(chunk.decay[i]), beta = Vec::Set(chunk.beta[i]);
    DeltaUpdate update{.from = from,
                       .to = chunk.to[i] + at,
                       .decay = decay,
                       .write = {},
                       .k = scratch.k + i * scratch.ld_keys,
                       .q = scratch.q + i * scratch.ld_keys,
                       .next_k = compared + (i + 1) * scratch.ld_keys,
                       .decays = scratch.decays + i * scratch.ld_keys};
    for (int j = 0; j < 2; ++j) {
      const Vec total = kOfChannels ? recalled.Total(j) : decay * recalled.Total(j);
      update.write[j] = (Vec::Load(v + j * Vec::kLanes) - total) * beta;
    }
    const DeltaSums out = i + 1 < chunk.num_rows
                              ? Update<kOfChannels, true>(update, shape.key_dim, &recalled)
                              : Update<kOfChannels, false>(update, shape.key_dim, &recalled);
    float* const to = scratch.out + i * scratch.ld_values + column;
    out.Total(0).Store(to);
    out.Total(1).Store(to + Vec::kLanes);
    from = update.to;
  }
}

// The norm of what the head gives, and its gate.
inline void FinishRows(const DeltaArgs& a, const DeltaChunk& chunk, const DeltaScratch& scratch) {
  const int64_t dim = a.shape.value_dim;
  const int64_t head = chunk.value_head * dim;
  for (int64_t i = 0; i < chunk.num_rows; ++i) {
    const int64_t row = chunk.sequence->row_begin + chunk.row_begin + i;
    const float* const x = scratch.out + i * scratch.ld_values;
    const float* const z = a.out_gates + row * a.ld_out_gates + head;
    float* const out = a.out + row * a.ldo + head;
    Vec sum = Vec::Zero();
    ForVectors(dim, [&](int64_t, auto load, auto) { sum = Fma(load(x), load(x), sum); });
    const float mean = Sum(sum) / static_cast<float>(dim);
    const Vec inverse = Vec::Set(1.0f / __builtin_sqrtf(mean + a.norm_eps));
    ForVectors(dim, [&](int64_t, auto load, auto store) {
      const Vec gate = load(z);
      const Vec normalized = load(x) * inverse * load(a.norm);
      store(out, a.sigmoid_out_gates ? TimesSigmoid(normalized, gate)
                                     : normalized * TimesSigmoid(gate, gate));
    });
  }
}

template <bool kOfChannels>
inline void UpdateState(const DeltaShape& shape, const DeltaChunk& chunk,
                        const DeltaScratch& scratch) {
  for (int64_t column = 0; column < scratch.ld_values; column += kDeltaPair) {
    UpdateColumns<kOfChannels>(shape, chunk, scratch, column);
  }
}

void DeltaRows(const DeltaArgs& a, const DeltaChunk& chunk) {
  const DeltaScratch scratch(a.shape, chunk.scratch);
  PrepareRows(a, chunk, scratch);
  if (a.shape.decays_channels) {
    PrepareDecays(a, chunk, scratch);
    UpdateState<true>(a.shape, chunk, scratch);
  } else {
    UpdateState<false>(a.shape, chunk, scratch);
  }
  FinishRows(a, chunk, scratch);
}

}  // namespace
}  // namespace mlc_native::kernels
