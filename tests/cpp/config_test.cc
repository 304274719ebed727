#include "mlc_native/config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>

#include <nlohmann/json.hpp>

#include "config/model_defaults.h"
#include "support/error.h"
#include "testing/temp_folder.h"

namespace mlc_native {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr int64_t kVocabSize = 100;
constexpr int64_t kGiB = int64_t{1} << 30;

// Runs `action`, which must throw Error naming `field`; returns the message.
template <typename Error>
std::string MessageOf(const std::string& field, const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& e) {
    EXPECT_EQ(e.field(), field) << e.what();
    return e.what();
  }
  ADD_FAILURE() << "nothing was thrown for " << field;
  return "";
}

std::string ConfigError(const std::string& field, const std::string& text) {
  return MessageOf<InvalidConfig>(field, [&] { EngineConfig::FromJSONString(text); });
}

std::string RequestError(const std::string& field,
                         const std::function<void(GenerationConfig*)>& change) {
  GenerationConfig config;
  change(&config);
  return MessageOf<InvalidRequest>(field, [&] { config.Validate(kVocabSize); });
}

// ---- EngineConfig as JSON

TEST(EngineConfigJson, DefaultsOfAnEmptyObject) {
  const EngineConfig config = EngineConfig::FromJSONString("{}");
  EXPECT_EQ(config.mode, EngineMode::kAuto);
  EXPECT_EQ(config.dtype, "auto");
  EXPECT_EQ(config.kv_cache_page_size, 16);
  EXPECT_EQ(config.prefill_mode, PrefillMode::kHybrid);
  EXPECT_EQ(config.prefix_cache_mode, PrefixCacheMode::kRadix);
  EXPECT_EQ(config.speculative_mode, SpeculativeMode::kDisable);
  EXPECT_FALSE(config.max_num_sequence.has_value());
  EXPECT_TRUE(config.verbose);
}

TEST(EngineConfigJson, NullMeansNotGiven) {
  const json nulls = {{"model", nullptr},
                      {"mode", nullptr},
                      {"max_num_sequence", nullptr},
                      {"gpu_memory_utilization", nullptr},
                      {"tensor_parallel_shards", nullptr},
                      {"opt", nullptr},
                      {"kv_state_kind", nullptr},
                      {"additional_models", nullptr}};
  const EngineConfig config = EngineConfig::FromJSONString(nulls.dump());
  EXPECT_EQ(config.AsJSONString(), EngineConfig().AsJSONString());
}

TEST(EngineConfigJson, RoundTripOfEveryField) {
  EngineConfig config;
  config.model = "/models/a \"quoted\" ü";
  config.model_lib = "/lib/x.so";
  config.mode = EngineMode::kServer;
  config.dtype = "bfloat16";
  config.quantization = WeightQuantization::kQ4;
  config.weight_cache_dir = "/cache";
  config.kv_cache_dtype = KvCacheDType::kInt8;
  config.tool_call_parser = "hermes";
  config.reasoning_parser = "none";
  config.visible_special_tokens = {"<think>"};
  config.num_threads = 3;
  config.gpu_memory_utilization = 0.5;
  config.max_num_sequence = 7;
  config.max_total_sequence_length = 4096;
  config.max_single_sequence_length = 2048;
  config.prefill_chunk_size = 64;
  config.attention_sink_size = 0;
  config.max_history_size = 0;
  config.max_queue_length = 99;
  config.queue_timeout_s = 0.25;
  config.timeout_s = 1e9;
  config.spec_tree_width = 3;
  config.prefix_cache_mode = PrefixCacheMode::kDisable;
  config.prefix_cache_max_num_recycling_seqs = -1;
  config.prefill_mode = PrefillMode::kChunked;
  config.grammar_compile_timeout_s = 2.5;
  config.grammar_cache_bytes = 0;
  config.strict_weights = true;
  config.verbose = false;
  config.tensor_parallel_shards = 1;
  config.pipeline_parallel_stages = 1;
  config.opt = "O3";
  config.kv_state_kind = "kv_cache";
  const std::string text = config.AsJSONString();
  EXPECT_EQ(EngineConfig::FromJSONString(text).AsJSONString(), text);
  const json parsed = json::parse(text);
  EXPECT_EQ(parsed["spec_tree_width"], 3);
  EXPECT_EQ(parsed["mode"], "server");
  EXPECT_EQ(parsed["sliding_window_size"], nullptr);
  EXPECT_EQ(parsed["quantization"], "q4");
  EXPECT_EQ(parsed["weight_cache_dir"], "/cache");
  EXPECT_EQ(parsed["kv_cache_dtype"], "int8");
  EXPECT_EQ(parsed["tool_call_parser"], "hermes");
  EXPECT_EQ(parsed.size(), 38u);
}

TEST(EngineConfigJson, AcceptsTheSettingsOfMlcLlmsCompiler) {
  EXPECT_NO_THROW(EngineConfig::FromJSONString(
      R"({"tensor_parallel_shards": 1, "pipeline_parallel_stages": 1, "opt": "O2",
          "kv_state_kind": "kv_cache", "max_history_size": 0, "attention_sink_size": 0})"));
}

TEST(EngineConfigJson, UnknownFieldNamesTheNearest) {
  EXPECT_THAT(ConfigError("max_num_sequences", R"({"max_num_sequences": 4})"),
              HasSubstr("did you mean \"max_num_sequence\""));
  EXPECT_THAT(ConfigError("max_total_seq_length", R"({"max_total_seq_length": 4})"),
              HasSubstr("did you mean \"max_total_sequence_length\""));
}

struct BadField {
  const char* field;
  const char* text;
  const char* expected;
};

class EngineConfigBadField : public ::testing::TestWithParam<BadField> {};

TEST_P(EngineConfigBadField, IsRefusedByNameAndRange) {
  EXPECT_THAT(ConfigError(GetParam().field, GetParam().text), HasSubstr(GetParam().expected));
}

INSTANTIATE_TEST_SUITE_P(
    All, EngineConfigBadField,
    ::testing::Values(
        BadField{"engine_config", "{", "not valid JSON"},
        BadField{"engine_config", "[1]", "must be a JSON object"},
        BadField{"model", R"({"model": 3})", "must be a string, got 3"},
        BadField{"additional_models", R"({"additional_models": [1]})", "a list of strings"},
        BadField{"additional_models", R"({"additional_models": ["m"]})", "must be empty while"},
        BadField{"mode", R"({"mode": "fast"})", R"("auto", "local", "interactive" or "server")"},
        BadField{"mode", R"({"mode": 1})", R"("auto", "local", "interactive" or "server")"},
        BadField{"dtype", R"({"dtype": "int8"})", "\"float16\""},
        BadField{"quantization", R"({"quantization": "q5"})", "\"q8\" or \"q4\""},
        BadField{"kv_cache_dtype", R"({"kv_cache_dtype": "int4"})",
                 R"("auto", "bfloat16", "float16", "float32", "int8" or "float8", got "int4")"},
        BadField{"num_threads", R"({"num_threads": 0})", "[1, 1024], got 0"},
        BadField{"gpu_memory_utilization", R"({"gpu_memory_utilization": 0})", "(0, 1], got 0"},
        BadField{"gpu_memory_utilization", R"({"gpu_memory_utilization": 1.01})", "got 1.01"},
        BadField{"gpu_memory_utilization", R"({"gpu_memory_utilization": "1"})", "got \"1\""},
        BadField{"kv_cache_page_size", R"({"kv_cache_page_size": 32})", "the integer 16, got 32"},
        BadField{"max_num_sequence", R"({"max_num_sequence": -1})", "got -1"},
        BadField{"max_num_sequence", R"({"max_num_sequence": 2.5})", "got 2.5"},
        BadField{"max_num_sequence", R"({"max_num_sequence": true})", "got true"},
        BadField{"max_num_sequence", R"({"max_num_sequence": 18446744073709551615})",
                 "[1, 2147483647]"},
        BadField{"max_total_sequence_length", R"({"max_total_sequence_length": 0})", "got 0"},
        BadField{"max_single_sequence_length", R"({"max_single_sequence_length": -5})", "got -5"},
        BadField{"prefill_chunk_size", R"({"prefill_chunk_size": 0})", "got 0"},
        BadField{"prefill_chunk_size", R"({"prefill_chunk_size": 2, "max_num_sequence": 4})",
                 "at least \"max_num_sequence\" (4), got 2"},
        BadField{"sliding_window_size", R"({"sliding_window_size": 128})", "must be null, got 128"},
        BadField{"attention_sink_size", R"({"attention_sink_size": 4})", "got 4"},
        BadField{"max_history_size", R"({"max_history_size": 2})",
                 "KV cache does not support max_history_size, while it is set to 2"},
        BadField{"max_queue_length", R"({"max_queue_length": 0})", "at least 1, or -1"},
        BadField{"max_queue_length", R"({"max_queue_length": -2})", "got -2"},
        BadField{"queue_timeout_s", R"({"queue_timeout_s": 0})", "(0, 1e+09], got 0"},
        BadField{"timeout_s", R"({"timeout_s": 1e10})", "(0, 1e+09], got 1"},
        BadField{"timeout_s", R"({"timeout_s": "1"})", "got \"1\""},
        BadField{"kv_state_kind", R"({"kv_state_kind": "rnn_state"})", "kv_cache"},
        BadField{"opt", R"({"opt": "O4"})", "\"O2\" or \"O3\""},
        BadField{"tensor_parallel_shards", R"({"tensor_parallel_shards": 2})",
                 "the integer 1, got 2"},
        BadField{"speculative_mode", R"({"speculative_mode": "eagle"})", "not supported yet"},
        BadField{"speculative_mode", R"({"speculative_mode": "x"})", "\"small_draft\""},
        BadField{"spec_draft_length", R"({"spec_draft_length": 4})", "\"disable\""},
        BadField{"spec_tree_width", R"({"spec_tree_width": 0})", "got 0"},
        BadField{"prefix_cache_mode", R"({"prefix_cache_mode": "lru"})", "\"radix\""},
        BadField{"prefix_cache_max_num_recycling_seqs",
                 R"({"prefix_cache_max_num_recycling_seqs": -2})", "[-1, 2147483647], got -2"},
        BadField{"prefill_mode", R"({"prefill_mode": "x"})", "\"chunked\" or \"hybrid\""},
        BadField{"grammar_compile_timeout_s", R"({"grammar_compile_timeout_s": 0})",
                 "a number in (0, 3600], got 0"},
        BadField{"grammar_compile_timeout_s", R"({"grammar_compile_timeout_s": 3601})", "got 3601"},
        BadField{"grammar_cache_bytes", R"({"grammar_cache_bytes": -1})", "got -1"},
        BadField{"verbose", R"({"verbose": 1})", "true or false, got 1"}));

// ---- inference by mode

// A model of 1 KiB per token: a capacity in tokens is a number of KiB.
ModelMetadata SmallModel() {
  ModelMetadata model;
  model.vocab_size = kVocabSize;
  model.context_window_size = 4096;
  model.max_batch_size = 128;
  model.preferred_prefill_chunk_size = 1024;
  model.kv_bytes_per_token = 1024;
  return model;
}

EngineConfig Resolve(const std::string& text, const ModelMetadata& model, int64_t free_bytes) {
  return ResolveEngineConfig(EngineConfig::FromJSONString(text), model, free_bytes);
}

std::string ResolveError(const std::string& field, const std::string& text,
                         const ModelMetadata& model, int64_t free_bytes) {
  return MessageOf<InvalidConfig>(field, [&] { Resolve(text, model, free_bytes); });
}

constexpr char kLocal[] = R"({"mode": "local"})";

// As many sequences as the model can run, of the model's context, as far as memory goes.
TEST(ResolveEngineConfig, AutoMode) {
  const EngineConfig config = Resolve("{}", SmallModel(), kGiB);
  EXPECT_EQ(config.max_num_sequence, 128);
  EXPECT_EQ(config.max_single_sequence_length, 4096);
  EXPECT_EQ(config.max_total_sequence_length, 128 * 4096);
  EXPECT_EQ(config.prefill_chunk_size, 1024);
  EXPECT_DOUBLE_EQ(*config.gpu_memory_utilization, 0.5);
  EXPECT_EQ(config.max_queue_length, -1);
  // 100 MiB * 0.5 / 1 KiB.
  EXPECT_EQ(Resolve("{}", SmallModel(), 100 << 20).max_total_sequence_length, 51200);
  ModelMetadata model = SmallModel();
  model.free_memory_bytes = 100 << 20;  // of a GPU, which has no other programs
  EXPECT_EQ(Resolve("{}", model, kGiB).max_total_sequence_length, 87040);
  // Of sequences beyond 32768 tokens, as many as fit into that room, and at least one.
  model.free_memory_bytes = 16 * kGiB;
  model.context_window_size = 131072;
  EXPECT_EQ(Resolve("{}", model, kGiB).max_total_sequence_length, 128 * 32768);
  model.context_window_size = 1 << 23;
  EXPECT_EQ(Resolve("{}", model, kGiB).max_total_sequence_length, (1 << 23) + 2048);
  EXPECT_EQ(Resolve("{}", model, kGiB).max_single_sequence_length, 1 << 23);
}

TEST(ResolveEngineConfig, LocalMode) {
  const EngineConfig config = Resolve(kLocal, SmallModel(), kGiB);
  EXPECT_EQ(config.max_num_sequence, 4);
  EXPECT_EQ(config.max_single_sequence_length, 4096);
  EXPECT_EQ(config.max_total_sequence_length, 4096 + 1024);
  EXPECT_EQ(config.prefill_chunk_size, 1024);
  EXPECT_DOUBLE_EQ(*config.gpu_memory_utilization, 0.85);
  EXPECT_EQ(config.prefix_cache_max_num_recycling_seqs, -1);
}

TEST(ResolveEngineConfig, LocalSequencesHaveAtMost8192Tokens) {
  ModelMetadata model = SmallModel();
  model.context_window_size = 131072;
  const EngineConfig config = Resolve(kLocal, model, kGiB);
  EXPECT_EQ(config.max_total_sequence_length, 8192 + 2048);
  EXPECT_EQ(config.max_single_sequence_length, 8192);
  model.max_batch_size = 2;
  EXPECT_EQ(Resolve(kLocal, model, kGiB).max_num_sequence, 2);
}

TEST(ResolveEngineConfig, InteractiveMode) {
  ModelMetadata model = SmallModel();
  model.context_window_size = 131072;
  const EngineConfig config = Resolve(R"({"mode": "interactive"})", model, kGiB);
  EXPECT_EQ(config.max_num_sequence, 1);
  EXPECT_EQ(config.max_total_sequence_length, 131072 + 2048);
  EXPECT_EQ(config.max_single_sequence_length, 131072);
}

// The room is a quarter of the longest sequence, at most 2,048 tokens, in whole pages.
TEST(ResolveEngineConfig, ModesOfOneSequenceHaveRoomForPins) {
  struct Case {
    const char* text;
    int64_t context;
    int64_t free_tokens;
    int64_t single;
    int64_t total;
  };
  const std::vector<Case> cases = {
      {R"("mode": "local")", 100, 1 << 20, 100, 112 + 32},
      {R"("mode": "interactive")", 100, 1 << 20, 100, 112 + 32},
      {R"("mode": "local", "max_single_sequence_length": 64)", 100, 1 << 20, 64, 64 + 16},
      // Memory is short: an eighth of it, unless the sequence length is given.
      {R"("mode": "local")", 4096, 1024, 1024 - 128, 1024},
      {R"("mode": "interactive")", 131072, 1024, 1024 - 128, 1024},
      {R"("mode": "auto")", 100, 1 << 20, 100, 112 + 32},
      {R"("mode": "auto")", 131072, 1024, 1024 - 128, 1024},
      {R"("mode": "interactive")", 131072, 131072, 131072 - 2048, 131072},
      {R"("mode": "interactive", "max_single_sequence_length": 1024)", 4096, 1024, 1024, 1024},
      {R"("mode": "interactive")", 0, 1024, 1024 - 128, 1024},
      // Enough for the sequence and part of the room.
      {R"("mode": "interactive")", 1000, 1024, 1024 - 128, 1024},
      {R"("mode": "interactive")", 1024, 1184, 1024, 1184},
      // Without a cache there are no pins.
      {R"("mode": "local", "prefix_cache_mode": "disable")", 4096, 1 << 20, 4096, 4096},
      {R"("mode": "local", "prefix_cache_mode": "disable")", 4096, 1024, 1024, 1024},
  };
  for (const Case& c : cases) {
    ModelMetadata model = SmallModel();
    model.context_window_size = c.context;
    const std::string text =
        std::string("{") + c.text + R"(, "gpu_memory_utilization": 1, "max_num_sequence": 1})";
    const EngineConfig config = Resolve(text, model, c.free_tokens * 1024);
    EXPECT_EQ(config.max_single_sequence_length, c.single) << text << c.free_tokens;
    EXPECT_EQ(config.max_total_sequence_length, c.total) << text << c.free_tokens;
  }
}

TEST(ResolveEngineConfig, ServerMode) {
  const EngineConfig roomy = Resolve(R"({"mode": "server"})", SmallModel(), kGiB);
  EXPECT_EQ(roomy.max_num_sequence, 128);
  EXPECT_EQ(roomy.max_total_sequence_length, 128 * 4096);
  // 100 MiB * 0.85 / 1 KiB = 87040 tokens, whole pages already.
  const EngineConfig tight = Resolve(R"({"mode": "server"})", SmallModel(), 100 << 20);
  EXPECT_EQ(tight.max_total_sequence_length, 87040);
}

TEST(ResolveEngineConfig, OnlyAServerLimitsItsQueueByItself) {
  const auto limit = [](const char* text) {
    return Resolve(text, SmallModel(), kGiB).max_queue_length;
  };
  EXPECT_EQ(limit(R"({"mode": "server", "max_num_sequence": 5})"), 80);
  EXPECT_EQ(limit(R"({"mode": "local"})"), -1);
  EXPECT_EQ(limit(R"({"mode": "interactive"})"), -1);
  EXPECT_EQ(limit(R"({"mode": "server", "max_queue_length": -1})"), -1);
  EXPECT_EQ(limit(R"({"max_queue_length": 3})"), 3);
}

TEST(ResolveEngineConfig, ServerModeWithoutAContextWindowTakesWhatFits) {
  ModelMetadata model = SmallModel();
  model.context_window_size = 0;
  const EngineConfig config =
      Resolve(R"({"mode": "server", "gpu_memory_utilization": 1})", model, 100 << 20);
  EXPECT_EQ(config.max_total_sequence_length, 102400);
  EXPECT_EQ(config.max_single_sequence_length, 102400);
}

TEST(ResolveEngineConfig, CapacityIsRoundedDownToPages) {
  const EngineConfig config =
      Resolve(R"({"gpu_memory_utilization": 1})", SmallModel(), 1024 * 1023 + 1023);
  EXPECT_EQ(config.max_total_sequence_length, 1008);
}

TEST(ResolveEngineConfig, WorkspaceIsSubtracted) {
  ModelMetadata model = SmallModel();
  model.workspace_bytes_per_token = 512;          // 1024 rows: 512 KiB
  model.workspace_bytes_per_sequence = 4 * 1024;  // 4 + 64 rows: 272 KiB
  const std::string whole = R"({"mode": "local", "gpu_memory_utilization": 1})";
  EXPECT_EQ(Resolve(whole, model, 1024 * 1024).max_total_sequence_length, 240);
}

TEST(ResolveEngineConfig, ScoredRowsAreAPartOfTheChunk) {
  EXPECT_EQ(MaxScoredRows(1), 1);
  EXPECT_EQ(MaxScoredRows(63), 63);
  EXPECT_EQ(MaxScoredRows(512), 64);
  EXPECT_EQ(MaxScoredRows(2048), 128);
  EXPECT_EQ(MaxLogitsRows(4, 512), 68);
}

TEST(ResolveEngineConfig, UserTotalIsRoundedUpToPagesAndChecked) {
  const std::string at_100 = R"({"max_total_sequence_length": 100, "gpu_memory_utilization": 1})";
  EXPECT_EQ(Resolve(at_100, SmallModel(), kGiB).max_total_sequence_length, 112);
  EXPECT_EQ(Resolve(at_100, SmallModel(), 112 * 1024).max_total_sequence_length, 112);
  const std::string message =
      ResolveError("max_total_sequence_length", at_100, SmallModel(), 111 * 1024);
  EXPECT_THAT(message, HasSubstr("at most 96 tokens"));
  EXPECT_THAT(message, HasSubstr("1024 bytes per token"));
  EXPECT_THAT(message, HasSubstr("got 100"));
}

TEST(ResolveEngineConfig, ALengthThatCannotBeGivenIsRefused) {
  const auto error = [](const std::string& text, const ModelMetadata& model, int64_t free_bytes) {
    return ResolveError("max_single_sequence_length", text, model, free_bytes);
  };
  EXPECT_THAT(
      error(R"({"max_single_sequence_length": 5000})", SmallModel(), kGiB),
      AllOf(HasSubstr("at most 4096 tokens, the context of the model"), HasSubstr("got 5000")));
  ModelMetadata model = SmallModel();
  model.context_window_size = 131072;
  const std::string at_8193 = R"("max_single_sequence_length": 8193})";
  EXPECT_THAT(error(R"({"mode": "local", )" + at_8193, model, kGiB),
              AllOf(HasSubstr("at most 8192 tokens in mode \"local\""), HasSubstr("\"auto\""),
                    HasSubstr("\"max_total_sequence_length\"")));
  EXPECT_EQ(
      Resolve(R"({"mode": "local", "max_total_sequence_length": 9000, )" + at_8193, model, kGiB)
          .max_single_sequence_length,
      8193);
  for (const char* mode : {"auto", "interactive", "server"}) {
    const std::string text = std::string(R"({"mode": ")") + mode + "\", " + at_8193;
    EXPECT_EQ(Resolve(text, model, kGiB).max_single_sequence_length, 8193);
    EXPECT_THAT(error(text, model, 1 << 20), HasSubstr("which is what fits into"));
  }
}

TEST(ResolveEngineConfig, TheCacheHoldsTheSequenceThatIsAskedFor) {
  const EngineConfig config =
      Resolve(R"({"mode": "local", "max_single_sequence_length": 100})", SmallModel(), kGiB);
  EXPECT_EQ(config.max_single_sequence_length, 100);
  EXPECT_EQ(config.max_total_sequence_length, 112 + 32);
  // Two lengths that are given: the resolved ones are those in effect.
  const EngineConfig both =
      Resolve(R"({"max_single_sequence_length": 100, "max_total_sequence_length": 64})",
              SmallModel(), kGiB);
  EXPECT_EQ(both.max_single_sequence_length, 64);
}

TEST(ResolveEngineConfig, LongestSequenceIsKnownBeforeTheModel) {
  const auto longest = [](const char* text) {
    return LongestSequence(EngineConfig::FromJSONString(text));
  };
  EXPECT_EQ(longest("{}"), std::numeric_limits<int64_t>::max());
  EXPECT_EQ(longest(kLocal), 8192);
  EXPECT_EQ(longest(R"({"max_single_sequence_length": 100})"), 100);
  EXPECT_EQ(longest(R"({"mode": "local", "max_total_sequence_length": 9000})"), 9000);
  EXPECT_EQ(longest(R"({"max_single_sequence_length": 100, "max_total_sequence_length": 64})"), 64);
}

TEST(ResolveEngineConfig, TheLongestSequenceIsExplained) {
  const auto explain = [](const char* text, int64_t context, int64_t free_bytes) {
    ModelMetadata model = SmallModel();
    model.context_window_size = context;
    const EngineConfig given = EngineConfig::FromJSONString(text);
    return ExplainLongestSequence(given, ResolveEngineConfig(given, model, free_bytes), model);
  };
  EXPECT_EQ(explain("{}", 4096, kGiB), "the context of the model");
  EXPECT_THAT(explain(R"({"max_single_sequence_length": 64})", 4096, kGiB),
              AllOf(HasSubstr("\"max_single_sequence_length\""), HasSubstr("4096")));
  EXPECT_THAT(explain(R"({"max_total_sequence_length": 64})", 4096, kGiB),
              AllOf(HasSubstr("\"max_total_sequence_length\""), HasSubstr("mode \"auto\"")));
  EXPECT_THAT(explain(kLocal, 16384, kGiB),
              AllOf(HasSubstr("mode \"local\""), HasSubstr("mode \"auto\"")));
  EXPECT_THAT(
      explain(R"({"mode": "interactive"})", 4096, 1 << 20),
      AllOf(HasSubstr("memory in mode \"interactive\""), HasSubstr("\"gpu_memory_utilization\"")));
}

TEST(ResolveEngineConfig, ChunkHoldsAtLeastOneRowPerSequence) {
  // Inferred: raised.
  EXPECT_EQ(
      Resolve(R"({"max_total_sequence_length": 32, "max_num_sequence": 64})", SmallModel(), kGiB)
          .prefill_chunk_size,
      64);
  // The chunk given, the number of sequences inferred: the latter follows.
  EXPECT_EQ(Resolve(R"({"mode": "server", "prefill_chunk_size": 16})", SmallModel(), kGiB)
                .max_num_sequence,
            16);
}

TEST(ResolveEngineConfig, ServerChunkIsTheModels) {
  EXPECT_EQ(Resolve(R"({"mode": "server", "max_total_sequence_length": 256})", SmallModel(), kGiB)
                .prefill_chunk_size,
            1024);
  EXPECT_EQ(Resolve(R"({"max_total_sequence_length": 256})", SmallModel(), kGiB).prefill_chunk_size,
            256);
}

TEST(ResolveEngineConfig, TooLittleMemoryTellsTheNumbersAndWhatToDo) {
  ModelMetadata model = SmallModel();
  model.weight_bytes = 3 << 20;
  model.workspace_bytes_per_token = 2048;  // 2 MiB per chunk
  const std::string message =
      ResolveError("gpu_memory_utilization", R"({"gpu_memory_utilization": 0.5})", model, 2 << 20);
  EXPECT_THAT(message, HasSubstr("Insufficient memory error: The available memory is 1.0 MB"));
  EXPECT_THAT(message, HasSubstr("3.0 MB of model weights"));
  EXPECT_THAT(message, HasSubstr("temporary buffer size (2.0 MB)"));
  EXPECT_THAT(message, HasSubstr("\"prefill_chunk_size\""));
  ResolveError("gpu_memory_utilization", "{}", model, -1);
}

TEST(ResolveEngineConfig, MemoryOfADeviceGoesBeforeTheHosts) {
  ModelMetadata model = SmallModel();
  model.free_memory_bytes = 2 << 20;  // 2,048 tokens, of which 85 % are 1,740
  EXPECT_EQ(Resolve("{}", model, kGiB).max_total_sequence_length, 1728);
  EXPECT_THAT(ResolveError("max_total_sequence_length", R"({"max_total_sequence_length": 4096})",
                           model, kGiB),
              HasSubstr("gpu_memory_utilization of 2.0 MB free GPU memory"));
  model.free_memory_bytes = 1;
  EXPECT_THAT(ResolveError("gpu_memory_utilization", "{}", model, kGiB),
              HasSubstr("Insufficient GPU memory error: The available GPU memory is 0.0 MB"));
}

TEST(ResolveEngineConfig, MappedWeightsAreNotFree) {
  ModelMetadata model = SmallModel();
  model.mapped_weight_bytes = kGiB - (2 << 20);
  EXPECT_EQ(Resolve(kLocal, model, kGiB).max_total_sequence_length, 1728);
}

TEST(ResolveEngineConfig, AbsurdSizesDoNotOverflow) {
  ModelMetadata model = SmallModel();
  model.workspace_bytes_per_sequence = kGiB;
  ResolveError("gpu_memory_utilization", R"({"max_num_sequence": 2147483647, "mode": "server"})",
               model, kGiB);
  model = SmallModel();
  model.kv_bytes_per_token = 0;
  model.context_window_size = 0;
  const EngineConfig config = Resolve(R"({"mode": "server"})", model, kGiB);
  EXPECT_EQ(config.max_total_sequence_length, (int64_t{1} << 31) - 16);
}

TEST(ResolveEngineConfig, ShowsTheFormatsOfTheModel) {
  ModelMetadata model = SmallModel();
  EXPECT_EQ(Resolve("{}", model, kGiB).dtype, "auto");  // a plug-in need not say
  model.dtype = DType::kBFloat16;
  model.kv_cache_dtype = KvCacheDType::kInt8;
  EXPECT_EQ(Resolve("{}", model, kGiB).dtype, "bfloat16");
  EXPECT_EQ(Resolve("{}", model, kGiB).kv_cache_dtype, KvCacheDType::kInt8);
}

TEST(ResolveEngineConfig, IsIdempotent) {
  for (const char* mode : {"auto", "local", "interactive", "server"}) {
    const EngineConfig once =
        Resolve(std::string(R"({"mode": ")") + mode + "\"}", SmallModel(), kGiB);
    EXPECT_EQ(ResolveEngineConfig(once, SmallModel(), kGiB).AsJSONString(), once.AsJSONString());
  }
}

// ---- GenerationConfig

TEST(GenerationConfig, DefaultsAndLimitsAreValid) {
  GenerationConfig config;
  EXPECT_NO_THROW(config.Validate(kVocabSize));
  config.n = 4;
  config.max_tokens = 0;
  config.temperature = 0;
  config.top_p = 0;
  config.top_k = -1;
  config.min_p = 1;
  config.frequency_penalty = -2;
  config.presence_penalty = 2;
  config.repetition_penalty = 0.5;
  config.logit_bias = {{0, -100}, {kVocabSize - 1, 100}};
  config.stop_token_ids = {0, kVocabSize - 1};
  config.stop_strs.assign(1024, "x");
  config.logprobs = true;
  config.top_logprobs = 20;
  config.seed = -1;
  config.debug_config.special_request = "query_engine_metrics";
  config.debug_config.grammar_execution_mode = "constraint";
  EXPECT_NO_THROW(config.Validate(kVocabSize));
}

struct BadRequest {
  const char* field;
  const char* expected;
  std::function<void(GenerationConfig*)> change;
};

class GenerationConfigBad : public ::testing::TestWithParam<BadRequest> {};

TEST_P(GenerationConfigBad, IsRefusedByName) {
  EXPECT_THAT(RequestError(GetParam().field, GetParam().change), HasSubstr(GetParam().expected));
}

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr double kInf = std::numeric_limits<double>::infinity();

INSTANTIATE_TEST_SUITE_P(
    All, GenerationConfigBad,
    ::testing::
        Values(BadRequest{"n", "\"n\" should be at least 1, got 0", [](auto* c) { c->n = 0; }},
               BadRequest{"max_tokens", "got -2", [](auto* c) { c->max_tokens = -2; }},
               BadRequest{"temperature", "\"temperature\" should be non-negative",
                          [](auto* c) { c->temperature = -1; }},
               BadRequest{"temperature", "nan", [](auto* c) { c->temperature = kNaN; }},
               BadRequest{"temperature", "inf", [](auto* c) { c->temperature = kInf; }},
               BadRequest{"top_p", "\"top_p\" should be in range [0, 1], got 1.1",
                          [](auto* c) { c->top_p = 1.1; }},
               BadRequest{"top_p", "nan", [](auto* c) { c->top_p = kNaN; }},
               BadRequest{"top_k", "got -2", [](auto* c) { c->top_k = -2; }},
               BadRequest{"min_p", "[0, 1]", [](auto* c) { c->min_p = -0.1; }},
               BadRequest{"timeout_s", "(0, 1e9] seconds, got 0",
                          [](auto* c) { c->timeout_s = 0; }},
               BadRequest{"timeout_s", "nan", [](auto* c) { c->timeout_s = kNaN; }},
               BadRequest{"queue_timeout_s", "inf", [](auto* c) { c->queue_timeout_s = kInf; }},
               BadRequest{"min_p", "nan", [](auto* c) { c->min_p = kNaN; }},
               BadRequest{"frequency_penalty", "[-2, 2], got 2.1",
                          [](auto* c) { c->frequency_penalty = 2.1; }},
               BadRequest{"frequency_penalty", "nan", [](auto* c) { c->frequency_penalty = kNaN; }},
               BadRequest{"presence_penalty", "[-2, 2], got -3",
                          [](auto* c) { c->presence_penalty = -3; }},
               BadRequest{"presence_penalty", "nan", [](auto* c) { c->presence_penalty = kNaN; }},
               BadRequest{"repetition_penalty", "\"repetition_penalty\" must be positive",
                          [](auto* c) { c->repetition_penalty = 0; }},
               BadRequest{"repetition_penalty", "nan",
                          [](auto* c) { c->repetition_penalty = kNaN; }},
               BadRequest{"repetition_penalty", "inf",
                          [](auto* c) { c->repetition_penalty = kInf; }},
               BadRequest{"logit_bias", "[0, 100), got 100",
                          [](auto* c) { c->logit_bias = {{100, 1}}; }},
               BadRequest{"logit_bias", "got -1", [](auto* c) { c->logit_bias = {{-1, 1}}; }},
               BadRequest{"logit_bias", "Logit bias value should be in range [-100, 100]",
                          [](auto* c) { c->logit_bias = {{1, 101}}; }},
               BadRequest{"logit_bias", "nan", [](auto* c) { c->logit_bias = {{1, kNaN}}; }},
               BadRequest{"stop_token_ids", "[0, 100), got 100",
                          [](auto* c) { c->stop_token_ids = {1, 100}; }},
               BadRequest{"min_tokens", "should be at least 0, got -1",
                          [](auto* c) { c->min_tokens = -1; }},
               BadRequest{"min_tokens", "should be at most \"max_tokens\" (3), got 4",
                          [](auto* c) {
                            c->max_tokens = 3;
                            c->min_tokens = 4;
                          }},
               BadRequest{"truncate_prompt_tokens", "should be at least 1, got 0",
                          [](auto* c) { c->truncate_prompt_tokens = 0; }},
               BadRequest{"allowed_token_ids", "[0, 100), got 100",
                          [](auto* c) { c->allowed_token_ids = {1, 100}; }},
               BadRequest{"allowed_token_ids", "cannot be combined with a response_format",
                          [](auto* c) {
                            c->allowed_token_ids = {1};
                            c->response_format = {ResponseFormatType::kRegex, "a", {}};
                          }},
               BadRequest{"bad_words", "[0, 100), got -1",
                          [](auto* c) { c->bad_words = {{1}, {2, -1}}; }},
               BadRequest{"bad_words", "sequences of at least 1 token",
                          [](auto* c) { c->bad_words = {{}}; }},
               BadRequest{"bad_words", "at most 4096 sequences of tokens, got 5000",
                          [](auto* c) { c->bad_words.assign(5000, {1}); }},
               BadRequest{"bad_words",
                          "cannot be combined with a response_format, got type \"choice\"",
                          [](auto* c) {
                            c->bad_words = {{1}};
                            c->response_format = {ResponseFormatType::kChoice, "", {"a"}};
                          }},
               BadRequest{"stop_strs", "Invalid stop string in stop_strs",
                          [](auto* c) { c->stop_strs = {"a", ""}; }},
               BadRequest{"stop_strs", "at most 1024 strings, got 10000",
                          [](auto* c) { c->stop_strs.assign(10000, "x"); }},
               BadRequest{"stop_strs", "at most 65536 bytes in total, got 65537",
                          [](auto* c) { c->stop_strs = {std::string(65537, 'x')}; }},
               BadRequest{"top_logprobs", "At most 20 top logprob tokens are supported",
                          [](auto* c) {
                            c->logprobs = true;
                            c->top_logprobs = 21;
                          }},
               BadRequest{"top_logprobs", "got -1", [](auto* c) { c->top_logprobs = -1; }},
               BadRequest{"top_logprobs", "\"logprobs\" must be true to support \"top_logprobs\"",
                          [](auto* c) { c->top_logprobs = 2; }},
               BadRequest{"response_format", "type \"text\" takes no text",
                          [](auto* c) { c->response_format.text = "x"; }},
               BadRequest{
                   "response_format", "type \"json_object\" takes no text",
                   [](auto*
                          c) { c->response_format = {ResponseFormatType::kJsonObject, "{}", {}}; }},
               BadRequest{
                   "response_format", "type \"json_schema\" needs a text, got \"\"",
                   [](auto* c) { c->response_format.type = ResponseFormatType::kJsonSchema; }},
               BadRequest{
                   "response_format", "type \"choice\" needs at least 1 choice, got 0",
                   [](auto* c) { c->response_format.type = ResponseFormatType::kChoice; }},
               BadRequest{
                   "response_format", "type \"regex\" takes no choices",
                   [](auto* c) { c->response_format = {ResponseFormatType::kRegex, "a", {"b"}}; }},
               BadRequest{"response_format", "type \"choice\": the text must be valid UTF-8",
                          [](auto* c) {
                            c->response_format = {ResponseFormatType::kChoice, "", {"a", "\xff"}};
                          }},
               BadRequest{"special_request", "Unknown special request \"x\"",
                          [](auto* c) { c->debug_config.special_request = "x"; }},
               BadRequest{"grammar_execution_mode", "Unknown grammar execution mode \"x\"",
                          [](auto* c) { c->debug_config.grammar_execution_mode = "x"; }}));

TEST(ResponseFormat, TypesHaveNames) {
  for (const char* name :
       {"text", "json_object", "json_schema", "regex", "grammar", "choice", "structural_tag"}) {
    EXPECT_STREQ(ToString(ParseResponseFormatType(name)), name);
  }
  try {
    ParseResponseFormatType("xml");
    FAIL() << "accepted";
  } catch (const InvalidRequest& error) {
    EXPECT_EQ(error.field(), "response_format");
    EXPECT_THAT(error.what(), HasSubstr("Unknown response_format type \"xml\""));
    EXPECT_THAT(error.what(), HasSubstr("\"structural_tag\""));
  }
}

TEST(GenerationConfig, AsJSON) {
  GenerationConfig config;
  config.logit_bias = {{7, -1.5}};
  config.stop_strs = {"\xff"};  // stop strings are bytes, JSON is not
  const json parsed = json::parse(config.AsJSONString());
  EXPECT_EQ(parsed["logit_bias"]["7"], -1.5);
  EXPECT_EQ(parsed["seed"], nullptr);
  EXPECT_EQ(parsed["max_tokens"], -1);
  EXPECT_EQ(parsed["response_format"]["type"], "text");
  EXPECT_EQ(parsed["debug_config"]["grammar_execution_mode"], "jump_forward");
}

// ---- model folder

class ModelDefaultsTest : public ::testing::Test {
 protected:
  void Write(const std::string& name, const std::string& text) { folder_.Write(name, text); }
  ModelDefaults Read() { return ReadModelDefaults(folder_.path()); }
  std::string Error(const std::string& field) {
    return MessageOf<LoadError>(field, [this] { Read(); });
  }

  const testing::TempFolder folder_;
};

TEST_F(ModelDefaultsTest, ConfigAlone) {
  Write("config.json", R"({"eos_token_id": 2})");
  const ModelDefaults defaults = Read();
  EXPECT_THAT(defaults.eos_token_ids, ElementsAre(2));
  EXPECT_EQ(defaults.generation.AsJSONString(), GenerationConfig().AsJSONString());
}

TEST_F(ModelDefaultsTest, NestedTextConfig) {
  Write("config.json", R"({"text_config": {"eos_token_id": [1, 106]}})");
  EXPECT_THAT(Read().eos_token_ids, ElementsAre(1, 106));
}

TEST_F(ModelDefaultsTest, GenerationConfigGoesFirst) {
  Write("config.json", R"({"eos_token_id": 2})");
  Write("generation_config.json",
        R"({"eos_token_id": [3, 4], "do_sample": true, "temperature": 0.6, "top_p": 0.95,
            "top_k": 20, "min_p": 0.05, "repetition_penalty": 1.1})");
  const ModelDefaults defaults = Read();
  EXPECT_THAT(defaults.eos_token_ids, ElementsAre(3, 4));
  EXPECT_DOUBLE_EQ(defaults.generation.temperature, 0.6);
  EXPECT_DOUBLE_EQ(defaults.generation.top_p, 0.95);
  EXPECT_EQ(defaults.generation.top_k, 20);
  EXPECT_DOUBLE_EQ(defaults.generation.min_p, 0.05);
  EXPECT_DOUBLE_EQ(defaults.generation.repetition_penalty, 1.1);
}

TEST_F(ModelDefaultsTest, SamplingIsIgnoredUnlessTheModelSamples) {
  Write("config.json", R"({"eos_token_id": 2})");
  Write("generation_config.json", R"({"temperature": 0.6, "top_k": 50})");
  EXPECT_EQ(Read().generation.AsJSONString(), GenerationConfig().AsJSONString());
  EXPECT_THAT(Read().eos_token_ids, ElementsAre(2));
}

TEST_F(ModelDefaultsTest, ModelsThatDoNotSampleAreGreedy) {
  Write("config.json", "{}");
  Write("generation_config.json",
        R"({"do_sample": false, "temperature": 0.6, "top_k": 50, "repetition_penalty": 1.2})");
  GenerationConfig greedy;
  greedy.temperature = 0;
  greedy.repetition_penalty = 1.2;
  EXPECT_EQ(Read().generation.AsJSONString(), greedy.AsJSONString());
}

TEST_F(ModelDefaultsTest, LengthsCount) {
  Write("config.json", "{}");
  Write("generation_config.json", R"({"max_new_tokens": 256, "min_new_tokens": 2})");
  EXPECT_EQ(Read().generation.max_tokens, 256);
  EXPECT_EQ(Read().generation.min_tokens, 2);
  Write("generation_config.json", R"({"max_new_tokens": null, "max_length": 20})");
  EXPECT_EQ(Read().generation.max_tokens, -1);
  Write("generation_config.json", R"({"max_new_tokens": -3})");
  EXPECT_THAT(Error("max_new_tokens"), HasSubstr("got -3"));
}

TEST_F(ModelDefaultsTest, NullsAndMinusOneAreNothing) {
  Write("config.json", R"({"eos_token_id": -1})");
  Write("generation_config.json", R"({"eos_token_id": null, "do_sample": true, "top_k": null})");
  EXPECT_THAT(Read().eos_token_ids, IsEmpty());
}

TEST_F(ModelDefaultsTest, DamageIsALoadErrorThatNamesTheFile) {
  EXPECT_THAT(Error("config.json"), HasSubstr("no model folder"));
  Write("config.json", R"({"eos_tok)");
  EXPECT_THAT(Error("config.json"), HasSubstr("not valid JSON"));
  Write("config.json", "[]");
  EXPECT_THAT(Error("config.json"), HasSubstr("JSON object"));
  Write("config.json", R"({"eos_token_id": "two"})");
  EXPECT_THAT(Error("eos_token_id"), HasSubstr("got \"two\""));
  Write("config.json", "{}");
  Write("generation_config.json", R"({"do_sample": true, "temperature": "hot"})");
  EXPECT_THAT(Error("temperature"), HasSubstr("must be a number"));
  Write("generation_config.json", R"({"do_sample": true, "top_p": 7})");
  EXPECT_THAT(Error("top_p"), HasSubstr("generation_config.json"));
  Write("generation_config.json", "{");
  EXPECT_THAT(Error("generation_config.json"), HasSubstr("not valid JSON"));
}

TEST(ModelDefaults, MissingFolder) {
  EXPECT_THAT(MessageOf<LoadError>("model", [] { ReadModelDefaults("/no/such/folder"); }),
              HasSubstr("/no/such/folder"));
}

}  // namespace
}  // namespace mlc_native
