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
  // Appends text that is certain to *text.
  void Put(std::string_view bytes, std::string* text);
  // Flushes what is held back; the streamer is then as new.
  void Finish(std::string* text);

 private:
  std::string pending_;  // at most 3 bytes: a prefix of one character
};

}  // namespace mlc_native
