// The limit of a step of the engine on this machine, as bench/end_to_end.cc describes it. One
// thread.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string_view>

#include "arch/model_config.h"
#include "kernels/packed_format.h"
#include "kernels_machine.h"
#include "models/kv_storage.h"
#include "models/recurrent_storage.h"

namespace mlc_native {

using kernels::Arithmetic;
using kernels::TheMachine;

struct Precision {
  std::string_view name;
  WeightQuantization quantization;
  Arithmetic arithmetic;
};
// One step: `rows` new tokens of each of `sequences`, whose context is `context` before it.
struct StepShape {
  int64_t sequences;
  int64_t rows;
  int64_t context;

  double Keys() const {  // per sequence, over its rows
    return static_cast<double>(rows * context) + 0.5 * static_cast<double>(rows * (rows + 1));
  }
};

class Limit {
 public:
  // weight_bytes: all that is loaded, as it is packed.
  Limit(const ModelConfig& config, const Precision& quantization, int64_t weight_bytes)
      : config_(config), quantization_(quantization) {
    for (const LayerConfig& layer : config.layers) AddLayer(layer);
    qkv_size_ /= num_layers();
    rest_size_ /= num_layers();
    if (!config.tie_word_embeddings) {  // a step reads some rows only
      weight_bytes -= config.vocab_size * config.hidden_size *
                      static_cast<int64_t>(DTypeSize(DType::kBFloat16));
    }
    weight_bytes_ = static_cast<double>(weight_bytes);
  }

  double Seconds(const StepShape& step) const {
    const kernels::Machine& machine = TheMachine();
    return std::max(StepBytes(step) / machine.bytes_per_second,
                    LinearOperations(step) / machine.Peak(quantization_.arithmetic) +
                        AttentionOperations(step) / machine.Peak(Arithmetic::kBFloat16) +
                        DeltaOperations(step) / machine.Peak(Arithmetic::kFloat32));
  }

 private:
  double num_layers() const { return static_cast<double>(config_.layers.size()); }

  void AddLayer(const LayerConfig& layer) {
    for (const LinearRole role : kLinearRoles) {
      const int64_t count = config_.num_linears(layer, role);
      if (count == 0) continue;
      const auto size = static_cast<double>(config_.linear_rows(layer, role) *
                                            config_.linear_columns(layer, role));
      const bool of_experts = role == LinearRole::kExpertGateUp || role == LinearRole::kExpertDown;
      const int64_t used = of_experts ? config_.experts->router.num_chosen : count;
      const bool of_all_rows = role == LinearRole::kQkv || role == LinearRole::kDeltaInputs ||
                               role == LinearRole::kDeltaGates ||
                               role == LinearRole::kDeltaDecays ||
                               role == LinearRole::kDeltaOutGates;
      (of_all_rows ? qkv_size_ : rest_size_) += size * static_cast<double>(used);
      if (!of_experts) continue;
      const kernels::PanelLayout panel =
          kernels::LayoutOf(ExpertFormat(&layer == &config_.layers.front()));
      expert_bytes_ += size * static_cast<double>(count * panel.GroupBytes(1)) /
                       static_cast<double>(panel.group);
    }
  }

  // With 4 bits asked for, the first layer has 8.
  kernels::WeightFormat ExpertFormat(bool is_first_layer) const {
    const bool is_mxfp4 =
        config_.quantization && config_.quantization->format == QuantizedFormat::kMxfp4;
    switch (quantization_.quantization.kind()) {
      case WeightQuantization::kOff:
      case WeightQuantization::kQ6:
      case WeightQuantization::kBudget:  // what the bounds are printed for has none
        break;
      case WeightQuantization::kAuto:
        if (!is_mxfp4) break;
        return kernels::WeightFormat::kMxfp4;
      case WeightQuantization::kQ8:
      case WeightQuantization::kQ4:
        if (is_mxfp4) return kernels::WeightFormat::kMxfp4;
        return quantization_.quantization == WeightQuantization::kQ8 || is_first_layer
                   ? kernels::WeightFormat::kQ8
                   : kernels::WeightFormat::kQ4;
    }
    return kernels::WeightFormat::kBFloat16;
  }

  // The part of the experts that the rows of a step choose, if their choices are independent and
  // all experts equally good.
  double UsedExperts(const StepShape& step) const {
    if (!config_.experts) return 1;
    const kernels::RouterRule& router = config_.experts->router;
    const double chosen =
        static_cast<double>(router.num_chosen) / static_cast<double>(router.num_experts);
    return 1 - std::pow(1 - chosen, static_cast<double>(step.sequences * step.rows));
  }

  double StepBytes(const StepShape& step) const {
    const auto kv_per_token =
        static_cast<double>(KvStorage::BytesPerToken(config_, kernels::KvFormat::kBFloat16));
    return weight_bytes_ - (1 - UsedExperts(step)) * expert_bytes_ +
           static_cast<double>(step.sequences * (step.context + 2 * step.rows)) * kv_per_token +
           static_cast<double>(2 * step.sequences * RecurrentStorage::BytesPerSlot(config_));
  }
  double LinearOperations(const StepShape& step) const {
    const auto logits_rows = static_cast<double>(step.sequences);
    const double rows = logits_rows * static_cast<double>(step.rows);
    const auto head = static_cast<double>(config_.vocab_size * config_.hidden_size);
    return 2 * (rows * qkv_size_ * num_layers() + rows * rest_size_ * (num_layers() - 1) +
                logits_rows * (rest_size_ + head));
  }
  double AttentionOperations(const StepShape& step) const {
    const int64_t values = config_.latent ? config_.latent->kv_rank : config_.head_dim;
    const int64_t products = config_.num_heads * (config_.head_dim + values);
    return 2 * static_cast<double>(products * step.sequences) * step.Keys() *
           NumLayers(&LayerConfig::attends);
  }
  // A state is multiplied with a key and with a query, scaled, and gets the product of two vectors;
  // with Mamba-2 it is not multiplied with a key.
  double DeltaOperations(const StepShape& step) const {
    if (!config_.delta && !config_.mamba) return 0;
    const int64_t cells = config_.mamba ? config_.mamba->values_size() * config_.mamba->state_dim
                                        : config_.delta->values_size() * config_.delta->key_dim;
    return (config_.mamba ? 5 : 7) * static_cast<double>(cells * step.sequences * step.rows) *
           NumLayers(&LayerConfig::is_recurrent);
  }
  template <typename Property>
  double NumLayers(Property property) const {
    return static_cast<double>(std::ranges::count(config_.layers, true, property));
  }

  const ModelConfig& config_;
  const Precision& quantization_;
  double qkv_size_ = 0, rest_size_ = 0;  // elements of a layer's matrices that a row passes, mean
  double expert_bytes_ = 0;              // of all experts
  double weight_bytes_ = 0;
};

}  // namespace mlc_native
