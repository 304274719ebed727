#include "support/check.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/error.h"

namespace mlc_native {
namespace {

using ::testing::HasSubstr;

TEST(MlcCheck, ThrowsWithPlaceConditionAndContext) {
  const int pages = 3;
  try {
    MLC_CHECK(pages == 4) << "pages " << pages;
    FAIL();
  } catch (const InternalError& e) {
    EXPECT_THAT(e.what(), HasSubstr("check_test.cc:"));
    EXPECT_THAT(e.what(), HasSubstr("pages == 4"));
    EXPECT_THAT(e.what(), HasSubstr("pages 3"));
  }
}

TEST(MlcCheck, EvaluatesTheContextOnlyOnFailure) {
  int evaluated = 0;
  const auto context = [&evaluated] { return ++evaluated; };
  MLC_CHECK(true) << context();
  EXPECT_EQ(evaluated, 0);
  EXPECT_THROW(MLC_CHECK(false) << context(), InternalError);
  EXPECT_EQ(evaluated, 1);
}

TEST(MlcCheck, IsOneStatement) {
  bool otherwise = false;
  if (otherwise)
    MLC_CHECK(false);
  else
    otherwise = true;
  EXPECT_TRUE(otherwise);
}

TEST(Errors, NameTheFieldAndTheRange) {
  try {
    throw InvalidConfig("size", OutOfRangeMessage("size", -1, "in [0, 4]"));
  } catch (const CallerError& e) {
    EXPECT_EQ(e.field(), "size");
    EXPECT_STREQ(e.what(), "\"size\" must be in [0, 4], got -1");
  }
}

}  // namespace
}  // namespace mlc_native
