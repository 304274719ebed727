// Embeddings: what the engine makes of the hidden states of a prompt, and that neither chunks,
// neighbours, the prefix cache nor preemption change it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "checkpoint/dense_layers.h"
#include "support/error.h"
#include "testing/error_message.h"
#include "testing/failing_steps.h"
#include "testing/speculation.h"
#include "testing/test_engine.h"

namespace mlc_native::testing {
namespace {

using ::testing::HasSubstr;

constexpr int32_t kFinalNorm = 2;  // stream of a model with one layer

EmbeddingConfig Plain(Pooling pooling) { return {.pooling = pooling, .normalize = false}; }

TestEngineSetup Embedder(TestEngineSetup setup = {}) {
  setup.model.gives_states = true;
  return setup;
}

std::vector<float> LastState(std::span<const int32_t> prompt) {
  return FakeModel::HiddenState(prompt, kFinalNorm);
}

std::vector<float> MeanState(std::span<const int32_t> prompt) {
  std::vector<double> sums(3);
  for (size_t length = 1; length <= prompt.size(); ++length) {
    const std::vector<float> state = LastState(prompt.first(length));
    for (size_t i = 0; i < sums.size(); ++i) sums[i] += state[i];
  }
  std::vector<float> mean;
  for (const double sum : sums) {
    mean.push_back(static_cast<float>(sum / static_cast<double>(prompt.size())));
  }
  return mean;
}

std::vector<float> Expected(Pooling pooling, std::span<const int32_t> prompt) {
  return pooling == Pooling::kMean ? MeanState(prompt) : LastState(prompt);
}

class EngineEmbeddings : public ::testing::TestWithParam<Pooling> {};

INSTANTIATE_TEST_SUITE_P(Poolings, EngineEmbeddings,
                         ::testing::Values(Pooling::kLast, Pooling::kMean),
                         [](const auto& param) { return ToString(param.param); });

TEST_P(EngineEmbeddings, IsTheModelsWhateverTheChunk) {
  TestEngineSetup setup = Embedder();
  setup.max_num_sequence = 1;
  const std::vector<int32_t> prompt = Prompt(150);
  for (int64_t chunk : {1, 2, 7, 16, 64, 149, 150, 300}) {
    SCOPED_TRACE(chunk);
    setup.prefill_chunk_size = chunk;
    TestEngine engine(setup);
    engine.AddEmbedding("a", prompt, Plain(GetParam()));
    engine.Run();
    EXPECT_EQ(engine.History("a").embedding, Expected(GetParam(), prompt));
    EXPECT_EQ(engine.Answer("a").finish_reason, FinishReason::kStop);
    EXPECT_TRUE(engine.Answer("a").token_ids.empty());
    const auto usage = nlohmann::json::parse(*engine.History("a").usage);
    EXPECT_EQ(usage["prompt_tokens"], 150);
    EXPECT_EQ(usage["completion_tokens"], 0);
  }
}

// Of more rows than a step pools otherwise; short ones fill the steps of others.
TEST_P(EngineEmbeddings, OfWholePromptsAreComputedInOneStep) {
  TestEngineSetup setup = Embedder({.num_pages = 256});
  setup.model.whole_prompts = true;
  setup.prefill_chunk_size = setup.max_single_sequence_length = 700;  // as resolved
  setup.prefix_cache_mode = PrefixCacheMode::kDisable;
  TestEngine engine(setup);
  std::map<int32_t, int64_t> num_slices;  // of prompts of so many tokens
  engine.model().set_on_forward([&](const ForwardBatch& batch) {
    for (const SequenceSlice& slice : batch.sequences) ++num_slices[slice.num_tokens];
  });
  const std::vector<int64_t> lengths = {600, 90, 20, 700, 1, 300, 500};
  for (const int64_t length : lengths) {
    engine.AddEmbedding(std::to_string(length), Prompt(length), Plain(GetParam()));
  }
  engine.Run();
  for (const int64_t length : lengths) {
    EXPECT_EQ(engine.History(std::to_string(length)).embedding,
              Expected(GetParam(), Prompt(length)));
    EXPECT_EQ(num_slices[static_cast<int32_t>(length)], 1) << length;
  }
  EXPECT_EQ(num_slices.size(), lengths.size());
  engine.AddEmbedding("again", Prompt(600), Plain(GetParam()));  // of which nothing is cached
  engine.Run();
  EXPECT_EQ(num_slices[600], 2);
  const auto create = [&](int64_t length) {
    engine.engine().CreateEmbeddingRequest("a", {TokenData{Prompt(length)}}, Plain(GetParam()), {});
  };
  create(700);
  EXPECT_THAT(Refusal([&] { create(701); }), HasSubstr("limit 700"));
  EXPECT_THAT(Refusal([&] { engine.Add("b", Prompt(3), Greedy(1)); }),
              HasSubstr("attends in both directions"));
}

TEST_P(EngineEmbeddings, OfOneTokenIsItsState) {
  TestEngine engine(Embedder());
  engine.AddEmbedding("a", {7}, Plain(GetParam()));
  engine.Run();
  EXPECT_EQ(engine.History("a").embedding, LastState(std::vector<int32_t>{7}));
}

TEST_P(EngineEmbeddings, NeedsNoLogits) {
  TestEngine engine(Embedder());
  int64_t num_logits = 0;
  engine.model().set_on_forward(
      [&](const ForwardBatch& batch) { num_logits += std::ssize(batch.logits_rows); });
  engine.AddEmbedding("a", Prompt(100), Plain(GetParam()));
  engine.Run();
  EXPECT_EQ(num_logits, 0);
}

TEST_P(EngineEmbeddings, ChangesNoNeighbourAndIsChangedByNone) {
  for (const int64_t num_pages : {256, 24}) {
    SCOPED_TRACE(num_pages);
    TestEngineSetup setup = Embedder({.num_pages = num_pages});
    TestEngine engine(setup);
    for (int i = 0; i < 12; ++i) {
      const std::string id = std::to_string(i);
      const std::vector<int32_t> prompt = Prompt(10 + 13 * i, i / 2);
      if (i % 2 == 0) {
        engine.Add(id, prompt, Greedy(20));
      } else {
        engine.AddEmbedding(id, prompt, Plain(GetParam()));
      }
      engine.Step();
    }
    engine.Run();
    for (int i = 0; i < 12; ++i) {
      SCOPED_TRACE(i);
      const std::string id = std::to_string(i);
      const std::vector<int32_t> prompt = Prompt(10 + 13 * i, i / 2);
      if (i % 2 == 0) {
        EXPECT_EQ(engine.Answer(id).token_ids, Oracle(setup.model, prompt, 20));
      } else {
        EXPECT_EQ(engine.History(id).embedding, Expected(GetParam(), prompt));
      }
    }
  }
}

// The head of a draft reads hidden states of the same forwards.
TEST_P(EngineEmbeddings, StandsBesideADraftHead) {
  for (const bool run_ahead : {false, true}) {
    SCOPED_TRACE(run_ahead);
    TestEngineSetup setup = SpeculationSetup({.length = 3, .chunk = 24, .run_ahead = run_ahead});
    setup.speculative_mode = SpeculativeMode::kEagle3;
    setup.model.history_window = 2;
    setup.model.gives_states = true;
    setup.draft_model = setup.model;
    setup.draft_model->is_draft_head = true;
    TestEngine engine(setup);
    engine.Add("a", LetterPrompt(9), Endless(Greedy(60)));
    for (int i = 0; i < 6; ++i) {
      for (int step = 0; step < 3; ++step) engine.Step();
      engine.AddEmbedding(std::to_string(i), LetterPrompt(30 + i), Plain(GetParam()));
    }
    engine.Run();
    EXPECT_EQ(engine.Answer("a").token_ids, Oracle(setup.model, LetterPrompt(9), 60));
    EXPECT_EQ(engine.model().num_wrong_states() + engine.draft_model().num_misaligned(), 0);
    for (int i = 0; i < 6; ++i) {
      EXPECT_EQ(engine.History(std::to_string(i)).embedding,
                Expected(GetParam(), LetterPrompt(30 + i)));
    }
  }
}

TEST_P(EngineEmbeddings, OfStatesThatAreNoNumbersFailsAlone) {
  TestEngineSetup setup = Embedder();
  setup.model.nan_token = 200;
  TestEngine engine(setup);
  std::vector<int32_t> bad = Prompt(20, 1);
  bad.back() = 200;
  engine.AddEmbedding("good", Prompt(20), Plain(GetParam()));
  engine.AddEmbedding("bad", bad, Plain(GetParam()));
  engine.Run();
  EXPECT_EQ(engine.History("good").embedding, Expected(GetParam(), Prompt(20)));
  EXPECT_EQ(engine.Answer("bad").finish_reason, FinishReason::kError);
  EXPECT_THAT(engine.History("bad").error_message, HasSubstr("not finite"));
}

TEST_P(EngineEmbeddings, ThatIsAbortedHasNone) {
  TestEngine engine(Embedder({.prefill_chunk_size = 16}));
  engine.AddEmbedding("a", Prompt(100), Plain(GetParam()));
  engine.Step();
  engine.engine().AbortRequest("a");
  engine.Run();
  EXPECT_EQ(engine.Answer("a").finish_reason, FinishReason::kAbort);
  EXPECT_TRUE(engine.History("a").embedding.empty());
}

// Whatever fails, each embedding is right or its request has failed.
bool RunEmbeddings(Pooling pooling, bool run_ahead, int64_t k) {
  TestEngineSetup setup = Embedder({.prefill_chunk_size = 24, .num_pages = 12});
  setup.model.run_ahead = run_ahead;
  TestEngine engine(setup);
  engine.AddEmbedding("a name that does not fit into a small string", Prompt(50, 1),
                      Plain(pooling));
  engine.AddEmbedding("b", Prompt(20, 2), Plain(pooling));
  engine.Add("c", Prompt(9, 3), Greedy(10));
  const bool failed = RunWithFailingAllocation(engine, k);
  for (const auto& [id, history] : engine.checker().all()) {
    if (history.only().finish_reason != FinishReason::kStop) continue;
    EXPECT_EQ(history.embedding, Expected(pooling, id == "b" ? Prompt(20, 2) : Prompt(50, 1)));
  }
  engine.AddEmbedding("next", Prompt(30, 4), Plain(pooling));
  engine.Run();
  EXPECT_EQ(engine.History("next").embedding, Expected(pooling, Prompt(30, 4)));
  return failed;
}

TEST_P(EngineEmbeddings, EveryAllocationOfAStepMayFail) {
  for (const bool run_ahead : {false, true}) {
    int64_t k = 1;
    while (RunEmbeddings(GetParam(), run_ahead, k) && !HasFailure()) ++k;
    EXPECT_GT(k, 50);
    EXPECT_FALSE(HasFailure()) << "allocation " << k;
  }
}

TEST(EngineEmbedding, IsCutAndThenNormalized) {
  TestEngine engine(Embedder());
  const std::vector<int32_t> prompt = Prompt(9);
  engine.AddEmbedding("cut", prompt, {.dimensions = 2, .normalize = false});
  engine.AddEmbedding("unit", prompt, {.dimensions = 2});
  engine.Run();
  const std::vector<float> state = LastState(prompt);
  EXPECT_EQ(engine.History("cut").embedding, (std::vector<float>{state[0], state[1]}));
  const double length = std::hypot(state[0], state[1]);
  EXPECT_FLOAT_EQ(engine.History("unit").embedding.at(0), static_cast<float>(state[0] / length));
  EXPECT_FLOAT_EQ(engine.History("unit").embedding.at(1), static_cast<float>(state[1] / length));
}

TEST(EngineEmbedding, SharesThePrefixCacheWithAnswers) {
  TestEngine engine(Embedder());
  const auto cached = [&](const std::string& id) -> int64_t {
    return nlohmann::json::parse(*engine.History(id).usage)["extra"]["cached_tokens"];
  };
  engine.AddEmbedding("first", Prompt(100), Plain(Pooling::kLast));
  engine.Run();
  engine.AddEmbedding("again", Prompt(100), Plain(Pooling::kLast));
  engine.AddEmbedding("mean", Prompt(100), Plain(Pooling::kMean));
  engine.Add("answer", Prompt(100), Greedy(5));
  engine.Run();
  EXPECT_EQ(engine.History("again").embedding, LastState(Prompt(100)));
  EXPECT_EQ(engine.History("mean").embedding, MeanState(Prompt(100)));
  EXPECT_EQ(cached("again"), 99);
  EXPECT_EQ(cached("mean"), 0) << "its rows are computed";
  EXPECT_EQ(cached("answer"), 99);
}

// A sequence that generates takes the pages of a prompt that is half computed.
TEST(EngineEmbedding, AMeanThatStartsOverHasEachRowOnce) {
  for (const PrefixCacheMode mode : {PrefixCacheMode::kDisable, PrefixCacheMode::kRadix}) {
    SCOPED_TRACE(static_cast<int>(mode));
    TestEngineSetup setup = Embedder({.prefill_chunk_size = 4, .num_pages = 9});
    setup.max_num_sequence = 2;
    setup.prefix_cache_mode = mode;
    TestEngine engine(setup);
    engine.Add("answer", Prompt(10), Greedy(60));
    for (int i = 0; i < 3; ++i) engine.Step();
    engine.AddEmbedding("mean", Prompt(100, 1), Plain(Pooling::kMean));
    engine.Run();
    EXPECT_EQ(engine.History("mean").embedding, MeanState(Prompt(100, 1)));
    EXPECT_EQ(engine.Answer("answer").token_ids, Oracle(setup.model, Prompt(10), 60));
    if (mode == PrefixCacheMode::kRadix) continue;  // which keeps what was computed
    EXPECT_GT(engine.model().num_rows(), 100 + 10 + 60) << "it has not started over";
  }
}

TEST(EngineEmbedding, TakesItsDefaultsFromTheFolder) {
  TestEngineSetup setup = Embedder();
  setup.embedding_defaults = {.pooling = Pooling::kMean, .normalize = false};
  TestEngine engine(setup);
  engine.AddEmbedding("a", Prompt(9), {});
  engine.Run();
  EXPECT_EQ(engine.History("a").embedding, MeanState(Prompt(9)));
}

TEST(EngineEmbedding, OfAFolderThatNeedsMoreHasToBeAskedFor) {
  TestEngineSetup setup = Embedder();
  setup.embedding_defaults.refusal = "modules.json has a module \"Dense\"";
  TestEngine engine(setup);
  EXPECT_THAT(MessageOf<InvalidRequest>("pooling", [&] { engine.AddEmbedding("a", {1}, {}); }),
              HasSubstr("\"Dense\""));
  engine.AddEmbedding("a", {1}, {.pooling = Pooling::kLast});
  engine.Run();
}

TEST(EngineEmbedding, WrongRequestsAreRefused) {
  TestEngine engine(Embedder());
  for (const int64_t dimensions : {0, -1, 4}) {
    const auto add = [&] { engine.AddEmbedding("a", {1}, {.dimensions = dimensions}); };
    EXPECT_THAT(MessageOf<InvalidRequest>("dimensions", add), HasSubstr("[1, 3]"));
  }
  const auto empty = [&] { engine.AddEmbedding("a", {}, {}); };
  EXPECT_THAT(MessageOf<InvalidRequest>("prompt", empty), HasSubstr("at least 1 token"));
  TestEngine stateless({});
  const auto none = [&] { stateless.AddEmbedding("a", {1}, {}); };
  EXPECT_THAT(MessageOf<InvalidRequest>("model", none), HasSubstr("no hidden states"));
}

// Of a matrix with two rows, a bias and an activation.
std::shared_ptr<const DenseLayers> TwoRows(DenseActivation activation) {
  std::vector<DenseLayer> layers;
  layers.push_back({.input_size = 3,
                    .weight = {1, -2, 0.5f, 0.25f, 3, -1},
                    .bias = {0.5f, -0.25f},
                    .activation = activation});
  return std::make_shared<const DenseLayers>(std::move(layers));
}

std::vector<double> TwoSums(const std::vector<float>& state) {
  return {state[0] - 2.0 * state[1] + 0.5 * state[2] + 0.5,
          0.25 * state[0] + 3.0 * state[1] - state[2] - 0.25};
}

TEST(EngineEmbedding, ClassesAreOfTheLastState) {
  TestEngineSetup setup = Embedder();
  setup.embedding_defaults = {.pooling = Pooling::kMean,
                              .refusal = "a module",
                              .classifier = TwoRows(DenseActivation::kIdentity)};
  const std::vector<int32_t> prompt = Prompt(100);
  for (const int64_t chunk : {16, 300}) {
    setup.prefill_chunk_size = chunk;
    TestEngine engine(setup);
    engine.AddEmbedding("a", prompt, {.classify = true});
    engine.AddEmbedding("b", prompt, Plain(Pooling::kLast));
    engine.Run();
    const std::vector<double> sums = TwoSums(LastState(prompt));
    const std::vector<float>& logits = engine.History("a").embedding;
    ASSERT_EQ(logits.size(), 2U);
    for (size_t i = 0; i < 2; ++i) EXPECT_FLOAT_EQ(logits[i], static_cast<float>(sums[i]));
    EXPECT_EQ(engine.History("b").embedding, LastState(prompt));
  }
}

TEST(EngineEmbedding, ClassesAreRefusedWithSettingsOfEmbeddings) {
  TestEngineSetup setup = Embedder();
  setup.embedding_defaults.classifier = TwoRows(DenseActivation::kIdentity);
  TestEngine engine(setup);
  const auto refused = [&](const char* field, const EmbeddingConfig& config) {
    const auto add = [&] { engine.AddEmbedding("a", {1}, config); };
    EXPECT_THAT(MessageOf<InvalidRequest>(field, add), HasSubstr("of embeddings"));
  };
  refused("pooling", {.pooling = Pooling::kLast, .classify = true});
  refused("dimensions", {.dimensions = 1, .classify = true});
  refused("normalize", {.normalize = true, .classify = true});
  TestEngine plain(Embedder());
  const auto none = [&] { plain.AddEmbedding("a", {1}, {.classify = true}); };
  EXPECT_THAT(MessageOf<InvalidRequest>("model", none), HasSubstr("has no classes"));
}

TEST(EngineEmbedding, LayersComeBeforeDimensionsAndLength) {
  TestEngineSetup setup = Embedder();
  setup.embedding_defaults.layers = TwoRows(DenseActivation::kTanh);
  TestEngine engine(setup);
  const std::vector<int32_t> prompt = Prompt(40);
  engine.AddEmbedding("last", prompt, Plain(Pooling::kLast));
  engine.AddEmbedding("unit", prompt, {.pooling = Pooling::kMean});
  engine.AddEmbedding("cut", prompt, {.dimensions = 1, .normalize = true});
  engine.Run();
  const std::vector<double> last = TwoSums(LastState(prompt));
  const std::vector<double> mean = TwoSums(MeanState(prompt));
  const double length = std::hypot(std::tanh(mean[0]), std::tanh(mean[1]));
  for (size_t i = 0; i < 2; ++i) {
    EXPECT_FLOAT_EQ(engine.History("last").embedding[i], static_cast<float>(std::tanh(last[i])));
    EXPECT_NEAR(engine.History("unit").embedding[i], std::tanh(mean[i]) / length, 1e-5);
  }
  EXPECT_EQ(engine.History("cut").embedding, std::vector<float>{last[0] < 0 ? -1.0f : 1.0f});
  const auto wide = [&] { engine.AddEmbedding("a", {1}, {.dimensions = 3}); };
  EXPECT_THAT(MessageOf<InvalidRequest>("dimensions", wide), HasSubstr("[1, 2]"));
}

TEST(EngineEmbedding, AModelWithoutAHeadAnswersNothingElse) {
  TestEngineSetup setup = Embedder();
  setup.model.has_head = false;
  TestEngine engine(setup);
  const auto answer = [&] { engine.Add("a", {1}, Greedy(1)); };
  EXPECT_THAT(MessageOf<InvalidRequest>("model", answer), HasSubstr("embeds texts"));
  engine.AddEmbedding("a", Prompt(9), Plain(Pooling::kLast));
  engine.Run();
  EXPECT_EQ(engine.History("a").embedding, LastState(Prompt(9)));
}

// One that attends in both directions, as it is resolved.
TestEngineSetup Encoder() {
  TestEngineSetup setup = Embedder();
  setup.model.whole_prompts = true;
  setup.prefill_chunk_size = setup.max_single_sequence_length = 700;
  setup.prefix_cache_mode = PrefixCacheMode::kDisable;
  return setup;
}

TEST(EngineEmbedding, OfTheFirstTokenIsItsStateInAnyBatch) {
  TestEngine engine(Encoder());
  const std::vector<int64_t> lengths = {90, 1, 300, 20};
  for (const int64_t length : lengths) {
    const std::string id = std::to_string(length);
    engine.AddEmbedding(id, Prompt(length, length), Plain(Pooling::kCls));
    engine.AddEmbedding("mean " + id, Prompt(length, length), Plain(Pooling::kMean));
  }
  engine.Run();
  for (const int64_t length : lengths) {
    const std::vector<int32_t> prompt = Prompt(length, length);
    const std::string id = std::to_string(length);
    EXPECT_EQ(engine.History(id).embedding, LastState(std::span(prompt).first(1)));
    EXPECT_EQ(engine.History("mean " + id).embedding, MeanState(prompt));
  }
}

TEST(EngineEmbedding, OfTheFirstTokenNeedsAModelThatAttendsInBothDirections) {
  TestEngine engine(Embedder());
  const auto embed = [&] { engine.AddEmbedding("a", {1}, Plain(Pooling::kCls)); };
  EXPECT_THAT(MessageOf<InvalidRequest>("pooling", embed), HasSubstr("attend in both directions"));
}

TEST(EngineEmbedding, TheModelLearnsWhereASecondTextBegins) {
  TestEngine engine(Encoder());
  std::map<int32_t, int64_t> seen;  // of texts of so many tokens
  engine.model().set_on_forward([&](const ForwardBatch& batch) {
    for (const SequenceSlice& slice : batch.sequences) seen[slice.num_tokens] = slice.second_text;
  });
  const std::map<int32_t, int64_t> given = {{9, 4}, {20, 0}, {30, 30}};
  for (const auto& [length, second_text] : given) {
    EmbeddingConfig config = Plain(Pooling::kCls);
    config.second_text = second_text;
    engine.AddEmbedding(std::to_string(length), Prompt(length), config);
  }
  engine.Run();
  EXPECT_EQ(seen, given);
  for (const int64_t wrong : {-1, 10}) {
    EmbeddingConfig config = Plain(Pooling::kCls);
    config.second_text = wrong;
    EXPECT_THAT(MessageOf<InvalidRequest>("second_text",
                                          [&] { engine.AddEmbedding("b", Prompt(9), config); }),
                HasSubstr("in [0, 9], the length of the prompt"));
  }
}

TEST(EngineEmbedding, ATextThatIsCutKeepsItsBeginningAndItsLastToken) {
  TestEngine engine(Encoder());
  std::vector<int32_t> seen;
  int64_t second_text = 0;
  engine.model().set_on_forward([&](const ForwardBatch& batch) {
    seen.assign(batch.token_ids.begin(), batch.token_ids.end());
    second_text = batch.sequences[0].second_text;
  });
  const std::vector<int32_t> prompt = Prompt(9);
  for (const int64_t kept : {1, 2, 5, 9, 20}) {
    SCOPED_TRACE(kept);
    GenerationConfig service;
    service.truncate_prompt_tokens = kept;
    EmbeddingConfig config = Plain(Pooling::kCls);
    config.second_text = 4;
    engine.AddEmbedding(std::to_string(kept), prompt, config, service);
    engine.Run();
    std::vector<int32_t> expected = prompt;
    if (kept < 9) {
      expected.resize(kept);
      if (kept > 1) expected.back() = prompt.back();
    }
    EXPECT_EQ(seen, expected);
    EXPECT_EQ(second_text, std::min<int64_t>(kept, 4));
  }
}

TEST(EngineEmbedding, SettingsOfAnswersHaveNoEffect) {
  TestEngine engine(Embedder());
  GenerationConfig service = Greedy(0, 3);
  service.stop_token_ids = {1};
  service.prompt_logprobs = 2;
  service.truncate_prompt_tokens = 4;
  engine.AddEmbedding("a", Prompt(9), Plain(Pooling::kLast), service);
  engine.Run();
  const std::vector<int32_t> prompt = Prompt(9);
  EXPECT_EQ(engine.History("a").embedding, LastState(std::span(prompt).last(4)));
}

}  // namespace
}  // namespace mlc_native::testing
