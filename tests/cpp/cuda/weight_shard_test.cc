// What a device of several gets of a weight, and which models can be divided.
#include "weights/weight_shard.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "support/error.h"
#include "support/half.h"
#include "testing/tiny_checkpoint.h"
#include "weights/computed_weight.h"
#include "weights/part_of_weight.h"

namespace mlc_native {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr int64_t kRows = 6;
constexpr int64_t kColumns = 8;
constexpr int64_t kGroup = 2;

// Row r and column c have the float 10 r + c, or the code r + c with the scale 100 r + c / kGroup.
class NumberedWeight : public WeightSource {
 public:
  explicit NumberedWeight(bool has_codes, int64_t group = kGroup, int64_t num_groups = 4)
      : WeightSource({}), has_codes_(has_codes), group_(group), num_groups_(num_groups) {}

  DType dtype() const override { return DType::kFloat16; }
  void Load() override {}
  void Drop() override {}
  bool is_stored_as_floats() const override { return !has_codes_; }
  void ReadRows(int64_t begin, int64_t end, std::span<std::byte> out) const override {
    for (int64_t i = 0; i < (end - begin) * kColumns; ++i) {
      StoreElement(DType::kFloat16, out.data(), i, Value(begin, i));
    }
  }
  void Decode(int64_t begin, int64_t end, float* out) const override {
    for (int64_t i = 0; i < (end - begin) * kColumns; ++i) out[i] = Value(begin, i);
  }
  std::optional<CodeForm> code_form() const override {
    if (!has_codes_) return std::nullopt;
    return CodeForm{.bits = 4, .group = group_, .num_groups = num_groups_};
  }
  void ReadCodes(int64_t begin, int64_t end, int8_t* codes, uint16_t* scales) const override {
    for (int64_t row = begin; row < end; ++row) {
      for (int64_t c = 0; c < kColumns; ++c) *codes++ = static_cast<int8_t>(row + c);
      for (int64_t g = 0; g < num_groups_; ++g) *scales++ = static_cast<uint16_t>(100 * row + g);
    }
  }
  int64_t stored_bytes() const override { return kRows * kColumns; }

 private:
  static float Value(int64_t begin, int64_t i) {
    return static_cast<float>(10 * (begin + i / kColumns) + i % kColumns);
  }

  const bool has_codes_;
  const int64_t group_;
  const int64_t num_groups_;
};

PartOfWeight Part(std::vector<IndexRange> rows, std::vector<IndexRange> columns = {},
                  bool has_codes = false) {
  return {std::make_unique<NumberedWeight>(has_codes), kRows, kColumns, std::move(rows),
          std::move(columns)};
}

TEST(PartOfWeight, HasRowsOfSeveralRanges) {
  const PartOfWeight part = Part({{1, 2}, {3, 5}});
  std::vector<float> rows(2 * kColumns);
  part.Decode(0, 2, rows.data());  // across the border of the ranges
  EXPECT_EQ(rows[0], 10);
  EXPECT_EQ(rows[kColumns], 30);
  part.Decode(2, 3, rows.data());
  EXPECT_EQ(rows[0], 40);
  EXPECT_EQ(part.stored_bytes(), 3 * kColumns);
}

TEST(PartOfWeight, HasColumns) {
  const PartOfWeight part = Part({{2, 4}}, {{4, 7}});
  std::vector<float> decoded(6);
  part.Decode(0, 2, decoded.data());
  EXPECT_THAT(decoded, ElementsAre(24, 25, 26, 34, 35, 36));
  std::vector<std::byte> halves(6 * sizeof(uint16_t));
  part.ReadRows(0, 2, halves);
  for (int64_t i = 0; i < 6; ++i) {
    EXPECT_EQ(LoadElement(DType::kFloat16, halves.data(), i), decoded[static_cast<size_t>(i)]);
  }
}

TEST(PartOfWeight, HasTheCodesAndScalesOfItsColumns) {
  const PartOfWeight part = Part({{1, 2}, {4, 5}}, {{4, 8}}, true);
  EXPECT_EQ(part.code_form()->num_groups, 2);
  std::vector<int8_t> codes(8);
  std::vector<uint16_t> scales(4);
  part.ReadCodes(0, 2, codes.data(), scales.data());
  EXPECT_THAT(codes, ElementsAre(5, 6, 7, 8, 8, 9, 10, 11));
  EXPECT_THAT(scales, ElementsAre(102, 103, 402, 403));
}

TEST(PartOfWeight, HasColumnsOfSeveralRanges) {
  const PartOfWeight floats = Part({{1, 3}}, {{0, 2}, {5, 6}});
  std::vector<float> decoded(6);
  floats.Decode(0, 2, decoded.data());
  EXPECT_THAT(decoded, ElementsAre(10, 11, 15, 20, 21, 25));
  std::vector<std::byte> halves(3 * sizeof(uint16_t));
  floats.ReadRows(1, 2, halves);
  for (int64_t i = 0; i < 3; ++i) {
    EXPECT_EQ(LoadElement(DType::kFloat16, halves.data(), i), decoded[static_cast<size_t>(3 + i)]);
  }
  const PartOfWeight codes = Part({{4, 5}}, {{0, 2}, {4, 8}}, true);
  EXPECT_EQ(codes.code_form()->num_groups, 3);
  std::vector<int8_t> read(6);
  std::vector<uint16_t> scales(3);
  codes.ReadCodes(0, 1, read.data(), scales.data());
  EXPECT_THAT(read, ElementsAre(4, 5, 8, 9, 10, 11));
  EXPECT_THAT(scales, ElementsAre(400, 402, 403));
}

TEST(SideBySide, ColumnsFollowOneAnother) {
  const auto columns = [](int64_t begin, int64_t end) {
    return SourceOfColumns{
        std::make_unique<PartOfWeight>(std::make_unique<NumberedWeight>(false), kRows, kColumns,
                                       std::vector<IndexRange>{{0, kRows}},
                                       std::vector<IndexRange>{{begin, end}}),
        end - begin};
  };
  std::vector<SourceOfColumns> parts;
  parts.push_back(columns(6, 8));
  parts.push_back(columns(0, 1));
  parts.push_back(columns(3, 5));
  const std::unique_ptr<WeightSource> joined = SideBySide(std::move(parts));
  std::vector<float> rows(2 * 5);
  joined->Decode(2, 4, rows.data());
  EXPECT_THAT(rows, ElementsAre(26, 27, 20, 23, 24, 36, 37, 30, 33, 34));
}

TEST(PartOfWeight, OneGroupOfAllColumnsStaysOne) {
  const PartOfWeight part(std::make_unique<NumberedWeight>(true, kColumns, 1), kRows, kColumns,
                          {{0, 1}}, {{3, 5}});
  EXPECT_EQ(part.code_form()->num_groups, 1);
  std::vector<int8_t> codes(2);
  std::vector<uint16_t> scales(1);
  part.ReadCodes(0, 1, codes.data(), scales.data());
  EXPECT_THAT(codes, ElementsAre(3, 4));
  EXPECT_THAT(scales, ElementsAre(0));
}

ModelConfig Config(const std::string& architecture, const std::string& fields) {
  const testing::TempFolder folder;
  folder.Write("config.json", testing::TinyConfig(architecture, fields));
  return ReadModelConfig(folder.path());
}

TEST(ShardOf, DividesHeadsAndFeedForward) {
  const ModelConfig part = ShardOf(Config("LlamaForCausalLM", ""), 2);
  EXPECT_EQ(part.num_heads, 2);
  EXPECT_EQ(part.num_kv_heads, 1);
  EXPECT_EQ(part.ffn_size, 24);
  EXPECT_EQ(part.hidden_size, 32);
  EXPECT_EQ(part.head_dim, 8);
}

TEST(ShardOf, KvHeadsAreHeldByAllWhoReadThem) {
  EXPECT_EQ(ShardOf(Config("LlamaForCausalLM", R"("num_key_value_heads": 1)"), 2).num_kv_heads, 1);
}

TEST(ShardOf, OtherNumbersAreRefusedWithThoseThatAreAllowed) {
  const auto error = [](const char* architecture, const char* fields, int64_t shards) {
    try {
      ShardOf(Config(architecture, fields), shards);
    } catch (const InvalidConfig& refused) {
      EXPECT_EQ(refused.field(), "tensor_parallel_shards");
      return std::string(refused.what());
    }
    return std::string("nothing");
  };
  EXPECT_THAT(error("LlamaForCausalLM", "", 3),
              HasSubstr("must be 1 or 2 for 4 query heads, 2 KV heads, a feed-forward size of 48, "
                        "got 3"));
  EXPECT_THAT(error("LlamaForCausalLM", R"("intermediate_size": 64)", 8),
              HasSubstr("must be 1, 2 or 4 for 4 query heads"));
  EXPECT_THAT(error("LlamaForCausalLM",
                    R"("num_attention_heads": 6, "num_key_value_heads": 3, "head_dim": 8)", 2),
              HasSubstr("must be 1, 3 or 6 for 6 query heads, 3 KV heads"));
  EXPECT_THAT(error("LlamaForCausalLM", R"("intermediate_size": 40)", 2),
              HasSubstr("must be 1 for"));
}

// Of layers that are one block alone, each size counts where there is such a block.
TEST(ShardOf, SizesOfBlocksThatNoLayerHasAreNoMatter) {
  const auto divides = [](const std::string& pattern, const std::string& fields, int64_t shards) {
    try {
      ShardOf(Config("NemotronHForCausalLM",
                     R"("hybrid_override_pattern": ")" + pattern + R"(", )" + fields),
              shards);
    } catch (const InvalidConfig& refused) {
      return std::string(refused.what());
    }
    return std::string();
  };
  const std::string experts = R"("moe_intermediate_size": 32,
      "moe_shared_expert_intermediate_size": 32, "intermediate_size": 44)";
  EXPECT_EQ(divides("ME*", experts, 2), "");
  EXPECT_THAT(divides("ME*-", experts, 2), HasSubstr("a feed-forward size of 44, experts of"));
  EXPECT_THAT(divides("ME*", experts, 3),
              HasSubstr("4 heads in 2 groups of Mamba-2, experts of size 32"));
  const std::string heads = R"("num_attention_heads": 6, "num_key_value_heads": 3)";
  EXPECT_EQ(divides("M-", heads, 2), "");
  EXPECT_THAT(divides("M-*", heads, 2), HasSubstr("6 query heads, 3 KV heads"));
}

constexpr const char* kLatents = R"("q_lora_rank": 24, "kv_lora_rank": 16, "qk_nope_head_dim": 16,
    "qk_rope_head_dim": 8, "v_head_dim": 16, "n_routed_experts": 3, "num_experts_per_tok": 3,
    "n_group": 1, "topk_group": 1, "moe_intermediate_size": 16)";

TEST(ShardOf, LatentsAreHeldByAll) {
  const ModelConfig part = ShardOf(Config("DeepseekV3ForCausalLM", kLatents), 2);
  EXPECT_EQ(part.num_heads, 2);
  EXPECT_EQ(part.num_kv_heads, 1);
  EXPECT_EQ(part.head_dim, 24);
  EXPECT_EQ(part.latent_size(), 24 + 16 + 8);
  EXPECT_EQ(part.values_size(), 2 * 16);
}

// The first layer has a window; the other one has wider heads, whose keys are their values.
constexpr const char* kLayerSizes = R"("layer_types": ["sliding_attention", "full_attention"],
    "head_dim": 8, "global_head_dim": 16, "num_global_key_value_heads": 1,
    "attention_k_eq_v": true, "hidden_size_per_layer_input": 8, "vocab_size_per_layer_input": 50)";
// Two layers more, which read the keys and values of these and have wider blocks.
constexpr const char* kSharing = R"("layer_types": ["sliding_attention", "full_attention",
    "sliding_attention", "full_attention"], "head_dim": 8, "global_head_dim": 16,
    "hidden_size_per_layer_input": 0, "num_kv_shared_layers": 2, "use_double_wide_mlp": true,
    "num_hidden_layers": 4)";

TEST(ShardOf, LayersHaveTheirShareOfTheirOwnSizes) {
  const ModelConfig part = ShardOf(Config("Gemma4ForCausalLM", kLayerSizes), 2);
  EXPECT_EQ(part.kv_heads_of(part.layers[0]), 1);
  EXPECT_EQ(part.kv_heads_of(part.layers[1]), 1);
  EXPECT_EQ(part.head_dim_of(part.layers[1]), 16);
  EXPECT_EQ(part.layer_inputs->size, 8);
  const std::string heads = R"("attention_k_eq_v": true, "num_key_value_heads": 4,
      "num_global_key_value_heads": 2, "layer_types": ["sliding_attention", "full_attention"])";
  const ModelConfig both = ShardOf(Config("Gemma4ForCausalLM", heads), 2);
  EXPECT_EQ(both.kv_heads_of(both.layers[0]), 2);
  EXPECT_EQ(both.kv_heads_of(both.layers[1]), 1);
  const ModelConfig queries = ShardOf(
      Config("LagunaForCausalLM", R"("num_attention_heads_per_layer": [4, 8], "head_dim": 8)"), 2);
  EXPECT_EQ(queries.heads_of(queries.layers[0]), 2);
  EXPECT_EQ(queries.heads_of(queries.layers[1]), 4);
  const ModelConfig shares = ShardOf(Config("Gemma4ForCausalLM", kSharing), 2);
  EXPECT_EQ(shares.ffn_size_of(shares.layers[1]), 24);
  EXPECT_EQ(shares.ffn_size_of(shares.layers[2]), 48);
  EXPECT_EQ(shares.layers[3].kv_source, 1);
}

// ---- Plans ----

struct Planned {
  Planned(const std::string& architecture, const std::string& fields,
          WeightQuantization quantization)
      : config(Config(architecture, fields)) {
    WriteTinyCheckpoint(folder, testing::TinyConfig(architecture, fields));
    checkpoint.emplace(folder.path());
    options.quantization = quantization;
    options.table_of_floats = true;
  }
  WeightPlan Of(const Shard& shard) const {
    WeightPlan plan = PlanWeights(config, *checkpoint, options);
    TakeShard(config, shard, &plan);
    return plan;
  }

  testing::TempFolder folder;
  ModelConfig config;
  std::optional<Checkpoint> checkpoint;
  WeightOptions options;
};

TEST(HeadRows, AreMultiplesOfEightButAtTheEnd) {
  const auto ends = [](int64_t rows, int64_t size) {
    std::vector<int64_t> all;
    int64_t begin = 0;
    for (int64_t rank = 0; rank < size; ++rank) {
      const IndexRange range = HeadRows(rows, {rank, size});
      EXPECT_EQ(range.begin, begin);
      begin = range.end;
      all.push_back(range.end);
    }
    return all;
  };
  EXPECT_THAT(ends(50, 1), ElementsAre(50));
  EXPECT_THAT(ends(50, 4), ElementsAre(8, 24, 40, 50));
  EXPECT_THAT(ends(17, 4), ElementsAre(0, 8, 16, 17));
  EXPECT_THAT(ends(128256, 2), ElementsAre(64128, 128256));
}

TEST(TakeShard, DevicesDivideTheHeadAndOnlyTheFirstHasTheBiasesOfSums) {
  for (const char* tied : {"true", "false"}) {
    const Planned planned("Starcoder2ForCausalLM", std::string(R"("tie_word_embeddings": )") + tied,
                          WeightQuantization::kAuto);
    const WeightPlan first = planned.Of({0, 2});
    const WeightPlan second = planned.Of({1, 2});
    const bool is_table = std::string(tied) == "true";  // which each has, and computes its rows of
    EXPECT_EQ(first.map.parameters[first.map.head].rows, is_table ? 50 : 24);
    EXPECT_EQ(second.map.parameters[second.map.head].rows, is_table ? 50 : 26);
    EXPECT_EQ(second.map.embeddings == kAbsent, is_table);
    for (const LinearParameters& linear : second.map.layers[1].linears) {
      const LinearRole role = linear.key.role;
      const bool is_part_of_a_sum = role == LinearRole::kOut || role == LinearRole::kDown;
      EXPECT_EQ(linear.bias == kAbsent, is_part_of_a_sum) << static_cast<int>(role);
    }
    for (const LinearParameters& linear : first.map.layers[1].linears) {
      EXPECT_NE(linear.bias, kAbsent);
    }
  }
}

// A number of the checkpoint is on one device alone, unless all devices have it.
TEST(TakeShard, DevicesDivideTheParameters) {
  const Planned planned("LlamaForCausalLM", "", WeightQuantization::kAuto);
  const auto count = [](const WeightPlan& plan, size_t parameter) {
    return plan.map.parameters[parameter].rows * plan.map.parameters[parameter].columns;
  };
  const WeightPlan whole = planned.Of({0, 1});
  const WeightPlan first = planned.Of({0, 2});
  const WeightPlan second = planned.Of({1, 2});
  for (const LinearParameters& linear : whole.map.layers[0].linears) {
    const size_t matrix = linear.matrix;
    EXPECT_EQ(count(first, matrix) + count(second, matrix), count(whole, matrix));
    EXPECT_EQ(count(first, matrix), count(second, matrix));
  }
}

// In rows of q, k and v, and in columns of o and of the block.
TEST(TakeShard, DevicesDivideWhatALayerHasOfItsOwn) {
  struct Shape {
    int64_t qkv, out, down;
    bool operator==(const Shape&) const = default;
  };
  const auto shape = [](const WeightPlan& plan, size_t layer) {
    Shape found{};
    for (const LinearParameters& linear : plan.map.layers[layer].linears) {
      const Parameter& matrix = plan.map.parameters[linear.matrix];
      if (linear.key.role == LinearRole::kQkv) found.qkv = matrix.rows;
      if (linear.key.role == LinearRole::kOut) found.out = matrix.columns;
      if (linear.key.role == LinearRole::kDown) found.down = matrix.columns;
    }
    return found;
  };
  const Planned sizes("Gemma4ForCausalLM", kLayerSizes, WeightQuantization::kAuto);
  const Planned sharing("Gemma4ForCausalLM", kSharing, WeightQuantization::kAuto);
  for (const int64_t rank : {0, 1}) {
    const WeightPlan plan = sizes.Of({rank, 2});
    EXPECT_EQ(shape(plan, 0), (Shape{(2 + 1 + 1) * 8, 2 * 8, 24})) << rank;
    EXPECT_EQ(shape(plan, 1), (Shape{(2 + 1) * 16, 2 * 16, 24})) << rank;
    const WeightPlan shared = sharing.Of({rank, 2});
    EXPECT_EQ(shape(shared, 1), (Shape{(2 + 1 + 1) * 16, 2 * 16, 24})) << rank;
    EXPECT_EQ(shape(shared, 3), (Shape{2 * 16, 2 * 16, 48})) << rank;
    for (const WeightPlan* each : {&plan, &shared}) {
      EXPECT_EQ(each->sources.size(), each->map.slots.size());
    }
  }
}

// Whether queries have latents, or come from the hidden states.
TEST(TakeShard, DevicesHaveTheMatricesOfTheirHeads) {
  for (const char* q_rank : {R"("q_lora_rank": 24)", R"("q_lora_rank": null)"}) {
    const std::string fields =
        std::string(kLatents).replace(0, std::strlen(R"("q_lora_rank": 24)"), q_rank);
    const Planned planned("DeepseekV3ForCausalLM", fields, WeightQuantization::kAuto);
    const bool has_latents = planned.config.latent->q_rank > 0;
    const WeightPlan whole = planned.Of({0, 1});
    const auto rows = [](const WeightPlan& plan, LinearRole role) {
      int64_t sum = 0;
      for (const LinearParameters& linear : plan.map.layers[1].linears) {
        if (linear.key.role == role) sum += plan.map.parameters[linear.matrix].rows;
      }
      return sum;
    };
    for (int64_t rank : {0, 1}) {
      const WeightPlan part = planned.Of({rank, 2});
      const int64_t queries = has_latents ? 24 : 2 * 24;
      EXPECT_EQ(rows(part, LinearRole::kQkv), queries + 16 + 8);
      EXPECT_EQ(rows(part, LinearRole::kQueryUp), has_latents ? 2 * 24 : 0);
      EXPECT_EQ(2 * rows(part, LinearRole::kHeadKeyUp), rows(whole, LinearRole::kHeadKeyUp));
      std::vector<int> heads;
      for (const LinearParameters& linear : part.map.layers[1].linears) {
        if (linear.key.role == LinearRole::kHeadValueUp) heads.push_back(linear.key.expert);
        if (linear.key.role == LinearRole::kOut) {
          EXPECT_EQ(part.map.parameters[linear.matrix].columns, 2 * 16);
        }
      }
      EXPECT_THAT(heads, ElementsAre(0, 1));
      EXPECT_EQ(part.sources.size(), part.map.slots.size());
    }
  }
}

TEST(KeepHead, LeavesNothingElse) {
  const Planned planned("PhimoeForCausalLM",
                        R"("num_local_experts": 4, "num_experts_per_tok": 2, "lm_head_bias": true)",
                        WeightQuantization::kQ8);
  WeightPlan plan = planned.Of({0, 1});
  KeepHead(planned.config, &plan);
  for (size_t i = 0; i < plan.map.parameters.size(); ++i) {
    const bool is_head = i == plan.map.head || i == plan.map.head_bias;
    EXPECT_EQ(plan.map.parameters[i].rows, is_head ? 50 : 0) << i;
  }
  EXPECT_EQ(plan.sources.size(), 2);
}

TEST(TakeShard, BordersWithinAGroupAreRefused) {
  const Planned fits("LlamaForCausalLM",
                     R"("hidden_size": 64, "head_dim": 32, "intermediate_size": 128)",
                     WeightQuantization::kQ4);
  EXPECT_NO_THROW(fits.Of({1, 2}));
  const Planned planned("LlamaForCausalLM",
                        R"("hidden_size": 64, "head_dim": 32, "intermediate_size": 192)",
                        WeightQuantization::kQ4);
  try {
    planned.Of({1, 2});
    FAIL() << "96 columns are whole groups";
  } catch (const InvalidConfig& error) {
    EXPECT_EQ(error.field(), "tensor_parallel_shards");
    EXPECT_THAT(error.what(), HasSubstr("model.layers.0.mlp.down_proj.weight, which has 192 in "
                                        "groups of 64"));
  }
}

}  // namespace
}  // namespace mlc_native
