#include "support/json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <string>

#include <nlohmann/json.hpp>

namespace mlc_native {
namespace {

using ::testing::HasSubstr;

JsonParseError ErrorOf(const std::string& text, const JsonParseOptions& options = {}) {
  try {
    ParseJson(text, options);
  } catch (const JsonParseError& error) {
    return error;
  }
  ADD_FAILURE() << "accepted: " << text;
  return {JsonParseError::Kind::kSyntax, ""};
}

std::string Rewritten(const std::string& text) { return JsonWriter().Put(ParseJson(text)).Take(); }

TEST(Json, ValuesKeepTheirTypes) {
  const JsonValue value = ParseJson(R"({"n": null, "b": true, "i": -7, "r": 1.0, "s": "\u00e4",
                                        "a": [1, 2], "o": {"x": 1}})");
  EXPECT_TRUE(value.At("n").is_null());
  EXPECT_TRUE(value.At("b").AsBool());
  EXPECT_EQ(value.At("i").AsInteger(), -7);
  EXPECT_FALSE(value.At("r").is_integer());
  EXPECT_EQ(value.At("r").AsNumber(), 1.0);
  EXPECT_EQ(value.At("s").AsString(), "ä");
  EXPECT_EQ(value.At("a").AsArray().size(), 2u);
  EXPECT_EQ(value.At("o").At("x").AsInteger(), 1);
  EXPECT_EQ(value.Find("missing"), nullptr);
  EXPECT_EQ(value.At("i").Find("x"), nullptr);
}

TEST(Json, IntegersAreExactToTheLimitsOfTheirTypes) {
  EXPECT_EQ(ParseJson("9223372036854775807").AsInteger(), std::numeric_limits<int64_t>::max());
  EXPECT_EQ(ParseJson("-9223372036854775808").AsInteger(), std::numeric_limits<int64_t>::min());
  const JsonValue large = ParseJson("18446744073709551615");
  EXPECT_TRUE(large.is_integer());
  EXPECT_FALSE(large.IsIntegerIn(0, std::numeric_limits<int64_t>::max()));
  EXPECT_THROW(large.AsInteger(), JsonError);
  EXPECT_EQ(Rewritten("18446744073709551615"), "18446744073709551615");
  EXPECT_FALSE(ParseJson("18446744073709551616").is_integer());
  EXPECT_EQ(ErrorOf("1e999").kind, JsonParseError::Kind::kNumberRange);
}

TEST(Json, AWrongTypeOrMissingMemberIsAnErrorThatShowsTheValue) {
  const JsonValue value = ParseJson(R"({"a": "text"})");
  const auto message = [](auto action) {
    try {
      action();
    } catch (const JsonError& error) {
      return std::string(error.what());
    }
    return std::string("nothing thrown");
  };
  EXPECT_EQ(message([&] { value.At("a").AsInteger(); }), "expected an integer, got \"text\"");
  EXPECT_EQ(message([&] { value.At("b"); }), "\"b\" is missing");
}

TEST(Json, OfEqualNamesTheLastCounts) {
  EXPECT_EQ(Rewritten(R"({"b": 1, "a": 2, "b": 3, "a": [4], "c": 5, "b": 6})"),
            R"({"a":[4],"b":6,"c":5})");
  const JsonParseError error =
      ErrorOf(R"([{"x": {"b": 1, "a": 2, "b": 3}}])", {.refuse_duplicates = true});
  EXPECT_EQ(error.kind, JsonParseError::Kind::kDuplicateName);
  EXPECT_EQ(error.name, "b");
}

TEST(Json, DepthIsBounded) {
  const std::string nested = "[[[]]]";
  EXPECT_NO_THROW(ParseJson(nested, {.max_depth = 3}));
  EXPECT_EQ(ErrorOf(nested, {.max_depth = 2}).kind, JsonParseError::Kind::kDepth);
  const std::string deep = std::string(1'000'000, '[') + std::string(1'000'000, ']');
  EXPECT_EQ(ErrorOf(deep).kind, JsonParseError::Kind::kDepth);
  EXPECT_TRUE(IsValidJson(deep));
}

TEST(Json, ASkippedListIsReadOverAndAMemberOfThatNameIsNot) {
  const JsonParseOptions options = {.skipped_list = "merges"};
  const JsonValue value = ParseJson(
      R"({"merges": [["a", "b"], {"merges": [1]}, [[]]], "vocab": {"merges": 7, "a": 1}})",
      options);
  EXPECT_EQ(JsonWriter().Put(value).Take(), R"({"vocab":{"a":1,"merges":7}})");
  EXPECT_EQ(ErrorOf(R"({"merges": [1,]})", options).kind, JsonParseError::Kind::kSyntax);
}

TEST(Json, SyntaxErrorsSayWhere) {
  for (const char* text : {"", "{", "[1,]", "{\"a\" 1}", "nul", "1 2", "\"\xff\"", "\"\x01\""}) {
    const JsonParseError error = ErrorOf(text);
    EXPECT_EQ(error.kind, JsonParseError::Kind::kSyntax) << text;
    EXPECT_FALSE(IsValidJson(text)) << text;
  }
  EXPECT_EQ(ErrorOf("[1,]").byte, 4u);
}

TEST(Json, AnExcerptIsShortAndValid) {
  EXPECT_EQ(JsonExcerpt(ParseJson(R"([1, {"a": "b"}])")), R"([1,{"a":"b"}])");
  EXPECT_EQ(JsonExcerpt(ParseJson(R"("äää")"), 4), "\"ä...");
  EXPECT_LE(JsonExcerpt(ParseJson("[[1,2,3,4,5,6,7,8,9]]"), 7).size(), 10u);
  EXPECT_THAT(JsonExcerpt(ParseJson("[[1,2,3,4,5,6,7,8,9]]"), 7), HasSubstr("[[1,2,3..."));
}

TEST(JsonWriter, SeparatesWhatItWrites) {
  JsonWriter json;
  json.BeginObject().Add("a", 1).Add("b", true).Name("c").BeginArray();
  json.Put("x,").Put(uint64_t{1} << 63).BeginObject().EndObject().Null().EndArray();
  json.Name("d").BeginObject().Add("e", "[{:").EndObject().Add("f", 0.5).EndObject();
  EXPECT_EQ(json.Take(),
            R"({"a":1,"b":true,"c":["x,",9223372036854775808,{},null],"d":{"e":"[{:"},"f":0.5})");
}

TEST(JsonWriter, RealsStayReals) {
  const auto text = [](double value) { return JsonWriter().Put(value).Take(); };
  EXPECT_EQ(text(3), "3.0");
  EXPECT_EQ(text(-0.0), "-0.0");
  EXPECT_EQ(text(std::nan("")), "null");
  EXPECT_EQ(text(std::numeric_limits<double>::infinity()), "null");
  std::mt19937_64 random(7);
  for (int i = 0; i < 1000; ++i) {
    const double value =
        std::ldexp(static_cast<double>(random()), static_cast<int>(random() % 400) - 200);
    const JsonValue read = ParseJson(text(value));
    EXPECT_FALSE(read.is_integer()) << text(value);
    EXPECT_EQ(read.AsNumber(), value);
  }
}

// Every character and every pair of bytes, against the library's own writer.
TEST(JsonWriter, StringsAreWrittenLikeTheLibraryWritesThem) {
  const auto expect_same = [](const std::string& text) {
    const std::string expected =
        nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
    EXPECT_EQ(JsonWriter().Put(text).Take(), expected);
  };
  std::string all;
  for (int c = 0; c < 128; ++c) all += static_cast<char>(c);
  expect_same(all + "äß漢😀");
  for (int first = 0; first < 256; first += 3) {
    for (int second = 0; second < 256; second += 5) {
      expect_same({'a', static_cast<char>(first), static_cast<char>(second), 'b'});
    }
  }
}

}  // namespace
}  // namespace mlc_native
