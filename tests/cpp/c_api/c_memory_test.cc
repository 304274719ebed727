// Outputs on their way to the host arrive, each once and in order, whatever allocation fails there,
// and no request reaches a model that it was not made for.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "c_api/harness.h"
#include "mlc_native/mlc_native.h"
#include "testing/allocations.h"

namespace mlc_native::testing {
namespace {

constexpr const char* kRich =
    "{\"temperature\": 2, \"seed\": 7, \"max_tokens\": 20, \"n\": 2, \"logprobs\": true, "
    "\"top_logprobs\": 2}";

// What a request gets whose callbacks let an allocation of the thread that delivers fail.
struct Scarce {
  int64_t countdown = 0;  // 0: none fails
  int num_failed = 0;
  int num_finals = 0;
  std::map<int32_t, std::vector<int32_t>> tokens;  // by the index of the answer
  std::map<int32_t, std::vector<int32_t>> scored;  // the tokens of the logprobs

  static void Add(const mlcn_output* output) {
    auto& self = *static_cast<Scarce*>(output->user_data);
    if (self.countdown > 0) self.num_failed += FailAllocation(-1);
    std::vector<int32_t>& tokens = self.tokens[output->index];
    tokens.insert(tokens.end(), output->tokens, output->tokens + output->num_tokens);
    if (const mlcn_logprobs* scores = output->logprobs; scores != nullptr) {
      std::vector<int32_t>& scored = self.scored[output->index];
      scored.insert(scored.end(), scores->tokens, scores->tokens + scores->count);
    }
    self.num_finals += output->is_final;
    if (self.countdown > 0) FailAllocation(output->is_final != 0 ? -1 : self.countdown);
  }
};

// Takes the outputs of a request without a callback until the last one.
Scarce PollAll(mlcn_engine* engine) {
  Scarce polled;
  while (polled.num_finals == 0) {
    mlcn_outputs* outputs = nullptr;
    EXPECT_EQ(mlcn_poll(engine, 3, MLCN_FOREVER, &outputs, nullptr), MLCN_OK);
    for (size_t i = 0; i < mlcn_outputs_count(outputs); ++i) {
      mlcn_output output = *mlcn_outputs_at(outputs, i);
      output.user_data = &polled;
      Scarce::Add(&output);
    }
    mlcn_outputs_release(outputs);
  }
  return polled;
}

// What a request with callbacks gets, and, with `polls`, another one whose outputs are on the way
// with those of the first.
std::vector<Scarce> Ask(const HostedEngine& engine, int64_t countdown, bool polls) {
  std::vector<Scarce> got(1);
  got[0].countdown = countdown;
  mlcn_submit_options options = OptionsFor(nullptr, kPrompt);
  options.on_output = Scarce::Add;
  options.user_data = &got[0];
  mlcn_request* request = engine.Submit(kRich, options);
  options.on_output = nullptr;
  mlcn_request* other = polls ? engine.Submit(kRich, options) : nullptr;
  EXPECT_EQ(mlcn_request_wait(request, MLCN_FOREVER, nullptr), MLCN_OK);
  if (polls) got.push_back(PollAll(engine));
  mlcn_request_release(request);
  mlcn_request_release(other);
  return got;
}

TEST(CMemory, OutputsArriveWhateverAllocationFails) {
  // A step takes a while, so that its outputs are on their way alone.
  const HostedEngine engine(R"({"us_per_step": 300, "cost": "sleep"})");
  const Scarce expected = Ask(engine, 0, /*polls=*/false).front();
  EXPECT_EQ(expected.tokens.at(0).size(), 20u);
  EXPECT_NE(expected.tokens.at(0), expected.tokens.at(1));
  EXPECT_EQ(expected.scored.at(0), expected.tokens.at(0));
  EXPECT_EQ(expected.scored.at(1), expected.tokens.at(1));
  int num_failed = 0;
  for (const bool polls : {false, true}) {
    for (int64_t k = 1; k <= 40; ++k) {
      const std::vector<Scarce> got = Ask(engine, k, polls);
      for (const Scarce& scarce : got) {
        EXPECT_EQ(scarce.tokens, expected.tokens) << k << polls;
        EXPECT_EQ(scarce.scored, expected.scored) << k << polls;
        EXPECT_EQ(scarce.num_finals, 1) << k << polls;
      }
      num_failed += got[0].num_failed - 1;  // the first callback finds no failure set
    }
  }
  EXPECT_GT(num_failed, 50);  // of about 500: the failures reach the library
}

// The size of the vocabulary of what is loaded; 0: nothing is.
int64_t LoadedVocabulary(mlcn_engine* engine) {
  char* json = nullptr;
  if (mlcn_engine_info(engine, &json, nullptr, nullptr) != MLCN_OK) return 0;
  const int64_t size = nlohmann::json::parse(json)["vocab_size"];
  mlcn_free(json);
  return size;
}

TEST(CMemory, AReloadThatFailsLeavesTheModelThatRequestsAreMadeFor) {
  const HostedEngine engine("{\"vocab_size\": 300}");
  const HostedEngine other("{\"vocab_size\": 200}");
  const auto reload = [&](const std::string& path) {
    return mlcn_engine_reload(engine, path.c_str(), engine.config(), nullptr);
  };
  const std::string path = engine.path(), other_path = other.path();
  bool has_failed = true;
  int64_t k = 1;
  for (; has_failed && !HasFailure(); k += 3) {
    ASSERT_EQ(reload(path), MLCN_OK);
    FailAllocation(k);
    const int32_t code = reload(other_path);
    has_failed = FailAllocation(-1);
    const int64_t size = LoadedVocabulary(engine);
    if (code == MLCN_OK) EXPECT_EQ(size, 200) << k;
    if (size == 0) continue;
    mlcn_submit_options options = OptionsFor(nullptr, {});
    const std::vector<int32_t> prompt = {1, 250};
    options.tokens = prompt.data();
    options.num_tokens = prompt.size();
    options.on_output = [](const mlcn_output*) {};
    const std::string body = "{\"max_tokens\": 1}";
    mlcn_request* request = nullptr;
    const int32_t submitted =
        mlcn_submit(engine, body.c_str(), body.size(), &options, &request, nullptr);
    EXPECT_EQ(submitted, size == 300 ? MLCN_OK : MLCN_INVALID_REQUEST) << k << ' ' << size;
    mlcn_request_release(request);
  }
  EXPECT_GT(k, 30) << "the scenario is too small";
}

}  // namespace
}  // namespace mlc_native::testing
