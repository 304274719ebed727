// Jump-forward decoding: forced text costs no forwards, streams exactly and respects every limit,
// whatever happens around it. With a fake grammar library.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "mlc_native/tokenizer.h"
#include "testing/failing_steps.h"
#include "testing/test_engine.h"
#include "testing/threaded_harness.h"

namespace mlc_native::testing {
namespace {

using nlohmann::json;

// Printable ASCII is itself; then these, merged in this order, and the end.
const std::vector<std::string> kMerged = {"ca", "cat", "Ġa", "na", "\"na", "me", "\"name", "\":"};
constexpr int32_t kEndOfText = 150;

// A byte-level tokenizer.json and its table.
class Tokenizer {
 public:
  Tokenizer() {
    json vocab = json::object();
    for (int32_t c = '!'; c <= '~'; ++c) vocab[std::string(1, static_cast<char>(c))] = c;
    vocab["Ġ"] = static_cast<int32_t>(' ');
    json merges = json::array();
    int32_t id = 127;
    for (const std::string& token : kMerged) {
      const size_t cut = token == "\"name" ? 3 : token == "cat" || token.starts_with("Ġ") ? 2 : 1;
      merges.push_back({token.substr(0, cut), token.substr(cut)});
      vocab[token] = id++;
    }
    vocab["</s>"] = kEndOfText;
    const json end = {{"id", kEndOfText}, {"content", "</s>"}, {"special", true}};
    folder_.Write("tokenizer.json",
                  json{{"added_tokens", {end}},
                       {"pre_tokenizer", {{"type", "ByteLevel"}}},
                       {"decoder", {{"type", "ByteLevel"}}},
                       {"model", {{"type", "BPE"}, {"vocab", vocab}, {"merges", merges}}}}
                      .dump());
    table_ = TokenTable::FromTokenizerJson(folder_.path() + "/tokenizer.json");
  }

  const std::string& folder() const { return folder_.path(); }
  const std::shared_ptr<const TokenTable>& table() const { return table_; }
  std::string TextOf(const std::vector<int32_t>& ids) const {
    std::string text;
    for (int32_t id : ids) text += table_->text_bytes(id);
    return text;
  }
  int32_t IdOf(const std::string& text) const {
    int32_t id = 0;
    while (table_->text_bytes(id) != text) ++id;
    return id;
  }

 private:
  ModelFolder folder_;
  std::shared_ptr<const TokenTable> table_;
};

constexpr char kRecords[] = R"({"name":"cat", "sound":"meow"}|{"name":"cow", "sound":"moo"})";
const std::set<std::string> kRecordSet = {R"({"name":"cat", "sound":"meow"})",
                                          R"({"name":"cow", "sound":"moo"})"};

class JumpForwardTest : public ::testing::Test {
 protected:
  TestEngineSetup Setup() const {
    TestEngineSetup setup;
    setup.token_table = tokenizer_.table();
    setup.model_folder = tokenizer_.folder();
    setup.eos_token_ids = {kEndOfText};
    setup.model.peak = 3;  // so that draws differ
    return setup;
  }

  static GenerationConfig Records(GenerationConfig config, const char* answers = kRecords) {
    config.response_format = {ResponseFormatType::kRegex, answers, {}};
    return config;
  }
  static GenerationConfig WithoutJumps(GenerationConfig config) {
    config.debug_config.grammar_execution_mode = "constraint";
    return config;
  }

  static RequestHistory Ask(const TestEngineSetup& setup, const GenerationConfig& config) {
    TestEngine engine(setup);
    engine.Add("a", Prompt(5), config);
    engine.Run();
    return engine.History("a");
  }
  static json Usage(const RequestHistory& history) { return json::parse(*history.usage); }
  static int64_t Tokens(const RequestHistory& history, const char* name) {
    return Usage(history)["extra"][name];
  }

  const Tokenizer tokenizer_;
};

TEST_F(JumpForwardTest, ForcedTextCostsNoForwards) {
  int64_t num_forwards[2];
  for (const bool jumps : {false, true}) {
    TestEngine engine(Setup());
    GenerationConfig config = Records(Greedy(-1), "{\"name\":\"cat\", \"sound\":\"meow\"}");
    engine.Add("a", Prompt(5), jumps ? config : WithoutJumps(config));
    engine.Run();
    EXPECT_EQ(engine.Answer("a").text, "{\"name\":\"cat\", \"sound\":\"meow\"}");
    EXPECT_EQ(engine.Answer("a").finish_reason, FinishReason::kStop);
    num_forwards[jumps] = engine.model().num_forwards();
    const int64_t jumped = Tokens(engine.History("a"), "jump_forward_tokens");
    EXPECT_EQ(jumped > 15, jumps) << jumped;
    const json metrics = json::parse(engine.engine().JSONMetrics());
    EXPECT_EQ(metrics["jump_forward_tokens_sum"], jumped);
    EXPECT_EQ(metrics["engine_jump_forward_time_sum"] > 0, jumps);
  }
  EXPECT_GT(num_forwards[false], 15);
  EXPECT_EQ(num_forwards[true], 1) << "all behind the first token is forced";
}

TEST_F(JumpForwardTest, AnswersKeepTheGrammarInEverySamplingMode) {
  GenerationConfig penalties = Sampled(-1, 0), stop = penalties, branches = Sampled(-1, 0, 3),
                   logprobs = penalties, ignore_eos = penalties;
  penalties.frequency_penalty = 2;
  penalties.repetition_penalty = 3;
  stop.stop_strs = {"zz", "\"meows", "nane"};
  logprobs.logprobs = true;
  ignore_eos.debug_config.ignore_eos = true;
  std::set<std::string> seen;
  for (GenerationConfig config :
       {Sampled(-1, 0), penalties, stop, branches, logprobs, ignore_eos}) {
    for (config.seed = 1; *config.seed < 25; ++*config.seed) {
      const RequestHistory history = Ask(Setup(), Records(config));
      for (const SequenceHistory& answer : history.sequences) {
        EXPECT_TRUE(kRecordSet.contains(answer.text)) << answer.text;
        EXPECT_EQ(answer.finish_reason, FinishReason::kStop);
        seen.insert(answer.text);
      }
      EXPECT_GT(Tokens(history, "jump_forward_tokens"), 0);
    }
  }
  EXPECT_EQ(seen, kRecordSet);
}

TEST_F(JumpForwardTest, ALongerTokenReplacesDeliveredOnes) {
  TestEngineSetup setup = Setup();
  setup.model.script = {'c'};
  setup.model.peak = 50;
  TestEngine engine(setup);
  std::vector<std::string> deltas;
  engine.on_outputs = [&](const std::vector<RequestStreamOutput>& outputs) {
    for (const RequestStreamOutput& output : outputs) {
      if (output.is_final()) continue;
      const SequenceDelta& delta = output.group[0];
      deltas.push_back(tokenizer_.TextOf(delta.token_ids) + "|" + delta.extra_prefix_string + "|" +
                       delta.text);
    }
  };
  engine.Add("a", Prompt(5), Records(Greedy(-1), "cats|dog"));
  engine.Run();
  EXPECT_EQ(engine.Answer("a").text, "cats");
  EXPECT_EQ(deltas, (std::vector<std::string>{"c||c", "s|at|s"}));
  EXPECT_EQ(Usage(engine.History("a"))["completion_tokens"], 2) << "cat, s";
}

TEST_F(JumpForwardTest, TheModelReadsTheTokensThatReplace) {
  TestEngineSetup setup = Setup();
  setup.model.peak = 50;
  TestEngine engine(setup);
  std::vector<int32_t> read;
  engine.model().set_on_forward([&](const ForwardBatch& batch) {
    read.resize(batch.sequences[0].position);
    read.insert(read.end(), batch.token_ids.begin(), batch.token_ids.end());
  });
  // What follows the forced text: two answers, so that one token is sampled behind it.
  engine.Add("a", Prompt(5), Records(Greedy(-1), "dcats a-x|dcats a-y"));
  engine.Run();
  const std::vector<int32_t> answer(read.begin() + 5, read.end());
  EXPECT_EQ(answer,
            (std::vector<int32_t>{'d', tokenizer_.IdOf("cat"), 's', tokenizer_.IdOf(" a"), '-'}));
}

TEST_F(JumpForwardTest, TheLastTokenIsLeftToTheModelWhereItMayBeLonger) {
  TestEngineSetup setup = Setup();
  setup.model.peak = 50;
  const auto jumped = [&](const char* answers, std::vector<int32_t> script) {
    setup.model.script = std::move(script);
    return Tokens(Ask(setup, Records(Greedy(-1), answers)), "jump_forward_tokens");
  };
  EXPECT_EQ(jumped("x\"bb|x\"cc", {'x', 'b'}), 2) << "no longer token is allowed: \", then b";
  EXPECT_EQ(jumped("x\"name|x\"cc", {'x', tokenizer_.IdOf("\"name")}), 0) << "x, \"name";
}

TEST_F(JumpForwardTest, MaxTokensIsExact) {
  const std::string whole = "{\"name\":\"cat\", \"sound\":\"meow\"}";
  const int64_t num_tokens =
      Usage(Ask(Setup(), Records(Greedy(-1), whole.c_str())))["completion_tokens"];
  for (const bool logprobs : {false, true}) {
    for (int64_t max_tokens = 1; max_tokens < num_tokens + 3; ++max_tokens) {
      SCOPED_TRACE(max_tokens);
      GenerationConfig config = Records(Greedy(max_tokens), whole.c_str());
      config.logprobs = logprobs;
      const RequestHistory history = Ask(Setup(), config);
      const bool fits = history.only().finish_reason == FinishReason::kStop;
      EXPECT_TRUE(whole.starts_with(history.only().text));
      EXPECT_EQ(fits, history.only().text == whole);
      const int64_t completion_tokens = Usage(history)["completion_tokens"];
      EXPECT_TRUE(completion_tokens == max_tokens || (fits && completion_tokens < max_tokens));
      EXPECT_TRUE(!fits || max_tokens >= num_tokens - 1);
    }
  }
}

TEST_F(JumpForwardTest, TheLengthOfTheSequenceIsExact) {
  const std::string whole = "{\"name\":\"cat\", \"sound\":\"meow\"}";
  for (int64_t length = 6; length < 40; ++length) {
    SCOPED_TRACE(length);
    TestEngineSetup setup = Setup();
    setup.max_single_sequence_length = length;
    const RequestHistory history = Ask(setup, Records(Greedy(-1), whole.c_str()));
    EXPECT_TRUE(whole.starts_with(history.only().text));
    if (history.only().finish_reason == FinishReason::kStop) continue;
    EXPECT_EQ(history.only().finish_reason, FinishReason::kLength);
    EXPECT_EQ(Usage(history)["completion_tokens"], length - 5);
  }
}

TEST_F(JumpForwardTest, StopStringsEndForcedText) {
  const std::string whole = "{\"name\":\"cat\", \"sound\":\"meow\"}";
  for (size_t begin = 1; begin < whole.size(); ++begin) {
    for (size_t length : {1, 3}) {
      GenerationConfig config = Records(Greedy(-1), whole.c_str());
      config.stop_strs = {whole.substr(begin, length)};
      const RequestHistory history = Ask(Setup(), config);
      EXPECT_EQ(history.only().text, whole.substr(0, whole.find(config.stop_strs[0])));
      EXPECT_EQ(history.only().finish_reason, FinishReason::kStop);
    }
  }
}

TEST_F(JumpForwardTest, StopTokensEndForcedText) {
  GenerationConfig config = Records(Greedy(-1), "xyzu-v|xyzu-w");
  config.stop_token_ids = {'z'};
  const RequestHistory history = Ask(Setup(), config);
  EXPECT_EQ(history.only().text, "xy");
  EXPECT_EQ(Usage(history)["completion_tokens"], 3) << "with the stop token";
  // Nothing that was delivered becomes a stop token afterwards.
  config = Records(Greedy(-1), "cats");
  config.stop_token_ids = {tokenizer_.IdOf("cat")};
  TestEngineSetup setup = Setup();
  setup.model.script = {'c'};
  setup.model.peak = 50;
  EXPECT_EQ(Ask(setup, config).only().text, "cats");
}

TEST_F(JumpForwardTest, WithLogprobsEveryTokenIsDelivered) {
  for (int64_t seed = 1; seed < 20; ++seed) {
    GenerationConfig config = Records(Sampled(-1, seed, 2));
    config.logprobs = true;
    config.top_logprobs = 2;
    const RequestHistory history = Ask(Setup(), config);
    size_t num_tokens = 0;
    for (const SequenceHistory& answer : history.sequences) {
      EXPECT_EQ(tokenizer_.TextOf(answer.token_ids), answer.text);
      EXPECT_EQ(answer.logprobs.size(), answer.token_ids.size());
      num_tokens += answer.token_ids.size();
    }
    EXPECT_EQ(Usage(history)["completion_tokens"], num_tokens);
  }
}

TEST_F(JumpForwardTest, WithoutATokenizerFileItIsOff) {
  TestEngineSetup setup = Setup();
  setup.model_folder = "";
  const RequestHistory history = Ask(setup, Records(Sampled(-1, 1)));
  EXPECT_TRUE(kRecordSet.contains(history.only().text));
  EXPECT_EQ(Tokens(history, "jump_forward_tokens"), 0);
}

// Several requests at a time in all sorts of engines; each must answer as it does alone.
TEST_F(JumpForwardTest, AnswersDoNotDependOnWhatHappensAround) {
  constexpr int kRequests = 6;
  const auto config = [](int i) {
    GenerationConfig config = Records(Sampled(-1, i + 1, i % 3 == 2 ? 2 : 1));
    if (i % 2 == 1) config.stop_strs = {"mo", "zz"};
    return i == 3 ? Sampled(30, i) : config;
  };
  std::vector<RequestHistory> alone;
  for (int i = 0; i < kRequests; ++i) {
    TestEngine engine(Setup());
    engine.Add("a", Prompt(3 + 7 * i, i), config(i));
    engine.Run();
    alone.push_back(engine.History("a"));
  }
  int64_t num_preemptions = 0;
  for (int64_t chunk : {4, 7, 64}) {
    for (int64_t num_pages : {5, 9, 256}) {
      for (PrefillMode mode : {PrefillMode::kChunked, PrefillMode::kHybrid}) {
        TestEngineSetup setup = Setup();
        setup.max_num_sequence = 4;
        setup.prefill_chunk_size = chunk;
        setup.num_pages = num_pages;
        setup.prefill_mode = mode;
        TestEngine engine(setup);
        for (int i = 0; i < kRequests; ++i) {
          engine.Add(std::to_string(i), Prompt(3 + 7 * i, i), config(i));
          engine.Step();
        }
        engine.Run();
        for (int i = 0; i < kRequests; ++i) {
          const RequestHistory& history = engine.History(std::to_string(i));
          for (size_t s = 0; s < history.sequences.size(); ++s) {
            EXPECT_EQ(history.sequences[s].text, alone[i].sequences[s].text);
            EXPECT_EQ(history.sequences[s].finish_reason, alone[i].sequences[s].finish_reason);
          }
          EXPECT_EQ(Usage(history)["completion_tokens"], Usage(alone[i])["completion_tokens"]);
        }
        num_preemptions += json::parse(engine.engine().JSONMetrics())["num_preemptions"].get<int>();
      }
    }
  }
  EXPECT_GT(num_preemptions, 0);
}

// The tokens that a jump has put in make one sequence give way to the others, and then turn out to
// end it. TestEngine audits the queues after each step.
TEST_F(JumpForwardTest, ASequenceThatGaveWayMayEndAtItsJump) {
  int64_t num_preemptions = 0;
  for (int64_t length = 4; length < 36; ++length) {
    for (int64_t num_pages = 4; num_pages < 12; ++num_pages) {
      SCOPED_TRACE(std::to_string(length) + " tokens, " + std::to_string(num_pages) + " pages");
      TestEngineSetup setup = Setup();
      setup.num_pages = num_pages;
      setup.max_single_sequence_length = 64;
      TestEngine engine(setup);
      GenerationConfig config =
          Records(Sampled(-1, length, 4), "a-cat-meow-1|a-cat-meow-2|a-cow-moo-1|a-cow-moo-2");
      config.stop_strs = {"meow"};
      engine.Add("a", Prompt(length), config);
      engine.Run();
      for (const auto& sequence : engine.History("a").sequences) {
        EXPECT_EQ(sequence.finish_reason, FinishReason::kStop);
      }
      num_preemptions += engine.Metric("num_preemptions");
    }
  }
  EXPECT_GT(num_preemptions, 0);
}

TEST_F(JumpForwardTest, AFailingGrammarEndsItsRequestAlone) {
  TestEngineSetup setup = Setup();
  int num_accepted = 0;
  setup.grammar.on_accept = [&](int32_t) {
    if (++num_accepted == 3) throw std::runtime_error("no memory");
  };
  TestEngine engine(setup);
  engine.Add("a", Prompt(5), Records(Sampled(-1, 1)));
  engine.Add("b", Prompt(5), Sampled(9, 1));
  engine.Run();
  EXPECT_EQ(engine.Answer("a").finish_reason, FinishReason::kError);
  EXPECT_EQ(engine.Answer("b").token_ids.size(), 9u);
}

TEST_F(JumpForwardTest, AFailingForwardLeavesTheOthersAsTheyWere) {
  const RequestHistory alone = Ask(Setup(), Records(Sampled(-1, 1)));
  TestEngineSetup setup = Setup();
  setup.model.poison_token = 201;  // in no prompt but the one below
  TestEngine engine(setup);
  engine.Add("a", Prompt(5), Records(Sampled(-1, 1)));
  engine.Step();
  engine.Add("b", {1, 201}, Sampled(9, 1));
  engine.Run();
  EXPECT_EQ(engine.Answer("a").text, alone.only().text);
  EXPECT_EQ(engine.Answer("b").finish_reason, FinishReason::kError);
}

// What came before is the beginning of an answer, without a gap.
TEST_F(JumpForwardTest, EveryAllocationOfAStepMayFail) {
  bool failed = true;
  for (int64_t k = 1; failed; k += k < 100 ? 1 : 13) {
    TestEngine engine(Setup());
    GenerationConfig config = Records(Sampled(-1, 1, 2));
    config.stop_strs = {"\"meows"};
    engine.Add("a", Prompt(5), config);
    failed = RunWithFailingAllocation(engine, k);
    for (const SequenceHistory& answer : engine.History("a").sequences) {
      const auto begins_with = [&](const std::string& record) {
        return record.starts_with(answer.text);
      };
      ASSERT_TRUE(std::any_of(kRecordSet.begin(), kRecordSet.end(), begins_with))
          << answer.text << ", allocation " << k;
    }
  }
}

}  // namespace
}  // namespace mlc_native::testing
