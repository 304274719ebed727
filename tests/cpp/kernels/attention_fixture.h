// A batch of sequences in shuffled pages, and the fixture of the attention tests. One thread.
#pragma once

#include <algorithm>
#include <numeric>
#include <utility>

#include "kernels/test_util.h"

namespace mlc_native::kernels {

struct Sequence {
  int64_t cached = 0;  // positions before the rows of this call
  int64_t rows = 0;
  Floats q, k, v;  // q of the rows; k and v of all positions, as the KV format stores them
  std::vector<int32_t> table;
  int64_t last_key = 0;  // AttentionSequence::last_key
};

struct Shape {
  KvFormat format = KvFormat::kFloat32;
  int64_t q_heads = 4;
  int64_t kv_heads = 2;
  int64_t head_dim = 32;
  float soft_cap = 0;
  AttentionWindow window{};
  Floats sinks{};      // [q_heads]; empty: none
  Floats slopes{};     // [q_heads]; empty: none
  Floats distances{};  // [q_heads, 2 * reach + 1]; empty: none
  int64_t reach = 0;
  // Vectors of distances, [q_heads, head_dim, 2 * vector_reach + 1] each; empty: none.
  Floats key_vectors{};
  Floats query_vectors{};
  int64_t vector_reach = 0;
  int64_t value_columns = 0;
};

inline constexpr KvFormat kKvFormats[] = {KvFormat::kFloat32, KvFormat::kBFloat16,
                                          KvFormat::kFloat16, KvFormat::kInt8};

float RoundTo(KvFormat format, float x);

// Returns rows of head_dim as pages of that format store them.
void RoundAsStored(KvFormat format, int64_t head_dim, Floats& rows);

class AttentionTest : public KernelTest {
 protected:
  // The pages are in random order; every slot without a position is NaN.
  struct Cache {
    AlignedBuffer k_pages, v_pages;
    KvPages layer;
  };

  // Biases by distance: slopes, a table or both, by the number of the trial.
  void AddDistances(int trial, Shape* shape);
  // Its slopes, and its distances in `table`, which this fills.
  static DistanceBias BiasOf(const Shape& shape, Floats* table);
  // Vectors by distance, of keys, of queries or of both, by the number of the trial.
  void AddVectors(int trial, Shape* shape);
  // The same in rows as kernels read them.
  struct VectorRows {
    Floats keys, queries;
    DistanceVectors view;
    explicit VectorRows(const Shape& shape);
  };

  static int64_t PagesOf(const Sequence& s) {
    return (s.cached + s.rows + kPageSize - 1) / kPageSize;
  }

  Sequence MakeSequence(const Shape& shape, int64_t cached, int64_t rows);
  Cache MakeCache(const Shape& shape, std::vector<Sequence>& sequences);
  void Write(const KvPages& layer, const Sequence& s);

  // Computes the rows of all sequences in one call. Returns the dense output.
  Floats Run(const Cpu& cpu, const Shape& shape, const KvPages& layer,
             const std::vector<Sequence>& sequences);

  // Tolerances where q and the softmax weights are rounded to bfloat16, and where nothing is.
  double Tolerance(KvFormat format) const {
    return rounds_queries() && KvInPairs(format) ? 1e-2 : 3e-6;
  }

  static float Scale(const Shape& shape) {
    return 1.0f / std::sqrt(static_cast<float>(shape.head_dim));
  }

  reference::Matrix Truth(const Shape& shape, const Sequence& s);

  // Returns rows [from, to) of a sequence, for a separate call.
  static Sequence Slice(const Shape& shape, const Sequence& s, int64_t from, int64_t to);
};

}  // namespace mlc_native::kernels
