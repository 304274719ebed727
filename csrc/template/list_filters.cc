#include <algorithm>
#include <string>

#include "template/attributes.h"
#include "template/dict.h"
#include "template/filter_functions.h"
#include "template/iterate.h"
#include "template/operators.h"

namespace mlc_native::templates {

Value FilterList(Rendering& rendering, const Value& value, const Bound&) {
  return NewList(rendering, Collect(rendering, value));
}

Value FilterFirst(Rendering& rendering, const Value& value, const Bound&) {
  Value first;
  return Iterate(rendering, value)->Next(rendering, &first) ? first : Value();
}

Value FilterLast(Rendering& rendering, const Value& value, const Bound&) {
  if (value.Is(Kind::kUndefined)) return value;
  if (value.is_text() || value.is_list_or_tuple() || value.Is(Kind::kRange)) {
    return GetItem(rendering, value, Value::Int(-1));
  }
  if (!value.Is(Kind::kDict) && !value.Is(Kind::kView)) {
    rendering.Fail(std::string("'") + TypeName(value) + "' object is not reversible");
  }
  const std::vector<Value> members = Collect(rendering, value);
  return members.empty() ? Value() : members.back();
}

Value FilterLength(Rendering& rendering, const Value& value, const Bound&) {
  const std::optional<int64_t> length = Length(value);
  if (!length) rendering.Fail(std::string("object of type '") + TypeName(value) + "' has no len()");
  return Value::Int(*length);
}

Value FilterItems(Rendering& rendering, const Value& value, const Bound&) {
  if (value.Is(Kind::kUndefined)) return IterateItems(rendering, {});
  if (!value.Is(Kind::kDict)) rendering.Fail("Can only get item pairs from a mapping.");
  const View* const view = rendering.arena().New<View>(View{value.dict, View::Of::kItems});
  return Iterate(rendering, view);
}

Value FilterReverse(Rendering& rendering, const Value& value, const Bound&) {
  if (value.is_text()) {
    return Cut(rendering, value, Value::None(), Value::None(), Value::Int(-1));
  }
  std::vector<Value> members = Collect(rendering, value);
  std::ranges::reverse(members);
  return IterateItems(rendering, rendering.arena().Copy(std::span<const Value>(members)));
}

Value FilterSum(Rendering& rendering, const Value& value, const Bound& arguments) {
  const bool has_attribute = arguments.has(0) && !arguments[0].Is(Kind::kNone);
  const auto path =
      has_attribute ? AttributePath(rendering, arguments[0]) : std::span<const Value>();
  Value sum = arguments.Or(1, Value::Int(0));
  if (sum.is_text()) rendering.Fail("sum() can't sum strings [use ''.join(seq) instead]");
  for (const Value& member : Collect(rendering, value)) {
    rendering.Pay(1);
    sum = Add(rendering, sum, FollowPath(rendering, member, path));
  }
  return sum;
}

Value FilterDefault(Rendering& rendering, const Value& value, const Bound& arguments) {
  const bool replaces_false = Truth(arguments.Or(1, Value::Bool(false)));
  if (!value.Is(Kind::kUndefined) && (!replaces_false || Truth(value))) return value;
  return arguments.has(0) ? arguments[0] : Value(BorrowText(rendering.arena(), "", false));
}

}  // namespace mlc_native::templates
