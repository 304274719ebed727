// EngineConfig as JSON: what is read, and what is refused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "mlc_native/config.h"
#include "support/error.h"
#include "testing/error_message.h"

namespace mlc_native {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;
using testing::MessageOf;
using ::testing::UnorderedElementsAre;

std::string ConfigError(const std::string& field, const std::string& text) {
  return MessageOf<InvalidConfig>(field, [&] { EngineConfig::FromJSONString(text); });
}

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

// A value that a field may have and that is not its default, if there is one.
template <typename T>
json OtherValue(const Field& field, const T& value) {
  if constexpr (std::is_same_v<T, bool>) {
    return !value;
  } else if constexpr (std::is_same_v<T, int64_t>) {
    const auto low = static_cast<int64_t>(field.range.low);
    return low == value ? std::min(low + 1, static_cast<int64_t>(field.range.high)) : low;
  } else if constexpr (std::is_same_v<T, double>) {
    return field.range.high;
  } else if constexpr (std::is_same_v<T, std::string>) {
    return field.choices.empty() ? "a \"quoted\" ü" : field.choices.back();
  } else if constexpr (std::is_same_v<T, WeightQuantization>) {
    return "q4.8";
  } else if constexpr (std::is_enum_v<T>) {
    const auto& [name, last] = kEnumNames<T>.back();
    return last == value ? kEnumNames<T>.front().first : name;
  } else {
    return json::array({"x", "<y>"});
  }
}
template <typename T>
json OtherValue(const Field& field, const std::optional<T>&) {
  if constexpr (std::is_same_v<T, int64_t>) return static_cast<int64_t>(field.range.low);
  return OtherValue(field, T());
}

// A new field is tested without a line here, unless it takes no value but the default.
TEST(EngineConfigJson, EveryFieldIsReadAndWritten) {
  const json defaults = json::parse(EngineConfig().AsJSONString());
  std::vector<std::string> refused;
  VisitEngineFields([&]<typename T>(const Field& field, T EngineConfig::* member) {
    const json value = OtherValue(field, EngineConfig().*member);
    const std::string text = json{{field.name, value}}.dump();
    try {
      json expected = defaults;
      expected[field.name] = value;
      const EngineConfig config = EngineConfig::FromJSONString(text);
      EXPECT_EQ(json::parse(config.AsJSONString()), expected);
      EXPECT_EQ(EngineConfig::FromJSONString(config.AsJSONString()).*member, config.*member);
    } catch (const InvalidConfig& error) {
      EXPECT_EQ(error.field(), field.name);
      refused.emplace_back(field.name);
    }
  });
  EXPECT_THAT(refused, UnorderedElementsAre("additional_models", "sliding_window_size",
                                            "spec_draft_length", "prompt_lookup_max"));
}

TEST(EngineConfigJson, AcceptsTheSettingsOfMlcLlmsCompiler) {
  EXPECT_NO_THROW(EngineConfig::FromJSONString(
      R"({"tensor_parallel_shards": 2, "pipeline_parallel_stages": 1, "opt": "O2",
          "kv_state_kind": "kv_cache", "max_history_size": 0, "attention_sink_size": 0})"));
}

TEST(EngineConfigJson, UnknownFieldNamesTheNearest) {
  EXPECT_THAT(ConfigError("max_num_sequences", R"({"max_num_sequences": 4})"),
              HasSubstr("did you mean \"max_num_sequence\""));
  EXPECT_THAT(ConfigError("max_total_seq_length", R"({"max_total_seq_length": 4})"),
              HasSubstr("did you mean \"max_total_sequence_length\""));
  for (const char* name : {"foo", "temperature", "block_size"}) {
    EXPECT_EQ(ConfigError(name, std::string("{\"") + name + "\": 4}"),
              std::string("Unknown field \"") + name + "\" in the engine config");
  }
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
        BadField{"quantization", R"({"quantization": "q5"})", "\"q8\", \"q6\", \"q4\", or \"q\""},
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
        BadField{"tensor_parallel_shards", R"({"tensor_parallel_shards": 0})", "[1, 64], got 0"},
        BadField{"pipeline_parallel_stages", R"({"pipeline_parallel_stages": 2})",
                 "the integer 1, got 2"},
        BadField{"additional_models", R"({"speculative_mode": "medusa"})", "must name one model"},
        BadField{"speculative_mode", R"({"speculative_mode": "x"})", "\"small_draft\""},
        BadField{"additional_models", R"({"speculative_mode": "small_draft"})",
                 "must name one model while \"speculative_mode\" is \"small_draft\", got 0"},
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

}  // namespace
}  // namespace mlc_native
