#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/kernels.h"
#include "kernels/processor.h"
#include "support/error.h"

namespace mlc_native::kernels {
namespace {

// Sets MLC_NATIVE_ISA for a scope.
class ForcedIsa {
 public:
  explicit ForcedIsa(const char* name) { setenv("MLC_NATIVE_ISA", name, 1); }
  ~ForcedIsa() { unsetenv("MLC_NATIVE_ISA"); }
};

TEST(DispatchTest, PortableIsAlwaysThereAndLast) {
  ASSERT_FALSE(AvailableIsas().empty());
  EXPECT_EQ(AvailableIsas().back(), "portable");
}

TEST(DispatchTest, TheBestIsTheDefault) {
  EXPECT_EQ(IsaName(SelectCpuKernels()), AvailableIsas().front());
}

TEST(DispatchTest, TheEnvironmentForcesEachThatThisMachineHas) {
  for (std::string_view name : AvailableIsas()) {
    const ForcedIsa forced(std::string(name).c_str());
    EXPECT_EQ(IsaName(SelectCpuKernels()), name);
  }
}

TEST(DispatchTest, AnEmptyNameForcesNothing) {
  const ForcedIsa forced("");
  EXPECT_EQ(IsaName(SelectCpuKernels()), AvailableIsas().front());
}

// Those of the other architecture at least.
TEST(DispatchTest, WhatThisMachineLacksIsRefused) {
  const std::vector<std::string_view> available = AvailableIsas();
  for (const char* name : {"avx2", "avx2_vnni", "avx512", "avx512_vnni", "avx512_bf16",
                           "avx512_amx", "neon", "neon_dotprod", "neon_bf16", "neon_i8mm"}) {
    if (std::ranges::find(available, name) != available.end()) continue;
    const ForcedIsa forced(name);
    EXPECT_THROW(SelectCpuKernels(), InvalidConfig) << name;
  }
}

TEST(DispatchTest, FloatsGoInFrontOfSlowPairs) {
  const std::vector<std::string_view> names = AvailableIsas();
  const auto place = [&](std::string_view name) { return std::ranges::find(names, name); };
  if (place("avx512_bf16") == names.end()) GTEST_SKIP() << "this machine has no such pairs";
  EXPECT_EQ(place("avx512_vnni") < place("avx512_bf16"), MultipliesPairsSlowly(ThisProcessor()));
}

TEST(DispatchTest, SlowPairsAreThoseOfIntelsProcessorsWithTiles) {
  for (const unsigned int model : {143U, 207U, 173U}) {  // Sapphire, Emerald and Granite Rapids
    EXPECT_TRUE(MultipliesPairsSlowly({"GenuineIntel", 6, model})) << model;
  }
  EXPECT_FALSE(MultipliesPairsSlowly({"GenuineIntel", 6, 85}));   // Cooper Lake
  EXPECT_FALSE(MultipliesPairsSlowly({"AuthenticAMD", 25, 17}));  // Zen 4
  EXPECT_FALSE(MultipliesPairsSlowly({"AuthenticAMD", 26, 2}));   // Zen 5
  EXPECT_FALSE(MultipliesPairsSlowly({}));
}

TEST(DispatchTest, AnUnknownNameNamesWhatThereIs) {
  const ForcedIsa forced("avx3");
  try {
    SelectCpuKernels();
    FAIL() << "accepted";
  } catch (const InvalidConfig& error) {
    EXPECT_EQ(error.field(), "MLC_NATIVE_ISA");
    EXPECT_THAT(error.what(), testing::HasSubstr("portable"));
    EXPECT_THAT(error.what(), testing::HasSubstr("avx3"));
  }
}

}  // namespace
}  // namespace mlc_native::kernels
