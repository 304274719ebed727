#include "template/text.h"

#include <algorithm>

namespace mlc_native::templates {

namespace {

bool ContinuesCodePoint(char byte) { return (static_cast<unsigned char>(byte) & 0xC0) == 0x80; }

}  // namespace

uint32_t CountCodePoints(std::string_view bytes) {
  size_t count = 0;
  for (char byte : bytes) count += !ContinuesCodePoint(byte);
  return static_cast<uint32_t>(count);
}

size_t CodePointSize(char first) {
  const auto byte = static_cast<unsigned char>(first);
  if (byte < 0x80) return 1;
  if (byte < 0xE0) return 2;
  return byte < 0xF0 ? 3 : 4;
}

const Text* BorrowText(Arena& arena, std::string_view bytes, bool foreign) {
  return arena.New<Text>(Text{bytes, CountCodePoints(bytes), foreign, {}});
}

const Text* NewText(Arena& arena, std::string_view bytes, bool foreign) {
  return BorrowText(arena, arena.Copy(bytes), foreign);
}

const Text* WithoutOwn(Arena& arena, const Text& text) {
  return arena.New<Text>(Text{text.bytes, text.length, true, {}});
}

const Text* CutBytes(Arena& arena, const Text& text, size_t begin, size_t end) {
  const std::string_view bytes = text.bytes.substr(begin, end - begin);
  Text cut{bytes,
           text.is_ascii() ? static_cast<uint32_t>(bytes.size()) : CountCodePoints(bytes),
           text.foreign,
           {}};
  const auto first = std::ranges::partition_point(
      text.own, [&](const OwnRange& range) { return range.end <= begin; });
  const auto last = std::partition_point(first, text.own.end(),
                                         [&](const OwnRange& range) { return range.begin < end; });
  if (first != last) {
    const auto count = static_cast<size_t>(last - first);
    OwnRange* const own = arena.NewArray<OwnRange>(count);
    std::transform(first, last, own, [&](const OwnRange& range) {
      return OwnRange{static_cast<uint32_t>(std::max<size_t>(range.begin, begin) - begin),
                      static_cast<uint32_t>(std::min<size_t>(range.end, end) - begin)};
    });
    cut.own = {own, count};
  }
  return arena.New<Text>(cut);
}

const Text* CutPart(Arena& arena, const Text& text, std::string_view part) {
  const auto begin =
      part.empty() ? size_t{0} : static_cast<size_t>(part.data() - text.bytes.data());
  return CutBytes(arena, text, begin, begin + part.size());
}

const Text* CharAt(Arena& arena, const Text& text, size_t index) {
  const size_t begin = ByteOfIndex(text, index);
  return CutBytes(arena, text, begin, begin + CodePointSize(text.bytes[begin]));
}

size_t ByteOfIndex(const Text& text, size_t index) {
  if (text.is_ascii()) return std::min(index, text.bytes.size());
  if (index >= text.length) return text.bytes.size();
  size_t byte = 0;
  for (; index > 0; --index) byte += CodePointSize(text.bytes[byte]);
  return byte;
}

void TextBuilder::Append(const Text& text) {
  if (!text.foreign) return AppendOwn(text.bytes);
  foreign_ = true;
  for (const OwnRange& range : text.own) AddOwn(size() + range.begin, size() + range.end);
  bytes_.append(text.bytes);
}

void TextBuilder::AppendOwn(std::string_view bytes) {
  AddOwn(size(), size() + bytes.size());
  bytes_.append(bytes);
}

void TextBuilder::AddOwn(size_t begin, size_t end) {
  if (!own_.empty() && own_.back().end == begin) {
    own_.back().end = static_cast<uint32_t>(end);
  } else if (begin < end) {
    own_.push_back({static_cast<uint32_t>(begin), static_cast<uint32_t>(end)});
  }
}

const Text* TextBuilder::Make(Arena& arena) const {
  Text text{arena.Copy(bytes_), CountCodePoints(bytes_), foreign_, {}};
  if (foreign_) text.own = arena.Copy(std::span<const OwnRange>(own_));
  return arena.New<Text>(text);
}

}  // namespace mlc_native::templates
