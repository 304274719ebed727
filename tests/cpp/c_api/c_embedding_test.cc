// Embeddings through the C API: which outputs have them, what else their requests take, and what is
// refused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "c_api/harness.h"
#include "mlc_native/mlc_native.h"

namespace mlc_native::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr const char* kGivesStates = "{\"gives_states\": true}";
// A hidden state of the fake model: the token, the number of the stream behind the final norm, and
// a hash of the tokens so far.
constexpr float kStream = 2;
constexpr const char* kPlain = "{\"input\": [1, 2, 3, 4, 5], \"normalize\": false}";

// What the outputs of requests have of embeddings.
struct EmbeddingSeen {
  std::vector<float> embedding;
  std::vector<int32_t> reasons;  // of all outputs
  std::vector<int32_t> indices;
  size_t num_embeddings = 0;
  size_t num_texts = 0;
  int64_t prompt_tokens = -1;
  int64_t completion_tokens = -1;
  int64_t cached_tokens = -1;
  uint32_t size = 0;

  void Add(const mlcn_output& output) {
    size = output.size;
    reasons.push_back(output.finish_reason);
    indices.push_back(output.index);
    num_texts += output.text_length > 0 || output.num_tokens > 0;
    EXPECT_EQ(output.embedding != nullptr, output.embedding_size > 0);
    if (output.embedding != nullptr) {
      ++num_embeddings;
      embedding.assign(output.embedding, output.embedding + output.embedding_size);
      EXPECT_EQ(output.finish_reason, MLCN_FINISH_STOP);
      EXPECT_EQ(output.is_final, 0);
    }
    if (output.usage == nullptr) return;
    prompt_tokens = output.usage->prompt_tokens;
    completion_tokens = output.usage->completion_tokens;
    cached_tokens = output.usage->cached_tokens;
  }
};

mlcn_submit_options Calling(EmbeddingSeen* seen) {
  mlcn_submit_options options = MLCN_SUBMIT_OPTIONS_INIT;
  options.user_data = seen;
  options.on_output = [](const mlcn_output* output) {
    static_cast<EmbeddingSeen*>(output->user_data)->Add(*output);
  };
  return options;
}

EmbeddingSeen Embedded(const HostedEngine& engine, const std::string& body) {
  EmbeddingSeen seen;
  mlcn_request* request = engine.Submit(body, Calling(&seen));
  EXPECT_EQ(mlcn_request_wait(request, MLCN_FOREVER, nullptr), MLCN_OK);
  mlcn_request_release(request);
  return seen;
}

Outcome Refused(const HostedEngine& engine, const std::string& body,
                mlcn_submit_options options = MLCN_SUBMIT_OPTIONS_INIT) {
  mlcn_request* request = nullptr;
  const Outcome outcome = OutcomeOf([&](mlcn_error** e) {
    return mlcn_submit(engine, body.c_str(), body.size(), &options, &request, e);
  });
  EXPECT_EQ(request, nullptr);
  return outcome;
}

TEST(CApiEmbedding, ComesOnceBeforeTheFinalOutput) {
  const HostedEngine engine(kGivesStates);
  const EmbeddingSeen seen = Embedded(engine, kPlain);
  ASSERT_EQ(seen.embedding.size(), 3u);
  EXPECT_EQ(seen.embedding[0], 5);
  EXPECT_EQ(seen.embedding[1], kStream);
  EXPECT_EQ(seen.num_embeddings, 1u);
  EXPECT_EQ(seen.num_texts, 0u);
  EXPECT_EQ(seen.size, sizeof(mlcn_output));
  EXPECT_THAT(seen.reasons, ElementsAre(MLCN_FINISH_STOP, MLCN_FINISH_NONE));
  EXPECT_THAT(seen.indices, ElementsAre(0, -1));
  EXPECT_EQ(seen.prompt_tokens, 5);
  EXPECT_EQ(seen.completion_tokens, 0);
}

TEST(CApiEmbedding, IsPooledCutAndNormalizedAsAskedFor) {
  const HostedEngine engine(kGivesStates);
  const auto embedding = [&](const std::string& fields) {
    return Embedded(engine, "{\"input\": [1, 2, 3, 4, 5], " + fields + '}').embedding;
  };
  EXPECT_THAT(embedding("\"normalize\": false, \"dimensions\": 2"), ElementsAre(5, kStream));
  EXPECT_THAT(embedding("\"normalize\": false, \"dimensions\": 2, \"pooling\": \"last\""),
              ElementsAre(5, kStream));
  EXPECT_THAT(embedding("\"normalize\": false, \"dimensions\": 2, \"pooling\": \"mean\""),
              ElementsAre(3, kStream));
  const float length = std::hypot(5.0f, kStream);
  for (const char* fields : {"\"dimensions\": 2", "\"dimensions\": 2, \"normalize\": true"}) {
    const std::vector<float> unit = embedding(fields);
    ASSERT_EQ(unit.size(), 2u);
    EXPECT_FLOAT_EQ(unit[0], 5 / length);
    EXPECT_FLOAT_EQ(unit[1], kStream / length);
  }
}

// A polled output lives as long as its batch, whatever comes behind it.
TEST(CApiEmbedding, IsTheSameWhenItIsPolled) {
  const HostedEngine engine(kGivesStates);
  const std::vector<float> expected = Embedded(engine, kPlain).embedding;
  constexpr size_t kRequests = 5;
  for (size_t i = 0; i < kRequests; ++i) {
    mlcn_request* request = engine.Submit(kPlain, MLCN_SUBMIT_OPTIONS_INIT);
    EXPECT_EQ(mlcn_request_wait(request, MLCN_FOREVER, nullptr), MLCN_OK);
    mlcn_request_release(request);
  }
  std::vector<mlcn_outputs*> batches;
  for (size_t finals = 0; finals < kRequests;) {
    ASSERT_EQ(mlcn_poll(engine, 3, 0, &batches.emplace_back(), nullptr), MLCN_OK);
    ASSERT_GE(mlcn_outputs_count(batches.back()), 1u) << "outputs are lost";
    for (size_t i = 0; i < mlcn_outputs_count(batches.back()); ++i) {
      finals += mlcn_outputs_at(batches.back(), i)->is_final;
    }
  }
  EmbeddingSeen all;
  for (mlcn_outputs* batch : batches) {
    for (size_t i = 0; i < mlcn_outputs_count(batch); ++i) {
      const size_t before = all.num_embeddings;
      all.Add(*mlcn_outputs_at(batch, i));
      if (all.num_embeddings > before) EXPECT_EQ(all.embedding, expected);
    }
    mlcn_outputs_release(batch);
  }
  EXPECT_EQ(all.num_embeddings, kRequests);
}

TEST(CApiEmbedding, AnswersHaveNone) {
  const HostedEngine engine(kGivesStates);
  const EmbeddingSeen seen =
      Embedded(engine, "{\"prompt\": [1, 2], \"max_tokens\": 3, \"temperature\": 0}");
  EXPECT_EQ(seen.num_embeddings, 0u);
  EXPECT_EQ(seen.completion_tokens, 3);
}

// It would take 250 steps.
TEST(CApiEmbedding, ThatEndsEarlyHasNone) {
  const HostedEngine engine(
      "{\"gives_states\": true, \"prefill_chunk_size\": 16, \"us_per_step\": 5000, \"cost\": "
      "\"sleep\"}");
  std::string tokens = "1";
  for (int i = 1; i < 4000; ++i) tokens += ", 1";
  const std::string body = "{\"input\": [" + tokens + ']';
  const EmbeddingSeen late = Embedded(engine, body + ", \"timeout_s\": 1e-9}");
  EXPECT_EQ(late.num_embeddings, 0u);
  EXPECT_THAT(late.reasons, ElementsAre(MLCN_FINISH_TIMEOUT, MLCN_FINISH_NONE));
  EmbeddingSeen cancelled;
  mlcn_request* request = engine.Submit(body + '}', Calling(&cancelled));
  mlcn_request_cancel(request);
  EXPECT_EQ(mlcn_request_wait(request, MLCN_FOREVER, nullptr), MLCN_OK);
  mlcn_request_release(request);
  EXPECT_EQ(cancelled.num_embeddings, 0u);
  EXPECT_THAT(cancelled.reasons, ElementsAre(MLCN_FINISH_ABORT, MLCN_FINISH_NONE));
}

TEST(CApiEmbedding, OfStatesThatAreNoNumbersIsAnError) {
  const HostedEngine engine("{\"gives_states\": true, \"nan_token\": 7}");
  struct Seen {
    std::string message;
    size_t num_embeddings = 0;
  } seen;
  mlcn_submit_options options = MLCN_SUBMIT_OPTIONS_INIT;
  options.user_data = &seen;
  options.on_output = [](const mlcn_output* output) {
    auto& result = *static_cast<Seen*>(output->user_data);
    result.message += output->error_message;
    result.num_embeddings += output->embedding != nullptr;
  };
  mlcn_request* request = engine.Submit("{\"input\": [1, 7]}", options);
  EXPECT_EQ(mlcn_request_wait(request, MLCN_FOREVER, nullptr), MLCN_OK);
  mlcn_request_release(request);
  EXPECT_THAT(seen.message, HasSubstr("not finite"));
  EXPECT_EQ(seen.num_embeddings, 0u);
}

TEST(CApiEmbedding, HasTheFieldsOfTheService) {
  const HostedEngine engine(kGivesStates);
  const EmbeddingSeen cut = Embedded(
      engine,
      "{\"input\": [1, 2, 3, 4, 5], \"truncate_prompt_tokens\": 2, \"pooling\": \"mean\","
      " \"normalize\": false, \"dimensions\": 1, \"priority\": \"high\", \"queue_timeout_s\": 60,"
      " \"timeout_s\": 60, \"adapter\": \"\", \"model\": \"any\", \"user\": \"any\","
      " \"add_special_tokens\": false}");
  EXPECT_THAT(cut.embedding, ElementsAre(4.5));
  EXPECT_EQ(cut.prompt_tokens, 2);
}

TEST(CApiEmbedding, FindsOnlyWhatTheCacheHasOfItsSalt) {
  const HostedEngine engine(kGivesStates);
  std::string input = "{\"input\": [1";
  for (int i = 2; i <= 100; ++i) input += ", " + std::to_string(i);
  input += ']';
  const auto cached = [&](const std::string& more) {
    return Embedded(engine, input + more + '}').cached_tokens;
  };
  EXPECT_EQ(cached(", \"cache_salt\": \"a\""), 0);
  EXPECT_EQ(cached(", \"cache_salt\": \"b\""), 0);
  EXPECT_EQ(cached(""), 0);
  EXPECT_EQ(cached(", \"cache_salt\": \"a\""), 99);
}

// ---- what is refused

struct BadEmbedding {
  const char* fields;
  const char* field;
  const char* said;
};

class BadEmbeddings : public ::testing::TestWithParam<BadEmbedding> {};

TEST_P(BadEmbeddings, AreRefusedByField) {
  const HostedEngine engine(kGivesStates);
  const BadEmbedding& bad = GetParam();
  const Outcome outcome = Refused(engine, std::string("{\"input\": ") + bad.fields + '}');
  EXPECT_EQ(outcome.code, MLCN_INVALID_REQUEST);
  EXPECT_EQ(outcome.field, bad.field) << outcome.message;
  EXPECT_THAT(outcome.message, HasSubstr(bad.said));
}

INSTANTIATE_TEST_SUITE_P(
    CApiEmbedding, BadEmbeddings,
    ::testing::Values(
        BadEmbedding{"[]", "input", "at least 1 token"},
        BadEmbedding{"[\"a\", \"b\"]", "input", "a request of its own"},
        BadEmbedding{"[[1], [2]]", "input", "a request of its own"},
        BadEmbedding{"5", "input", "got 5"}, BadEmbedding{"[-1]", "input", "token ids"},
        BadEmbedding{"[256]", "input", "[0, 256)"},
        BadEmbedding{"\"text\"", "input", "tokenizer.json"},
        BadEmbedding{"[1], \"pooling\": \"max\"", "pooling", "\"mean\" or \"cls\", got \"max\""},
        BadEmbedding{"[1], \"pooling\": 1", "pooling", "\"last\", \"mean\" or \"cls\""},
        BadEmbedding{"[1], \"pooling\": \"cls\"", "pooling", "attend in both directions"},
        BadEmbedding{"[1], \"second_text\": -1", "second_text", "[0, 1]"},
        BadEmbedding{"[1], \"second_text\": 2", "second_text", "[0, 1]"},
        BadEmbedding{"[1], \"second_text\": \"1\"", "second_text", "integer"},
        BadEmbedding{"[1], \"dimensions\": 0", "dimensions", "[1, 3]"},
        BadEmbedding{"[1], \"dimensions\": 4", "dimensions", "[1, 3]"},
        BadEmbedding{"[1], \"dimensions\": 1.5", "dimensions", "integer"},
        BadEmbedding{"[1], \"normalize\": 1", "normalize", "got 1"},
        BadEmbedding{"[1], \"add_special_tokens\": 1", "add_special_tokens", "got 1"},
        BadEmbedding{"[1], \"prompt\": [1]", "prompt", "which asks for an embedding"},
        BadEmbedding{"[1], \"messages\": []", "messages", "which asks for an embedding"},
        BadEmbedding{"[1], \"max_tokens\": 1", "max_tokens", "which asks for an embedding"},
        BadEmbedding{"[1], \"temperature\": 0", "temperature", "which asks for an embedding"},
        BadEmbedding{"[1], \"speculative\": true", "speculative", "which asks for an embedding"},
        BadEmbedding{"[1], \"prompt_name\": \"query\"", "prompt_name", "asks for an embedding"},
        BadEmbedding{"[1], \"dimension\": 1", "dimension", "did you mean \"dimensions\""},
        BadEmbedding{"[1], \"truncate_prompt_tokens\": 0", "truncate_prompt_tokens", "got 0"},
        BadEmbedding{"[1], \"priority\": \"x\"", "priority", "\"high\""},
        BadEmbedding{"[1], \"queue_timeout_s\": 0", "queue_timeout_s", "got 0"},
        BadEmbedding{"[1], \"timeout_s\": -1", "timeout_s", "got -1"},
        BadEmbedding{"[1], \"cache_salt\": \"\"", "cache_salt", "not empty"},
        BadEmbedding{"[1], \"adapter\": \"none\"", "adapter", "none"},
        BadEmbedding{"null", "prompt", "exactly one"},
        BadEmbedding{"null, \"prompt\": [1], \"pooling\": \"last\"", "pooling", "Unknown field"}));

TEST(CApiEmbedding, TakesNoTokensOfTheOptions) {
  const HostedEngine engine(kGivesStates);
  mlcn_submit_options options = MLCN_SUBMIT_OPTIONS_INIT;
  options.tokens = kPrompt.data();
  options.num_tokens = kPrompt.size();
  const Outcome outcome = Refused(engine, kPlain, options);
  EXPECT_EQ(outcome.code, MLCN_INVALID_REQUEST);
  EXPECT_EQ(outcome.field, "tokens");
}

// ---- models

std::string InfoOf(const HostedEngine& engine) {
  char* json = nullptr;
  EXPECT_EQ(mlcn_engine_info(engine, &json, nullptr, nullptr), MLCN_OK);
  const std::string info(json);
  mlcn_free(json);
  return info;
}

TEST(CApiEmbedding, TheInfoSaysWhatTheModelGives) {
  EXPECT_THAT(
      InfoOf(HostedEngine(kGivesStates)),
      HasSubstr("\"generates\":true,\"embedding_size\":3,\"num_classes\":0,\"pooling\":\"last\","
                "\"normalize\":true"));
  EXPECT_THAT(InfoOf(HostedEngine()), HasSubstr("\"generates\":true,\"embedding_size\":0"));
}

TEST(CApiEmbedding, AModelWithoutHiddenStatesHasNone) {
  const Outcome outcome = Refused(HostedEngine(), kPlain);
  EXPECT_EQ(outcome.code, MLCN_INVALID_REQUEST);
  EXPECT_EQ(outcome.field, "model");
}

TEST(CApiEmbedding, AModelWithoutAHeadAnswersNothingElse) {
  const HostedEngine engine("{\"gives_states\": true, \"has_head\": false}");
  EXPECT_THAT(InfoOf(engine), HasSubstr("\"generates\":false,\"embedding_size\":3"));
  const Outcome outcome = Refused(engine, "{\"prompt\": [1], \"max_tokens\": 1}");
  EXPECT_EQ(outcome.code, MLCN_INVALID_REQUEST);
  EXPECT_EQ(outcome.field, "model");
  EXPECT_THAT(outcome.message, HasSubstr("embeds texts"));
  EXPECT_EQ(Embedded(engine, kPlain).embedding.at(0), 5);
}

}  // namespace
}  // namespace mlc_native::testing
