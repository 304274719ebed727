// TextRegex finds the matches of a tokenizer's regular expression, as Oniguruma does by
// backtracking: the leftmost match, and of several at one place the one that the expression
// prefers. Immutable after building; any thread.
//
// The expression becomes a deterministic automaton when it is built: it has a state for each list
// of places in the expression, in the order of their preference, and reads each character of a text
// once per match. Supported are classes, groups, alternatives, greedy and lazy repetitions,
// possessive ones of a single class, "(?i:...)" of ASCII, and a look at the next character.
#pragma once

#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "tokenizer/unicode.h"

namespace mlc_native {

// What an expression uses is not supported; what() names it.
class UnsupportedPattern : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// The text takes far more time or memory than its size; what() says why.
class TextTooCostly : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// One part of an expression, as it is parsed.
struct RegexPart {
  enum class Kind : uint8_t {
    kSequence,   // of `parts`
    kEither,     // of `parts`, the first one preferred
    kSet,        // a character of `set`
    kRepeat,     // of parts[0], from `least` to `most` times
    kNextIs,     // the next character is in `set`
    kNextIsNot,  // the next character is not in `set`, or the text ends
  };
  Kind kind = Kind::kSequence;
  std::vector<RegexPart> parts = {};
  CharRanges set = {};
  int least = 0;
  int most = -1;  // -1: without bound
  bool lazy = false;
};

// Throws UnsupportedPattern.
RegexPart ParseTextRegex(std::string_view pattern);

class TextRegex {
 public:
  // Throws UnsupportedPattern, also for an expression that matches an empty text.
  explicit TextRegex(std::string_view pattern);
  // An expression that matches this text.
  static TextRegex OfText(std::string_view text);

  struct Match {
    size_t begin;
    size_t end;
  };
  // Sets *matches to all matches. Throws TextTooCostly.
  void FindAll(std::string_view text, std::vector<Match>* matches) const;

 private:
  friend class RegexBuilder;
  explicit TextRegex(const RegexPart& root);

  static constexpr uint32_t kDead = 0;  // no match can follow
  static constexpr uint32_t kStart = 1;

  uint32_t ClassOf(char32_t code_point) const {
    return chars_[size_t{pages_[code_point >> 8]} << 8 | (code_point & 0xFF)];
  }
  // Returns the end of the match that begins at `at`, or `at` when there is none. Sets *stop to
  // where no match could go on, and adds the bytes that it read to *work.
  size_t MatchAt(std::string_view text, size_t at, size_t* stop, size_t* work) const;

  uint32_t num_classes_ = 0;     // of characters; the last one is the end of the text
  std::vector<uint16_t> pages_;  // of 256 characters each, in chars_
  std::vector<uint8_t> chars_;   // the classes of their characters
  std::vector<uint32_t> next_;   // [state][class]: next state * 2 + whether a match ends here
  std::vector<uint8_t> begins_;  // by class: whether a match may begin with it
  // One set repeated, and looks, as in `\s+$`: where one match fails, those that begin within the
  // run that it read fail, too.
  bool is_run_ = false;
};

}  // namespace mlc_native
