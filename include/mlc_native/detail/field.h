// How a config declares its fields: once, in the Visit...Fields function next to its struct, which
// calls visit(Field, member) for each of them. Checks, JSON, Python's properties and what Python
// knows of a field (type, default, choices, text) all derive from that. Plain constants; any
// thread.
#pragma once

#include <array>
#include <cmath>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>

namespace mlc_native {

// The values that a number may have: finite and in [low, high], or in (low, high].
struct FieldRange {
  double low = -std::numeric_limits<double>::infinity();
  double high = std::numeric_limits<double>::infinity();
  bool above_low = false;
  const char* words = nullptr;  // what an error says instead of the range; "should be at least 1"

  bool Contains(double value) const {
    return std::isfinite(value) && (above_low ? value > low : value >= low) && value <= high;
  }
};

constexpr FieldRange Between(double low, double high, const char* words = nullptr) {
  return {low, high, false, words};
}
constexpr FieldRange AtLeast(double low, const char* words = nullptr) {
  return {.low = low, .words = words};
}
constexpr FieldRange PositiveUpTo(double high, const char* words = nullptr) {
  return {0, high, true, words};
}

// The names of an enum's values, in JSON and in Python. A value without a name is null there.
template <typename Enum>
using EnumName = std::pair<const char*, Enum>;
template <typename Enum>
inline constexpr std::array<EnumName<Enum>, 0> kEnumNames = {};

// Null for a value without a name.
template <typename Enum>
constexpr const char* NameOf(Enum value) {
  for (const auto& [name, candidate] : kEnumNames<Enum>) {
    if (candidate == value) return name;
  }
  return nullptr;
}

template <typename Enum>
constexpr std::optional<Enum> ValueOf(std::string_view name) {
  for (const auto& [candidate, value] : kEnumNames<Enum>) {
    if (name == candidate) return value;
  }
  return std::nullopt;
}

// "a number in (0, 1]"
std::string RangeText(const FieldRange& range);

inline constexpr double kMaxTimeoutSeconds = 1e9;

struct Field {
  const char* name;
  const char* doc;                            // what follows "name: " in Python's documentation
  FieldRange range = {};                      // of a number, or of each number
  std::span<const char* const> choices = {};  // of a string; empty: any
  // It forbids tokens, which a grammar may put into an answer without a draw. So a request that
  // sets it has no response_format.
  bool forbids_tokens = false;

  constexpr Field ForbidsTokens() const {
    Field field = *this;
    field.forbids_tokens = true;
    return field;
  }
};

// `"a", "b" or "c"`
template <typename Names>
std::string ListNames(const Names& names) {
  std::string list;
  for (size_t i = 0; i < names.size(); ++i) {
    if (i > 0) list += i + 1 == names.size() ? " or " : ", ";
    list += '"' + std::string(names[i]) + '"';
  }
  return list;
}

// The names of an enum as ListNames writes them.
template <typename Enum>
std::string ListNamesOf() {
  std::array<const char*, kEnumNames<Enum>.size()> names;
  for (size_t i = 0; i < names.size(); ++i) names[i] = kEnumNames<Enum>[i].first;
  return ListNames(names);
}

}  // namespace mlc_native
