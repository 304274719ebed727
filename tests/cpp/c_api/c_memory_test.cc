// Outputs on their way to the host arrive, each once and in order, whatever allocation fails there.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <map>
#include <vector>

#include "c_api/harness.h"
#include "mlc_native/mlc_native.h"
#include "testing/allocations.h"

namespace mlc_native::testing {
namespace {

constexpr const char* kRich =
    "{\"temperature\": 0, \"max_tokens\": 20, \"n\": 2, \"logprobs\": true, \"top_logprobs\": 2}";

// What a request gets whose callbacks let an allocation of the thread that delivers fail.
struct Scarce {
  int64_t countdown = 0;  // 0: none fails
  int num_failed = 0;
  int num_finals = 0;
  std::map<int32_t, std::vector<int32_t>> tokens;  // by the index of the answer
  size_t num_logprobs = 0;

  static void Add(const mlcn_output* output) {
    auto& self = *static_cast<Scarce*>(output->user_data);
    if (self.countdown > 0) self.num_failed += FailAllocation(-1);
    std::vector<int32_t>& tokens = self.tokens[output->index];
    tokens.insert(tokens.end(), output->tokens, output->tokens + output->num_tokens);
    if (output->logprobs != nullptr) self.num_logprobs += output->logprobs->count;
    self.num_finals += output->is_final;
    if (self.countdown > 0) FailAllocation(output->is_final != 0 ? -1 : self.countdown);
  }
};

Scarce Ask(const HostedEngine& engine, int64_t countdown) {
  Scarce scarce;
  scarce.countdown = countdown;
  mlcn_submit_options options = OptionsFor(nullptr, kPrompt);
  options.on_output = Scarce::Add;
  options.user_data = &scarce;
  mlcn_request* request = engine.Submit(kRich, options);
  EXPECT_EQ(mlcn_request_wait(request, MLCN_FOREVER, nullptr), MLCN_OK);
  mlcn_request_release(request);
  return scarce;
}

TEST(CMemory, OutputsArriveWhateverAllocationFails) {
  const HostedEngine engine;
  const Scarce expected = Ask(engine, 0);
  EXPECT_EQ(expected.tokens.at(0).size(), 20u);
  for (int64_t k = 1; k <= 40; ++k) {
    const Scarce scarce = Ask(engine, k);
    EXPECT_EQ(scarce.tokens, expected.tokens) << k;
    EXPECT_EQ(scarce.num_logprobs, expected.num_logprobs) << k;
    EXPECT_EQ(scarce.num_finals, 1) << k;
    EXPECT_TRUE(k > 1 || scarce.num_failed > 20);  // the failures reach the library
  }
}

}  // namespace
}  // namespace mlc_native::testing
