#include "grammar/schema_facts.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace mlc_native {
namespace {

constexpr int kMaxHops = 32;         // of references to references
constexpr size_t kMaxBranches = 64;  // of which all pairs are compared

constexpr std::pair<std::string_view, JsonTypes> kTypeNames[] = {
    {"null", kJsonNull},     {"boolean", kJsonBoolean}, {"object", kJsonObject},
    {"array", kJsonArray},   {"string", kJsonString},   {"integer", kJsonInteger},
    {"number", kJsonNumber},
};

bool Contains(std::span<const JsonValue> values, const JsonValue& value) {
  return std::any_of(values.begin(), values.end(),
                     [&](const JsonValue& other) { return JsonEqual(value, other); });
}

// Whether the schemas allow no common value because of their types or lists of values.
bool ValuesDiffer(const JsonValue& a, const JsonValue& b) {
  const auto a_values = ListedValues(a);
  const auto b_values = ListedValues(b);
  const auto none_of = [](std::span<const JsonValue> values, const auto& accepts) {
    return std::none_of(values.begin(), values.end(), accepts);
  };
  if (a_values && b_values) {
    return none_of(*a_values, [&](const JsonValue& v) { return Contains(*b_values, v); });
  }
  const auto has_type = [](JsonTypes types) {
    return [types](const JsonValue& v) { return (TypeOf(v) & types) != 0; };
  };
  if (a_values) return none_of(*a_values, has_type(TypesAllowed(b)));
  if (b_values) return none_of(*b_values, has_type(TypesAllowed(a)));
  return (TypesAllowed(a) & TypesAllowed(b)) == 0;
}

std::span<const JsonValue> List(const JsonValue& schema, std::string_view name) {
  const JsonValue* list = schema.Find(name);
  if (list == nullptr || !list->is_array()) return {};
  return list->AsArray();
}

const JsonValue* Property(const JsonValue& schema, const std::string& name) {
  const JsonValue* properties = schema.Find("properties");
  return properties == nullptr ? nullptr : properties->Find(name);
}

// Whether no object that the library makes for `made` is accepted by `other`.
bool ObjectsDiffer(const JsonValue& root, const JsonValue& made, const JsonValue& other,
                   bool strict) {
  for (const JsonValue& name : List(made, "required")) {
    if (!name.is_string()) continue;
    const JsonValue* a = Property(made, name.AsString());
    const JsonValue* b = Property(other, name.AsString());
    if (a != nullptr) a = Resolve(root, *a);
    if (b != nullptr) b = Resolve(root, *b);
    if (a != nullptr && b != nullptr && ValuesDiffer(*a, *b)) return true;
  }
  if (!IsClosed(made, strict) || made.Find("patternProperties") != nullptr) return false;
  for (const JsonValue& name : List(other, "required")) {
    if (name.is_string() && Property(made, name.AsString()) == nullptr) return true;
  }
  return false;
}

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

const JsonValue* ResolveRef(const JsonValue& root, std::string_view uri) {
  if (uri == "#") return &root;
  if (!uri.starts_with("#/") || uri.find_first_of("~%") != std::string_view::npos) return nullptr;
  const JsonValue* found = &root;
  std::string_view rest = uri.substr(2);
  while (!rest.empty() && found != nullptr) {
    const size_t end = std::min(rest.find('/'), rest.size());
    if (end > 0) found = found->Find(rest.substr(0, end));
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  return found;
}

const JsonValue* Resolve(const JsonValue& root, const JsonValue& schema) {
  const JsonValue* found = &schema;
  for (int hop = 0; hop < kMaxHops && found != nullptr; ++hop) {
    const JsonValue* ref = found->Find("$ref");
    const JsonValue* all = found->Find("allOf");
    if (ref != nullptr && ref->is_string()) {
      found = ResolveRef(root, ref->AsString());
    } else if (all != nullptr && all->is_array() && all->AsArray().size() == 1) {
      found = &all->AsArray()[0];
    } else {
      return found;
    }
  }
  return nullptr;
}

bool IsClosed(const JsonValue& schema, bool strict) {
  for (const char* name : {"additionalProperties", "unevaluatedProperties"}) {
    if (const JsonValue* additional = schema.Find(name)) {
      return additional->is_bool() && !additional->AsBool();
    }
  }
  return strict;
}

bool ExcludeEachOther(const JsonValue& root, std::span<const JsonValue> schemas, bool strict) {
  if (schemas.size() > kMaxBranches) return false;
  std::vector<const JsonValue*> resolved;
  for (const JsonValue& schema : schemas) {
    resolved.push_back(Resolve(root, schema));
    if (resolved.back() == nullptr) return false;
  }
  const auto is_object = [](const JsonValue& schema) {
    return TypesAllowed(schema) == kJsonObject ||
           (schema.Find("type") == nullptr && schema.Find("properties") != nullptr);
  };
  for (size_t i = 0; i < resolved.size(); ++i) {
    for (size_t j = 0; j < resolved.size(); ++j) {
      const JsonValue &made = *resolved[i], &other = *resolved[j];
      if (i == j || ValuesDiffer(made, other)) continue;
      if (!is_object(made) || !is_object(other)) return false;
      if (!ObjectsDiffer(root, made, other, strict)) return false;
    }
  }
  return true;
}

}  // namespace mlc_native
