// The parts of expressions: literals, names, subscripts, calls, filters and tests.
#include <algorithm>
#include <charconv>

#include "support/utf8.h"
#include "template/expression_parser.h"
#include "template/filters.h"
#include "template/template_error.h"
#include "template/tests.h"
#include "template/unicode.h"

namespace mlc_native::templates {
namespace {

// Reads the digits of an escape such as \x41; -1 if they are not there.
int64_t HexDigits(std::string_view text, size_t count) {
  if (text.size() < count) return -1;
  uint32_t value = 0;
  const char* const begin = text.data();
  const auto [end, error] = std::from_chars(begin, begin + count, value, 16);
  return error == std::errc() && end == begin + count ? int64_t{value} : -1;
}

[[noreturn]] void RefuseEscape(int line) {
  throw TemplateError(TemplateError::Kind::kNotSupported, "such an escape in a text", line);
}

// Decodes the escape behind a backslash and returns how many bytes of it there are.
size_t DecodeEscape(std::string_view rest, int line, std::string* out) {
  static constexpr std::string_view kNames = "\\'\"abfnrtv";
  static constexpr std::string_view kChars = "\\'\"\a\b\f\n\r\t\v";
  const char c = rest[0];
  if (const size_t known = kNames.find(c); known != std::string_view::npos) {
    out->push_back(kChars[known]);
    return 1;
  }
  if (c == '\n') return 1;
  const size_t digits = c == 'x' ? 2 : c == 'u' ? 4 : c == 'U' ? 8 : 0;
  if (digits > 0) {
    const int64_t value = HexDigits(rest.substr(1), digits);
    if (value < 0 || value > 0x10FFFF || (value >= 0xD800 && value <= 0xDFFF)) RefuseEscape(line);
    AppendCodePoint(static_cast<uint32_t>(value), out);
    return 1 + digits;
  }
  if (IsAsciiDigit(c) || c == 'N' || static_cast<uint8_t>(c) >= 0x80) RefuseEscape(line);
  out->push_back('\\');  // Python keeps an escape that it does not know
  out->push_back(c);
  return 1;
}

}  // namespace

std::string DecodeStringLiteral(std::string_view literal, int line) {
  std::string text;
  const std::string_view inner = literal.substr(1, literal.size() - 2);
  for (size_t at = 0; at < inner.size();) {
    if (inner[at] != '\\') {
      text.push_back(inner[at++]);
    } else {
      at += 1 + DecodeEscape(inner.substr(at + 1), line, &text);
    }
  }
  return text;
}

ExpressionPtr ExpressionParser::ParsePrimary() {
  switch (current().kind) {
    case TokenKind::kName:
      return ParseName();
    case TokenKind::kString:
      return ParseString();
    case TokenKind::kInteger:
    case TokenKind::kFloat:
      return ParseNumber();
    default:
      break;
  }
  if (current().Is("[")) return ParseList();
  if (current().Is("{")) return ParseDict();
  if (!Skip("(")) Fail("unexpected '" + std::string(current().text.substr(0, 40)) + "'");
  if (current().Is(")")) {
    Take();
    return Made(New(Op::kTuple));
  }
  ExpressionPtr tuple = ParseTuple();
  Expect(")");
  return tuple;
}

ExpressionPtr ExpressionParser::ParseName() {
  auto made = New(Op::kConstant);
  const std::string_view name = Take().text;
  if (name == "true" || name == "True") {
    made->constant = Value::Bool(true);
  } else if (name == "false" || name == "False") {
    made->constant = Value::Bool(false);
  } else if (name == "none" || name == "None") {
    made->constant = Value::None();
  } else {
    made->op = Op::kName;
    made->name = program_.NumberOf(name);
    made->constant = Constant(name);
    ++uses_[name];
  }
  return made;
}

ExpressionPtr ExpressionParser::ParseString() {
  auto made = New(Op::kConstant);
  std::string text;
  while (current().kind == TokenKind::kString) {
    const Token token = Take();
    text += DecodeStringLiteral(token.text, token.line);
  }
  made->constant = Constant(text);
  return made;
}

ExpressionPtr ExpressionParser::ParseNumber() {
  auto made = New(Op::kConstant);
  const Token token = Take();
  const char* const begin = token.text.data();
  const char* const end = begin + token.text.size();
  if (token.kind == TokenKind::kInteger) {
    int64_t value = 0;
    if (std::from_chars(begin, end, value).ec != std::errc()) {
      NotSupported("an integer of more than 64 bits");
    }
    made->constant = Value::Int(value);
  } else {
    double value = 0;
    if (std::from_chars(begin, end, value).ec != std::errc()) {
      NotSupported("a number out of range");
    }
    made->constant = Value::Float(value);
  }
  return made;
}

ExpressionPtr ExpressionParser::ParseList() {
  auto list = New(Op::kList);
  Expect("[");
  while (!current().Is("]")) {
    if (!list->parts.empty()) Expect(",");
    if (current().Is("]")) break;
    list->parts.push_back(ParseExpression());
  }
  Expect("]");
  return Made(std::move(list));
}

ExpressionPtr ExpressionParser::ParseDict() {
  auto dict = New(Op::kDict);
  Expect("{");
  while (!current().Is("}")) {
    if (!dict->parts.empty()) Expect(",");
    if (current().Is("}")) break;
    dict->parts.push_back(ParseExpression());
    Expect(":");
    dict->parts.push_back(ParseExpression());
  }
  Expect("}");
  return Made(std::move(dict));
}

ExpressionPtr ExpressionParser::ParsePostfix(ExpressionPtr expression) {
  for (;;) {
    if (current().Is(".") || current().Is("[")) {
      expression = ParseSubscript(std::move(expression));
    } else if (current().Is("(")) {
      auto call = New(Op::kCall);
      call->parts.push_back(std::move(expression));
      ParseArguments(call.get());
      expression = Made(std::move(call));
    } else {
      return expression;
    }
  }
}

ExpressionPtr ExpressionParser::ParseSubscript(ExpressionPtr expression) {
  if (Skip(".")) {
    if (current().kind == TokenKind::kInteger) {
      return Binary(Op::kItem, std::move(expression), ParseNumber());
    }
    auto made = New(Op::kAttribute);
    const std::string_view name = ExpectName();
    if (name.starts_with("__")) NotSupported("the attribute " + std::string(name.substr(0, 40)));
    made->constant = Constant(name);
    made->parts.push_back(std::move(expression));
    return Made(std::move(made));
  }
  Expect("[");
  auto slice = New(Op::kSlice);
  slice->parts.push_back(std::move(expression));
  for (size_t bound = 1; bound <= 3; ++bound) {
    const bool is_missing = current().Is(":") || current().Is("]");
    slice->parts.push_back(is_missing ? nullptr : ParseExpression());
    if (bound == 1 && !is_missing && Skip("]")) {
      return Binary(Op::kItem, std::move(slice->parts[0]), std::move(slice->parts[1]));
    }
    if (!Skip(":")) break;
  }
  if (current().Is(",")) NotSupported("a subscript of several values");
  if (slice->parts.size() == 2 && slice->parts[1] == nullptr) Fail("expected a subscript");
  slice->parts.resize(4);
  Expect("]");
  return Made(std::move(slice));
}

void ExpressionParser::ParseArguments(Expression* call) {
  Expect("(");
  bool is_first = true;
  while (!current().Is(")")) {
    if (!is_first) Expect(",");
    if (current().Is(")")) break;
    is_first = false;
    if (current().Is("*") || current().Is("**")) NotSupported("arguments in a list or an object");
    if (current().kind == TokenKind::kName && ahead().Is("=")) {
      call->keywords.push_back(Take().text);
      Take();
    } else if (!call->keywords.empty()) {
      Fail("invalid syntax for function call expression");
    }
    call->parts.push_back(ParseExpression());
  }
  Expect(")");
}

ExpressionPtr ExpressionParser::ParseFilterChain(ExpressionPtr expression) {
  for (;;) {
    if (Skip("|")) {
      expression = ParseFilter(std::move(expression));
    } else if (current().IsName("is")) {
      expression = ParseTest(std::move(expression));
    } else if (current().Is("(")) {
      auto call = New(Op::kCall);
      call->parts.push_back(std::move(expression));
      ParseArguments(call.get());
      expression = Made(std::move(call));
    } else {
      return expression;
    }
  }
}

ExpressionPtr ExpressionParser::ParseFilter(ExpressionPtr expression) {
  auto made = New(Op::kFilter);
  const std::string_view name = ExpectName();
  made->filter = current().Is(".") ? nullptr : FindFilter(name);
  if (made->filter == nullptr) NotSupported("the filter " + std::string(name.substr(0, 40)));
  made->parts.push_back(std::move(expression));
  if (current().Is("(")) ParseArguments(made.get());
  return Made(std::move(made));
}

ExpressionPtr ExpressionParser::ParseFilters() {
  ExpressionPtr filters = ParseFilter(nullptr);
  while (Skip("|")) filters = ParseFilter(std::move(filters));
  return filters;
}

ExpressionPtr ExpressionParser::ParseTest(ExpressionPtr expression) {
  auto made = New(Op::kTest);
  Take();
  const bool negated = SkipName("not");
  const std::string_view name = ExpectName();
  made->test = current().Is(".") ? nullptr : FindTest(name);
  if (made->test == nullptr) NotSupported("the test " + std::string(name.substr(0, 40)));
  made->parts.push_back(std::move(expression));
  const Token& next = current();
  const bool is_value = next.kind == TokenKind::kName || next.kind == TokenKind::kString ||
                        next.kind == TokenKind::kInteger || next.kind == TokenKind::kFloat ||
                        next.Is("[") || next.Is("{");
  if (next.Is("(")) {
    ParseArguments(made.get());
  } else if (is_value && !next.IsName("else") && !next.IsName("or") && !next.IsName("and")) {
    if (next.IsName("is")) Fail("You cannot chain multiple tests with is");
    const Nesting nesting(*this);
    made->parts.push_back(ParsePostfix(ParsePrimary()));
  }
  ExpressionPtr test = Made(std::move(made));
  if (!negated) return test;
  auto inverse = New(Op::kNot);
  inverse->parts.push_back(std::move(test));
  return Made(std::move(inverse));
}

}  // namespace mlc_native::templates
