#include "grammar/schema_form.h"

#include <algorithm>
#include <numeric>

namespace mlc_native {
namespace {

const JsonValue& FalseSchema() {
  static const JsonValue schema{JsonValue::Data(false)};
  return schema;
}

// A schema without a keyword that can make a value invalid.
bool SaysNothing(const JsonValue& schema) {
  if (schema.is_bool()) return schema.AsBool();
  return schema.is_object() && std::ranges::none_of(AssertionKeywords(), [&](const auto& keyword) {
           return schema.Find(keyword.name) != nullptr;
         });
}

void Tighten(const NumberLimits& other, NumberLimits* number) {
  if (other.low > number->low || (other.low == number->low && other.is_low_open)) {
    number->low = other.low;
    number->is_low_open = other.is_low_open;
  }
  if (other.high < number->high || (other.high == number->high && other.is_high_open)) {
    number->high = other.high;
    number->is_high_open = other.is_high_open;
  }
}

// Of both multiples. Nullopt where that is not exact.
std::optional<double> CommonStep(double a, double b) {
  if (a == 0 || b == 0 || a == b) return std::max(a, b);
  constexpr double kMax = 1 << 24;
  const bool are_whole = a == static_cast<double>(static_cast<int64_t>(a)) &&
                         b == static_cast<double>(static_cast<int64_t>(b));
  if (a > kMax || b > kMax || !are_whole) return std::nullopt;
  return static_cast<double>(std::lcm(static_cast<int64_t>(a), static_cast<int64_t>(b)));
}

void MeetItems(const ItemLimits& other, ItemLimits* items) {
  const size_t num_prefix = std::max(items->prefix.size(), other.prefix.size());
  const auto at = [](const ItemLimits& limits, size_t i) {
    return i < limits.prefix.size() ? limits.prefix[i] : limits.rest.value_or(Conjunction());
  };
  std::vector<Conjunction> prefix;
  for (size_t i = 0; i < num_prefix; ++i) prefix.push_back(Both(at(*items, i), at(other, i)));
  items->prefix = std::move(prefix);
  if (other.rest) items->rest = Both(items->rest.value_or(Conjunction()), *other.rest);
  items->least = std::max(items->least, other.least);
  items->most = std::min(items->most, other.most);
  items->is_unique |= other.is_unique;
  items->has_contains |= other.has_contains;
  items->is_described |= other.is_described;
}

bool MayMatchTheSame(const MemberLimits::Pattern& a, const MemberLimits::Pattern& b) {
  const std::string_view start = LiteralStart(a.text), other = LiteralStart(b.text);
  return start.starts_with(other) || other.starts_with(start);
}

// False if two patterns may match the same name.
bool MeetMembers(const MemberLimits& other, MemberLimits* members) {
  MemberLimits both;
  for (const MemberLimits::Property& property : members->listed) {
    const MemberLimits::Property* same = other.Find(property.name);
    both.listed.push_back(property);
    MemberLimits::Property& listed = both.listed.back();
    listed.schema = Both(property.schema, same ? same->schema : other.OfUnlisted(property.name));
    listed.is_required |= same != nullptr && same->is_required;
    listed.is_evaluated |= same != nullptr && same->is_evaluated;
  }
  for (const MemberLimits::Property& property : other.listed) {
    if (members->Find(property.name) != nullptr) continue;
    both.listed.push_back(property);
    both.listed.back().schema = Both(property.schema, members->OfUnlisted(property.name));
  }
  const auto add_patterns = [&](const MemberLimits& from, const MemberLimits& against) {
    for (const MemberLimits::Pattern& pattern : from.patterns) {
      const auto same =
          std::ranges::find(both.patterns, pattern.text, &MemberLimits::Pattern::text);
      if (same != both.patterns.end()) {
        same->schema = Both(same->schema, pattern.schema);
        continue;
      }
      if (std::ranges::any_of(both.patterns,
                              [&](const auto& p) { return MayMatchTheSame(p, pattern); })) {
        return false;
      }
      both.patterns.push_back(pattern);
      const bool is_in_both =
          std::ranges::find(against.patterns, pattern.text, &MemberLimits::Pattern::text) !=
          against.patterns.end();
      if (!is_in_both && against.others) {
        both.patterns.back().schema = Both(pattern.schema, *against.others);
      }
    }
    return true;
  };
  if (!add_patterns(*members, other) || !add_patterns(other, *members)) return false;
  if (members->others || other.others) {
    both.others =
        Both(members->others.value_or(Conjunction()), other.others.value_or(Conjunction()));
  }
  both.names = Both(members->names, other.names);
  both.is_described = members->is_described || other.is_described;
  both.least = std::max(members->least, other.least);
  both.most = std::min(members->most, other.most);
  *members = std::move(both);
  return true;
}

}  // namespace

Conjunction ConjunctionOf(const JsonValue& schema, bool is_negated) {
  if (!is_negated && SaysNothing(schema)) return {};
  return {{&schema, is_negated}};
}

Conjunction NoValue() { return {{&FalseSchema()}}; }

Conjunction Both(const Conjunction& a, const Conjunction& b) {
  Conjunction both;
  std::ranges::set_union(a, b, std::back_inserter(both));
  return both;
}

const MemberLimits::Property* MemberLimits::Find(std::string_view name) const {
  const auto found = std::ranges::find(listed, name, &Property::name);
  return found == listed.end() ? nullptr : &*found;
}

MemberLimits::Property* MemberLimits::Find(std::string_view name) {
  const auto found = std::ranges::find(listed, name, &Property::name);
  return found == listed.end() ? nullptr : &*found;
}

Conjunction MemberLimits::OfUnlisted(std::string_view name) const {
  Conjunction schema;
  bool is_matched = false;
  for (const Pattern& pattern : patterns) {
    if (!pattern.regex.IsFoundIn(name)) continue;
    schema = Both(schema, pattern.schema);
    is_matched = true;
  }
  return is_matched ? schema : others.value_or(Conjunction());
}

void MemberLimits::Require(const std::string& name) {
  if (Property* property = Find(name)) {
    property->is_required = true;
  } else {
    listed.push_back({name, OfUnlisted(name), true, false});
  }
}

void MemberLimits::Forbid(const std::string& name) {
  if (Property* property = Find(name)) {
    property->schema = NoValue();
  } else {
    listed.push_back({name, NoValue(), false, false});
  }
}

SchemaForm AnyForm() {
  SchemaForm form;
  for (const JsonTypes types :
       {kJsonNull, kJsonBoolean, kJsonNumber, kJsonString, kJsonArray, kJsonObject}) {
    form.push_back(AnyOfType(types));
  }
  return form;
}

Alternative AnyOfType(JsonTypes types) {
  Alternative alternative;
  alternative.types = types;
  return alternative;
}

bool IsWholeType(const Alternative& a) {
  if (a.values || !a.allows_false || !a.allows_true) return false;
  const NumberLimits none;
  return a.number.low == none.low && a.number.high == none.high && a.number.step == 0 &&
         a.text.least <= 0 && a.text.most >= kNoJsonLimit && a.text.patterns.empty() &&
         a.text.formats.empty() && a.text.excluded.empty() && a.items.prefix.empty() &&
         !a.items.rest && a.items.least <= 0 && a.items.most >= kNoJsonLimit &&
         !a.items.is_unique && !a.items.has_contains && !a.items.is_described &&
         !a.members.is_described && a.members.listed.empty() && a.members.patterns.empty() &&
         !a.members.others && a.members.names.empty() && a.members.least <= 0 &&
         a.members.most >= kNoJsonLimit;
}

size_t WeightOf(const Alternative& a) {
  return 1 + a.items.prefix.size() + a.members.listed.size() + a.members.patterns.size() +
         a.text.excluded.size() + a.origins.size() / 4 + (a.values ? a.values->size() : 0);
}

std::optional<Alternative> Intersect(const SchemaSource& source, const Alternative& a,
                                     const Alternative& b) {
  Alternative both = a;
  both.types = a.types & b.types;
  if (both.types == 0) return std::nullopt;
  for (const auto& origin : b.origins) {  // the inner schemas come later, and say more
    const auto known =
        std::ranges::find(both.origins, origin.first, &decltype(a.origins)::value_type::first);
    if (known == both.origins.end()) {
      both.origins.push_back(origin);
    } else {
      known->second = origin.second;
    }
  }
  both.allows_false &= b.allows_false;
  both.allows_true &= b.allows_true;
  Tighten(b.number, &both.number);
  const std::optional<double> step = CommonStep(a.number.step, b.number.step);
  if (!step) RefuseKeyword(source, b, "multipleOf", "two of them apply to the same number");
  both.number.step = *step;
  both.text.least = std::max(a.text.least, b.text.least);
  both.text.most = std::min(a.text.most, b.text.most);
  both.text.patterns.insert(b.text.patterns.begin(), b.text.patterns.end());
  both.text.formats.insert(b.text.formats.begin(), b.text.formats.end());
  both.text.excluded.insert(b.text.excluded.begin(), b.text.excluded.end());
  if ((both.types & kJsonArray) != 0) MeetItems(b.items, &both.items);
  if ((both.types & kJsonObject) != 0 && !MeetMembers(b.members, &both.members)) {
    RefuseKeyword(source, b.members.patterns.empty() ? a : b, "patternProperties",
                  "its patterns and those of another schema may match the same name");
  }
  return both;
}

void RefuseKeyword(const SchemaSource& source, const Alternative& alternative,
                   std::string_view keyword, const std::string& reason) {
  for (const auto& [name, schema] : alternative.origins) {
    if (name == keyword) RefusePart(source, *schema, keyword, reason);
  }
  RefusePart(source, source.root(), keyword, reason);
}

}  // namespace mlc_native
