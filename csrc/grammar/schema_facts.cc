#include "grammar/schema_facts.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace mlc_native {
namespace {

constexpr std::pair<std::string_view, JsonTypes> kTypeNames[] = {
    {"null", kJsonNull},     {"boolean", kJsonBoolean}, {"object", kJsonObject},
    {"array", kJsonArray},   {"string", kJsonString},   {"integer", kJsonInteger},
    {"number", kJsonNumber},
};

}  // namespace

JsonTypes TypesNamed(std::string_view name) {
  for (const auto& [known, types] : kTypeNames) {
    if (known == name) return types;
  }
  return 0;
}

JsonTypes TypesAllowed(const JsonValue& schema) {
  const JsonValue* type = schema.Find("type");
  if (type == nullptr) return kAnyJson;
  if (type->is_string()) return TypesNamed(type->AsString());
  JsonTypes types = 0;
  if (type->is_array()) {
    for (const JsonValue& name : type->AsArray()) {
      if (name.is_string()) types |= TypesNamed(name.AsString());
    }
  }
  return types;
}

JsonTypes TypeOf(const JsonValue& value) {
  if (value.is_null()) return kJsonNull;
  if (value.is_bool()) return kJsonBoolean;
  if (value.is_object()) return kJsonObject;
  if (value.is_array()) return kJsonArray;
  if (value.is_string()) return kJsonString;
  const double number = value.AsNumber();
  return number == std::floor(number) ? kJsonInteger : kJsonFraction;
}

bool JsonEqual(const JsonValue& a, const JsonValue& b) {
  const auto *a_whole = std::get_if<int64_t>(&a.data()), *b_whole = std::get_if<int64_t>(&b.data());
  if (a_whole != nullptr && b_whole != nullptr) return *a_whole == *b_whole;
  if (a.is_number() && b.is_number()) return a.AsNumber() == b.AsNumber();
  if (a.data().index() != b.data().index()) return false;
  if (a.is_array()) {
    return std::equal(a.AsArray().begin(), a.AsArray().end(), b.AsArray().begin(),
                      b.AsArray().end(), JsonEqual);
  }
  if (a.is_object()) {
    return std::equal(a.AsObject().begin(), a.AsObject().end(), b.AsObject().begin(),
                      b.AsObject().end(), [](const JsonMember& x, const JsonMember& y) {
                        return x.name == y.name && JsonEqual(x.value, y.value);
                      });
  }
  if (a.is_string()) return a.AsString() == b.AsString();
  return a.is_null() || a.AsBool() == b.AsBool();
}

std::optional<std::span<const JsonValue>> ListedValues(const JsonValue& schema) {
  if (const JsonValue* value = schema.Find("const")) return std::span(value, 1);
  const JsonValue* values = schema.Find("enum");
  if (values == nullptr || !values->is_array()) return std::nullopt;
  return std::span(values->AsArray());
}

}  // namespace mlc_native
