// Bounds the length of text that a grammar forces, from xgrammar's serialized form of the grammar,
// before it is compiled.
//
// xgrammar's FindJumpForwardString follows forced bytes to their end: forever in `x ::= "a" x`, and
// through 2^40 bytes if 40 rules each repeat the previous one twice. If each rule has a finite
// shortest text, and no alternative has a shortest text of more than kMaxForcedBytes, then the
// forced text at one point has at most that many bytes for each open rule. Pure; any thread.
#pragma once

#include <cstdint>
#include <string>

namespace mlc_native {

inline constexpr int64_t kMaxForcedBytes = 8192;

struct ForcedText {
  bool is_bounded = false;       // also false for an unknown serialization
  bool matches_nothing = false;  // no finite text matches
};
ForcedText AnalyzeForcedText(const std::string& serialized_grammar);

}  // namespace mlc_native
