#include "model_files/folder_tokenizer.h"

#include <filesystem>
#include <string_view>
#include <system_error>
#include <utility>

#include "model_files/sentencepiece_tokenizer.h"
#include "model_files/tekken_tokenizer.h"
#include "model_files/tiktoken_tokenizer.h"
#include "model_files/tokenizer_settings.h"
#include "model_files/word_list_tokenizers.h"
#include "support/config_fields.h"
#include "support/error.h"
#include "support/git_lfs.h"
#include "support/regular_file.h"

namespace mlc_native {
namespace {

// In this order, as far as they are there.
constexpr const char* kTokenizerModels[] = {
    "tekken.json", "tokenizer.model", "spiece.model", "sentencepiece.bpe.model",
    "spm.model",   "tiktoken.model",  "qwen.tiktoken"};

bool IsInFolder(const std::string& folder, const char* name) {
  std::error_code ignored;
  const std::filesystem::path path = std::filesystem::path(folder) / name;
  return std::filesystem::exists(path, ignored) && !std::filesystem::is_directory(path, ignored);
}

// "": none.
std::string_view TokenizerModelIn(const std::string& folder) {
  for (const char* name : kTokenizerModels) {
    if (IsInFolder(folder, name)) return name;
  }
  return "";
}

bool HasVocabJson(const std::string& folder) {
  return IsInFolder(folder, "vocab.json") && IsInFolder(folder, "merges.txt");
}

Vocabulary ReadModelOfTokens(const std::string& path, const TokenizerSettings& settings,
                             bool with_merges) {
  const std::string name = path.substr(path.rfind('/') + 1);
  if (name == "tekken.json") return ReadTekkenTokenizer(path, settings, with_merges);
  std::string content = RegularFile(path, name).ReadAll(ConfigFields::kMaxFileBytes);
  if (IsLfsPointer(content)) throw LoadError(name, path + ": " + kIsLfsPointer);
  const bool is_tiktoken = name.find("tiktoken") != std::string::npos || IsTiktoken(content);
  if (is_tiktoken) return ReadTiktokenTokenizer(path, content, settings, with_merges);
  return ReadSentencePieceTokenizer(path, std::move(content), settings, with_merges);
}

}  // namespace

bool HasFolderTokenizer(const std::string& folder) {
  return !TokenizerModelIn(folder).empty() || HasVocabJson(folder) ||
         IsInFolder(folder, "vocab.txt");
}

Vocabulary ReadFolderTokenizer(const std::string& folder, bool with_merges) {
  const TokenizerSettings settings(folder);
  const std::string_view model = TokenizerModelIn(folder);
  if (!model.empty()) {
    return ReadModelOfTokens(folder + '/' + std::string(model), settings, with_merges);
  }
  if (HasVocabJson(folder)) return ReadVocabJson(folder, settings, with_merges);
  return ReadVocabTxt(folder, settings);
}

}  // namespace mlc_native
