#include "support/base64.h"

#include <gtest/gtest.h>

#include <optional>
#include <string>

namespace mlc_native {
namespace {

TEST(Base64Test, BytesComeBack) {
  std::string bytes;
  for (int i = 0; i < 600; ++i) {
    EXPECT_EQ(FromBase64(ToBase64(bytes)), bytes) << i;
    bytes.push_back(static_cast<char>(i * 7));
  }
}

TEST(Base64Test, TextsOfTheStandard) {
  EXPECT_EQ(ToBase64(""), "");
  EXPECT_EQ(ToBase64("f"), "Zg==");
  EXPECT_EQ(ToBase64("fo"), "Zm8=");
  EXPECT_EQ(ToBase64("foobar"), "Zm9vYmFy");
  EXPECT_EQ(FromBase64("Zg"), "f");
}

TEST(Base64Test, WhatIsNoBase64) {
  for (const char* text : {"Z", "Zm9v!", "Zg===", "Z=g=", "Zm 9v", "Zm9vY"}) {
    EXPECT_EQ(FromBase64(text), std::nullopt) << text;
  }
}

}  // namespace
}  // namespace mlc_native
