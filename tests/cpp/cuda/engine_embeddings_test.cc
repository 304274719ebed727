// Embeddings by an engine on a CudaModel: those of the CPU's decoder, in chunks, beside answers and
// of steps in flight.
#include <gtest/gtest.h>

#include <cstdlib>
#include <map>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "cuda/model_driver.h"
#include "mlc_native/engine.h"

namespace mlc_native {
namespace {

struct EmbeddedTexts {
  std::map<std::string, std::vector<float>> embeddings;
  std::map<std::string, std::vector<int32_t>> answers;
  std::string errors;

  void Take(const std::vector<RequestStreamOutput>& outputs) {
    for (const RequestStreamOutput& output : outputs) {
      errors += output.error_message;
      if (!output.embedding.empty()) embeddings[output.request_id] = output.embedding;
      for (const SequenceDelta& delta : output.group) {
        std::vector<int32_t>& answer = answers[output.request_id];
        answer.insert(answer.end(), delta.token_ids.begin(), delta.token_ids.end());
      }
    }
  }
};

// Texts of a token, of less than a chunk and of several ones, by both poolings, while sequences
// decode and when nothing else runs.
EmbeddedTexts EmbedSomeTexts(std::unique_ptr<Model> model,
                             PrefixCacheMode cache = PrefixCacheMode::kRadix) {
  EmbeddedTexts texts;
  EngineConfig config;
  config.max_num_sequence = 4;
  config.prefill_chunk_size = 16;
  config.max_total_sequence_length = 320;
  config.prefix_cache_mode = cache;
  EngineOptions options;
  options.request_stream_callback = [&](const auto& outputs) { texts.Take(outputs); };
  const EngineConfig resolved = ResolveEngineConfig(config, model->metadata(), int64_t{1} << 30);
  const auto engine = Engine::FromModel(std::move(model), resolved, {}, nullptr, options);
  const auto run = [&](int num_steps) {
    for (; num_steps != 0 && !engine->Empty(); --num_steps) engine->Step();
  };
  GenerationConfig greedy;
  greedy.temperature = 0;
  greedy.max_tokens = 14;
  for (const int32_t seed : {1, 2}) {
    const std::vector<int32_t> prompt = SomeTokens(10 * seed, seed);
    engine->AddRequest(
        engine->CreateRequest("answer " + std::to_string(seed), {TokenData{prompt}}, greedy));
  }
  run(5);  // as often as a step of two decoding sequences is recorded
  for (const bool is_alone : {false, true}) {
    for (const int64_t length : {1, is_alone ? 9 : 37}) {
      for (const Pooling pooling : {Pooling::kLast, Pooling::kMean}) {
        const std::string id = ToString(pooling) + std::string(" of ") + std::to_string(length) +
                               (is_alone ? " alone" : "");
        const auto seed = static_cast<int32_t>(length) + (is_alone ? 5 : 3);
        const std::vector<int32_t> prompt = SomeTokens(length, seed);
        engine->AddRequest(engine->CreateEmbeddingRequest(
            id, {TokenData{prompt}}, {.pooling = pooling, .normalize = false}));
        run(is_alone ? -1 : 2);
      }
    }
    run(-1);
  }
  engine->AuditPages();
  return texts;
}

void ExpectEmbeddings(const EmbeddedTexts& got, const EmbeddedTexts& want, double most) {
  EXPECT_EQ(got.errors + want.errors, "");
  EXPECT_EQ(want.embeddings.size(), 8u);
  ASSERT_EQ(got.embeddings.size(), want.embeddings.size());
  for (const auto& [id, embedding] : want.embeddings) {
    EXPECT_LT(Difference(got.embeddings.at(id), embedding), most) << id;
  }
}

TEST(CudaEngineEmbeddings, AreThoseOfTheCpu) {
  TinyModel tiny("Gemma2ForCausalLM", R"("head_dim": 16)");
  const EmbeddedTexts want = EmbedSomeTexts(LoadModel(tiny.Source("float32", "cpu")));
  const EmbeddedTexts got = EmbedSomeTexts(LoadCudaModel(tiny.Source()));
  ExpectEmbeddings(got, want, 1e-4);
  EXPECT_EQ(got.answers, want.answers);
}

// The last layers of some read keys and values of others, or have none, so that rows may leave
// early.
TEST(CudaEngineEmbeddings, AreNearInSixteenBits) {
  const std::pair<const char*, const char*> models[] = {{"LlamaForCausalLM", ""},
                                                        {"Gemma3nForCausalLM", kStreams},
                                                        {"NemotronHForCausalLM", kSingleBlocks}};
  for (const auto& [architecture, fields] : models) {
    SCOPED_TRACE(architecture);
    TinyModel tiny(architecture, fields);
    ExpectEmbeddings(EmbedSomeTexts(LoadCudaModel(tiny.Source("bfloat16"))),
                     EmbedSomeTexts(LoadModel(tiny.Source("float32", "cpu"))), 1e-1);
  }
}

TEST(CudaEngineEmbeddings, AreTheSameWithoutThePrefixCache) {
  TinyModel tiny;
  const auto embed = [&](PrefixCacheMode mode) {
    return EmbedSomeTexts(LoadCudaModel(tiny.Source("bfloat16")), mode);
  };
  ExpectEmbeddings(embed(PrefixCacheMode::kDisable), embed(PrefixCacheMode::kRadix), 2e-2);
}

#ifdef FAKE_NCCL
TEST(CudaEngineEmbeddings, OfTwoDevicesAreThoseOfOne) {
  setenv("MLC_NATIVE_NCCL_LIB", FAKE_NCCL, 1);
  TinyModel tiny("GraniteForCausalLM", R"("residual_multiplier": 0.4)");
  ModelSource source = tiny.Source("bfloat16");
  const EmbeddedTexts want = EmbedSomeTexts(LoadCudaModel(source));
  source.tensor_parallel_shards = 2;
  ExpectEmbeddings(EmbedSomeTexts(LoadCudaModel(source)), want, 2e-2);
  unsetenv("MLC_NATIVE_NCCL_LIB");
}
#endif

}  // namespace
}  // namespace mlc_native
