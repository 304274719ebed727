#include <algorithm>
#include <string>
#include <utility>

#include "grammar/schema_normal.h"

// What the keywords of one schema say about values of each type.
namespace mlc_native {
namespace {

// As the library reads a schema without a type.
JsonTypes TypesOf(const JsonValue& schema, bool is_exact) {
  if (schema.Find("type") != nullptr || is_exact) return TypesAllowed(schema);
  for (const char* name : {"properties", "additionalProperties", "unevaluatedProperties"}) {
    if (schema.Find(name) != nullptr) return kJsonObject;
  }
  for (const char* name : {"items", "prefixItems", "unevaluatedItems"}) {
    if (schema.Find(name) != nullptr) return kJsonArray;
  }
  return kAnyJson;
}

bool NamesTypes(const JsonValue& schema) {
  const auto is_name = [](const JsonValue& name) {
    return name.is_string() && TypesNamed(name.AsString()) != 0;
  };
  const JsonValue* type = schema.Find("type");
  if (type == nullptr) return true;
  return type->is_array() ? std::ranges::all_of(type->AsArray(), is_name) : is_name(*type);
}

void AddNumber(const JsonValue& schema, NumberLimits* number) {
  const auto tighten = [&](const char* keyword, bool is_low, bool is_open) {
    const JsonValue* value = schema.Find(keyword);
    if (value == nullptr) return;
    const long double bound = ExactNumber(*value);
    long double& limit = is_low ? number->low : number->high;
    bool& limit_open = is_low ? number->is_low_open : number->is_high_open;
    const bool is_tighter = is_low ? bound > limit : bound < limit;
    if (is_tighter || (bound == limit && is_open)) {
      limit = bound;
      limit_open = is_open;
    }
  };
  tighten("minimum", true, false);
  tighten("exclusiveMinimum", true, true);
  tighten("maximum", false, false);
  tighten("exclusiveMaximum", false, true);
  if (const JsonValue* step = schema.Find("multipleOf")) number->step = step->AsNumber();
}

double Limit(const JsonValue& schema, const char* keyword, double absent) {
  const JsonValue* value = schema.Find(keyword);
  return value == nullptr ? absent : value->AsNumber();
}

void AddText(const JsonValue& schema, TextLimits* text) {
  text->least = Limit(schema, "minLength", 0);
  text->most = Limit(schema, "maxLength", kNoJsonLimit);
  if (const JsonValue* pattern = schema.Find("pattern")) text->patterns = {pattern->AsString()};
  const JsonValue* format = schema.Find("format");
  if (format != nullptr && FindJsonFormat(*format) != nullptr) text->formats = {format->AsString()};
}

}  // namespace

SchemaForm SchemaNormalizer::Typed(const JsonValue& schema, bool is_exact) const {
  const JsonTypes types = TypesOf(schema, is_exact);
  if (types == 0 || !NamesTypes(schema)) {
    const JsonValue* type = schema.Find("type");
    const bool is_name = type != nullptr && type->is_string();
    const std::string name = is_name ? '"' + type->AsString().substr(0, 100) + '"' : "it";
    RefusePart(source_, schema, "type", name + " names no type of JSON");
  }
  SchemaForm form;
  for (Alternative& alternative : AnyForm()) {
    alternative.types &= types;
    if (alternative.types == 0) continue;
    if (alternative.is(kJsonNumber)) AddNumber(schema, &alternative.number);
    if (alternative.is(kJsonString)) AddText(schema, &alternative.text);
    if (alternative.is(kJsonArray)) AddItems(schema, &alternative);
    if (alternative.is(kJsonObject)) AddMembers(schema, &alternative);
    for (const auto& [keyword, concerned] : AssertionKeywords()) {
      if ((concerned & alternative.types) != 0 && schema.Find(keyword) != nullptr) {
        alternative.origins.emplace_back(keyword, &schema);
        alternative.items.is_described |= concerned == kJsonArray;
        alternative.members.is_described |= concerned == kJsonObject;
      }
    }
    form.push_back(std::move(alternative));
  }
  return form;
}

void SchemaNormalizer::AddItems(const JsonValue& schema, Alternative* alternative) const {
  ItemLimits& items = alternative->items;
  if (const JsonValue* prefix = schema.Find("prefixItems")) {
    for (const JsonValue& item : prefix->AsArray()) items.prefix.push_back(ConjunctionOf(item));
  }
  if (const JsonValue* rest = schema.Find("items")) items.rest = ConjunctionOf(*rest);
  items.least = Limit(schema, "minItems", 0);
  items.most = Limit(schema, "maxItems", kNoJsonLimit);
  if (const JsonValue* unique = schema.Find("uniqueItems")) items.is_unique = unique->AsBool();
  items.has_contains = schema.Find("contains") != nullptr &&
                       (Limit(schema, "minContains", 1) > 0 || schema.Find("maxContains"));
}

void SchemaNormalizer::AddMembers(const JsonValue& schema, Alternative* alternative) const {
  MemberLimits& members = alternative->members;
  if (const JsonValue* others = schema.Find("additionalProperties")) {
    members.others = ConjunctionOf(*others);
  }
  if (const JsonValue* patterns = schema.Find("patternProperties")) {
    for (const JsonMember* pattern : source_.InOrder(*patterns)) {
      std::optional<Regex> regex = Regex::Parse(pattern->name);
      if (!regex) {
        RefusePart(source_, schema, "patternProperties",
                   "a regex has a part that is not supported (a lookahead or lookbehind, perhaps)");
      }
      members.patterns.push_back({pattern->name, std::move(*regex), ConjunctionOf(pattern->value)});
    }
  }
  if (const JsonValue* properties = schema.Find("properties")) {
    for (const JsonMember* property : source_.InOrder(*properties)) {
      Conjunction value = ConjunctionOf(property->value);
      for (const MemberLimits::Pattern& pattern : members.patterns) {
        if (pattern.regex.IsFoundIn(property->name)) value = Both(value, pattern.schema);
      }
      members.listed.push_back({property->name, std::move(value)});
    }
  }
  if (const JsonValue* required = schema.Find("required")) {
    for (const JsonValue& name : required->AsArray()) members.Require(name.AsString());
  }
  if (const JsonValue* names = schema.Find("propertyNames")) members.names = ConjunctionOf(*names);
  members.least = Limit(schema, "minProperties", 0);
  members.most = Limit(schema, "maxProperties", kNoJsonLimit);
}

}  // namespace mlc_native
