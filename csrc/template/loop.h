// Loop: the variable `loop` of a for loop. It looks one value ahead where the template asks for
// what comes next, and takes all values where it asks for their number.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "template/iterate.h"
#include "template/methods.h"
#include "template/rendering.h"
#include "template/value.h"

namespace mlc_native::templates {

struct Loop {
  // `length` is missing where Python's len() is.
  Loop(Iterator* iterator, std::optional<int64_t> length) : iterator(iterator), length(length) {}

  // Moves to the next value. False at the end.
  bool Next(Rendering& rendering, Value* value);
  // Whether there is another value, which is then in `after`.
  bool Peek(Rendering& rendering);
  int64_t Length(Rendering& rendering);

  Iterator* iterator;
  std::optional<int64_t> length;
  int64_t index0 = -1;
  Value before;
  Value current;
  Value after;
  bool has_after = false;
  std::optional<Value> last_changed;  // the last arguments of loop.changed, as a tuple
};

// An attribute of a loop variable; nothing for a name that it does not have.
std::optional<Value> LoopAttribute(Rendering& rendering, Loop& loop, std::string_view name);

}  // namespace mlc_native::templates
