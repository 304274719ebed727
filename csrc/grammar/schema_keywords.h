// The keywords of JSON Schema 2020-12 that can make a value invalid: which values they concern and
// which they allow. Pure; any thread.
#pragma once

#include <span>
#include <string_view>

#include "grammar/schema_facts.h"
#include "support/json.h"

namespace mlc_native {

struct SchemaKeyword {
  std::string_view name;
  JsonTypes concerned;  // values of other types are valid
};

// All others are annotations, or mean nothing without one of these.
std::span<const SchemaKeyword> AssertionKeywords();

bool IsBool(const JsonValue& value, bool expected);
// A number of the schema, else `absent`.
double NumberOf(const JsonValue& schema, const char* name, double absent);

// Holds every int64_t exactly.
long double ExactNumber(const JsonValue& number);

// Whether the keyword of `schema`, as its `value` is, surely allows every value.
bool AllowsAll(const JsonValue& schema, std::string_view keyword, const JsonValue& value);

// The characters that every match of a pattern starts with; empty if they are not plain.
std::string_view LiteralStart(std::string_view pattern);

// Whether a regex has a lookahead or lookbehind, which the grammar library ignores.
bool LooksAround(std::string_view regex);

inline constexpr double kNoJsonLimit = 1e300;

// A format that the grammar library has a regex for, with the lengths of the texts that match it.
struct JsonFormat {
  std::string_view name;
  double min_length;
  double max_length;
};
// Null for another format, which is an annotation.
const JsonFormat* FindJsonFormat(const JsonValue& name);

}  // namespace mlc_native
