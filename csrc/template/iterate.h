// How values are gone through: iterators, and what each kind of value yields.
#pragma once

#include <vector>

#include "template/rendering.h"
#include "template/value.h"

namespace mlc_native::templates {

// Yields values one by one, once. Lies in an arena, so that it holds nothing that needs a
// destructor.
class Iterator {
 public:
  // False at the end, and from then on. An error of what computes the values passes through.
  virtual bool Next(Rendering& rendering, Value* value) = 0;

 protected:
  ~Iterator() = default;
};

// What Python's iter() returns; fails for a value that it refuses. Undefined has no values.
Iterator* Iterate(Rendering& rendering, const Value& value);

bool IsIterable(const Value& value);

// All values, each of which is paid for.
std::vector<Value> Collect(Rendering& rendering, const Value& value);
// Yields these values, which must live as long as the arena.
Iterator* IterateItems(Rendering& rendering, std::span<const Value> items);
Value NewList(Rendering& rendering, std::span<const Value> items);
Value NewTuple(Rendering& rendering, std::span<const Value> items);

}  // namespace mlc_native::templates
