#include "model_files/tekken_tokenizer.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "model_files/byte_ranks.h"
#include "support/config_fields.h"
#include "support/error.h"
#include "support/json.h"

namespace mlc_native {
namespace {

constexpr auto kMaxTekkenTokens = static_cast<int64_t>(kMaxVocabulary);

// Of files that do not list them, which are the first ones. "<SPECIAL_20>" and so on follow.
constexpr std::string_view kFirstSpecial[] = {
    "<unk>",
    "<s>",
    "</s>",
    "[INST]",
    "[/INST]",
    "[AVAILABLE_TOOLS]",
    "[/AVAILABLE_TOOLS]",
    "[TOOL_RESULTS]",
    "[/TOOL_RESULTS]",
    "[TOOL_CALLS]",
    "[IMG]",
    "<pad>",
    "[IMG_BREAK]",
    "[IMG_END]",
    "[PREFIX]",
    "[MIDDLE]",
    "[SUFFIX]",
    "[SYSTEM_PROMPT]",
    "[/SYSTEM_PROMPT]",
    "[TOOL_CONTENT]",
};

const JsonArray& ListOf(const ConfigFields& file, const char* name) {
  const JsonValue* list = file.Find(name);
  if (list == nullptr || !list->is_array()) file.FailValue(name, "a list");
  return list->AsArray();
}

// Sets the texts of the special tokens, whose ids are the first ones.
void ReadSpecialTokens(const ConfigFields& file, size_t count, Vocabulary* vocabulary) {
  std::vector<std::string> texts(count);
  if (!file.Has("special_tokens")) {
    const size_t known = std::min(count, std::size(kFirstSpecial));
    std::copy_n(std::begin(kFirstSpecial), known, texts.begin());
  } else {
    size_t i = 0;
    for (const JsonValue& token : ListOf(file, "special_tokens")) {
      const std::string field = "special_tokens[" + std::to_string(i++) + "]";
      const JsonValue* rank = token.Find("rank");
      const JsonValue* text = token.Find("token_str");
      const auto last = static_cast<int64_t>(count) - 1;
      if (rank == nullptr || !rank->IsIntegerIn(0, last)) {
        file.Fail(field, "needs a \"rank\" in [0, " + std::to_string(last) + "]");
      }
      if (text == nullptr || !text->is_string() || text->AsString().empty()) {
        file.Fail(field, "needs a text as \"token_str\"");
      }
      const auto id = static_cast<size_t>(rank->AsInteger());
      if (!texts[id].empty()) file.Fail(field, "has the \"rank\" of another one");
      texts[id] = text->AsString();
    }
  }
  for (size_t id = 0; id < count; ++id) {
    if (texts[id].empty()) texts[id] = "<SPECIAL_" + std::to_string(id) + ">";
    vocabulary->tokens.push_back(vocabulary->Own(std::move(texts[id])));
    vocabulary->types.push_back(static_cast<int64_t>(TokenType::kControl));
    vocabulary->added.push_back({.id = id, .special = true});
  }
}

ByteRanks ReadTekkenRanks(const std::string& path, const ConfigFields& file, size_t count) {
  ByteRanks ranks(path);
  const JsonArray& vocab = ListOf(file, "vocab");
  if (vocab.size() < count) {
    file.Fail("vocab", "has " + std::to_string(vocab.size()) + " tokens, of which " +
                           "\"default_vocab_size\" needs " + std::to_string(count));
  }
  for (size_t i = 0; i < count; ++i) {
    const std::string field = "vocab[" + std::to_string(i) + "]";
    const JsonValue* rank = vocab[i].Find("rank");
    const JsonValue* bytes = vocab[i].Find("token_bytes");
    if (rank != nullptr && !rank->IsIntegerIn(static_cast<int64_t>(i), static_cast<int64_t>(i))) {
      file.Fail(field, "must have the \"rank\" " + std::to_string(i));
    }
    if (bytes == nullptr || !bytes->is_string()) file.Fail(field, "needs \"token_bytes\"");
    ranks.Add(field, bytes->AsString(), i);
  }
  return ranks;
}

}  // namespace

Vocabulary ReadTekkenTokenizer(const std::string& path, const TokenizerSettings& settings,
                               bool with_merges) {
  const ConfigFields file = ConfigFields::ReadFile(path);
  const ConfigFields config = file.Object("config");
  const int64_t num_special =
      config.Integer("default_num_special_tokens", std::nullopt, 0, kMaxTekkenTokens);
  const int64_t size =
      config.Integer("default_vocab_size", std::nullopt, num_special, kMaxTekkenTokens);
  Vocabulary vocabulary;
  ReadSpecialTokens(file, static_cast<size_t>(num_special), &vocabulary);
  ReadTekkenRanks(path, file, static_cast<size_t>(size - num_special))
      .AppendTo(&vocabulary, with_merges);
  vocabulary.regexes = {vocabulary.Own(config.String("pattern"))};
  vocabulary.words.ignore_merges = true;
  settings.AddTokens({}, &vocabulary);
  if (settings.Bool("add_bos_token").value_or(true)) {
    vocabulary.around.front = settings.IdOf("bos_token", vocabulary, {"<s>"});
  }
  if (settings.Bool("add_eos_token").value_or(false)) {
    vocabulary.around.back = settings.IdOf("eos_token", vocabulary, {"</s>"});
  }
  return vocabulary;
}

}  // namespace mlc_native
