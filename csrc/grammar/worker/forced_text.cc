#include "grammar/worker/forced_text.h"

#include <algorithm>
#include <span>
#include <vector>

#include <nlohmann/json.hpp>

namespace mlc_native {
namespace {

using Json = nlohmann::json;

constexpr char kKnownVersion[] = "v16";
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
};

class ShortestTexts {
 public:
  explicit ShortestTexts(const Json& grammar)
      : data_(grammar.at("grammar_expr_data").get<std::vector<int64_t>>()),
        starts_(grammar.at("grammar_expr_indptr").get<std::vector<int64_t>>()),
        root_(grammar.at("root_rule_id").get<size_t>()) {
    for (const Json& rule : grammar.at("rules")) bodies_.push_back(rule.at(1).get<int64_t>());
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
  int64_t Length(int64_t expr) const {
    const size_t start = static_cast<size_t>(starts_.at(expr));
    const std::span<const int64_t> all(data_);
    const auto values = all.subspan(start + 2, static_cast<size_t>(data_.at(start + 1)));
    switch (data_.at(start)) {
      case kByteString:
        return static_cast<int64_t>(values.size());
      case kCharacterClass:
      case kToken:
      case kExcludeToken:
        return 1;
      case kCharacterClassStar:
      case kEmptyString:
      case kTagDispatch:
      case kTokenTagDispatch:
        return 0;
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

  static int64_t Times(int64_t length, int64_t count) {
    if (length == 0 || count <= 0) return 0;
    return length > kInfinite / count ? kInfinite : length * count;
  }

  const std::vector<int64_t> data_, starts_;
  const size_t root_;
  std::vector<int64_t> bodies_;  // [rule] expression
  std::vector<int64_t> rules_;   // [rule] bytes of its shortest text
};

}  // namespace

ForcedText AnalyzeForcedText(const std::string& serialized_grammar) {
  try {
    const Json grammar = Json::parse(serialized_grammar);
    if (grammar.at("__VERSION__") != kKnownVersion) return {};
    const ShortestTexts texts(grammar);
    return {texts.longest() <= kMaxForcedBytes, texts.root() >= kInfinite};
  } catch (const Json::exception&) {
    return {};
  } catch (const std::out_of_range&) {
    return {};
  }
}

}  // namespace mlc_native
