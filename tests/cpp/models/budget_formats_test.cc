// Formats within a budget of bits per weight, and the names of such budgets.
#include "weights/budget_formats.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <map>
#include <string>
#include <vector>

#include "arch/model_config.h"
#include "kernels/packed_format.h"
#include "mlc_native/detail/weight_quantization.h"
#include "testing/temp_folder.h"
#include "testing/tiny_checkpoint.h"
#include "weights/decoder_map.h"

namespace mlc_native {
namespace {

using kernels::WeightFormat;
using testing::TinyConfig;

constexpr WeightFormat kAll[] = {WeightFormat::kQ4, WeightFormat::kQ6, WeightFormat::kQ8};
constexpr WeightFormat kTwo[] = {WeightFormat::kQ4, WeightFormat::kQ8};

struct Decoder {
  WeightMap map;

  explicit Decoder(const std::string& architecture, const std::string& fields = "") {
    const testing::TempFolder folder;
    folder.Write("config.json", TinyConfig(architecture, fields));
    const ModelConfig config = ReadModelConfig(folder.path());
    const auto* experts = config.experts ? &config.arch->experts.spellings.front() : nullptr;
    map = MakeWeightMap(config, {.prefix = "model.",
                                 .head = config.tie_word_embeddings ? "" : "lm_head.weight",
                                 .head_bias = "lm_head.bias",
                                 .experts = experts});
  }

  bool IsQuantized(size_t i) const {
    return map.parameters[i].form == ParameterForm::kPacked && !map.parameters[i].in_float32;
  }
  // Thousandths of a bit per weight.
  double Mean(const std::vector<WeightFormat>& formats) const {
    double bits = 0, count = 0;
    for (size_t i = 0; i < formats.size(); ++i) {
      if (!IsQuantized(i)) continue;
      const auto size = static_cast<double>(map.parameters[i].rows * map.parameters[i].columns);
      bits += size * static_cast<double>(MillibitsOf(formats[i]));
      count += size;
    }
    return bits / count;
  }
  int64_t CodeBits(const std::vector<WeightFormat>& formats, size_t i) const {
    return kernels::LayoutOf(formats[i]).code_bits;
  }
  // The role and layer of each step of the order, as "qkv 0"; "+qkv 0" to the third format.
  std::vector<std::string> Order(size_t num_formats) const {
    std::map<size_t, std::string> names{{map.head, "head"}};
    constexpr std::array<const char*, kNumLinearRoles> kNames{
        "qkv",     "out",       "gate_up",    "down",     "router",    "experts",
        "experts", "shared_in", "shared_out", "query_up", "head_keys", "head_values"};
    for (size_t layer = 0; layer < map.layers.size(); ++layer) {
      for (const LinearParameters& linear : map.layers[layer].linears) {
        names[linear.matrix] =
            kNames[static_cast<size_t>(linear.key.role)] + (' ' + std::to_string(layer));
      }
    }
    std::vector<std::string> order;
    for (const Widening& step : OrderOfWidening(map, num_formats)) {
      order.push_back((step.to == 1 ? "" : "+") + names.at(step.parameters.front()));
    }
    return order;
  }
};

TEST(WeightQuantization, ReadsAndWritesNames) {
  for (const char* name : {"off", "q8", "q6", "q4", "q4.5", "q4.8", "q5.125", "q6.0", "q8.25"}) {
    const auto parsed = WeightQuantization::Parse(name);
    ASSERT_TRUE(parsed) << name;
    EXPECT_EQ(parsed->ToString(), name);
  }
  EXPECT_EQ(WeightQuantization::Parse("q4.80")->ToString(), "q4.8");
  EXPECT_EQ(WeightQuantization::Parse("q5.05")->millibits(), 5050);
  EXPECT_EQ(WeightQuantization().ToString(), "");
}

TEST(WeightQuantization, RefusesAllElse) {
  for (const char* name : {"",       "q",     "q5",    "q4.",   "q.8",     "4.8",  "q4.49",
                           "q8.251", "q9.0",  "q12.5", "q4.8 ", "q4.8000", "q4,8", "q-4.8",
                           "q4.-8",  "q+4.8", "q4.+8", "q4.8x", "Q4.8",    "qNaN", "q4.8e0"}) {
    EXPECT_FALSE(WeightQuantization::Parse(name)) << name;
  }
  EXPECT_THAT(WeightQuantization::Allowed(), ::testing::HasSubstr("[4.5, 8.25]"));
}

TEST(BudgetFormats, AWeightTakesItsPartOfAScale) {
  EXPECT_EQ(MillibitsOf(WeightFormat::kQ4), WeightQuantization::kMinMillibits);
  EXPECT_EQ(MillibitsOf(WeightFormat::kQ6), 6250);
  EXPECT_EQ(MillibitsOf(WeightFormat::kQ8), WeightQuantization::kMaxMillibits);
}

TEST(BudgetFormats, StayWithinTheBudgetAndGrowWithIt) {
  const Decoder decoders[] = {
      Decoder("LlamaForCausalLM"),
      Decoder("LlamaForCausalLM", R"("tie_word_embeddings": true, "vocab_size": 4000)"),
      Decoder("LlamaForCausalLM", R"("num_hidden_layers": 9)"),
      Decoder("Qwen3MoeForCausalLM", R"("num_experts": 5, "num_experts_per_tok": 2,
              "moe_intermediate_size": 24, "head_dim": 8)")};
  for (const Decoder& decoder : decoders) {
    for (const std::span<const WeightFormat> formats :
         {std::span<const WeightFormat>(kAll), std::span<const WeightFormat>(kTwo)}) {
      std::vector<WeightFormat> last;
      for (int64_t millibits = 4500; millibits <= 8250; millibits += 25) {
        const auto chosen = FormatsWithin(decoder.map, millibits, formats);
        EXPECT_LE(decoder.Mean(chosen), static_cast<double>(millibits) + 1e-6);
        EXPECT_EQ(chosen, FormatsWithin(decoder.map, millibits, formats));
        for (size_t i = 0; i < last.size(); ++i) {
          ASSERT_GE(decoder.CodeBits(chosen, i), decoder.CodeBits(last, i)) << millibits;
        }
        last = chosen;
      }
    }
  }
}

TEST(BudgetFormats, TheEndsAreOneFormat) {
  const Decoder decoder("LlamaForCausalLM");
  for (const auto& [millibits, format] :
       {std::pair<int64_t, WeightFormat>{4500, WeightFormat::kQ4}, {8250, WeightFormat::kQ8}}) {
    const auto chosen = FormatsWithin(decoder.map, millibits, kAll);
    for (size_t i = 0; i < chosen.size(); ++i) {
      if (decoder.IsQuantized(i)) EXPECT_EQ(chosen[i], format) << i;
    }
  }
}

TEST(BudgetFormats, TheSmallerOfHeadAndFirstLayerComesFirst) {
  // A layer has 7,680 weights, the head 32 for each of the vocabulary.
  EXPECT_THAT(
      Decoder("LlamaForCausalLM", R"("vocab_size": 50)").Order(3),
      ::testing::ElementsAre("head", "out 0", "qkv 0", "down 0", "gate_up 0", "out 1", "qkv 1",
                             "+head", "+out 0", "+qkv 0", "+down 0", "+gate_up 0", "down 1",
                             "gate_up 1", "+out 1", "+qkv 1", "+down 1", "+gate_up 1"));
  EXPECT_THAT(
      Decoder("LlamaForCausalLM", R"("vocab_size": 500, "num_hidden_layers": 3)").Order(2),
      ::testing::ElementsAre("out 0", "qkv 0", "down 0", "gate_up 0", "head", "out 1", "out 2",
                             "qkv 1", "qkv 2", "down 1", "down 2", "gate_up 1", "gate_up 2"));
}

TEST(BudgetFormats, ExpertsOfALayerHaveOneFormat) {
  const Decoder decoder("Qwen3MoeForCausalLM", R"("num_experts": 5, "num_experts_per_tok": 2,
              "moe_intermediate_size": 24, "head_dim": 8)");
  const std::vector<bool> of_experts = decoder.map.ParametersOfExperts();
  for (const Widening& unit : OrderOfWidening(decoder.map, 2)) {
    const bool experts = of_experts[unit.parameters.front()];
    EXPECT_EQ(unit.parameters.size(), experts ? 10U : 1U);
    for (const size_t i : unit.parameters) {
      EXPECT_EQ(of_experts[i], experts);
      EXPECT_FALSE(decoder.map.parameters[i].in_float32);  // the router
    }
  }
}

TEST(BudgetFormats, WhatIsLeftIsLessThanTheNextMatrix) {
  const Decoder decoder("LlamaForCausalLM", R"("num_hidden_layers": 9)");
  const auto order = OrderOfWidening(decoder.map, 2);
  double total = 0;
  for (const Widening& unit : order) total += static_cast<double>(unit.size);
  const auto chosen = FormatsWithin(decoder.map, 6000, kTwo);
  size_t next = 0;
  while (chosen[order[next].parameters.front()] == WeightFormat::kQ8) ++next;
  EXPECT_GT(next, 0U);
  EXPECT_LT(6000 - decoder.Mean(chosen), 3750 * static_cast<double>(order[next].size) / total);
}

}  // namespace
}  // namespace mlc_native
