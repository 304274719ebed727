// ResolveEngineConfig: the settings that mode, model and memory infer.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "mlc_native/config.h"
#include "support/error.h"
#include "testing/error_message.h"

namespace mlc_native {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::MessageOf;

constexpr int64_t kModelVocabSize = 100;
constexpr int64_t kGiB = int64_t{1} << 30;

// A model of 1 KiB per token: a capacity in tokens is a number of KiB.
ModelMetadata SmallModel() {
  ModelMetadata model;
  model.vocab_size = kModelVocabSize;
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

// Each is computed in one step, and nothing of it is kept.
TEST(ResolveEngineConfig, WholePrompts) {
  ModelMetadata model = SmallModel();
  model.whole_prompts = true;
  const EngineConfig config = Resolve("{}", model, kGiB);
  EXPECT_EQ(config.prefix_cache_mode, PrefixCacheMode::kDisable);
  EXPECT_EQ(config.max_single_sequence_length, 1024);
  EXPECT_EQ(config.max_total_sequence_length, 4 * 1024);
  EXPECT_EQ(Resolve(R"({"prefill_chunk_size": 4000})", model, kGiB).max_single_sequence_length,
            4000);
  EXPECT_EQ(
      Resolve(R"({"max_single_sequence_length": 500})", model, kGiB).max_single_sequence_length,
      500);
  EXPECT_THAT(ExplainLongestSequence(EngineConfig(), config, model), HasSubstr("prefill_chunk"));
}

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

// Half of what is left for them; all where they fit.
TEST(ResolveEngineConfig, MappedExpertsAreFreeInPart) {
  ModelMetadata model = SmallModel();
  model.mapped_weight_bytes = 100 * kGiB;
  model.expert_weight_bytes = 99 * kGiB;
  EXPECT_EQ(Resolve(kLocal, model, kGiB + (4 << 20)).max_total_sequence_length, 1728);
  model.mapped_weight_bytes = kGiB + (1 << 20);
  model.expert_weight_bytes = 1 << 20;
  EXPECT_EQ(Resolve(kLocal, model, kGiB + (3 << 20)).max_total_sequence_length, 1728);
  model.expert_weight_bytes = 0;
  EXPECT_EQ(Resolve(kLocal, model, kGiB + (3 << 20)).max_total_sequence_length, 1728);
}

// 512 MiB may be used.
TEST(ResolveEngineConfig, StatesOfRecurrentLayersTakeMemory) {
  ModelMetadata model = SmallModel();
  model.recurrent_bytes_per_slot = 1 << 20;
  const EngineConfig config = Resolve("{}", model, kGiB);
  EXPECT_EQ(config.max_num_sequence, (512 / 4 - 12) / 4) << "a quarter of the memory";
  EXPECT_EQ(NumRecurrentSlots(*config.max_num_sequence), 512 / 4);
  const EngineConfig given = Resolve(R"({"max_num_sequence": 100})", model, kGiB);
  EXPECT_EQ(given.max_num_sequence, 100);
  EXPECT_EQ(*given.max_total_sequence_length / 1024, 512 - NumRecurrentSlots(100));
  EXPECT_THAT(ResolveError("gpu_memory_utilization", R"({"max_num_sequence": 127})", model, kGiB),
              HasSubstr("temporary buffer size (520.0 MB)"));
  EXPECT_EQ(Resolve("{}", model, int64_t{64} << 20).max_num_sequence, 1);
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

}  // namespace
}  // namespace mlc_native
