// The tests of templates: `value is name(arguments)`.
#pragma once

#include <string_view>

#include "template/function.h"
#include "template/rendering.h"
#include "template/value.h"

namespace mlc_native::templates {

struct TestEntry {
  Signature signature;
  bool (*function)(Rendering&, const Value& value, const Bound&);
};

// A null pointer if there is none of that name.
const TestEntry* FindTest(std::string_view name);

bool CallTest(Rendering& rendering, const TestEntry& test, const Value& value,
              const CallArguments& arguments);

}  // namespace mlc_native::templates
