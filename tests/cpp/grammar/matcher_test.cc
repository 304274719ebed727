#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "grammar/real_grammar.h"

namespace mlc_native {
namespace {

constexpr char kPerson[] = R"({"type": "object", "properties": {"name": {"type": "string"},
    "age": {"type": "integer", "minimum": 0, "maximum": 120}}, "required": ["name", "age"]})";
constexpr char kTool[] = R"({"type": "structural_tag", "format": {"type": "tag", "begin": "<tool>",
    "content": {"type": "json_schema", "json_schema": {"type": "boolean"}}, "end": "</tool>"}})";
// Properties are written in the order in which they are declared.
constexpr char kOrder[] = R"({"type": "structural_tag", "format": {"end": "</t>", "type": "tag",
    "begin": "<t>", "content": {"type": "json_schema", "json_schema": {"type": "object",
    "required": ["z", "a"], "properties": {"z": {"type": "integer"}, "a": {"type": "boolean"}}}}}})";

// The older shape: free text until a trigger.
constexpr char kTriggers[] = R"({"type": "structural_tag", "triggers": ["<tool>"], "structures":
    [{"begin": "<tool>", "schema": {"type": "array", "items": {"type": "null"}}, "end": "</tool>"}]})";

class MatcherTest : public GrammarTest {};

struct Example {
  GrammarSpec spec;
  std::vector<std::string> accepted;
  std::vector<std::string> refused;
};

std::vector<Example> Examples() {
  return {
      {{GrammarKind::kJsonObject, ""},
       {"{}", R"({"a": [1, 2.5e3, "x\n"], "b": {"c": null}})", "{\"\xC3\xA9\": true}"},
       {"[1]", "1", "{\"a\": }", "{", "{}  ", "{\n}", "{'a': 1}"}},
      {{GrammarKind::kJsonSchema, kPerson},
       {R"({"name": "Ada", "age": 36})", "{\"name\": \"\xE4\xB8\xAD\", \"age\": 120}"},
       {"{}", R"({"name": "Ada"})", R"({"name": "Ada", "age": 121})",
        R"({"name": "Ada", "age": 36, "x": 1})"}},
      {{GrammarKind::kJsonSchema, kPerson, /*strict=*/false},
       {R"({"name": "Ada", "age": 36, "x": 1})"},
       {R"({"name": "Ada", "x": 1})"}},
      {{GrammarKind::kRegex, "[a-c]{2,4}(x|yz)+"}, {"abx", "aaaayzx"}, {"ax", "abcde", "abz"}},
      {{GrammarKind::kEbnf, "root ::= \"(\" root \")\" | \"1\""}, {"1", "((1))"}, {"", "(1"}},
      {{GrammarKind::kStructuralTag, kTool}, {"<tool>true</tool>"}, {"true", "<tool>1</tool>"}},
      {{GrammarKind::kStructuralTag, kOrder},
       {R"(<t>{"z": 1, "a": true}</t>)"},
       {R"(<t>{"a": true, "z": 1}</t>)"}},
      {{GrammarKind::kStructuralTag, kTriggers},
       {"", "any text", "a<tool>[null,\n null]</tool>b<tool>[]</tool>"},
       {"<tool>", "<tool>[1]</tool>", "<tool>[   ]</tool>"}},
  };
}

TEST_F(MatcherTest, AcceptsWhatMatchesAndNothingElse) {
  for (const Example& example : Examples()) {
    const auto grammar = compiler_->Compile(example.spec);
    for (const std::string& text : example.accepted) EXPECT_TRUE(Matches(*grammar, text)) << text;
    for (const std::string& text : example.refused) EXPECT_FALSE(Matches(*grammar, text)) << text;
    EXPECT_GT(grammar->memory_bytes(), 0);
  }
}

// Along random walks: the mask is what AcceptToken takes, ids that stand for nothing are never in
// it, and rolling back any number of tokens gives the masks of before.
TEST_F(MatcherTest, MasksAgreeWithTryingEveryToken) {
  for (const Example& example : Examples()) {
    const auto grammar = compiler_->Compile(example.spec);
    std::mt19937 random(7);
    const auto matcher = grammar->NewMatcher(16);
    std::vector<std::set<int32_t>> masks;
    while (!matcher->IsTerminated() && masks.size() < 12) {
      const std::set<int32_t> allowed = AllowedByMask(*matcher, test_.vocab);
      ASSERT_EQ(allowed, AllowedByTrying(*matcher, test_.vocab)) << example.spec.text;
      ASSERT_FALSE(allowed.empty());
      EXPECT_FALSE(allowed.contains(test_.special_id) || allowed.contains(test_.padded_id));
      for (int32_t id : test_.stop_ids) EXPECT_EQ(allowed.contains(id), matcher->IsCompleted());
      masks.push_back(allowed);
      std::vector<int32_t> ids(allowed.begin(), allowed.end());
      ASSERT_TRUE(matcher->AcceptToken(ids[random() % ids.size()]));
    }
    for (size_t left = masks.size(); left > 0;) {
      const size_t steps = 1 + random() % left;
      matcher->Rollback(static_cast<int64_t>(steps));
      left -= steps;
      EXPECT_EQ(AllowedByMask(*matcher, test_.vocab), masks[left]);
    }
  }
}

TEST_F(MatcherTest, ARefusedTokenChangesNothing) {
  const auto matcher = Compile(GrammarKind::kRegex, "abc|abd")->NewMatcher(4);
  ASSERT_TRUE(AcceptText(*matcher, "ab"));
  for (int64_t id :
       {int64_t{'x'}, int64_t{-1}, int64_t{INT32_MAX}, int64_t{INT32_MIN}, test_.vocab.vocab_size,
        int64_t{test_.special_id}, int64_t{test_.padded_id}, int64_t{*test_.stop_ids.begin()}}) {
    EXPECT_FALSE(matcher->AcceptToken(static_cast<int32_t>(id))) << id;
  }
  EXPECT_EQ(AllowedByMask(*matcher, test_.vocab), (std::set<int32_t>{'c', 'd'}));
}

TEST_F(MatcherTest, AnyStopTokenTerminatesAndCanBeRolledBack) {
  const auto grammar = Compile(GrammarKind::kRegex, "ab?");
  for (int32_t stop : test_.stop_ids) {
    const auto matcher = grammar->NewMatcher(4);
    EXPECT_FALSE(matcher->IsCompleted());
    ASSERT_TRUE(AcceptText(*matcher, "a"));
    EXPECT_TRUE(matcher->IsCompleted());  // more may follow
    EXPECT_FALSE(matcher->IsTerminated());
    ASSERT_TRUE(matcher->AcceptToken(stop));
    EXPECT_TRUE(matcher->IsTerminated());
    EXPECT_FALSE(matcher->AcceptToken('b'));
    EXPECT_FALSE(matcher->AcceptToken(stop));
    EXPECT_EQ(matcher->FindJumpForwardString(), "");
    matcher->Rollback(1);
    EXPECT_FALSE(matcher->IsTerminated());
    EXPECT_TRUE(matcher->AcceptToken('b'));
  }
}

TEST_F(MatcherTest, AForkLivesItsOwnLife) {
  auto matcher = Compile(GrammarKind::kRegex, "a(bc|de)")->NewMatcher(4);
  ASSERT_TRUE(AcceptText(*matcher, "a"));
  const auto fork = matcher->Fork();
  ASSERT_TRUE(AcceptText(*matcher, "b"));
  ASSERT_TRUE(AcceptText(*fork, "d"));
  EXPECT_EQ(fork->FindJumpForwardString(), "e");
  matcher.reset();
  fork->Rollback(1);
  EXPECT_EQ(AllowedByMask(*fork, test_.vocab), (std::set<int32_t>{'b', 'd'}));
}

TEST_F(MatcherTest, JumpForwardStringIsWhatMustFollow) {
  const auto matcher = Compile(GrammarKind::kJsonSchema, kPerson)->NewMatcher(64);
  EXPECT_EQ(matcher->FindJumpForwardString(), R"({"name": ")");
  ASSERT_TRUE(AcceptText(*matcher, R"({"name": "Ada")"));
  EXPECT_EQ(matcher->FindJumpForwardString(), R"(, "age": )");
  ASSERT_TRUE(AcceptText(*matcher, R"(, "age": )"));
  EXPECT_EQ(matcher->FindJumpForwardString(), "");
}

// The characters share their first byte; half a character is no text.
TEST_F(MatcherTest, JumpForwardStringIsValidUtf8) {
  const auto matcher = Compile(GrammarKind::kRegex, "\xC3\xA9(\xC3\xA8|\xC3\xAA)")->NewMatcher(8);
  EXPECT_EQ(matcher->FindJumpForwardString(), "\xC3\xA9");
  ASSERT_TRUE(AcceptText(*matcher, "\xC3"));
  EXPECT_EQ(matcher->FindJumpForwardString(), "");
}

TEST_F(MatcherTest, MatchersOutliveCompilerAndGrammar) {
  auto matcher = Compile(GrammarKind::kRegex, "ab")->NewMatcher(4);
  compiler_.reset();
  EXPECT_TRUE(AcceptText(*matcher, "ab"));
  EXPECT_EQ(AllowedByMask(*matcher, test_.vocab), test_.stop_ids);
}

TEST_F(MatcherTest, RollingBackTooFarIsAnError) {
  const auto matcher = Compile(GrammarKind::kRegex, "abc")->NewMatcher(4);
  ASSERT_TRUE(AcceptText(*matcher, "a"));
  EXPECT_THROW(matcher->Rollback(2), std::runtime_error);
  EXPECT_EQ(AllowedByMask(*matcher, test_.vocab), (std::set<int32_t>{'b'}));
}

TEST_F(MatcherTest, WhatIsNoGrammarIsRefused) {
  for (const GrammarSpec& spec :
       {GrammarSpec{GrammarKind::kRegex, "(a"}, GrammarSpec{GrammarKind::kEbnf, "root ::= missing"},
        GrammarSpec{GrammarKind::kEbnf, "other ::= \"a\""},
        GrammarSpec{GrammarKind::kJsonSchema, "{\"type\": \"none\"}"},
        GrammarSpec{GrammarKind::kJsonSchema, "not json"},
        GrammarSpec{GrammarKind::kStructuralTag, "{}"}}) {
    EXPECT_NE(Refusal(*compiler_, spec), "") << spec.text;
  }
  EXPECT_EQ(Refusal(*compiler_, {GrammarKind::kEbnf, "root ::= missing"}).find("/cpp/"),
            std::string::npos);  // no source lines of theirs
}

}  // namespace
}  // namespace mlc_native
