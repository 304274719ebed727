#include <algorithm>
#include <span>
#include <utility>

#include "grammar/regex.h"
#include "support/utf8.h"

namespace mlc_native {
namespace {

using Kind = RegexNode::Kind;
using Ranges = std::vector<CodeRange>;

constexpr uint32_t kLastCode = 0x10FFFF;
constexpr int64_t kMaxRepetitions = 10000;  // of a repetition
constexpr CodeRange kDigits[] = {{'0', '9'}};
constexpr CodeRange kWord[] = {{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}};
constexpr CodeRange kSpace[] = {
    {9, 13},          {' ', ' '},       {0xA0, 0xA0},     {0x1680, 0x1680}, {0x2000, 0x200A},
    {0x2028, 0x2029}, {0x202F, 0x202F}, {0x205F, 0x205F}, {0x3000, 0x3000}, {0xFEFF, 0xFEFF}};
constexpr CodeRange kLineEnds[] = {{'\n', '\n'}, {'\r', '\r'}, {0x2028, 0x2029}};

Ranges Normalized(Ranges ranges) {
  std::ranges::sort(ranges, {}, &CodeRange::low);
  Ranges merged;
  for (const CodeRange& range : ranges) {
    if (!merged.empty() && range.low <= merged.back().high + 1) {
      merged.back().high = std::max(merged.back().high, range.high);
    } else {
      merged.push_back(range);
    }
  }
  return merged;
}

// Requires: ranges that ascend.
Ranges AllBut(const Ranges& ranges) {
  Ranges others;
  uint32_t next = 0;
  for (const CodeRange& range : ranges) {
    if (range.low > next) others.push_back({next, range.low - 1});
    next = range.high + 1;
  }
  if (next <= kLastCode) others.push_back({next, kLastCode});
  return others;
}

RegexNode Character(Ranges ranges) {
  return {.kind = Kind::kCharacter, .ranges = Normalized(std::move(ranges))};
}

std::optional<uint32_t> HexDigit(char32_t c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return std::nullopt;
}

// A recursive descent. Every function returns nullopt (or false) for what is not supported.
class RegexParser {
 public:
  explicit RegexParser(std::u32string text) : text_(std::move(text)) {}

  std::optional<RegexNode> Run() {
    std::optional<RegexNode> root = Either();
    if (!root || !AtEnd()) return std::nullopt;
    return root;
  }

 private:
  bool AtEnd() const { return at_ == text_.size(); }
  bool Sees(char32_t c) const { return !AtEnd() && text_[at_] == c; }
  bool Take(char32_t c) {
    if (!Sees(c)) return false;
    ++at_;
    return true;
  }

  std::optional<RegexNode> Either() {
    RegexNode either{.kind = Kind::kEither};
    do {
      std::optional<RegexNode> sequence = Sequence();
      if (!sequence) return std::nullopt;
      either.parts.push_back(std::move(*sequence));
    } while (Take('|'));
    if (either.parts.size() > 1) return either;
    RegexNode only = std::move(either.parts[0]);
    return only;
  }

  std::optional<RegexNode> Sequence() {
    RegexNode sequence;
    while (!AtEnd() && !Sees('|') && !Sees(')')) {
      std::optional<RegexNode> atom = Atom();
      if (!atom || !Quantify(&*atom)) return std::nullopt;
      sequence.parts.push_back(std::move(*atom));
    }
    return sequence;
  }

  std::optional<RegexNode> Atom() {
    const char32_t c = text_[at_++];
    switch (c) {
      case '^':
        return RegexNode{.kind = Kind::kStart};
      case '$':
        return RegexNode{.kind = Kind::kEnd};
      case '.':
        return Character(AllBut({std::begin(kLineEnds), std::end(kLineEnds)}));
      case '(':
        return Group();
      case '[':
        return Class();
      case '\\': {
        std::optional<Ranges> ranges = Escape(/*in_class=*/false);
        if (!ranges) return std::nullopt;
        return Character(std::move(*ranges));
      }
      case '*':
      case '+':
      case '?':
      case '{':
      case '}':
      case ']':
        return std::nullopt;
      default:
        return Character({{c, c}});
    }
  }

  std::optional<RegexNode> Group() {
    if (Take('?')) {
      if (Take('<')) {  // a name, or a lookbehind
        if (Sees('=') || Sees('!')) return std::nullopt;
        const size_t end = text_.find(U'>', at_);
        if (end == std::u32string::npos) return std::nullopt;
        at_ = end + 1;
      } else if (!Take(':')) {
        return std::nullopt;
      }
    }
    if (++depth_ > kMaxRegexDepth) return std::nullopt;
    std::optional<RegexNode> inside = Either();
    --depth_;
    if (!inside || !Take(')')) return std::nullopt;
    return inside;
  }

  // Makes a repetition of an atom that a quantifier follows.
  bool Quantify(RegexNode* atom) {
    int64_t least = 0, most = -1;
    if (Take('*')) {
    } else if (Take('+')) {
      least = 1;
    } else if (Take('?')) {
      most = 1;
    } else if (Take('{')) {
      if (!Counts(&least, &most)) return false;
    } else {
      return true;
    }
    if (atom->kind == Kind::kStart || atom->kind == Kind::kEnd) return false;
    Take('?');  // a lazy one matches the same texts
    if (Sees('*') || Sees('+') || Sees('?') || Sees('{')) return false;
    RegexNode repeat{.kind = Kind::kRepeat, .least = least, .most = most};
    repeat.parts.push_back(std::move(*atom));
    *atom = std::move(repeat);
    return true;
  }

  bool Counts(int64_t* least, int64_t* most) {
    const std::optional<int64_t> low = Count();
    if (!low) return false;
    *least = *most = *low;
    if (Take(',')) {
      *most = -1;
      if (!Sees('}')) {
        const std::optional<int64_t> high = Count();
        if (!high || *high < *low) return false;
        *most = *high;
      }
    }
    return Take('}');
  }

  std::optional<int64_t> Count() {
    int64_t count = 0;
    const size_t start = at_;
    for (; !AtEnd() && text_[at_] >= '0' && text_[at_] <= '9'; ++at_) {
      count = count * 10 + (text_[at_] - '0');
      if (count > kMaxRepetitions) return std::nullopt;
    }
    if (at_ == start) return std::nullopt;
    return count;
  }

  std::optional<RegexNode> Class() {
    const bool is_negated = Take('^');
    Ranges ranges;
    while (!Take(']')) {
      std::optional<Ranges> low = ClassAtom();
      if (!low) return std::nullopt;
      const bool is_range = Sees('-') && at_ + 1 < text_.size() && text_[at_ + 1] != ']';
      if (is_range) {
        ++at_;
        const std::optional<Ranges> high = ClassAtom();
        const auto is_one = [](const Ranges& r) { return r.size() == 1 && r[0].low == r[0].high; };
        if (!high || !is_one(*low) || !is_one(*high)) return std::nullopt;
        if (low->front().low > high->front().low) return std::nullopt;
        low->front().high = high->front().high;
      }
      ranges.insert(ranges.end(), low->begin(), low->end());
    }
    ranges = Normalized(std::move(ranges));
    return Character(is_negated ? AllBut(ranges) : ranges);
  }

  std::optional<Ranges> ClassAtom() {
    if (AtEnd()) return std::nullopt;
    const char32_t c = text_[at_++];
    if (c == '\\') return Escape(/*in_class=*/true);
    return Ranges{{c, c}};
  }

  std::optional<Ranges> Escape(bool in_class) {
    if (AtEnd()) return std::nullopt;
    const auto set = [](std::span<const CodeRange> ranges, bool is_negated) {
      Ranges listed(ranges.begin(), ranges.end());
      return is_negated ? AllBut(listed) : listed;
    };
    const auto one = [](uint32_t code) { return Ranges{{code, code}}; };
    const char32_t c = text_[at_++];
    switch (c) {
      case 'd':
      case 'D':
        return set(kDigits, c == 'D');
      case 'w':
      case 'W':
        return set(kWord, c == 'W');
      case 's':
      case 'S':
        return set(kSpace, c == 'S');
      case 't':
        return one('\t');
      case 'n':
        return one('\n');
      case 'v':
        return one('\v');
      case 'f':
        return one('\f');
      case 'r':
        return one('\r');
      case 'b':
        if (in_class) return one('\b');
        return std::nullopt;
      case '0':
        if (!AtEnd() && text_[at_] >= '0' && text_[at_] <= '9') return std::nullopt;
        return one(0);
      case 'x':
        return Hex(2);
      case 'u':
        return Unicode();
      case 'c': {
        const bool is_letter = !AtEnd() && ((text_[at_] >= 'a' && text_[at_] <= 'z') ||
                                            (text_[at_] >= 'A' && text_[at_] <= 'Z'));
        if (!is_letter) return std::nullopt;
        return one(text_[at_++] % 32);
      }
      default:
        break;
    }
    const bool is_word =
        c < 0x80 &&
        (std::ranges::any_of(kWord, [c](const CodeRange& r) { return c >= r.low && c <= r.high; }));
    if (is_word) return std::nullopt;
    return one(c);
  }

  std::optional<Ranges> Hex(size_t num_digits) {
    const std::optional<uint32_t> code = HexCode(num_digits);
    if (!code) return std::nullopt;
    return Ranges{{*code, *code}};
  }

  std::optional<uint32_t> HexCode(size_t num_digits) {
    uint32_t code = 0;
    for (size_t i = 0; i < num_digits; ++i) {
      const std::optional<uint32_t> digit = AtEnd() ? std::nullopt : HexDigit(text_[at_++]);
      if (!digit) return std::nullopt;
      code = code * 16 + *digit;
    }
    return code;
  }

  std::optional<Ranges> Unicode() {
    std::optional<uint32_t> code;
    if (Take('{')) {
      const size_t end = text_.find(U'}', at_);
      if (end == std::u32string::npos || end == at_ || end - at_ > 6) return std::nullopt;
      code = HexCode(end - at_);
      if (!code || !Take('}')) return std::nullopt;
    } else {
      code = HexCode(4);
    }
    if (!code || *code > kLastCode) return std::nullopt;
    if (*code >= 0xD800 && *code < 0xDC00 && Take('\\')) {  // the first half of a pair
      const std::optional<uint32_t> second = Take('u') ? HexCode(4) : std::nullopt;
      if (!second || *second < 0xDC00 || *second > 0xDFFF) return std::nullopt;
      code = 0x10000 + (*code - 0xD800) * 0x400 + (*second - 0xDC00);
    }
    return Ranges{{*code, *code}};
  }

  const std::u32string text_;
  size_t at_ = 0;
  int depth_ = 0;
};

// The instructions of a part, with repetitions written out; more than kMaxRegexSize for too many.
int64_t SizeOf(const RegexNode& node) {
  int64_t size = 2;
  for (const RegexNode& part : node.parts) size += SizeOf(part) + 1;
  if (node.kind != Kind::kRepeat) return size;
  const int64_t times = std::max<int64_t>({node.least, node.most, 1});
  return size > kMaxRegexSize ? size : size * times;
}

}  // namespace

std::optional<Regex> Regex::Parse(std::string_view pattern) {
  std::optional<std::u32string> text = DecodeUtf8(pattern);
  if (!text) return std::nullopt;
  std::optional<RegexNode> root = RegexParser(std::move(*text)).Run();
  if (!root || SizeOf(*root) > kMaxRegexSize) return std::nullopt;
  return Regex(std::move(*root));
}

}  // namespace mlc_native
