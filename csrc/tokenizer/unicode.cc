#include "tokenizer/unicode.h"

#include <algorithm>

#include "support/utf8.h"

namespace mlc_native {
namespace {

#include "tokenizer/unicode_ranges.inc"

constexpr char32_t kLetterOfBytes = 0x1BB;  // a letter without case

uint32_t DigitOf(char c) {
  if (c >= 'A' && c <= 'Z') return static_cast<uint32_t>(c - 'A');
  if (c >= 'a' && c <= 'z') return static_cast<uint32_t>(c - 'a') + 26;
  if (c >= '0' && c <= '9') return static_cast<uint32_t>(c - '0') + 52;
  return c == '+' ? 62 : 63;
}

struct CategoryRange {
  CharRange range;
  uint32_t category;
};

const std::vector<CategoryRange>& CategoryRanges() {
  static const std::vector<CategoryRange> ranges = [] {
    std::vector<CategoryRange> result;
    char32_t at = 0;
    for (TableReader reader(kCategoryData); !reader.at_end();) {
      const char32_t first = at + reader.Next();
      const char32_t last = first + reader.Next();
      result.push_back({{first, last}, reader.Next()});
      at = last + 1;
    }
    return result;
  }();
  return ranges;
}

}  // namespace

bool CharSet::Has(char32_t code_point) const {
  const auto range =
      std::lower_bound(ranges_.begin(), ranges_.end(), code_point,
                       [](const CharRange& r, char32_t value) { return r.last < value; });
  return range != ranges_.end() && range->first <= code_point;
}

uint32_t TableReader::Next() {
  uint32_t value = 0;
  for (uint32_t shift = 0;; shift += 5) {
    const uint32_t digit = DigitOf(data_[at_++]);
    value |= (digit & 31) << shift;
    if (digit < 32) return value;
  }
}

CharRanges ReadRanges(std::string_view data) {
  CharRanges ranges;
  char32_t at = 0;
  for (TableReader reader(data); !reader.at_end();) {
    const char32_t first = at + reader.Next();
    const char32_t last = first + reader.Next();
    ranges.push_back({first, last});
    at = last + 1;
  }
  return ranges;
}

CharMap ReadCharMap(std::string_view data) {
  CharMap map;
  char32_t at = 0;
  for (TableReader reader(data); !reader.at_end();) {
    const char32_t code_point = at + reader.Next();
    const uint32_t size = reader.Next();
    map.entries.push_back({code_point, static_cast<uint32_t>(map.results.size()), size});
    for (uint32_t i = 0; i < size; ++i) {
      const uint32_t offset = reader.Next();
      map.results.push_back(offset % 2 == 0 ? code_point + offset / 2
                                            : code_point - (offset + 1) / 2);
    }
    at = code_point + 1;
  }
  return map;
}

bool CharMap::Find(char32_t code_point, std::u32string_view* result) const {
  const auto entry =
      std::lower_bound(entries.begin(), entries.end(), code_point,
                       [](const Entry& e, char32_t value) { return e.code_point < value; });
  if (entry == entries.end() || entry->code_point != code_point) return false;
  *result = std::u32string_view(results).substr(entry->begin, entry->size);
  return true;
}

CharRanges unicode::OfCategories(uint32_t categories) {
  CharRanges ranges;
  const auto add = [&](CharRange range) {
    if (!ranges.empty() && ranges.back().last + 1 == range.first) {
      ranges.back().last = range.last;
    } else {
      ranges.push_back(range);
    }
  };
  const bool has_unassigned = (categories >> static_cast<uint32_t>(Category::kUnassigned) & 1) != 0;
  char32_t at = 0;
  for (const auto& [range, category] : CategoryRanges()) {
    if (has_unassigned && at < range.first) add({at, range.first - 1});
    if ((categories >> category & 1) != 0) add(range);
    at = range.last + 1;
  }
  if (has_unassigned && at <= kMaxCodePoint) add({at, kMaxCodePoint});
  return ranges;
}

const CharSet& unicode::Spaces() {
  static const CharSet set(CharRanges{{0x9, 0xD},
                                      {0x20, 0x20},
                                      {0x85, 0x85},
                                      {0xA0, 0xA0},
                                      {0x1680, 0x1680},
                                      {0x2000, 0x200A},
                                      {0x2028, 0x2029},
                                      {0x202F, 0x202F},
                                      {0x205F, 0x205F},
                                      {0x3000, 0x3000}});
  return set;
}

const CharSet& unicode::WordChars() {
  static const CharSet set(ReadRanges(kWordData));
  return set;
}

const CharSet& unicode::PatternWords() {
  static const CharSet set(ReadRanges(kPatternWordData));
  return set;
}

const CharSet& unicode::Han() {
  static const CharSet set(ReadRanges(kHanData));
  return set;
}

const CharSet& unicode::Numerics() {
  static const CharSet set(ReadRanges(kNumericData));
  return set;
}

const CharSet& unicode::Punctuation() {
  static const CharSet set(ReadRanges(kPunctuationData));
  return set;
}

const CharSet& unicode::Marks() {
  static const CharSet set(ReadRanges(kMarkData));
  return set;
}

const CharSet& unicode::ClusterControls() {
  static const CharSet set(ReadRanges(kClusterControlData));
  return set;
}

const CharSet& unicode::ClusterExtenders() {
  static const CharSet set(ReadRanges(kClusterExtendData));
  return set;
}

const CharSet& unicode::ClusterPrefixes() {
  static const CharSet set(ReadRanges(kClusterPrependData));
  return set;
}

void unicode::AppendLower(char32_t code_point, std::string* text) {
  static const CharMap map = ReadCharMap(kLowercaseData);
  if (code_point < 0x80) {
    const bool is_upper = code_point >= 'A' && code_point <= 'Z';
    text->push_back(static_cast<char>(is_upper ? code_point + 32 : code_point));
    return;
  }
  std::u32string_view lower;
  if (!map.Find(code_point, &lower)) {
    AppendCodePoint(code_point, text);
    return;
  }
  for (char32_t c : lower) AppendCodePoint(c, text);
}

TextChar FirstChar(std::string_view text) {
  const auto first = static_cast<uint8_t>(text[0]);
  if (first < 0x80) return {first, 1, true};
  const Utf8Step step = ReadUtf8(text);
  if (step.status != Utf8Status::kValid) return {kLetterOfBytes, 1, false};
  char32_t code_point = first & (0x7Fu >> step.length);
  for (size_t i = 1; i < step.length; ++i) {
    code_point = code_point << 6 | (static_cast<uint8_t>(text[i]) & 0x3F);
  }
  return {code_point, static_cast<uint32_t>(step.length), true};
}

TextChar LastChar(std::string_view text) {
  size_t begin = text.size() - 1;
  while (begin > 0 && text.size() - begin < 4 &&
         (static_cast<uint8_t>(text[begin]) & 0xC0) == 0x80) {
    --begin;
  }
  const TextChar found = FirstChar(text.substr(begin));
  if (found.length == text.size() - begin) return found;
  return {kLetterOfBytes, 1, false};
}

size_t LeadingSpaces(std::string_view text) {
  size_t at = 0;
  while (at < text.size()) {
    const TextChar next = FirstChar(text.substr(at));
    if (!unicode::Spaces().Has(next.code_point)) break;
    at += next.length;
  }
  return at;
}

size_t TrailingSpaces(std::string_view text) {
  size_t end = text.size();
  while (end > 0) {
    const TextChar last = LastChar(text.substr(0, end));
    if (!unicode::Spaces().Has(last.code_point)) break;
    end -= last.length;
  }
  return text.size() - end;
}

}  // namespace mlc_native
