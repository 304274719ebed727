// What the parts of a tokenizer ask about a character of Unicode, as the tokenizers package answers
// (its parts follow different versions of Unicode; tools/make_unicode_ranges.py asks it). Pure; any
// thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace mlc_native {

inline constexpr char32_t kMaxCodePoint = 0x10FFFF;

// General categories in the order of the tables; kUnassigned is what has none.
enum class Category : uint8_t {
  kLu,
  kLl,
  kLt,
  kLm,
  kLo,
  kMn,
  kMc,
  kMe,
  kNd,
  kNl,
  kNo,
  kPc,
  kPd,
  kPs,
  kPe,
  kPi,
  kPf,
  kPo,
  kSm,
  kSc,
  kSk,
  kSo,
  kZs,
  kZl,
  kZp,
  kCc,
  kCf,
  kCo,
  kUnassigned,
};
// The categories by their names in regular expressions, in this order.
inline constexpr std::string_view kCategoryNames =
    "LuLlLtLmLoMnMcMeNdNlNoPcPdPsPePiPfPoSmScSkSoZsZlZpCcCfCo";

struct CharRange {
  char32_t first;
  char32_t last;
};
using CharRanges = std::vector<CharRange>;  // ascending, and not adjacent

// A set of characters. Immutable.
class CharSet {
 public:
  explicit CharSet(CharRanges ranges) : ranges_(std::move(ranges)) {}
  bool Has(char32_t code_point) const;
  const CharRanges& ranges() const { return ranges_; }

 private:
  const CharRanges ranges_;
};

// The sets are made on their first use.
namespace unicode {

// The characters whose category is in `categories`, a bit of 1 << category each.
CharRanges OfCategories(uint32_t categories);
const CharSet& Spaces();        // White_Space
const CharSet& WordChars();     // \w of the rules of single words
const CharSet& PatternWords();  // \w of a tokenizer's regular expressions
const CharSet& Han();
const CharSet& Numerics();
const CharSet& Punctuation();
const CharSet& Marks();  // combining ones
// Of grapheme clusters.
const CharSet& ClusterControls();
const CharSet& ClusterExtenders();
const CharSet& ClusterPrefixes();

// Appends the lower case of a character, which may be several.
void AppendLower(char32_t code_point, std::string* text);

}  // namespace unicode

// Characters and what each becomes, sorted by character.
struct CharMap {
  struct Entry {
    char32_t code_point;
    uint32_t begin;  // in `results`
    uint32_t size;
  };
  std::vector<Entry> entries;
  std::u32string results;

  // Returns false if the character is not in the map.
  bool Find(char32_t code_point, std::u32string_view* result) const;
};

// Readers of tables, as tools/make_unicode_ranges.py writes them.
class TableReader {
 public:
  explicit TableReader(std::string_view data) : data_(data) {}
  bool at_end() const { return at_ == data_.size(); }
  uint32_t Next();

 private:
  std::string_view data_;
  size_t at_ = 0;
};
CharRanges ReadRanges(std::string_view data);
CharMap ReadCharMap(std::string_view data);

// The first character of a text. A byte that is no UTF-8 is a character of 1 byte, which counts as
// a letter. Requires: the text is not empty.
struct TextChar {
  char32_t code_point;
  uint32_t length;  // bytes
  bool is_valid;
};
TextChar FirstChar(std::string_view text);

// The length in bytes of the spaces at the beginning and at the end.
size_t LeadingSpaces(std::string_view text);
size_t TrailingSpaces(std::string_view text);
// The last character. Requires: the text is not empty.
TextChar LastChar(std::string_view text);

}  // namespace mlc_native
