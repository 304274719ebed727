#include "model_files/tiktoken_tokenizer.h"

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <iterator>
#include <optional>
#include <system_error>
#include <utility>

#include "model_files/byte_ranks.h"
#include "model_files/word_splits.h"
#include "support/error.h"

namespace mlc_native {
namespace {

// A family: by the name of its file, or its class, or its type of model.
struct TiktokenFamily {
  std::string_view file;             // "": any
  std::string_view tokenizer_class;  // one of both is enough
  std::string_view model_type;
  std::string_view words;  // a name of FindWordSplit
  bool adds_bos = false;
};
constexpr TiktokenFamily kTiktokenFamilies[] = {
    {"", "TikTokenTokenizer", "kimi_k2", "kimi-k2"},
    {"", "TikTokenTokenizer", "kimi_k25", "kimi-k2"},
    {"", "TikTokenTokenizer", "kimi_linear", "kimi-k2"},
    {"", "TikTokenTokenizer", "kimi_vl", "kimi-k2"},
    {"qwen.tiktoken", "QWenTokenizer", "qwen", "qwen2"},
    {"tokenizer.model", "", "llama", "llama-bpe", true},
};
constexpr size_t kReservedOfKimi = 256;  // special tokens behind the ranks
constexpr size_t kExtrasOfQwen = 205;

const TiktokenFamily& TiktokenFamilyOf(const std::string& path, const TokenizerSettings& settings) {
  const std::string name = path.substr(path.rfind('/') + 1);
  const auto* found = std::ranges::find_if(kTiktokenFamilies, [&](const TiktokenFamily& family) {
    if (!family.file.empty() && family.file != name) return false;
    const bool has_class = !family.tokenizer_class.empty();
    return (has_class && settings.tokenizer_class() == family.tokenizer_class) ||
           settings.model_type() == family.model_type;
  });
  if (found != std::end(kTiktokenFamilies)) return *found;
  throw LoadError(name, path + ": how the tokenizer of the family \"" +
                            (settings.tokenizer_class().empty() ? settings.model_type()
                                                                : settings.tokenizer_class()) +
                            "\" cuts texts is not known; a tokenizer.json is needed");
}

ByteRanks ReadRankLines(const std::string& path, std::string_view content) {
  ByteRanks ranks(path);
  size_t number = 0;
  while (!content.empty()) {
    const size_t end = content.find('\n');
    std::string_view line = content.substr(0, end);
    content.remove_prefix(end == std::string_view::npos ? content.size() : end + 1);
    if (line.ends_with('\r')) line.remove_suffix(1);
    ++number;
    if (line.empty()) continue;
    const std::string place = "line " + std::to_string(number);
    const size_t space = line.find(' ');
    size_t rank = 0;
    const std::string digits(space == std::string_view::npos ? std::string_view()
                                                             : line.substr(space + 1));
    const char* digits_end = digits.data() + digits.size();
    const auto [rest, error] = std::from_chars(digits.data(), digits_end, rank);
    if (digits.empty() || error != std::errc() || rest != digits_end) {
      ranks.Fail(place, "is not a token in base64, a space and a rank");
    }
    ranks.Add(place, line.substr(0, space), rank);
  }
  return ranks;
}

void AddSpecial(std::string text, Vocabulary* vocabulary) {
  vocabulary->tokens.push_back(vocabulary->Own(std::move(text)));
  vocabulary->types.push_back(static_cast<int64_t>(TokenType::kControl));
  vocabulary->added.push_back({.id = vocabulary->tokens.size() - 1, .special = true});
}

}  // namespace

bool IsTiktoken(std::string_view content) {
  const std::string_view line = content.substr(0, content.find('\n'));
  const size_t space = line.find(' ');
  const auto is_digit = [](char c) { return (c >= '0' && c <= '9') || c == '\r'; };
  return space != std::string_view::npos && space > 0 && space + 1 < line.size() &&
         std::ranges::all_of(line.substr(space + 1), is_digit) && line.front() != '\n';
}

Vocabulary ReadTiktokenTokenizer(const std::string& path, std::string_view content,
                                 const TokenizerSettings& settings, bool with_merges) {
  const TiktokenFamily& family = TiktokenFamilyOf(path, settings);
  Vocabulary vocabulary;
  ReadRankLines(path, content).AppendTo(&vocabulary, with_merges);
  vocabulary.words = *FindWordSplit(family.words);
  vocabulary.words.ignore_merges = true;
  const size_t first = vocabulary.tokens.size();
  if (family.words == "qwen2") {
    for (const char* text : {"<|endoftext|>", "<|im_start|>", "<|im_end|>"}) {
      AddSpecial(text, &vocabulary);
    }
    for (size_t i = 0; i < kExtrasOfQwen; ++i) {
      AddSpecial("<|extra_" + std::to_string(i) + "|>", &vocabulary);
    }
  }
  settings.AddTokens({}, &vocabulary);
  if (family.words == "kimi-k2") {
    // Those that the folder does not name.
    for (size_t id = first; id < first + kReservedOfKimi; ++id) {
      const bool is_named = id < vocabulary.tokens.size() && !vocabulary.tokens[id].empty();
      if (is_named) continue;
      const std::string text = "<|reserved_token_" + std::to_string(id) + "|>";
      if (id >= vocabulary.tokens.size()) {
        AddSpecial(text, &vocabulary);
      } else {
        vocabulary.tokens[id] = vocabulary.Own(text);
        vocabulary.types[id] = static_cast<int64_t>(TokenType::kControl);
        vocabulary.added.push_back({.id = id, .special = true});
      }
    }
    std::ranges::sort(vocabulary.added, {}, &AddedTokenText::id);
  }
  if (settings.Bool("add_bos_token").value_or(family.adds_bos)) {
    vocabulary.around.front = settings.IdOf("bos_token", vocabulary, {"<|begin_of_text|>"});
  }
  return vocabulary;
}

}  // namespace mlc_native
