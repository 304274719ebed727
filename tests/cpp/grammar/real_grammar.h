// The real grammar library for tests: a vocabulary small enough for brute force, and queries of a
// matcher.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <string_view>

#include "mlc_native/grammar.h"

namespace mlc_native {

// Ids 0 to 255 are the bytes, followed by common pieces and by tokens that must never be allowed.
struct TestVocab {
  GrammarVocab vocab;
  std::set<int32_t> stop_ids;  // one with bytes, one without
  int32_t special_id = 0;      // no bytes
  int32_t padded_id = 0;       // beyond the table, inside vocab_size
};
TestVocab MakeTestVocab();

std::set<int32_t> AllowedByMask(GrammarMatcher& matcher, const GrammarVocab& vocab);
// Returns the ids that the matcher allows, by trying every id on a fork.
std::set<int32_t> AllowedByTrying(const GrammarMatcher& matcher, const GrammarVocab& vocab);
// Accepts a text byte by byte. Returns false at the first byte that is refused.
bool AcceptText(GrammarMatcher& matcher, std::string_view text);
// True if the grammar accepts the whole text, from the start, as a complete answer.
bool Matches(const CompiledGrammar& grammar, std::string_view text);

// Gives each test a compiler; skips where xgrammar is not installed and not required
// (MLC_NATIVE_WITH_GRAMMAR=ON requires it).
class GrammarTest : public testing::Test {
 protected:
  void SetUp() override;
  std::unique_ptr<GrammarCompiler> NewCompiler(const GrammarLimits& limits = {}) const;
  std::shared_ptr<const CompiledGrammar> Compile(GrammarKind kind, const std::string& text,
                                                 bool strict = true) const;
  // Compiles and returns the message of the InvalidRequest; empty if there is none.
  static std::string Refusal(GrammarCompiler& compiler, const GrammarSpec& spec);

  const TestVocab test_ = MakeTestVocab();
  std::unique_ptr<GrammarCompiler> compiler_;
};

}  // namespace mlc_native
