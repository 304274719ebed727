#include "tokenizer/normal_forms.h"

#include <algorithm>
#include <unordered_map>
#include <vector>

#include "support/utf8.h"
#include "tokenizer/unicode.h"

namespace mlc_native {
namespace {

#include "tokenizer/normal_forms.inc"

// Syllables of Hangul are numbered by their three parts.
constexpr char32_t kFirstSyllable = 0xAC00, kFirstLead = 0x1100, kFirstVowel = 0x1161,
                   kBeforeTail = 0x11A7;
constexpr uint32_t kNumLeads = 19, kNumVowels = 21, kNumTails = 28;
constexpr uint32_t kNumSyllables = kNumLeads * kNumVowels * kNumTails;

bool IsIn(char32_t code_point, char32_t first, uint32_t count) {
  return code_point >= first && code_point - first < count;
}

class NormalTables {
 public:
  static const NormalTables& Get() {
    static const NormalTables tables;
    return tables;
  }

  uint8_t ClassOf(char32_t code_point) const {
    const auto found = classes_.find(code_point);
    return found == classes_.end() ? 0 : found->second;
  }

  // Appends what a character is decomposed into.
  void Decompose(char32_t code_point, bool compatible, std::u32string* out) const {
    if (IsIn(code_point, kFirstSyllable, kNumSyllables)) {
      const uint32_t index = code_point - kFirstSyllable;
      out->push_back(kFirstLead + index / (kNumVowels * kNumTails));
      out->push_back(kFirstVowel + index / kNumTails % kNumVowels);
      if (index % kNumTails != 0) out->push_back(kBeforeTail + index % kNumTails);
      return;
    }
    std::u32string_view parts;
    if (canonical_.Find(code_point, &parts)) {
      for (char32_t part : parts) Decompose(part, compatible, out);
    } else if (compatible && compatible_.Find(code_point, &parts)) {
      out->append(parts);
    } else {
      out->push_back(code_point);
    }
  }

  // Returns the character that two others make, or 0.
  char32_t Compose(char32_t first, char32_t second) const {
    if (IsIn(first, kFirstLead, kNumLeads) && IsIn(second, kFirstVowel, kNumVowels)) {
      return kFirstSyllable +
             ((first - kFirstLead) * kNumVowels + (second - kFirstVowel)) * kNumTails;
    }
    if (IsIn(first, kFirstSyllable, kNumSyllables) && (first - kFirstSyllable) % kNumTails == 0 &&
        IsIn(second, kBeforeTail + 1, kNumTails - 1)) {
      return first + (second - kBeforeTail);
    }
    const auto found = composed_.find(uint64_t{first} << 32 | second);
    return found == composed_.end() ? 0 : found->second;
  }

 private:
  NormalTables()
      : canonical_(ReadCharMap(kCanonicalData)), compatible_(ReadCharMap(kCompatibleData)) {
    char32_t at = 0;
    for (TableReader reader(kCombiningData); !reader.at_end(); ++at) {
      at += reader.Next();
      classes_.emplace(at, static_cast<uint8_t>(reader.Next()));
    }
    const CharSet not_composed(ReadRanges(kNotComposedData));
    for (const CharMap::Entry& entry : canonical_.entries) {
      if (entry.size != 2 || not_composed.Has(entry.code_point)) continue;
      const char32_t* pair = canonical_.results.data() + entry.begin;
      composed_.emplace(uint64_t{pair[0]} << 32 | pair[1], entry.code_point);
    }
  }

  const CharMap canonical_;   // one step of it: one or two characters
  const CharMap compatible_;  // in full
  std::unordered_map<char32_t, uint8_t> classes_;
  std::unordered_map<uint64_t, char32_t> composed_;
};

// Puts the marks of each character into the order of their classes.
void OrderMarks(const NormalTables& tables, std::u32string* text) {
  struct Mark {
    uint8_t order;
    char32_t code_point;
  };
  std::vector<Mark> marks;
  for (size_t at = 0; at < text->size();) {
    const uint8_t order = tables.ClassOf((*text)[at]);
    if (order == 0) {
      ++at;
      continue;
    }
    marks.clear();
    size_t end = at;
    for (uint8_t next = order; next != 0;) {
      marks.push_back({next, (*text)[end]});
      next = ++end < text->size() ? tables.ClassOf((*text)[end]) : 0;
    }
    std::ranges::stable_sort(marks, {}, &Mark::order);
    for (const Mark& mark : marks) (*text)[at++] = mark.code_point;
  }
}

// Joins what can be joined, in place.
void Compose(const NormalTables& tables, std::u32string* text) {
  constexpr size_t kNone = SIZE_MAX;
  size_t starter = kNone;  // where the character that marks may be joined with is
  size_t size = 0;
  int last_class = -1;  // of what lies between it and the next character; -1: nothing
  for (char32_t c : *text) {
    const uint8_t order = tables.ClassOf(c);
    const bool is_reachable = starter != kNone && last_class < static_cast<int>(order);
    const char32_t joined = is_reachable ? tables.Compose((*text)[starter], c) : 0;
    if (joined != 0) {
      (*text)[starter] = joined;
      continue;
    }
    if (order == 0) {
      starter = size;
      last_class = -1;
    } else {
      last_class = order;
    }
    (*text)[size++] = c;
  }
  text->resize(size);
}

}  // namespace

std::string Normalized(std::string_view text, NormalForm form) {
  if (IsAscii(text)) return std::string(text);
  const NormalTables& tables = NormalTables::Get();
  const bool compatible = form == NormalForm::kNfkc || form == NormalForm::kNfkd;
  std::u32string decomposed;
  decomposed.reserve(text.size());
  for (size_t at = 0; at < text.size();) {
    const TextChar next = FirstChar(text.substr(at));
    tables.Decompose(next.code_point, compatible, &decomposed);
    at += next.length;
  }
  OrderMarks(tables, &decomposed);
  if (form == NormalForm::kNfc || form == NormalForm::kNfkc) Compose(tables, &decomposed);
  std::string result;
  result.reserve(text.size());
  for (char32_t c : decomposed) AppendCodePoint(c, &result);
  return result;
}

}  // namespace mlc_native
