// How channels of keys are evened out before keys become 8 bits.
#include "models/key_balance.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "mlc_native/model.h"
#include "support/check.h"
#include "testing/tiny_checkpoint.h"

namespace mlc_native {
namespace {

constexpr KeyHeads kWithoutRope{.q_heads = 4, .kv_heads = 2, .head_dim = 4};

TEST(KeyBalance, IsAPowerOfTwoOfEachChannel) {
  // 0.75 of the logarithm of 16, of 2, which is rounded to 1, and of 1 / 16.
  EXPECT_EQ(BalanceOf(std::vector<float>{1, 16, 1, 1, 2, 1, 1, 0.0625f}, kWithoutRope),
            (std::vector<float>{1, 8, 1, 1, 2, 1, 1, 0.125f}));
}

TEST(KeyBalance, ChannelsThatRopeMixesHaveTheSame) {
  KeyHeads heads{.q_heads = 1, .kv_heads = 1, .head_dim = 8, .rotary_dim = 6};
  const std::vector<float> largest{16, 1, 1, 1, 1, 1, 1, 16};
  EXPECT_EQ(BalanceOf(largest, heads), (std::vector<float>{8, 1, 1, 8, 1, 1, 1, 8}));
  heads.interleaved = true;
  EXPECT_EQ(BalanceOf(largest, heads), (std::vector<float>{8, 8, 1, 1, 1, 1, 1, 8}));
}

TEST(KeyBalance, LeavesAloneWhatHasNoSize) {
  constexpr float kInf = std::numeric_limits<float>::infinity();
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  EXPECT_EQ(BalanceOf(std::vector<float>{0, 0, 0, 1, kInf, 1, kNan, 1}, kWithoutRope),
            std::vector<float>(8, 1.0f));
  EXPECT_EQ(BalanceOf(std::vector<float>{1, 1, 1, 1e30f, 1, 1, 1, 1e-30f}, kWithoutRope),
            (std::vector<float>{1, 1, 1, 256, 1, 1, 1, 1.0f / 256}));
}

TEST(KeyBalance, QueriesUndoWhatKeysAreDividedBy) {
  const std::vector<float> balance{1, 8, 1, 1, 2, 1, 1, 0.125f};
  const std::vector<float> scales = BalancingScales(balance, kWithoutRope);
  EXPECT_EQ(scales,
            (std::vector<float>{1, 8,      1, 1,      1,    8, 1, 1,       // queries of the first
                                2, 1,      1, 0.125f, 2,    1, 1, 0.125f,  // of the second
                                1, 0.125f, 1, 1,      0.5f, 1, 1, 8}));    // keys
}

TEST(KeyBalance, WrongSizesAreFound) {
  EXPECT_THROW(BalanceOf(std::vector<float>(7), kWithoutRope), InternalError);
  EXPECT_THROW(BalancingScales(std::vector<float>(7), kWithoutRope), InternalError);
}

// How far logits are from those with keys and values in float32, where every eighth channel of the
// keys is large: by a bias, or by the weight of the keys' norm.
double ErrorOf8Bits(const std::string& architecture, const std::string& fields) {
  testing::TempFolder folder;
  WriteTinyCheckpoint(folder, testing::TinyConfig(architecture, fields),
                      [](const std::string& name, std::vector<float>* values) {
                        const bool is_of_keys = name.ends_with("self_attn.k_proj.bias") ||
                                                name.ends_with("self_attn.k_norm.weight");
                        for (size_t i = 5; is_of_keys && i < values->size(); i += 8) {
                          (*values)[i] = 64;
                        }
                      });
  const std::vector<int32_t> pages{2, 0};
  std::vector<int32_t> tokens, rows;
  for (int32_t i = 0; i < 20; ++i) {
    tokens.push_back(i * 7 % 50);
    rows.push_back(i);
  }
  const SequenceSlice slice{.first_row = 0, .num_tokens = 20, .position = 0, .block_table = pages};
  std::vector<std::vector<float>> logits;
  for (const KvCacheDType dtype : {KvCacheDType::kFloat32, KvCacheDType::kInt8}) {
    const std::unique_ptr<Model> model = LoadModel(
        {.path = folder.path(), .dtype = "float32", .kv_cache_dtype = dtype, .num_threads = 1});
    model->Allocate(4, 32, 32);
    const LogitsView view = model->Forward({tokens, {&slice, 1}, rows});
    logits.emplace_back(view.data, view.data + view.num_rows * view.vocab_size);
  }
  double difference = 0, sum = 0;
  for (size_t i = 0; i < logits[0].size(); ++i) {
    difference += std::pow(logits[1][i] - logits[0][i], 2);
    sum += std::pow(logits[0][i], 2);
  }
  return std::sqrt(difference / sum);
}

// The bounds are between the errors with and without a balance.
TEST(KeyBalance, KeysOf8BitsHaveSmallErrorsWhereChannelsDiffer) {
  const std::string heads = R"("head_dim": 16)";
  EXPECT_LT(ErrorOf8Bits("Qwen2ForCausalLM", ""), 0.015);
  EXPECT_LT(ErrorOf8Bits("Qwen3ForCausalLM", heads), 0.025);
  EXPECT_LT(ErrorOf8Bits("Olmo2ForCausalLM", heads), 0.09);
}

// The last two layers read the keys of the first two.
TEST(KeyBalance, QueriesOfALayerWithoutKeysUndoThatOfTheKeysTheyRead) {
  const std::string fields = R"("head_dim": 16, "global_head_dim": 16, "sliding_window": 5,
      "hidden_size_per_layer_input": 8, "vocab_size_per_layer_input": 50, "num_hidden_layers": 4,
      "num_kv_shared_layers": 2,
      "layer_types": ["sliding_attention", "full_attention", "sliding_attention",
                      "full_attention"])";
  EXPECT_LT(ErrorOf8Bits("Gemma4ForCausalLM", fields), 0.14);
}

}  // namespace
}  // namespace mlc_native
