#include "tokenizer/text_streamer.h"

#include "support/utf8.h"

namespace mlc_native {

void TextStreamer::Put(std::string_view bytes, std::string* text) {
  if (bytes.empty()) return;
  if (at_start_ && strip_leading_space_ && bytes.front() == ' ') bytes.remove_prefix(1);
  at_start_ = false;
  if (pending_.empty()) {
    const size_t held = AppendValidUtf8(bytes, text);
    if (held > 0) pending_.assign(bytes.substr(bytes.size() - held));
    return;
  }
  pending_.append(bytes);
  const size_t held = AppendValidUtf8(pending_, text);
  pending_.erase(0, pending_.size() - held);
}

void TextStreamer::Finish(std::string* text) {
  if (!pending_.empty()) text->append(kReplacementCharacter);
  pending_.clear();
  at_start_ = true;
}

}  // namespace mlc_native
