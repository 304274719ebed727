#include "model_files/model_files.h"

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <vector>

#include "model_files/folder_tokenizer.h"
#include "model_files/gguf_config.h"
#include "model_files/gguf_parts.h"
#include "model_files/gguf_tokenizer.h"
#include "model_files/write_tokenizer.h"
#include "support/error.h"

namespace mlc_native {
namespace {

namespace fs = std::filesystem;

constexpr char kTokenizer[] = "tokenizer.json";
constexpr char kTokenizerConfig[] = "tokenizer_config.json";
constexpr char kGenerationConfig[] = "generation_config.json";
constexpr char kTekkenConfig[] =
    R"({"bos_token":"<s>","eos_token":"</s>","unk_token":"<unk>","pad_token":"<pad>"})";
constexpr std::string_view kGguf = ".gguf";

bool IsFile(const fs::path& path) {
  std::error_code ignored;
  return fs::exists(path, ignored) && !fs::is_directory(path, ignored);
}

bool IsThere(const fs::path& path) {
  std::error_code ignored;
  return fs::exists(path, ignored);
}

// "x-00002-of-00003.gguf" is a later part of a split file; "mmproj-x.gguf" and "x-mmproj-f16.gguf"
// read images for another.
bool IsModel(const std::string& name) {
  if (!name.ends_with(kGguf) || name.find("mmproj") != std::string::npos) return false;
  constexpr size_t kEnding = sizeof("-00001-of-00001.gguf") - 1;
  const bool is_split = name.size() > kEnding && name.substr(name.size() - 14, 4) == "-of-";
  return !is_split || name.substr(name.size() - kEnding, 6) == "-00001";
}

std::string OnlyGgufIn(const fs::path& folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    const std::string name = it->path().filename().string();
    if (IsModel(name)) names.push_back(name);
  }
  if (names.empty()) return "";
  if (names.size() > 1) {
    std::ranges::sort(names);
    throw LoadError("model", folder.string() +
                                 ": holds several GGUF files, give the path of one: " + names[0] +
                                 ", " + names[1] + (names.size() > 2 ? ", ..." : ""));
  }
  return (folder / names[0]).string();
}

// The GGUF file that the folder of this path is; "" when the path is a file's, or no model's.
std::string GgufBehind(const fs::path& path) {
  return IsThere(path) ? "" : GgufOf(path.parent_path().string());
}

// Whether the path is that of the tokenizer.json of a folder with a tokenizer in another form.
bool IsOfFolderTokenizer(const fs::path& path) {
  const std::string folder = path.parent_path().string();
  return path.filename() == kTokenizer && HasFolderTokenizer(folder);
}

// The same of a tokenizer_config.json, which Mistral's own form does without.
bool IsOfTekken(const fs::path& path) {
  return path.filename() == kTokenizerConfig && !IsThere(path.parent_path() / kTokenizer) &&
         IsFile(path.parent_path() / "tekken.json");
}

}  // namespace

std::string GgufOf(const std::string& model) {
  if (model.empty() || !IsThere(model)) return "";
  if (IsFile(model)) return model.ends_with(kGguf) ? model : "";
  const fs::path folder(model);
  for (const char* config : {"config.json", "mlc-chat-config.json"}) {
    if (IsThere(folder / config)) return "";
  }
  return OnlyGgufIn(folder);
}

bool IsMlcFolder(const std::string& folder) {
  return IsThere(folder + "/mlc-chat-config.json") && !IsThere(folder + "/config.json");
}

bool HasModelFile(const std::string& path) {
  if (IsThere(path)) return true;
  const std::string gguf = GgufBehind(path);
  if (gguf.empty()) return IsOfFolderTokenizer(path) || IsOfTekken(path);
  const std::string name = fs::path(path).filename().string();
  if (name == kTokenizer) return HasGgufTokenizer(GgufFile(gguf));
  if (name == kGenerationConfig) return HasGgufSampling(GgufFile(gguf));
  return name == "config.json" || name == kTokenizerConfig;
}

std::optional<std::string> MadeText(const std::string& path, std::string_view skipped_list) {
  const std::string gguf = GgufBehind(path);
  const bool with_merges = skipped_list != "merges";
  if (gguf.empty()) {
    if (IsThere(path)) return std::nullopt;
    if (IsOfTekken(path)) return kTekkenConfig;
    if (!IsOfFolderTokenizer(path)) return std::nullopt;
    return WriteTokenizerJson(
        ReadFolderTokenizer(fs::path(path).parent_path().string(), with_merges));
  }
  const std::string name = fs::path(path).filename().string();
  if (name == "config.json") return GgufConfigJson(GgufParts(gguf));
  const GgufFile file(gguf);
  if (name == kTokenizerConfig) return GgufTokenizerConfigJson(file);
  if (name == kGenerationConfig && HasGgufSampling(file)) return GgufGenerationConfigJson(file);
  if (name == kTokenizer && HasGgufTokenizer(file)) {
    return WriteTokenizerJson(ReadGgufTokenizer(file, with_merges));
  }
  return std::nullopt;
}

ConfigFields ReadModelFile(const std::string& path, std::string_view skipped_list) {
  if (const std::optional<std::string> text = MadeText(path, skipped_list)) {
    return ConfigFields::ParseFile(path, *text, skipped_list);
  }
  return ConfigFields::ReadFile(path, skipped_list);
}

}  // namespace mlc_native
