#include "weights/tensor_storage.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>

#include "kernels/kernels.h"
#include "support/error.h"

namespace mlc_native {
namespace {

TEST(TensorStorage, IsAlignedForKernels) {
  for (const size_t bytes : {size_t{1}, size_t{100}, size_t{3} << 20}) {
    const TensorStorage storage(bytes, "workspace");
    EXPECT_EQ(storage.size(), bytes);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(storage.data()) % kernels::kPackedAlignment, 0u);
    std::memset(storage.data(), 1, bytes);
  }
  EXPECT_EQ(TensorStorage(0, "workspace").data(), nullptr);
}

TEST(TensorStorage, NamesTheFieldAndTheBytesThatAreMissing) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "sanitizers end the process instead of refusing the allocation";
#endif
  try {
    const TensorStorage storage(size_t{1} << 60, "max_total_sequence_length");
    FAIL() << "2^60 bytes were allocated";
  } catch (const InvalidConfig& error) {
    EXPECT_EQ(error.field(), "max_total_sequence_length");
    EXPECT_THAT(error.what(), ::testing::HasSubstr("needs 1152921504606846976 bytes"));
  }
}

}  // namespace
}  // namespace mlc_native
