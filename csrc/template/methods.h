// The methods of texts, lists, tuples and objects that a template may call. Those that change a
// value are hidden, as in jinja2's immutable sandbox; others of Python are not supported, by name.
#pragma once

#include <string_view>

#include "template/function.h"
#include "template/rendering.h"
#include "template/value.h"

namespace mlc_native::templates {

struct MethodEntry {
  using Function = Value (*)(Rendering&, const Value& self, const Bound&);
  using RawFunction = Value (*)(Rendering&, const Value& self, const CallArguments&);

  Signature signature;
  Function function = nullptr;
  RawFunction raw = nullptr;
  bool keeps_own = false;  // its result knows by itself what is the template's own
};

// A method of a value, before it is called.
struct Method {
  Value self;
  const MethodEntry* entry;
};

enum class MethodKind : uint8_t { kNone, kHidden, kFound };

// The method of that name, if values of this kind have one. NotSupported for one that only Python
// has.
MethodKind FindMethod(Rendering& rendering, const Value& self, std::string_view name,
                      const MethodEntry** entry);

Value CallMethod(Rendering& rendering, const Method& method, const CallArguments& arguments);

}  // namespace mlc_native::templates
