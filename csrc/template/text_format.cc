#include "template/text_format.h"

#include <charconv>
#include <cmath>
#include <string>

#include "template/operators.h"
#include "template/python_text.h"
#include "template/unicode.h"

namespace mlc_native::templates {
namespace {

// Puts the pieces of a format together. Where something of the input is formatted in another way
// than as a whole text, all of the result is the input's.
class FormatResult {
 public:
  FormatResult(Rendering& rendering, const Text& form, std::span<const Value> arguments)
      : rendering_(rendering), keeps_(!form.foreign) {
    for (const Value& value : arguments) {
      foreign_ = foreign_ || HasForeign(rendering, value);
      keeps_ = keeps_ && (value.is_text() || value.Is(Kind::kInt));
    }
    foreign_ = foreign_ || form.foreign;
  }

  void AddOwn(std::string_view text) { Add(text, false); }
  void AddWhole(const Value& value) {
    const Text* const text = ToText(rendering_, value);
    rendering_.PayBytes(text->bytes.size());
    rendering_.arena().ReserveText(builder_.size() + text->bytes.size());
    builder_.Append(*text);
  }
  void AddNumber(std::string_view text) {
    keeps_ = false;
    Add(text, foreign_);
  }

  Value Make() {
    const Text* const made = builder_.Make(rendering_.arena());
    if (!foreign_) return BorrowText(rendering_.arena(), made->bytes, false);
    return keeps_ ? Value(made) : Value(WithoutOwn(rendering_.arena(), *made));
  }

 private:
  void Add(std::string_view text, bool foreign) {
    rendering_.PayBytes(text.size());
    rendering_.arena().ReserveText(builder_.size() + text.size());
    if (foreign) return builder_.AppendForeign(text);
    builder_.AppendOwn(text);
  }

  Rendering& rendering_;
  TextBuilder builder_;
  bool keeps_;
  bool foreign_ = false;
};

// %d, %i, and %f with or without a precision of one digit.
void AddPercentNumber(Rendering& rendering, std::string_view field, const Value& value,
                      FormatResult* result) {
  if ((field == "d" || field == "i") && value.is_integer()) {
    return result->AddNumber(std::to_string(value.AsInt()));
  }
  const bool has_precision = field.size() == 3 && field[0] == '.' && IsAsciiDigit(field[1]);
  const bool is_fixed = field == "f" || (has_precision && field[2] == 'f');
  if (!is_fixed || !value.is_number() || !(std::abs(value.AsDouble()) < 1e15)) {
    rendering.NotSupported("the format %" + std::string(field));
  }
  char shown[64];
  const auto end = std::to_chars(shown, shown + sizeof(shown), value.AsDouble(),
                                 std::chars_format::fixed, has_precision ? field[1] - '0' : 6);
  result->AddNumber({shown, static_cast<size_t>(end.ptr - shown)});
}

}  // namespace

Value PercentFormat(Rendering& rendering, const Text& form, const Value& arguments) {
  if (arguments.Is(Kind::kDict)) rendering.NotSupported("a format with an object");
  const std::span<const Value> values =
      arguments.Is(Kind::kTuple) ? arguments.list->items : std::span<const Value>(&arguments, 1);
  FormatResult result(rendering, form, values);
  const std::string_view text = form.bytes;
  size_t at = 0, index = 0;
  for (size_t found = text.find('%'); found != std::string_view::npos; found = text.find('%', at)) {
    rendering.Pay(1);
    result.AddOwn(text.substr(at, found - at));
    const size_t end = text.find_first_not_of("+-0 .123456789", found + 1);
    if (end == std::string_view::npos) rendering.Fail("incomplete format");
    const std::string_view field = text.substr(found + 1, end - found);
    at = end + 1;
    if (field == "%") {
      result.AddOwn("%");
      continue;
    }
    if (field.size() > 8) rendering.NotSupported("the format %" + std::string(field.substr(0, 20)));
    if (index == values.size()) rendering.Fail("not enough arguments for format string");
    const Value& value = values[index++];
    if (field == "s") {
      result.AddWhole(value);
    } else {
      AddPercentNumber(rendering, field, value, &result);
    }
  }
  result.AddOwn(text.substr(at));
  if (index != values.size() && !(arguments.Is(Kind::kList) && index == 0)) {
    rendering.Fail("not all arguments converted during string formatting");
  }
  return result.Make();
}

Value BraceFormat(Rendering& rendering, const Text& form, std::span<const Value> arguments) {
  FormatResult result(rendering, form, arguments);
  const std::string_view text = form.bytes;
  size_t at = 0, automatic = 0;
  bool numbered = false;
  for (size_t found = text.find_first_of("{}"); found != std::string_view::npos;
       found = text.find_first_of("{}", at)) {
    rendering.Pay(1);
    result.AddOwn(text.substr(at, found - at));
    if (found + 1 < text.size() && text[found + 1] == text[found]) {
      result.AddOwn(text.substr(found, 1));
      at = found + 2;
      continue;
    }
    const size_t end = text.find('}', found);
    if (text[found] == '}' || end == std::string_view::npos) {
      rendering.Fail("a brace in a format has no other one");
    }
    const std::string_view field = text.substr(found + 1, end - found - 1);
    size_t index = automatic;
    if (field.empty()) {
      ++automatic;
    } else {
      numbered = true;
      const auto [last, error] = std::from_chars(field.data(), field.data() + field.size(), index);
      if (error != std::errc() || last != field.data() + field.size()) {
        rendering.NotSupported("the field {" + std::string(field.substr(0, 20)) + "} of a format");
      }
    }
    if (numbered && automatic > 0) rendering.NotSupported("a format with and without numbers");
    if (index >= arguments.size()) rendering.Fail("a format has more fields than arguments");
    result.AddWhole(arguments[index]);
    at = end + 1;
  }
  result.AddOwn(text.substr(at));
  return result.Make();
}

}  // namespace mlc_native::templates
