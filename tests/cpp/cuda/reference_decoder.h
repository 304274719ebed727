// A decoder in double precision: the operations of models/run_layers.h made of the kernels'
// references, on all tokens of one sequence. What a device's decoder is compared with.
#pragma once

#include <cmath>
#include <cstdint>
#include <numeric>
#include <utility>
#include <vector>

#include "arch/model_config.h"
#include "kernels/reference.h"
#include "models/run_layers.h"

namespace mlc_native {

namespace reference = kernels::reference;
using Values = reference::Matrix;

struct ReferenceWeights : DecoderWeights<Values, Values> {
  Values embeddings;  // [vocab, hidden]
};

class ReferenceOps {
 public:
  // All outlive the operations.
  ReferenceOps(const ModelConfig& config, const ReferenceWeights& weights,
               const std::vector<int32_t>& tokens)
      : config_(config), weights_(weights), tokens_(tokens), positions_(tokens.size()) {
    std::iota(positions_.begin(), positions_.end(), 0);
  }

  void Embed() {
    for (const int32_t token : tokens_) {
      for (int64_t i = 0; i < config_.hidden_size; ++i) {
        residual_.push_back(config_.embedding_scale *
                            weights_.embeddings[token * config_.hidden_size + i]);
      }
    }
  }

  void Normalize(const NormWeights<Values>& pre_norm) {
    input_ = Norm(residual_, pre_norm, config_.residual_norm_eps);
  }

  void AddAndNormalize(const NormWeights<Values>& post_norm, const NormWeights<Values>& pre_norm) {
    output_ = Norm(output_, post_norm, config_.norm_eps);
    AddAndKeepInput();
    Normalize(pre_norm);
  }

  void AddAndKeepInput() {
    for (size_t i = 0; i < residual_.size(); ++i) residual_[i] += output_[i];
  }
  bool HasParallelBlocks() const { return config_.parallel_blocks; }

  void Project(size_t layer, LinearRole role) {
    const auto& linear = weights_.layers[layer].linear(role);
    switch (role) {
      case LinearRole::kQkv:
        return RunLinear(linear, input_, &qkv_);
      case LinearRole::kOut:
        return RunLinear(linear, attention_, &output_);
      case LinearRole::kGateUp:
        return RunLinear(linear, input_, &ffn_);
      case LinearRole::kDown:
        return RunLinear(linear, ffn_, &output_);
      default:
        MLC_CHECK(false) << "a decoder without experts";
    }
  }

  void RotateAndWriteKv(size_t layer) {
    const auto& w = weights_.layers[layer];
    const auto head_columns = [&](int64_t begin, int64_t width, NormRole norm) {
      return Rotated(Norm(QkvColumns(begin, width), w.norm(norm), config_.norm_eps), layer);
    };
    q_ = head_columns(0, config_.q_size(), NormRole::kQ);
    k_ = head_columns(config_.q_size(), config_.kv_size(), NormRole::kK);
    v_ = QkvColumns(config_.q_size() + config_.kv_size(), config_.kv_size());
  }

  void Attend(size_t layer) {
    attention_ = reference::Attention({.q_heads = config_.num_heads,
                                       .kv_heads = config_.num_kv_heads,
                                       .head_dim = config_.head_dim,
                                       .scale = config_.attention_scale,
                                       .soft_cap = config_.attention_soft_cap,
                                       .window = config_.layers[layer].window},
                                      q_, k_, v_, 0);
  }

  void Activate(size_t /*layer*/) {
    ffn_ = reference::Activate(ffn_, {.ffn = config_.ffn_size,
                                      .activation = config_.activation,
                                      .gated = !config_.arch->plain_ffn});
  }

  bool KeepLastRows() { return !std::exchange(has_last_rows_, true); }  // all are

  void Head() {
    RunLinear(weights_.head, input_, &logits_);
    if (config_.final_soft_cap == 0) return;
    for (double& logit : logits_) {
      logit = config_.final_soft_cap * std::tanh(logit / config_.final_soft_cap);
    }
  }

  const Values& logits() const { return logits_; }  // [tokens, vocab]

 private:
  Values Norm(const Values& x, const NormWeights<Values>& norm, double eps) const {
    if (norm.weight.empty()) return x;
    return reference::Normalize(x, norm.weight, config_.norm_weight_offset, eps);
  }

  void RunLinear(const ReferenceWeights::Linear& linear, const Values& x, Values* y) const {
    *y = reference::Linear(x, linear.matrix, linear.bias, std::ssize(tokens_));
  }

  Values QkvColumns(int64_t begin, int64_t width) const {
    Values columns;
    for (int64_t row = 0; row < std::ssize(tokens_); ++row) {
      const auto from = qkv_.begin() + row * config_.qkv_size() + begin;
      columns.insert(columns.end(), from, from + width);
    }
    return columns;
  }

  Values Rotated(const Values& x, size_t layer) const {
    const int rope = config_.layers[layer].rope;
    if (rope == LayerConfig::kNoRope) return x;
    const std::vector<float> frequencies =
        RopeFrequencies(config_.ropes[static_cast<size_t>(rope)]);
    return reference::Rope(x, config_.head_dim, positions_,
                           {frequencies.begin(), frequencies.end()},
                           config_.arch->interleaved_rope);
  }

  const ModelConfig& config_;
  const ReferenceWeights& weights_;
  const std::vector<int32_t>& tokens_;
  std::vector<int32_t> positions_;
  Values residual_, input_, output_;
  Values qkv_, q_, k_, v_, attention_, ffn_;
  Values logits_;
  bool has_last_rows_ = false;
};

// Logits [tokens, vocab].
inline Values ReferenceLogits(const ModelConfig& config, const ReferenceWeights& weights,
                              const std::vector<int32_t>& tokens) {
  ReferenceOps ops(config, weights, tokens);
  RunLayers(weights, ops);
  return ops.logits();
}

}  // namespace mlc_native
