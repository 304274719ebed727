// RopeHead: what QkRopeWriteKv makes of one head of q, k or v of a row: normalized, rotated and
// scaled. By a warp, of which each lane has kVector neighbouring elements.
//
// Loads are apart from what is computed, so that the caller can have other loads in flight.
#pragma once

#include "kernels/cuda/kv_pages.h"
#include "kernels/cuda/numbers.cuh"
#include "kernels/cuda/reduce.cuh"

namespace mlc_native::kernels::cuda {

// Divides the lane's part x of a head by the head's scale, which it returns. All lanes take part,
// with zeros behind the head. The scale of a head with a NaN or an infinity is a NaN, which makes
// all of it NaNs when it is read, so that codes need not tell.
template <int kVectors>
__device__ inline float ScaleHead(float (&x)[kVectors][kVector]) {
  float largest = 0.0f;
#pragma unroll
  for (int v = 0; v < kVectors; ++v) {
#pragma unroll
    for (int j = 0; j < kVector; ++j) {
      largest = fmaxf(largest, x[v][j] == x[v][j] ? fabsf(x[v][j]) : INFINITY);
    }
  }
  largest = ReduceWarp(largest, Max());
  const float scale = largest < INFINITY ? largest / kMaxFloat8 : NAN;
#pragma unroll
  for (int v = 0; v < kVectors; ++v) {
#pragma unroll
    for (int j = 0; j < kVector; ++j) x[v][j] = scale > 0.0f ? x[v][j] / scale : 0.0f;
  }
  return scale;
}

// Where rope puts a row: where it is in its sequence.
struct RowPlace {
  __device__ explicit RowPlace(int32_t position) : position(position) {}
  __device__ RowPlace(const QkRopeWriteKvArgs& args, int64_t row) : position(args.positions[row]) {}

  // Of the tables, for a pair of elements.
  template <typename Args>
  __device__ int64_t RowOf(const Args&, int) const {
    return position;
  }

  int32_t position;
};

// The same, or, with components, where three numbers put it.
struct RowPlaces : RowPlace {
  __device__ RowPlaces(const QkRopeWriteKvArgs& args, int64_t row) : RowPlace(args, row) {
    if (args.components == nullptr) return;
#pragma unroll
    for (int i = 0; i < 3; ++i) numbers[i] = args.rope_positions[3 * row + i];
  }

  __device__ int64_t RowOf(const QkRopeWriteKvArgs& args, int pair) const {
    if (args.components == nullptr) return position;
    const int component = args.components[pair];
    return component == 0 ? numbers[0] : component == 1 ? numbers[1] : numbers[2];
  }

  int32_t numbers[3];
};

// The rotation of a lane's part of a head. Element i is paired with i + sign * distance. Args: of
// QkRopeWriteKv or WriteLatents.
struct Rotation {
  Rotation() = default;
  template <typename Args, typename Place>
  __device__ Rotation(const Args& args, const Place& place, int column)
      : half(static_cast<int>(args.rotary_dim) / 2),
        distance(args.interleaved ? 1 : half),
        is_interleaved(args.interleaved) {
#pragma unroll
    for (int j = 0; j < kVector; ++j) {
      const int i = column + j;
      const int angle = is_interleaved ? i / 2 : i < half ? i : i - half;
      const int last = min(angle, half - 1);  // the rest is not rotated
      const int64_t row = place.RowOf(args, last);
      cos[j] = args.cos[row * half + last];
      sin[j] = args.sin[row * half + last];
    }
  }

  // `head` is the warp's shared memory.
  __device__ void Apply(int column, int64_t head_dim, float* head, float (&x)[kVector]) const {
    if (column < head_dim) StoreFloats(head + column, x);
    __syncwarp();
    Rotate(column, head, x);
  }

  // The same of a head that all lanes have left in shared memory.
  __device__ void Rotate(int column, const float* head, float (&x)[kVector]) const {
#pragma unroll
    for (int j = 0; j < kVector; ++j) {
      const int i = column + j;
      const bool is_rotated = i < 2 * half;
      const bool is_first = is_interleaved ? i % 2 == 0 : i < half;
      const int pair = is_first ? i + distance : i - distance;
      const float other = head[is_rotated ? pair : 0];
      const float rotated = x[j] * cos[j] + (is_first ? -other : other) * sin[j];
      x[j] = is_rotated ? rotated : x[j];
    }
  }

  int half;
  int distance;
  bool is_interleaved;
  float cos[kVector];
  float sin[kVector];
};

// kVectors: of a lane. kMakesValues: values are normalized, or made of keys; a decoder without such
// ones is spared what that takes.
template <typename T, int kVectors, bool kMakesValues>
class RopeHead {
 public:
  using Raw = RawVector8<T>[kVectors];

  // `head`: of those of q, k and v.
  __device__ RopeHead(const QkRopeWriteKvArgs& args, const KvPages& kv, int64_t head)
      : args_(args),
        dim_(kv.head_dim),
        head_(head),
        is_q_(head < args.q_heads),
        is_v_(head >= args.q_heads + kv.kv_heads),
        source_(kMakesValues && is_v_ && args.parts == KvParts::kKeysAlone ? head - kv.kv_heads
                                                                           : head),
        norm_(is_q_   ? args.q_norm
              : is_v_ ? NormOfValues(args)
                      : args.k_norm) {}

  __device__ bool IsQ() const { return is_q_; }
  __device__ bool IsV() const { return is_v_; }
  // Of the first element of the lane's vector; lanes behind the head have none.
  __device__ static int Column(int vector) {
    return (vector * kWarp + static_cast<int>(threadIdx.x) % kWarp) * kVector;
  }
  __device__ bool HasColumn(int vector) const { return Column(vector) < dim_; }
  __device__ T* RowOf(int64_t row) const {
    return static_cast<T*>(args_.qkv) + row * args_.ld + source_ * dim_;
  }

  // Of the norm, if there is one. No kernel writes them.
  __device__ void LoadWeights(Raw& weights) const {
    const T* norm = static_cast<const T*>(norm_);
    if (!is_v_) norm += (is_q_ ? head_ : head_ - args_.q_heads) * args_.ld_norm;
#pragma unroll
    for (int v = 0; v < kVectors; ++v) {
      weights[v] = RawVector8<T>{};
      if (norm_ != nullptr) weights[v] = LoadRaw(norm + (HasColumn(v) ? Column(v) : 0));
    }
  }
  __device__ void LoadElements(int64_t row, Raw& elements) const {
#pragma unroll
    for (int v = 0; v < kVectors; ++v) {
      elements[v] = LoadRaw(RowOf(row) + (HasColumn(v) ? Column(v) : 0));
    }
  }

  // The lane's part of the head; zeros behind it. `shared`: as many floats of the warp as its lanes
  // have elements.
  template <typename Place>
  __device__ void Compute(const Raw& weights, const Raw& elements, const Place& place,
                          float* shared, float (&x)[kVectors][kVector]) const {
#pragma unroll
    for (int v = 0; v < kVectors; ++v) {
      ToFloats(elements[v], x[v]);
#pragma unroll
      for (int j = 0; j < kVector; ++j) x[v][j] = HasColumn(v) ? x[v][j] : 0.0f;
    }
    const bool has_norm = norm_ != nullptr;
    if (!is_v_) {
      const bool rotates = args_.rotary_dim > 0;
      const bool rotates_first = rotates && args_.rope_first;
      Rotation rotations[kVectors];
#pragma unroll
      for (int v = 0; v < kVectors; ++v) {
        if (rotates) rotations[v] = Rotation(args_, place, Column(v));
      }
      if (has_norm && !rotates_first) Normalize(weights, x);
      if (rotates) Rotate(rotations, shared, x);
      if (has_norm && rotates_first) Normalize(weights, x);
    } else if (kMakesValues && has_norm) {
      Normalize(weights, x);
    }
    if (is_q_ && args_.q_scales != nullptr) {
      const float scale = args_.q_scales[place.position];
#pragma unroll
      for (int v = 0; v < kVectors; ++v) {
#pragma unroll
        for (int j = 0; j < kVector; ++j) x[v][j] *= scale;
      }
    }
  }

 private:
  __device__ static const void* NormOfValues(const QkRopeWriteKvArgs& args) {
    return kMakesValues ? args.v_norm : nullptr;
  }

  __device__ void Rotate(const Rotation (&rotations)[kVectors], float* shared,
                         float (&x)[kVectors][kVector]) const {
#pragma unroll
    for (int v = 0; v < kVectors; ++v) {
      if (HasColumn(v)) StoreFloats(shared + Column(v), x[v]);
    }
    __syncwarp();
#pragma unroll
    for (int v = 0; v < kVectors; ++v) rotations[v].Rotate(Column(v), shared, x[v]);
  }

  __device__ void Normalize(const Raw& weights, float (&x)[kVectors][kVector]) const {
    const auto dim = static_cast<float>(dim_);
    if (args_.subtract_mean) {
      float sum = 0.0f;
#pragma unroll
      for (int v = 0; v < kVectors; ++v) {
#pragma unroll
        for (int j = 0; j < kVector; ++j) sum += x[v][j];
      }
      const float mean = ReduceWarp(sum, Plus()) / dim;
#pragma unroll
      for (int v = 0; v < kVectors; ++v) {
#pragma unroll
        for (int j = 0; j < kVector; ++j) x[v][j] -= HasColumn(v) ? mean : 0.0f;
      }
    }
    float squares = 0.0f;
#pragma unroll
    for (int v = 0; v < kVectors; ++v) {
#pragma unroll
      for (int j = 0; j < kVector; ++j) squares += x[v][j] * x[v][j];
    }
    squares = ReduceWarp(squares, Plus());
    const float scale = ReciprocalSqrt(squares / dim + args_.eps);
#pragma unroll
    for (int v = 0; v < kVectors; ++v) {
      float w[kVector];
      ToFloats(weights[v], w);
#pragma unroll
      for (int j = 0; j < kVector; ++j) x[v][j] *= scale * (w[j] + args_.weight_offset);
    }
  }

  const QkRopeWriteKvArgs& args_;
  const int64_t dim_;
  const int64_t head_;
  const bool is_q_;
  const bool is_v_;
  const int64_t source_;  // the head that it is made of
  const void* const norm_;
};

}  // namespace mlc_native::kernels::cuda
