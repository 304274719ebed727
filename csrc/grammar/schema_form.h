// The normal form of a JSON schema: alternatives, each of one type and with everything that limits
// its values in one place. What a value must satisfy at the same time is a Conjunction of schemas;
// what stands below properties and items stays one until somebody looks at it, so that recursive
// schemas end.
//
// Values; any thread. The schemas that they point to belong to a SchemaSource.
#pragma once

#include <compare>
#include <limits>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "grammar/regex.h"
#include "grammar/schema_facts.h"
#include "grammar/schema_keywords.h"
#include "grammar/schema_source.h"
#include "support/json.h"

namespace mlc_native {

// A schema that a value must satisfy, or must not.
struct SchemaLiteral {
  const JsonValue* schema;
  bool is_negated = false;
  auto operator<=>(const SchemaLiteral&) const = default;
};
using Conjunction = std::vector<SchemaLiteral>;  // sorted, each once; empty: any value

// Of one schema; empty for a schema that says nothing.
Conjunction ConjunctionOf(const JsonValue& schema, bool is_negated = false);
Conjunction NoValue();
Conjunction Both(const Conjunction& a, const Conjunction& b);

struct NumberLimits {
  long double low = -std::numeric_limits<long double>::infinity();  // holds every int64_t exactly
  long double high = std::numeric_limits<long double>::infinity();
  bool is_low_open = false;
  bool is_high_open = false;
  double step = 0;  // "multipleOf"; 0: none
};

struct TextLimits {
  double least = 0;
  double most = kNoJsonLimit;
  std::set<std::string> patterns{};
  std::set<std::string> formats{};   // known ones
  std::set<std::string> excluded{};  // whole texts
};

struct ItemLimits {
  std::vector<Conjunction> prefix{};
  std::optional<Conjunction> rest{};  // without: nothing is said, and `strict` closes the array
  double least = 0;
  double most = kNoJsonLimit;
  bool is_unique = false;
  bool has_contains = false;
  bool is_described = false;  // a keyword for arrays is there, if only an empty one
};

struct MemberLimits {
  struct Property {
    std::string name;
    Conjunction schema{};
    bool is_required = false;
    bool is_evaluated = true;  // for "unevaluatedProperties"
  };
  struct Pattern {
    std::string text;
    Regex regex;
    Conjunction schema{};
  };
  std::vector<Property> listed{};
  std::vector<Pattern> patterns{};      // no two match the same name
  std::optional<Conjunction> others{};  // without: nothing is said, and `strict` closes the object
  Conjunction names{};
  bool is_described = false;  // a keyword for objects is there, if only an empty one
  double least = 0;
  double most = kNoJsonLimit;

  const Property* Find(std::string_view name) const;
  Property* Find(std::string_view name);
  // What a member must satisfy that is not listed.
  Conjunction OfUnlisted(std::string_view name) const;
  // Lists the name, if it is not yet, and requires or forbids it.
  void Require(const std::string& name);
  void Forbid(const std::string& name);
};

struct Alternative {
  JsonTypes types = kAnyJson;                             // one of them, or numbers of both kinds
  std::optional<std::vector<const JsonValue*>> values{};  // then nothing else is said
  bool allows_false = true;
  bool allows_true = true;
  NumberLimits number{};
  TextLimits text{};
  ItemLimits items{};
  MemberLimits members{};
  // Where a keyword was found, for messages.
  std::vector<std::pair<std::string_view, const JsonValue*>> origins{};

  bool is(JsonTypes some) const { return !values && (types & some) != 0; }
};
using SchemaForm = std::vector<Alternative>;

// Any value: one alternative for each type.
SchemaForm AnyForm();
Alternative AnyOfType(JsonTypes types);
// Whether the alternative allows all values of its types.
bool IsWholeType(const Alternative& alternative);
// How much memory and time an alternative takes, about.
size_t WeightOf(const Alternative& alternative);

// The values that both alternatives allow; nullopt if their types or limits exclude each other.
// Requires: neither has `values`. Throws GrammarError where the result is no alternative.
std::optional<Alternative> Intersect(const SchemaSource& source, const Alternative& a,
                                     const Alternative& b);

// Throws GrammarError with the place of a keyword of the alternative.
[[noreturn]] void RefuseKeyword(const SchemaSource& source, const Alternative& alternative,
                                std::string_view keyword, const std::string& reason);

}  // namespace mlc_native
