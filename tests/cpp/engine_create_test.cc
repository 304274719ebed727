// Engine::Create: from a model folder and a plug-in library to an engine that answers.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "fake_model/path.h"
#include "mlc_native/engine.h"
#include "support/error.h"
#include "testing/temp_folder.h"
#include "testing/test_engine.h"

namespace mlc_native::testing {
namespace {

class EngineCreateTest : public ::testing::Test {
 protected:
  EngineCreateTest() {
    folder_.Write("config.json", R"({"eos_token_id": 7, "fake": {"vocab_size": 300}})");
    config_.model = folder_.path();
    config_.model_lib = kFakeModelPath;
    config_.gpu_memory_utilization = 0.05;
    options_.request_stream_callback = [this](std::vector<RequestStreamOutput> outputs) {
      checker_.Receive(outputs);
    };
  }
  void Write(const char* name, const std::string& text) { folder_.Write(name, text); }
  std::unique_ptr<Engine> Create() { return Engine::Create(config_, options_); }

  const TempFolder folder_;
  EngineConfig config_;
  EngineOptions options_;
  HistoryChecker checker_;
};

TEST_F(EngineCreateTest, CompletesTheConfigAndAnswers) {
  config_.mode = EngineMode::kLocal;
  const auto engine = Create();
  EXPECT_EQ(engine->config().max_num_sequence, 4);
  EXPECT_GE(*engine->config().num_threads, 1);
  EXPECT_EQ(engine->config().max_single_sequence_length, 4096);
  EXPECT_EQ(engine->request_limits().vocab_size, 300);
  EXPECT_EQ(engine->token_table(), nullptr);
  const RequestPtr request =
      CreateRequest("a", {TokenData{Prompt(20)}}, Greedy(5), engine->request_limits());
  checker_.Add(*request);
  engine->AddRequest(request);
  while (!engine->Empty()) engine->Step();
  FakeModelOptions options;
  options.vocab_size = 300;
  EXPECT_EQ(checker_.of("a").only().token_ids, Oracle(options, Prompt(20), 5));
}

TEST_F(EngineCreateTest, WhatIsWrongIsNamed) {
  options_.device = "gpu";
  EXPECT_THROW(Create(), InvalidConfig);
  options_.device = "auto";
  EXPECT_NE(Create(), nullptr);
  config_.model_lib = "/no/such/library.so";
  EXPECT_THROW(Create(), LoadError);
  config_.model_lib = "";
  EXPECT_THROW(Create(), LoadError);
  config_.model_lib = kFakeModelPath;
  Write("tokenizer.json", "{");
  EXPECT_THROW(Create(), LoadError);
  std::filesystem::remove(folder_.file("tokenizer.json"));
  Write("config.json", R"({"fake": {"unknown": 1}})");
  EXPECT_THROW(Create(), LoadError);
  std::filesystem::remove(folder_.file("config.json"));
  EXPECT_THROW(Create(), LoadError);
}

TEST_F(EngineCreateTest, APluginChoosesItsDevice) {
  options_.device = "cuda:3";
  EXPECT_NE(Create(), nullptr);
}

// A guess is a token id. The other tokenizer swaps two tokens, of which the first is named.
TEST_F(EngineCreateTest, ADraftModelHasTheTokenizerOfTheModel) {
  const auto tokenizer = [](const char* tokens) {
    return std::string(R"({"decoder": {"type": "ByteLevel"}, )") +
           R"("model": {"type": "BPE", "merges": [], "vocab": {)" + tokens + "}}}";
  };
  const TempFolder draft;
  draft.Write("config.json", R"({"eos_token_id": 7, "fake": {"vocab_size": 300}})");
  draft.Write("tokenizer.json", tokenizer(R"("a": 0, "c": 1, "b": 2)"));
  Write("tokenizer.json", tokenizer(R"("a": 0, "b": 1, "c": 2)"));
  config_.speculative_mode = SpeculativeMode::kSmallDraft;
  config_.additional_models = {draft.path()};
  try {
    Create();
    ADD_FAILURE();
  } catch (const InvalidConfig& error) {
    EXPECT_EQ(error.field(), "additional_models");
    EXPECT_THAT(error.what(), ::testing::HasSubstr(R"(token 1 is "c" there and "b" here)"));
  }
  draft.Write("tokenizer.json", tokenizer(R"("a": 0, "b": 1, "c": 2)"));
  EXPECT_NE(Create(), nullptr);
}

// As on a GPU with 2 MiB besides the weights, whatever memory the host has.
TEST_F(EngineCreateTest, TheMemoryIsTheDevices) {
  config_.gpu_memory_utilization = 1;
  config_.mode = EngineMode::kServer;
  Write("config.json", R"({"eos_token_id": 7, "fake": {"free_memory_bytes": 2097152}})");
  EXPECT_EQ(Create()->config().max_total_sequence_length, 512);
}

TEST_F(EngineCreateTest, MoreThanTheMemoryIsRefused) {
  config_.max_total_sequence_length = int64_t{1} << 40;
  EXPECT_THROW(Create(), InvalidConfig);
}

}  // namespace
}  // namespace mlc_native::testing
