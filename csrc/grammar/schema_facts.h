// What a JSON schema says about the values that it accepts, for schema_check.cc: their types, the
// list of them, and whether two schemas exclude each other. Views of a parsed schema; pure; any
// thread.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "support/json.h"

namespace mlc_native {

// Sets of JSON's types, one bit each. Integers are a type of their own in both sets.
using JsonTypes = uint8_t;
inline constexpr JsonTypes kJsonNull = 1;
inline constexpr JsonTypes kJsonBoolean = 2;
inline constexpr JsonTypes kJsonObject = 4;
inline constexpr JsonTypes kJsonArray = 8;
inline constexpr JsonTypes kJsonString = 16;
inline constexpr JsonTypes kJsonInteger = 32;
inline constexpr JsonTypes kJsonFraction = 64;  // numbers that are no integers
inline constexpr JsonTypes kJsonNumber = kJsonInteger | kJsonFraction;
inline constexpr JsonTypes kAnyJson = 127;

// The types that the name stands for; none for an unknown name.
JsonTypes TypesNamed(std::string_view name);
// The types that "type" allows: a name or a list of names; all without a "type".
JsonTypes TypesAllowed(const JsonValue& schema);
JsonTypes TypeOf(const JsonValue& value);

bool JsonEqual(const JsonValue& a, const JsonValue& b);

// The values of "const" or "enum"; nullopt if the schema has neither.
std::optional<std::span<const JsonValue>> ListedValues(const JsonValue& schema);

// The schema that a "$ref" within `root` names; null if it is none that the library can find.
const JsonValue* ResolveRef(const JsonValue& root, std::string_view uri);
// Follows "$ref" and "allOf" of one schema to a schema that has neither. Null for a circle.
const JsonValue* Resolve(const JsonValue& root, const JsonValue& schema);

// Whether no text that the library makes for one of the schemas is accepted by another. False if
// that cannot be shown.
bool ExcludeEachOther(const JsonValue& root, std::span<const JsonValue> schemas, bool strict);

// Whether the library makes objects of the listed properties only.
bool IsClosed(const JsonValue& schema, bool strict);

}  // namespace mlc_native
