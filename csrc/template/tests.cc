#include "template/tests.h"

#include <algorithm>

#include "template/iterate.h"
#include "template/operators.h"
#include "template/python_text.h"
#include "template/unicode.h"

namespace mlc_native::templates {
namespace {

template <Kind kind>
bool IsKind(Rendering&, const Value& value, const Bound&) {
  return value.Is(kind);
}

bool IsDefined(Rendering&, const Value& value, const Bound&) { return !value.Is(Kind::kUndefined); }

template <bool expected>
bool IsBool(Rendering&, const Value& value, const Bound&) {
  return value.Is(Kind::kBool) && value.boolean == expected;
}

bool IsNumber(Rendering&, const Value& value, const Bound&) { return value.is_number(); }

bool IsSequence(Rendering&, const Value& value, const Bound&) {
  return Length(value).has_value() && !value.Is(Kind::kView);
}

bool TestIterable(Rendering&, const Value& value, const Bound&) { return IsIterable(value); }

bool IsCallable(Rendering& rendering, const Value& value, const Bound&) {
  if (value.Is(Kind::kLoop) || value.Is(Kind::kUndefined)) {
    rendering.NotSupported("the test callable of such a value");
  }
  return value.Is(Kind::kCallable) || value.Is(Kind::kMethod) || value.Is(Kind::kMacro) ||
         value.Is(Kind::kJoiner);
}

template <Comparison comparison>
bool IsCompared(Rendering& rendering, const Value& value, const Bound& arguments) {
  return Compare(rendering, comparison, value, arguments[0]);
}

bool IsIn(Rendering& rendering, const Value& value, const Bound& arguments) {
  return Contains(rendering, arguments[0], value);
}

bool IsSame(Rendering& rendering, const Value& value, const Bound& arguments) {
  const Value& other = arguments[0];
  if (value.kind != other.kind) return false;
  if (value.Is(Kind::kNone)) return true;
  if (value.Is(Kind::kBool)) return value.boolean == other.boolean;
  rendering.NotSupported("the test sameas of other values than true, false and none");
}

bool HasRemainder(Rendering& rendering, const Value& value, const Value& divisor,
                  int64_t expected) {
  if (value.is_text()) rendering.Fail("a text is no number");  // for which % is a format
  return Equal(rendering, Modulo(rendering, value, divisor), Value::Int(expected));
}

bool IsOdd(Rendering& rendering, const Value& value, const Bound&) {
  return HasRemainder(rendering, value, Value::Int(2), 1);
}

bool IsEven(Rendering& rendering, const Value& value, const Bound&) {
  return HasRemainder(rendering, value, Value::Int(2), 0);
}

bool IsDivisible(Rendering& rendering, const Value& value, const Bound& arguments) {
  return HasRemainder(rendering, value, arguments[0], 0);
}

// Has letters, all of them in this case.
template <bool (*expected)(char)>
bool HasCase(Rendering& rendering, const Value& value, const Bound&) {
  const Text& text = *ToText(rendering, value);
  if (!text.is_ascii()) rendering.NotSupported("the case of a text that is not ASCII");
  rendering.PayBytes(text.bytes.size());
  return std::ranges::any_of(text.bytes, IsAsciiLetter) &&
         std::ranges::all_of(text.bytes, [](char c) { return !IsAsciiLetter(c) || expected(c); });
}

constexpr TestEntry kTests[] = {
    {{"defined"}, IsDefined},
    {{"undefined"}, IsKind<Kind::kUndefined>},
    {{"none"}, IsKind<Kind::kNone>},
    {{"string"}, IsKind<Kind::kText>},
    {{"mapping"}, IsKind<Kind::kDict>},
    {{"boolean"}, IsKind<Kind::kBool>},
    {{"true"}, IsBool<true>},
    {{"false"}, IsBool<false>},
    {{"integer"}, IsKind<Kind::kInt>},
    {{"float"}, IsKind<Kind::kFloat>},
    {{"number"}, IsNumber},
    {{"sequence"}, IsSequence},
    {{"iterable"}, TestIterable},
    {{"callable"}, IsCallable},
    {{"in", {"seq"}, 1}, IsIn},
    {{"eq", {"other"}, 1}, IsCompared<Comparison::kEqual>},
    {{"==", {"other"}, 1}, IsCompared<Comparison::kEqual>},
    {{"equalto", {"other"}, 1}, IsCompared<Comparison::kEqual>},
    {{"ne", {"other"}, 1}, IsCompared<Comparison::kNotEqual>},
    {{"!=", {"other"}, 1}, IsCompared<Comparison::kNotEqual>},
    {{"lt", {"other"}, 1}, IsCompared<Comparison::kLess>},
    {{"<", {"other"}, 1}, IsCompared<Comparison::kLess>},
    {{"lessthan", {"other"}, 1}, IsCompared<Comparison::kLess>},
    {{"le", {"other"}, 1}, IsCompared<Comparison::kLessEqual>},
    {{"<=", {"other"}, 1}, IsCompared<Comparison::kLessEqual>},
    {{"gt", {"other"}, 1}, IsCompared<Comparison::kGreater>},
    {{">", {"other"}, 1}, IsCompared<Comparison::kGreater>},
    {{"greaterthan", {"other"}, 1}, IsCompared<Comparison::kGreater>},
    {{"ge", {"other"}, 1}, IsCompared<Comparison::kGreaterEqual>},
    {{">=", {"other"}, 1}, IsCompared<Comparison::kGreaterEqual>},
    {{"sameas", {"other"}, 1}, IsSame},
    {{"odd"}, IsOdd},
    {{"even"}, IsEven},
    {{"divisibleby", {"num"}, 1}, IsDivisible},
    {{"upper"}, HasCase<IsAsciiUpper>},
    {{"lower"}, HasCase<IsAsciiLower>},
};

}  // namespace

const TestEntry* FindTest(std::string_view name) { return FindNamed<TestEntry>(kTests, name); }

bool CallTest(Rendering& rendering, const TestEntry& test, const Value& value,
              const CallArguments& arguments) {
  rendering.Pay(1);
  return test.function(rendering, value, Bind(rendering, test.signature, arguments));
}

}  // namespace mlc_native::templates
