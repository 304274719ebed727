// Python's operators on the values of templates. Each pays for what it visits, and fails as Python
// does for operands that do not fit. Integers have 64 bits; what exceeds them is not supported.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "template/rendering.h"
#include "template/text.h"
#include "template/value.h"

namespace mlc_native::templates {

enum class Comparison : uint8_t { kEqual, kNotEqual, kLess, kLessEqual, kGreater, kGreaterEqual };

bool Truth(const Value& value);
bool Equal(Rendering& rendering, const Value& left, const Value& right, int depth = 0);
// Below 0 if left comes first. Fails for values that have no order.
int Order(Rendering& rendering, const Value& left, const Value& right, int depth = 0);
bool Compare(Rendering& rendering, Comparison comparison, const Value& left, const Value& right);
// value in container
bool Contains(Rendering& rendering, const Value& container, const Value& value);

Value Add(Rendering& rendering, const Value& left, const Value& right);
Value Subtract(Rendering& rendering, const Value& left, const Value& right);
Value Multiply(Rendering& rendering, const Value& left, const Value& right);
Value Divide(Rendering& rendering, const Value& left, const Value& right);
Value FloorDivide(Rendering& rendering, const Value& left, const Value& right);
Value Modulo(Rendering& rendering, const Value& left, const Value& right);
Value Power(Rendering& rendering, const Value& left, const Value& right);
Value Negate(Rendering& rendering, const Value& value);

// len(); nothing for values that have none.
std::optional<int64_t> Length(const Value& value);

// A part of a text, list, tuple or range: value[start:stop:step]; the bounds may be None.
Value Cut(Rendering& rendering, const Value& value, const Value& start, const Value& stop,
          const Value& step);

// Whether a text that is not the template's own is in a value. Pays for a value that the template
// made.
bool HasForeign(Rendering& rendering, const Value& value, int depth = 0);
// The value, in which texts count as the input's, also those in lists and tuples.
Value MarkForeign(Rendering& rendering, const Value& value, int depth = 0);

// `text.find(part, at)`, in linear time.
size_t FindPart(std::string_view text, std::string_view part, size_t at = 0);

}  // namespace mlc_native::templates
