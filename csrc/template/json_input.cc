// ReadVariables: JSON text to the values of a TemplateInput, in the order of the text.
#include <algorithm>
#include <charconv>
#include <limits>
#include <string>

#include "support/utf8.h"
#include "template/input.h"
#include "template/template_error.h"
#include "template/unicode.h"

namespace mlc_native {
namespace {

class VariableReader {
 public:
  VariableReader(std::string_view json, TemplateInput* input) : rest_(json), input_(*input) {}

  void Read() {
    SkipSpace();
    if (!rest_.starts_with('{')) Fail("an object");
    ReadValue();
    SkipSpace();
    if (!rest_.empty()) Fail("the end");
  }

 private:
  [[noreturn]] static void Fail(const std::string& expected) {
    throw TemplateError(
        TemplateError::Kind::kFailed,
        "the variables of the chat template are not valid JSON: expected " + expected, 0);
  }

  void SkipSpace() {
    rest_.remove_prefix(std::min(rest_.find_first_not_of(" \t\r\n"), rest_.size()));
  }
  bool Skip(std::string_view text) {
    if (!rest_.starts_with(text)) return false;
    rest_.remove_prefix(text.size());
    return true;
  }
  // Skips white space and one of two characters; whether it is the first one.
  bool SkipEither(char one, char other) {
    SkipSpace();
    if (rest_.empty() || (rest_[0] != one && rest_[0] != other)) {
      Fail(std::string("'") + one + "' or '" + other + "'");
    }
    const bool is_first = rest_[0] == one;
    rest_.remove_prefix(1);
    return is_first;
  }

  void ReadValue() {
    SkipSpace();
    if (rest_.starts_with('"')) {
      input_.Put(ReadString());
    } else if (Skip("{")) {
      ReadObject();
    } else if (Skip("[")) {
      ReadArray();
    } else if (Skip("null")) {
      input_.Null();
    } else if (Skip("true")) {
      input_.Put(true);
    } else if (Skip("false")) {
      input_.Put(false);
    } else {
      ReadNumber();
    }
  }

  void ReadObject() {
    input_.BeginObject();
    SkipSpace();
    if (!Skip("}")) {
      do {
        SkipSpace();
        input_.Key(ReadString());
        SkipSpace();
        if (!Skip(":")) Fail("':'");
        ReadValue();
      } while (SkipEither(',', '}'));
    }
    input_.EndObject();
  }

  void ReadArray() {
    input_.BeginArray();
    SkipSpace();
    if (!Skip("]")) {
      do {
        ReadValue();
      } while (SkipEither(',', ']'));
    }
    input_.EndArray();
  }

  void ReadNumber() {
    if (Skip("NaN")) return void(input_.Put(std::numeric_limits<double>::quiet_NaN()));
    if (Skip("Infinity")) return void(input_.Put(std::numeric_limits<double>::infinity()));
    if (Skip("-Infinity")) return void(input_.Put(-std::numeric_limits<double>::infinity()));
    const size_t size = std::min(rest_.find_first_not_of("+-.0123456789eE"), rest_.size());
    const std::string_view number = rest_.substr(0, size);
    const bool begins = !number.empty() && (templates::IsAsciiDigit(number[0]) || number[0] == '-');
    if (!begins) Fail("a value");
    rest_.remove_prefix(size);
    const char* const begin = number.data();
    const char* const end = begin + size;
    if (number.find_first_of(".eE") == std::string_view::npos) {
      int64_t value = 0;
      const auto [last, error] = std::from_chars(begin, end, value);
      if (error == std::errc::result_out_of_range) {
        throw TemplateError(TemplateError::Kind::kNotSupported,
                            "an integer of more than 64 bits in the input", 0);
      }
      if (error != std::errc() || last != end) Fail("a number");
      input_.Put(value);
      return;
    }
    double value = 0;
    const auto [last, error] = std::from_chars(begin, end, value);
    if (error == std::errc::result_out_of_range) {
      throw TemplateError(TemplateError::Kind::kNotSupported, "a number out of range", 0);
    }
    if (error != std::errc() || last != end) Fail("a number");
    input_.Put(value);
  }

  // The text is valid until the next call.
  std::string_view ReadString() {
    if (!Skip("\"")) Fail("a text");
    text_.clear();
    for (;;) {
      const size_t size = rest_.find_first_of("\"\\");
      if (size == std::string_view::npos) Fail("the end of a text");
      text_.append(rest_.substr(0, size));
      const bool ends = rest_[size] == '"';
      rest_.remove_prefix(size + 1);
      if (ends) return text_;
      ReadEscape();
    }
  }

  void ReadEscape() {
    static constexpr std::string_view kNames = "\"\\/bfnrt";
    static constexpr std::string_view kChars = "\"\\/\b\f\n\r\t";
    if (rest_.empty()) Fail("an escape");
    const size_t known = kNames.find(rest_[0]);
    if (known != std::string_view::npos) {
      text_.push_back(kChars[known]);
      rest_.remove_prefix(1);
      return;
    }
    uint32_t code_point = ReadUnit();
    if (code_point >= 0xD800 && code_point <= 0xDBFF && rest_.starts_with("\\u")) {
      rest_.remove_prefix(1);
      const uint32_t low = ReadUnit();
      if (low < 0xDC00 || low > 0xDFFF) Fail("the second half of a character");
      code_point = 0x10000 + ((code_point - 0xD800) << 10) + (low - 0xDC00);
    }
    if (code_point >= 0xD800 && code_point <= 0xDFFF) Fail("a whole character");
    AppendCodePoint(code_point, &text_);
  }

  uint32_t ReadUnit() {
    uint32_t unit = 0;
    if (!Skip("u") || rest_.size() < 4) Fail("an escape");
    const char* const begin = rest_.data();
    const auto [end, error] = std::from_chars(begin, begin + 4, unit, 16);
    if (error != std::errc() || end != begin + 4) Fail("an escape");
    rest_.remove_prefix(4);
    return unit;
  }

  std::string_view rest_;
  TemplateInput& input_;
  std::string text_;
};

}  // namespace

void ReadVariables(std::string_view json, TemplateInput* input) {
  VariableReader(json, input).Read();
}

}  // namespace mlc_native
