#include "template/methods.h"

#include <algorithm>
#include <vector>

#include "template/dict.h"
#include "template/iterate.h"
#include "template/operators.h"
#include "template/text_format.h"
#include "template/text_functions.h"
#include "template/unicode.h"

namespace mlc_native::templates {
namespace {

constexpr Signature kAny{.name = "the method"};

const Text& SelfText(const Value& self) { return *self.text; }

// A text, or several of which any will do.
bool AnyAffix(Rendering& rendering, const Value& affixes, const Value& self, bool at_end) {
  const std::string_view text = self.text->bytes;
  const auto matches = [&](const Value& affix) {
    const std::string_view part = TextArgument(rendering, kAny, affix).bytes;
    return at_end ? text.ends_with(part) : text.starts_with(part);
  };
  if (!affixes.Is(Kind::kTuple)) return matches(affixes);
  rendering.Pay(static_cast<int64_t>(affixes.list->items.size()));
  return std::ranges::any_of(affixes.list->items, matches);
}

Value StartsWith(Rendering& rendering, const Value& self, const Bound& arguments) {
  return Value::Bool(AnyAffix(rendering, arguments[0], self, false));
}

Value EndsWith(Rendering& rendering, const Value& self, const Bound& arguments) {
  return Value::Bool(AnyAffix(rendering, arguments[0], self, true));
}

template <Ends ends>
Value StripMethod(Rendering& rendering, const Value& self, const Bound& arguments) {
  const bool has_chars = arguments.has(0) && !arguments[0].Is(Kind::kNone);
  const Text* const chars = has_chars ? &TextArgument(rendering, kAny, arguments[0]) : nullptr;
  return Strip(rendering, SelfText(self), chars, ends);
}

template <bool at_end>
Value RemoveAffix(Rendering& rendering, const Value& self, const Bound& arguments) {
  const Text& text = SelfText(self);
  const std::string_view affix = TextArgument(rendering, kAny, arguments[0]).bytes;
  rendering.PayBytes(text.bytes.size());
  const size_t size = text.bytes.size();
  if (at_end && text.bytes.ends_with(affix)) {
    return CutBytes(rendering.arena(), text, 0, size - affix.size());
  }
  if (!at_end && text.bytes.starts_with(affix)) {
    return CutBytes(rendering.arena(), text, affix.size(), size);
  }
  return self;
}

template <bool from_right>
Value SplitMethod(Rendering& rendering, const Value& self, const CallArguments& arguments) {
  static constexpr Signature kSignature{from_right ? "rsplit" : "split", {"sep", "maxsplit"}};
  const Bound bound = Bind(rendering, kSignature, arguments);
  const Text& text = SelfText(self);
  const int64_t count = IntArgument(rendering, kSignature, bound.Or(1, Value::Int(-1)));
  const bool foreign = text.foreign || HasForeign(rendering, arguments);
  if (!bound.has(0) || bound[0].Is(Kind::kNone)) {
    const Value parts = SplitAtSpace(rendering, text, count, from_right);
    return foreign ? MarkForeign(rendering, parts) : parts;
  }
  const Text& separator = TextArgument(rendering, kSignature, bound[0]);
  if (separator.bytes.empty()) rendering.Fail("empty separator");
  const Value parts = from_right ? SplitFromRight(rendering, text, separator, count)
                                 : Split(rendering, text, separator, count);
  if (!foreign || (!from_right && arguments.named.empty())) return parts;
  std::vector<Value> marked;
  for (const Value& part : parts.list->items) {
    marked.push_back(WithoutOwn(rendering.arena(), *part.text));
  }
  return NewList(rendering, marked);
}

Value SplitLinesMethod(Rendering& rendering, const Value& self, const Bound& arguments) {
  return SplitLines(rendering, SelfText(self), Truth(arguments.Or(0, Value::Bool(false))));
}

Value ReplaceMethod(Rendering& rendering, const Value& self, const Bound& arguments) {
  const int64_t count = IntArgument(rendering, kAny, arguments.Or(2, Value::Int(-1)));
  return Replace(rendering, SelfText(self), TextArgument(rendering, kAny, arguments[0]),
                 TextArgument(rendering, kAny, arguments[1]), count);
}

Value JoinMethod(Rendering& rendering, const Value& self, const Bound& arguments) {
  return Join(rendering, SelfText(self), arguments[0]);
}

Value FormatMethod(Rendering& rendering, const Value& self, const CallArguments& arguments) {
  if (!arguments.named.empty()) rendering.NotSupported("a format with named arguments");
  return BraceFormat(rendering, SelfText(self), arguments.positional);
}

template <Case to>
Value CaseMethod(Rendering& rendering, const Value& self, const Bound&) {
  return ChangeCase(rendering, SelfText(self), to);
}

// -1 if there is none.
Value FindMethodOfText(Rendering& rendering, const Value& self, const Bound& arguments) {
  const Text& text = SelfText(self);
  rendering.PayBytes(2 * text.bytes.size());
  const size_t found = FindPart(text.bytes, TextArgument(rendering, kAny, arguments[0]).bytes);
  if (found == std::string_view::npos) return Value::Int(-1);
  return Value::Int(static_cast<int64_t>(IndexOfByte(text, found)));
}

Value CountMethod(Rendering& rendering, const Value& self, const Bound& arguments) {
  const std::string_view text = self.text->bytes;
  const std::string_view part = TextArgument(rendering, kAny, arguments[0]).bytes;
  rendering.PayBytes(2 * text.size());
  if (part.empty()) return Value::Int(int64_t{self.text->length} + 1);
  int64_t count = 0;
  for (size_t at = FindPart(text, part); at != std::string_view::npos; ++count) {
    at = FindPart(text, part, at + part.size());
  }
  return Value::Int(count);
}

template <bool (*test)(char)>
Value AllChars(Rendering& rendering, const Value& self, const Bound&) {
  if (!self.text->is_ascii()) rendering.NotSupported("a test of a text that is not ASCII");
  rendering.PayBytes(self.text->bytes.size());
  return Value::Bool(!self.text->bytes.empty() && std::ranges::all_of(self.text->bytes, test));
}

bool IsAsciiAlphanumeric(char c) { return IsAsciiLetter(c) || IsAsciiDigit(c); }
bool IsAsciiSpace(char c) { return IsSpace(static_cast<uint8_t>(c)); }

constexpr MethodEntry kTextMethods[] = {
    {{"startswith", {"prefix"}, 1}, StartsWith},
    {{"endswith", {"suffix"}, 1}, EndsWith},
    {{"strip", {"chars"}}, StripMethod<Ends::kBoth>, nullptr, true},
    {{"lstrip", {"chars"}}, StripMethod<Ends::kLeft>, nullptr, true},
    {{"rstrip", {"chars"}}, StripMethod<Ends::kRight>, nullptr, true},
    {{"removeprefix", {"prefix"}, 1}, RemoveAffix<false>, nullptr, true},
    {{"removesuffix", {"suffix"}, 1}, RemoveAffix<true>, nullptr, true},
    {{"split"}, nullptr, SplitMethod<false>, true},
    {{"rsplit"}, nullptr, SplitMethod<true>, true},
    {{"splitlines", {"keepends"}}, SplitLinesMethod},
    {{"replace", {"old", "new", "count"}, 2}, ReplaceMethod, nullptr, true},
    {{"join", {"iterable"}, 1}, JoinMethod, nullptr, true},
    {{"format"}, nullptr, FormatMethod, true},
    {{"upper"}, CaseMethod<Case::kUpper>},
    {{"lower"}, CaseMethod<Case::kLower>},
    {{"capitalize"}, CaseMethod<Case::kCapitalized>},
    {{"title"}, CaseMethod<Case::kTitle>},
    {{"find", {"sub"}, 1}, FindMethodOfText},
    {{"count", {"sub"}, 1}, CountMethod},
    {{"isdigit"}, AllChars<IsAsciiDigit>},
    {{"isalpha"}, AllChars<IsAsciiLetter>},
    {{"isalnum"}, AllChars<IsAsciiAlphanumeric>},
    {{"isspace"}, AllChars<IsAsciiSpace>},
};

Value GetMethod(Rendering& rendering, const Value& self, const Bound& arguments) {
  if (!Dict::CanBeKey(arguments[0])) rendering.NotSupported("such a key of an object");
  const Value* const found = self.dict->Find(arguments[0]);
  return found != nullptr ? *found : arguments.Or(1, Value::None());
}

template <View::Of of>
Value ViewMethod(Rendering& rendering, const Value& self, const Bound&) {
  return rendering.arena().New<View>(View{self.dict, of});
}

Value CopyMethod(Rendering&, const Value& self, const Bound&) { return self; }

constexpr MethodEntry kDictMethods[] = {
    {{"get", {"key", "default"}, 1}, GetMethod},
    {{"items"}, ViewMethod<View::Of::kItems>},
    {{"keys"}, ViewMethod<View::Of::kKeys>},
    {{"values"}, ViewMethod<View::Of::kValues>},
    {{"copy"}, CopyMethod},
};

Value CountItems(Rendering& rendering, const Value& self, const Bound& arguments) {
  return Value::Int(std::ranges::count_if(
      self.list->items, [&](const Value& item) { return Equal(rendering, item, arguments[0]); }));
}

Value IndexOfItem(Rendering& rendering, const Value& self, const Bound& arguments) {
  const auto items = self.list->items;
  const auto found = std::ranges::find_if(
      items, [&](const Value& item) { return Equal(rendering, item, arguments[0]); });
  if (found == items.end()) rendering.Fail("the value is not in the list");
  return Value::Int(found - items.begin());
}

constexpr MethodEntry kListMethods[] = {
    {{"count", {"value"}, 1}, CountItems},
    {{"index", {"value"}, 1}, IndexOfItem},
    {{"copy"}, CopyMethod},
};

constexpr std::string_view kTextMethodsOfPython[] = {
    "casefold", "center",       "encode",     "expandtabs", "format_map",  "index",
    "isascii",  "isdecimal",    "islower",    "isnumeric",  "isprintable", "istitle",
    "isupper",  "isidentifier", "ljust",      "maketrans",  "partition",   "rfind",
    "rindex",   "rjust",        "rpartition", "swapcase",   "translate",   "zfill"};
constexpr std::string_view kDictChanges[] = {"clear", "pop", "popitem", "setdefault", "update"};
constexpr std::string_view kListChanges[] = {"append", "clear", "pop",    "reverse",
                                             "insert", "sort",  "extend", "remove"};

bool IsOneOf(std::span<const std::string_view> names, std::string_view name) {
  return std::ranges::find(names, name) != names.end();
}

MethodKind Found(const MethodEntry* found, const MethodEntry** entry) {
  *entry = found;
  return found == nullptr ? MethodKind::kNone : MethodKind::kFound;
}

}  // namespace

MethodKind FindMethod(Rendering& rendering, const Value& self, std::string_view name,
                      const MethodEntry** entry) {
  switch (self.kind) {
    case Kind::kText:
      if (IsOneOf(kTextMethodsOfPython, name)) {
        rendering.NotSupported("the method " + std::string(name) + " of a text");
      }
      return Found(FindNamed<MethodEntry>(kTextMethods, name), entry);
    case Kind::kDict:
      if (IsOneOf(kDictChanges, name)) return MethodKind::kHidden;
      if (name == "fromkeys") rendering.NotSupported("the method fromkeys of an object");
      return Found(FindNamed<MethodEntry>(kDictMethods, name), entry);
    case Kind::kList:
      if (IsOneOf(kListChanges, name)) return MethodKind::kHidden;
      return Found(FindNamed<MethodEntry>(kListMethods, name), entry);
    case Kind::kTuple:
      if (name == "copy") return MethodKind::kNone;
      return Found(FindNamed<MethodEntry>(kListMethods, name), entry);
    default:
      return MethodKind::kNone;
  }
}

Value CallMethod(Rendering& rendering, const Method& method, const CallArguments& arguments) {
  const MethodEntry& entry = *method.entry;
  const Value& self = method.self;
  rendering.Pay(1);
  const Value result =
      entry.raw != nullptr
          ? entry.raw(rendering, self, arguments)
          : entry.function(rendering, self, Bind(rendering, entry.signature, arguments));
  const bool may_be_foreign = result.is_text() || result.is_list_or_tuple();
  if (entry.keeps_own || !may_be_foreign) return result;
  const bool foreign = (self.is_text() && self.text->foreign) || HasForeign(rendering, arguments);
  return foreign ? MarkForeign(rendering, result) : result;
}

}  // namespace mlc_native::templates
