// Python's formats: the operator % of a text, and str.format, as far as templates use them. Texts
// of the input stay apart where they are whole. Widths and precisions are those of numbers; what
// else a format may ask for is not supported.
#pragma once

#include <span>

#include "template/rendering.h"
#include "template/text.h"
#include "template/value.h"

namespace mlc_native::templates {

Value PercentFormat(Rendering& rendering, const Text& form, const Value& arguments);
Value BraceFormat(Rendering& rendering, const Text& form, std::span<const Value> arguments);

}  // namespace mlc_native::templates
