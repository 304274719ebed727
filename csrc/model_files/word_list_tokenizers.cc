#include "model_files/word_list_tokenizers.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "model_files/word_splits.h"
#include "support/config_fields.h"
#include "support/error.h"
#include "support/git_lfs.h"
#include "support/regular_file.h"
#include "support/utf8.h"

namespace mlc_native {
namespace {

constexpr FamilyToken kOfGpt2[] = {
    {"bos_token", "<|endoftext|>"}, {"eos_token", "<|endoftext|>"}, {"unk_token", "<|endoftext|>"}};
constexpr FamilyToken kOfQwen2[] = {{"eos_token", "<|endoftext|>"}, {"pad_token", "<|endoftext|>"}};
constexpr FamilyToken kOfRoberta[] = {{"bos_token", "<s>"},          {"eos_token", "</s>"},
                                      {"unk_token", "<unk>"},        {"sep_token", "</s>"},
                                      {"pad_token", "<pad>"},        {"cls_token", "<s>"},
                                      {"mask_token", "<mask>", true}};
constexpr FamilyToken kOfBert[] = {{"unk_token", "[UNK]"},
                                   {"sep_token", "[SEP]"},
                                   {"pad_token", "[PAD]"},
                                   {"cls_token", "[CLS]"},
                                   {"mask_token", "[MASK]"}};
constexpr FamilyToken kOfMpnet[] = {{"bos_token", "<s>"},          {"eos_token", "</s>"},
                                    {"unk_token", "[UNK]"},        {"sep_token", "</s>"},
                                    {"pad_token", "<pad>"},        {"cls_token", "<s>"},
                                    {"mask_token", "<mask>", true}};

struct ListFamily {
  std::string_view tokenizer_class;
  std::string_view model_types;  // where no class is known, with spaces between them
  std::string_view words;        // of byte-level BPE: a name of FindWordSplit
  std::span<const FamilyToken> special;
  size_t num_between = 0;  // tokens between two texts, where some are around a text
};

constexpr ListFamily kBpeFamilies[] = {
    {"GPT2Tokenizer", "gpt2 gpt_neo gptj opt codegen gpt_bigcode phi starcoder2", "gpt-2", kOfGpt2},
    {"CodeGenTokenizer", "", "gpt-2", kOfGpt2},
    {"GPTNeoXTokenizer", "gpt_neox olmo", "mpt", kOfGpt2},
    {"Qwen2Tokenizer",
     "qwen2 qwen2_moe qwen2_vl qwen2_5_vl qwen3 qwen3_moe qwen3_next qwen3_vl qwen3_vl_moe",
     "qwen2", kOfQwen2},
    {"Qwen3_5Tokenizer", "qwen3_5 qwen3_5_moe qwen3_5_text qwen3_5_moe_text", "qwen35", kOfQwen2},
    {"RobertaTokenizer", "roberta", "gpt-2", kOfRoberta, 2},
    {"BartTokenizer", "bart", "gpt-2", kOfRoberta, 2},
    {"LongformerTokenizer", "longformer", "gpt-2", kOfRoberta, 2},
};
constexpr ListFamily kWordPieceFamilies[] = {
    {"BertTokenizer", "bert nomic_bert", "", kOfBert, 1},
    {"DistilBertTokenizer", "distilbert", "", kOfBert, 1},
    {"ElectraTokenizer", "electra", "", kOfBert, 1},
    {"MobileBertTokenizer", "mobilebert", "", kOfBert, 1},
    {"MPNetTokenizer", "mpnet", "", kOfMpnet, 2},
};

bool HasWord(std::string_view words, std::string_view word) {
  for (size_t at = 0; at < words.size();) {
    const size_t end = std::min(words.find(' ', at), words.size());
    if (words.substr(at, end - at) == word) return true;
    at = end + 1;
  }
  return false;
}

const ListFamily& ListFamilyOf(std::span<const ListFamily> families, const std::string& path,
                               const TokenizerSettings& settings) {
  const std::string& of_class = settings.tokenizer_class();
  const bool is_general =
      of_class.empty() || of_class == "PreTrainedTokenizer" || of_class == "TokenizersBackend";
  std::string known;
  for (const ListFamily& family : families) {
    if (is_general ? HasWord(family.model_types, settings.model_type())
                   : family.tokenizer_class == of_class) {
      return family;
    }
    known += (known.empty() ? "" : ", ") + std::string(family.tokenizer_class);
  }
  throw LoadError("tokenizer_class", path + ": how the family \"" +
                                         (is_general ? settings.model_type() : of_class) +
                                         "\" reads this file is not known (known: " + known +
                                         "); a tokenizer.json is needed");
}

// The lines of a file, without their ends. `owner` keeps the text.
std::vector<std::string_view> LinesOf(const std::string& path, Vocabulary* owner) {
  const std::string name = path.substr(path.rfind('/') + 1);
  std::string_view rest = owner->Own(RegularFile(path, name).ReadAll(ConfigFields::kMaxFileBytes));
  if (IsLfsPointer(rest)) throw LoadError(name, path + ": " + kIsLfsPointer);
  if (!IsValidUtf8(rest)) throw LoadError(name, path + ": is not valid UTF-8");
  std::vector<std::string_view> lines;
  while (!rest.empty()) {
    const size_t end = rest.find('\n');
    std::string_view line = rest.substr(0, end);
    if (line.ends_with('\r')) line.remove_suffix(1);
    lines.push_back(line);
    rest.remove_prefix(end == std::string_view::npos ? rest.size() : end + 1);
  }
  return lines;
}

[[noreturn]] void FailLine(const std::string& path, size_t line, const std::string& what) {
  const std::string place = "line " + std::to_string(line);
  throw LoadError(place, path + ": " + place + " " + what);
}

// The tokens by their ids. Those that are not there are not used.
void ReadIds(const std::string& path, Vocabulary* vocabulary) {
  const ConfigFields file = ConfigFields::ReadFile(path);
  constexpr auto kLast = static_cast<int64_t>(kMaxVocabulary) - 1;
  for (std::string& text : file.Names()) {
    const auto id = static_cast<size_t>(file.Integer(text.c_str(), std::nullopt, 0, kLast));
    if (id >= vocabulary->tokens.size()) {
      vocabulary->tokens.resize(id + 1);
      vocabulary->types.resize(id + 1, static_cast<int64_t>(TokenType::kUnused));
    }
    if (vocabulary->type(id) == TokenType::kNormal) {
      file.Fail(text, "has the id " + std::to_string(id) + " of another token");
    }
    vocabulary->tokens[id] = vocabulary->Own(std::move(text));
    vocabulary->types[id] = static_cast<int64_t>(TokenType::kNormal);
  }
}

void ReadMergeLines(const std::string& path, Vocabulary* vocabulary) {
  std::unordered_set<std::string_view> known;
  for (size_t id = 0; id < vocabulary->tokens.size(); ++id) known.insert(vocabulary->tokens[id]);
  const std::vector<std::string_view> lines = LinesOf(path, vocabulary);
  for (size_t i = 0; i < lines.size(); ++i) {
    const std::string_view line = lines[i];
    if (line.empty() || line.starts_with("#version")) continue;
    const size_t space = line.find(' ');
    if (space == std::string_view::npos || line.find(' ', space + 1) != std::string_view::npos) {
      FailLine(path, i + 1, "is not two tokens with a space between them");
    }
    const std::string_view left = line.substr(0, space), right = line.substr(space + 1);
    for (const std::string& token :
         {std::string(left), std::string(right), std::string(left).append(right)}) {
      if (!known.contains(token)) {
        FailLine(path, i + 1, "is a merge of \"" + token + "\", which is not in vocab.json");
      }
    }
    vocabulary->merge_texts.push_back(line);
  }
}

void SurroundWords(const ListFamily& family, const std::string& path,
                   const TokenizerSettings& settings, Vocabulary* vocabulary) {
  const auto id_of = [&](const char* name) {
    const auto usual = std::ranges::find(family.special, name, &FamilyToken::name);
    const std::optional<size_t> id = settings.IdOf(name, *vocabulary, {usual->text});
    if (id) return *id;
    throw LoadError(name, path + ": has no token for \"" + name + "\"");
  };
  vocabulary->around.front = id_of("cls_token");
  vocabulary->around.back = id_of("sep_token");
  vocabulary->around.between.assign(family.num_between, *vocabulary->around.back);
}

}  // namespace

Vocabulary ReadVocabJson(const std::string& folder, const TokenizerSettings& settings,
                         bool with_merges) {
  const std::string path = folder + "/vocab.json";
  const ListFamily& family = ListFamilyOf(kBpeFamilies, path, settings);
  Vocabulary vocabulary;
  vocabulary.model = Vocabulary::Model::kByteLevelBpe;
  vocabulary.words = *FindWordSplit(family.words);
  vocabulary.adds_word_space = settings.Bool("add_prefix_space").value_or(false);
  ReadIds(path, &vocabulary);
  if (with_merges) ReadMergeLines(folder + "/merges.txt", &vocabulary);
  settings.AddTokens(family.special, &vocabulary);
  if (family.num_between > 0) {
    SurroundWords(family, path, settings, &vocabulary);
    return vocabulary;
  }
  if (settings.Bool("add_bos_token").value_or(false)) {
    vocabulary.around.front = settings.IdOf("bos_token", vocabulary, {"<|endoftext|>"});
  }
  if (settings.Bool("add_eos_token").value_or(false)) {
    vocabulary.around.back = settings.IdOf("eos_token", vocabulary, {"<|endoftext|>"});
  }
  return vocabulary;
}

Vocabulary ReadVocabTxt(const std::string& folder, const TokenizerSettings& settings) {
  const std::string path = folder + "/vocab.txt";
  const ListFamily& family = ListFamilyOf(kWordPieceFamilies, path, settings);
  Vocabulary vocabulary;
  vocabulary.model = Vocabulary::Model::kWordPiece;
  std::unordered_map<std::string_view, size_t> ids;
  for (const std::string_view line : LinesOf(path, &vocabulary)) {
    const size_t id = vocabulary.tokens.size();
    if (id == kMaxVocabulary) {
      FailLine(path, id + 1, "is more than the allowed " + std::to_string(kMaxVocabulary));
    }
    const TokenType type = line.empty() ? TokenType::kUnused : TokenType::kNormal;
    vocabulary.tokens.push_back(line);
    vocabulary.types.push_back(static_cast<int64_t>(type));
    // Of equal lines the last one counts.
    const auto [place, is_new] = ids.emplace(line, id);
    if (is_new) continue;
    vocabulary.types[place->second] = static_cast<int64_t>(TokenType::kUnused);
    place->second = id;
  }
  settings.AddTokens(family.special, &vocabulary);
  vocabulary.unknown = settings.IdOf("unk_token", vocabulary, {"[UNK]"});
  vocabulary.lowers_case = settings.Bool("do_lower_case").value_or(true);
  vocabulary.strips_accents = settings.Bool("strip_accents");
  vocabulary.splits_chinese = settings.Bool("tokenize_chinese_chars").value_or(true);
  vocabulary.around.second_type = 1;
  SurroundWords(family, path, settings, &vocabulary);
  return vocabulary;
}

}  // namespace mlc_native
