// Small decoders on a device, and sequences to feed them, for tests of CudaModel. One thread.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "models/cuda/cuda_model.h"
#include "testing/tiny_checkpoint.h"

namespace mlc_native {

constexpr int64_t kTestPages = 64;
constexpr int64_t kTestRows = 96;
constexpr int64_t kTestLogits = 40;
constexpr int64_t kTestSlots = 32;  // of states: two for each sequence

// Fields of tiny families with experts.
inline constexpr const char* kQwenExperts =
    R"("head_dim": 16, "num_experts": 6, "num_experts_per_tok": 2, "moe_intermediate_size": 24)";
inline constexpr const char* kGptOssExperts =
    R"("head_dim": 16, "num_local_experts": 5, "num_experts_per_tok": 2, "sliding_window": 9)";
// Of DeepseekV3ForCausalLM, with latent attention; every row has all experts.
inline constexpr const char* kLatent =
    R"("q_lora_rank": 24, "kv_lora_rank": 16, "qk_nope_head_dim": 16, "qk_rope_head_dim": 8,
       "v_head_dim": 16, "n_routed_experts": 3, "num_experts_per_tok": 3, "n_group": 1,
       "topk_group": 1, "moe_intermediate_size": 16, "first_k_dense_replace": 1)";
// Of GlmMoeDsaForCausalLM, likewise, where queries attend to chosen keys.
inline constexpr const char* kKeyChoice =
    R"("q_lora_rank": 24, "kv_lora_rank": 16, "qk_nope_head_dim": 16, "qk_rope_head_dim": 8,
       "v_head_dim": 16, "n_routed_experts": 3, "num_experts_per_tok": 3,
       "moe_intermediate_size": 16, "first_k_dense_replace": 1, "num_hidden_layers": 3,
       "indexer_types": ["full", "shared", "full"], "index_topk": 9, "index_head_dim": 16,
       "index_n_heads": 5)";

// Of Gemma4ForCausalLM: layers that differ in their heads. Keys give the values of those without a
// window; or the layers have inputs, and the last ones, with larger feed-forward blocks, read the
// keys and values of others; or they have experts beside a block that every row passes.
#define GEMMA4_LAYERS                                                                       \
  R"("head_dim": 16, "global_head_dim": 32, "sliding_window": 9, "num_hidden_layers": 5,)"  \
  R"("final_logit_softcapping": 4, "layer_types": ["sliding_attention", "full_attention",)" \
  R"("sliding_attention", "sliding_attention", "full_attention"], )"
inline constexpr const char* kGemma4Dense = GEMMA4_LAYERS
    R"("attention_k_eq_v": true, "num_global_key_value_heads": 1, "hidden_size_per_layer_input": 0)";
inline constexpr const char* kGemma4Inputs = GEMMA4_LAYERS
    R"("hidden_size_per_layer_input": 8, "vocab_size_per_layer_input": 50,
       "num_kv_shared_layers": 2, "use_double_wide_mlp": true)";
inline constexpr const char* kGemma4Experts = GEMMA4_LAYERS
    R"("enable_moe_block": true, "num_experts": 6, "top_k_experts": 2, "moe_intermediate_size": 24,
       "hidden_size_per_layer_input": 0)";
#undef GEMMA4_LAYERS

// Of Gemma3nForCausalLM: residual streams, LAuReL, gates that are cut, blocks of several sizes, and
// last layers that read the keys and values of others. Some tokens are beyond a table.
inline constexpr const char* kStreams =
    R"("head_dim": 16, "sliding_window": 9, "num_hidden_layers": 5, "num_kv_shared_layers": 2,
       "layer_types": ["sliding_attention", "full_attention", "sliding_attention",
       "sliding_attention", "full_attention"], "hidden_size_per_layer_input": 8,
       "vocab_size_per_layer_input": 40, "laurel_rank": 8, "altup_num_inputs": 3,
       "altup_active_idx": 1, "final_logit_softcapping": 4, "intermediate_size": [48, 32, 48, 64, 48],
       "activation_sparsity_pattern": [0.8, 0, 0.3, 0.9, 0])";

// Of LagunaForCausalLM: layers that differ in their query heads, with a gate for each head, or for
// each element and with biases; one has experts.
inline constexpr const char* kHeadsOfLayers =
    R"("head_dim": 8, "num_attention_heads_per_layer": [16, 8],
       "layer_types": ["sliding_attention", "full_attention"], "sliding_window": 12,
       "num_experts": 3, "num_experts_per_tok": 2, "moe_intermediate_size": 16,
       "shared_expert_intermediate_size": 24)";
inline constexpr const char* kHeadsOfLayersWithBiases =
    R"("head_dim": 8, "num_attention_heads_per_layer": [2, 6], "gating": "per-element",
       "attention_bias": true, "mlp_layer_types": ["dense", "dense"])";

// Of MiMoV2FlashForCausalLM: values shorter than keys, with biases; the second layer has a window,
// sinks, more KV heads than the first one, and experts.
inline constexpr const char* kShortValues =
    R"("head_dim": 16, "v_head_dim": 8, "attention_bias": true, "sliding_window": 9,
       "layer_types": ["full_attention", "sliding_attention"], "n_routed_experts": 6,
       "num_experts_per_tok": 2, "moe_intermediate_size": 16,
       "rope_parameters": {"full_attention": {"rope_theta": 10000, "partial_rotary_factor": 0.5},
                           "sliding_attention": {"rope_theta": 100, "partial_rotary_factor": 1}})";

// Of Cohere2MoeForCausalLM: parallel blocks, of which the second has experts.
inline constexpr const char* kParallelExperts =
    R"("head_dim": 8, "num_experts": 6, "num_experts_per_tok": 2, "num_shared_experts": 2,
       "first_k_dense_replace": 1, "prefix_dense_intermediate_size": 64, "sliding_window": 9,
       "rms_norm_eps": 1e-5, "intermediate_size": 32)";

// Of Qwen3_5ForCausalLM: a layer with linear attention and one with gated attention.
inline constexpr const char* kDelta = R"("head_dim": 16)";

// Of OlmoHybridForCausalLM: a layer with norms behind its blocks between such with linear
// attention.
inline constexpr const char* kOlmoHybrid =
    R"("num_hidden_layers": 3, "head_dim": 16, "rope_parameters": {"rope_theta": null},
       "layer_types": ["linear_attention", "full_attention", "linear_attention"])";

// Of KimiLinearForCausalLM: latent attention between layers whose channels of keys have decays.
inline constexpr const char* kKimi =
    R"("num_hidden_layers": 3, "layer_types": ["linear_attention", "full_attention",
       "linear_attention"], "kv_lora_rank": 16, "qk_nope_head_dim": 16, "qk_rope_head_dim": 8,
       "v_head_dim": 16, "num_experts": 3, "num_experts_per_token": 2,
       "moe_intermediate_size": 16)";

// Of Lfm2ForCausalLM and Lfm2MoeForCausalLM: a layer with attention between short convolutions.
inline constexpr const char* kConvolution =
    R"("num_hidden_layers": 3, "layer_types": ["conv", "full_attention", "conv"])";
inline constexpr const char* kConvolutionExperts =
    R"("num_hidden_layers": 3, "layer_types": ["conv", "full_attention", "conv"],
       "num_experts": 6, "num_experts_per_tok": 2, "moe_intermediate_size": 24,
       "num_dense_layers": 1)";

// Of BambaForCausalLM and GraniteMoeHybridForCausalLM: a layer with attention between those with
// Mamba-2, whose rows are no whole number of vectors.
inline constexpr const char* kMamba = R"("num_hidden_layers": 3, "attn_layer_indices": [1])";
inline constexpr const char* kMambaExperts =
    R"("num_hidden_layers": 3, "layer_types": ["mamba", "attention", "mamba"],
       "mamba_d_state": 20, "mamba_n_groups": 2, "mamba_conv_bias": false, "time_step_limit": [0.01, 0.5])";

// Of JambaForCausalLM: a layer with attention between those with Mamba-1, which have experts.
inline constexpr const char* kJamba =
    R"("num_hidden_layers": 3, "attn_layer_period": 3, "expert_layer_period": 2,
       "expert_layer_offset": 0, "num_experts": 6, "num_experts_per_tok": 2)";

// Of NemotronHForCausalLM: layers of one block, of which the last ones have no keys, values or
// states; the same with experts in groups, of which the first layer has some, and one group of
// Mamba-2; and without a state.
inline constexpr const char* kSingleBlocks =
    R"("hybrid_override_pattern": "-M*M--", "mlp_bias": true)";
inline constexpr const char* kSingleBlockExperts =
    R"("hybrid_override_pattern": "EM*E-*", "n_routed_experts": 8, "n_group": 2, "topk_group": 1,
       "num_experts_per_tok": 3, "moe_intermediate_size": 32,
       "moe_shared_expert_intermediate_size": 64, "n_groups": 1, "use_conv_bias": false)";
inline constexpr const char* kSingleBlocksWithoutStates =
    R"("hybrid_override_pattern": "-*--", "time_step_limit": [0, 1])";
// Of FalconH1ForCausalLM: attention beside Mamba-2, without its norm and with it.
#define FALCON_SCALES                                                                            \
  R"("embedding_multiplier": 3, "lm_head_multiplier": 0.4, "key_multiplier": 0.7, )"             \
  R"("attention_in_multiplier": 1.3, "attention_out_multiplier": 0.8, "ssm_in_multiplier": 1.2)" \
  R"(, "ssm_out_multiplier": 0.6, "ssm_multipliers": [0.7, 0.9, 1.1, 1.4, 0.8], )"               \
  R"("mlp_multipliers": [0.9, 0.7])"
inline constexpr const char* kBesideMamba = FALCON_SCALES;
inline constexpr const char* kBesideMambaWithNorm =
    R"("mamba_rms_norm": true, "mamba_norm_before_gate": false, "mamba_n_groups": 2,
       "attention_bias": true, )" FALCON_SCALES;
#undef FALCON_SCALES

// A tiny checkpoint, which a test can load several times.
class TinyModel {
 public:
  explicit TinyModel(const std::string& architecture = "LlamaForCausalLM",
                     const std::string& fields = "")
      : config_(testing::TinyConfig(architecture, fields)) {
    WriteTinyCheckpoint(folder_, config_);
  }

  const std::string& config() const { return config_; }  // config.json

  ModelSource Source(const std::string& dtype = "float32", const std::string& device = "cuda:0") {
    return {.path = folder_.path(), .device = device, .dtype = dtype};
  }
  std::unique_ptr<Model> Load(const ModelSource& source) const {
    std::unique_ptr<Model> model =
        source.device == "cpu" ? LoadModel(source) : LoadCudaModel(source);
    if (model->metadata().recurrent_bytes_per_slot > 0) model->AllocateRecurrent(kTestSlots);
    model->Allocate(kTestPages, kTestRows, kTestLogits);
    return model;
  }
  std::unique_ptr<Model> OnCpu() { return Load(Source("float32", "cpu")); }
  std::unique_ptr<Model> OnDevice(const std::string& dtype = "float32") {
    return Load(Source(dtype));
  }

 private:
  std::string config_;
  testing::TempFolder folder_;
};

// A sequence with pages of its own, the last ones first, and two slots for its states.
struct TestSequence {
  explicit TestSequence(int64_t index, int64_t num_pages = 4)
      : slot(static_cast<int32_t>(2 * index)) {
    for (int64_t i = 0; i < num_pages; ++i) {
      pages.push_back(static_cast<int32_t>((index + 1) * num_pages - 1 - i));
    }
  }

  std::vector<int32_t> pages;
  int64_t length = 0;  // tokens in the pages
  int32_t slot;        // that has its state
};

inline std::vector<int32_t> SomeTokens(int64_t size, int32_t seed) {
  std::vector<int32_t> tokens;
  for (int32_t i = 0; i < size; ++i) tokens.push_back((i * 7 + seed * 13 + i * i * seed) % 50);
  return tokens;
}

// A batch that grows slice by slice and asks for the logits of each slice's last row.
class TestBatch {
 public:
  TestBatch& Add(TestSequence& sequence, const std::vector<int32_t>& tokens) {
    slices_.push_back({.first_row = static_cast<int32_t>(tokens_.size()),
                       .num_tokens = static_cast<int32_t>(tokens.size()),
                       .position = sequence.length,
                       .block_table = sequence.pages,
                       .recurrent_slot = sequence.slot});
    sequence.slot ^= 1;
    const RecurrentWrite& write =
        writes_.emplace_back(static_cast<int32_t>(tokens.size()), sequence.slot);
    slices_.back().recurrent_writes = {&write, 1};
    sequence.length += static_cast<int64_t>(tokens.size());
    tokens_.insert(tokens_.end(), tokens.begin(), tokens.end());
    logits_rows_.push_back(static_cast<int32_t>(tokens_.size()) - 1);
    return *this;
  }
  // Of a prompt, even a single token.
  TestBatch& AddPrompt(TestSequence& sequence, const std::vector<int32_t>& tokens) {
    Add(sequence, tokens);
    slices_.back().of_prompt = true;
    return *this;
  }
  // A draft: asks for the logits of all its rows.
  TestBatch& AddRowsAlone(TestSequence& sequence, const std::vector<int32_t>& tokens) {
    Add(sequence, tokens);
    slices_.back().rows_alone = true;
    logits_rows_.pop_back();
    for (int32_t row = slices_.back().first_row; row < std::ssize(tokens_); ++row) {
      logits_rows_.push_back(row);
    }
    return *this;
  }
  // The last slice has this adapter.
  TestBatch& With(const ModelAdapter* adapter) {
    slices_.back().adapter = adapter;
    return *this;
  }
  // Asks for the logits of the last row once more.
  TestBatch& Again() {
    logits_rows_.push_back(logits_rows_.back());
    return *this;
  }
  ForwardBatch batch() const { return {tokens_, slices_, logits_rows_}; }

 private:
  std::vector<int32_t> tokens_;
  std::vector<SequenceSlice> slices_;
  std::deque<RecurrentWrite> writes_;  // one of each slice
  std::vector<int32_t> logits_rows_;
};

inline std::vector<float> Logits(Model& model, const TestBatch& batch) {
  const LogitsView view = model.Forward(batch.batch());
  return {view.data, view.data + view.num_rows * view.vocab_size};
}

inline std::vector<DrawnToken> Collect(Model& model) {
  std::vector<DrawnToken> tokens;
  model.step_queue()->Collect(&tokens);
  return tokens;
}

inline std::vector<DrawnToken> Step(Model& model, const TestBatch& batch,
                                    const std::vector<TokenRow>& rows) {
  model.step_queue()->Forward(batch.batch());
  model.step_queue()->Sample(rows);
  return Collect(model);
}

// Relative, of the 2-norm.
inline double Difference(const std::vector<float>& got, const std::vector<float>& want) {
  EXPECT_EQ(got.size(), want.size());
  double error = 0;
  double norm = 0;
  for (size_t i = 0; i < want.size(); ++i) {
    error += std::pow(got[i] - want[i], 2);
    norm += std::pow(want[i], 2);
  }
  return std::sqrt(error / norm);
}

// A prompt in two chunks, then decode alone and alongside another prompt.
inline std::vector<float> SomeSteps(Model& model) {
  TestSequence a(0);
  TestSequence b(1);
  std::vector<float> all;
  const auto run = [&](const TestBatch& batch) {
    const std::vector<float> logits = Logits(model, batch);
    all.insert(all.end(), logits.begin(), logits.end());
  };
  run(TestBatch().Add(a, SomeTokens(17, 1)));
  run(TestBatch().Add(a, SomeTokens(4, 2)));
  run(TestBatch().Add(a, {3}));
  run(TestBatch().Add(a, {5}).Add(b, SomeTokens(6, 3)));
  run(TestBatch().Add(a, {7}).Add(b, {8}));
  return all;
}

inline void CheckThatARowIsTheSameInEveryBatch(Model& model) {
  constexpr int64_t kSequences = 9;
  std::vector<std::vector<float>> alone;
  for (int64_t i = 0; i < kSequences; ++i) {
    TestSequence sequence(0);
    Logits(model, TestBatch().Add(sequence, SomeTokens(10 + i, static_cast<int32_t>(i))));
    alone.push_back(Logits(model, TestBatch().Add(sequence, {4})));
  }
  std::vector<TestSequence> sequences;
  for (int64_t i = 0; i < kSequences; ++i) sequences.emplace_back(i);
  for (int64_t i = 0; i < kSequences; ++i) {
    Logits(model, TestBatch().Add(sequences[i], SomeTokens(10 + i, static_cast<int32_t>(i))));
  }
  TestBatch together;
  TestSequence prompt(kSequences);
  together.Add(prompt, SomeTokens(12, 3));  // rows of one token come behind it
  for (TestSequence& sequence : sequences) together.Add(sequence, {4});
  const std::vector<float> logits = Logits(model, together);
  const auto vocab = static_cast<int64_t>(alone[0].size());
  for (int64_t i = 0; i < kSequences; ++i) {
    const auto begin = logits.begin() + (i + 1) * vocab;
    EXPECT_EQ(std::vector<float>(begin, begin + vocab), alone[static_cast<size_t>(i)]) << i;
  }
}

}  // namespace mlc_native
