#include "template/operators.h"

#include <string.h>

#include <algorithm>
#include <cmath>

#include "template/dict.h"
#include "template/iterate.h"
#include "template/python_text.h"

namespace mlc_native::templates {

size_t FindPart(std::string_view text, std::string_view part, size_t at) {
  if (at > text.size()) return std::string_view::npos;
  if (part.empty()) return at;
  const void* const found = memmem(text.data() + at, text.size() - at, part.data(), part.size());
  if (found == nullptr) return std::string_view::npos;
  return static_cast<size_t>(static_cast<const char*>(found) - text.data());
}

bool Truth(const Value& value) {
  switch (value.kind) {
    case Kind::kUndefined:
    case Kind::kNone:
      return false;
    case Kind::kBool:
      return value.boolean;
    case Kind::kInt:
      return value.integer != 0;
    case Kind::kFloat:
      return value.real != 0;
    default:
      return Length(value) != 0;
  }
}

std::optional<int64_t> Length(const Value& value) {
  switch (value.kind) {
    case Kind::kUndefined:
      return 0;
    case Kind::kText:
      return value.text->length;
    case Kind::kList:
    case Kind::kTuple:
      return static_cast<int64_t>(value.list->items.size());
    case Kind::kDict:
      return static_cast<int64_t>(value.dict->size());
    case Kind::kView:
      return static_cast<int64_t>(value.view->dict->size());
    case Kind::kRange:
      return value.range->size;
    default:
      return std::nullopt;
  }
}

namespace {

bool EqualDicts(Rendering& rendering, const Dict& left, const Dict& right, int depth) {
  if (left.size() != right.size()) return false;
  return std::ranges::all_of(left.entries(), [&](const DictEntry& entry) {
    const Value* const other = right.Find(entry.key);
    return other != nullptr && Equal(rendering, entry.value, *other, depth + 1);
  });
}

bool EqualItems(Rendering& rendering, std::span<const Value> left, std::span<const Value> right,
                int depth) {
  if (left.size() != right.size()) return false;
  for (size_t i = 0; i < left.size(); ++i) {
    if (!Equal(rendering, left[i], right[i], depth + 1)) return false;
  }
  return true;
}

bool EqualRanges(const Range& left, const Range& right) {
  return left.size == right.size && (left.size == 0 || left.start == right.start) &&
         (left.size < 2 || left.step == right.step);
}

[[noreturn]] void FailOperator(Rendering& rendering, const char* name, const Value& left,
                               const Value& right) {
  for (const Value& value : {left, right}) {
    if (value.Is(Kind::kUndefined)) rendering.FailOnUndefined(value);
  }
  rendering.Fail(std::string("unsupported operand type(s) for ") + name + ": '" + TypeName(left) +
                 "' and '" + TypeName(right) + "'");
}

Value Checked(Rendering& rendering, bool overflows, int64_t result) {
  if (overflows) rendering.NotSupported("an integer of more than 64 bits");
  return Value::Int(result);
}

}  // namespace

bool Equal(Rendering& rendering, const Value& left, const Value& right, int depth) {
  rendering.Visit(depth);
  if (left.is_integer() && right.is_integer()) return left.AsInt() == right.AsInt();
  if (left.is_number() && right.is_number()) return left.AsDouble() == right.AsDouble();
  if (left.kind != right.kind) return false;
  switch (left.kind) {
    case Kind::kUndefined:
    case Kind::kNone:
      return true;
    case Kind::kText:
      rendering.PayBytes(left.text->bytes.size());
      return left.text->bytes == right.text->bytes;
    case Kind::kList:
    case Kind::kTuple:
      return EqualItems(rendering, left.list->items, right.list->items, depth);
    case Kind::kDict:
      return EqualDicts(rendering, *left.dict, *right.dict, depth);
    case Kind::kRange:
      return EqualRanges(*left.range, *right.range);
    case Kind::kView:
      rendering.NotSupported("a comparison of views of objects");
    case Kind::kMethod:
      rendering.NotSupported("a comparison of methods");
    default:
      return left.text == right.text;  // the same object
  }
}

int Order(Rendering& rendering, const Value& left, const Value& right, int depth) {
  rendering.Visit(depth);
  if (left.is_integer() && right.is_integer()) {
    return left.AsInt() < right.AsInt() ? -1 : left.AsInt() > right.AsInt();
  }
  if (left.is_number() && right.is_number()) {
    const double one = left.AsDouble(), other = right.AsDouble();
    if (std::isnan(one) || std::isnan(other)) rendering.NotSupported("the order of NaN");
    return one < other ? -1 : one > other;
  }
  if (left.is_text() && right.is_text()) {  // bytes of UTF-8 have the order of code points
    rendering.PayBytes(left.text->bytes.size());
    return left.text->bytes.compare(right.text->bytes);
  }
  if (left.kind != right.kind || !left.is_list_or_tuple()) {
    FailOperator(rendering, "<", left, right);
  }
  const auto one = left.list->items, other = right.list->items;
  for (size_t i = 0; i < std::min(one.size(), other.size()); ++i) {
    if (!Equal(rendering, one[i], other[i], depth + 1)) {
      return Order(rendering, one[i], other[i], depth + 1);
    }
  }
  return one.size() < other.size() ? -1 : one.size() > other.size();
}

bool Compare(Rendering& rendering, Comparison comparison, const Value& left, const Value& right) {
  switch (comparison) {
    case Comparison::kEqual:
      return Equal(rendering, left, right);
    case Comparison::kNotEqual:
      return !Equal(rendering, left, right);
    case Comparison::kLess:
      return Order(rendering, left, right) < 0;
    case Comparison::kLessEqual:
      return Order(rendering, left, right) <= 0;
    case Comparison::kGreater:
      return Order(rendering, left, right) > 0;
    default:
      return Order(rendering, left, right) >= 0;
  }
}

bool Contains(Rendering& rendering, const Value& container, const Value& value) {
  switch (container.kind) {
    case Kind::kText:
      if (!value.is_text()) {
        rendering.Fail(std::string("'in <string>' requires string as left operand, not ") +
                       TypeName(value));
      }
      rendering.PayBytes(2 * container.text->bytes.size());
      return FindPart(container.text->bytes, value.text->bytes) != std::string_view::npos;
    case Kind::kDict:
      if (!Dict::CanBeKey(value)) rendering.NotSupported("such a key of an object");
      if (value.is_text()) rendering.PayBytes(value.text->bytes.size());
      return container.dict->Find(value) != nullptr;
    default: {
      Iterator* const iterator = Iterate(rendering, container);
      Value next;
      while (iterator->Next(rendering, &next)) {
        if (Equal(rendering, next, value)) return true;
      }
      return false;
    }
  }
}

Value Add(Rendering& rendering, const Value& left, const Value& right) {
  if (left.is_text() && right.is_text()) {
    rendering.PayBytes(left.text->bytes.size() + right.text->bytes.size());
    rendering.arena().ReserveText(left.text->bytes.size() + right.text->bytes.size());
    TextBuilder sum;
    sum.Append(*left.text);
    sum.Append(*right.text);
    return sum.Make(rendering.arena());
  }
  if (left.is_integer() && right.is_integer()) {
    int64_t sum = 0;
    const bool overflows = __builtin_add_overflow(left.AsInt(), right.AsInt(), &sum);
    return Checked(rendering, overflows, sum);
  }
  if (left.is_number() && right.is_number())
    return Value::Float(left.AsDouble() + right.AsDouble());
  if (left.kind != right.kind || !left.is_list_or_tuple()) {
    FailOperator(rendering, "+", left, right);
  }
  const auto one = left.list->items, other = right.list->items;
  if (one.empty() && other.empty()) return left;
  rendering.Pay(1 + static_cast<int64_t>((one.size() + other.size()) / 64));
  Arena& arena = rendering.arena();
  Value* const sum = arena.NewArray<Value>(one.size() + other.size());
  std::ranges::copy(other, std::ranges::copy(one, sum).out);
  const bool given = left.list->given || right.list->given;
  const List* const made = arena.New<List>(List{{sum, one.size() + other.size()}, given});
  return left.Is(Kind::kTuple) ? Value::Tuple(made) : Value(made);
}

Value Subtract(Rendering& rendering, const Value& left, const Value& right) {
  if (left.is_integer() && right.is_integer()) {
    int64_t difference = 0;
    const bool overflows = __builtin_sub_overflow(left.AsInt(), right.AsInt(), &difference);
    return Checked(rendering, overflows, difference);
  }
  if (!left.is_number() || !right.is_number()) FailOperator(rendering, "-", left, right);
  return Value::Float(left.AsDouble() - right.AsDouble());
}

namespace {

// A text, list or tuple so many times.
Value Repeated(Rendering& rendering, const Value& value, int64_t times) {
  Arena& arena = rendering.arena();
  const auto count = static_cast<size_t>(std::max<int64_t>(times, 0));
  if (value.is_text()) {
    const std::string_view bytes = value.text->bytes;
    if (count == 0 || bytes.empty()) return BorrowText(arena, "", value.text->foreign);
    if (count > SIZE_MAX / bytes.size()) rendering.Refuse("a product would be too large");
    char* const product = arena.NewArray<char>(bytes.size() * count);
    rendering.PayBytes(bytes.size() * count);
    for (size_t i = 0; i < count; ++i) std::ranges::copy(bytes, product + i * bytes.size());
    return BorrowText(arena, {product, bytes.size() * count}, value.text->foreign);
  }
  const auto items = value.list->items;
  std::span<const Value> made;
  if (count > 0 && !items.empty()) {
    if (count > SIZE_MAX / items.size()) rendering.Refuse("a product would be too large");
    Value* const product = arena.NewArray<Value>(items.size() * count);
    rendering.Pay(1 + static_cast<int64_t>(items.size() * count / 64));
    for (size_t i = 0; i < count; ++i) std::ranges::copy(items, product + i * items.size());
    made = {product, items.size() * count};
  }
  const List* const list = arena.New<List>(List{made, value.list->given});
  return value.Is(Kind::kTuple) ? Value::Tuple(list) : Value(list);
}

}  // namespace

Value Multiply(Rendering& rendering, const Value& left, const Value& right) {
  if (left.is_integer() && right.is_integer()) {
    int64_t product = 0;
    const bool overflows = __builtin_mul_overflow(left.AsInt(), right.AsInt(), &product);
    return Checked(rendering, overflows, product);
  }
  if (left.is_number() && right.is_number())
    return Value::Float(left.AsDouble() * right.AsDouble());
  const auto repeats = [](const Value& one, const Value& times) {
    return (one.is_text() || one.is_list_or_tuple()) && times.is_integer();
  };
  if (repeats(left, right)) return Repeated(rendering, left, right.AsInt());
  if (repeats(right, left)) return Repeated(rendering, right, left.AsInt());
  FailOperator(rendering, "*", left, right);
}

}  // namespace mlc_native::templates
