#include "kernels/cuda/architectures.h"

#include <gtest/gtest.h>

namespace mlc_native::kernels::cuda {
namespace {

TEST(CudaArchitectures, NewerGpusRunCodeForOlderOnes) {
  EXPECT_TRUE(CanRun(80, 800));
  EXPECT_TRUE(CanRun(89, 800));
  EXPECT_TRUE(CanRun(120, 1000));
  EXPECT_FALSE(CanRun(80, 890));
  EXPECT_FALSE(CanRun(90, 1000));
}

// A GPU of compute capability 10.0 is left with the code for 8.0, which has no clusters.
TEST(CudaArchitectures, CodeFor90aIsForNoNewerGpu) {
  EXPECT_TRUE(HasWaits({800, 900}, 90));
  EXPECT_FALSE(HasWaits({800, 900}, 100));
  EXPECT_FALSE(HasWaits({800, 900}, 120));
  EXPECT_TRUE(HasWaits({800, 900, 1000}, 100));
  EXPECT_TRUE(HasWaits({800, 900, 1000}, 120));
}

TEST(CudaArchitectures, OlderGpusHaveNoWaits) {
  EXPECT_FALSE(HasWaits({800, 900, 1000}, 80));
  EXPECT_FALSE(HasWaits({800, 900, 1000}, 89));
  EXPECT_FALSE(HasWaits({800, 900}, 0));  // where launches are not dependent
}

}  // namespace
}  // namespace mlc_native::kernels::cuda
