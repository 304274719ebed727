#include "mlc_native/data.h"

#include <gtest/gtest.h>

namespace mlc_native {
namespace {

TEST(FinishReason, NamesAreThoseOfTheProtocol) {
  EXPECT_STREQ(ToString(FinishReason::kStop), "stop");
  EXPECT_STREQ(ToString(FinishReason::kLength), "length");
  EXPECT_STREQ(ToString(FinishReason::kAbort), "abort");
  EXPECT_STREQ(ToString(FinishReason::kError), "error");
}

TEST(RequestStreamOutput, IsFinalWithTheUsage) {
  RequestStreamOutput output;
  EXPECT_FALSE(output.is_final());
  output.usage.emplace();
  EXPECT_TRUE(output.is_final());
}

}  // namespace
}  // namespace mlc_native
