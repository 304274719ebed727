// PreTokenizer splits a text into words, across which no token reaches: the "pre_tokenizer" of
// tokenizer.json. Immutable after building; any thread.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "tokenizer/text_regex.h"
#include "tokenizer/unicode.h"

namespace mlc_native {

inline constexpr std::string_view kGpt2Words =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

// A part of a text that is encoded.
struct TextPiece {
  static constexpr int32_t kNoToken = -1;
  std::string_view text;
  bool at_start = false;        // it begins with the first character of the whole text
  int32_t token_id = kNoToken;  // of an added token, which is not split any further
};

// The texts that steps have made, which pieces point into.
using TextPool = std::deque<std::string>;

// What becomes of the matches of a splitting rule.
enum class SplitBehavior : uint8_t {
  kRemoved,
  kIsolated,
  kMergedWithPrevious,
  kMergedWithNext,
  kContiguous,
};

namespace pre_tokenizer_step {

struct Split {
  std::shared_ptr<const TextRegex> pattern;
  SplitBehavior behavior = SplitBehavior::kIsolated;
  bool invert = false;
};
struct SplitChars {  // the characters of a set, each a match
  const CharSet* set = nullptr;
  SplitBehavior behavior = SplitBehavior::kIsolated;
};
struct Words {};  // runs of word characters, and of others that are no spaces
struct Metaspace {
  enum class Prepend : uint8_t { kAlways, kFirst, kNever };
  std::string replacement;  // of a space
  Prepend prepend = Prepend::kAlways;
  bool split = true;  // a replacement begins a word
};
struct PrefixSpace {};  // a space in front of a text that has none

}  // namespace pre_tokenizer_step

class PreTokenizer {
 public:
  using Step = std::variant<pre_tokenizer_step::Split, pre_tokenizer_step::SplitChars,
                            pre_tokenizer_step::Words, pre_tokenizer_step::Metaspace,
                            pre_tokenizer_step::PrefixSpace>;
  void Add(Step step) { steps_.push_back(std::move(step)); }

  // Replaces the pieces that are no tokens by the words in them. With `continues`, the text
  // continues another one, so that nothing is put in front of it. Throws TextTooCostly.
  void Apply(bool continues, TextPool* pool, std::vector<TextPiece>* pieces) const;

 private:
  std::vector<Step> steps_;
};

}  // namespace mlc_native
