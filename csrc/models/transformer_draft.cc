// The entry of a draft head (draft_layout.h), which its forward computes instead of embeddings.
#include <algorithm>

#include "models/transformer_ops.h"

namespace mlc_native {
namespace {

void CopyRows(int64_t rows, int64_t columns, const float* from, int64_t ld_from, float* to,
              int64_t ld_to) {
  for (int64_t row = 0; row < rows; ++row) {
    std::copy_n(from + row * ld_from, columns, to + row * ld_to);
  }
}

// The whole rows `rows` of a matrix of this width.
void GatherRows(std::span<const int32_t> rows, const float* from, int64_t width, float* to,
                int64_t ld_to) {
  for (const int32_t row : rows) {
    std::copy_n(from + row * width, width, to);
    to += ld_to;
  }
}

}  // namespace

void Transformer::Ops::JoinTokensAndStates() {
  const DraftHeadConfig& head = *config_.draft_head;
  const auto& entry = model_.weights_.entry;
  const Activations& joined = buffers_.joined;
  const int64_t hidden = config_.hidden_size;
  const int64_t states_at = head.layout->states_first ? 0 : hidden;
  const Activations tokens{joined.data + (hidden - states_at), joined.width};
  const Activations states{joined.data + states_at, joined.width};
  const auto keep_as_residual = [&] {
    CopyRows(num_rows_, hidden, states.data, states.width, buffers_.residual.data,
             buffers_.residual.width);
  };
  GatherEmbeddings(tokens);
  TakeStates(states);
  const bool in_attention = head.layout->joins_in_attention;
  if (in_attention && !head.norm_before_residual) keep_as_residual();
  if (entry.embedding_norm != nullptr) {
    remembered_.Add(Norm(tokens, entry.embedding_norm, tokens));
  }
  if (entry.state_norm != nullptr) remembered_.Add(Norm(states, entry.state_norm, states));
  if (!in_attention) return RunLinear(entry.fuse, joined, buffers_.residual);
  kernels::RunRows(model_.cpu_, remembered_.span());
  remembered_.Clear();
  if (head.norm_before_residual) keep_as_residual();
}

void Transformer::Ops::TakeStates(const Activations& out) {
  const DraftHeadConfig& head = *config_.draft_head;
  const DraftInput& draft = batch_.draft;
  if (draft.target == nullptr) {
    const Activations& own = buffers_.own_states;
    return GatherRows(draft.own_rows, own.data, own.width, out.data, out.width);
  }
  const StateMemory& target = *draft.target;
  if (!head.layout->joins_in_attention) {
    return GatherRows(draft.places, target.data(), target.width(), out.data, out.width);
  }
  const auto& entry = model_.weights_.entry;
  const Activations& states = buffers_.states;
  GatherRows(draft.places, target.data(), target.width(), states.data, states.width);
  const auto normalize = [&](const float* weight, int64_t begin, int64_t columns) {
    const Activations part{states.data + begin, states.width};
    kernels::NormalizeArgs norm = Norm(part, weight, part);
    norm.dim = columns;
    kernels::Normalize(model_.cpu_, norm);
  };
  if (entry.fuse_norm != nullptr) normalize(entry.fuse_norm, 0, states.width);
  for (size_t i = 0; i < entry.state_norms.size(); ++i) {
    normalize(entry.state_norms[i], static_cast<int64_t>(i) * head.target_hidden_size,
              head.target_hidden_size);
  }
  RunLinear(entry.fuse, states, out);
}

}  // namespace mlc_native
