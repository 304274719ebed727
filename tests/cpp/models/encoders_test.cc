// Encoders: what their config.json says, and which tensors are which norms.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "arch/model_config.h"
#include "support/error.h"
#include "testing/error_message.h"
#include "testing/tiny_checkpoint.h"
#include "weights/weight_map.h"

namespace mlc_native {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

ModelConfig ReadEncoder(const std::string& architecture, const std::string& fields = "") {
  testing::TempFolder folder;
  folder.Write("config.json", testing::TinyConfig(architecture, fields));
  return ReadModelConfig(folder.path());
}

// The tensor that fills a parameter.
std::string TensorOf(const WeightMap& map, size_t parameter) {
  const auto slot = std::ranges::find(map.slots, parameter, &WeightSlot::parameter);
  return slot == map.slots.end() ? "" : slot->name;
}

struct NormTensor {
  std::string name;
  bool gives_residual = false;

  bool operator==(const NormTensor&) const = default;
};

// Of all layers, those in front of attention and of the feed-forward block.
std::vector<NormTensor> NormsOf(const ModelConfig& config) {
  const WeightMap map = testing::TinyMap(config);
  std::vector<NormTensor> norms;
  for (const LayerParameters& layer : map.layers) {
    for (const NormRole role : {NormRole::kPreAttention, NormRole::kPreFfn}) {
      const NormParameters& norm = layer.norms[static_cast<size_t>(role)];
      norms.push_back({TensorOf(map, norm.weight), norm.gives_residual});
    }
  }
  return norms;
}

TEST(EncoderConfig, RowsSeeTheirWholeText) {
  for (const char* name :
       {"BertForMaskedLM", "BertModel", "BertForSequenceClassification", "XLMRobertaModel",
        "ModernBertForMaskedLM", "EuroBertModel", "NomicBertModel", "GteModel"}) {
    SCOPED_TRACE(name);
    const ModelConfig config = ReadEncoder(name);
    EXPECT_EQ(config.sight, RowSight::kAll);
    EXPECT_FALSE(config.has_head);
    EXPECT_TRUE(config.tie_word_embeddings);
  }
}

TEST(EncoderConfig, PositionsOfPaddingAreNone) {
  EXPECT_EQ(ReadEncoder("BertModel", R"("max_position_embeddings": 300)").max_positions, 300);
  EXPECT_EQ(ReadEncoder("RobertaModel", R"("max_position_embeddings": 302)").max_positions, 300);
  const auto read = [](const char* fields) {
    return testing::MessageOf<LoadError>("max_position_embeddings",
                                         [&] { ReadEncoder("RobertaModel", fields); });
  };
  EXPECT_THAT(read(R"("max_position_embeddings": 2)"), HasSubstr("[3, "));
}

TEST(EncoderConfig, ARopeThatFollowsTheLengthBoundsTexts) {
  const auto positions = [](const std::string& fields) {
    return ReadEncoder("NomicBertModel", R"("n_positions": 8192)" + fields).max_positions;
  };
  EXPECT_EQ(positions(""), 8192);
  EXPECT_EQ(positions(R"(, "max_trained_positions": 1024)"), 1024);
  EXPECT_EQ(positions(R"(, "rotary_scaling_factor": 2.0)"), 2048);
  EXPECT_EQ(positions(R"(, "rotary_scaling_factor": null)"), 8192);
}

TEST(EncoderConfig, AWindowHasHalfOfItsTokensOnEachSide) {
  const ModelConfig config =
      ReadEncoder("ModernBertModel", R"("local_attention": 16, "num_hidden_layers": 5)");
  std::vector<int64_t> windows;
  for (const LayerConfig& layer : config.layers) windows.push_back(layer.window.size);
  EXPECT_THAT(windows, ElementsAre(0, 9, 9, 0, 9));  // each token itself, and eight beside it
}

TEST(EncoderConfig, KindsOfTexts) {
  EXPECT_EQ(ReadEncoder("BertModel").num_text_types, 2);
  EXPECT_EQ(ReadEncoder("BertModel", R"("type_vocab_size": 1)").num_text_types, 1);
  EXPECT_EQ(ReadEncoder("DistilBertModel").num_text_types, 0);
  EXPECT_EQ(ReadEncoder("ModernBertModel").num_text_types, 0);
  EXPECT_EQ(ReadEncoder("NomicBertModel").num_text_types, 2);
  EXPECT_EQ(ReadEncoder("GteModel").num_text_types, 1);
  EXPECT_EQ(ReadEncoder("GteModel", R"("type_vocab_size": 0)").num_text_types, 0);
  EXPECT_EQ(ReadEncoder("BertModel").TextTypeOf(true), 1);
  EXPECT_EQ(ReadEncoder("BertModel", R"("type_vocab_size": 1)").TextTypeOf(true), 0);
}

TEST(EncoderWeights, NormsFollowTheBlockInFront) {
  EXPECT_THAT(
      NormsOf(ReadEncoder("BertModel")),
      ElementsAre(NormTensor{"bert.embeddings.LayerNorm.weight", true},
                  NormTensor{"bert.encoder.layer.0.attention.output.LayerNorm.weight", true},
                  NormTensor{"bert.encoder.layer.0.output.LayerNorm.weight", true},
                  NormTensor{"bert.encoder.layer.1.attention.output.LayerNorm.weight", true}));
  const WeightMap map = testing::TinyMap(ReadEncoder("BertModel"));
  EXPECT_EQ(TensorOf(map, map.final_norm.weight), "bert.encoder.layer.1.output.LayerNorm.weight");
  EXPECT_EQ(TensorOf(map, map.text_types), "bert.embeddings.token_type_embeddings.weight");
}

TEST(EncoderWeights, UpMayComeBeforeTheGate) {
  const WeightMap map = testing::TinyMap(ReadEncoder("GteModel"));
  std::vector<std::pair<int64_t, int64_t>> parts;  // of the tensor, and where they go
  for (const WeightSlot& slot : map.slots) {
    if (slot.name != "gte.encoder.layer.0.mlp.up_gate_proj.weight") continue;
    parts.emplace_back(slot.part.first, slot.row_offset);
  }
  EXPECT_THAT(parts, ElementsAre(std::pair(0, 48), std::pair(48, 0)));
}

TEST(EncoderWeights, ANormOfEmbeddingsMayBeTheOnlyOneThatGivesTheResidual) {
  EXPECT_THAT(NormsOf(ReadEncoder("ModernBertModel")),
              ElementsAre(NormTensor{"model.embeddings.norm.weight", true},
                          NormTensor{"model.layers.0.mlp_norm.weight", false},
                          NormTensor{"model.layers.1.attn_norm.weight", false},
                          NormTensor{"model.layers.1.mlp_norm.weight", false}));
}

}  // namespace
}  // namespace mlc_native
