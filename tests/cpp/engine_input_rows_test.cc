// Prompts with rows in place of tokens (EmbeddingData): answers are those of the model for them,
// whatever the chunks, the neighbours, the cache and the guesses.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "draft/drafter.h"
#include "support/error.h"
#include "testing/error_message.h"
#include "testing/failing_steps.h"
#include "testing/speculation.h"
#include "testing/test_engine.h"

namespace mlc_native::testing {
namespace {

using ::testing::HasSubstr;

std::vector<float> Numbers(int64_t length, int32_t salt) {
  std::vector<float> numbers;
  for (int64_t i = 0; i < length; ++i) numbers.push_back(static_cast<float>(salt * 1000 + i));
  return numbers;
}

// A prompt as a request has it, and as the fake model reads it.
struct MixedPrompt {
  std::vector<Data> inputs;
  std::vector<int32_t> history;

  MixedPrompt& Tokens(const std::vector<int32_t>& tokens) {
    inputs.emplace_back(TokenData{tokens});
    history.insert(history.end(), tokens.begin(), tokens.end());
    return *this;
  }
  MixedPrompt& Image(const std::vector<float>& values) {
    inputs.emplace_back(Rows(values));
    const std::vector<int32_t> tokens = TokensOfRows(values);
    history.insert(history.end(), tokens.begin(), tokens.end());
    return *this;
  }
};

MixedPrompt TwoImages() {
  return MixedPrompt()
      .Tokens(Prompt(5))
      .Image(Numbers(40, 1))
      .Tokens({3, 4})
      .Image(Numbers(30, 2))
      .Tokens(Prompt(9, 1));
}

std::vector<int32_t> Expected(const MixedPrompt& prompt, int64_t num_tokens) {
  return Oracle(FakeModelOptions(), prompt.history, num_tokens);
}

int64_t CachedTokens(const TestEngine& engine, const std::string& id) {
  return nlohmann::json::parse(*engine.History(id).usage)["extra"]["cached_tokens"];
}

TEST(EngineInputRows, AreReadWhateverTheChunk) {
  const MixedPrompt prompt = TwoImages();
  for (int64_t chunk : {1, 2, 7, 16, 45, 64, 300}) {
    SCOPED_TRACE(chunk);
    TestEngineSetup setup;
    setup.prefill_chunk_size = chunk;
    setup.max_num_sequence = 1;
    TestEngine engine(setup);
    engine.AddInputs("a", prompt.inputs, Greedy(12));
    engine.Run();
    EXPECT_EQ(engine.Answer("a").token_ids, Expected(prompt, 12));
    EXPECT_EQ(nlohmann::json::parse(*engine.History("a").usage)["prompt_tokens"], 86);
  }
}

TEST(EngineInputRows, OfABatchStayApart) {
  TestEngineSetup setup;
  setup.prefill_chunk_size = 50;
  TestEngine engine(setup);
  std::vector<MixedPrompt> prompts;
  for (int32_t i = 0; i < 6; ++i) {
    MixedPrompt& prompt = prompts.emplace_back().Tokens(Prompt(3 + i));
    if (i % 3 != 2) prompt.Image(Numbers(20 + i, i)).Tokens({1});
  }
  for (size_t i = 0; i < prompts.size(); ++i) {
    engine.AddInputs(std::to_string(i), prompts[i].inputs, Greedy(20));
  }
  engine.Run();
  for (size_t i = 0; i < prompts.size(); ++i) {
    EXPECT_EQ(engine.Answer(std::to_string(i)).token_ids, Expected(prompts[i], 20)) << i;
  }
}

TEST(EngineInputRows, AloneAreAPrompt) {
  TestEngine engine({});
  const MixedPrompt prompt = MixedPrompt().Image(Numbers(1, 3));
  engine.AddInputs("a", prompt.inputs, Greedy(5, 3));
  engine.Run();
  for (int i = 0; i < 3; ++i) EXPECT_EQ(engine.Answer("a", i).token_ids, Expected(prompt, 5));
}

TEST(EngineInputRows, AreFoundInThePrefixCache) {
  TestEngine engine({});
  const MixedPrompt first = TwoImages();
  engine.AddInputs("a", first.inputs, Greedy(4));
  engine.Run();
  // The same images, and another end.
  MixedPrompt second = TwoImages();
  second.Tokens({9, 9});
  engine.AddInputs("b", second.inputs, Greedy(4));
  engine.Run();
  EXPECT_EQ(engine.Answer("b").token_ids, Expected(second, 4));
  EXPECT_GE(CachedTokens(engine, "b"), 80);
  // The first image is another one of the same length.
  const MixedPrompt third = MixedPrompt().Tokens(Prompt(5)).Image(Numbers(40, 7)).Tokens({3, 4});
  engine.AddInputs("c", third.inputs, Greedy(4));
  engine.Run();
  EXPECT_EQ(engine.Answer("c").token_ids, Expected(third, 4));
  EXPECT_LE(CachedTokens(engine, "c"), 5);
}

TEST(EngineInputRows, AreComputedAgainAfterAPreemption) {
  TestEngineSetup setup;
  setup.num_pages = 16;
  setup.max_num_sequence = 4;
  setup.prefix_cache_mode = PrefixCacheMode::kDisable;
  TestEngine engine(setup);
  std::vector<MixedPrompt> prompts;
  for (int32_t i = 0; i < 4; ++i) {
    prompts.push_back(MixedPrompt().Tokens({1}).Image(Numbers(30, i)).Tokens({2, i}));
    engine.AddInputs(std::to_string(i), prompts.back().inputs, Greedy(60));
  }
  engine.Run();
  EXPECT_GT(engine.Metric("num_preemptions"), 0);
  for (int32_t i = 0; i < 4; ++i) {
    EXPECT_EQ(engine.Answer(std::to_string(i)).token_ids, Expected(prompts[i], 60)) << i;
  }
}

// Guesses a row behind what the model says, as lookup might behind a prompt that has rows.
class RowDrafter final : public Drafter {
 public:
  void Propose(std::span<const int32_t> tokens, int64_t /*prompt_len*/, int64_t /*max_tokens*/,
               std::vector<int32_t>* drafts) override {
    // The prompt's rows have numbers from 0 on, and ids in the same order.
    std::vector<int32_t> history(tokens.begin(), tokens.end());
    for (int32_t& token : history) {
      if (IsInputRow(token))
        token = FakeModel::TokenOfRow(static_cast<float>(token - kFirstInputRow));
    }
    drafts->assign({FakeModel::NextToken(FakeModelOptions(), history), kFirstInputRow});
  }
};

TEST(EngineInputRows, AreNeverComputedAsGuesses) {
  TestEngineSetup setup;
  setup.speculative_mode = SpeculativeMode::kNGram;
  setup.spec_draft_length = 2;
  setup.make_drafter = [](const DraftSource&) { return std::make_unique<RowDrafter>(); };
  TestEngine engine(setup);
  const MixedPrompt prompt = MixedPrompt().Tokens(Prompt(5)).Image(Numbers(4, 0));
  engine.AddInputs("a", prompt.inputs, Greedy(24));
  engine.Run();
  EXPECT_EQ(engine.Answer("a").token_ids, Expected(prompt, 24));
  EXPECT_GT(SpecDecode(engine)["num_accepted_tokens"], 0);
  EXPECT_EQ(SpecDecode(engine)["num_failures"],
            0);  // after which a step is repeated without guesses
}

TEST(EngineInputRows, AreNotToldToADraftModel) {
  for (const SpeculativeMode mode : {SpeculativeMode::kSmallDraft, SpeculativeMode::kEagle3}) {
    TestEngineSetup setup;
    setup.speculative_mode = mode;
    setup.spec_draft_length = 3;
    setup.draft_model = setup.model;
    if (mode == SpeculativeMode::kEagle3) {
      setup.model.gives_states = true;
      setup.draft_model->is_draft_head = true;
    }
    TestEngine engine(setup);
    const MixedPrompt prompt = TwoImages();
    engine.AddInputs("a", prompt.inputs, Greedy(20));
    engine.Add("b", Prompt(20), Greedy(20));
    engine.Run();
    EXPECT_EQ(engine.Answer("a").token_ids, Oracle(setup.model, prompt.history, 20));
    EXPECT_EQ(engine.Answer("b").token_ids, Oracle(setup.model, Prompt(20), 20));
  }
}

// A step ends in front of a piece that it has no room for, or with all of it.
TEST(EngineInputRows, AreComputedAtOnceIfTheySeeEachOther) {
  const MixedPrompt prompt = TwoImages();
  const MixedPrompt other = MixedPrompt().Image(Numbers(33, 5)).Tokens({1});
  for (int64_t chunk : {44, 45, 50, 64, 100, 300}) {
    for (const Pooling pooling : {Pooling::kLast, Pooling::kMean}) {
      SCOPED_TRACE(chunk);
      TestEngineSetup setup;
      setup.model.whole_rows = setup.model.gives_states = true;
      setup.prefill_chunk_size = chunk;
      setup.max_num_sequence = 4;
      TestEngine engine(setup);
      int64_t num_pieces = 0;
      engine.model().set_on_forward([&](const ForwardBatch& batch) {
        for (const InputRows& rows : batch.input_rows) {
          // Their numbers begin with the salt of the piece.
          const auto salt = static_cast<int>(rows.values[0]) / 1000;
          const std::map<int, int32_t> lengths = {{1, 40}, {2, 30}, {5, 33}};
          const auto first = static_cast<int32_t>(rows.values[0]) % 1000;
          EXPECT_EQ(first + rows.num_rows, lengths.at(salt));
          ++num_pieces;
        }
      });
      engine.Add("running", Prompt(3, 3), Greedy(20));
      engine.Step();
      engine.AddInputs("a", prompt.inputs, Greedy(4));
      engine.AddInputs("b", other.inputs, Greedy(4));
      engine.AddRequest(engine.engine().CreateEmbeddingRequest(
          "c", other.inputs, {.pooling = pooling, .normalize = false}, {}));
      engine.Run();
      EXPECT_GE(num_pieces, 3);
      EXPECT_EQ(engine.Answer("a").token_ids, Expected(prompt, 4));
      EXPECT_EQ(engine.Answer("b").token_ids, Expected(other, 4));
    }
  }
}

TEST(EngineInputRows, ThatNoStepHoldsAreRefused) {
  TestEngineSetup setup;
  setup.model.whole_rows = true;
  setup.prefill_chunk_size = 43;
  setup.max_num_sequence = 4;
  TestEngine engine(setup);
  const auto create = [&](int64_t num_rows) {
    return engine.engine().CreateRequest("a", MixedPrompt().Image(Numbers(num_rows, 1)).inputs,
                                         Greedy(1));
  };
  create(39);
  EXPECT_THAT(Refusal([&] { create(40); }), HasSubstr("at most 39, got 40"));
}

TEST(EngineInputRows, AreEmbedded) {
  TestEngineSetup setup;
  setup.model.gives_states = true;
  TestEngine engine(setup);
  const MixedPrompt prompt = TwoImages();
  engine.AddRequest(engine.engine().CreateEmbeddingRequest(
      "a", prompt.inputs, {.pooling = Pooling::kLast, .normalize = false}, {}));
  engine.Run();
  EXPECT_EQ(engine.History("a").embedding, FakeModel::HiddenState(prompt.history, 2));
}

TEST(EngineInputRows, OfAnotherEngineAreRefused) {
  TestEngine engine({});
  TestEngine other({});
  const RequestPtr request =
      other.engine().CreateRequest("a", MixedPrompt().Image(Numbers(2, 0)).inputs, Greedy(2));
  EXPECT_THAT(Refusal([&] { engine.AddRequest(request); }),
              HasSubstr("not created for this model"));
}

}  // namespace
}  // namespace mlc_native::testing
