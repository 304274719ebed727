// Adapters of a CudaModel: what they add is what the CPU's decoder adds, and rows beside others
// have their own bits.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <span>
#include <utility>

#include "cuda/model_driver.h"
#include "cuda/model_families.h"
#include "mlc_native/engine.h"
#include "support/check.h"
#include "testing/tiny_adapter.h"

namespace mlc_native {
namespace {

using testing::TempFolder;
using testing::TinyAdapter;

using AdapterPtr = std::shared_ptr<const ModelAdapter>;

AdapterPtr LoadAdapterFor(const Model& model, const TinyModel& tiny, int64_t rank, unsigned seed) {
  const TempFolder folder;
  TinyAdapter(tiny.config(), rank, seed).Write(folder);
  return model.adapter_loader()->Load(folder.path());
}

// Families whose layers differ in what linears give and what comes behind them.
constexpr std::pair<const char*, const char*> kFamiliesWithAdapters[] = {
    {"Qwen3ForCausalLM", R"("head_dim": 16)"},
    {"Cohere2MoeForCausalLM", kParallelExperts},
    {"Qwen3_5ForCausalLM", kDelta},
    {"NemotronHForCausalLM", kSingleBlockExperts},
    {"Gemma3nForCausalLM", kStreams},
    {"DeepseekV3ForCausalLM", kLatent}};

// Two adapters of other ranks, of one model.
struct TwoAdapters {
  AdapterPtr a, b;

  TwoAdapters(const Model& model, const TinyModel& tiny)
      : a(LoadAdapterFor(model, tiny, 3, 5)), b(LoadAdapterFor(model, tiny, 9, 6)) {}

  // None, then each of them in turn.
  const ModelAdapter* Of(int64_t sequence) const {
    const ModelAdapter* const all[] = {nullptr, a.get(), b.get()};
    return all[sequence % 3];
  }
};

// A prompt, then decode, alone and alongside others: with two adapters and without.
std::vector<float> StepsWithAdapters(Model& model, const TwoAdapters& adapters) {
  TestSequence a(0), b(1), c(2);
  std::vector<float> all;
  const auto run = [&](const TestBatch& batch) {
    const std::vector<float> logits = Logits(model, batch);
    all.insert(all.end(), logits.begin(), logits.end());
  };
  const auto *const of_a = adapters.a.get(), *const of_b = adapters.b.get();
  run(TestBatch().Add(a, SomeTokens(8, 1)).With(of_a));
  run(TestBatch().Add(a, {2}).With(of_a));
  run(TestBatch()
          .Add(b, SomeTokens(3, 3))
          .With(of_b)
          .Add(c, SomeTokens(2, 4))
          .Add(a, {5})
          .With(of_a));
  run(TestBatch().Add(a, {7}).With(of_a).Add(c, {9}).Add(b, {8}).With(of_b));
  return all;
}

TEST(CudaAdapters, LogitsAreTheCpusInFloat32) {
  for (const auto& [architecture, fields] : kLoadedFamilies) {
    SCOPED_TRACE(architecture);
    TinyModel tiny(architecture, fields);
    const auto device = tiny.OnDevice();
    const auto cpu = tiny.OnCpu();
    const auto got = StepsWithAdapters(*device, TwoAdapters(*device, tiny));
    const auto want = StepsWithAdapters(*cpu, TwoAdapters(*cpu, tiny));
    EXPECT_LT(Difference(got, want), 2e-4);
    TestSequence a(0);
    const std::vector<float> without = Logits(*device, TestBatch().Add(a, SomeTokens(8, 1)));
    EXPECT_GT(Difference(without, {want.begin(), want.begin() + std::ssize(without)}), 1e-2);
  }
}

TEST(CudaAdapters, SixteenBitsAreNearFloat32) {
  for (const auto& [architecture, fields] : {std::pair{"Qwen3ForCausalLM", R"("head_dim": 16)"},
                                             {"Gemma2ForCausalLM", R"("head_dim": 16)"}}) {
    TinyModel tiny(architecture, fields);
    const auto cpu = tiny.OnCpu();
    const auto want = StepsWithAdapters(*cpu, TwoAdapters(*cpu, tiny));
    for (const auto& [dtype, most] : {std::pair{"bfloat16", 4e-2}, {"float16", 8e-3}}) {
      const auto device = tiny.OnDevice(dtype);
      EXPECT_LT(Difference(StepsWithAdapters(*device, TwoAdapters(*device, tiny)), want), most)
          << architecture << " " << dtype;
    }
    ModelSource source = tiny.Source("float16");
    source.quantization = WeightQuantization::kQ8;
    const auto quantized = tiny.Load(source);
    EXPECT_LT(Difference(StepsWithAdapters(*quantized, TwoAdapters(*quantized, tiny)), want), 3e-2);
  }
}

// Also of those without an adapter, which are computed by other launches alone.
TEST(CudaAdapters, ARowIsTheSameInEveryBatch) {
  constexpr int64_t kSequences = 4;
  for (const auto& [architecture, fields] : kFamiliesWithAdapters) {
    SCOPED_TRACE(architecture);
    TinyModel tiny(architecture, fields);
    const auto model = tiny.OnDevice("bfloat16");
    const TwoAdapters adapters(*model, tiny);
    const auto prompt_of = [](int64_t i) { return SomeTokens(4 + i, static_cast<int32_t>(i)); };
    std::vector<float> alone;
    const auto add_alone = [&](const TestBatch& batch) {
      const std::vector<float> logits = Logits(*model, batch);
      alone.insert(alone.end(), logits.begin(), logits.end());
    };
    TestSequence prompt_alone(kSequences);
    add_alone(TestBatch().Add(prompt_alone, SomeTokens(5, 3)).With(adapters.Of(2)));
    for (int64_t i = 0; i < kSequences; ++i) {
      TestSequence sequence(0);
      Logits(*model, TestBatch().Add(sequence, prompt_of(i)).With(adapters.Of(i)));
      add_alone(TestBatch().Add(sequence, {4}).With(adapters.Of(i)));
    }
    std::vector<TestSequence> sequences;
    for (int64_t i = 0; i < kSequences; ++i) sequences.emplace_back(i);
    // The prompts of three sequences at once, of which one has no adapter.
    TestBatch prompts;
    for (int64_t i = 0; i < 3; ++i) {
      prompts.Add(sequences[i], prompt_of(i)).With(adapters.Of(i));
    }
    Logits(*model, prompts);
    for (int64_t i = 3; i < kSequences; ++i) {
      Logits(*model, TestBatch().Add(sequences[i], prompt_of(i)).With(adapters.Of(i)));
    }
    TestBatch together;
    TestSequence prompt(kSequences);
    together.Add(prompt, SomeTokens(5, 3)).With(adapters.Of(2));
    for (int64_t i = 0; i < kSequences; ++i) {
      together.Add(sequences[i], {4}).With(adapters.Of(i));
    }
    EXPECT_EQ(Logits(*model, together), alone);
  }
}

// Steps of three decode rows, as often as graphs need to be recorded and replayed; with adapters
// of some rows, and without.
std::vector<std::vector<float>> DecodeWithAdapters(Model& model, const TwoAdapters* adapters) {
  const auto of = [&](int64_t i) { return adapters == nullptr ? nullptr : adapters->Of(i); };
  std::vector<TestSequence> sequences;
  for (int64_t i = 0; i < 3; ++i) {
    sequences.emplace_back(i);
    Logits(model, TestBatch().Add(sequences.back(), SomeTokens(2 + i, 5)).With(of(i)));
  }
  std::vector<std::vector<float>> all;
  for (int step = 0; step < 3; ++step) {
    TestBatch batch;
    for (int64_t i = 0; i < 3; ++i) batch.Add(sequences[i], {step}).With(of(i));
    all.push_back(Logits(model, batch));
  }
  return all;
}

TEST(CudaAdapters, ReplayedStepsHaveTheBitsOfTheFirstOnes) {
  for (const auto& [architecture, fields] : std::span(kFamiliesWithAdapters).first(3)) {
    SCOPED_TRACE(architecture);
    TinyModel tiny(architecture, fields);
    const auto model = tiny.OnDevice("float16");
    const TwoAdapters adapters(*model, tiny);
    const auto with = DecodeWithAdapters(*model, &adapters);
    const auto without = DecodeWithAdapters(*model, nullptr);
    EXPECT_NE(with, without);
    // The same adapters of other rows, in a replayed step.
    TwoAdapters others = adapters;
    std::swap(others.a, others.b);
    const auto swapped = DecodeWithAdapters(*model, &others);
    for (size_t step = 0; step < with.size(); ++step) {
      const auto row = [&](const auto& logits, int64_t i) {
        return std::vector<float>(logits[step].begin() + i * 50,
                                  logits[step].begin() + i * 50 + 50);
      };
      EXPECT_EQ(row(with, 0), row(without, 0));
      EXPECT_EQ(row(with, 0), row(swapped, 0));
      EXPECT_NE(row(with, 1), row(swapped, 1));
    }
    EXPECT_EQ(DecodeWithAdapters(*model, &adapters), with);
    EXPECT_EQ(DecodeWithAdapters(*model, nullptr), without);
    const auto fresh = tiny.OnDevice("float16");
    EXPECT_EQ(DecodeWithAdapters(*fresh, nullptr), without);
    const TwoAdapters loaded_again(*fresh, tiny);
    EXPECT_EQ(DecodeWithAdapters(*fresh, &loaded_again), with);
  }
}

// All rows go through the last layers, and then those of the logits, which have other places.
TEST(CudaAdapters, HiddenStatesAreTheCpus) {
  for (const auto& [architecture, fields] :
       {std::pair{"LlamaForCausalLM", ""}, {"Gemma4ForCausalLM", kGemma4Inputs}}) {
    TinyModel tiny(architecture, fields);
    const auto states_of = [&](Model& model) {
      const TwoAdapters adapters(model, tiny);
      TestSequence a(0), b(1);
      TestBatch batch;
      batch.Add(a, SomeTokens(7, 1)).With(adapters.a.get());
      batch.Add(b, SomeTokens(6, 3)).With(adapters.b.get());
      const auto num_layers = static_cast<int32_t>(model.metadata().num_layers);
      const std::vector<int32_t> streams = {1, num_layers, num_layers + 1};
      std::vector<int32_t> rows(13);
      std::iota(rows.begin(), rows.end(), 0);
      const int64_t width = std::ssize(streams) * model.metadata().hidden_size;
      const auto memory = model.MakeStateMemory(13, width);
      ForwardBatch forward = batch.batch();
      forward.hidden = {.rows = rows, .streams = streams, .memory = memory.get(), .places = rows};
      const LogitsView view = model.Forward(forward);
      std::vector<float> all(static_cast<size_t>(13 * width));
      memory->Read(0, all);
      all.insert(all.end(), view.data, view.data + view.num_rows * view.vocab_size);
      return all;
    };
    EXPECT_LT(Difference(states_of(*tiny.OnDevice()), states_of(*tiny.OnCpu())), 2e-4)
        << architecture;
  }
}

TEST(CudaAdapters, OfAnotherModelIsAnInternalError) {
  TinyModel tiny;
  const auto model = tiny.OnDevice();
  const auto other = tiny.OnDevice();
  const auto cpu = tiny.OnCpu();
  TestSequence a(0);
  const auto want = Logits(*model, TestBatch().Add(a, SomeTokens(5, 1)));
  for (Model* of : {other.get(), cpu.get()}) {
    const AdapterPtr adapter = LoadAdapterFor(*of, tiny, 3, 5);
    TestSequence b(1);
    EXPECT_THROW(Logits(*model, TestBatch().Add(b, SomeTokens(5, 1)).With(adapter.get())),
                 InternalError);
  }
  TestSequence c(2);
  EXPECT_EQ(Logits(*model, TestBatch().Add(c, SomeTokens(5, 1))), want);
}

TEST(CudaAdapters, OutliveTheirModel) {
  TinyModel tiny;
  AdapterPtr adapter;
  std::shared_ptr<const AdapterLoader> loader;
  {
    const auto model = tiny.OnDevice("bfloat16");
    loader = model->adapter_loader();
    adapter = LoadAdapterFor(*model, tiny, 3, 5);
  }
  EXPECT_EQ(adapter->rank(), 3);
  EXPECT_GT(adapter->num_bytes(), 0);
  const TempFolder folder;
  TinyAdapter(tiny.config(), 2, 5).Write(folder);
  EXPECT_EQ(loader->Load(folder.path())->rank(), 2);
}

// The tokens that an engine with two adapters draws for requests with each of them and without.
std::map<std::string, std::vector<int32_t>> TokensOfAnEngine(std::unique_ptr<Model> model,
                                                             const TinyModel& tiny) {
  const TempFolder first, second;
  TinyAdapter(tiny.config(), 3, 5).Write(first);
  TinyAdapter(tiny.config(), 9, 6).Write(second);
  EngineConfig config;
  config.max_num_sequence = 4;
  config.prefill_chunk_size = 16;
  config.max_total_sequence_length = 320;
  config.adapters = {"first=" + first.path(), "second=" + second.path()};
  std::map<std::string, std::vector<int32_t>> tokens;
  EngineOptions options;
  options.request_stream_callback = [&](const std::vector<RequestStreamOutput>& outputs) {
    for (const RequestStreamOutput& output : outputs) {
      EXPECT_EQ(output.error_message, "");
      for (const SequenceDelta& delta : output.group) {
        auto& all = tokens[output.request_id];
        all.insert(all.end(), delta.token_ids.begin(), delta.token_ids.end());
      }
    }
  };
  const EngineConfig resolved =
      ResolveEngineConfig(config, model->metadata(), /*free_host_bytes=*/int64_t{1} << 30);
  const auto engine = Engine::FromModel(std::move(model), resolved, {}, nullptr, options);
  for (const char* adapter : {"", "first", "second", "first", "", "second"}) {
    GenerationConfig greedy;
    greedy.temperature = 0;
    greedy.max_tokens = 12;
    greedy.adapter = adapter;
    const std::string id = adapter + std::to_string(tokens.size());
    tokens[id] = {};
    engine->AddRequest(engine->CreateRequest(id, {TokenData{SomeTokens(21, 1)}}, greedy));
  }
  while (!engine->Empty()) {
    engine->Step();
    // Requests that run hold theirs.
    for (const AdapterInfo& info : engine->ListAdapters()) engine->UnloadAdapter(info.name);
  }
  engine->AuditPages();
  return tokens;
}

TEST(CudaAdapters, AnswersOfAnEngineAreTheCpus) {
  TinyModel tiny;
  const auto want = TokensOfAnEngine(LoadModel(tiny.Source("float32", "cpu")), tiny);
  const auto got = TokensOfAnEngine(LoadCudaModel(tiny.Source()), tiny);
  EXPECT_EQ(got, want);
  EXPECT_EQ(want.at("first1"), want.at("first3"));
  EXPECT_NE(want.at("first1"), want.at("second2"));
  EXPECT_NE(want.at("first1"), want.at("0"));
}

}  // namespace
}  // namespace mlc_native
