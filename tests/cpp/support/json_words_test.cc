// Python's words for numbers that JSON lacks.
#include "support/json_words.h"

#include <gtest/gtest.h>

#include "support/config_fields.h"
#include "support/error.h"

namespace mlc_native {
namespace {

TEST(JsonWords, BecomeObjects) {
  EXPECT_EQ(SpellOutJsonWords("[0.0, Infinity,-Infinity,NaN]"),
            R"([0.0, {"__float__": "Infinity"},{"__float__": "-Infinity"},{"__float__": "NaN"}])");
  EXPECT_EQ(SpellOutJsonWords("Infinity"), R"({"__float__": "Infinity"})");
  EXPECT_EQ(SpellOutJsonWords(""), "");
}

TEST(JsonWords, StayInStrings) {
  for (const char* text : {R"(["Infinity", "a NaN"])", R"({"\"NaN": "\\", "b": "Infinity\""})",
                           R"("NaN)", R"("NaN\)", "[1, -2, null, true]"}) {
    EXPECT_EQ(SpellOutJsonWords(text), text);
  }
}

TEST(JsonWords, AreReadInFiles) {
  const ConfigFields fields =
      ConfigFields::ParseFile("config.json", R"({"limit": [0.0, Infinity], "of": "Infinity"})");
  EXPECT_EQ(fields.Find("limit")->AsArray()[1].At("__float__").AsString(), "Infinity");
  EXPECT_EQ(fields.String("of"), "Infinity");
  for (const char* text :
       {"{\"a\": Inf}", "{\"a\": Infinityy}", "{Infinity: 1}", "{\"a\": 1 NaN}"}) {
    EXPECT_THROW(ConfigFields::ParseFile("config.json", text), LoadError) << text;
  }
}

}  // namespace
}  // namespace mlc_native
