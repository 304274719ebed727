// Values as Python's str() and repr() show them. Pays for what it visits.
#pragma once

#include <cstdint>
#include <string>

#include "template/rendering.h"
#include "template/text.h"
#include "template/value.h"

namespace mlc_native::templates {

// repr(float), also in JSON: the shortest digits that give the number back.
std::string FloatText(double value);

// The text of a value that is put out. What shows a list or an object is not the template's own.
const Text* ToText(Rendering& rendering, const Value& value);

// repr() of a value that a template can hold. Not supported: functions, iterators and characters of
// which it is not known whether they are printable.
void AppendRepr(Rendering& rendering, const Value& value, std::string* out, int depth = 0);

}  // namespace mlc_native::templates
