#include "grammar/schema_validate.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <utility>

#include "grammar/regex.h"
#include "grammar/schema_facts.h"
#include "grammar/schema_keywords.h"
#include "support/utf8.h"

namespace mlc_native {
namespace {

constexpr int kMaxSteps = 100000;  // schemas that one value is compared with
constexpr int kMaxHops = 200;      // of references and the like, without a step into the value

class Validator {
 public:
  explicit Validator(const SchemaSource& source) : source_(source) {}

  bool IsValid(const JsonValue& schema, const JsonValue& value) {
    if (schema.is_bool()) return schema.AsBool();
    if (!schema.is_object()) RefusePart(source_.PointerTo(schema), "it is no schema");
    if (++num_steps_ > kMaxSteps || ++hops_ > kMaxHops) {
      RefusePart(source_.PointerTo(schema), "it is compared with a value for too long");
    }
    const bool is_valid = General(schema, value) && Typed(schema, value);
    --hops_;
    return is_valid;
  }

 private:
  using Keyword = std::string_view;

  // A value within the one that is compared.
  bool IsValidBelow(const JsonValue& schema, const JsonValue& value) {
    const int hops = std::exchange(hops_, 0);
    const bool is_valid = IsValid(schema, value);
    hops_ = hops;
    return is_valid;
  }

  // The keyword holds, or is not there.
  template <typename Check>
  bool Holds(const JsonValue& schema, Keyword name, const Check& check) {
    const JsonValue* keyword = schema.Find(name);
    return keyword == nullptr || check(*keyword);
  }

  bool General(const JsonValue& schema, const JsonValue& value) {
    for (const char* name : {"unevaluatedProperties", "unevaluatedItems", "$recursiveRef"}) {
      if (schema.Find(name) != nullptr)
        RefusePart(source_, schema, name, "next to a list of values");
    }
    const auto all = [&](const JsonValue& list) {
      return std::ranges::all_of(list.AsArray(), [&](const auto& s) { return IsValid(s, value); });
    };
    const auto count = [&](const JsonValue& list) {
      return std::ranges::count_if(list.AsArray(),
                                   [&](const auto& s) { return IsValid(s, value); });
    };
    const auto is = [&](const JsonValue& other) { return JsonEqual(other, value); };
    if ((TypesAllowed(schema) & TypeOf(value)) == 0) return false;
    return Holds(schema, "const", is) &&
           Holds(schema, "enum",
                 [&](const auto& l) { return std::ranges::any_of(l.AsArray(), is); }) &&
           Holds(schema, "$ref", [&](const auto& uri) { return Reference(schema, uri, value); }) &&
           Holds(schema, "$dynamicRef",
                 [&](const auto& uri) { return Dynamic(schema, uri, value); }) &&
           Holds(schema, "allOf", all) &&
           Holds(schema, "anyOf", [&](const auto& list) { return count(list) > 0; }) &&
           Holds(schema, "oneOf", [&](const auto& list) { return count(list) == 1; }) &&
           Holds(schema, "not", [&](const auto& other) { return !IsValid(other, value); }) &&
           Holds(schema, "if", [&](const auto& condition) {
             const JsonValue* then = schema.Find(IsValid(condition, value) ? "then" : "else");
             return then == nullptr || IsValid(*then, value);
           });
  }

  bool Reference(const JsonValue& schema, const JsonValue& uri, const JsonValue& value) {
    const JsonValue* target = uri.is_string() ? source_.Resolve(schema, uri.AsString()) : nullptr;
    if (target == nullptr) RefusePart(source_, schema, "$ref", "it is no place in this schema");
    return IsValid(*target, value);
  }

  bool Dynamic(const JsonValue& schema, const JsonValue& uri, const JsonValue& value) {
    const JsonValue* target =
        uri.is_string() ? source_.ResolveDynamic(schema, uri.AsString()) : nullptr;
    if (target == nullptr) RefusePart(source_, schema, "$dynamicRef", "it names no single place");
    return IsValid(*target, value);
  }

  bool Typed(const JsonValue& schema, const JsonValue& value) {
    if (value.is_number()) return Number(schema, value.AsNumber());
    if (value.is_string()) return Text(schema, value.AsString());
    if (value.is_array()) return Array(schema, value.AsArray());
    return !value.is_object() || Object(schema, value);
  }

  bool Number(const JsonValue& schema, double number) {
    const double step = NumberOf(schema, "multipleOf", 0);
    if (step > 0) {
      const double quotient = number / step;
      if (quotient != std::floor(quotient)) return false;
      if (std::abs(quotient) > 1e15 || std::fmod(number, step) != 0) {
        RefusePart(source_, schema, "multipleOf", "it is compared with a number inexactly");
      }
    }
    constexpr double kNone = std::numeric_limits<double>::infinity();
    return number >= NumberOf(schema, "minimum", -kNone) &&
           number <= NumberOf(schema, "maximum", kNone) &&
           number > NumberOf(schema, "exclusiveMinimum", -kNone) &&
           number < NumberOf(schema, "exclusiveMaximum", kNone);
  }

  bool Text(const JsonValue& schema, const std::string& text) {
    return HasCount(schema, "minLength", "maxLength", DecodeUtf8(text).value_or(U"").size()) &&
           Holds(schema, "pattern",
                 [&](const JsonValue& regex) { return Matches(schema, "pattern", regex, text); });
  }

  static bool HasCount(const JsonValue& schema, const char* least, const char* most, size_t count) {
    return static_cast<double>(count) >= NumberOf(schema, least, 0) &&
           static_cast<double>(count) <= NumberOf(schema, most, kNoJsonLimit);
  }

  bool Matches(const JsonValue& schema, Keyword keyword, const JsonValue& pattern,
               const std::string& text) {
    const auto regex = pattern.is_string() ? Regex::Parse(pattern.AsString()) : std::nullopt;
    if (!regex) RefusePart(source_, schema, keyword, "a regex has a part that is not supported");
    return regex->IsFoundIn(text);
  }

  bool Array(const JsonValue& schema, const JsonArray& items) {
    if (!HasCount(schema, "minItems", "maxItems", items.size())) return false;
    const JsonValue* prefix = schema.Find("prefixItems");
    const size_t num_prefix = prefix == nullptr ? 0 : prefix->AsArray().size();
    for (size_t i = 0; i < items.size(); ++i) {
      const JsonValue* of_item = i < num_prefix ? &prefix->AsArray()[i] : schema.Find("items");
      if (of_item != nullptr && !IsValidBelow(*of_item, items[i])) return false;
    }
    if (const JsonValue* unique = schema.Find("uniqueItems"); unique && IsBool(*unique, true)) {
      for (size_t i = 0; i < items.size(); ++i) {
        for (size_t j = 0; j < i; ++j) {
          if (JsonEqual(items[i], items[j])) return false;
        }
      }
    }
    return Holds(schema, "contains", [&](const JsonValue& wanted) {
      const auto found = std::ranges::count_if(
          items, [&](const JsonValue& item) { return IsValidBelow(wanted, item); });
      return static_cast<double>(found) >= NumberOf(schema, "minContains", 1) &&
             static_cast<double>(found) <= NumberOf(schema, "maxContains", kNoJsonLimit);
    });
  }

  bool Object(const JsonValue& schema, const JsonValue& value) {
    const JsonObject& members = value.AsObject();
    const auto has = [&](const JsonValue& name) { return value.Find(name.AsString()) != nullptr; };
    const auto has_all = [&](const JsonValue& names) {
      return std::ranges::all_of(names.AsArray(), has);
    };
    if (!HasCount(schema, "minProperties", "maxProperties", members.size())) return false;
    if (!Holds(schema, "required", has_all)) return false;
    for (const JsonMember& member : members) {
      if (!MemberIsValid(schema, member)) return false;
    }
    for (const char* keyword : {"dependentRequired", "dependentSchemas", "dependencies"}) {
      const bool holds = Holds(schema, keyword, [&](const JsonValue& map) {
        return std::ranges::all_of(map.AsObject(), [&](const JsonMember& needed) {
          if (value.Find(needed.name) == nullptr) return true;
          return needed.value.is_array() ? has_all(needed.value) : IsValid(needed.value, value);
        });
      });
      if (!holds) return false;
    }
    return true;
  }

  bool MemberIsValid(const JsonValue& schema, const JsonMember& member) {
    const auto name_holds = [&](const JsonValue& names) {
      return IsValidBelow(names, JsonValue(JsonValue::Data(member.name)));
    };
    if (!Holds(schema, "propertyNames", name_holds)) return false;
    bool is_listed = false;
    if (const JsonValue* properties = schema.Find("properties")) {
      const JsonValue* of_member = properties->Find(member.name);
      is_listed = of_member != nullptr;
      if (is_listed && !IsValidBelow(*of_member, member.value)) return false;
    }
    if (const JsonValue* patterns = schema.Find("patternProperties")) {
      for (const auto& [pattern, of_member] : patterns->AsObject()) {
        const JsonValue regex{JsonValue::Data(pattern)};
        if (!Matches(schema, "patternProperties", regex, member.name)) continue;
        is_listed = true;
        if (!IsValidBelow(of_member, member.value)) return false;
      }
    }
    return is_listed || Holds(schema, "additionalProperties", [&](const JsonValue& others) {
             return IsValidBelow(others, member.value);
           });
  }

  const SchemaSource& source_;
  int num_steps_ = 0;
  int hops_ = 0;
};

}  // namespace

bool IsValidFor(const SchemaSource& source, const JsonValue& schema, const JsonValue& value) {
  return Validator(source).IsValid(schema, value);
}

}  // namespace mlc_native
