// Running sequences with several tokens to compute: chunks, pages, preemption and failing forwards
// never change what comes after them.
#include <gtest/gtest.h>

#include <vector>

#include "step/step_bench.h"

namespace mlc_native::testing {
namespace {

TEST(DecodeTails, OneForwardComputesThem) {
  StepBench bench(16, 64);
  RequestStateEntry& a = bench.Add("a", Prompt(20));
  bench.Step();
  StepBench::Force(a, Prompt(30, 1));
  const int64_t num_forwards = bench.model().num_forwards();
  bench.Step();
  EXPECT_EQ(a.tokens.size(), 20 + 1 + 30 + 1);
  EXPECT_EQ(bench.model().num_forwards(), num_forwards + 1);
  bench.ExpectLastToken(a);
}

TEST(DecodeTails, ChunksDoNotChangeTokens) {
  for (int64_t chunk = 4; chunk < 40; ++chunk) {
    SCOPED_TRACE(chunk);
    StepBench bench(16, chunk);
    RequestStateEntry& a = bench.Add("a", Prompt(5));
    RequestStateEntry& b = bench.Add("b", Prompt(3, 1));
    bench.StepUntilComputed(b);
    StepBench::Force(a, Prompt(30, 2));
    StepBench::Force(b, Prompt(17, 3));
    bench.StepUntilComputed(b);
    EXPECT_EQ(a.num_tokens_to_compute(), 1) << "first come, first served";
    bench.ExpectLastToken(a);
    bench.ExpectLastToken(b);
  }
}

TEST(DecodeTails, NeighboursAdvanceEveryStep) {
  StepBench bench(16, 4);
  RequestStateEntry& a = bench.Add("a", Prompt(2));
  RequestStateEntry& b = bench.Add("b", Prompt(2, 1));
  bench.StepUntilComputed(b);
  StepBench::Force(a, Prompt(12, 2));
  const size_t num_tokens = b.tokens.size();
  bench.StepUntilComputed(a);
  EXPECT_EQ(b.tokens.size(), num_tokens + 5) << "13 tokens of a by three and one of b, five times";
  bench.ExpectLastToken(b);
}

TEST(DecodeTails, PreemptionMakesRoomForThem) {
  StepBench bench(6, 64);
  RequestStateEntry& a = bench.Add("a", Prompt(15));
  RequestStateEntry& b = bench.Add("b", Prompt(15, 1));
  bench.StepUntilComputed(b);
  StepBench::Force(a, Prompt(70, 2));  // 86 of the 96 tokens that there is room for
  bench.StepUntilComputed(a);
  bench.ExpectLastToken(a);
  EXPECT_EQ(bench.metrics().num_preemptions, 1);
  EXPECT_EQ(b.status, RequestStateStatus::kPending);
}

TEST(DecodeTails, AFailingNeighbourLeavesThemUntouched) {
  FakeModelOptions model;
  model.poison_token = 255;
  StepBench bench(16, 8, model);
  RequestStateEntry& a = bench.Add("a", Prompt(2));
  RequestStateEntry& b = bench.Add("b", Prompt(2, 1));
  bench.StepUntilComputed(b);
  StepBench::Force(a, Prompt(20, 2));
  StepBench::Force(b, {255});
  bench.StepUntilComputed(a);
  bench.ExpectLastToken(a);
  EXPECT_EQ(bench.metrics().num_errors, 1);
  EXPECT_FALSE(a.finish_reason.has_value());
}

}  // namespace
}  // namespace mlc_native::testing
