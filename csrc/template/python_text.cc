#include "template/python_text.h"

#include <charconv>
#include <cmath>
#include <cstdio>

#include "template/dict.h"
#include "template/unicode.h"

namespace mlc_native::templates {

std::string FloatText(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  char digits[32];
  const auto scientific =
      std::to_chars(digits, digits + sizeof(digits), value, std::chars_format::scientific);
  const std::string shortest(digits, scientific.ptr);
  const size_t e = shortest.find('e');
  const int exponent = static_cast<int>(std::strtol(shortest.c_str() + e + 1, nullptr, 10));
  if (exponent < -4 || exponent >= 16) {
    char suffix[16];
    std::snprintf(suffix, sizeof(suffix), "e%c%02d", exponent < 0 ? '-' : '+', std::abs(exponent));
    return shortest.substr(0, e) + suffix;
  }
  char fixed[64];
  const auto end = std::to_chars(fixed, fixed + sizeof(fixed), value, std::chars_format::fixed);
  std::string text(fixed, end.ptr);
  if (text.find('.') == std::string::npos) text += ".0";
  return text;
}

namespace {

void AppendEscaped(uint32_t code_point, std::string* out) {
  const int digits = code_point < 0x100 ? 2 : code_point < 0x10000 ? 4 : 8;
  out->append(digits == 2 ? "\\x" : digits == 4 ? "\\u" : "\\U");
  for (int shift = 4 * digits - 4; shift >= 0; shift -= 4) {
    out->push_back("0123456789abcdef"[code_point >> shift & 0xF]);
  }
}

void AppendTextRepr(Rendering& rendering, std::string_view text, std::string* out) {
  rendering.PayBytes(4 * text.size());
  rendering.arena().ReserveText(out->size() + text.size());
  const bool has_single = text.find('\'') != std::string_view::npos;
  const char quote = has_single && text.find('"') == std::string_view::npos ? '"' : '\'';
  out->push_back(quote);
  for (size_t at = 0; at < text.size();) {
    const size_t begin = at;
    const uint32_t code_point = NextCodePoint(text, &at);
    if (code_point == '\\' || code_point == static_cast<uint32_t>(quote)) {
      out->push_back('\\');
      out->push_back(static_cast<char>(code_point));
    } else if (code_point == '\n') {
      out->append("\\n");
    } else if (code_point == '\r') {
      out->append("\\r");
    } else if (code_point == '\t') {
      out->append("\\t");
    } else {
      const std::optional<bool> printable = IsPrintable(code_point);
      if (!printable) rendering.NotSupported("a list or object shown with a rare character");
      if (*printable) {
        out->append(text.substr(begin, at - begin));
      } else {
        AppendEscaped(code_point, out);
        rendering.arena().ReserveText(out->size());
      }
    }
  }
  out->push_back(quote);
}

void AppendItems(Rendering& rendering, std::span<const Value> items, std::string* out, int depth) {
  const char* separator = "";
  for (const Value& item : items) {
    out->append(separator);
    separator = ", ";
    AppendRepr(rendering, item, out, depth + 1);
    rendering.arena().ReserveText(out->size());
  }
}

void AppendEntries(Rendering& rendering, const Dict& dict, std::string* out, int depth) {
  out->push_back('{');
  const char* separator = "";
  for (const DictEntry& entry : dict.entries()) {
    out->append(separator);
    separator = ", ";
    AppendRepr(rendering, entry.key, out, depth + 1);
    out->append(": ");
    AppendRepr(rendering, entry.value, out, depth + 1);
    rendering.arena().ReserveText(out->size());
  }
  out->push_back('}');
}

void AppendView(Rendering& rendering, const View& view, std::string* out, int depth) {
  static constexpr const char* kNames[] = {"dict_keys([", "dict_values([", "dict_items(["};
  out->append(kNames[static_cast<size_t>(view.of)]);
  const char* separator = "";
  for (const DictEntry& entry : view.dict->entries()) {
    out->append(separator);
    separator = ", ";
    if (view.of == View::Of::kItems) {
      const Value pair[] = {entry.key, entry.value};
      out->push_back('(');
      AppendItems(rendering, pair, out, depth);
      out->push_back(')');
    } else {
      const bool keys = view.of == View::Of::kKeys;
      AppendRepr(rendering, keys ? entry.key : entry.value, out, depth + 1);
    }
  }
  out->append("])");
}

void AppendRange(const Range& range, std::string* out) {
  *out += "range(" + std::to_string(range.start) + ", " + std::to_string(range.stop);
  if (range.step != 1) *out += ", " + std::to_string(range.step);
  *out += ')';
}

}  // namespace

void AppendRepr(Rendering& rendering, const Value& value, std::string* out, int depth) {
  rendering.Visit(depth);
  switch (value.kind) {
    case Kind::kUndefined:
      out->append("Undefined");
      return;
    case Kind::kNone:
      out->append("None");
      return;
    case Kind::kBool:
      out->append(value.boolean ? "True" : "False");
      return;
    case Kind::kInt:
      out->append(std::to_string(value.integer));
      return;
    case Kind::kFloat:
      out->append(FloatText(value.real));
      return;
    case Kind::kText:
      return AppendTextRepr(rendering, value.text->bytes, out);
    case Kind::kList:
      out->push_back('[');
      AppendItems(rendering, value.list->items, out, depth);
      out->push_back(']');
      return;
    case Kind::kTuple:
      out->push_back('(');
      AppendItems(rendering, value.list->items, out, depth);
      out->append(value.list->items.size() == 1 ? ",)" : ")");
      return;
    case Kind::kDict:
      return AppendEntries(rendering, *value.dict, out, depth);
    case Kind::kView:
      return AppendView(rendering, *value.view, out, depth);
    case Kind::kRange:
      return AppendRange(*value.range, out);
    default:
      rendering.NotSupported(std::string("a ") + TypeName(value) + " that is shown");
  }
}

const Text* ToText(Rendering& rendering, const Value& value) {
  if (value.is_text()) return value.text;
  Arena& arena = rendering.arena();
  switch (value.kind) {
    case Kind::kUndefined:
      return BorrowText(arena, "", false);
    case Kind::kNone:
      return BorrowText(arena, "None", false);
    case Kind::kBool:
      return BorrowText(arena, value.boolean ? "True" : "False", false);
    case Kind::kInt:
      return NewText(arena, std::to_string(value.integer), false);
    case Kind::kFloat:
      return NewText(arena, FloatText(value.real), false);
    default: {
      std::string shown;
      AppendRepr(rendering, value, &shown);
      return NewText(arena, shown, true);
    }
  }
}

const char* TypeName(const Value& value) {
  static constexpr const char* kNames[] = {
      "Undefined", "NoneType", "bool",        "int",    "float",     "str",       "list",
      "tuple",     "dict",     "dict_view",   "range",  "Namespace", "generator", "function",
      "method",    "Macro",    "LoopContext", "Cycler", "Joiner"};
  return kNames[static_cast<size_t>(value.kind)];
}

}  // namespace mlc_native::templates
