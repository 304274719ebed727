// What filters.cc has in its table. Each function is the filter of its name.
#pragma once

#include "template/function.h"
#include "template/rendering.h"
#include "template/value.h"

namespace mlc_native::templates {

using FilterFunction = Value (*)(Rendering&, const Value& value, const Bound&);
using RawFilterFunction = Value (*)(Rendering&, const Value& value, const CallArguments&);

// Texts (text_filters.cc).
Value FilterTrim(Rendering& rendering, const Value& value, const Bound& arguments);
Value FilterUpper(Rendering& rendering, const Value& value, const Bound& arguments);
Value FilterLower(Rendering& rendering, const Value& value, const Bound& arguments);
Value FilterCapitalize(Rendering& rendering, const Value& value, const Bound& arguments);
Value FilterTitle(Rendering& rendering, const Value& value, const Bound& arguments);
Value FilterReplace(Rendering& rendering, const Value& value, const Bound& arguments);
Value FilterIndent(Rendering& rendering, const Value& value, const Bound& arguments);
Value FilterString(Rendering& rendering, const Value& value, const Bound& arguments);
Value FilterEscape(Rendering& rendering, const Value& value, const Bound& arguments);
Value FilterJoin(Rendering& rendering, const Value& value, const Bound& arguments);
Value FilterToJson(Rendering& rendering, const Value& value, const Bound& arguments);
Value FilterFormat(Rendering& rendering, const Value& value, const CallArguments& arguments);

// Sequences (list_filters.cc, sorting_filters.cc).
Value FilterList(Rendering& rendering, const Value& value, const Bound& arguments);
Value FilterFirst(Rendering& rendering, const Value& value, const Bound& arguments);
Value FilterLast(Rendering& rendering, const Value& value, const Bound& arguments);
Value FilterLength(Rendering& rendering, const Value& value, const Bound& arguments);
Value FilterItems(Rendering& rendering, const Value& value, const Bound& arguments);
Value FilterReverse(Rendering& rendering, const Value& value, const Bound& arguments);
Value FilterSum(Rendering& rendering, const Value& value, const Bound& arguments);
Value FilterDefault(Rendering& rendering, const Value& value, const Bound& arguments);
Value FilterSort(Rendering& rendering, const Value& value, const Bound& arguments);
Value FilterDictSort(Rendering& rendering, const Value& value, const Bound& arguments);
Value FilterUnique(Rendering& rendering, const Value& value, const Bound& arguments);
Value FilterMin(Rendering& rendering, const Value& value, const Bound& arguments);
Value FilterMax(Rendering& rendering, const Value& value, const Bound& arguments);

// Numbers (number_filters.cc).
Value FilterInt(Rendering& rendering, const Value& value, const Bound& arguments);
Value FilterFloat(Rendering& rendering, const Value& value, const Bound& arguments);
Value FilterRound(Rendering& rendering, const Value& value, const Bound& arguments);
Value FilterAbs(Rendering& rendering, const Value& value, const Bound& arguments);

}  // namespace mlc_native::templates
