#include "support/json_words.h"

namespace mlc_native {
namespace {

constexpr std::string_view kWords[] = {"Infinity", "-Infinity", "NaN"};

// The length of the string at the beginning of `text`, with its quotes.
size_t LengthOfString(std::string_view text) {
  for (size_t i = 1; i < text.size(); ++i) {
    if (text[i] == '\\') {
      ++i;
    } else if (text[i] == '"') {
      return i + 1;
    }
  }
  return text.size();
}

std::string_view WordAt(std::string_view text) {
  for (const std::string_view word : kWords) {
    if (text.starts_with(word)) return word;
  }
  return "";
}

}  // namespace

std::string SpellOutJsonWords(std::string_view text) {
  std::string spelled;
  while (!text.empty()) {
    size_t length = 1;
    const std::string_view word = WordAt(text);
    if (!word.empty()) {
      length = word.size();
      spelled.append(R"({"__float__": ")").append(word).append(R"("})");
    } else {
      if (text.front() == '"') length = LengthOfString(text);
      spelled.append(text.substr(0, length));
    }
    text.remove_prefix(length);
  }
  return spelled;
}

}  // namespace mlc_native
