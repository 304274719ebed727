#include "models/cuda/decoder.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "kernels/cuda/delta_rule.h"
#include "kernels/cuda/key_choice.h"
#include "kernels/cuda/mamba.h"
#include "support/check.h"
#include "weights/weight_shard.h"

namespace mlc_native {
namespace {

using namespace kernels::cuda;  // NOLINT: the vocabulary of this file

constexpr size_t kAlign = 256;
constexpr size_t kMaxDecodeBytes = size_t{256} << 20;  // of DecodeAttention's workspace

// Whether there are sums over whole rows of which each of several GPUs has a part.
bool HasSumsOfWholeRows(const ModelConfig& config) {
  return config.qk_norm == QkNorm::kWholeProjection || config.has_norms_within() ||
         std::ranges::any_of(config.layers,
                             [](const LayerConfig& l) { return l.gate_cut.has_value(); });
}

// Of all residual streams of a row, where there are several.
int64_t StreamsRow(const ModelConfig& config) {
  return config.residual_streams ? config.residual_streams->count * config.hidden_size : 0;
}

}  // namespace

// Every sequence has a row of logits now and then. From kMany rows on the memory is the same: more
// rows are short, or take several calls.
int64_t CudaDecoder::MaxSplitsAtOnce(const ModelConfig& config, const Limits& limits) {
  constexpr int64_t kFew = 64;
  constexpr int64_t kMany = 256;
  constexpr int64_t kSplitsPerRow = 48;
  const int64_t longest = MaxDecodeSplits(MostKeys(config, limits));
  const int64_t rows = std::min(limits.max_rows, std::clamp(limits.max_logits, kFew, kMany));
  const auto bytes = [&](int64_t splits) { return DecodeBytes(config, splits); };
  const auto affordable =
      static_cast<int64_t>((kMaxDecodeBytes - bytes(0)) / (bytes(1) - bytes(0)));
  return std::max(longest, std::min(rows * std::min(longest, kSplitsPerRow), affordable));
}

bool CudaDecoder::KeepsRowNumbers(const ModelConfig& config) {
  const auto behind = config.layers.begin() + static_cast<ptrdiff_t>(config.last_writer()) + 1;
  return std::any_of(behind, config.layers.end(),
                     [](const LayerConfig& layer) { return layer.attends(); });
}

size_t CudaDecoder::DecodeBytes(const ModelConfig& config, int64_t max_splits) {
  const int64_t dim =
      config.Widest([&](const LayerConfig& layer) { return ValueDim(config, layer); });
  return DecodeWorkspaceBytes(max_splits, config.most_heads(), dim);
}

int64_t CudaDecoder::DecodeRowsAtOnce(const ModelConfig& config, const Limits& limits,
                                      const CudaBatch& batch) {
  const int64_t max_splits = MaxSplitsAtOnce(config, limits);
  if (batch.num_splits <= max_splits) return kMaxDecodeRows;
  return std::min(max_splits / MaxDecodeSplits(MostKeys(config, limits)), kMaxDecodeRows);
}

std::vector<kernels::AttentionWindow> CudaDecoder::Windows(const ModelConfig& config) {
  std::vector<kernels::AttentionWindow> windows;
  for (const LayerConfig& layer : config.layers) windows.push_back(layer.window);
  std::ranges::sort(windows);
  windows.erase(std::ranges::unique(windows).begin(), windows.end());
  return windows;
}

CudaDecoder::Buffers CudaDecoder::Place(const ModelConfig& config, DType dtype,
                                        const Limits& limits, void* data, size_t* bytes) {
  size_t at = 0;
  const auto take = [&](int64_t elements, size_t element_bytes) {
    void* place = reinterpret_cast<void*>(reinterpret_cast<uintptr_t>(data) + at);  // data: or null
    at += (static_cast<size_t>(elements) * element_bytes + kAlign - 1) / kAlign * kAlign;
    return place;
  };
  const auto rows = [&](int64_t width) { return take(limits.max_rows * width, DTypeSize(dtype)); };
  const int64_t max_splits = MaxSplitsAtOnce(config, limits);
  Buffers buffers{};
  // Comes first, so that the owner knows which part to set to zero.
  buffers.decode = take(static_cast<int64_t>(DecodeBytes(config, max_splits)), 1);
  buffers.splits = take(std::ssize(Windows(config)), DecodeSplitsBytes(max_splits));
  buffers.residual = static_cast<float*>(take(limits.max_rows * config.hidden_size, sizeof(float)));
  if (config.num_image_layers > 0) {
    buffers.input_rows =
        static_cast<float*>(take(limits.max_rows * config.input_size(), sizeof(float)));
  }
  buffers.hidden = rows(config.hidden_size);
  buffers.output = config.parallel_blocks ? rows(config.hidden_size) : buffers.hidden;
  const int64_t qkv = config.Widest([&](const LayerConfig& l) { return QkvRow(config, l); });
  buffers.qkv = rows(std::max(qkv, config.values_size()));
  buffers.attention = rows(WidestAttentionRow(config));
  if (config.has_states()) PlaceStates(config, dtype, limits, take, &buffers);
  if (config.latent) {
    buffers.latents = rows(LatentRow(config));
    buffers.queries = rows(config.latent->q_rank > 0 ? config.query_up_size() : 0);
  }
  if (config.key_choice) PlaceIndex(config, dtype, limits, take, &buffers);
  PlaceFeedForward(config, dtype, limits.max_rows, take, &buffers);
  const int64_t summed =
      std::max(config.hidden_size, config.experts ? config.experts->latent_size : 0);
  const int64_t parts = Peers::NumParts(limits.num_peers, limits.max_rows * summed);
  if (parts > 0) buffers.peer_parts = take(parts, DTypeSize(dtype));
  if ((config.mamba && config.mamba->norm_has_parts()) ||
      (limits.num_peers > 1 && HasSumsOfWholeRows(config))) {
    const int64_t sums = RoundUp8(2 * limits.max_rows);
    buffers.square_sums = static_cast<float*>(take(sums, sizeof(float)));
    buffers.square_parts = take(Peers::NumParts(limits.num_peers, sums), sizeof(float));
  }
  if (MayHaveAdapters(config, limits)) {
    const int64_t most_rows = std::max(limits.max_rows, limits.max_logits);
    buffers.adapters = static_cast<float*>(take(AdapterWorkspaceFloats(most_rows), sizeof(float)));
  }
  PlaceKeptRows(config, dtype, limits.max_logits, take, &buffers);
  buffers.logits = static_cast<float*>(take(limits.max_logits * LdLogits(config), sizeof(float)));
  if (limits.num_peers > 1) {
    const int64_t own = HeadRows(config.vocab_size, {.rank = 0, .size = limits.num_peers}).size();
    buffers.peer_logits = static_cast<float*>(
        take(limits.max_logits * (LdLogits(config) - RoundUp8(own)), sizeof(float)));
  }
  if (config.draft_head) {
    buffers.halves = rows(2 * config.hidden_size);
    buffers.joined = rows(2 * config.hidden_size);
    buffers.states = rows(config.draft_input_size());
    buffers.own_states =
        static_cast<float*>(take(limits.max_logits * config.hidden_size, sizeof(float)));
  }
  *bytes = at;
  return buffers;
}

void CudaDecoder::PlaceStates(const ModelConfig& config, DType dtype, const Limits& limits,
                              const Take& take, Buffers* buffers) {
  const int64_t max_rows = limits.max_rows;
  const auto floats = [&](int64_t count) {
    return static_cast<float*>(take(count, sizeof(float)));
  };
  buffers->delta_inputs = take(max_rows * StateInputsRow(config), DTypeSize(dtype));
  if (std::ranges::any_of(config.layers, &LayerConfig::attends_beside)) {
    const int64_t outputs = config.recurrent_outputs_size();
    buffers->state_output = take(max_rows * outputs, DTypeSize(dtype));
    buffers->kept_state_output = take(limits.max_logits * outputs, DTypeSize(dtype));
  } else {
    buffers->state_output = buffers->attention;
  }
  if (config.mamba) {
    buffers->delta = floats(MambaWorkspaceFloats(DeltaShapeOf(*config.mamba), max_rows));
  }
  if (config.scan) {
    buffers->delta_gates = floats(max_rows * config.scan->step_inputs_size());
    buffers->delta_decays = floats(max_rows * config.scan->channels);
    buffers->delta_out_gates = take(max_rows * config.scan->channels, DTypeSize(dtype));
    buffers->scan_ranks = take(max_rows * config.scan->rank, DTypeSize(dtype));
  }
  if (config.delta) {
    buffers->delta = floats(DeltaWorkspaceFloats(DeltaShapeOf(*config.delta), max_rows));
    const DeltaConfig& delta = *config.delta;
    buffers->delta_gates = floats(max_rows * delta.gates_size());
    if (!delta.decays_channels()) return;
    buffers->delta_decays = floats(max_rows * delta.decays_size());
    buffers->delta_out_gates = take(max_rows * delta.values_size(), DTypeSize(dtype));
  }
}

void CudaDecoder::PlaceIndex(const ModelConfig& config, DType dtype, const Limits& limits,
                             const Take& take, Buffers* buffers) {
  const KeyChoiceConfig& choice = *config.key_choice;
  const int64_t rows = limits.max_rows;
  buffers->index_queries = take(rows * choice.queries_size(), DTypeSize(dtype));
  buffers->index_keys = take(rows * choice.head_dim, DTypeSize(dtype));
  buffers->index_weights = static_cast<float*>(take(rows * choice.num_heads, sizeof(float)));
  const int64_t scored = std::min(rows, kChosenAtOnce) * ScoreRow(limits.max_length);
  buffers->key_scores = static_cast<float*>(take(scored, sizeof(float)));
  buffers->chosen = static_cast<int32_t*>(take(rows * choice.num_chosen, sizeof(int32_t)));
  buffers->num_chosen = static_cast<int32_t*>(take(rows, sizeof(int32_t)));
}

void CudaDecoder::PlaceFeedForward(const ModelConfig& config, DType dtype, int64_t max_rows,
                                   const Take& take, Buffers* buffers) {
  const auto rows = [&](int64_t width) { return take(max_rows * width, DTypeSize(dtype)); };
  const int64_t shared_ffn = config.experts ? config.experts->shared_ffn_size : 0;
  const int64_t shared_gate_up =
      config.experts ? config.linear_rows({}, LinearRole::kSharedGateUp) : 0;
  const auto of_dense = [&](const auto& size) {
    return config.Widest([&](const LayerConfig& l) { return l.has_dense_ffn() ? size(l) : 0; });
  };
  const int64_t gate_up = of_dense(
      [&](const LayerConfig& layer) { return config.linear_rows(layer, LinearRole::kGateUp); });
  const int64_t parts = StreamsRow(config) * static_cast<int64_t>(sizeof(float)) /
                        static_cast<int64_t>(DTypeSize(dtype));
  buffers->ffn = rows(std::max({gate_up, shared_gate_up, config.layer_inputs_size(), parts}));
  buffers->activated = rows(std::max(
      of_dense([&](const LayerConfig& layer) { return config.ffn_size_of(layer); }), shared_ffn));
  if (config.layer_inputs) {
    buffers->layer_inputs =
        static_cast<float*>(take(max_rows * config.layer_inputs_size(), sizeof(float)));
  }
  if (config.residual_streams) {
    buffers->streams = static_cast<float*>(take(max_rows * StreamsRow(config), sizeof(float)));
  }
  if (config.laurel_rank > 0) {
    buffers->laurel_rank = rows(config.laurel_rank);
    buffers->laurel = rows(config.hidden_size);
  }
  if (config.experts) PlaceExperts(config, dtype, max_rows, take, buffers);
}

void CudaDecoder::PlaceKeptRows(const ModelConfig& config, DType dtype, int64_t max_logits,
                                const Take& take, Buffers* buffers) {
  buffers->kept_residual =
      static_cast<float*>(take(max_logits * config.hidden_size, sizeof(float)));
  if (config.residual_streams) {
    buffers->kept_streams =
        static_cast<float*>(take(max_logits * StreamsRow(config), sizeof(float)));
  }
  buffers->kept_attention = take(max_logits * WidestAttentionRow(config), DTypeSize(dtype));
  if (config.parallel_blocks) {
    buffers->kept_input = take(max_logits * config.hidden_size, DTypeSize(dtype));
  }
  if (KeepsRowNumbers(config)) {
    const auto numbers = [&] { return static_cast<int32_t*>(take(max_logits, sizeof(int32_t))); };
    auto* const slots = static_cast<int64_t*>(take(max_logits, sizeof(int64_t)));
    buffers->kept_rows = {numbers(), numbers(), numbers(), slots};
  }
}

void CudaDecoder::PlaceExperts(const ModelConfig& config, DType dtype, int64_t max_rows,
                               const Take& take, Buffers* buffers) {
  const ExpertConfig& experts = *config.experts;
  const int64_t choices = max_rows * experts.router.num_chosen;
  MLC_CHECK(choices <= std::numeric_limits<int32_t>::max()) << choices;
  const size_t size = DTypeSize(dtype);
  const auto numbers = [&] { return static_cast<int32_t*>(take(choices, sizeof(int32_t))); };
  buffers->router = static_cast<float*>(take(max_rows * experts.router_rows(), sizeof(float)));
  buffers->choices.experts = numbers();
  buffers->choices.places = numbers();
  buffers->choices.rows = numbers();
  buffers->choices.weights = static_cast<float*>(take(choices, sizeof(float)));
  buffers->choices.groups =
      static_cast<ExpertGroup*>(take(experts.router.num_experts, sizeof(ExpertGroup)));
  const int64_t gate_up = config.linear_rows({}, LinearRole::kExpertGateUp);
  buffers->expert_ffn = take(choices * std::max(gate_up, config.expert_input_size()), size);
  buffers->expert_output = buffers->expert_ffn;
  buffers->expert_activated = take(choices * experts.ffn_size, size);
  if (experts.scales_inputs) buffers->expert_inputs = take(choices * config.hidden_size, size);
  if (experts.latent_size > 0) buffers->expert_latents = take(max_rows * experts.latent_size, size);
  if (experts.shared_ffn_size > 0) buffers->shared = take(max_rows * config.hidden_size, size);
}

size_t CudaDecoder::WorkspaceBytes(const ModelConfig& config, DType dtype, const Limits& limits) {
  size_t bytes = 0;
  Place(config, dtype, limits, nullptr, &bytes);
  return bytes;
}

CudaDecoder::CudaDecoder(const ModelConfig& config, CudaDecoderWeights weights,
                         std::vector<KvPages> kv, const Limits& limits, void* workspace,
                         ManyRows many_rows, Stream stream, Peer peer)
    : config_(config),
      weights_(std::move(weights)),
      kv_(std::move(kv)),
      limits_(limits),
      windows_(Windows(config_)),
      last_writer_(config_.last_writer()),
      max_splits_(MaxSplitsAtOnce(config_, limits_)),
      many_rows_(std::move(many_rows)),
      stream_(stream),
      peer_(peer),
      buffers_([&] {
        size_t bytes = 0;
        return Place(config_, weights_.dtype, limits_, workspace, &bytes);
      }()) {
  MLC_CHECK(weights_.layers.size() == config_.layers.size() && kv_.size() == weights_.layers.size())
      << weights_.layers.size() << " layers";
  CheckExperts();
}

}  // namespace mlc_native
