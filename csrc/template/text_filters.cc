#include <string>

#include "template/attributes.h"
#include "template/filter_functions.h"
#include "template/iterate.h"
#include "template/json_text.h"
#include "template/operators.h"
#include "template/python_text.h"
#include "template/text_format.h"
#include "template/text_functions.h"
#include "template/unicode.h"

namespace mlc_native::templates {
namespace {

// As jinja2 does it: a word begins behind these characters only.
const Text* TitleWords(Rendering& rendering, const Text& text) {
  if (!text.is_ascii()) rendering.NotSupported("another case of a text that is not ASCII");
  rendering.PayBytes(text.bytes.size());
  std::string title;
  bool begins = true;
  for (const char c : text.bytes) {
    title.push_back(begins ? ToAsciiUpper(c) : ToAsciiLower(c));
    begins = IsSpace(static_cast<uint8_t>(c)) || std::string_view("-({[<").find(c) < 5;
  }
  return NewText(rendering.arena(), title, false);
}

}  // namespace

Value FilterTrim(Rendering& rendering, const Value& value, const Bound& arguments) {
  static constexpr Signature kSignature{"trim"};
  const bool has_chars = arguments.has(0) && !arguments[0].Is(Kind::kNone);
  const Text* const chars =
      has_chars ? &TextArgument(rendering, kSignature, arguments[0]) : nullptr;
  return Strip(rendering, *ToText(rendering, value), chars, Ends::kBoth);
}

Value FilterUpper(Rendering& rendering, const Value& value, const Bound&) {
  return ChangeCase(rendering, *ToText(rendering, value), Case::kUpper);
}

Value FilterLower(Rendering& rendering, const Value& value, const Bound&) {
  return ChangeCase(rendering, *ToText(rendering, value), Case::kLower);
}

Value FilterCapitalize(Rendering& rendering, const Value& value, const Bound&) {
  return ChangeCase(rendering, *ToText(rendering, value), Case::kCapitalized);
}

Value FilterTitle(Rendering& rendering, const Value& value, const Bound&) {
  return TitleWords(rendering, *ToText(rendering, value));
}

Value FilterReplace(Rendering& rendering, const Value& value, const Bound& arguments) {
  static constexpr Signature kSignature{"replace"};
  const bool has_count = arguments.has(2) && !arguments[2].Is(Kind::kNone);
  const int64_t count = has_count ? IntArgument(rendering, kSignature, arguments[2]) : -1;
  return Replace(rendering, *ToText(rendering, value), *ToText(rendering, arguments[0]),
                 *ToText(rendering, arguments[1]), count);
}

Value FilterIndent(Rendering& rendering, const Value& value, const Bound& arguments) {
  static constexpr Signature kSignature{"indent"};
  const Text& text = TextArgument(rendering, kSignature, value);
  const Value width = arguments.Or(0, Value::Int(4));
  std::string indention;
  if (width.is_text()) {
    indention = width.text->bytes;
  } else {
    const int64_t count = IntArgument(rendering, kSignature, width);
    indention.assign(count > 0 ? static_cast<size_t>(count) : 0, ' ');
  }
  const bool first = Truth(arguments.Or(1, Value::Bool(false)));
  const bool blank = Truth(arguments.Or(2, Value::Bool(false)));
  const Text* const ended = NewText(rendering.arena(), std::string(text.bytes) + '\n', false);
  std::string result = first ? indention : "";
  bool is_first = true;
  for (const Value& line : SplitLines(rendering, *ended, false).list->items) {
    const std::string_view bytes = line.text->bytes;
    rendering.PayBytes(bytes.size() + indention.size());
    rendering.arena().ReserveText(result.size() + bytes.size() + indention.size());
    if (!is_first) result += '\n';
    if (!is_first && (blank || !bytes.empty())) result += indention;
    result += bytes;
    is_first = false;
  }
  return NewText(rendering.arena(), result, false);
}

Value FilterString(Rendering& rendering, const Value& value, const Bound&) {
  return ToText(rendering, value);
}

Value FilterEscape(Rendering& rendering, const Value& value, const Bound&) {
  const Text& text = *ToText(rendering, value);
  rendering.PayBytes(6 * text.bytes.size());
  rendering.arena().ReserveText(text.bytes.size());
  std::string escaped;
  for (const char c : text.bytes) {
    switch (c) {
      case '&':
        escaped += "&amp;";
        break;
      case '<':
        escaped += "&lt;";
        break;
      case '>':
        escaped += "&gt;";
        break;
      case '\'':
        escaped += "&#39;";
        break;
      case '"':
        escaped += "&#34;";
        break;
      default:
        escaped += c;
    }
  }
  return NewText(rendering.arena(), escaped, false);
}

Value FilterJoin(Rendering& rendering, const Value& value, const Bound& arguments) {
  const Text* const separator =
      arguments.has(0) ? ToText(rendering, arguments[0]) : BorrowText(rendering.arena(), "", false);
  if (!arguments.has(1) || arguments[1].Is(Kind::kNone)) return Join(rendering, *separator, value);
  const auto path = AttributePath(rendering, arguments[1]);
  std::vector<Value> members = Collect(rendering, value);
  for (Value& member : members) member = FollowPath(rendering, member, path);
  return Join(rendering, *separator, NewList(rendering, members));
}

Value FilterToJson(Rendering& rendering, const Value& value, const Bound& arguments) {
  static constexpr Signature kSignature{"tojson"};
  JsonTextOptions options;
  options.ensure_ascii = Truth(arguments.Or(0, Value::Bool(false)));
  options.sort_keys = Truth(arguments.Or(3, Value::Bool(false)));
  const Value indent = arguments.Or(1, Value::None());
  if (indent.is_text()) {
    options.indent = indent.text->bytes;
  } else if (!indent.Is(Kind::kNone)) {
    const int64_t width = IntArgument(rendering, kSignature, indent);
    options.indent = std::string(width > 0 ? static_cast<size_t>(width) : 0, ' ');
  }
  const Value separators = arguments.Or(2, Value::None());
  if (separators.is_list_or_tuple() && separators.list->items.size() == 2) {
    options.item_separator = TextArgument(rendering, kSignature, separators.list->items[0]).bytes;
    options.key_separator = TextArgument(rendering, kSignature, separators.list->items[1]).bytes;
  } else if (!separators.Is(Kind::kNone)) {
    rendering.Fail("tojson() takes two separators");
  } else if (options.indent) {
    options.item_separator = ",";
  }
  bool foreign = HasForeign(rendering, indent) || HasForeign(rendering, separators);
  const std::string json = JsonText(rendering, value, options, &foreign);
  return NewText(rendering.arena(), json, foreign);
}

Value FilterFormat(Rendering& rendering, const Value& value, const CallArguments& arguments) {
  if (!arguments.named.empty()) rendering.NotSupported("a format with named arguments");
  return PercentFormat(rendering, *ToText(rendering, value),
                       NewTuple(rendering, arguments.positional));
}

}  // namespace mlc_native::templates
