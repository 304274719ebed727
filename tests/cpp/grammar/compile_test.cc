// The compiler as callers see it: cache, sharing, many threads.
#include <atomic>
#include <functional>
#include <string>
#include <vector>

#include "grammar/backend.h"
#include "grammar/compile_cache.h"
#include "grammar/fake_compiled.h"
#include "grammar/real_grammar.h"
#include "testing/threads.h"

namespace mlc_native {
namespace {

TEST(CompileCacheTest, EvictsTheLeastRecentlyUsedByBytes) {
  CompileCache cache(300);
  int num_compiled = 0;
  const auto get = [&](const std::string& text, int64_t bytes) {
    return cache.Get(Regex(text), [&](const std::stop_token&) {
      ++num_compiled;
      return std::make_shared<const FakeGrammar>(bytes - static_cast<int64_t>(text.size()));
    });
  };
  const auto a = get("a", 100);
  get("b", 100);
  get("c", 100);
  EXPECT_EQ(cache.cached_bytes(), 300);
  EXPECT_EQ(get("a", 100), a);
  get("d", 50);  // b goes
  EXPECT_EQ(cache.num_cached(), 3);
  EXPECT_EQ(cache.cached_bytes(), 250);
  EXPECT_EQ(num_compiled, 4);
  get("c", 100);
  EXPECT_EQ(num_compiled, 4);
  get("b", 100);
  EXPECT_EQ(num_compiled, 5);
  EXPECT_EQ(a->memory_bytes(), 99);  // evicted by now, and alive
  EXPECT_NE(get("huge", 301), nullptr);
  EXPECT_EQ(cache.num_cached(), 0);
  EXPECT_EQ(cache.cached_bytes(), 0);
}

TEST(CompileCacheTest, SpecsDifferInKindAndStrictness) {
  CompileCache cache(1 << 20);
  int num_compiled = 0;
  for (const GrammarSpec& spec :
       {GrammarSpec{GrammarKind::kRegex, "1"}, GrammarSpec{GrammarKind::kEbnf, "1"},
        GrammarSpec{GrammarKind::kJsonSchema, "1", true},
        GrammarSpec{GrammarKind::kJsonSchema, "1", false}}) {
    cache.Get(spec, [&](const std::stop_token&) {
      ++num_compiled;
      return std::make_shared<const FakeGrammar>(1);
    });
  }
  EXPECT_EQ(num_compiled, 4);
}

constexpr int kThreads = 8;

// Asks for one grammar on many threads at once; the number of them that got none.
int AskTogether(CompileCache& cache, const CompileCache::Compile& compile) {
  std::atomic<int> num_failed = 0;
  testing::Threads threads(kThreads, [&](int) {
    try {
      cache.Get(Regex("x"), compile);
    } catch (const std::runtime_error&) {
      ++num_failed;
    }
  });
  threads.Join();
  return num_failed;
}

TEST(CompileCacheTest, EqualSpecsAreCompiledOnce) {
  CompileCache cache(1 << 20);
  std::atomic<int> num_compiled = 0;
  EXPECT_EQ(AskTogether(cache,
                        [&](const std::stop_token&) {
                          ++num_compiled;
                          return std::make_shared<const FakeGrammar>(1);
                        }),
            0);
  EXPECT_EQ(num_compiled, 1);
}

// Callers that ask during a compilation share its refusal, and later ones try again. A failure of
// another kind is not shared.
TEST(CompileCacheTest, FailuresAreForgotten) {
  CompileCache cache(1 << 20);
  std::atomic<int> num_compiled = 0;
  const auto refuse = [&](const std::stop_token&) -> CompileCache::Grammar {
    ++num_compiled;
    throw GrammarError("refused");
  };
  EXPECT_EQ(AskTogether(cache, refuse), kThreads);
  EXPECT_GE(num_compiled, 1);
  num_compiled = 0;
  EXPECT_THROW(cache.Get(Regex("x"), refuse), GrammarError);
  EXPECT_EQ(num_compiled, 1);
  num_compiled = 0;
  EXPECT_EQ(AskTogether(cache,
                        [&](const std::stop_token&) -> CompileCache::Grammar {
                          ++num_compiled;
                          throw std::runtime_error("no process");
                        }),
            kThreads);
  EXPECT_EQ(num_compiled, kThreads);
  EXPECT_EQ(cache.num_cached(), 0);
}

class CompileTest : public GrammarTest {};

TEST_F(CompileTest, ManyThreadsManyGrammars) {
  constexpr int kGrammars = 12;
  std::atomic<int> num_wrong = 0;
  testing::Threads threads(kThreads, [&](int thread) {
    for (int i = 0; i < kGrammars; ++i) {
      const std::string word = "word" + std::to_string((i + thread) % kGrammars);
      const auto grammar = compiler_->Compile(Regex("(" + word + ")+"));
      if (!Matches(*grammar, word + word) || Matches(*grammar, "w")) ++num_wrong;
      if (Refusal(*compiler_, Regex("(" + word)).empty()) ++num_wrong;
    }
  });
  threads.Join();
  EXPECT_EQ(num_wrong, 0);
  EXPECT_EQ(compiler_->num_cached(), kGrammars);
  EXPECT_GT(compiler_->cached_bytes(), 0);
  EXPECT_EQ(compiler_->Compile(Regex("(word1)+")), compiler_->Compile(Regex("(word1)+")));
}

// One grammar, a matcher per thread.
TEST_F(CompileTest, MatchersOfOneGrammarAreIndependent) {
  const auto grammar = compiler_->Compile(Regex("[a-f]{1,200}"));
  std::atomic<int> num_wrong = 0;
  testing::Threads threads(4, [&](int thread) {
    const auto matcher = grammar->NewMatcher(200);
    for (int i = 0; i < 200; ++i) {
      if (!AllowedByMask(*matcher, test_.vocab).contains('a' + thread)) ++num_wrong;
      if (!matcher->AcceptToken('a' + thread)) ++num_wrong;
    }
    if (AllowedByMask(*matcher, test_.vocab) != test_.stop_ids) ++num_wrong;
  });
  threads.Join();
  EXPECT_EQ(num_wrong, 0);
}

// A pattern whose every part can be matched keeps the text round it forced.
TEST_F(CompileTest, TextRoundAHarmlessPatternIsForced) {
  for (const std::string pattern : {"^[0-9]{5}$", "[A-Z][a-z_]+ (?:x|y)?", R"(\\d{2,}\\.\\w*)",
                                    "(ab{2}){3}.", "caf\xC3\xA9", "[^a]b", R"(\\u0041[0-9])"}) {
    const auto matcher =
        Compile(GrammarKind::kJsonSchema,
                R"({"type": "object", "properties": {"code": {"type": "string", "pattern": ")" +
                    pattern + R"("}}, "required": ["code"]})")
            ->NewMatcher(0);
    EXPECT_TRUE(matcher->FindJumpForwardString().starts_with(R"({"code": ")")) << pattern;
  }
}

// After the a's only another one can follow, forever.
TEST_F(CompileTest, ADeadEndIsRefused) {
  EXPECT_NE(Refusal(*compiler_, {GrammarKind::kRegex, R"(a+[^\s\S])"}), "");
  EXPECT_NE(Refusal(*compiler_,
                    {GrammarKind::kJsonSchema, R"({"type": "string", "pattern": "a+[^\\s\\S]"})"}),
            "");
}

// FindJumpForwardString of xgrammar would follow these forever, or for terabytes.
TEST_F(CompileTest, EndlessForcedTextIsNotFollowed) {
  std::string doubling = "root ::= \"x\" | \"y\" r40\nr0 ::= \"a\"\n";
  for (int i = 1; i <= 40; ++i) {
    const std::string before = " r" + std::to_string(i - 1);
    doubling += "r" + std::to_string(i) + " ::=" + before + before + "\n";
  }
  for (const std::string& text :
       {doubling, std::string("root ::= \"x\" | \"y\" l\nl ::= \"a\" l")}) {
    const auto matcher = Compile(GrammarKind::kEbnf, text)->NewMatcher(4);
    ASSERT_TRUE(AcceptText(*matcher, "y"));
    EXPECT_EQ(matcher->FindJumpForwardString(), "");
    EXPECT_EQ(AllowedByMask(*matcher, test_.vocab), AllowedByTrying(*matcher, test_.vocab));
  }
  EXPECT_NE(Refusal(*compiler_, {GrammarKind::kEbnf, "root ::= \"a\" root"})
                .find("no finite text matches"),
            std::string::npos);
  EXPECT_NE(Refusal(*compiler_, {GrammarKind::kJsonSchema,
                                 R"({"type": "object", "properties": {"a": {"$ref": "#"}},
                                     "required": ["a"]})"})
                .find("no finite text matches"),
            std::string::npos);
}

}  // namespace
}  // namespace mlc_native
