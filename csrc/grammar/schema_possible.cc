#include <algorithm>
#include <cmath>
#include <string>

#include "grammar/schema_normal.h"
#include "support/utf8.h"

// Which values an alternative has: whether one of them is given, and whether there is any.
namespace mlc_native {
namespace {

constexpr int kMaxDepth = 40;  // how deep values are looked at to see that there is none

bool HasValue(const NumberLimits& number, JsonTypes types) {
  if (number.low > number.high) return false;
  if (number.low == number.high) {
    const bool is_whole = number.low == std::floor(number.low);
    return !number.is_low_open && !number.is_high_open &&
           (types & (is_whole ? kJsonInteger : kJsonFraction)) != 0;
  }
  if ((types & kJsonFraction) != 0) return true;
  const long double low = std::floor(number.low) + 1, high = std::ceil(number.high) - 1;
  const long double first =
      !number.is_low_open && number.low == std::floor(number.low) ? number.low : low;
  const long double last =
      !number.is_high_open && number.high == std::ceil(number.high) ? number.high : high;
  return first <= last;
}

bool IsWithin(const NumberLimits& limits, long double number) {
  const bool is_above = limits.is_low_open ? number > limits.low : number >= limits.low;
  const bool is_below = limits.is_high_open ? number < limits.high : number <= limits.high;
  return is_above && is_below &&
         (limits.step == 0 || std::fmod(static_cast<double>(number), limits.step) == 0);
}

}  // namespace

bool SchemaNormalizer::Accepts(const Alternative& alternative, const JsonValue& value) const {
  if (alternative.values) {
    return std::ranges::any_of(*alternative.values,
                               [&](const JsonValue* v) { return JsonEqual(*v, value); });
  }
  if ((alternative.types & TypeOf(value)) == 0) return false;
  if (value.is_bool()) {
    return value.AsBool() ? alternative.allows_true : alternative.allows_false;
  }
  if (value.is_number()) return IsWithin(alternative.number, ExactNumber(value));
  if (IsWholeType(alternative) || value.is_null()) return true;
  const auto has_count = [](const auto& limits, size_t count) {
    return static_cast<double>(count) >= limits.least && static_cast<double>(count) <= limits.most;
  };
  if (value.is_string()) {
    const TextLimits& text = alternative.text;
    return has_count(text, DecodeUtf8(value.AsString()).value_or(U"").size()) &&
           !text.excluded.contains(value.AsString()) &&
           std::ranges::all_of(text.patterns, [&](const std::string& pattern) {
             const std::optional<Regex> regex = Regex::Parse(pattern);
             if (!regex) {
               RefuseKeyword(source_, alternative, "pattern",
                             "the regex has a part that is not supported");
             }
             return regex->IsFoundIn(value.AsString());
           });
  }
  if (value.is_array()) {
    const ItemLimits& items = alternative.items;
    const JsonArray& all = value.AsArray();
    if (items.is_unique || items.has_contains) {
      RefuseKeyword(source_, alternative, items.is_unique ? "uniqueItems" : "contains",
                    "it stands next to a list of values");
    }
    for (size_t i = 0; i < all.size(); ++i) {
      const Conjunction schemas =
          i < items.prefix.size() ? items.prefix[i] : items.rest.value_or(Conjunction());
      if (!Accepts(schemas, all[i])) return false;
    }
    return has_count(items, all.size());
  }
  const MemberLimits& members = alternative.members;
  for (const JsonMember& member : value.AsObject()) {
    const MemberLimits::Property* listed = members.Find(member.name);
    const Conjunction schemas = listed ? listed->schema : members.OfUnlisted(member.name);
    const JsonValue name{JsonValue::Data(member.name)};
    if (!Accepts(schemas, member.value) || !Accepts(members.names, name)) return false;
  }
  return has_count(members, value.AsObject().size()) &&
         std::ranges::all_of(members.listed, [&](const auto& property) {
           return !property.is_required || value.Find(property.name) != nullptr;
         });
}

bool SchemaNormalizer::IsPossible(Alternative* alternative) {
  if (alternative->is(kJsonBoolean)) return alternative->allows_false || alternative->allows_true;
  if (alternative->is(kJsonNumber)) return HasValue(alternative->number, alternative->types);
  if (alternative->is(kJsonString)) return alternative->text.least <= alternative->text.most;
  if (depth_ >= kMaxDepth) return true;
  ++depth_;
  bool is_possible = true;
  if (alternative->is(kJsonArray)) {
    ItemLimits& items = alternative->items;
    for (size_t i = 0; i < items.prefix.size(); ++i) {
      if (IsEmpty(items.prefix[i])) {
        items.most = std::min(items.most, static_cast<double>(i));
        items.prefix.resize(i);
      }
    }
    if (items.rest && IsEmpty(*items.rest)) {
      items.most = std::min(items.most, static_cast<double>(items.prefix.size()));
    }
    is_possible = items.least <= items.most;
  } else if (alternative->is(kJsonObject)) {
    double num_required = 0;
    for (const MemberLimits::Property& property : alternative->members.listed) {
      if (!property.is_required) continue;
      ++num_required;
      const JsonValue name{JsonValue::Data(property.name)};
      if (!Accepts(alternative->members.names, name)) is_possible = false;
      if (IsEmpty(property.schema)) is_possible = false;
    }
    is_possible = is_possible && num_required <= alternative->members.most &&
                  alternative->members.least <= alternative->members.most;
  }
  --depth_;
  return is_possible;
}

}  // namespace mlc_native
