// Draft heads on a device: the guesses of the same head on the CPU, and answers that they do not
// change.
#include "models/draft_head.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "cuda/model_driver.h"
#include "mlc_native/engine.h"
#include "support/error.h"
#include "testing/tiny_checkpoint.h"

namespace mlc_native {
namespace {

constexpr char kEagle3[] = "midlayer.";
constexpr char kEagle1[] = "layers.0.";

// A target, and a head of random weights for it.
class TinyDrafting {
 public:
  explicit TinyDrafting(const std::string& layer, const std::string& fields = "")
      : target_("LlamaForCausalLM", R"("head_dim": 16)") {
    testing::WriteTinyDraftHead(folder_, target_.Source().path, layer, fields);
  }

  std::unique_ptr<Model> Target(const ModelSource& source) const { return target_.Load(source); }
  ModelSource Source(const std::string& dtype, const std::string& device) {
    return target_.Source(dtype, device);
  }
  std::unique_ptr<Model> Head(ModelSource source, const Model& target) const {
    source.path = folder_.path();
    source.target = &target;
    return source.device == "cpu" ? LoadModel(source) : LoadCudaModel(source);
  }

  // What the head guesses for two sequences, fed with the target's states in chunks and one by one.
  std::vector<std::vector<int32_t>> Guesses(const ModelSource& source) const {
    const std::unique_ptr<Model> target = Target(source);
    DraftHead head(Head(source, *target));
    head.Allocate(kTestPages, kTestRows, 2);
    const std::vector<int32_t> streams = head.info().target_streams;
    std::vector<std::vector<int32_t>> all;
    const auto states = head.model().MakeStateMemory(
        2 * kFed, std::ssize(streams) * target->metadata().hidden_size);
    std::vector<Fed> fed;
    for (int64_t i = 0; i < 2; ++i) fed.push_back(Fed(*target, streams, i, *states));
    for (int step = 0; step < 26; ++step) {
      std::vector<DraftWork> work;
      for (size_t i = 0; i < fed.size(); ++i) {
        const int64_t count = step == 0 ? 9 + 4 * static_cast<int64_t>(i) : step == 3 ? 4 : 2;
        const int64_t length = step == 1 ? 0 : step % 4 == 2 ? 1 + 4 * static_cast<int64_t>(i) : 3;
        work.push_back(fed[i].Next(count, length));
      }
      for (const std::vector<int32_t>& draft : head.Propose(work, *states)) all.push_back(draft);
    }
    return all;
  }

 private:
  static constexpr int32_t kFed = 80;  // tokens of a sequence, which take more than four pages

  // A sequence that the target has computed, and how far the head has read it.
  struct Fed {
    Fed(Model& target, const std::vector<int32_t>& streams, int64_t index, StateMemory& memory)
        : tokens(SomeTokens(kFed, static_cast<int32_t>(index) + 1)), pages(index, 6) {
      TestSequence sequence(index, 6);
      TestBatch batch;
      batch.Add(sequence, tokens);
      std::vector<int32_t> rows;
      for (int32_t row = 0; row < kFed; ++row) {
        rows.push_back(row);
        places.push_back(2 * row + static_cast<int32_t>(index));
      }
      ForwardBatch forward = batch.batch();
      forward.hidden = {.rows = rows, .streams = streams, .memory = &memory, .places = places};
      target.Forward(forward);
    }
    DraftWork Next(int64_t count, int64_t length) {
      const int64_t begin = std::exchange(position, position + count);
      return {.next_tokens = std::span<const int32_t>(tokens).subspan(
                  static_cast<size_t>(begin) + 1, static_cast<size_t>(count)),
              .places = std::span<const int32_t>(places).subspan(static_cast<size_t>(begin),
                                                                 static_cast<size_t>(count)),
              .position = begin,
              .block_table = pages.pages,
              .length = length};
    }

    std::vector<int32_t> tokens;
    TestSequence pages;
    std::vector<int32_t> places;
    int64_t position = 0;
  };

  TinyModel target_;
  testing::TempFolder folder_;
};

TEST(CudaDraftHead, GuessesWhatItGuessesOnTheCpu) {
  const std::pair<const char*, const char*> heads[] = {
      {kEagle3, ""},
      {kEagle3, R"("norm_before_residual": true, "norm_output": true)"},
      {kEagle1, ""}};
  for (const auto& [layer, fields] : heads) {
    TinyDrafting tiny(layer, fields);
    const auto want = tiny.Guesses(tiny.Source("float32", "cpu"));
    EXPECT_EQ(tiny.Guesses(tiny.Source("float32", "cuda:0")), want) << layer << fields;
  }
}

TEST(CudaDraftHead, NeedsATargetOfItsOwnDevice) {
  TinyDrafting tiny(kEagle3);
  const auto on_cpu = tiny.Target(tiny.Source("float32", "cpu"));
  EXPECT_THROW(tiny.Head(tiny.Source("float32", "cuda:0"), *on_cpu), InternalError);
  const auto on_device = tiny.Target(tiny.Source("float32", "cuda:0"));
  EXPECT_THROW(tiny.Head(tiny.Source("float32", "cpu"), *on_device), InvalidConfig);
}

// The answers of requests that share steps, and how many tokens were guessed for them.
std::pair<std::vector<std::vector<int32_t>>, int64_t> AnswersWith(TinyDrafting& tiny,
                                                                  bool has_head) {
  const ModelSource source = tiny.Source("bfloat16", "cuda:0");
  std::unique_ptr<Model> target = LoadCudaModel(source);
  EngineConfig config;
  config.max_num_sequence = 4;
  config.prefill_chunk_size = 16;
  config.max_total_sequence_length = 320;
  config.prefix_cache_mode = PrefixCacheMode::kDisable;
  std::vector<std::vector<int32_t>> answers(3);
  EngineOptions options;
  options.request_stream_callback = [&](const std::vector<RequestStreamOutput>& outputs) {
    for (const RequestStreamOutput& output : outputs) {
      EXPECT_EQ(output.error_message, "");
      for (const SequenceDelta& delta : output.group) {
        std::vector<int32_t>& answer = answers.at(output.request_id.at(0) - '0');
        answer.insert(answer.end(), delta.token_ids.begin(), delta.token_ids.end());
      }
    }
  };
  if (has_head) {
    config.speculative_mode = SpeculativeMode::kEagle3;
    config.spec_draft_length = 2;
    options.make_draft_model = [&, model = target.get()] { return tiny.Head(source, *model); };
  }
  const EngineConfig resolved = ResolveEngineConfig(config, target->metadata(), int64_t{1} << 30);
  const auto engine = Engine::FromModel(std::move(target), resolved, {}, nullptr, options);
  GenerationConfig sampled;
  sampled.temperature = 0.7;
  sampled.seed = 2;
  sampled.max_tokens = 10;
  for (int32_t i = 0; i < 3; ++i) {
    engine->AddRequest(
        engine->CreateRequest(std::to_string(i), {TokenData{SomeTokens(9 + i, i)}}, sampled));
  }
  while (!engine->Empty()) engine->Step();
  engine->AuditPages();
  const auto metrics = nlohmann::json::parse(engine->JSONMetrics());
  if (!has_head) return {answers, 0};
  EXPECT_EQ(metrics.at("spec_decode").at("num_failures"), 0);
  EXPECT_GT(metrics.at("spec_decode").at("num_steps_ahead"), 2);
  return {answers, metrics.at("spec_decode").at("num_draft_tokens")};
}

TEST(CudaDraftHead, DoesNotChangeAnswers) {
  TinyDrafting tiny(kEagle3);
  const auto [got, num_guesses] = AnswersWith(tiny, true);
  EXPECT_GT(num_guesses, 20);
  EXPECT_EQ(got, AnswersWith(tiny, false).first);
}

}  // namespace
}  // namespace mlc_native
