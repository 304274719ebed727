// The rest of operators.h: division, powers, slices, and what is foreign.
#include <algorithm>
#include <cmath>

#include "template/dict.h"
#include "template/operators.h"
#include "template/python_text.h"
#include "template/text_format.h"

namespace mlc_native::templates {
namespace {

void CheckNumbers(Rendering& rendering, const char* name, const Value& left, const Value& right) {
  if (left.is_number() && right.is_number()) {
    if (right.AsDouble() == 0 && *name != '*') rendering.Fail("division by zero");
    return;
  }
  for (const Value& value : {left, right}) {
    if (value.Is(Kind::kUndefined)) rendering.FailOnUndefined(value);
  }
  rendering.Fail(std::string("unsupported operand type(s) for ") + name + ": '" + TypeName(left) +
                 "' and '" + TypeName(right) + "'");
}

bool BothIntegers(const Value& left, const Value& right) {
  return left.is_integer() && right.is_integer();
}

int64_t FloorQuotient(int64_t left, int64_t right) {
  const int64_t quotient = left / right;
  return (left % right != 0 && (left < 0) != (right < 0)) ? quotient - 1 : quotient;
}

// As Python's float % and //, whose remainder has the sign of the divisor.
double FloorRemainder(double left, double right) {
  double remainder = std::fmod(left, right);
  if (remainder == 0) return std::copysign(0.0, right);
  return (remainder < 0) != (right < 0) ? remainder + right : remainder;
}

}  // namespace

Value Divide(Rendering& rendering, const Value& left, const Value& right) {
  CheckNumbers(rendering, "/", left, right);
  if (BothIntegers(left, right)) {
    constexpr int64_t kExact = int64_t{1} << 53;
    for (const Value& value : {left, right}) {
      if (value.AsInt() > kExact || value.AsInt() < -kExact) {
        rendering.NotSupported("a division of integers of more than 53 bits");
      }
    }
  }
  return Value::Float(left.AsDouble() / right.AsDouble());
}

Value FloorDivide(Rendering& rendering, const Value& left, const Value& right) {
  CheckNumbers(rendering, "//", left, right);
  if (!BothIntegers(left, right)) {
    rendering.NotSupported("the operator // of numbers that are no integers");
  }
  if (left.AsInt() == INT64_MIN && right.AsInt() == -1) {
    rendering.NotSupported("an integer of more than 64 bits");
  }
  return Value::Int(FloorQuotient(left.AsInt(), right.AsInt()));
}

Value Modulo(Rendering& rendering, const Value& left, const Value& right) {
  if (left.is_text()) return PercentFormat(rendering, *left.text, right);
  CheckNumbers(rendering, "%", left, right);
  if (!BothIntegers(left, right)) {
    return Value::Float(FloorRemainder(left.AsDouble(), right.AsDouble()));
  }
  if (right.AsInt() == -1) return Value::Int(0);
  const int64_t remainder = left.AsInt() % right.AsInt();
  const bool turns = remainder != 0 && (remainder < 0) != (right.AsInt() < 0);
  return Value::Int(turns ? remainder + right.AsInt() : remainder);
}

Value Power(Rendering& rendering, const Value& left, const Value& right) {
  CheckNumbers(rendering, "**", left, right);
  if (!BothIntegers(left, right) || right.AsInt() < 0) {
    rendering.NotSupported("the operator ** of numbers that are no integers");
  }
  if (right.AsInt() > 4096) rendering.Refuse("a power would have too many digits");
  int64_t power = 1;
  for (int64_t i = 0; i < right.AsInt(); ++i) {
    if (__builtin_mul_overflow(power, left.AsInt(), &power)) {
      rendering.NotSupported("an integer of more than 64 bits");
    }
  }
  return Value::Int(power);
}

Value Negate(Rendering& rendering, const Value& value) {
  if (value.Is(Kind::kFloat)) return Value::Float(-value.real);
  return Subtract(rendering, Value::Int(0), value);
}

namespace {

struct Slice {
  int64_t start;
  int64_t step;
  int64_t size;
};

int64_t SliceBound(Rendering& rendering, const Value& value, int64_t size, int64_t low,
                   int64_t high, int64_t missing) {
  if (value.Is(Kind::kNone)) return missing;
  if (!value.is_integer()) {
    if (value.Is(Kind::kUndefined)) rendering.FailOnUndefined(value);
    rendering.Fail("slice indices must be integers or None");
  }
  const int64_t index = value.AsInt();
  return std::clamp(index < 0 && index >= -size ? index + size : index, low, high);
}

// Python's slice.indices.
Slice SliceOf(Rendering& rendering, int64_t size, const Value& start, const Value& stop,
              const Value& step) {
  const int64_t by =
      step.Is(Kind::kNone) ? 1 : SliceBound(rendering, step, 0, -size - 1, size + 1, 1);
  if (by == 0) rendering.Fail("slice step cannot be zero");
  const int64_t low = by > 0 ? 0 : -1;
  const int64_t high = by > 0 ? size : size - 1;
  const int64_t first = SliceBound(rendering, start, size, low, high, by > 0 ? low : high);
  const int64_t end = SliceBound(rendering, stop, size, low, high, by > 0 ? high : low);
  const int64_t span = by > 0 ? end - first : first - end;
  const int64_t distance = by > 0 ? by : -by;
  return {first, by, span <= 0 ? 0 : (span + distance - 1) / distance};
}

Value CutText(Rendering& rendering, const Text& text, const Slice& slice) {
  Arena& arena = rendering.arena();
  rendering.PayBytes(text.bytes.size());
  if (slice.size == 0) return BorrowText(arena, "", text.foreign);
  if (slice.step == 1) {
    const size_t begin = ByteOfIndex(text, static_cast<size_t>(slice.start));
    const size_t end = ByteOfIndex(text, static_cast<size_t>(slice.start + slice.size));
    return CutBytes(arena, text, begin, end);
  }
  if (!text.is_ascii()) rendering.NotSupported("a slice with steps of a text that is not ASCII");
  const auto size = static_cast<size_t>(slice.size);
  char* const cut = arena.NewArray<char>(size);
  for (size_t i = 0; i < size; ++i) {
    cut[i] = text.bytes[static_cast<size_t>(slice.start + static_cast<int64_t>(i) * slice.step)];
  }
  return BorrowText(arena, {cut, size}, text.foreign);
}

Value CutItems(Rendering& rendering, const Value& value, const Slice& slice) {
  Arena& arena = rendering.arena();
  const auto items = value.list->items;
  const auto size = static_cast<size_t>(slice.size);
  std::span<const Value> cut;
  if (slice.step == 1) {
    cut = items.subspan(static_cast<size_t>(slice.start), size);
  } else if (size > 0) {
    Value* const made = arena.NewArray<Value>(size);
    rendering.Pay(1 + slice.size / 64);
    for (size_t i = 0; i < size; ++i) {
      made[i] = items[static_cast<size_t>(slice.start + static_cast<int64_t>(i) * slice.step)];
    }
    cut = {made, size};
  }
  const List* const list = arena.New<List>(List{cut, value.list->given});
  return value.Is(Kind::kTuple) ? Value::Tuple(list) : Value(list);
}

}  // namespace

Value Cut(Rendering& rendering, const Value& value, const Value& start, const Value& stop,
          const Value& step) {
  rendering.Pay(1);
  if (value.Is(Kind::kUndefined)) rendering.FailOnUndefined(value);
  if (!value.is_text() && !value.is_list_or_tuple()) {
    if (value.Is(Kind::kRange)) rendering.NotSupported("a slice of a range");
    rendering.Fail(std::string("'") + TypeName(value) + "' object is not subscriptable");
  }
  const Slice slice = SliceOf(rendering, *Length(value), start, stop, step);
  if (value.is_text()) return CutText(rendering, *value.text, slice);
  return CutItems(rendering, value, slice);
}

bool HasForeign(Rendering& rendering, const Value& value, int depth) {
  if (value.is_text()) return value.text->foreign;
  if (value.is_list_or_tuple() && value.list->given) return true;
  if (value.Is(Kind::kDict) && value.dict->given) return true;
  if (value.Is(Kind::kView)) return HasForeign(rendering, Value(value.view->dict), depth);
  if (value.Is(Kind::kNamespace)) {
    return HasForeign(rendering, Value(static_cast<const Dict*>(value.attributes)), depth + 1);
  }
  if (value.is_list_or_tuple()) {
    rendering.Visit(depth);
    return std::ranges::any_of(value.list->items, [&](const Value& item) {
      rendering.Pay(1);
      return HasForeign(rendering, item, depth + 1);
    });
  }
  if (!value.Is(Kind::kDict)) return false;
  rendering.Visit(depth);
  return std::ranges::any_of(value.dict->entries(), [&](const DictEntry& entry) {
    rendering.Pay(1);
    return HasForeign(rendering, entry.key, depth + 1) ||
           HasForeign(rendering, entry.value, depth + 1);
  });
}

Value MarkForeign(Rendering& rendering, const Value& value, int depth) {
  if (value.is_text()) {
    return value.text->foreign ? value : Value(WithoutOwn(rendering.arena(), *value.text));
  }
  if (!value.is_list_or_tuple() || value.list->items.empty()) return value;
  rendering.Visit(depth);
  const auto items = value.list->items;
  Value* const marked = rendering.arena().NewArray<Value>(items.size());
  for (size_t i = 0; i < items.size(); ++i) {
    rendering.Pay(1);
    marked[i] = MarkForeign(rendering, items[i], depth + 1);
  }
  const List* const list =
      rendering.arena().New<List>(List{{marked, items.size()}, value.list->given});
  return value.Is(Kind::kTuple) ? Value::Tuple(list) : Value(list);
}

}  // namespace mlc_native::templates
