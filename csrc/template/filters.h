// The filters of templates: `value | name(arguments)`.
#pragma once

#include <string_view>

#include "template/filter_functions.h"
#include "template/function.h"
#include "template/rendering.h"
#include "template/value.h"

namespace mlc_native::templates {

struct FilterEntry {
  Signature signature;
  FilterFunction function = nullptr;
  RawFilterFunction raw = nullptr;
  // Which of its texts are foreign: as in Python's sandbox, all if anything that it gets is
  // foreign, or what the filter says. A filter that says it itself also takes an iterator as it is;
  // others take the list of what it yields.
  bool keeps_own = false;
};

// A null pointer if there is none of that name.
const FilterEntry* FindFilter(std::string_view name);

Value CallFilter(Rendering& rendering, const FilterEntry& filter, const Value& value,
                 const CallArguments& arguments);

}  // namespace mlc_native::templates
