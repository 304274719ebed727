// TextStreamer turns bytes into valid UTF-8 text piece by piece. One per sequence; engine's thread
// or a caller's.
//
// An incomplete character at the end is held back until its remaining bytes arrive or Finish is
// called; invalid bytes become U+FFFD exactly as a whole-text decode would write them. Concatenated
// pieces equal the decoded whole.
#pragma once

#include <string>
#include <string_view>

namespace mlc_native {

class TextStreamer {
 public:
  // strip_leading_space: the first byte of the text is dropped if it is a space, as the decoders of
  // tokenizers do that put a space before the text they encode (TokenTable::strip_leading_space).
  explicit TextStreamer(bool strip_leading_space = false)
      : strip_leading_space_(strip_leading_space) {}

  // Appends text that is certain to *text.
  void Put(std::string_view bytes, std::string* text);
  // Flushes what is held back; the streamer is then as new.
  void Finish(std::string* text);

 private:
  bool strip_leading_space_;
  bool at_start_ = true;  // no byte has come yet
  std::string pending_;   // at most 3 bytes: a prefix of one character
};

}  // namespace mlc_native
