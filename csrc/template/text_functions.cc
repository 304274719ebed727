#include "template/text_functions.h"

#include <algorithm>
#include <string>
#include <vector>

#include "template/iterate.h"
#include "template/operators.h"
#include "template/python_text.h"
#include "template/unicode.h"

namespace mlc_native::templates {
namespace {

constexpr size_t kNone = std::string_view::npos;

bool HasChar(std::string_view chars, std::string_view one) {
  return chars.find(one) != kNone;  // UTF-8 synchronizes itself
}

size_t LeadingChars(std::string_view text, std::string_view chars) {
  size_t at = 0;
  while (at < text.size()) {
    const size_t size = CodePointSize(text[at]);
    if (!HasChar(chars, text.substr(at, size))) break;
    at += size;
  }
  return at;
}

size_t TrailingChars(std::string_view text, std::string_view chars) {
  size_t end = text.size();
  while (end > 0) {
    size_t at = end - 1;
    while ((static_cast<uint8_t>(text[at]) & 0xC0) == 0x80) --at;
    if (!HasChar(chars, text.substr(at, end - at))) break;
    end = at;
  }
  return text.size() - end;
}

// Parts of one text, as a list. Without `keeps_own`, all of a foreign text counts as the input's.
class Parts {
 public:
  Parts(Rendering& rendering, const Text& text, bool keeps_own = false)
      : rendering_(rendering), text_(text) {
    if (!keeps_own) text_.own = {};
    rendering.PayBytes(text.bytes.size());
  }
  bool Takes(int64_t count) const {
    return count < 0 || static_cast<int64_t>(parts_.size()) < count;
  }
  void Add(size_t begin, size_t end) {
    rendering_.Pay(1);
    parts_.push_back(CutBytes(rendering_.arena(), text_, begin, end));
  }
  void Reverse() { std::ranges::reverse(parts_); }
  Value Make() { return NewList(rendering_, parts_); }

 private:
  Rendering& rendering_;
  Text text_;
  std::vector<Value> parts_;
};

}  // namespace

const Text* Strip(Rendering& rendering, const Text& text, const Text* chars, Ends ends) {
  rendering.PayBytes(text.bytes.size());
  if (chars != nullptr) rendering.Pay(static_cast<int64_t>(chars->bytes.size() / 16));
  std::string_view rest = text.bytes;
  if (ends != Ends::kRight) {
    rest.remove_prefix(chars == nullptr ? LeadingSpace(rest) : LeadingChars(rest, chars->bytes));
  }
  if (ends != Ends::kLeft) {
    rest.remove_suffix(chars == nullptr ? TrailingSpace(rest) : TrailingChars(rest, chars->bytes));
  }
  if (rest.size() == text.bytes.size()) return &text;
  return CutPart(rendering.arena(), text, rest);
}

const Text* Replace(Rendering& rendering, const Text& text, const Text& old, const Text& fresh,
                    int64_t count) {
  Arena& arena = rendering.arena();
  if (old.bytes.empty()) rendering.NotSupported("replacing an empty text");
  rendering.PayBytes(text.bytes.size());
  TextBuilder result;
  size_t at = 0;
  for (int64_t i = 0; count < 0 || i < count; ++i) {
    const size_t found = FindPart(text.bytes, old.bytes, at);
    if (found == kNone) break;
    rendering.PayBytes(fresh.bytes.size());
    arena.ReserveText(result.size() + fresh.bytes.size());
    result.Append(*CutBytes(arena, text, at, found));
    result.Append(fresh);
    at = found + old.bytes.size();
  }
  if (at == 0) return &text;
  arena.ReserveText(result.size() + text.bytes.size());
  result.Append(*CutBytes(arena, text, at, text.bytes.size()));
  return result.Make(arena);
}

const Text* Join(Rendering& rendering, const Text& separator, const Value& values) {
  Iterator* const iterator = Iterate(rendering, values);
  TextBuilder joined;
  Value value;
  for (bool first = true; iterator->Next(rendering, &value); first = false) {
    const Text* const text = ToText(rendering, value);
    rendering.PayBytes(text->bytes.size() + separator.bytes.size());
    rendering.arena().ReserveText(joined.size() + text->bytes.size() + separator.bytes.size());
    if (!first) joined.Append(separator);
    joined.Append(*text);
  }
  return joined.Make(rendering.arena());
}

Value Split(Rendering& rendering, const Text& text, const Text& separator, int64_t count) {
  Parts parts(rendering, text, /*keeps_own=*/true);
  size_t at = 0;
  while (parts.Takes(count)) {
    const size_t found = FindPart(text.bytes, separator.bytes, at);
    if (found == kNone) break;
    parts.Add(at, found);
    at = found + separator.bytes.size();
  }
  parts.Add(at, text.bytes.size());
  return parts.Make();
}

Value SplitFromRight(Rendering& rendering, const Text& text, const Text& separator, int64_t count) {
  Parts parts(rendering, text);
  // Searching backwards compares the separator at every place.
  rendering.Pay(static_cast<int64_t>(text.bytes.size() / 4096 * separator.bytes.size()));
  size_t end = text.bytes.size();
  while (parts.Takes(count) && end >= separator.bytes.size()) {
    const size_t found = text.bytes.substr(0, end).rfind(separator.bytes);
    if (found == kNone) break;
    parts.Add(found + separator.bytes.size(), end);
    end = found;
  }
  parts.Add(0, end);
  parts.Reverse();
  return parts.Make();
}

Value SplitAtSpace(Rendering& rendering, const Text& text, int64_t count, bool from_right) {
  if (from_right && count >= 0) rendering.NotSupported("rsplit at white space with a count");
  Parts parts(rendering, text);
  size_t at = LeadingSpace(text.bytes);
  while (at < text.bytes.size() && parts.Takes(count)) {
    size_t end = at;
    for (size_t next = at; next < text.bytes.size(); end = next) {
      if (IsSpace(NextCodePoint(text.bytes, &next))) break;
    }
    parts.Add(at, end);
    at = end + LeadingSpace(text.bytes.substr(end));
  }
  if (at < text.bytes.size()) parts.Add(at, text.bytes.size());  // with the space at its end
  return parts.Make();
}

Value SplitLines(Rendering& rendering, const Text& text, bool keep_ends) {
  const auto ends_line = [](uint32_t c) {
    return (c >= 10 && c <= 13) || (c >= 0x1C && c <= 0x1E) || c == 0x85 || c == 0x2028 ||
           c == 0x2029;
  };
  Parts parts(rendering, text);
  size_t begin = 0;
  for (size_t at = 0; at < text.bytes.size();) {
    const size_t end = at;
    const uint32_t c = NextCodePoint(text.bytes, &at);
    if (!ends_line(c)) continue;
    if (c == '\r' && text.bytes.substr(at).starts_with('\n')) ++at;
    parts.Add(begin, keep_ends ? at : end);
    begin = at;
  }
  if (begin < text.bytes.size()) parts.Add(begin, text.bytes.size());
  return parts.Make();
}

const Text* ChangeCase(Rendering& rendering, const Text& text, Case to) {
  if (!text.is_ascii()) rendering.NotSupported("another case of a text that is not ASCII");
  rendering.PayBytes(text.bytes.size());
  Arena& arena = rendering.arena();
  if (text.bytes.empty()) return BorrowText(arena, "", false);
  char* const changed = arena.NewArray<char>(text.bytes.size());
  bool begins = true;  // a word of a title, or the text
  for (size_t i = 0; i < text.bytes.size(); ++i) {
    const char c = text.bytes[i];
    const bool upper = to == Case::kUpper || (to != Case::kLower && begins);
    changed[i] = upper ? ToAsciiUpper(c) : ToAsciiLower(c);
    begins = to == Case::kTitle && !IsAsciiLetter(c);
  }
  return BorrowText(arena, {changed, text.bytes.size()}, false);
}

}  // namespace mlc_native::templates
