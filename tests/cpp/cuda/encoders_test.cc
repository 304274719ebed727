// Encoders on CUDA: norms that give the residual, and rows that are added to those of a second
// text. Embeddings are those of the CPU's decoder.
#include <gtest/gtest.h>

#include <cstdlib>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "cuda/model_driver.h"
#include "mlc_native/engine.h"

namespace mlc_native {
namespace {

using Embeddings = std::map<std::string, std::vector<float>>;

struct EncodedText {
  int64_t length = 0;
  int64_t second_text = 0;
};

// Texts and pairs beside each other; adjacent ones share a run of first or of second texts.
constexpr Pooling kPoolings[] = {Pooling::kCls, Pooling::kMean};
constexpr EncodedText kTexts[] = {{1, 0}, {37, 20}, {5, 0}, {9, 9}, {19, 1}, {19, 0}, {2, 1}};

Embeddings Encode(std::unique_ptr<Model> model, int64_t max_num_sequence) {
  EngineConfig config;
  config.max_num_sequence = max_num_sequence;
  config.max_total_sequence_length = 320;
  const EngineConfig resolved = ResolveEngineConfig(config, model->metadata(), int64_t{1} << 30);
  Embeddings embeddings;
  EngineOptions options;
  options.request_stream_callback = [&](const std::vector<RequestStreamOutput>& outputs) {
    for (const RequestStreamOutput& output : outputs) {
      EXPECT_EQ(output.error_message, "") << output.request_id;
      if (!output.embedding.empty()) embeddings[output.request_id] = output.embedding;
    }
  };
  const auto engine = Engine::FromModel(std::move(model), resolved, {}, nullptr, options);
  for (const Pooling pooling : kPoolings) {
    for (const EncodedText& text : kTexts) {
      const std::string id = std::string(ToString(pooling)) + ' ' + std::to_string(text.length) +
                             ' ' + std::to_string(text.second_text);
      const std::vector<int32_t> tokens = SomeTokens(text.length, 3);
      engine->AddRequest(engine->CreateEmbeddingRequest(
          id, {TokenData{tokens}},
          {.pooling = pooling, .normalize = false, .second_text = text.second_text}));
    }
  }
  while (!engine->Empty()) engine->Step();
  engine->AuditPages();
  return embeddings;
}

void ExpectNear(const Embeddings& got, const Embeddings& want, double most) {
  EXPECT_EQ(want.size(), std::size(kPoolings) * std::size(kTexts));
  ASSERT_EQ(got.size(), want.size());
  for (const auto& [id, embedding] : want) {
    EXPECT_LT(Difference(got.at(id), embedding), most) << id;
  }
}

constexpr std::pair<const char*, const char*> kEncoders[] = {
    {"BertForMaskedLM", ""},
    {"BertForMaskedLM", R"("type_vocab_size": 1)"},
    {"XLMRobertaForMaskedLM", R"("max_position_embeddings": 130)"},
    {"DistilBertForMaskedLM", R"("n_heads": 4, "dim": 32, "n_layers": 2, "hidden_dim": 48)"},
    {"MPNetForMaskedLM", ""},
    {"T5EncoderModel", R"("num_heads": 4, "d_model": 32, "num_layers": 2, "d_kv": 16, "d_ff": 48)"},
    {"ModernBertForMaskedLM", R"("local_attention": 12, "num_hidden_layers": 3)"},
    {"EuroBertForMaskedLM", ""},
    {"NomicBertForMaskedLM", ""},
    {"GteForMaskedLM", R"("type_vocab_size": 0)"}};

TEST(CudaEncoders, AgreeWithTheCpu) {
  for (const auto& [architecture, fields] : kEncoders) {
    SCOPED_TRACE(std::string(architecture) + ' ' + fields);
    TinyModel tiny(architecture, fields);
    const Embeddings want = Encode(LoadModel(tiny.Source("float32", "cpu")), 8);
    ExpectNear(Encode(LoadCudaModel(tiny.Source()), 8), want, 1e-4);
    ExpectNear(Encode(LoadCudaModel(tiny.Source("bfloat16")), 8), want, 1e-1);
  }
}

TEST(CudaEncoders, TellASecondTextFromTheFirst) {
  TinyModel tiny("BertForMaskedLM");
  const Embeddings told = Encode(LoadCudaModel(tiny.Source()), 8);
  EXPECT_GT(Difference(told.at("cls 19 1"), told.at("cls 19 0")), 1e-2);
  EXPECT_GT(Difference(told.at("mean 19 1"), told.at("mean 19 0")), 1e-2);
  TinyModel of_one_type("BertForMaskedLM", R"("type_vocab_size": 1)");
  const Embeddings ignored = Encode(LoadCudaModel(of_one_type.Source()), 8);
  EXPECT_EQ(ignored.at("cls 19 1"), ignored.at("cls 19 0"));
}

TEST(CudaEncoders, DoNotDependOnTheBatch) {
  TinyModel tiny("BertForMaskedLM");
  EXPECT_EQ(Encode(LoadCudaModel(tiny.Source()), 1), Encode(LoadCudaModel(tiny.Source()), 8));
}

#ifdef FAKE_NCCL
TEST(CudaEncoders, OfTwoDevicesAreThoseOfOne) {
  setenv("MLC_NATIVE_NCCL_LIB", FAKE_NCCL, 1);
  for (const char* architecture :
       {"BertForMaskedLM", "ModernBertForMaskedLM", "MPNetForMaskedLM"}) {
    SCOPED_TRACE(architecture);
    TinyModel tiny(architecture);
    ModelSource source = tiny.Source();
    const Embeddings want = Encode(LoadCudaModel(source), 8);
    source.tensor_parallel_shards = 2;
    ExpectNear(Encode(LoadCudaModel(source), 8), want, 1e-4);
  }
  unsetenv("MLC_NATIVE_NCCL_LIB");
}
#endif

}  // namespace
}  // namespace mlc_native
