#include "tokenizer/normalizer.h"

#include "tokenizer/unicode.h"

namespace mlc_native {
namespace {

// By how much the steps together may lengthen a text. The longest decomposition has 18 characters.
constexpr size_t kMaxGrowth = 64;
constexpr size_t kFreeBytes = size_t{64} << 10;

// Returns at most one replacement more than `max_bytes`.
void ReplaceMatches(const normalizer_step::Replace& step, size_t max_bytes,
                    Normalizer::Text* text) {
  std::vector<TextRegex::Match> matches;
  step.pattern->FindAll(text->text, &matches);
  if (matches.empty()) return;
  std::string result;
  size_t at = 0;
  for (const TextRegex::Match& match : matches) {
    result.append(text->text, at, match.begin - at);
    result += step.content;
    at = match.end;
    if (result.size() > max_bytes) break;
  }
  result.append(text->text, at);
  const TextRegex::Match& first = matches.front();
  // What is put in place of several characters counts as the last one of them.
  const bool of_one = first.end == FirstChar(text->text).length && !step.content.empty();
  if (first.begin == 0 && !of_one) text->keeps_start = false;
  text->text = std::move(result);
}

struct NormalizerRunner {
  const size_t max_bytes;  // a longer text is refused
  Normalizer::Text* text;

  void operator()(NormalForm form) { text->text = Normalized(text->text, form); }

  void operator()(const normalizer_step::Prepend& step) {
    if (!text->text.empty()) text->text.insert(0, step.text);
  }

  void operator()(const normalizer_step::Replace& step) { ReplaceMatches(step, max_bytes, text); }

  void operator()(const normalizer_step::Lowercase&) {
    std::string result;
    result.reserve(text->text.size());
    ForEachChar(
        [&](const TextChar& c, std::string_view) { unicode::AppendLower(c.code_point, &result); });
    text->text = std::move(result);
  }

  void operator()(const normalizer_step::StripAccents&) {
    std::string result;
    ForEachChar([&](const TextChar& c, std::string_view bytes) {
      if (c.code_point < 0x80 || !unicode::Marks().Has(c.code_point)) {
        result += bytes;
      } else if (result.empty()) {
        text->keeps_start = false;
      }
    });
    text->text = std::move(result);
  }

  void operator()(const normalizer_step::Strip& step) {
    std::string& all = text->text;
    if (step.right) all.resize(all.size() - TrailingSpaces(all));
    const size_t spaces = step.left ? LeadingSpaces(all) : 0;
    if (spaces > 0) text->keeps_start = false;
    all.erase(0, spaces);
  }

  void operator()(const std::shared_ptr<const PrecompiledMap>& map) {
    text->text = map->Replaced(text->text, max_bytes);
  }

  template <typename Visit>
  void ForEachChar(Visit visit) const {
    const std::string_view all = text->text;
    for (size_t at = 0; at < all.size();) {
      const TextChar c = FirstChar(all.substr(at));
      visit(c, all.substr(at, c.length));
      at += c.length;
    }
  }
};

}  // namespace

Normalizer::Text Normalizer::Apply(std::string_view text) const {
  Text result{std::string(text), true};
  const size_t max_bytes = text.size() * kMaxGrowth + kFreeBytes;
  for (const Step& step : steps_) {
    std::visit(NormalizerRunner{max_bytes, &result}, step);
    if (result.text.size() > max_bytes) {
      throw TextTooCostly("the normalizers of the tokenizer make it far longer");
    }
  }
  return result;
}

}  // namespace mlc_native
