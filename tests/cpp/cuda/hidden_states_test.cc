// Hidden states of a CudaModel: those of the CPU's decoder, without another bit of the logits.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <numeric>

#include "cuda/model_driver.h"
#include "support/error.h"

namespace mlc_native {
namespace {

const std::vector<int32_t> kAllStreams = {0, 1, 2, 3};  // of two layers

// Four layers, of which the last two read the keys and values of the others.
constexpr const char* kSharing = R"("head_dim": 16, "global_head_dim": 32, "sliding_window": 9,
    "num_hidden_layers": 4, "num_kv_shared_layers": 2, "hidden_size_per_layer_input": 8,
    "vocab_size_per_layer_input": 50, "layer_types": ["sliding_attention", "full_attention",
    "sliding_attention", "full_attention"])";

// What a forward gives: hidden states [rows, streams, hidden_size] and logits.
struct StatesAndLogits {
  std::vector<float> states;
  std::vector<float> logits;
};

StatesAndLogits ForwardStates(Model& model, const TestBatch& batch, std::span<const int32_t> rows,
                              std::span<const int32_t> streams) {
  StatesAndLogits got;
  const int64_t width = std::ssize(streams) * model.metadata().hidden_size;
  const auto memory = model.MakeStateMemory(std::ssize(rows), width);
  std::vector<int32_t> places(rows.size());
  std::iota(places.begin(), places.end(), 0);
  ForwardBatch forward = batch.batch();
  forward.hidden = {.rows = rows, .streams = streams, .memory = memory.get(), .places = places};
  const LogitsView view = model.Forward(forward);
  got.states.resize(static_cast<size_t>(std::ssize(rows) * width));
  memory->Read(0, got.states);
  got.logits.assign(view.data, view.data + view.num_rows * view.vocab_size);
  return got;
}

std::vector<int32_t> AllRows(const TestBatch& batch) {
  std::vector<int32_t> rows(batch.batch().token_ids.size());
  std::iota(rows.begin(), rows.end(), 0);
  return rows;
}

// A prompt in chunks, decode alone (as often as a graph is recorded and replayed), and both.
std::vector<StatesAndLogits> StatesOfSomeSteps(Model& model) {
  TestSequence a(0);
  TestSequence b(1);
  std::vector<StatesAndLogits> all;
  const auto run = [&](const TestBatch& batch, const std::vector<int32_t>& rows,
                       const std::vector<int32_t>& streams) {
    all.push_back(ForwardStates(model, batch, rows, streams));
  };
  TestBatch prompt;
  prompt.Add(a, SomeTokens(17, 1));
  run(prompt, AllRows(prompt), kAllStreams);
  run(TestBatch().Add(a, SomeTokens(4, 2)), {0, 2}, {3});
  run(TestBatch().Add(a, SomeTokens(4, 2)), {3}, {2, 3});  // the row of the logits
  for (int32_t token = 0; token < 4; ++token) run(TestBatch().Add(a, {token}), {0}, kAllStreams);
  run(TestBatch().Add(b, SomeTokens(6, 3)).Add(a, {5}), {1, 5, 6}, {2, 0, 3});
  run(TestBatch().Add(b, {8}).Add(a, {7}), {1}, {1, 3});
  return all;
}

double RelativeError(const std::vector<float>& got, const std::vector<float>& want) {
  EXPECT_EQ(got.size(), want.size());
  double error = 0;
  double norm = 0;
  for (size_t i = 0; i < want.size(); ++i) {
    error += std::pow(got[i] - want[i], 2);
    norm += std::pow(want[i], 2);
  }
  return std::sqrt(error / norm);
}

// All streams of all rows of two prompts, and some of some.
void CheckStatesOfTwoPrompts(Model& device, Model& cpu, double most) {
  for (const std::vector<int32_t>& streams :
       {std::vector<int32_t>{0, 1, 2, 3, 4, 5}, {1}, {2}, {3}, {4, 0}, {5}}) {
    for (const std::vector<int32_t>& rows :
         {std::vector<int32_t>{0, 5, 16, 17, 18, 22}, {16, 22}, {3}}) {
      const auto states = [&](Model& model) {
        TestSequence a(0), b(1);
        TestBatch batch;
        batch.Add(a, SomeTokens(17, 1)).Add(b, SomeTokens(6, 3));
        return ForwardStates(model, batch, rows, streams);
      };
      const StatesAndLogits want = states(cpu), got = states(device);
      EXPECT_LT(RelativeError(got.states, want.states), most) << streams[0] << " " << rows[0];
      EXPECT_LT(RelativeError(got.logits, want.logits), most) << streams[0] << " " << rows[0];
    }
  }
}

TEST(CudaHiddenStates, AreThoseOfTheCpu) {
  const std::pair<const char*, const char*> models[] = {
      {"LlamaForCausalLM", ""},
      {"GraniteForCausalLM", R"("residual_multiplier": 0.4, "logits_scaling": 3)"},
      {"Gemma2ForCausalLM", R"("head_dim": 16)"},
      {"CohereForCausalLM", ""}};  // parallel blocks
  for (const auto& [architecture, fields] : models) {
    TinyModel tiny(architecture, fields);
    const auto want = StatesOfSomeSteps(*tiny.OnCpu());
    const auto got = StatesOfSomeSteps(*tiny.OnDevice());
    for (size_t i = 0; i < want.size(); ++i) {
      EXPECT_LT(RelativeError(got[i].states, want[i].states), 1e-4) << architecture << " " << i;
    }
  }
}

// Rows leave in front of the layers that share keys and values, or of blocks alone behind the last
// state, where nothing behind is asked of them: all streams of all rows, and some of some rows, are
// those of the CPU.
TEST(CudaHiddenStates, OfRowsThatLeaveEarlyAreThoseOfTheCpu) {
  const std::string beside = std::string(R"("num_hidden_layers": 4, )") + kBesideMamba;
  const std::pair<const char*, std::string> models[] = {{"Gemma4ForCausalLM", kSharing},
                                                        {"Gemma3nForCausalLM", kStreams},
                                                        {"NemotronHForCausalLM", kSingleBlocks},
                                                        {"FalconH1ForCausalLM", beside}};
  for (const auto& [architecture, fields] : models) {
    SCOPED_TRACE(architecture);
    TinyModel tiny(architecture, fields);
    CheckStatesOfTwoPrompts(*tiny.OnDevice(), *tiny.OnCpu(), 1e-4);
  }
  TinyModel tiny("Gemma4ForCausalLM", kSharing);
  CheckStatesOfTwoPrompts(*tiny.OnDevice("bfloat16"), *tiny.OnCpu(), 5e-2);
}

TEST(CudaHiddenStates, AreNearInSixteenBits) {
  TinyModel tiny;
  const auto want = StatesOfSomeSteps(*tiny.OnCpu());
  const auto got = StatesOfSomeSteps(*tiny.OnDevice("bfloat16"));
  for (size_t i = 0; i < want.size(); ++i) {
    EXPECT_LT(RelativeError(got[i].states, want[i].states), 5e-2) << i;
  }
}

// cuBLAS, of which the emulated machine has a fake, may give other bits to a row of a larger
// product.
TEST(CudaHiddenStates, DoNotChangeTheLogits) {
#ifdef FAKE_CUBLAS_LT
  setenv("MLC_NATIVE_CUBLASLT_LIB", FAKE_CUBLAS_LT, 1);
#endif
  for (const auto& [architecture, fields] : {std::pair{"Qwen3ForCausalLM", R"("head_dim": 16)"},
                                             {"Gemma4ForCausalLM", kSharing},
                                             {"Gemma3nForCausalLM", kStreams},
                                             {"NemotronHForCausalLM", kSingleBlocks},
                                             {"FalconH1ForCausalLM", kBesideMamba}}) {
    TinyModel tiny(architecture, fields);
    const auto model = tiny.OnDevice("bfloat16");
    for (int32_t stream : {1, 2, 3}) {
      TestSequence a(0);
      TestSequence b(1);
      TestSequence c(2);
      Logits(*model, TestBatch().Add(a, SomeTokens(9, 1)));
      TestBatch batch;
      batch.Add(a, {4}).Add(b, SomeTokens(30, 2)).Add(c, SomeTokens(20, 3));
      const std::vector<float> want = Logits(*model, batch);
      EXPECT_EQ(ForwardStates(*model, batch, AllRows(batch), {{stream}}).logits, want)
          << architecture << stream;
    }
  }
#ifdef FAKE_CUBLAS_LT
  unsetenv("MLC_NATIVE_CUBLASLT_LIB");
#endif
}

TEST(CudaHiddenStates, OfADraftAreThoseOfStepsOfTheirOwn) {
  TinyModel tiny("Gemma2ForCausalLM", R"("head_dim": 16)");
  const auto model = tiny.OnDevice("bfloat16");
  const std::vector<int32_t> draft = SomeTokens(6, 6);
  TestSequence single(0);
  TestSequence drafting(1);
  for (TestSequence* sequence : {&single, &drafting}) {
    Logits(*model, TestBatch().Add(*sequence, SomeTokens(13, 2)));
  }
  std::vector<float> want;
  for (int32_t token : draft) {
    const StatesAndLogits got =
        ForwardStates(*model, TestBatch().Add(single, {token}), {{0}}, kAllStreams);
    want.insert(want.end(), got.states.begin(), got.states.end());
  }
  TestBatch batch;
  batch.AddRowsAlone(drafting, draft);
  EXPECT_EQ(ForwardStates(*model, batch, AllRows(batch), kAllStreams).states, want);
}

TEST(CudaHiddenStates, OfStepsInFlightGoToPlacesOfTheirOwn) {
  TinyModel tiny;
  const auto model = tiny.OnDevice();
  StepQueue& queue = *model->step_queue();
  GenerationConfig config;
  config.temperature = 0;
  const std::vector<TokenRow> rows = {{.config = &config, .counts = {}, .allowed = {}}};
  const std::vector<int32_t> last = {0};
  const std::vector<int32_t> places = {2, 1};
  const auto memory = model->MakeStateMemory(3, 32);
  const auto asking = [&](const TestBatch& batch, size_t place) {
    ForwardBatch forward = batch.batch();
    forward.hidden = {.rows = last,
                      .streams = last,
                      .memory = memory.get(),
                      .places = std::span(places).subspan(place, 1)};
    return forward;
  };
  for (int round = 0; round < 4; ++round) {  // directly, recorded, replayed
    TestSequence a(0);
    TestSequence b(1);
    TestBatch first;
    TestBatch second;
    first.Add(a, {round});
    second.Add(b, {round + 1});
    memory->Write(0, std::vector<float>(96, -7.0f));
    queue.Forward(asking(first, 0));
    queue.Sample(rows);
    queue.Forward(asking(second, 1));
    queue.Sample(rows);
    Collect(*model);
    Collect(*model);
    std::vector<float> states(96);
    memory->Read(0, states);
    std::vector<float> want(32, -7.0f);
    for (TestSequence* sequence : {&b, &a}) {
      sequence->length = 0;
      TestBatch alone;
      alone.Add(*sequence, {sequence == &a ? round : round + 1});
      const std::vector<float> one = ForwardStates(*model, alone, last, last).states;
      want.insert(want.end(), one.begin(), one.end());
    }
    EXPECT_EQ(states, want) << round;
  }
}

}  // namespace
}  // namespace mlc_native
