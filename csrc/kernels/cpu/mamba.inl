// Mamba-2 of some rows and one head. Included by cpu/delta_kernels.cc only, behind delta_rule.inl,
// whose update of a state it has.
#pragma once

#include "kernels/cpu/delta_rule.inl"

namespace mlc_native::kernels {
namespace {

// Keys and queries of rows [begin, end) of a slice.
void MambaKeys(const MambaArgs& a, const DeltaSequence& s, int64_t begin, int64_t end) {
  const DeltaConvolution c = a.convolved();
  const int64_t size = 2 * a.shape.keys();
  for (int64_t row = begin; row < end; ++row) {
    const DeltaTaps taps(c, s, row);
    Convolve(c, taps, a.shape.values(), size, a.keys + (s.row_begin + row) * size);
  }
}

// Columns [column, column + kDeltaPair) of the state, which are in one block.
inline void AddColumns(const MambaArgs& a, const DeltaChunk& chunk, const DeltaScratch& scratch,
                       int64_t column) {
  const DeltaShape& shape = a.shape;
  const int64_t in_block = column % kDeltaColumns;
  const int64_t at = (column - in_block) * shape.key_dim + in_block;
  const int64_t group = chunk.value_head / (shape.value_heads / shape.key_heads);
  const int64_t first = (chunk.sequence->row_begin + chunk.row_begin) * 2 * shape.keys();
  const float* const keys = a.keys + first + group * shape.key_dim;
  const float* from = chunk.from + at;
  for (int64_t i = 0; i < chunk.num_rows; ++i) {
    const float* const v = scratch.v + i * scratch.ld_values + column;
    const Vec step = Vec::Set(chunk.beta[i]);
    const float* const k = keys + i * 2 * shape.keys();
    const DeltaUpdate update{.from = from,
                             .to = chunk.to[i] + at,
                             .decay = Vec::Set(chunk.decay[i]),
                             .write = {Vec::Load(v) * step, Vec::Load(v + Vec::kLanes) * step},
                             .k = k,
                             .q = k + shape.keys(),
                             .next_k = nullptr};
    DeltaSums unused;
    const DeltaSums out = Update<false, false>(update, shape.key_dim, &unused);
    float* const to = scratch.out + i * scratch.ld_values + column;
    out.Total(0).Store(to);
    out.Total(1).Store(to + Vec::kLanes);
    from = update.to;
  }
}

// The values of the rows, behind their convolution.
inline void PrepareValues(const MambaArgs& a, const DeltaChunk& chunk,
                          const DeltaScratch& scratch) {
  const DeltaConvolution c = a.convolved();
  const int64_t dim = a.shape.value_dim;
  for (int64_t i = 0; i < chunk.num_rows; ++i) {
    const DeltaTaps taps(c, *chunk.sequence, chunk.row_begin + i);
    float* const v = scratch.v + i * scratch.ld_values;
    Convolve(c, taps, chunk.value_head * dim, dim, v);
    for (int64_t j = dim; j < scratch.ld_values; ++j) v[j] = 0.0f;
  }
}

// What the head gives with its gate, as the norm reads it.
inline void GateRows(const MambaArgs& a, const DeltaChunk& chunk, const DeltaScratch& scratch) {
  const int64_t dim = a.shape.value_dim;
  const int64_t head = chunk.value_head * dim;
  const Vec skip = Vec::Set(a.skip[chunk.value_head]);
  for (int64_t i = 0; i < chunk.num_rows; ++i) {
    const int64_t row = chunk.sequence->row_begin + chunk.row_begin + i;
    const float* const x = scratch.out + i * scratch.ld_values;
    const float* const v = scratch.v + i * scratch.ld_values;
    const float* const z = a.inputs + row * a.ld_inputs + head;
    float* const out = a.out + row * a.ldo + head;
    ForVectors(dim, [&](int64_t, auto load, auto store) {
      const Vec gate = load(z);
      store(out, Fma(skip, load(v), load(x)) * TimesSigmoid(gate, gate));
    });
  }
}

void MambaRows(const MambaArgs& a, const DeltaChunk& chunk) {
  const DeltaScratch scratch(a.shape, chunk.scratch);
  PrepareValues(a, chunk, scratch);
  for (int64_t column = 0; column < scratch.ld_values; column += kDeltaPair) {
    AddColumns(a, chunk, scratch, column);
  }
  GateRows(a, chunk, scratch);
}

// The norms of rows [begin, end) of the batch, in place.
void MambaNorm(const MambaArgs& a, int64_t begin, int64_t end) {
  const int64_t size = a.shape.values() / a.shape.key_heads;
  for (int64_t row = begin; row < end; ++row) {
    for (int64_t group = 0; group < a.shape.key_heads; ++group) {
      float* const x = a.out + row * a.ldo + group * size;
      const float* const weight = a.norm + group * size;
      Vec sum = Vec::Zero();
      ForVectors(size, [&](int64_t, auto load, auto) { sum = Fma(load(x), load(x), sum); });
      const float mean = Sum(sum) / static_cast<float>(size);
      const Vec inverse = Vec::Set(1.0f / __builtin_sqrtf(mean + a.norm_eps));
      ForVectors(size, [&](int64_t, auto load, auto store) {
        store(x, load(x) * inverse * load(weight));
      });
    }
  }
}

}  // namespace
}  // namespace mlc_native::kernels
