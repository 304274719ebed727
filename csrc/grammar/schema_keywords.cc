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

}  // namespace

std::span<const SchemaKeyword> AssertionKeywords() { return kKeywords; }

bool IsBool(const JsonValue& value, bool expected) {
  return value.is_bool() && value.AsBool() == expected;
}

bool AllowsAll(const JsonValue& schema, std::string_view keyword, const JsonValue& value) {
  if (keyword == "uniqueItems" || keyword == "not") return IsBool(value, false);
  if (keyword == "if") return schema.Find("then") == nullptr && schema.Find("else") == nullptr;
  if (keyword == "required") return value.is_array() && value.AsArray().empty();
  if (keyword.starts_with("min") && keyword != "minimum") {
    return value.is_number() && value.AsNumber() <= 0;
  }
  if (keyword == "properties" || keyword == "patternProperties" || keyword.starts_with("depend")) {
    return value.is_object() && value.AsObject().empty();
  }
  const bool is_schema_of_parts = keyword == "items" || keyword == "propertyNames" ||
                                  keyword.starts_with("additional") ||
                                  keyword.starts_with("unevaluated");
  return is_schema_of_parts && IsBool(value, true);
}

double NumberOf(const JsonValue& schema, const char* name, double absent) {
  const JsonValue* value = schema.Find(name);
  return value != nullptr && value->is_number() ? value->AsNumber() : absent;
}

long double ExactNumber(const JsonValue& number) {
  if (const auto* whole = std::get_if<int64_t>(&number.data())) return *whole;
  if (const auto* whole = std::get_if<uint64_t>(&number.data())) return *whole;
  return number.AsNumber();
}

std::string_view LiteralStart(std::string_view pattern) {
  if (!pattern.starts_with('^')) return {};
  pattern.remove_prefix(1);
  if (pattern.find('|') != std::string_view::npos) return {};
  const size_t end = std::min(pattern.find_first_of("\\.[](){}*+?$^"), pattern.size());
  // A quantifier is about the character before it.
  const bool quantified =
      end < pattern.size() && std::string_view("{*?").find(pattern[end]) != std::string_view::npos;
  return pattern.substr(0, quantified && end > 0 ? end - 1 : end);
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
