// Memory of adapters on a device: while steps read it, while others are loaded, and where there is
// none left; and who takes none.
#include <gtest/gtest.h>

#include <cstdlib>
#include <thread>

#include "cuda/emulator/emulator.h"
#include "cuda/model_driver.h"
#include "mlc_native/engine.h"
#include "support/error.h"
#include "testing/tiny_adapter.h"

namespace mlc_native {
namespace {

class AdapterMemory : public ::testing::Test {
 protected:
  AdapterMemory() : model_(tiny_.OnDevice()) {
    testing::TinyAdapter(tiny_.config(), 3, 5).Write(folder_);
    greedy_.temperature = 0;
  }
  ~AdapterMemory() override { mlc_native_emulated_set_memory(int64_t{256} << 20); }

  std::shared_ptr<const ModelAdapter> LoadIt() const {
    return model_->adapter_loader()->Load(folder_.path());
  }
  TokenRow Draw() const {
    TokenRow row;
    row.config = &greedy_;
    return row;
  }
  // Submits a step of one sequence.
  void Submit(TestSequence& sequence, const std::vector<int32_t>& tokens,
              const ModelAdapter* adapter) {
    const TestBatch batch = TestBatch().Add(sequence, tokens).With(adapter);
    model_->step_queue()->Forward(batch.batch());
    model_->step_queue()->Sample(std::vector<TokenRow>{Draw()});
  }
  std::vector<int32_t> Tokens() const {
    std::vector<int32_t> ids;
    for (const DrawnToken& token : Collect(*model_)) ids.push_back(token.result.token.token_id);
    return ids;
  }
  static int64_t Used() { return mlc_native_emulated_used_memory(0); }

  TinyModel tiny_;
  const std::unique_ptr<Model> model_;
  const testing::TempFolder folder_;
  GenerationConfig greedy_;
};

TEST_F(AdapterMemory, IsHeldByTheStepsThatReadIt) {
  const int64_t before = Used();
  auto adapter = LoadIt();
  const int64_t num_bytes = adapter->num_bytes();
  EXPECT_EQ(Used(), before + num_bytes);
  TestSequence a(0), b(1), c(2);
  Submit(a, SomeTokens(5, 1), adapter.get());
  const std::vector<int32_t> want = Tokens();
  // Of two steps in flight, the second one reads it to its end.
  Submit(b, SomeTokens(5, 1), adapter.get());
  Submit(c, SomeTokens(5, 1), adapter.get());
  adapter = nullptr;
  EXPECT_EQ(Used(), before + num_bytes);
  EXPECT_EQ(Tokens(), want);
  EXPECT_EQ(Used(), before + num_bytes);
  EXPECT_EQ(Tokens(), want);
  EXPECT_EQ(Used(), before);
}

TEST_F(AdapterMemory, IsFreeBehindAForwardThatWaits) {
  const int64_t before = Used();
  auto adapter = LoadIt();
  TestSequence a(0);
  Logits(*model_, TestBatch().Add(a, SomeTokens(5, 1)).With(adapter.get()));
  adapter = nullptr;
  EXPECT_EQ(Used(), before);
}

// A step that was not submitted, too, may have launches.
TEST_F(AdapterMemory, IsHeldWhereAStepWasGivenUp) {
  const int64_t before = Used();
  auto adapter = LoadIt();
  TestSequence a(0), b(1);
  const TestBatch given_up = TestBatch().Add(a, SomeTokens(5, 1)).With(adapter.get());
  model_->step_queue()->Forward(given_up.batch());
  adapter = nullptr;
  EXPECT_GT(Used(), before);
  Submit(b, SomeTokens(5, 1), nullptr);
  EXPECT_GT(Used(), before);
  Tokens();
  EXPECT_EQ(Used(), before);
}

TEST_F(AdapterMemory, IsFilledWhileAnotherThreadRecordsAGraph) {
  const auto want = [&] {
    TestSequence a(0);
    const auto adapter = LoadIt();
    return Logits(*model_, TestBatch().Add(a, SomeTokens(5, 1)).With(adapter.get()));
  }();
  std::shared_ptr<const ModelAdapter> adapter;
  const kernels::cuda::OwnedStream stream;
  kernels::cuda::Graph::Capture(stream.get(),
                                [&] { std::thread([&] { adapter = LoadIt(); }).join(); });
  TestSequence a(0);
  EXPECT_EQ(Logits(*model_, TestBatch().Add(a, SomeTokens(5, 1)).With(adapter.get())), want);
}

TEST_F(AdapterMemory, MayBeTooLittle) {
  const int64_t before = Used();
  mlc_native_emulated_set_memory(before + 1000);
  try {
    LoadIt();
    FAIL() << "it fits";
  } catch (const LoadError& error) {
    EXPECT_NE(std::string(error.what()).find("1000 bytes are free"), std::string::npos)
        << error.what();
  }
  EXPECT_EQ(Used(), before);
}

TEST_F(AdapterMemory, SeveralGpusTakeNone) {
  setenv("MLC_NATIVE_NCCL_LIB", FAKE_NCCL, 1);
  ModelSource source = tiny_.Source();
  source.tensor_parallel_shards = 2;
  auto sharded = LoadCudaModel(source);
  EXPECT_EQ(sharded->adapter_loader(), nullptr);
  EngineConfig config;
  config.max_total_sequence_length = 320;
  config.adapters = {"one=" + folder_.path()};
  const EngineConfig resolved =
      ResolveEngineConfig(config, sharded->metadata(), /*free_host_bytes=*/int64_t{1} << 30);
  try {
    Engine::FromModel(std::move(sharded), resolved, {}, nullptr, {});
    FAIL() << "it takes them";
  } catch (const InvalidConfig& error) {
    EXPECT_EQ(error.field(), "adapters");
  }
  unsetenv("MLC_NATIVE_NCCL_LIB");
}

}  // namespace
}  // namespace mlc_native
