#include "grammar/real_grammar.h"

#include <vector>

#include "support/error.h"

namespace mlc_native {

TestVocab MakeTestVocab() {
  TestVocab test;
  std::vector<std::string>& tokens = test.vocab.token_bytes;
  for (int byte = 0; byte < 256; ++byte) tokens.emplace_back(1, static_cast<char>(byte));
  for (const char* piece : {"{\"",       "\"}",
                            "\": ",      ", \"",
                            "\", \"",    "{}",
                            "[]",        "true",
                            "false",     "null",
                            "10",        "42",
                            "ab",        "abc",
                            "name",      "\"name\": ",
                            "\"age\": ", "na",
                            "me\"",      "\xC3\xA9",
                            "\xC3",      "\xE4\xB8\xAD\xE6\x96\x87",
                            "\xF0\x9F",  "-1",
                            "0.5",       "e+1",
                            "  ",        "\n  ",
                            "\\u00",     "\\n",
                            "<tool>",    "</tool>",
                            "</s>x"}) {
    tokens.emplace_back(piece);
  }
  test.special_id = static_cast<int32_t>(tokens.size());
  tokens.emplace_back();
  test.stop_ids = {test.special_id + 1, test.special_id + 2};
  tokens.emplace_back("</s>");
  tokens.emplace_back();
  test.vocab.stop_token_ids = {test.stop_ids.begin(), test.stop_ids.end()};
  test.padded_id = static_cast<int32_t>(tokens.size()) + 5;
  test.vocab.vocab_size = static_cast<int64_t>(tokens.size()) + 39;
  return test;
}

std::set<int32_t> AllowedByMask(GrammarMatcher& matcher, const GrammarVocab& vocab) {
  std::vector<int32_t> mask((vocab.vocab_size + 31) / 32, 0x55555555);
  std::set<int32_t> allowed;
  const bool needed = matcher.FillMask(mask);
  for (int32_t id = 0; id < vocab.vocab_size; ++id) {
    if (!needed || (static_cast<uint32_t>(mask[id / 32]) >> (id % 32) & 1) != 0) allowed.insert(id);
  }
  return allowed;
}

std::set<int32_t> AllowedByTrying(const GrammarMatcher& matcher, const GrammarVocab& vocab) {
  std::set<int32_t> allowed;
  for (int32_t id = 0; id < vocab.vocab_size; ++id) {
    if (matcher.Fork()->AcceptToken(id)) allowed.insert(id);
  }
  return allowed;
}

bool AcceptText(GrammarMatcher& matcher, std::string_view text) {
  for (char byte : text) {
    if (!matcher.AcceptToken(static_cast<unsigned char>(byte))) return false;
  }
  return true;
}

bool Matches(const CompiledGrammar& grammar, std::string_view text) {
  const std::unique_ptr<GrammarMatcher> matcher = grammar.NewMatcher(0);
  return AcceptText(*matcher, text) && matcher->IsCompleted();
}

void GrammarTest::SetUp() {
  try {
    compiler_ = NewCompiler();
  } catch (const InvalidConfig& error) {
#ifdef MLC_NATIVE_GRAMMAR_REQUIRED
    throw;
#else
    GTEST_SKIP() << error.what();
#endif
  }
}

std::unique_ptr<GrammarCompiler> GrammarTest::NewCompiler(const GrammarLimits& limits) const {
  return CreateGrammarCompiler(test_.vocab, limits);
}

std::shared_ptr<const CompiledGrammar> GrammarTest::Compile(GrammarKind kind,
                                                            const std::string& text,
                                                            bool strict) const {
  return compiler_->Compile({kind, text, strict});
}

std::string GrammarTest::Refusal(GrammarCompiler& compiler, const GrammarSpec& spec) {
  try {
    compiler.Compile(spec);
    return {};
  } catch (const InvalidRequest& error) {
    EXPECT_EQ(error.field(), "response_format");
    EXPECT_FALSE(std::string(error.what()).empty());
    return error.what();
  }
}

}  // namespace mlc_native
