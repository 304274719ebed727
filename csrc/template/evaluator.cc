#include "template/evaluator.h"

#include <algorithm>
#include <string>

#include "template/attributes.h"
#include "template/dict.h"
#include "template/filters.h"
#include "template/iterate.h"
#include "template/operators.h"
#include "template/python_text.h"
#include "template/tests.h"

namespace mlc_native::templates {

Value Evaluator::Evaluate(const Expression& expression, const Scope& scope) {
  const auto part = [&](size_t i) { return Evaluate(*expression.parts[i], scope); };
  switch (expression.op) {
    case Op::kConstant:
      return expression.constant;
    case Op::kName:
      return EvaluateName(expression, scope);
    default:
      break;
  }
  rendering_.CheckStack();
  switch (expression.op) {
    case Op::kAttribute:
      return GetAttribute(rendering_, part(0), expression.constant.text);
    case Op::kItem: {
      const Value value = part(0);
      return GetItem(rendering_, value, part(1));
    }
    case Op::kSlice:
      return EvaluateSlice(expression, scope);
    case Op::kCall:
      return EvaluateCall(expression, scope, nullptr);
    case Op::kFilter:
      return EvaluateFilter(expression, part(0), scope);
    case Op::kTest:
      return EvaluateTest(expression, scope);
    case Op::kList:
    case Op::kTuple:
      return EvaluateItems(expression, scope);
    case Op::kDict:
      return EvaluateDict(expression, scope);
    case Op::kIf:
      return EvaluateIf(expression, scope);
    case Op::kAnd: {
      const Value left = part(0);
      return Truth(left) ? part(1) : left;
    }
    case Op::kOr: {
      const Value left = part(0);
      return Truth(left) ? left : part(1);
    }
    case Op::kNot:
      return Value::Bool(!Truth(part(0)));
    case Op::kCompare:
      return EvaluateCompare(expression, scope);
    case Op::kConcat:
      return EvaluateConcat(expression, scope);
    case Op::kNegate:
      return Negate(rendering_, part(0));
    case Op::kPlus:
      return Add(rendering_, Value::Int(0), part(0));
    default:
      return EvaluateBinary(expression, scope);
  }
}

Value Evaluator::EvaluateName(const Expression& expression, const Scope& scope) {
  const Value* const found = scope.Find(expression.name);
  return found != nullptr ? *found : Value::Undefined(expression.constant.text);
}

Value Evaluator::EvaluateSlice(const Expression& expression, const Scope& scope) {
  const Value value = Evaluate(*expression.parts[0], scope);
  Value bounds[3];
  for (size_t i = 0; i < 3; ++i) {
    const ExpressionPtr& bound = expression.parts[i + 1];
    bounds[i] = bound == nullptr ? Value::None() : Evaluate(*bound, scope);
  }
  return Cut(rendering_, value, bounds[0], bounds[1], bounds[2]);
}

Value Evaluator::EvaluateIf(const Expression& expression, const Scope& scope) {
  if (Truth(Evaluate(*expression.parts[0], scope))) return Evaluate(*expression.parts[1], scope);
  return expression.parts[2] == nullptr ? Value() : Evaluate(*expression.parts[2], scope);
}

bool Evaluator::CompareOne(ComparisonOp op, const Value& left, const Value& right) {
  if (op == ComparisonOp::kIn) return Contains(rendering_, right, left);
  if (op == ComparisonOp::kNotIn) return !Contains(rendering_, right, left);
  return Compare(rendering_, static_cast<Comparison>(op), left, right);
}

Value Evaluator::EvaluateCompare(const Expression& expression, const Scope& scope) {
  const bool is_chain = expression.comparisons.size() > 1;
  const auto operand = [&](size_t i) {
    const Value value = Evaluate(*expression.parts[i], scope);
    const bool is_scalar =
        value.is_text() || value.is_number() || value.Is(Kind::kNone) || value.Is(Kind::kUndefined);
    if (is_chain && !is_scalar) {
      rendering_.NotSupported("a chain of comparisons of lists or objects");
    }
    return value;
  };
  Value left = operand(0);
  for (size_t i = 0; i < expression.comparisons.size(); ++i) {
    const Value right = operand(i + 1);
    if (!CompareOne(expression.comparisons[i], left, right)) return Value::Bool(false);
    left = right;
  }
  return Value::Bool(true);
}

Value Evaluator::EvaluateConcat(const Expression& expression, const Scope& scope) {
  std::vector<const Text*> texts;
  size_t bytes = 0;
  for (const ExpressionPtr& part : expression.parts) {
    texts.push_back(ToText(rendering_, Evaluate(*part, scope)));
    bytes += texts.back()->bytes.size();
  }
  rendering_.PayBytes(bytes);
  rendering_.arena().ReserveText(bytes);
  TextBuilder joined;
  for (const Text* text : texts) joined.Append(*text);
  return joined.Make(rendering_.arena());
}

Value Evaluator::EvaluateItems(const Expression& expression, const Scope& scope) {
  Arena& arena = rendering_.arena();
  std::span<Value> items;
  if (!expression.parts.empty()) {
    items = {arena.NewArray<Value>(expression.parts.size()), expression.parts.size()};
    std::ranges::transform(expression.parts, items.begin(),
                           [&](const ExpressionPtr& part) { return Evaluate(*part, scope); });
  }
  const List* const list = arena.New<List>(List{items});
  return expression.op == Op::kTuple ? Value::Tuple(list) : Value(list);
}

Value Evaluator::EvaluateDict(const Expression& expression, const Scope& scope) {
  Dict* const dict = rendering_.arena().New<Dict>();
  for (size_t i = 0; i < expression.parts.size(); i += 2) {
    const Value key = Evaluate(*expression.parts[i], scope);
    if (!Dict::CanBeKey(key)) rendering_.NotSupported("such a key of an object");
    dict->Set(rendering_.arena(), key, Evaluate(*expression.parts[i + 1], scope));
  }
  return static_cast<const Dict*>(dict);
}

Evaluator::Arguments Evaluator::EvaluateArguments(const Expression& expression,
                                                  const Scope& scope) {
  Arguments arguments;
  const size_t num_positional = expression.parts.size() - 1 - expression.keywords.size();
  for (size_t i = 1; i <= num_positional; ++i) {
    arguments.positional.push_back(Evaluate(*expression.parts[i], scope));
  }
  for (size_t i = 0; i < expression.keywords.size(); ++i) {
    const Expression& value = *expression.parts[1 + num_positional + i];
    arguments.named.push_back({expression.keywords[i], Evaluate(value, scope)});
  }
  return arguments;
}

Value Evaluator::EvaluateFilter(const Expression& expression, const Value& input,
                                const Scope& scope) {
  const Arguments arguments = EvaluateArguments(expression, scope);
  return CallFilter(rendering_, *expression.filter, input, arguments.view());
}

Value Evaluator::ApplyFilters(const Expression& filters, const Value& input, const Scope& scope) {
  const Expression* const inner = filters.parts[0].get();
  const Value filtered = inner == nullptr ? input : ApplyFilters(*inner, input, scope);
  return EvaluateFilter(filters, filtered, scope);
}

Value Evaluator::EvaluateTest(const Expression& expression, const Scope& scope) {
  const Value value = Evaluate(*expression.parts[0], scope);
  const Arguments arguments = EvaluateArguments(expression, scope);
  return Value::Bool(CallTest(rendering_, *expression.test, value, arguments.view()));
}

Value Evaluator::EvaluateBinary(const Expression& expression, const Scope& scope) {
  const Value left = Evaluate(*expression.parts[0], scope);
  const Value right = Evaluate(*expression.parts[1], scope);
  switch (expression.op) {
    case Op::kAdd:
      return Add(rendering_, left, right);
    case Op::kSubtract:
      return Subtract(rendering_, left, right);
    case Op::kMultiply:
      return Multiply(rendering_, left, right);
    case Op::kDivide:
      return Divide(rendering_, left, right);
    case Op::kFloorDivide:
      return FloorDivide(rendering_, left, right);
    case Op::kModulo:
      return Modulo(rendering_, left, right);
    default:
      return Power(rendering_, left, right);
  }
}

}  // namespace mlc_native::templates
