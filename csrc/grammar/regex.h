// Regex: the regular expressions of JSON schemas (ECMA-262), as far as a grammar can enforce them.
// It answers what a pattern matches, and writes it in the one form that the grammar library
// (xgrammar 0.2) reads without a surprise: anchored, in ASCII, and each character class within one
// length of UTF-8.
//
// Immutable; any thread. Parsing and matching are linear in the pattern's size with its repetitions
// written out, which kMaxRegexSize bounds.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace mlc_native {

inline constexpr int64_t kMaxRegexSize = 200000;  // instructions, with repetitions written out
inline constexpr int kMaxRegexDepth = 64;         // of groups

struct CodeRange {
  uint32_t low, high;
  bool operator==(const CodeRange&) const = default;
};

// A part of a regex. `parts` and `ranges` belong to the kinds that are named.
struct RegexNode {
  enum class Kind : uint8_t {
    kCharacter,  // one of `ranges`, which ascend; none of them: never matches
    kSequence,   // all `parts`; none: the empty text
    kEither,     // one of `parts`
    kRepeat,     // parts[0], `least` to `most` times
    kStart,      // ^
    kEnd,        // $
  };
  Kind kind = Kind::kSequence;
  std::vector<CodeRange> ranges{};
  std::vector<RegexNode> parts{};
  int64_t least = 0;
  int64_t most = -1;  // -1: no limit
};

class Regex {
 public:
  // Returns nullopt for what is no regex, or has a part that is not supported: lookaround, back
  // references, word boundaries, Unicode properties, flags, or more than the limits above.
  static std::optional<Regex> Parse(std::string_view pattern);

  // Whether a part of the text matches, which is what "pattern" asks. Requires: valid UTF-8.
  bool IsFoundIn(std::string_view text) const;

  // The pattern of the texts that match as a whole, from the first character to the last. In a JSON
  // string, those without a character that JSON escapes. Returns nullopt if there is none, or if an
  // anchor in the middle is in the way.
  enum class Place : uint8_t { kText, kJsonString };
  std::optional<std::string> ForLibrary(Place place) const;

  // The lengths, in characters, of the texts that match as a whole; -1: no limit.
  struct Lengths {
    int64_t least, most;
  };
  Lengths lengths() const;
  // The texts that match as a whole and have `least` to `most` (-1: any) characters. Returns
  // nullopt if that is no regex of this size: the lengths must hold anyway, or the regex be one
  // character repeated.
  std::optional<Regex> WithLengths(int64_t least, int64_t most) const;

 private:
  explicit Regex(RegexNode root) : root_(std::move(root)) {}

  RegexNode root_;
};

// A pattern of all JSON strings without escapes, except for the given texts. Returns nullopt if it
// takes more than kMaxRegexSize characters: each text takes the square of its length.
std::optional<std::string> PatternOfOthers(const std::vector<std::string>& texts);

}  // namespace mlc_native
