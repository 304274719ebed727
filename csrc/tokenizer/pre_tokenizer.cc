#include "tokenizer/pre_tokenizer.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <iterator>
#include <utility>

#include "support/utf8.h"

namespace mlc_native {
namespace {

enum CharClass : uint8_t { kOther, kLetter, kNumber, kSpace };

struct ClassRange {
  char32_t first;
  char32_t last;
  CharClass kind;
};

// Ascending. A character in no range is kOther.
constexpr ClassRange kRanges[] = {
#include "tokenizer/unicode_ranges.inc"
};

CharClass ClassOfAscii(char c) {
  if ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z')) return kLetter;
  if (c >= '0' && c <= '9') return kNumber;
  return c == ' ' || (c >= '\t' && c <= '\r') ? kSpace : kOther;
}

// Returns the code point of a valid character of at least 2 bytes.
char32_t DecodeChar(std::string_view bytes) {
  char32_t code_point = static_cast<uint8_t>(bytes[0]) & (0x7F >> bytes.size());
  for (char c : bytes.substr(1)) code_point = code_point << 6 | (static_cast<uint8_t>(c) & 0x3F);
  return code_point;
}

CharClass ClassOf(char32_t code_point) {
  const auto* range =
      std::lower_bound(std::begin(kRanges), std::end(kRanges), code_point,
                       [](const ClassRange& r, char32_t value) { return r.last < value; });
  return range != std::end(kRanges) && range->first <= code_point ? range->kind : kOther;
}

// A position in a text and the character there.
class Cursor {
 public:
  explicit Cursor(std::string_view text, size_t at = 0) : text_(text), at_(at) { Read(); }

  size_t at() const { return at_; }
  bool at_end() const { return at_ == text_.size(); }
  bool Is(CharClass kind) const { return !at_end() && kind_ == kind; }
  bool Is(char c) const { return !at_end() && text_[at_] == c; }
  bool IsNewline() const { return Is('\r') || Is('\n'); }
  std::string_view rest() const { return text_.substr(at_); }

  void Next() {
    at_ += length_;
    Read();
  }
  // Skips a run of one class. Returns false if there is none.
  bool Skip(CharClass kind) {
    const size_t begin = at_;
    while (Is(kind)) Next();
    return at_ > begin;
  }

 private:
  void Read() {
    if (at_end()) return;
    length_ = 1;
    kind_ = ClassOfAscii(text_[at_]);
    if (static_cast<uint8_t>(text_[at_]) < 0x80) return;
    const Utf8Step step = ReadUtf8(rest());
    const bool valid = step.status == Utf8Status::kValid;
    length_ = valid ? step.length : 1;
    kind_ = valid ? ClassOf(DecodeChar(text_.substr(at_, length_))) : kLetter;
  }

  std::string_view text_;
  size_t at_;
  size_t length_ = 0;
  CharClass kind_ = kOther;
};

char Lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }

// Returns the length of 's, 't, 're, 've, 'm, 'll or 'd at the beginning, else 0.
size_t Contraction(std::string_view text, bool any_case) {
  if (text[0] != '\'') return 0;
  static constexpr std::array<std::string_view, 7> kEndings = {"s", "t",  "re", "ve",
                                                               "m", "ll", "d"};
  for (std::string_view ending : kEndings) {
    const std::string_view there = text.substr(1, ending.size());
    const auto equal = [any_case](char a, char b) { return (any_case ? Lower(a) : a) == b; };
    if (std::equal(there.begin(), there.end(), ending.begin(), ending.end(), equal)) {
      return 1 + ending.size();
    }
  }
  return 0;
}

// \s+(?!\S)|\s+ at a space: the run of spaces except its last one, which belongs to the next word.
size_t Spaces(std::string_view text) {
  Cursor cursor(text);
  size_t last = 0;
  while (cursor.Is(kSpace)) {
    last = cursor.at();
    cursor.Next();
  }
  return cursor.at_end() || last == 0 ? cursor.at() : last;
}

// " ?X+", where X is *kind, the class of the character after the optional space. Returns 0 if that
// is a space.
size_t SpaceAndRun(std::string_view text, CharClass* kind) {
  Cursor cursor(text);
  if (cursor.Is(' ')) cursor.Next();
  for (CharClass candidate : {kLetter, kNumber, kOther}) {
    *kind = candidate;
    if (cursor.Skip(candidate)) return cursor.at();
  }
  return 0;
}

// [^\r\n\p{L}\p{N}]?\p{L}+
size_t LettersAndOneBefore(std::string_view text) {
  Cursor cursor(text);
  if (!cursor.IsNewline() && !cursor.Is(kLetter) && !cursor.Is(kNumber)) cursor.Next();
  return cursor.Skip(kLetter) ? cursor.at() : 0;
}

// \s*[\r\n]+: up to the last line break of a run of spaces.
size_t SpacesToLineBreak(std::string_view text) {
  size_t end = 0;
  for (Cursor cursor(text); cursor.Is(kSpace);) {
    const bool newline = cursor.IsNewline();
    cursor.Next();
    if (newline) end = cursor.at();
  }
  return end;
}

size_t DigitsUpTo(std::string_view text, int max_digits) {
  Cursor cursor(text);
  for (int i = 0; i < max_digits && cursor.Is(kNumber); ++i) cursor.Next();
  return cursor.at();
}

size_t Llama3WithDigits(std::string_view text, int max_digits) {
  if (const size_t length = Contraction(text, /*any_case=*/true)) return length;
  if (const size_t length = LettersAndOneBefore(text)) return length;
  if (const size_t length = DigitsUpTo(text, max_digits)) return length;
  CharClass kind;
  const size_t length = SpaceAndRun(text, &kind);
  if (length > 0 && kind == kOther) {
    Cursor cursor(text, length);
    while (cursor.IsNewline()) cursor.Next();
    return cursor.at();
  }
  if (const size_t to_line_break = SpacesToLineBreak(text)) return to_line_break;
  return Spaces(text);
}

// Returns the length of the text before its first number.
size_t UntilNumber(std::string_view text) {
  Cursor cursor(text);
  while (!cursor.at_end() && !cursor.Is(kNumber)) cursor.Next();
  return cursor.at();
}

}  // namespace

size_t word_rule::Gpt2(std::string_view text) {
  if (const size_t length = Contraction(text, /*any_case=*/false)) return length;
  CharClass kind;
  if (const size_t length = SpaceAndRun(text, &kind)) return length;
  return Spaces(text);
}

size_t word_rule::Llama3(std::string_view text) { return Llama3WithDigits(text, 3); }

size_t word_rule::Qwen2(std::string_view text) { return Llama3WithDigits(text, 1); }

size_t word_rule::SingleDigits(std::string_view text) {
  if (const size_t digit = DigitsUpTo(text, 1)) return digit;
  return UntilNumber(text);
}

size_t word_rule::RunsOfDigits(std::string_view text) {
  Cursor cursor(text);
  return cursor.Skip(kNumber) ? cursor.at() : UntilNumber(text);
}

size_t word_rule::SpaceBegins(std::string_view text) {
  return std::min(text.find(' ', 1), text.size());
}

void PreTokenizer::Split(std::string_view text, std::vector<std::string_view>* words) const {
  words->assign(1, text);
  std::vector<std::string_view> pieces;
  for (WordRule rule : rules_) {
    pieces.clear();
    for (std::string_view piece : *words) {
      while (!piece.empty()) {
        const size_t length = rule(piece);
        pieces.push_back(piece.substr(0, length));
        piece.remove_prefix(length);
      }
    }
    std::swap(pieces, *words);
  }
}

}  // namespace mlc_native
