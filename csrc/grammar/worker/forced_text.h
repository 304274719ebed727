// How long the text can be that a grammar leaves no choice about, from xgrammar's serialized form
// of a grammar before it is compiled.
//
// xgrammar's FindJumpForwardString follows forced bytes to their end: for ever in `x ::= "a" x`,
// and through 2^40 bytes where 40 rules each say the one before twice. If each rule has a finite
// shortest text, and no alternative's is longer than kMaxForcedBytes, then what is forced at one
// point is at most that for each rule that is open there. Pure; any thread.
#pragma once

#include <cstdint>
#include <string>

namespace mlc_native {

inline constexpr int64_t kMaxForcedBytes = 8192;

struct ForcedText {
  bool is_bounded = false;       // also false for a serialization that we do not know
  bool matches_nothing = false;  // no finite text matches
};
ForcedText AnalyzeForcedText(const std::string& serialized_grammar);

}  // namespace mlc_native
