// The functions of the environment: range, namespace, dict, cycler, joiner, raise_exception and
// strftime_now.
#pragma once

#include <optional>
#include <string_view>

#include "template/function.h"
#include "template/rendering.h"
#include "template/value.h"

namespace mlc_native::templates {

// A function that a template calls by its name.
struct Callable {
  Signature signature;
  Value (*function)(Rendering&, const CallArguments&);
};

// The values of cycler(...), one after another.
struct Cycler {
  std::span<const Value> values;
  size_t at;
};

// A separator, which is empty at the first call.
struct Joiner {
  const Text* separator;
  bool used;
};

// A null pointer if there is none of that name.
const Callable* FindGlobal(std::string_view name);

Value CallGlobal(Rendering& rendering, const Callable& callable, const CallArguments& arguments);
Value CallJoiner(Rendering& rendering, Joiner& joiner);

// An attribute of a cycler; nothing for a name that it does not have.
std::optional<Value> CyclerAttribute(Rendering& rendering, Cycler& cycler, std::string_view name);

}  // namespace mlc_native::templates
