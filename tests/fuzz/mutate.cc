#include "mutate.h"

#include <algorithm>
#include <array>
#include <string_view>

namespace mlc_native::fuzz {
namespace {

constexpr size_t kMaxBytes = size_t{1} << 20;

constexpr std::array<std::string_view, 34> kWords{"{",
                                                  "}",
                                                  "[",
                                                  "]",
                                                  ",",
                                                  ":",
                                                  "\"",
                                                  "null",
                                                  "true",
                                                  "false",
                                                  "0",
                                                  "-1",
                                                  "1e999",
                                                  "1e-999",
                                                  "9223372036854775807",
                                                  "9223372036854775808",
                                                  "18446744073709551616",
                                                  "2147483648",
                                                  "4294967296",
                                                  "0.1",
                                                  "-0",
                                                  "\"\"",
                                                  "\"a\"",
                                                  "\\u0000",
                                                  "\\ud800",
                                                  "\xEF\xBF\xBF",
                                                  "\xFF",
                                                  "[]",
                                                  "{}",
                                                  "[[]]",
                                                  R"({"type":"Sequence"})",
                                                  R"("$ref")",
                                                  "(",
                                                  "|"};

}  // namespace

Mutator::Mutator(std::span<const std::string> corpus, uint64_t seed)
    : corpus_(corpus), random_(seed) {}

size_t Mutator::Below(size_t limit) { return limit == 0 ? 0 : random_() % limit; }

const std::string& Mutator::Pick() { return corpus_[Below(corpus_.size())]; }

std::string Mutator::Next() {
  std::string text = Pick();
  for (size_t changes = 1 + Below(8); changes > 0; --changes) Change(&text);
  if (text.size() > kMaxBytes) text.resize(kMaxBytes);
  return text;
}

void Mutator::Change(std::string* text) {
  const size_t at = Below(text->size() + 1);
  const size_t rest = text->size() - at;
  switch (Below(9)) {
    case 0:
      if (rest > 0) (*text)[at] = static_cast<char>((*text)[at] ^ 1 << Below(8));
      break;
    case 1:
      if (rest > 0) (*text)[at] = static_cast<char>(Below(256));
      break;
    case 2:
      text->insert(at, kWords[Below(kWords.size())]);
      break;
    case 3: {
      const std::string_view word = kWords[Below(kWords.size())];
      text->replace(at, std::min(rest, word.size()), word);
      break;
    }
    case 4:
      text->erase(at, 1 + Below(std::min<size_t>(rest, 32)));
      break;
    case 5:  // a piece again, sometimes often
      for (size_t times = Below(8) == 0 ? Below(200) : 1; times > 0; --times) {
        text->insert(at, text->substr(at, 1 + Below(std::min<size_t>(rest, 64))));
      }
      break;
    case 6: {  // a piece of another input
      const std::string& other = Pick();
      text->insert(at, other.substr(Below(other.size() + 1), 1 + Below(128)));
      break;
    }
    case 7: {  // another end
      const std::string& other = Pick();
      text->resize(at);
      text->append(other, Below(other.size() + 1));
      break;
    }
    default:  // a number of the first bytes, as of a header's length
      if (text->size() >= 8) (*text)[Below(8)] = static_cast<char>(Below(256));
      break;
  }
}

}  // namespace mlc_native::fuzz
