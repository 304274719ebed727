// What a JSON schema says about the values that it accepts: their types, and the list of them.
// Views of a parsed schema; pure; any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

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

}  // namespace mlc_native
