#include "grammar/worker/forced_text.h"

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <iterator>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "support/json.h"

namespace mlc_native {
namespace {

// Of xgrammar 0.2.8 and 0.2.9, which have the same types of expressions.
constexpr std::string_view kKnownVersions[] = {"v16", "v18"};
constexpr int64_t kInfinite = int64_t{1} << 60;

// xgrammar's types of expressions: {type, number of values, values...}.
enum ExprType : int64_t {
  kByteString,      // bytes
  kCharacterClass,  // one character of 1 to 4 bytes
  kCharacterClassStar,
  kEmptyString,
  kRuleReference,  // rule
  kSequence,       // expressions
  kChoices,        // expressions
  kTagDispatch,    // may be left at any time
  kRepeat,         // rule, least count, most
  kToken,
  kExcludeToken,
  kTokenTagDispatch,  // may be left at any time
  kRegex,             // whether it stands in a JSON string, bytes of the pattern
  kSubstring,         // may be empty
};

int64_t Times(int64_t length, int64_t count) {
  if (length == 0 || count <= 0) return 0;
  return length > kInfinite / count ? kInfinite : length * count;
}

// A character class is {whether it is negated, first, last, first, last, ...}. A negated one
// matches nothing when its ranges leave no character out, like [^\s\S].
bool MatchesNothing(std::span<const int64_t> character_class) {
  constexpr int64_t kLastCharacter = 0x10ffff;
  std::vector<std::pair<int64_t, int64_t>> ranges;
  for (size_t i = 1; i + 1 < character_class.size(); i += 2) {
    if (character_class[i] > character_class[i + 1]) continue;
    ranges.emplace_back(character_class[i], character_class[i + 1]);
  }
  if (character_class[0] == 0) return ranges.empty();
  std::sort(ranges.begin(), ranges.end());
  int64_t covered = -1;  // all characters up to here
  for (const auto& [first, last] : ranges) {
    if (first > covered + 1) return false;
    covered = std::max(covered, last);
  }
  return covered >= kLastCharacter;
}

// Returns an upper bound of the shortest text of a regex if all of its parts match something, and
// nothing for other regexes. In `a+[^\s\S]` only another a can follow the a's, forever, so a regex
// with a part that may be like this has no bound: negated classes, inner anchors, lookaround, and
// characters that a JSON string must escape.
class RegexScan {
 public:
  explicit RegexScan(std::string_view pattern) : rest_(pattern) {
    if (rest_.starts_with('^')) rest_.remove_prefix(1);
    if (rest_.ends_with('$')) rest_.remove_suffix(1);
  }

  std::optional<int64_t> Bound() {
    int64_t bound = static_cast<int64_t>(rest_.size());
    while (!rest_.empty()) {
      const char c = Take();
      if (c == '{') {
        bound = Times(bound, std::max<int64_t>(1, Number()));
      } else if (!(c == '[' ? SkipClass() : c == '(' ? SkipGroupKind() : IsMatched(c))) {
        return std::nullopt;
      }
    }
    return bound;
  }

 private:
  char Take() {
    const char c = rest_.front();
    rest_.remove_prefix(1);
    return c;
  }
  // What `c`, and what it escapes, matches is not empty.
  bool IsMatched(char c) {
    constexpr std::string_view kNever = "\"^$", kEscapes = "dws.-+*?()[]{}|/$^";
    if (c == '\\' && rest_.starts_with('u')) return IsUnescaped(CodePoint());
    if (c == '\\') return !rest_.empty() && kEscapes.find(Take()) != kEscapes.npos;
    return static_cast<unsigned char>(c) >= ' ' && kNever.find(c) == kNever.npos;
  }
  bool SkipClass() {
    bool matches = false;
    if (rest_.starts_with('^')) return false;
    while (!rest_.empty()) {
      const char c = Take();
      if (c == ']') return matches;
      if (c == '[' || !IsMatched(c)) return false;
      matches |= std::isalnum(static_cast<unsigned char>(c)) != 0 || c == ' ' ||
                 (c == '\\' && last_code_ >= 0x80);
    }
    return false;
  }
  // The code of \uXXXX or \u{X...}, after the backslash; 0 for another form.
  int64_t CodePoint() {
    Take();
    const bool is_in_braces = rest_.starts_with('{');
    const size_t end = is_in_braces ? rest_.find('}') : std::min<size_t>(4, rest_.size());
    if (end == rest_.npos) return 0;
    const std::string digits(rest_.substr(is_in_braces ? 1 : 0, end - (is_in_braces ? 1 : 0)));
    rest_.remove_prefix(end + (is_in_braces ? 1 : 0));
    last_code_ = std::strtoll(digits.c_str(), nullptr, 16);
    return last_code_;
  }
  static bool IsUnescaped(int64_t code) { return code >= ' ' && code != '"' && code != '\\'; }
  bool SkipGroupKind() {
    if (!rest_.starts_with('?')) return true;
    if (!rest_.starts_with("?:")) return false;
    rest_.remove_prefix(2);
    return true;
  }
  int64_t Number() {
    int64_t number = 0;
    while (!rest_.empty() && std::isdigit(static_cast<unsigned char>(rest_.front())) != 0) {
      number = std::min(kInfinite / 10 - 10, number) * 10 + (Take() - '0');
    }
    return number;
  }

  std::string_view rest_;
  int64_t last_code_ = 0;  // of the last \u
};

class ShortestTexts {
 public:
  explicit ShortestTexts(const JsonValue& grammar)
      : data_(Integers(grammar.At("grammar_expr_data"))),
        starts_(Integers(grammar.At("grammar_expr_indptr"))),
        root_(static_cast<size_t>(grammar.At("root_rule_id").AsInteger())) {
    for (const JsonValue& rule : grammar.At("rules").AsArray()) {
      bodies_.push_back(rule.AsArray().at(1).AsInteger());
    }
    rules_.assign(bodies_.size(), kInfinite);
    // A pass settles at least the rules whose shortest text uses settled rules only.
    for (bool changed = true; changed;) {
      changed = false;
      for (size_t rule = 0; rule < rules_.size(); ++rule) {
        const int64_t length = Length(bodies_[rule]);
        changed |= length < rules_[rule];
        rules_[rule] = std::min(rules_[rule], length);
      }
    }
  }

  int64_t root() const { return rules_.at(root_); }
  int64_t longest() const {
    int64_t longest = 0;
    for (size_t expr = 0; expr < starts_.size(); ++expr) {
      longest = std::max(longest, Length(static_cast<int64_t>(expr)));
    }
    return longest;
  }

 private:
  static std::vector<int64_t> Integers(const JsonValue& list) {
    std::vector<int64_t> integers;
    for (const JsonValue& item : list.AsArray()) integers.push_back(item.AsInteger());
    return integers;
  }

  int64_t Length(int64_t expr) const {
    const size_t start = static_cast<size_t>(starts_.at(expr));
    const std::span<const int64_t> all(data_);
    const auto values = all.subspan(start + 2, static_cast<size_t>(data_.at(start + 1)));
    switch (data_.at(start)) {
      case kByteString:
        return static_cast<int64_t>(values.size());
      case kCharacterClass:
        return MatchesNothing(values) ? kInfinite : 1;
      case kToken:
      case kExcludeToken:
        return 1;
      case kCharacterClassStar:
      case kEmptyString:
      case kTagDispatch:
      case kTokenTagDispatch:
      case kSubstring:
        return 0;
      case kRegex: {
        const std::string pattern(values.begin() + 1, values.end());
        const std::optional<int64_t> bound = RegexScan(pattern).Bound();
        if (!bound) throw std::out_of_range("a regex that may have a dead end");
        return *bound;
      }
      case kRuleReference:
        return rules_.at(values[0]);
      case kRepeat:
        return Times(rules_.at(values[0]), values[1]);
      case kSequence: {
        int64_t sum = 0;
        for (int64_t element : values) sum = std::min(kInfinite, sum + Length(element));
        return sum;
      }
      case kChoices: {
        int64_t least = kInfinite;
        for (int64_t choice : values) least = std::min(least, Length(choice));
        return least;
      }
      default:
        throw std::out_of_range("unknown expression");
    }
  }

  const std::vector<int64_t> data_, starts_;
  const size_t root_;
  std::vector<int64_t> bodies_;  // [rule] expression
  std::vector<int64_t> rules_;   // [rule] bytes of its shortest text
};

}  // namespace

ForcedText AnalyzeForcedText(const std::string& serialized_grammar) {
  try {
    const JsonValue grammar = ParseJson(serialized_grammar);
    if (std::ranges::find(kKnownVersions, grammar.At("__VERSION__").AsString()) ==
        std::end(kKnownVersions)) {
      return {};
    }
    const ShortestTexts texts(grammar);
    return {texts.longest() <= kMaxForcedBytes, texts.root() >= kInfinite};
  } catch (const JsonError&) {
    return {};
  } catch (const std::out_of_range&) {
    return {};
  }
}

}  // namespace mlc_native
