// A few seeds of the simulation with every run of the tests; mlc_native_sim runs as many as you
// like.
#include "sim/simulation.h"

#include <gtest/gtest.h>

namespace mlc_native::sim {
namespace {

TEST(Simulation, Seeds) {
  SimResult sum;
  for (uint64_t seed = 1; seed <= 150; ++seed) {
    const SimResult result = Simulate(seed, AllFeatures(), false);
    ASSERT_EQ(result.failure, "") << "replay: mlc_native_sim --seed " << seed << " --trace";
    sum.num_requests += result.num_requests;
    sum.num_tokens += result.num_tokens;
    sum.num_injected += result.num_injected;
    sum.num_jumped += result.num_jumped;
    sum.num_drafted += result.num_drafted;
    sum.num_slow += result.num_slow;
    sum.num_embedded += result.num_embedded;
    sum.num_with_rows += result.num_with_rows;
  }
  // What simulations are made of happened.
  EXPECT_GT(sum.num_requests, 1000);
  EXPECT_GT(sum.num_tokens, 10000);
  EXPECT_GT(sum.num_injected, 100);
  EXPECT_GT(sum.num_jumped, 100);
  EXPECT_GT(sum.num_drafted, 1000);
  EXPECT_GT(sum.num_slow, 50);
  EXPECT_GT(sum.num_embedded, 500);
  EXPECT_GT(sum.num_with_rows, 500);
}

TEST(Simulation, ASeedIsAHistory) {
  for (uint64_t seed = 1; seed <= 5; ++seed) {
    const SimResult first = Simulate(seed, AllFeatures(), false);
    EXPECT_EQ(first.digest, Simulate(seed, AllFeatures(), false).digest) << seed;
    EXPECT_NE(first.digest, Simulate(seed + 5, AllFeatures(), false).digest) << seed;
  }
}

TEST(Scenario, AFeatureThatIsNotAllowedChangesNoOther) {
  FeatureSet some = AllFeatures();
  some[static_cast<size_t>(Feature::kAborts)] = false;
  for (uint64_t seed = 1; seed <= 50; ++seed) {
    const Scenario all = DrawScenario(seed, AllFeatures());
    const Scenario without = DrawScenario(seed, some);
    EXPECT_FALSE(without.has(Feature::kAborts));
    for (size_t i = 0; i < kNumFeatures; ++i) {
      if (static_cast<Feature>(i) == Feature::kAborts) continue;
      EXPECT_EQ(all.rates[i], without.rates[i]) << NameOf(static_cast<Feature>(i));
    }
    EXPECT_EQ(all.config.AsJSONString(), without.config.AsJSONString());
  }
}

}  // namespace
}  // namespace mlc_native::sim
