#include "template/attributes.h"

#include <algorithm>
#include <charconv>
#include <optional>
#include <vector>

#include "template/dict.h"
#include "template/globals.h"
#include "template/loop.h"
#include "template/methods.h"
#include "template/operators.h"
#include "template/unicode.h"

namespace mlc_native::templates {
namespace {

// Whether Python's values of this kind have attributes that this renderer does not have.
bool HasHiddenAttributes(const Value& value) {
  switch (value.kind) {
    case Kind::kUndefined:
    case Kind::kNone:
    case Kind::kText:
    case Kind::kList:
    case Kind::kTuple:
    case Kind::kDict:
    case Kind::kNamespace:
      return false;
    default:
      return true;
  }
}

// An attribute that is no member of an object: a method, what a loop or a namespace has.
std::optional<Value> OwnAttribute(Rendering& rendering, const Value& value, const Text* name) {
  if (value.Is(Kind::kNamespace)) {
    const Value* const found = value.attributes->Find(name->bytes);
    return found == nullptr ? std::nullopt : std::optional<Value>(*found);
  }
  if (value.Is(Kind::kLoop)) {
    if (auto found = LoopAttribute(rendering, *value.loop, name->bytes)) return found;
  }
  if (value.Is(Kind::kCycler)) {
    if (auto found = CyclerAttribute(rendering, *value.cycler, name->bytes)) return found;
  }
  if (HasHiddenAttributes(value)) {
    rendering.NotSupported("the attribute " + std::string(name->bytes.substr(0, 40)) + " of a " +
                           TypeName(value));
  }
  const MethodEntry* entry = nullptr;
  switch (FindMethod(rendering, value, name->bytes, &entry)) {
    case MethodKind::kFound:
      return Value(rendering.arena().New<Method>(Method{value, entry}));
    case MethodKind::kHidden:
      return Value::Undefined(name);
    default:
      return std::nullopt;
  }
}

std::optional<Value> Member(Rendering& rendering, const Value& value, const Value& key) {
  if (value.Is(Kind::kDict)) {
    if (!Dict::CanBeKey(key)) return std::nullopt;
    const Value* const found = value.dict->Find(key);
    return found == nullptr ? std::nullopt : std::optional<Value>(*found);
  }
  const bool indexed = value.is_text() || value.is_list_or_tuple() || value.Is(Kind::kRange);
  if (!indexed || !key.is_integer()) return std::nullopt;
  const int64_t size = *Length(value);
  const int64_t index = key.AsInt() < 0 ? key.AsInt() + size : key.AsInt();
  if (index < 0 || index >= size) return std::nullopt;
  if (value.Is(Kind::kRange)) return Value::Int(value.range->at(index));
  if (!value.is_text()) return value.list->items[static_cast<size_t>(index)];
  if (!value.text->is_ascii()) rendering.PayBytes(value.text->bytes.size());
  return CharAt(rendering.arena(), *value.text, static_cast<size_t>(index));
}

}  // namespace

Value GetAttribute(Rendering& rendering, const Value& value, const Text* name) {
  if (value.Is(Kind::kUndefined)) rendering.FailOnUndefined(value);
  if (const auto found = OwnAttribute(rendering, value, name)) return *found;
  if (value.Is(Kind::kDict)) {
    if (const Value* const found = value.dict->Find(name->bytes)) return *found;
  }
  return Value::Undefined(name);
}

Value GetItem(Rendering& rendering, const Value& value, const Value& key) {
  if (value.Is(Kind::kUndefined)) rendering.FailOnUndefined(value);
  rendering.Pay(1);
  if (const auto found = Member(rendering, value, key)) return *found;
  if (!key.is_text()) return Value();
  if (!key.text->bytes.starts_with('_')) {
    if (const auto found = OwnAttribute(rendering, value, key.text)) return *found;
  }
  return Value::Undefined(key.text);
}

std::span<const Value> AttributePath(Rendering& rendering, const Value& attribute) {
  if (!attribute.is_text()) return rendering.arena().Copy(std::span<const Value>(&attribute, 1));
  rendering.PayBytes(attribute.text->bytes.size());
  std::vector<Value> path;
  const std::string_view bytes = attribute.text->bytes;
  for (size_t at = 0; at <= bytes.size();) {
    rendering.Pay(1);
    const size_t end = std::min(bytes.find('.', at), bytes.size());
    const std::string_view part = bytes.substr(at, end - at);
    int64_t index = 0;
    if (!part.empty() && part.size() < 10 && std::ranges::all_of(part, IsAsciiDigit)) {
      std::from_chars(part.data(), part.data() + part.size(), index);
      path.push_back(Value::Int(index));
    } else {
      path.push_back(CutBytes(rendering.arena(), *attribute.text, at, end));
    }
    at = end + 1;
  }
  return rendering.arena().Copy(std::span<const Value>(path));
}

Value FollowPath(Rendering& rendering, const Value& value, std::span<const Value> path,
                 const Value* missing) {
  Value found = value;
  for (const Value& key : path) {
    found = GetItem(rendering, found, key);
    if (found.Is(Kind::kUndefined) && missing != nullptr) found = *missing;
  }
  return found;
}

}  // namespace mlc_native::templates
