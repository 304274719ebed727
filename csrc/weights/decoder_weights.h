// The weights of a decoder as a device reads them: views of matrices and vectors, arranged the same
// way on every device. Immutable after loading; the memory belongs to the device's own struct.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <utility>
#include <vector>

#include "arch/layer_roles.h"
#include "mlc_native/detail/dtype.h"
#include "support/check.h"

namespace mlc_native {

// Names a linear among those of a layer. Families without experts have expert 0 alone. Of a role
// that each head has (IsOfHeads), `expert` is the head.
struct LinearKey {
  LinearRole role = LinearRole::kQkv;
  int expert = 0;

  auto operator<=>(const LinearKey&) const = default;
};

template <typename Vector>
struct NormWeights {
  Vector weight{};
  Vector bias{};
  bool gives_residual = false;  // what it gives is the residual, too
};

// The linears, norms and other vectors of one layer. `Matrix` is a view of a packed matrix;
// `Vector` is a view of a vector, and Vector{} where the family has none.
template <typename Matrix, typename Vector>
class LayerWeights {
 public:
  struct Linear {
    Matrix matrix{};
    Vector bias{};
  };
  using Linears = std::vector<std::pair<LinearKey, Linear>>;
  using Norm = NormWeights<Vector>;
  using Norms = std::array<Norm, kNumNormRoles>;        // by NormRole
  using Vectors = std::array<Vector, kNumVectorRoles>;  // by VectorRole

  LayerWeights() = default;  // no linears
  // Requires: the experts (or heads) of each role in `linears` are 0, 1, 2, ..., each once. The
  // order is free.
  LayerWeights(Linears linears, Norms norms, Vectors vectors = {})
      : norms_(std::move(norms)), vectors_(std::move(vectors)) {
    std::ranges::sort(linears, {}, [](const auto& entry) { return entry.first; });
    for (auto& [key, linear] : linears) {
      Span& span = spans_[static_cast<size_t>(key.role)];
      MLC_CHECK(key.expert == span.count)
          << "expert " << key.expert << " of role " << static_cast<int>(key.role);
      if (span.count++ == 0) span.begin = linears_.size();
      linears_.push_back(std::move(linear));
    }
  }

  int num_experts(LinearRole role) const { return spans_[static_cast<size_t>(role)].count; }
  // Requires: expert < num_experts(role).
  const Linear& linear(LinearRole role, int expert = 0) const {
    return linears_[spans_[static_cast<size_t>(role)].begin + static_cast<size_t>(expert)];
  }
  const Norm& norm(NormRole role) const { return norms_[static_cast<size_t>(role)]; }
  const Vector& vector(VectorRole role) const { return vectors_[static_cast<size_t>(role)]; }

 private:
  // The experts of one role within linears_.
  struct Span {
    size_t begin = 0;
    int count = 0;
  };

  std::vector<Linear> linears_;
  std::array<Span, kNumLinearRoles> spans_{};
  Norms norms_{};
  Vectors vectors_{};
};

template <typename Matrix, typename Vector>
struct DecoderWeights {
  using Layer = LayerWeights<Matrix, Vector>;
  using Linear = typename Layer::Linear;

  DType dtype = DType::kFloat32;  // of what is not quantized
  std::vector<Layer> layers;
  NormWeights<Vector> embedding_norm;  // in front of the first layer
  Vector distances{};                  // [buckets, heads] or [rows, hidden] of float32
  NormWeights<Vector> distance_norm;   // of such rows
  NormWeights<Vector> final_norm;
  Linear head;  // [vocab, hidden], without a bias; tied: the embeddings, too

  // Of a decoder whose layers have inputs.
  struct LayerInputs {
    Linear projection;  // [layers * size, hidden]
    Vector norm{};      // [size], times the root of a half
  };
  LayerInputs layer_inputs;

  // Of a decoder with residual streams: for each but the first, [hidden, hidden].
  std::vector<Linear> streams_in;   // what makes it of the embeddings
  std::vector<Linear> streams_out;  // what makes of it a part of what the final norm reads

  // Of a decoder with hyper-connections: what the sum of all streams that the final norm reads
  // comes from (StreamOp::kLeave).
  struct Leave {
    Vector mix{};
    Vector base{};
    Vector scales{};
  };
  Leave leave;

  // Of a draft head (draft_layout.h).
  struct Entry {
    Linear fuse;
    Vector embedding_norm{};
    Vector state_norm{};
    Vector fuse_norm{};               // of all states of the target together
    std::vector<Vector> state_norms;  // of each of them
  };
  Entry entry;

  // Of Medusa: what makes its guess k is medusa[k].
  struct MedusaHead {
    std::vector<Linear> blocks;
    Linear head;  // without a matrix: the one above
  };
  std::vector<MedusaHead> medusa;
};

}  // namespace mlc_native
