// The parser of a tokenizer's regular expressions: the syntax of Oniguruma, as far as tokenizers
// use it. What it does not know it refuses by name.
#include <algorithm>
#include <optional>
#include <utility>

#include "support/utf8.h"
#include "tokenizer/text_regex.h"

namespace mlc_native {
namespace {

constexpr int kMaxGroupDepth = 50;
constexpr int kMaxCount = 1000;  // in {n,m}
constexpr size_t kMaxPatternBytes = 8192;
constexpr int kMaxClassItems = 256;

CharRanges Unite(const CharRanges& a, const CharRanges& b) {
  CharRanges all(a);
  all.insert(all.end(), b.begin(), b.end());
  std::ranges::sort(all, {}, &CharRange::first);
  CharRanges result;
  for (const CharRange& range : all) {
    if (!result.empty() && range.first <= result.back().last + 1) {
      result.back().last = std::max(result.back().last, range.last);
    } else {
      result.push_back(range);
    }
  }
  return result;
}

CharRanges Complement(const CharRanges& set) {
  CharRanges result;
  char32_t at = 0;
  for (const CharRange& range : set) {
    if (at < range.first) result.push_back({at, range.first - 1});
    at = range.last + 1;
  }
  if (at <= kMaxCodePoint) result.push_back({at, kMaxCodePoint});
  return result;
}

CharRanges Intersect(const CharRanges& a, const CharRanges& b) {
  return Complement(Unite(Complement(a), Complement(b)));
}

// Adds the letters of the other case.
CharRanges WithoutCase(const CharRanges& set) {
  CharRanges other;
  for (const CharRange& range : set) {
    if (range.last >= 0x80) {
      throw UnsupportedPattern("\"(?i:\" around characters that are not ASCII");
    }
    for (char32_t c = range.first; c <= range.last; ++c) {
      const bool is_letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
      if (is_letter) other.push_back({c ^ 0x20, c ^ 0x20});
      if ((c | 0x20) == 's') other.push_back({0x17F, 0x17F});    // the long s
      if ((c | 0x20) == 'k') other.push_back({0x212A, 0x212A});  // the Kelvin sign
    }
  }
  return Unite(set, other);
}

// \w within a class. Oniguruma takes these characters for word characters outside of classes alone.
CharRanges WordsOfClasses() {
  const CharRanges fractions{{0xB2, 0xB3}, {0xB9, 0xB9}, {0xBC, 0xBE}};
  return Intersect(unicode::PatternWords().ranges(), Complement(fractions));
}

class TextRegexParser {
 public:
  explicit TextRegexParser(std::u32string text) : text_(std::move(text)) {}

  RegexPart Run() {
    RegexPart root = Either(/*ignore_case=*/false);
    if (!AtEnd()) Refuse("an unmatched \")\"");
    return root;
  }

 private:
  using Kind = RegexPart::Kind;

  [[noreturn]] static void Refuse(const std::string& what) {
    throw UnsupportedPattern("a regular expression with " + what);
  }
  static std::string Quoted(char32_t c) {
    std::string text = "\"";
    AppendCodePoint(c, &text);
    return text + '"';
  }

  bool AtEnd() const { return at_ == text_.size(); }
  bool Sees(char32_t c) const { return !AtEnd() && text_[at_] == c; }
  bool Take(char32_t c) {
    if (!Sees(c)) return false;
    ++at_;
    return true;
  }
  bool Take(std::u32string_view text) {
    if (text_.compare(at_, text.size(), text) != 0) return false;
    at_ += text.size();
    return true;
  }
  char32_t Next(const char* within) {
    if (AtEnd()) Refuse(std::string(within) + " that does not end");
    return text_[at_++];
  }

  RegexPart Either(bool ignore_case) {
    RegexPart either{.kind = Kind::kEither};
    do {
      RegexPart sequence{.kind = Kind::kSequence};
      while (!AtEnd() && !Sees('|') && !Sees(')')) {
        RegexPart atom = Atom(ignore_case);
        Quantify(&atom);
        sequence.parts.push_back(std::move(atom));
      }
      either.parts.push_back(std::move(sequence));
    } while (Take('|'));
    return either;
  }

  RegexPart Atom(bool ignore_case) {
    const char32_t c = text_[at_++];
    switch (c) {
      case '(':
        return Group(ignore_case);
      case '[':
        return Character(Class(), ignore_case);
      case '\\':
        if (Take('z')) return {.kind = Kind::kNextIsNot, .set = {{0, kMaxCodePoint}}};
        return Character(Escape(/*in_class=*/false), ignore_case);
      case '.':
        return {.kind = Kind::kSet, .set = Complement({{'\n', '\n'}})};
      case '$':
        return {.kind = Kind::kNextIsNot, .set = Complement({{'\n', '\n'}})};
      case '^':
      case '*':
      case '+':
      case '?':
        Refuse(Quoted(c) + " at this place");
      default:
        return Character({{c, c}}, ignore_case);
    }
  }

  static RegexPart Character(CharRanges set, bool ignore_case) {
    return {.kind = Kind::kSet, .set = ignore_case ? WithoutCase(set) : std::move(set)};
  }

  RegexPart Group(bool ignore_case) {
    if (++depth_ > kMaxGroupDepth) Refuse("groups that are nested too deeply");
    std::optional<Kind> look;
    if (Take(U"?i:")) {
      ignore_case = true;
    } else if (Take(U"?=")) {
      look = Kind::kNextIs;
    } else if (Take(U"?!")) {
      look = Kind::kNextIsNot;
    } else if (!Take(U"?:") && Sees('?')) {
      Refuse("a group of a kind that is not known");
    }
    RegexPart group = Either(ignore_case);
    if (!Take(')')) Refuse("a group that does not end");
    --depth_;
    if (!look) return group;
    const bool is_single = group.parts.size() == 1 && group.parts[0].parts.size() == 1 &&
                           group.parts[0].parts[0].kind == Kind::kSet;
    if (!is_single) Refuse("a look at more than one character");
    return {.kind = *look, .set = std::move(group.parts[0].parts[0].set)};
  }

  // Makes a repetition of an atom that a quantifier follows.
  void Quantify(RegexPart* atom) {
    int least = 0, most = -1;
    const bool has_counts = Sees('{');
    if (Take('*')) {
    } else if (Take('+')) {
      least = 1;
    } else if (Take('?')) {
      most = 1;
    } else if (!TakeCounts(&least, &most)) {
      return;
    }
    if (atom->kind == Kind::kNextIs || atom->kind == Kind::kNextIsNot) Refuse("a repeated look");
    const bool lazy = Take('?');
    const bool possessive = !lazy && Take('+');
    if (has_counts && (lazy || possessive)) Refuse("\"{n,m}\" before \"?\" or \"+\"");
    if (Sees('*') || Sees('+') || Sees('?') || Sees('{')) Refuse("a repeated repetition");
    CharRanges set = atom->set;
    const bool is_set = atom->kind == Kind::kSet;
    RegexPart repeat{.kind = Kind::kRepeat, .least = least, .most = most, .lazy = lazy};
    repeat.parts.push_back(std::move(*atom));
    *atom = std::move(repeat);
    if (possessive) Possess(atom, is_set, std::move(set));
  }

  // Taking all that there is means that the character behind it is another one.
  static void Possess(RegexPart* repeat, bool is_set, CharRanges set) {
    if (!is_set) Refuse("a possessive repetition of a group");
    RegexPart stop{.kind = Kind::kNextIsNot, .set = std::move(set)};
    RegexPart result;
    if (repeat->most == 1) {
      result.kind = Kind::kEither;
      result.parts.push_back(std::move(repeat->parts[0]));
    } else {
      result.parts.push_back(std::move(*repeat));
    }
    result.parts.push_back(std::move(stop));
    *repeat = std::move(result);
  }

  bool TakeCounts(int* least, int* most) {
    if (!Take('{')) return false;
    const std::optional<int> low = Count();
    *least = low.value_or(0);
    *most = *least;
    bool is_count = low.has_value();
    if (Take(',')) {
      const std::optional<int> high = Count();
      *most = high.value_or(-1);
      is_count |= high.has_value();
    }
    if (is_count && Take('}')) {
      if (*most >= 0 && *most < *least) Refuse("\"{n,m}\" with n > m");
      return true;
    }
    Refuse("\"{\" that begins no count");
  }

  std::optional<int> Count() {
    const size_t begin = at_;
    int count = 0;
    for (; !AtEnd() && text_[at_] >= '0' && text_[at_] <= '9'; ++at_) {
      count = count * 10 + static_cast<int>(text_[at_] - '0');
      if (count > kMaxCount) Refuse("a count above " + std::to_string(kMaxCount));
    }
    if (at_ == begin) return std::nullopt;
    return count;
  }

  // ---- classes ----

  CharRanges Class() {
    if (++depth_ > kMaxGroupDepth) Refuse("classes that are nested too deeply");
    const bool is_negated = Take('^');
    if (Sees(']')) Refuse("an empty class");
    CharRanges all{{0, kMaxCodePoint}};  // what stands before "&&"
    CharRanges set;
    while (!Take(']')) {
      if (Take(U"&&")) {
        all = Intersect(all, set);
        set.clear();
        continue;
      }
      set = Unite(set, ClassItem());
    }
    --depth_;
    set = Intersect(all, set);
    return is_negated ? Complement(set) : set;
  }

  CharRanges ClassItem() {
    if (++num_items_ > kMaxClassItems) Refuse("so many parts of classes");
    if (Sees('[') && at_ + 1 < text_.size() && text_[at_ + 1] == ':') Refuse("a POSIX class");
    if (Take('[')) return Class();
    CharRanges low = ClassAtom();
    const bool is_range = Sees('-') && at_ + 1 < text_.size() && text_[at_ + 1] != ']';
    if (!is_range) return low;
    ++at_;
    if (Sees('[')) Refuse("a range to a class");
    const CharRanges high = ClassAtom();
    const auto is_one = [](const CharRanges& set) {
      return set.size() == 1 && set[0].first == set[0].last;
    };
    if (!is_one(low) || !is_one(high) || low[0].first > high[0].first) Refuse("an odd range");
    return {{low[0].first, high[0].first}};
  }

  CharRanges ClassAtom() {
    const char32_t c = Next("a class");
    if (c == '\\') return Escape(/*in_class=*/true);
    return {{c, c}};
  }

  CharRanges Escape(bool in_class) {
    const char32_t c = Next("an escape");
    const auto set = [](const CharRanges& ranges, bool is_negated) {
      return is_negated ? Complement(ranges) : ranges;
    };
    switch (c) {
      case 's':
      case 'S':
        return set(unicode::Spaces().ranges(), c == 'S');
      case 'd':
      case 'D':
        return set(unicode::OfCategories(1u << static_cast<uint32_t>(Category::kNd)), c == 'D');
      case 'w':
      case 'W':
        return set(in_class ? WordsOfClasses() : unicode::PatternWords().ranges(), c == 'W');
      case 'p':
      case 'P':
        return Property(c == 'P');
      case 'n':
        return {{'\n', '\n'}};
      case 'r':
        return {{'\r', '\r'}};
      case 't':
        return {{'\t', '\t'}};
      case 'v':
        return {{'\v', '\v'}};
      case 'f':
        return {{'\f', '\f'}};
      case 'x':
        return Code(Sees('{') ? 0 : 2);
      case 'u':
        return Code(4);
      default:
        break;
    }
    const bool is_word = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
    if (is_word || c >= 0x80) Refuse("the escape \\" + Quoted(c).substr(1));
    return {{c, c}};
  }

  // Of that many digits; 0: within braces.
  CharRanges Code(size_t num_digits) {
    const bool in_braces = num_digits == 0 && Take('{');
    uint32_t code = 0;
    size_t count = 0;
    for (; in_braces ? !Sees('}') : count < num_digits; ++count) {
      const char32_t c = Next("a code");
      const char32_t lower = c | 0x20;
      const bool is_digit = c >= '0' && c <= '9';
      if (!is_digit && (lower < 'a' || lower > 'f')) Refuse("a code that is no number");
      code = code * 16 + (is_digit ? c - '0' : lower - 'a' + 10);
      if (code > kMaxCodePoint) Refuse("a code beyond Unicode");
    }
    if (in_braces) Take('}');
    if (count == 0 || (code >= 0xD800 && code <= 0xDFFF)) Refuse("a code of no character");
    if (!in_braces && num_digits == 2 && code >= 0x80) Refuse("a byte");
    return {{code, code}};
  }

  // "{L}" or "{Lu}", negated by "^".
  CharRanges Property(bool is_negated) {
    if (!Take('{')) Refuse("\\p without a name");
    if (Take('^')) is_negated = !is_negated;
    std::string name;
    while (!Take('}')) {
      const char32_t c = Next("\\p");
      AppendCodePoint(c >= 0xD800 && c <= 0xDFFF ? '?' : c, &name);
    }
    CharRanges set;
    if (name == "Han") {
      set = unicode::Han().ranges();
    } else {
      uint32_t categories = 0;
      for (size_t i = 0; i * 2 < kCategoryNames.size() && (name.size() == 1 || name.size() == 2);
           ++i) {
        if (kCategoryNames.substr(i * 2, 2).starts_with(name)) categories |= 1u << i;
      }
      if (categories == 0 || name == "C") Refuse("the property \"" + name + '"');
      set = unicode::OfCategories(categories);
    }
    return is_negated ? Complement(set) : set;
  }

  const std::u32string text_;
  size_t at_ = 0;
  int depth_ = 0;
  int num_items_ = 0;
};

}  // namespace

RegexPart ParseTextRegex(std::string_view pattern) {
  if (pattern.size() > kMaxPatternBytes) {
    throw UnsupportedPattern("a regular expression that is too large");
  }
  std::optional<std::u32string> text = DecodeUtf8(pattern);
  if (!text) throw UnsupportedPattern("a regular expression that is no UTF-8");
  return TextRegexParser(std::move(*text)).Run();
}

}  // namespace mlc_native
