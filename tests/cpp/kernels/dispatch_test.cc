#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

#include "kernels/kernels.h"
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

TEST(DispatchTest, TheEnvironmentForcesOne) {
  const ForcedIsa forced("portable");
  EXPECT_EQ(IsaName(SelectCpuKernels()), "portable");
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
