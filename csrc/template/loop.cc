#include "template/loop.h"

#include "template/operators.h"

namespace mlc_native::templates {

bool Loop::Next(Rendering& rendering, Value* value) {
  if (has_after) {
    *value = after;
    has_after = false;
  } else if (!iterator->Next(rendering, value)) {
    return false;
  }
  ++index0;
  before = current;
  current = *value;
  return true;
}

bool Loop::Peek(Rendering& rendering) {
  if (!has_after) has_after = iterator->Next(rendering, &after);
  return has_after;
}

int64_t Loop::Length(Rendering& rendering) {
  if (!length) {
    const Value rest = NewList(rendering, Collect(rendering, Value(iterator)));
    iterator = Iterate(rendering, rest);
    length = static_cast<int64_t>(rest.list->items.size()) + index0 + 1 + has_after;
  }
  return *length;
}

namespace {

Value Cycle(Rendering& rendering, const Value& self, const CallArguments& arguments) {
  const auto values = arguments.positional;
  if (values.empty() || !arguments.named.empty()) rendering.Fail("no items for cycling given");
  return values[static_cast<size_t>(self.loop->index0) % values.size()];
}

Value Changed(Rendering& rendering, const Value& self, const CallArguments& arguments) {
  const Value values = NewTuple(rendering, arguments.positional);
  std::optional<Value>& last = self.loop->last_changed;
  if (last && Equal(rendering, *last, values)) return Value::Bool(false);
  last = values;
  return Value::Bool(true);
}

constexpr MethodEntry kLoopMethods[] = {{{"cycle"}, nullptr, Cycle},
                                        {{"changed"}, nullptr, Changed}};

}  // namespace

std::optional<Value> LoopAttribute(Rendering& rendering, Loop& loop, std::string_view name) {
  if (name == "index") return Value::Int(loop.index0 + 1);
  if (name == "index0") return Value::Int(loop.index0);
  if (name == "first") return Value::Bool(loop.index0 == 0);
  if (name == "last") return Value::Bool(!loop.Peek(rendering));
  if (name == "length") return Value::Int(loop.Length(rendering));
  if (name == "revindex") return Value::Int(loop.Length(rendering) - loop.index0);
  if (name == "revindex0") return Value::Int(loop.Length(rendering) - loop.index0 - 1);
  if (name == "previtem") return loop.index0 == 0 ? Value() : loop.before;
  if (name == "nextitem") return loop.Peek(rendering) ? loop.after : Value();
  if (name == "depth") return Value::Int(1);
  if (name == "depth0") return Value::Int(0);
  if (const MethodEntry* const found = FindNamed<MethodEntry>(kLoopMethods, name)) {
    return Value(rendering.arena().New<Method>(Method{Value(&loop), found}));
  }
  return std::nullopt;
}

}  // namespace mlc_native::templates
