#include "template/expression_parser.h"

#include <algorithm>

#include "template/template_error.h"

namespace mlc_native::templates {
namespace {

constexpr int kMaxNesting = 60;  // of what is parsed within something else
constexpr int kMaxHeight = 250;  // of an expression

}  // namespace

ExpressionParser::Nesting::Nesting(ExpressionParser& parser) : parser_(parser) {
  if (parser_.depth_ == kMaxNesting) {
    parser_.NotSupported("a template that is nested deeper than 60 levels");
  }
  ++parser_.depth_;
}

bool ExpressionParser::Skip(std::string_view operation) {
  if (!current().Is(operation)) return false;
  Take();
  return true;
}

bool ExpressionParser::SkipName(std::string_view name) {
  if (!current().IsName(name)) return false;
  Take();
  return true;
}

void ExpressionParser::Expect(std::string_view operation) {
  if (!Skip(operation)) {
    Fail("expected '" + std::string(operation) + "', got '" + std::string(current().text) + "'");
  }
}

std::string_view ExpressionParser::ExpectName() {
  if (current().kind != TokenKind::kName) {
    Fail("expected a name, got '" + std::string(current().text.substr(0, 40)) + "'");
  }
  return Take().text;
}

void ExpressionParser::Fail(const std::string& message) const {
  throw TemplateError(TemplateError::Kind::kSyntax, message, current().line);
}

void ExpressionParser::NotSupported(const std::string& message) const {
  throw TemplateError(TemplateError::Kind::kNotSupported, message, current().line);
}

const Text* ExpressionParser::Constant(std::string_view bytes) {
  return NewText(program_.arena, bytes, false);
}

int ExpressionParser::Uses(std::string_view name) const {
  const auto found = uses_.find(name);
  return found == uses_.end() ? 0 : found->second;
}

std::unique_ptr<Expression> ExpressionParser::New(Op op) {
  auto made = std::make_unique<Expression>();
  made->op = op;
  made->line = current().line;
  return made;
}

ExpressionPtr ExpressionParser::Made(std::unique_ptr<Expression> expression) {
  for (const ExpressionPtr& part : expression->parts) {
    if (part != nullptr) expression->height = std::max(expression->height, part->height + 1);
  }
  if (expression->height > kMaxHeight) NotSupported("an expression of more than 250 levels");
  return expression;
}

ExpressionPtr ExpressionParser::Binary(Op op, ExpressionPtr left, ExpressionPtr right) {
  auto made = New(op);
  made->parts.push_back(std::move(left));
  made->parts.push_back(std::move(right));
  return Made(std::move(made));
}

ExpressionPtr ExpressionParser::ParseExpression(bool with_condition) {
  const Nesting nesting(*this);
  return with_condition ? ParseCondition() : ParseOr();
}

ExpressionPtr ExpressionParser::ParseCondition() {
  ExpressionPtr value = ParseOr();
  while (SkipName("if")) {
    auto made = New(Op::kIf);
    made->parts.push_back(ParseOr());
    made->parts.push_back(std::move(value));
    made->parts.push_back(SkipName("else") ? ParseExpression() : nullptr);
    value = Made(std::move(made));
  }
  return value;
}

ExpressionPtr ExpressionParser::ParseOr() {
  ExpressionPtr left = ParseAnd();
  while (SkipName("or")) left = Binary(Op::kOr, std::move(left), ParseAnd());
  return left;
}

ExpressionPtr ExpressionParser::ParseAnd() {
  ExpressionPtr left = ParseNot();
  while (SkipName("and")) left = Binary(Op::kAnd, std::move(left), ParseNot());
  return left;
}

ExpressionPtr ExpressionParser::ParseNot() {
  if (!current().IsName("not")) return ParseCompare();
  const Nesting nesting(*this);
  auto made = New(Op::kNot);
  Take();
  made->parts.push_back(ParseNot());
  return Made(std::move(made));
}

std::optional<ComparisonOp> ExpressionParser::TakeComparison() {
  static constexpr std::pair<std::string_view, ComparisonOp> kOperators[] = {
      {"==", ComparisonOp::kEqual},  {"!=", ComparisonOp::kNotEqual},
      {"<", ComparisonOp::kLess},    {"<=", ComparisonOp::kLessEqual},
      {">", ComparisonOp::kGreater}, {">=", ComparisonOp::kGreaterEqual},
  };
  for (const auto& [text, comparison] : kOperators) {
    if (Skip(text)) return comparison;
  }
  if (SkipName("in")) return ComparisonOp::kIn;
  if (current().IsName("not") && ahead().IsName("in")) {
    Take();
    Take();
    return ComparisonOp::kNotIn;
  }
  return std::nullopt;
}

ExpressionPtr ExpressionParser::ParseCompare() {
  ExpressionPtr first = ParseSum();
  std::unique_ptr<Expression> chain;
  while (const auto comparison = TakeComparison()) {
    if (chain == nullptr) {
      chain = New(Op::kCompare);
      chain->parts.push_back(std::move(first));
    }
    chain->comparisons.push_back(*comparison);
    chain->parts.push_back(ParseSum());
  }
  return chain == nullptr ? std::move(first) : Made(std::move(chain));
}

ExpressionPtr ExpressionParser::ParseSum() {
  ExpressionPtr left = ParseConcat();
  for (;;) {
    if (Skip("+")) {
      left = Binary(Op::kAdd, std::move(left), ParseConcat());
    } else if (Skip("-")) {
      left = Binary(Op::kSubtract, std::move(left), ParseConcat());
    } else {
      return left;
    }
  }
}

ExpressionPtr ExpressionParser::ParseConcat() {
  ExpressionPtr first = ParseProduct();
  if (!current().Is("~")) return first;
  auto made = New(Op::kConcat);
  made->parts.push_back(std::move(first));
  while (Skip("~")) made->parts.push_back(ParseProduct());
  return Made(std::move(made));
}

ExpressionPtr ExpressionParser::ParseProduct() {
  ExpressionPtr left = ParsePower();
  for (;;) {
    if (Skip("*")) {
      left = Binary(Op::kMultiply, std::move(left), ParsePower());
    } else if (Skip("//")) {
      left = Binary(Op::kFloorDivide, std::move(left), ParsePower());
    } else if (Skip("/")) {
      left = Binary(Op::kDivide, std::move(left), ParsePower());
    } else if (Skip("%")) {
      left = Binary(Op::kModulo, std::move(left), ParsePower());
    } else {
      return left;
    }
  }
}

ExpressionPtr ExpressionParser::ParsePower() {
  ExpressionPtr left = ParseUnary();
  while (Skip("**")) left = Binary(Op::kPower, std::move(left), ParseUnary());
  return left;
}

ExpressionPtr ExpressionParser::ParseUnary(bool with_filters) {
  const Nesting nesting(*this);
  ExpressionPtr value;
  if (current().Is("-") || current().Is("+")) {
    auto made = New(Take().Is("-") ? Op::kNegate : Op::kPlus);
    made->parts.push_back(ParseUnary(false));
    value = Made(std::move(made));
  } else {
    value = ParsePrimary();
  }
  value = ParsePostfix(std::move(value));
  return with_filters ? ParseFilterChain(std::move(value)) : std::move(value);
}

bool ExpressionParser::IsTupleEnd(std::string_view end) const {
  return current().kind == TokenKind::kVariableEnd || current().kind == TokenKind::kBlockEnd ||
         current().Is(")") || (!end.empty() && current().IsName(end));
}

ExpressionPtr ExpressionParser::ParseTuple(bool with_condition, std::string_view end) {
  auto tuple = New(Op::kTuple);
  do {
    if (IsTupleEnd(end)) break;
    ExpressionPtr value = ParseExpression(with_condition);
    if (tuple->parts.empty() && !current().Is(",")) return value;
    tuple->parts.push_back(std::move(value));
  } while (Skip(","));
  if (tuple->parts.empty()) Fail("expected an expression");
  return Made(std::move(tuple));
}

Target ExpressionParser::ParseOneTarget(bool with_namespace) {
  if (current().kind != TokenKind::kName) NotSupported("an assignment to this");
  Target target;
  const std::string_view name = Take().text;
  for (const char* reserved : {"true", "false", "none", "True", "False", "None"}) {
    if (name == reserved) Fail("can't assign to a constant");
  }
  target.name = program_.NumberOf(name);
  if (with_namespace && Skip(".")) target.attribute = Constant(ExpectName());
  return target;
}

Target ExpressionParser::ParseTarget(bool with_namespace, std::string_view end) {
  Target several;
  bool is_tuple = false;
  do {
    if (!several.members.empty()) is_tuple = true;
    if (is_tuple && (current().Is("=") || IsTupleEnd(end))) break;
    if (Skip("(")) {
      several.members.push_back(ParseTarget(with_namespace, {}));
      Expect(")");
    } else {
      several.members.push_back(ParseOneTarget(with_namespace));
    }
  } while (Skip(","));
  if (!is_tuple) {
    Target only = std::move(several.members[0]);
    return only;
  }
  return several;
}

}  // namespace mlc_native::templates
