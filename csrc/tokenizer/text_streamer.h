// TextStreamer turns bytes into valid UTF-8 text, piece by piece. One per sequence; one thread.
//
// An incomplete character at the end is held back until its remaining bytes arrive or Finish is
// called. Invalid bytes become U+FFFD exactly as when the whole text is decoded at once. The pieces
// together are the decoded text.
#pragma once

#include <string>
#include <string_view>

#include "mlc_native/detail/export.h"

namespace mlc_native {

class MLC_NATIVE_PRIVATE_API TextStreamer {
 public:
  // With strip_leading_space, the first byte of the text is dropped if it is a space, like the
  // decoders of tokenizers that put a space before the text they encode
  // (TokenTable::strip_leading_space).
  explicit TextStreamer(bool strip_leading_space = false)
      : strip_leading_space_(strip_leading_space) {}

  // Appends the text that is certain to *text.
  void Put(std::string_view bytes, std::string* text);
  // Appends the rest. The streamer is then ready for another text.
  void Finish(std::string* text);

 private:
  bool strip_leading_space_;
  bool at_start_ = true;  // no byte has come yet
  std::string pending_;   // at most 3 bytes: a prefix of one character
};

}  // namespace mlc_native
