#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>
#include <string>

#include "template/filter_functions.h"
#include "template/operators.h"
#include "template/text_functions.h"
#include "template/unicode.h"

namespace mlc_native::templates {
namespace {

// The text without white space around it and with its sign, as long as it may be a number.
std::string NumberText(Rendering& rendering, const Text& text) {
  rendering.PayBytes(text.bytes.size());
  std::string_view rest = text.bytes;
  rest.remove_prefix(LeadingSpace(rest));
  rest.remove_suffix(TrailingSpace(rest));
  if (rest.size() > 64) rendering.NotSupported("a number in a long text");
  return std::string(rest);
}

std::optional<int64_t> ParseInt(Rendering& rendering, const std::string& text) {
  const size_t sign = text.starts_with('-') || text.starts_with('+') ? 1 : 0;
  const std::string_view digits = std::string_view(text).substr(sign);
  if (digits.find('_') != std::string_view::npos || CountCodePoints(text) != text.size()) {
    rendering.NotSupported("a number that is written in such a way");
  }
  if (digits.empty() || !std::ranges::all_of(digits, IsAsciiDigit)) return std::nullopt;
  int64_t value = 0;
  const char* const begin = text.c_str() + (text[0] == '+' ? 1 : 0);
  const auto [end, error] = std::from_chars(begin, text.c_str() + text.size(), value);
  if (error != std::errc()) rendering.NotSupported("an integer of more than 64 bits");
  return value;
}

std::optional<double> ParseFloat(Rendering& rendering, const std::string& text) {
  if (text.empty()) return std::nullopt;
  if (text.find_first_of("nN") != std::string::npos) {  // inf and nan
    rendering.NotSupported("a number that is written in such a way");
  }
  if (text.find_first_not_of("+-.0123456789eE") != std::string::npos) return std::nullopt;
  if (text.starts_with("+-")) return std::nullopt;
  double value = 0;
  const char* const begin = text.c_str() + (text[0] == '+' ? 1 : 0);
  const auto [end, error] = std::from_chars(begin, text.c_str() + text.size(), value);
  if (error == std::errc::result_out_of_range) rendering.NotSupported("a number out of range");
  if (error != std::errc() || end != text.c_str() + text.size()) return std::nullopt;
  return value;
}

std::optional<double> AsDouble(Rendering& rendering, const Value& value) {
  if (value.Is(Kind::kUndefined)) rendering.FailOnUndefined(value);
  if (value.is_number()) return value.AsDouble();
  if (!value.is_text()) return std::nullopt;
  const std::string text = NumberText(rendering, *value.text);
  if (text.find('_') != std::string::npos) {
    rendering.NotSupported("a number that is written in such a way");
  }
  return ParseFloat(rendering, text);
}

}  // namespace

Value FilterInt(Rendering& rendering, const Value& value, const Bound& arguments) {
  if (arguments.has(1)) rendering.NotSupported("the filter int with a base");
  if (value.is_integer()) return Value::Int(value.AsInt());
  if (value.is_text()) {
    if (const auto parsed = ParseInt(rendering, NumberText(rendering, *value.text))) {
      return Value::Int(*parsed);
    }
  }
  const std::optional<double> number = AsDouble(rendering, value);
  if (!number || !std::isfinite(*number)) return arguments.Or(0, Value::Int(0));
  if (std::abs(*number) >= 9.2e18) rendering.NotSupported("an integer of more than 64 bits");
  return Value::Int(static_cast<int64_t>(*number));
}

Value FilterFloat(Rendering& rendering, const Value& value, const Bound& arguments) {
  const std::optional<double> number = AsDouble(rendering, value);
  return number ? Value::Float(*number) : arguments.Or(0, Value::Float(0));
}

Value FilterRound(Rendering& rendering, const Value& value, const Bound& arguments) {
  static constexpr Signature kSignature{"round"};
  if (value.Is(Kind::kUndefined)) rendering.FailOnUndefined(value);
  if (!value.is_number()) rendering.Fail("round() takes a number");
  const int64_t precision = IntArgument(rendering, kSignature, arguments.Or(0, Value::Int(0)));
  std::string_view method = "common";
  if (arguments.has(1)) method = TextArgument(rendering, kSignature, arguments[1]).bytes;
  if (precision < 0 || precision > 15)
    rendering.NotSupported("the filter round to such a precision");
  const double number = value.AsDouble();
  if (!std::isfinite(number) || std::abs(number) > 1e15) {
    rendering.NotSupported("the filter round of such a number");
  }
  if (method == "common") {
    if (value.is_integer()) return Value::Int(value.AsInt());
    char shown[64];
    const auto end = std::to_chars(shown, shown + sizeof(shown), number, std::chars_format::fixed,
                                   static_cast<int>(precision));
    double rounded = 0;
    std::from_chars(shown, end.ptr, rounded);
    return Value::Float(rounded);
  }
  if (method != "ceil" && method != "floor") rendering.Fail("method must be common, ceil or floor");
  const double scale = std::pow(10.0, static_cast<double>(precision));
  const double scaled = number * scale;
  const double whole = method == "ceil" ? std::ceil(scaled) : std::floor(scaled);
  return Value::Float((whole == 0 ? 0.0 : whole) / scale);  // Python's integer is no -0
}

Value FilterAbs(Rendering& rendering, const Value& value, const Bound&) {
  if (value.Is(Kind::kUndefined)) rendering.FailOnUndefined(value);
  if (!value.is_number()) rendering.Fail("bad operand type for abs()");
  if (value.Is(Kind::kFloat)) return Value::Float(std::abs(value.real));
  return value.AsInt() < 0 ? Negate(rendering, value) : Value::Int(value.AsInt());
}

}  // namespace mlc_native::templates
