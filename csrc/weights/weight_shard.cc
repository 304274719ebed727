#include "weights/weight_shard.h"

#include <algorithm>
#include <string>
#include <utility>

#include "kernels/packed_format.h"
#include "support/check.h"
#include "support/error.h"
#include "weights/part_of_weight.h"
#include "weights/state_shares.h"

namespace mlc_native {
namespace {

// What one device has of a parameter.
struct Cut {
  std::vector<IndexRange> rows;     // empty: all of them
  std::vector<IndexRange> columns;  // the same
  bool is_absent = false;
};

// Collects what the device has of each parameter, and applies it.
class Cutter {
 public:
  Cutter(const ModelConfig& config, const Shard& shard, WeightPlan* plan)
      : whole_(config),
        part_(ShardOf(config, shard.size)),
        shard_(shard),
        plan_(*plan),
        cuts_(plan->map.parameters.size()) {}

  void Run() {
    for (size_t i = 0; i < plan_.map.layers.size(); ++i) {
      of_whole_ = &whole_.layers[i];
      of_part_ = &part_.layers[i];
      CutLayer(plan_.map.layers[i]);
    }
    CutHead();
    CheckGroups();
    Apply();
  }

  void RunForHead() {
    for (size_t i = 0; i < cuts_.size(); ++i) {
      cuts_[i].is_absent = i != plan_.map.head && i != plan_.map.head_bias;
    }
    Apply();
  }

 private:
  // The part of [0, whole) that is `part` long, moved by `offset`.
  IndexRange Share(int64_t part, int64_t offset = 0) const {
    return {offset + shard_.rank * part, offset + (shard_.rank + 1) * part};
  }
  IndexRange Heads() const { return Share(part_.heads_of(*of_part_)); }
  int64_t NumHeads() const { return whole_.heads_of(*of_whole_); }
  StateShares States() const { return {whole_, part_, shard_.rank}; }
  // Each device has the heads of the layer that its query heads read.
  IndexRange KvHeads() const {
    const int64_t first = shard_.rank * whole_.kv_heads_of(*of_whole_) / shard_.size;
    return {first, first + part_.kv_heads_of(*of_part_)};
  }
  static IndexRange Scaled(const IndexRange& range, int64_t factor, int64_t offset = 0) {
    return {offset + range.begin * factor, offset + range.end * factor};
  }

  static int64_t FfnOf(const ModelConfig& config, const LayerConfig& layer, LinearRole role) {
    switch (role) {
      case LinearRole::kExpertGateUp:
      case LinearRole::kExpertDown:
        return config.experts->ffn_size;
      case LinearRole::kSharedGateUp:
      case LinearRole::kSharedDown:
        return config.experts->shared_ffn_size;
      default:
        return config.ffn_size_of(layer);
    }
  }

  void CutLayer(LayerParameters& layer) {
    for (LinearParameters& linear : layer.linears) CutLinear(linear);
    TakeHeads(layer);
    if (whole_.qk_norm == QkNorm::kPerHeadOwnWeight || whole_.qk_norm == QkNorm::kWholeProjection) {
      CutHeads(layer.norms[static_cast<size_t>(NormRole::kQ)].weight, Heads(), NumHeads());
      CutHeads(layer.norms[static_cast<size_t>(NormRole::kK)].weight, KvHeads(),
               whole_.kv_heads_of(*of_whole_));
    }
    CutHeads(layer.norms[static_cast<size_t>(NormRole::kAttentionOut)].weight, Heads(), NumHeads());
    const size_t of_ffn = layer.norms[static_cast<size_t>(NormRole::kFfnDown)].weight;
    if (of_ffn != kAbsent) cuts_[of_ffn].rows = {Share(part_.ffn_size_of(*of_part_))};
    const auto vector = [&](VectorRole role) { return layer.vectors[static_cast<size_t>(role)]; };
    CutHeads(vector(VectorRole::kSinks), Heads(), NumHeads());
    if (vector(VectorRole::kConvolution) != kAbsent) CutStateVectors(layer);
  }

  void CutStateVectors(const LayerParameters& layer) {
    const auto vector = [&](VectorRole role) { return layer.vectors[static_cast<size_t>(role)]; };
    const StateShares states = States();
    cuts_[vector(VectorRole::kConvolution)].columns = states.Channels();
    const size_t bias = vector(VectorRole::kConvolutionBias);
    if (bias != kAbsent) cuts_[bias].rows = states.Channels();
    if (whole_.convolution) return;
    for (const VectorRole role : {VectorRole::kDecay, VectorRole::kDecayBias, VectorRole::kSkip}) {
      CutHeads(vector(role), states.Heads(), states.num_heads());
    }
    // Heads of linear attention share the weight of the norm.
    if (whole_.mamba) {
      CutHeads(vector(VectorRole::kDeltaNorm), states.Heads(), states.num_heads());
    }
  }

  void CutLinear(LinearParameters& linear) {
    const LinearRole role = linear.key.role;
    switch (role) {
      case LinearRole::kRouter:
      case LinearRole::kExpertsIn:  // kExpertsOut reads what the experts of all devices give
      case LinearRole::kExpertsOut:
      case LinearRole::kHeadKeyUp:  // TakeHeads takes all or nothing of one of a head
      case LinearRole::kHeadValueUp:
      case LinearRole::kLayerInputGate:  // small, and its result needs no sum if all devices have
                                         // it
      case LinearRole::kLayerInputUp:
      case LinearRole::kLaurelDown:  // likewise
      case LinearRole::kLaurelUp:
      case LinearRole::kIndexQueries:  // all devices choose the same keys
      case LinearRole::kIndexKeys:
      case LinearRole::kIndexWeights:
      case LinearRole::kTokenRows:  // of models that run on the CPU alone
      case LinearRole::kGroupOut:
      case LinearRole::kScanInputs:  // of layers that ShardOf refuses
      case LinearRole::kScanSteps:
        return;
      case LinearRole::kDeltaInputs:
        return CutRows(linear, States().Inputs());
      case LinearRole::kDeltaGates:
        return CutRows(linear, States().Gates());
      case LinearRole::kDeltaDecays:
        return CutRows(linear, {States().Decays()});
      case LinearRole::kDeltaOutGates:
        return CutRows(linear, {States().Outputs()});
      case LinearRole::kDeltaOut:
        return CutColumns(linear, States().Outputs());
      case LinearRole::kQueryUp:
        return CutRows(linear, {Scaled(Heads(), whole_.latent->query_dim())});
      case LinearRole::kQkv: {
        if (whole_.latent) return CutLatents(linear);
        return CutRows(linear, RowsOfQkv());
      }
      case LinearRole::kGateUp:
      case LinearRole::kExpertGateUp:
      case LinearRole::kSharedGateUp: {
        const int64_t ffn = FfnOf(whole_, *of_whole_, role);
        std::vector<IndexRange> rows;
        for (int64_t at = 0; at < plan_.map.parameters[linear.matrix].rows; at += ffn) {
          rows.push_back(Share(FfnOf(part_, *of_part_, role), at));
        }
        return CutRows(linear, rows);
      }
      case LinearRole::kOut:
        return CutColumns(linear, Scaled(Heads(), whole_.values_size(*of_whole_) / NumHeads()));
      case LinearRole::kDown:
      case LinearRole::kExpertDown:
      case LinearRole::kSharedDown:
        return CutColumns(linear, Share(FfnOf(part_, *of_part_, role)));
    }
  }

  // Of gates, if there are, queries, keys and values, as far as the layer makes them.
  std::vector<IndexRange> RowsOfQkv() const {
    const LayerConfig& layer = *of_whole_;
    const int64_t size = whole_.head_dim_of(layer);
    std::vector<IndexRange> rows;
    if (whole_.gates_attention()) {
      rows.push_back(Scaled(Heads(), size / whole_.elements_per_gate()));
    }
    const int64_t q = whole_.attention_gates_size(layer);
    const int64_t k = q + whole_.q_size(layer);
    rows.push_back(Scaled(Heads(), size, q));
    if (!layer.has_own_kv()) return rows;
    rows.push_back(Scaled(KvHeads(), size, k));
    if (!layer.keys_are_values) rows.push_back(Scaled(KvHeads(), size, k + whole_.kv_size(layer)));
    return rows;
  }

  // Each device has all latents; of queries that come from the hidden states those of its heads.
  void CutLatents(const LinearParameters& linear) {
    if (whole_.latent->q_rank > 0) return;
    CutRows(linear, {Scaled(Heads(), whole_.latent->query_dim()),
                     {whole_.query_latent_size(), whole_.latent_size()}});
  }

  // Of the matrices of each head, those of the device's heads, numbered from 0 on.
  void TakeHeads(LayerParameters& layer) {
    const IndexRange heads = Heads();
    std::erase_if(layer.linears, [&](LinearParameters& linear) {
      if (!IsOfHeads(linear.key.role)) return false;
      const int64_t head = linear.key.expert;
      linear.key.expert = static_cast<int>(head - heads.begin);
      if (head >= heads.begin && head < heads.end) return false;
      Drop(&linear.matrix);
      return true;
    });
  }

  void CutRows(const LinearParameters& linear, const std::vector<IndexRange>& rows) {
    cuts_[linear.matrix].rows = rows;
    if (linear.bias != kAbsent) cuts_[linear.bias].rows = rows;
  }

  // The sum of all devices has the bias once.
  void CutColumns(LinearParameters& linear, const IndexRange& columns) {
    cuts_[linear.matrix].columns = {columns};
    if (!shard_.is_first()) Drop(&linear.bias);
  }

  // Of a vector of each head, in rows or one after the other.
  void CutHeads(size_t parameter, const IndexRange& heads, int64_t num_heads) {
    if (parameter == kAbsent) return;
    const int64_t rows = plan_.map.parameters[parameter].rows;
    cuts_[parameter].rows = {Scaled(heads, rows / num_heads)};
  }

  void Drop(size_t* parameter) {
    if (*parameter != kAbsent) cuts_[*parameter].is_absent = true;
    *parameter = kAbsent;
  }

  void CutHead() {
    WeightMap& map = plan_.map;
    if (map.embeddings == kAbsent) return;  // it is also the table, which each device has
    const IndexRange rows = HeadRows(map.parameters[map.head].rows, shard_);
    if (rows.size() == 0) {
      Drop(&map.head);
      return Drop(&map.head_bias);
    }
    cuts_[map.head].rows = {rows};
    if (map.head_bias != kAbsent) cuts_[map.head_bias].rows = {rows};
  }

  void CheckGroups() const {
    for (size_t i = 0; i < plan_.sources.size(); ++i) {
      const size_t parameter = plan_.map.slots[i].parameter;
      if (plan_.map.parameters[parameter].form != ParameterForm::kPacked) continue;
      for (const IndexRange& columns : cuts_[parameter].columns) {
        const kernels::PanelLayout layout = kernels::LayoutOf(plan_.formats[parameter]);
        if (layout.scale_bytes > 0) CheckBorder(i, columns, layout.group);
        const std::optional<CodeForm> form = plan_.sources[i]->code_form();
        if (form && form->HeldBy(plan_.formats[parameter]) && form->num_groups > 1) {
          CheckBorder(i, columns, form->group);
        }
      }
    }
  }

  void CheckBorder(size_t slot, const IndexRange& columns, int64_t group) const {
    if (columns.size() % group == 0) return;
    throw InvalidConfig(
        kShardsField,
        OutOfRangeMessage(kShardsField, shard_.size,
                          "a number that gives each GPU a multiple of " + std::to_string(group) +
                              " input columns of " + plan_.map.slots[slot].name + ", which has " +
                              std::to_string(plan_.map.slots[slot].shape[1]) + " in groups of " +
                              std::to_string(group)));
  }

  void Apply() {
    std::vector<WeightSlot> slots;
    WeightSources sources;
    for (size_t i = 0; i < plan_.map.slots.size(); ++i) {
      WeightSlot& slot = plan_.map.slots[i];
      const Cut& cut = cuts_[slot.parameter];
      if (cut.is_absent) continue;
      if (cut.rows.empty() && cut.columns.empty()) {
        slots.push_back(std::move(slot));
        sources.push_back(std::move(plan_.sources[i]));
        continue;
      }
      std::vector<IndexRange> rows = RowsIn(cut, &slot);
      if (rows.empty()) continue;  // all of it belongs to other devices
      const int64_t num_rows = slot.shape[0];
      const int64_t num_columns = slot.shape.size() > 1 ? slot.shape[1] : 1;
      slot.shape[0] = Total(rows);
      if (!cut.columns.empty()) slot.shape[1] = Total(cut.columns);
      sources.push_back(std::make_unique<PartOfWeight>(std::move(plan_.sources[i]), num_rows,
                                                       num_columns, std::move(rows), cut.columns));
      slots.push_back(std::move(slot));
    }
    plan_.map.slots = std::move(slots);
    plan_.sources = std::move(sources);
    for (size_t i = 0; i < cuts_.size(); ++i) CutParameter(cuts_[i], &plan_.map.parameters[i]);
  }

  // The rows of the slot's source that the device has. They follow one another in the parameter,
  // and the slot is moved to where they begin.
  static std::vector<IndexRange> RowsIn(const Cut& cut, WeightSlot* slot) {
    if (cut.rows.empty()) return {{0, slot->rows()}};
    const int64_t begin = slot->row_offset;
    const int64_t end = begin + slot->rows();
    std::vector<IndexRange> found;
    int64_t before = 0;  // rows of the device in front of the range
    for (const IndexRange& range : cut.rows) {
      const IndexRange both{std::max(range.begin, begin), std::min(range.end, end)};
      if (both.size() > 0) {
        if (found.empty()) slot->row_offset = before + both.begin - range.begin;
        found.push_back({both.begin - begin, both.end - begin});
      }
      before += range.size();
    }
    return found;
  }

  static void CutParameter(const Cut& cut, Parameter* parameter) {
    if (cut.is_absent) parameter->rows = 0;
    if (!cut.columns.empty()) parameter->columns = Total(cut.columns);
    if (!cut.rows.empty()) parameter->rows = Total(cut.rows);
  }

  const ModelConfig& whole_;
  const ModelConfig part_;
  const LayerConfig* of_whole_ = nullptr;  // of the layer that is being cut
  const LayerConfig* of_part_ = nullptr;
  const Shard shard_;
  WeightPlan& plan_;
  std::vector<Cut> cuts_;  // by parameter
};

}  // namespace

IndexRange HeadRows(int64_t rows, const Shard& shard) {
  const int64_t vectors = (rows + kShardVector - 1) / kShardVector;
  const auto begin = [&](int64_t rank) {
    return std::min(vectors * rank / shard.size * kShardVector, rows);
  };
  return {begin(shard.rank), begin(shard.rank + 1)};
}

void TakeShard(const ModelConfig& config, const Shard& shard, WeightPlan* plan) {
  MLC_CHECK(shard.rank >= 0 && shard.rank < shard.size) << shard.rank;
  if (shard.size > 1) Cutter(config, shard, plan).Run();
}

void KeepHead(const ModelConfig& config, WeightPlan* plan) {
  Cutter(config, {}, plan).RunForHead();
}

}  // namespace mlc_native
