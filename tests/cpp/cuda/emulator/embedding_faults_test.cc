// Embeddings of an emulated machine that has no memory for hidden states or loses a device, and
// that they forget no recorded graph.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <map>
#include <string>

#include "cuda/emulator/emulator.h"
#include "cuda/model_driver.h"
#include "mlc_native/engine.h"

namespace mlc_native {
namespace {

using ::testing::HasSubstr;

class CudaEmbeddingFaults : public ::testing::TestWithParam<int64_t> {
 protected:
  CudaEmbeddingFaults() {
    setenv("MLC_NATIVE_NCCL_LIB", FAKE_NCCL, 1);
    EngineOptions options;
    options.request_stream_callback = [this](const auto& outputs) {
      for (const RequestStreamOutput& output : outputs) {
        Ended& ended = ended_[output.request_id];
        ended.has_embedding |= !output.embedding.empty();
        ended.num_finals += output.is_final() ? 1 : 0;
        if (!output.error_message.empty()) ended.error = output.error_message;
      }
    };
    ModelSource source = tiny_.Source("bfloat16");
    source.tensor_parallel_shards = GetParam();
    EngineConfig config;
    config.max_num_sequence = 4;
    config.prefill_chunk_size = 16;
    config.max_total_sequence_length = 320;
    std::unique_ptr<Model> model = LoadCudaModel(source);
    config = ResolveEngineConfig(config, model->metadata(), 0);
    engine_ = Engine::FromModel(std::move(model), config, {}, nullptr, options);
  }
  ~CudaEmbeddingFaults() override {
    for (int i = 0; i < emulator::kNumDevices; ++i) mlc_native_emulated_lose_device(i, -1);
    mlc_native_emulated_set_memory(int64_t{256} << 20);
    engine_.reset();
    unsetenv("MLC_NATIVE_NCCL_LIB");
    kernels::cuda::UseDevice(0);
  }

  struct Ended {
    bool has_embedding = false;
    int num_finals = 0;
    std::string error;
  };

  // Embeddings of both kinds beside an answer.
  std::map<std::string, Ended> Serve() {
    ended_.clear();
    GenerationConfig greedy;
    greedy.temperature = 0;
    greedy.max_tokens = 4;
    engine_->AddRequest(engine_->CreateRequest("answer", {TokenData{SomeTokens(5, 1)}}, greedy));
    for (const Pooling pooling : {Pooling::kLast, Pooling::kMean}) {
      engine_->AddRequest(engine_->CreateEmbeddingRequest(
          ToString(pooling), {TokenData{SomeTokens(21, 2)}}, {.pooling = pooling}));
    }
    while (!engine_->Empty()) engine_->Step();
    engine_->AuditPages();
    for (const auto& [id, ended] : ended_) {
      EXPECT_EQ(ended.num_finals, 1) << id;
      EXPECT_EQ(ended.has_embedding, id != "answer" && ended.error.empty()) << id;
    }
    return ended_;
  }

  TinyModel tiny_;
  std::unique_ptr<Engine> engine_;

 private:
  std::map<std::string, Ended> ended_;
};

INSTANTIATE_TEST_SUITE_P(Devices, CudaEmbeddingFaults, ::testing::Values(1, 2));

TEST_P(CudaEmbeddingFaults, WithoutMemoryForStatesTheyFailAlone) {
  mlc_native_emulated_set_memory(mlc_native_emulated_used_memory(0) + 100);
  for (const auto& [id, ended] : Serve()) {
    EXPECT_THAT(ended.error, HasSubstr(id == "answer" ? "" : "hidden states need")) << id;
    EXPECT_EQ(ended.error.empty(), id == "answer") << ended.error;
  }
  mlc_native_emulated_set_memory(int64_t{256} << 20);
  for (const auto& [id, ended] : Serve()) EXPECT_EQ(ended.error, "") << id;
}

TEST_P(CudaEmbeddingFaults, ALostDeviceEndsEachRequestOnce) {
  for (const auto& [id, ended] : Serve()) EXPECT_EQ(ended.error, "") << id;
  mlc_native_emulated_lose_device(static_cast<int>(GetParam()) - 1, 40);
  std::string errors;
  for (const auto& [id, ended] : Serve()) errors += ended.error;
  EXPECT_THAT(errors, ::testing::AnyOf(HasSubstr("CUDA"), HasSubstr("NCCL")));
  for (const auto& [id, ended] : Serve()) EXPECT_NE(ended.error, "") << id;
}

// A draft head asks each step of decoding for other streams than embeddings do.
TEST(CudaRecordedStates, AreKeptWhenPromptsAskForOtherStreams) {
  TinyModel tiny;
  const auto model = tiny.OnDevice("bfloat16");
  const auto memory = model->MakeStateMemory(1, 32);
  TestSequence decoding(0);
  const auto run = [&](const TestBatch& batch, int32_t stream) {
    ForwardBatch forward = batch.batch();
    const std::vector<int32_t> zero{0};
    const std::vector<int32_t> streams{stream};
    forward.hidden = {.rows = zero, .streams = streams, .memory = memory.get(), .places = zero};
    const int64_t before = mlc_native_emulated_counter(MLC_NATIVE_EMULATED_GRAPHS);
    model->Forward(forward);
    return mlc_native_emulated_counter(MLC_NATIVE_EMULATED_GRAPHS) - before;
  };
  const auto decode = [&](int32_t stream) { return run(TestBatch().Add(decoding, {3}), stream); };
  EXPECT_EQ(decode(1), 0);
  EXPECT_EQ(decode(1), 1);  // as it is recorded
  TestSequence embedded(1);
  EXPECT_EQ(run(TestBatch().AddPrompt(embedded, SomeTokens(9, 1)), 3), 0);
  EXPECT_EQ(decode(1), 1);
  EXPECT_EQ(decode(3), 0);
}

}  // namespace
}  // namespace mlc_native
