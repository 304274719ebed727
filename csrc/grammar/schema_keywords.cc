#include "grammar/schema_keywords.h"

#include <algorithm>

namespace mlc_native {
namespace {

// "minContains" and "maxContains" mean nothing without "contains", nor do "then" and "else" without
// "if". A "format" is an annotation.
constexpr SchemaKeyword kKeywords[] = {
    {"type", kAnyJson},
    {"const", kAnyJson},
    {"enum", kAnyJson},
    {"$ref", kAnyJson},
    {"$dynamicRef", kAnyJson},
    {"$recursiveRef", kAnyJson},
    {"allOf", kAnyJson},
    {"anyOf", kAnyJson},
    {"oneOf", kAnyJson},
    {"not", kAnyJson},
    {"if", kAnyJson},
    {"properties", kJsonObject},
    {"required", kJsonObject},
    {"patternProperties", kJsonObject},
    {"propertyNames", kJsonObject},
    {"additionalProperties", kJsonObject},
    {"unevaluatedProperties", kJsonObject},
    {"minProperties", kJsonObject},
    {"maxProperties", kJsonObject},
    {"dependentRequired", kJsonObject},
    {"dependentSchemas", kJsonObject},
    {"dependencies", kJsonObject},
    {"items", kJsonArray},
    {"prefixItems", kJsonArray},
    {"unevaluatedItems", kJsonArray},
    {"contains", kJsonArray},
    {"uniqueItems", kJsonArray},
    {"minItems", kJsonArray},
    {"maxItems", kJsonArray},
    {"pattern", kJsonString},
    {"minLength", kJsonString},
    {"maxLength", kJsonString},
    {"minimum", kJsonNumber},
    {"maximum", kJsonNumber},
    {"exclusiveMinimum", kJsonNumber},
    {"exclusiveMaximum", kJsonNumber},
    {"multipleOf", kJsonNumber},
};

constexpr JsonFormat kFormats[] = {
    {"email", 3, kNoJsonLimit},
    {"date", 10, 10},
    {"time", 9, kNoJsonLimit},
    {"date-time", 20, kNoJsonLimit},
    {"duration", 3, kNoJsonLimit},
    {"ipv4", 7, 15},
    {"ipv6", 2, 45},
    {"hostname", 1, kNoJsonLimit},
    {"uuid", 36, 36},
    {"uri", 2, kNoJsonLimit},
    {"uri-reference", 0, kNoJsonLimit},
    {"uri-template", 0, kNoJsonLimit},
    {"json-pointer", 0, kNoJsonLimit},
    {"relative-json-pointer", 1, kNoJsonLimit},
};

double NumCharacters(std::string_view text) {
  return static_cast<double>(
      std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xC0) != 0x80; }));
}

// Whether a listed value satisfies a keyword next to the list. False for keywords that are not
// looked at here.
bool Satisfies(const JsonValue& value, std::string_view keyword, const JsonValue& limit) {
  if (keyword == "type") {
    if (limit.is_string()) return (TypesNamed(limit.AsString()) & TypeOf(value)) != 0;
    if (!limit.is_array()) return false;
    return std::any_of(limit.AsArray().begin(), limit.AsArray().end(), [&](const JsonValue& name) {
      return name.is_string() && Satisfies(value, "type", name);
    });
  }
  if (!limit.is_number()) return false;
  const double bound = limit.AsNumber();
  if (keyword == "minLength") return NumCharacters(value.AsString()) >= bound;
  if (keyword == "maxLength") return NumCharacters(value.AsString()) <= bound;
  if (keyword == "minimum") return value.AsNumber() >= bound;
  if (keyword == "maximum") return value.AsNumber() <= bound;
  if (keyword == "exclusiveMinimum") return value.AsNumber() > bound;
  if (keyword == "exclusiveMaximum") return value.AsNumber() < bound;
  return false;
}

}  // namespace

std::span<const SchemaKeyword> AssertionKeywords() { return kKeywords; }

bool IsBool(const JsonValue& value, bool expected) {
  return value.is_bool() && value.AsBool() == expected;
}

// Whether every value satisfies the keyword.
bool AllowsAll(const JsonValue& schema, std::string_view keyword, const JsonValue& value) {
  if (keyword == "uniqueItems") return IsBool(value, false);
  if (keyword == "if") return schema.Find("then") == nullptr && schema.Find("else") == nullptr;
  if (keyword == "required") return value.is_array() && value.AsArray().empty();
  if (keyword.starts_with("min") && keyword != "minimum") {
    return value.is_number() && value.AsNumber() <= 0;
  }
  if (keyword == "properties" || keyword == "patternProperties" || keyword.starts_with("depend")) {
    return value.is_object() && value.AsObject().empty();
  }
  return IsBool(value, true);
}

double NumberOf(const JsonValue& schema, const char* name, double absent) {
  const JsonValue* value = schema.Find(name);
  return value != nullptr && value->is_number() ? value->AsNumber() : absent;
}

bool AllSatisfy(std::span<const JsonValue> listed, std::string_view keyword,
                const JsonValue& value) {
  const auto found =
      std::find_if(std::begin(kKeywords), std::end(kKeywords),
                   [&](const SchemaKeyword& known) { return known.name == keyword; });
  return std::all_of(listed.begin(), listed.end(), [&](const JsonValue& item) {
    return (found->concerned & TypeOf(item)) == 0 || Satisfies(item, keyword, value);
  });
}

bool LooksAround(std::string_view regex) {
  bool in_class = false;
  for (size_t i = 0; i < regex.size(); ++i) {
    if (regex[i] == '\\') {
      ++i;  // whatever is escaped
    } else if (in_class || regex[i] == '[') {
      in_class = regex[i] != ']';
    } else if (regex.substr(i).starts_with("(?")) {
      const std::string_view kind = regex.substr(i + 2);
      for (const char* look : {"=", "!", "<=", "<!"}) {
        if (kind.starts_with(look)) return true;
      }
    }
  }
  return false;
}

const JsonFormat* FindJsonFormat(const JsonValue& name) {
  if (!name.is_string()) return nullptr;
  const auto found =
      std::find_if(std::begin(kFormats), std::end(kFormats),
                   [&](const JsonFormat& known) { return known.name == name.AsString(); });
  return found == std::end(kFormats) ? nullptr : found;
}

}  // namespace mlc_native
