// Text: a text of a template's values, which knows who wrote its bytes. Valid UTF-8, with the
// indices of Python, which count code points.
//
// A text is the template's own, or foreign: of the input, except for the ranges that are the
// template's own. What is not known to be the template's counts as the input's
// (mlc_native/template_sandbox/prompt_text.py has the same rules).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "mlc_native/detail/export.h"
#include "template/arena.h"

namespace mlc_native::templates {

// Bytes of a text.
struct OwnRange {
  uint32_t begin;
  uint32_t end;
};

struct Text {
  std::string_view bytes;
  uint32_t length = 0;  // code points
  bool foreign = false;
  std::span<const OwnRange> own;  // of a foreign text: ascending, not adjacent

  bool is_ascii() const { return length == bytes.size(); }
};

MLC_NATIVE_PRIVATE_API uint32_t CountCodePoints(std::string_view bytes);

// A text of these bytes, which are copied, or must live as long as the arena.
const Text* NewText(Arena& arena, std::string_view bytes, bool foreign);
const Text* BorrowText(Arena& arena, std::string_view bytes, bool foreign);
// The same text, all of it foreign.
const Text* WithoutOwn(Arena& arena, const Text& text);

// The bytes from `begin` to `end`, which begin and end code points. Shares the text's memory.
const Text* CutBytes(Arena& arena, const Text& text, size_t begin, size_t end);
// Requires: `part` lies in text.bytes.
const Text* CutPart(Arena& arena, const Text& text, std::string_view part);
// The code point at an index. Requires: index < text.length.
const Text* CharAt(Arena& arena, const Text& text, size_t index);

// The byte where the code point of that index begins; the size at the end. Requires: valid UTF-8.
size_t ByteOfIndex(const Text& text, size_t index);
// The index of the code point that begins at a byte.
inline size_t IndexOfByte(const Text& text, size_t byte) {
  return text.is_ascii() ? byte : CountCodePoints(text.bytes.substr(0, byte));
}
// The bytes of the code point that begins there.
size_t CodePointSize(char first);

// Puts texts together and keeps what each of them knows.
class TextBuilder {
 public:
  void Append(const Text& text);
  void AppendOwn(std::string_view bytes);
  void AppendForeign(std::string_view bytes) {
    foreign_ = true;
    bytes_.append(bytes);
  }

  size_t size() const { return bytes_.size(); }
  bool foreign() const { return foreign_; }
  const std::string& bytes() const { return bytes_; }
  const std::vector<OwnRange>& own() const { return own_; }
  std::string TakeBytes() { return std::move(bytes_); }
  const Text* Make(Arena& arena) const;

 private:
  void AddOwn(size_t begin, size_t end);

  std::string bytes_;
  std::vector<OwnRange> own_;
  bool foreign_ = false;
};

}  // namespace mlc_native::templates
