// Strings of a JSON schema are JSON, also where their length is limited.
#include <cstdint>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "grammar/real_grammar.h"
#include "support/utf8.h"

namespace mlc_native {
namespace {

using nlohmann::json;

class JsonStringsTest : public GrammarTest {
 protected:
  // Bytes drawn from the masks until the answer ends; empty when it does not.
  std::string RandomAnswer(const CompiledGrammar& grammar, std::mt19937* random) const {
    std::string text;
    const auto matcher = grammar.NewMatcher(0);
    for (int i = 0; i < 200; ++i) {
      const std::set<int32_t> allowed = AllowedByMask(*matcher, test_.vocab);
      const int32_t stop = *test_.stop_ids.begin();
      if (allowed.contains(stop) &&
          (allowed.size() <= test_.stop_ids.size() || (*random)() % 2 == 0)) {
        return text;
      }
      std::vector<int32_t> ids;
      for (int32_t id : allowed) {
        if (!test_.stop_ids.contains(id)) ids.push_back(id);
      }
      const int32_t id = ids[(*random)() % ids.size()];
      text += test_.vocab.token_bytes[id];
      EXPECT_TRUE(matcher->AcceptToken(id)) << id << " after " << text;
    }
    return "";
  }
};

TEST_F(JsonStringsTest, RandomAnswersParse) {
  const std::vector<json> schemas = {
      {{"type", "string"}, {"maxLength", 4}},
      {{"type", "string"}, {"minLength", 2}},
      {{"type", {"string", "null"}}, {"minLength", 1}, {"maxLength", 3}},
      {{"anyOf", {{{"type", "string"}, {"maxLength", 2}}, {{"type", "boolean"}}}}},
      {{"type", "array"},
       {"items", {{"$ref", "#/$defs/s"}}},
       {"maxItems", 2},
       {"$defs", {{"s", {{"type", "string"}, {"minLength", 1}, {"maxLength", 2}}}}}}};
  std::mt19937 random(3);
  for (const json& schema : schemas) {
    const auto grammar = Compile(GrammarKind::kJsonSchema, schema.dump());
    int num_ended = 0;
    for (int i = 0; i < 40; ++i) {
      const std::string text = RandomAnswer(*grammar, &random);
      if (text.empty()) continue;
      ++num_ended;
      std::string delivered;  // as the engine delivers it
      AppendValidUtf8(text, &delivered);
      EXPECT_TRUE(json::accept(delivered)) << schema << ' ' << delivered;
    }
    EXPECT_GT(num_ended, 0) << schema;
  }
}

TEST_F(JsonStringsTest, RandomAnswersOfStructuralTagsParse) {
  const json text = {{"type", "string"}, {"minLength", 1}, {"maxLength", 3}};
  const json schema = {{"type", "object"},
                       {"properties", {{"minLength", text}, {"enum", text}}},
                       {"required", {"minLength", "enum"}}};
  const json tag = {{"format", {{"type", "json_schema"}, {"json_schema", schema}}}};
  const auto grammar = Compile(GrammarKind::kStructuralTag, tag.dump());
  std::mt19937 random(4);
  int num_ended = 0;
  for (int i = 0; i < 40; ++i) {
    const std::string answer = RandomAnswer(*grammar, &random);
    if (answer.empty()) continue;
    ++num_ended;
    std::string delivered;
    AppendValidUtf8(answer, &delivered);
    EXPECT_EQ(delivered, answer) << "a string has bytes that are no UTF-8";
    EXPECT_TRUE(json::accept(answer)) << answer;
  }
  EXPECT_GT(num_ended, 0);
}

TEST_F(JsonStringsTest, StructuralTagsCountCharacters) {
  const auto grammar = Compile(GrammarKind::kStructuralTag, R"({"format": {"type": "json_schema",
      "json_schema": {"type": "string", "minLength": 2, "maxLength": 3}}})");
  for (const char* text : {"ab", "abc", "\xC3\xA9z", "\xF0\x9F\x98\x80\xE6\x9D\xB1 "}) {
    EXPECT_TRUE(Matches(*grammar, json(text).dump())) << text;
  }
  for (const char* text : {"", "a", "abcd", "\xC3\xA9"}) {
    EXPECT_FALSE(Matches(*grammar, json(text).dump())) << text;
  }
  EXPECT_FALSE(Matches(*grammar, "\"a\nb\""));
}

TEST_F(JsonStringsTest, LongLimitsInStructuralTagsKeepControlCharactersOut) {
  const auto grammar = Compile(GrammarKind::kStructuralTag, R"({"format": {"type": "sequence",
      "elements": [{"type": "any_text", "excludes": ["</think>"]},
                   {"type": "const_string", "value": "</think>"},
                   {"type": "json_schema", "json_schema": {"type": "object", "properties": {
                       "a": {"type": "string", "minLength": 300, "maxLength": 1000},
                       "b": {"type": "string", "maxLength": 9}}, "required": ["a", "b"]}}]}})");
  const auto answer = [](size_t length, const std::string& last) {
    const std::string a = std::string(length - 1, 'x') + last;
    return R"(Thoughts.</think>{"a": ")" + a + R"(", "b": "y"})";
  };
  for (const char* last : {"x", "\xC3\xA9", "\xF0\x9F\x98\x80"}) {
    for (size_t length : {300, 999, 1000}) EXPECT_TRUE(Matches(*grammar, answer(length, last)));
    for (size_t length : {299, 1001}) EXPECT_FALSE(Matches(*grammar, answer(length, last)));
  }
  for (char control = 0; control < ' '; ++control) {
    EXPECT_FALSE(Matches(*grammar, answer(400, std::string(1, control)))) << int{control};
  }
  EXPECT_FALSE(Matches(*grammar, answer(400, "\"")));
  EXPECT_FALSE(Matches(*grammar, answer(400, "\\")));
}

TEST_F(JsonStringsTest, LengthsCountCharacters) {
  const auto grammar =
      Compile(GrammarKind::kJsonSchema, R"({"type": "string", "minLength": 2, "maxLength": 3})");
  for (const char* text : {"ab", "abc", "\xC3\xA9z", "\xF0\x9F\x98\x80\xE6\x9D\xB1 "}) {
    EXPECT_TRUE(Matches(*grammar, json(text).dump())) << text;
  }
  for (const char* text : {"", "a", "abcd", "\xC3\xA9"}) {
    EXPECT_FALSE(Matches(*grammar, json(text).dump())) << text;
  }
  EXPECT_FALSE(Matches(*grammar, "\"a\nb\""));
}

}  // namespace
}  // namespace mlc_native
