// Requests whose answers are constrained, from their creation to the engine: what is refused, which
// thread compiles, and what becomes of a request that is given up meanwhile. With a fake grammar
// library.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <stop_token>
#include <string>
#include <thread>

#include <nlohmann/json.hpp>

#include "support/error.h"
#include "testing/fake_grammar.h"
#include "testing/letter_engine.h"
#include "testing/test_engine.h"
#include "testing/threaded_harness.h"

namespace mlc_native::testing {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

template <typename Call>
std::string MessageOf(const Call& call) {
  try {
    call();
  } catch (const InvalidRequest& error) {
    EXPECT_EQ(error.field(), "response_format");
    return error.what();
  }
  ADD_FAILURE() << "accepted";
  return "";
}

TEST(EngineGrammarCreateTest, RefusesWhatCannotBeConstrained) {
  TestEngine engine(LetterSetup());
  const GenerationConfig config = Constrained(Greedy(5), "dog");
  EXPECT_THAT(MessageOf([&] { engine.Add("a", Prompt(3), Constrained(Greedy(5), "!")); }),
              HasSubstr("is no grammar"));
  const RequestPtr uncompiled =
      CreateRequest("a", {TokenData{Prompt(3)}}, config, engine.engine().request_limits());
  EXPECT_THAT(MessageOf([&] { engine.engine().AddRequest(uncompiled); }),
              HasSubstr("is not compiled"));
  TestEngine other(LetterSetup());
  const RequestPtr foreign = other.engine().CreateRequest("a", {TokenData{Prompt(3)}}, config);
  EXPECT_THAT(MessageOf([&] { engine.engine().AddRequest(foreign); }),
              HasSubstr("no longer loaded"));
  TestEngineSetup no_tokenizer = LetterSetup();
  no_tokenizer.token_table = nullptr;
  TestEngine mute(no_tokenizer);
  EXPECT_THAT(MessageOf([&] { mute.Add("a", Prompt(3), config); }), HasSubstr("tokenizer.json"));
  engine.Add("a", Prompt(3), config);
  engine.Run();
  ExpectStopped(engine, "a", "dog");
}

// ---- given up

TEST(EngineGrammarCreateTest, ARequestThatIsGivenUpEndsAsSoonAsItIsAdded) {
  std::stop_source source;
  TestEngineSetup setup = LetterSetup();
  setup.grammar.on_compile = [&source](const GrammarSpec&) { source.request_stop(); };
  TestEngine engine(setup);
  const RequestPtr request = engine.engine().CreateRequest(
      "a", {TokenData{Prompt(3)}}, Constrained(Greedy(5, 2), "dog"), false, source.get_token());
  EXPECT_TRUE(request->is_aborted);
  engine.AddRequest(request);
  engine.ExpectIdle();
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(engine.Answer("a", i).finish_reason, FinishReason::kAbort);
    EXPECT_EQ(engine.Answer("a", i).text, "");
  }
  EXPECT_EQ(engine.model().num_forwards(), 0);
  const json metrics = json::parse(engine.engine().JSONMetrics());
  EXPECT_EQ(metrics["num_constrained_requests"], 0);
  EXPECT_EQ(metrics["finished_requests"]["abort"], 1);
}

// As when it compiles for another request, too, which waits on another thread.
TEST(EngineGrammarCreateTest, ARequestIsGivenUpAlsoIfItsGrammarIsThere) {
  std::stop_source source;
  TestEngineSetup setup = LetterSetup();
  TestEngine engine(setup);
  const GenerationConfig config = Constrained(Greedy(5), "dog");
  engine.Add("first", Prompt(3), config);
  engine.Run();
  source.request_stop();
  const RequestPtr request = engine.engine().CreateRequest("second", {TokenData{Prompt(3)}}, config,
                                                           false, source.get_token());
  EXPECT_TRUE(request->is_aborted);
  EXPECT_EQ(request->grammar, nullptr);
}

TEST(EngineGrammarCreateTest, GivingUpConcernsGrammarsOnly) {
  std::stop_source stopped;
  stopped.request_stop();
  TestEngine engine(LetterSetup());
  engine.AddRequest(engine.engine().CreateRequest("a", {TokenData{Prompt(3)}}, Greedy(2), false,
                                                  stopped.get_token()));
  engine.Run();
  EXPECT_EQ(engine.Answer("a").finish_reason, FinishReason::kLength);
}

// ---- behind the threads

TEST(ThreadedGrammarTest, CompilesOnTheCallersThreadBesideTheEngine) {
  TestEngineSetup setup = LetterSetup();
  Gate compiling;
  std::atomic<std::thread::id> compiled_on;
  setup.grammar.on_compile = [&](const GrammarSpec&) {
    compiled_on = std::this_thread::get_id();
    compiling.Pass();
  };
  ThreadedHarness harness(setup);
  harness.StartAndLoad();
  std::thread caller([&] { harness.Add("constrained", Prompt(3), Constrained(Greedy(5), "dog")); });
  const std::thread::id caller_id = caller.get_id();
  compiling.AwaitArrival();
  harness.Add("free", Prompt(3), Greedy(4));  // served while the other one compiles
  EXPECT_EQ(harness.Await("free").only().token_ids, Oracle(setup.model, Prompt(3), 4));
  compiling.Open();
  caller.join();
  EXPECT_EQ(compiled_on.load(), caller_id);
  EXPECT_EQ(harness.Await("constrained").only().text, "dog");
}

TEST(ThreadedGrammarTest, ARequestOfAModelThatWasReloadedEndsWithAnError) {
  const auto factory = [](const EngineConfig& given, const EngineOptions& options) {
    EngineConfig config = given;
    config.max_num_sequence = config.prefill_chunk_size = 8;
    config.max_total_sequence_length = config.max_single_sequence_length = 256;
    EngineOptions with_grammar = options;
    with_grammar.create_grammar_compiler = FakeGrammarFactory();
    return Engine::FromModel(std::make_unique<FakeModel>(FakeModelOptions{}), config, {}, Letters(),
                             with_grammar);
  };
  ThreadedHarness harness({}, factory);
  harness.StartAndLoad();
  const GenerationConfig config = Constrained(Greedy(5), "dog");
  RequestPtr old = harness.engine().CreateRequest("old", {TokenData{Prompt(3)}}, config);
  harness.Load();
  harness.AddRequest(std::move(old));
  EXPECT_THAT(harness.Await("old").error_message, HasSubstr("no longer loaded"));
  harness.Add("new", Prompt(3), config);
  EXPECT_EQ(harness.Await("new").only().text, "dog");
}

}  // namespace
}  // namespace mlc_native::testing
