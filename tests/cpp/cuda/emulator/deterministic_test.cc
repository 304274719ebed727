// Bits of whole models beside a cuBLASLt, which a fake stands for: generated tokens never have its
// bits, and prompts do not if the model is deterministic.
#include <gtest/gtest.h>

#include <cstdlib>

#include "cuda/fake_cublas_lt/fake_cublas_lt.h"
#include "cuda/model_driver.h"

namespace mlc_native {
namespace {

constexpr int64_t kSequences = 64;
constexpr int64_t kPrompt = 75;  // more than a step of attention

class DeterministicTest : public ::testing::Test {
 protected:
  DeterministicTest() { setenv("MLC_NATIVE_CUBLASLT_LIB", FAKE_CUBLAS_LT, 1); }
  ~DeterministicTest() override { unsetenv("MLC_NATIVE_CUBLASLT_LIB"); }

  std::unique_ptr<Model> Load(bool deterministic,
                              WeightQuantization quantization = WeightQuantization::kAuto) {
    ModelSource source = tiny_.Source("bfloat16");
    source.deterministic = deterministic;
    source.quantization = quantization;
    std::unique_ptr<Model> model = LoadCudaModel(source);
    model->Allocate(/*num_pages=*/80, /*max_num_rows=*/160, /*max_num_logits=*/80);
    return model;
  }

  // Logits behind a prompt, which takes steps of so many.
  static std::vector<float> InChunks(Model& model, int64_t chunk) {
    const std::vector<int32_t> tokens = SomeTokens(kPrompt, 5);
    TestSequence sequence(0, 6);
    std::vector<float> logits;
    for (int64_t at = 0; at < std::ssize(tokens); at += chunk) {
      const int64_t end = std::min(at + chunk, std::ssize(tokens));
      logits = Logits(model,
                      TestBatch().AddPrompt(sequence, {tokens.begin() + at, tokens.begin() + end}));
    }
    return logits;
  }

  TinyModel tiny_{"Qwen2ForCausalLM", R"("head_dim": 16)"};
};

TEST_F(DeterministicTest, APromptHasTheSameBitsInChunksOfAnySize) {
  const int before = fake_cublas_lt_num_products();
  for (const auto quantization : {WeightQuantization::kAuto, WeightQuantization::kQ4}) {
    const auto model = Load(true, quantization);
    const std::vector<float> whole = InChunks(*model, kPrompt);
    for (int64_t chunk : {1, 7, 40}) EXPECT_EQ(InChunks(*model, chunk), whole) << chunk;
  }
  EXPECT_EQ(fake_cublas_lt_num_products(), before);
  const auto other = Load(false);
  InChunks(*other, kPrompt);
  EXPECT_GT(fake_cublas_lt_num_products(), before);
}

TEST_F(DeterministicTest, ARowOf64HasTheBitsOfOne) {
  const auto model = Load(false);
  const auto vocab = model->metadata().vocab_size;
  std::vector<TestSequence> sequences;
  std::vector<float> alone;
  TestBatch together;
  const int before = fake_cublas_lt_num_products();
  for (int64_t i = 0; i < kSequences; ++i) {
    TestSequence& sequence = sequences.emplace_back(i, 1);
    Logits(*model, TestBatch().AddPrompt(sequence, SomeTokens(2 + i % 5, static_cast<int32_t>(i))));
    TestSequence same = sequence;
    const std::vector<float> logits = Logits(*model, TestBatch().Add(same, {4}));
    alone.insert(alone.end(), logits.begin(), logits.end());
  }
  for (TestSequence& sequence : sequences) together.Add(sequence, {4});
  EXPECT_EQ(Logits(*model, together), alone);
  EXPECT_EQ(fake_cublas_lt_num_products(), before);
  // Alongside a prompt that cuBLASLt computes. Eight rows in front of it leave it aligned.
  TestSequence prompt(11, 6);  // its pages are behind those of the others
  TestBatch mixed;
  mixed.AddPrompt(prompt, SomeTokens(90, 1));
  for (int64_t i = 0; i < 8; ++i) {
    --sequences[i].length;
    mixed.Add(sequences[i], {4});
  }
  const std::vector<float> logits = Logits(*model, mixed);
  EXPECT_GT(fake_cublas_lt_num_products(), before);
  EXPECT_EQ(std::vector<float>(logits.begin() + vocab, logits.end()),
            std::vector<float>(alone.begin(), alone.begin() + 8 * vocab));
}

// All sizes but those of latents are whole steps of what cuBLASLt wants.
TEST_F(DeterministicTest, AnyRowOfLatentsMayBeTheFirstOfAPrompt) {
  TinyModel latent("DeepseekV3ForCausalLM",
                   std::string(kLatent) + R"(, "hidden_size": 128, "intermediate_size": 128,
                           "num_attention_heads": 16, "num_key_value_heads": 16)");
  ModelSource source = latent.Source("bfloat16");
  source.deterministic = false;
  const std::unique_ptr<Model> model = latent.Load(source);
  const auto num_products = [&](int64_t rows_in_front) {
    TestSequence prompt(7, 6);
    TestBatch batch;
    batch.AddPrompt(prompt, SomeTokens(40, 1));
    std::vector<TestSequence> sequences(static_cast<size_t>(rows_in_front), TestSequence(0, 1));
    for (int64_t i = 0; i < rows_in_front; ++i) {
      sequences[i] = TestSequence(i, 1);
      batch.Add(sequences[i], {4});
    }
    const int before = fake_cublas_lt_num_products();
    Logits(*model, batch);
    return fake_cublas_lt_num_products() - before;
  };
  const int without = num_products(0);
  EXPECT_GT(without, 0);
  for (int64_t rows : {1, 2, 3}) EXPECT_EQ(num_products(rows), without) << rows;
}

}  // namespace
}  // namespace mlc_native
