// Which tensor of a checkpoint fills which rows of which parameter: the shapes a decoder must find,
// with fusions as row offsets. Pure; any thread.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "arch/model_config.h"
#include "weights/decoder_weights.h"
#include "weights/weight_source.h"

namespace mlc_native {

enum class ParameterForm : uint8_t {
  kPacked,  // matrix for Linear
  kTable,   // row-major matrix for look-ups
  kVector,  // float32; with columns: a vector for each head, one after the other
};

struct Parameter {
  ParameterForm form = ParameterForm::kPacked;
  int64_t rows = 0;  // 0: a device of several does without it
  int64_t columns = 1;
  float scale = 1.0f;  // of a vector: what the checkpoint's values are multiplied with
  // Neither quantized nor rounded, whatever the others are: what a small error could change wholly,
  // as the choice of experts.
  bool in_float32 = false;
};

// Rows of a tensor [num_rows, columns] or [num_rows]: consecutive ones, or runs at equal distances.
struct RowsOfTensor {
  int64_t num_rows = 0;  // 0: the weight is not a part of a tensor
  int64_t first = 0;
  bool transposed = false;  // the weight is [columns, rows]
  int64_t run = 0;          // rows of a run; 0: all of them follow one another
  int64_t step = 0;         // from the beginning of a run to that of the next one

  // The shape of the tensor whose part has this one.
  std::vector<int64_t> StoredShape(std::span<const int64_t> shape) const;
};

// Tensor `name` of `shape` fills the rows from row_offset of parameters[parameter]; of a tensor
// that joins several matrices, only the one of this place does. Without a name, ones do.
struct WeightSlot {
  std::string name;
  std::vector<int64_t> shape;  // of the weight: without the number of joined matrices
  size_t parameter = 0;
  int64_t row_offset = 0;
  JoinedPlace joined{};
  RowsOfTensor part{};       // not together with `joined`
  PaddedHeads padding{};     // likewise
  float scale = 1;           // of its values
  int64_t num_integers = 0;  // above 0: the tensor has integers, from 0 up to below this number
  float row_norm_eps = 0;    // above 0: each row is divided by the root of its mean square and this
  // Tensors that have the last columns, one behind the other; `name` has those before.
  struct Beside {
    std::string name;
    int64_t columns = 0;
  };
  std::vector<Beside> beside{};

  // One slot for each of the tensors side by side, with its columns alone.
  std::vector<WeightSlot> Tensors() const;
  int64_t rows() const { return shape[0]; }
  // Without what the tensor lacks of the heads.
  std::vector<int64_t> UnpaddedShape() const;
};

// The parameters of one layer, as indices into WeightMap::parameters or kAbsent.
inline constexpr size_t kAbsent = static_cast<size_t>(-1);
struct LinearParameters {
  LinearKey key{};
  size_t matrix = kAbsent;
  size_t bias = kAbsent;
};
struct NormParameters {
  size_t weight = kAbsent;
  size_t bias = kAbsent;
  bool gives_residual = false;
};
struct LayerParameters {
  LayerParameters() { vectors.fill(kAbsent); }

  std::vector<LinearParameters> linears;
  std::array<NormParameters, kNumNormRoles> norms;  // by NormRole
  std::array<size_t, kNumVectorRoles> vectors;      // by VectorRole
};

// Those of DecoderWeights::Entry.
struct EntryParameters {
  LinearParameters fuse;
  size_t embedding_norm = kAbsent;
  size_t state_norm = kAbsent;
  size_t fuse_norm = kAbsent;
  std::vector<size_t> state_norms;
};

// Those of DecoderWeights::MedusaHead.
struct MedusaParameters {
  std::vector<LinearParameters> blocks;
  size_t head = kAbsent;
};

// Those of DecoderWeights::LayerInputs, and the table.
struct LayerInputParameters {
  LinearParameters projection;
  size_t norm = kAbsent;
  size_t embeddings = kAbsent;
};

// Those of DecoderWeights::Leave.
struct LeaveParameters {
  size_t mix = kAbsent;
  size_t base = kAbsent;
  size_t scales = kAbsent;
};

struct WeightMap {
  std::vector<Parameter> parameters;
  std::vector<WeightSlot> slots;

  std::vector<LayerParameters> layers;
  LayerInputParameters layer_inputs;
  std::vector<LinearParameters> streams_in;
  std::vector<LinearParameters> streams_out;
  LeaveParameters leave;
  EntryParameters entry;
  std::vector<MedusaParameters> medusa;
  NormParameters embedding_norm;
  size_t distances = kAbsent;
  NormParameters distance_norm;
  NormParameters final_norm;
  size_t head = 0;  // absent of a draft head that has its target's
  size_t head_bias = kAbsent;
  size_t embeddings = kAbsent;  // absent when tied, and when they are the target's
  size_t positions = kAbsent;   // rows that are added to the embeddings,
  size_t text_types = kAbsent;  // likewise

  // What all devices have of a decoder's weights; matrix(p) and vector(p) make views of parameters.
  template <typename MatrixFn, typename VectorFn>
  auto View(DType dtype, const MatrixFn& matrix, const VectorFn& vector) const {
    using Matrix = decltype(matrix(size_t{}));
    using Vector = decltype(vector(size_t{}));
    using Layer = LayerWeights<Matrix, Vector>;
    using Linear = typename Layer::Linear;
    const auto optional = [&](size_t p) { return p == kAbsent ? Vector{} : vector(p); };
    const auto norm = [&](const NormParameters& p) {
      return NormWeights<Vector>{optional(p.weight), optional(p.bias), p.gives_residual};
    };
    const auto linear = [&](const LinearParameters& p) {
      return p.matrix == kAbsent ? Linear{} : Linear{matrix(p.matrix), optional(p.bias)};
    };
    DecoderWeights<Matrix, Vector> weights;
    weights.dtype = dtype;
    for (const LayerParameters& layer : layers) {
      typename Layer::Linears linears;
      for (const LinearParameters& p : layer.linears) linears.push_back({p.key, linear(p)});
      typename Layer::Norms norms;
      for (size_t i = 0; i < norms.size(); ++i) norms[i] = norm(layer.norms[i]);
      typename Layer::Vectors vectors;
      for (size_t i = 0; i < vectors.size(); ++i) vectors[i] = optional(layer.vectors[i]);
      weights.layers.push_back(Layer(std::move(linears), std::move(norms), std::move(vectors)));
    }
    weights.embedding_norm = norm(embedding_norm);
    weights.distances = optional(distances);
    weights.distance_norm = norm(distance_norm);
    weights.final_norm = norm(final_norm);
    weights.head = linear({.matrix = head, .bias = head_bias});
    weights.layer_inputs.projection = linear(layer_inputs.projection);
    weights.layer_inputs.norm = optional(layer_inputs.norm);
    for (const LinearParameters& p : streams_in) weights.streams_in.push_back(linear(p));
    for (const LinearParameters& p : streams_out) weights.streams_out.push_back(linear(p));
    weights.leave = {optional(leave.mix), optional(leave.base), optional(leave.scales)};
    weights.entry.fuse = linear(entry.fuse);
    weights.entry.embedding_norm = optional(entry.embedding_norm);
    weights.entry.state_norm = optional(entry.state_norm);
    weights.entry.fuse_norm = optional(entry.fuse_norm);
    for (size_t p : entry.state_norms) weights.entry.state_norms.push_back(vector(p));
    for (const MedusaParameters& p : medusa) {
      auto& of_guess = weights.medusa.emplace_back();
      for (const LinearParameters& block : p.blocks) of_guess.blocks.push_back(linear(block));
      of_guess.head = linear({.matrix = p.head});
    }
    return weights;
  }

  // The index of a new parameter, without a tensor or with the one that fills it.
  size_t AddParameter(ParameterForm form, int64_t rows, int64_t columns);
  size_t AddWhole(ParameterForm form, const std::string& name, std::vector<int64_t> shape);

  // Whether its rounding errors cost most: the head's are the logits', and all layers pass on what
  // the first one gets wrong.
  bool IsSensitive(size_t parameter) const;
  // Of each parameter whether it is an expert's, so that a forward may not read it.
  std::vector<bool> ParametersOfExperts() const;
};

// Which of the names in ArchSpec::names a checkpoint uses, or a draft head has.
struct WeightNames {
  std::string prefix;        // of names inside the decoder
  std::string head;          // "" when tied; of a draft head: when it is the target's
  std::string embeddings{};  // of a draft head; "" when they are the target's
  std::string head_bias{};   // if it has one
  const ExpertSpelling* experts = nullptr;  // one of ExpertRule::spellings
};

}  // namespace mlc_native
