// The model, the added tokens and the post-processor of a tokenizer.json, and all of its parts.
#include <algorithm>
#include <filesystem>
#include <optional>
#include <unordered_map>
#include <utility>

#include "model_files/model_files.h"
#include "support/error.h"
#include "support/json.h"
#include "tokenizer/bpe_model.h"
#include "tokenizer/tokenizer_parts.h"
#include "tokenizer/unigram_model.h"

namespace mlc_native {
namespace {

constexpr int64_t kMaxModelId = 1 << 22;
constexpr size_t kMaxAllAddedBytes = size_t{4} << 20;
constexpr size_t kMaxAddedBytes = 512;                     // of one added token
constexpr size_t kMaxTrieBytes = size_t{8} << 20;          // of all tokens of a Unigram model
constexpr size_t kMaxUnigramTokenBytes = size_t{4} << 10;  // of one of them

const JsonValue& RequiredMember(const ConfigFields& fields, const char* name) {
  const JsonValue* value = fields.Find(name);
  if (value == nullptr) fields.Fail(name, "is missing");
  return *value;
}

int32_t ModelId(const JsonValue& id) {
  if (!id.IsIntegerIn(0, kMaxModelId)) throw JsonError("a token has an id out of range");
  return static_cast<int32_t>(id.AsInteger());
}

// "a b" in old files, ["a", "b"] in new ones.
BpeModel::Merge MergeOf(const JsonValue& merge) {
  if (merge.is_array()) {
    const JsonArray& pair = merge.AsArray();
    if (pair.size() != 2) throw JsonError("a merge is not of two tokens");
    return {pair[0].AsString(), pair[1].AsString()};
  }
  const std::string& both = merge.AsString();
  const size_t space = both.find(' ');
  if (space == std::string::npos) throw JsonError("a merge is not of two tokens");
  return {both.substr(0, space), both.substr(space + 1)};
}

void ReadBpe(const ConfigFields& model, bool byte_level, TokenizerParts* parts) {
  if (const JsonValue* dropout = model.Find("dropout");
      dropout != nullptr && (!dropout->is_number() || dropout->AsNumber() != 0)) {
    throw UnsupportedPart("\"dropout\"");
  }
  TokenIds ids;
  for (const auto& [token, id] : RequiredMember(model, "vocab").AsObject()) {
    ids.emplace(token, ModelId(id));
  }
  parts->vocab = std::make_shared<const TokenIds>(std::move(ids));
  if (!byte_level && !model.Bool("byte_fallback", false)) parts->most_shrinking = 0;
  std::vector<BpeModel::Merge> merges;
  for (const JsonValue& merge : RequiredMember(model, "merges").AsArray()) {
    merges.push_back(MergeOf(merge));
  }
  BpeOptions options{.byte_level = byte_level,
                     .byte_fallback = model.Bool("byte_fallback", false),
                     .fuse_unk = model.Bool("fuse_unk", false),
                     .ignore_merges = model.Bool("ignore_merges", false),
                     .unk_token = model.String("unk_token", ""),
                     .prefix = model.String("continuing_subword_prefix", ""),
                     .suffix = model.String("end_of_word_suffix", "")};
  if (!options.prefix.empty() || !options.suffix.empty()) {
    parts->changes_texts = "\"continuing_subword_prefix\" or \"end_of_word_suffix\"";
  }
  parts->model = std::make_unique<const BpeModel>(parts->vocab, merges, std::move(options));
}

void ReadUnigram(const ConfigFields& model, bool byte_level, TokenizerParts* parts) {
  if (byte_level) throw UnsupportedPart("model type \"Unigram\" behind \"ByteLevel\"");
  TokenIds ids;
  std::vector<double> scores;
  size_t num_bytes = 0;
  for (const JsonValue& entry : RequiredMember(model, "vocab").AsArray()) {
    const JsonArray& pair = entry.AsArray();
    if (pair.size() != 2) throw JsonError("an entry of \"vocab\" is not a token and its score");
    const std::string& token = pair[0].AsString();
    num_bytes += token.size();
    if (num_bytes > kMaxTrieBytes || token.size() > kMaxUnigramTokenBytes) {
      throw UnsupportedPart("a Unigram vocabulary of so many or so long tokens");
    }
    ids.insert_or_assign(token, static_cast<int32_t>(scores.size()));
    scores.push_back(pair[1].AsNumber());
  }
  parts->vocab = std::make_shared<const TokenIds>(std::move(ids));
  std::optional<int32_t> unk_id;
  if (model.Has("unk_id")) {
    unk_id = static_cast<int32_t>(model.Integer("unk_id", std::nullopt, 0, kMaxModelId));
  }
  parts->changes_texts = "model type \"Unigram\"";
  if (!model.Bool("byte_fallback", false)) parts->most_shrinking = 0;
  parts->model = std::make_unique<const UnigramModel>(parts->vocab, std::move(scores), unk_id,
                                                      model.Bool("byte_fallback", false));
}

// Their ids are those of the vocabulary, or follow it in their order.
std::vector<AddedToken> ReadAddedTokens(const ConfigFields& file, const TokenIds& vocab) {
  std::vector<AddedToken> tokens;
  if (!file.Has("added_tokens")) return tokens;
  std::unordered_map<std::string, size_t> known;
  auto next_id = static_cast<int64_t>(vocab.size());
  size_t num_bytes = 0;
  for (const ConfigFields& added : file.Objects("added_tokens")) {
    AddedToken token{.content = added.String("content"),
                     .special = added.Bool("special", false),
                     .normalized = added.Bool("normalized", false),
                     .single_word = added.Bool("single_word", false),
                     .lstrip = added.Bool("lstrip", false),
                     .rstrip = added.Bool("rstrip", false)};
    const int64_t id = added.Integer("id", std::nullopt, 0, kMaxModelId);
    token.id = static_cast<int32_t>(id);
    if (token.content.empty()) continue;
    num_bytes += token.content.size();
    if (token.content.size() > kMaxAddedBytes || num_bytes > kMaxAllAddedBytes) {
      throw UnsupportedPart("so many or so long added tokens");
    }
    const auto in_vocab = vocab.find(token.content);
    const auto [place, is_new] = known.emplace(token.content, tokens.size());
    int64_t expected = is_new ? next_id : tokens[place->second].id;
    if (in_vocab != vocab.end()) expected = in_vocab->second;
    if (id != expected) {
      throw UnsupportedPart("an added token whose id does not follow the vocabulary");
    }
    if (!is_new) {
      tokens[place->second] = std::move(token);
      continue;
    }
    if (in_vocab == vocab.end()) ++next_id;
    tokens.push_back(std::move(token));
  }
  return tokens;
}

// ---- post-processors ----

SpecialTokens ReadTemplate(const ConfigFields& processor) {
  const ConfigFields special_tokens = processor.Object("special_tokens");
  SpecialTokens result;
  bool after_text = false;
  for (const ConfigFields& piece : processor.Objects("single")) {
    if (piece.Has("Sequence")) {
      if (after_text) throw UnsupportedPart("\"TemplateProcessing\" that repeats a text");
      after_text = true;
      continue;
    }
    const std::string name = piece.Object("SpecialToken").String("id");
    const std::vector<int64_t> ids = special_tokens.Object(name.c_str()).Sizes("ids");
    for (int64_t id : ids) {
      if (id > kMaxModelId) processor.Fail("special_tokens", "have an id out of range");
      (after_text ? result.back : result.front).push_back(static_cast<int32_t>(id));
    }
  }
  if (!after_text) throw UnsupportedPart("\"TemplateProcessing\" without a text");
  return result;
}

// ["</s>", 2]
int32_t IdOfPair(const ConfigFields& processor, const char* name) {
  const JsonArray& pair = RequiredMember(processor, name).AsArray();
  if (pair.size() != 2) processor.FailValue(name, "a token and its id");
  return ModelId(pair[1]);
}

// Reads `add_bos_token` and `bos_token` of a folder's tokenizer_config.json.
void ReadBosChoice(const std::string& tokenizer_json, TokenizerParts* parts) {
  const auto folder = std::filesystem::path(tokenizer_json).parent_path();
  const std::string path = (folder / "tokenizer_config.json").string();
  if (!HasModelFile(path)) return;
  const ConfigFields config = ReadModelFile(path);
  const JsonValue* choice = config.Find("add_bos_token");
  const JsonValue* bos = config.Find("bos_token");
  if (bos != nullptr && bos->is_object()) bos = bos->Find("content");
  if (choice == nullptr || !choice->is_bool() || bos == nullptr || !bos->is_string()) return;
  std::optional<int32_t> id;
  if (const auto found = parts->vocab->find(bos->AsString()); found != parts->vocab->end()) {
    id = found->second;
  }
  for (const AddedToken& token : parts->added_tokens) {
    if (token.content == bos->AsString()) id = token.id;
  }
  if (!id) return;
  std::vector<int32_t>& front = parts->special_tokens.front;
  if (!choice->AsBool()) {
    std::erase(front, *id);
  } else if (std::ranges::find(front, *id) == front.end()) {
    front.insert(front.begin(), *id);
  }
}

// Adds the regular expressions within a part of a file, which are all members named "Regex".
void AddPatterns(const JsonValue* part, std::vector<std::string>* patterns) {
  if (part == nullptr) return;
  if (part->is_array()) {
    for (const JsonValue& item : part->AsArray()) AddPatterns(&item, patterns);
  } else if (part->is_object()) {
    for (const JsonMember& member : part->AsObject()) {
      if (member.name == "Regex" && member.value.is_string()) {
        patterns->push_back(member.value.AsString());
      }
      AddPatterns(&member.value, patterns);
    }
  }
}

TokenizerParts ReadParts(const std::string& path, const ConfigFields& file) {
  TokenizerParts parts;
  for (const char* part : {"normalizer", "pre_tokenizer", "decoder"}) {
    AddPatterns(file.Find(part), &parts.patterns);
  }
  if (file.Has("normalizer")) ReadNormalizer(file.Object("normalizer"), &parts);
  const bool byte_level =
      file.Has("pre_tokenizer") && ReadPreTokenizer(file.Object("pre_tokenizer"), &parts);
  ReadModel(file.Object("model"), byte_level, &parts);
  parts.added_tokens = ReadAddedTokens(file, *parts.vocab);
  const bool takes_spaces = std::ranges::any_of(
      parts.added_tokens, [](const AddedToken& token) { return token.lstrip || token.rstrip; });
  if (takes_spaces) parts.most_shrinking = 0;
  if (file.Has("post_processor")) {
    parts.special_tokens = ReadPostProcessor(file.Object("post_processor"));
  }
  ReadBosChoice(path, &parts);
  return parts;
}

}  // namespace

void ReadModel(const ConfigFields& model, bool byte_level, TokenizerParts* parts) {
  const bool is_list = RequiredMember(model, "vocab").is_array();
  const std::string type = model.String("type", is_list ? "Unigram" : "BPE");
  if (type == "BPE") {
    ReadBpe(model, byte_level, parts);
  } else if (type == "Unigram") {
    ReadUnigram(model, byte_level, parts);
  } else {
    throw UnsupportedPart("model type \"" + type + '"');
  }
}

SpecialTokens ReadPostProcessor(const ConfigFields& post_processor) {
  const std::string type = post_processor.String("type");
  SpecialTokens result;
  if (type == "Sequence") {
    for (const ConfigFields& inner : post_processor.Objects("processors")) {
      const SpecialTokens outer = ReadPostProcessor(inner);
      result.front.insert(result.front.begin(), outer.front.begin(), outer.front.end());
      result.back.insert(result.back.end(), outer.back.begin(), outer.back.end());
    }
  } else if (type == "TemplateProcessing") {
    result = ReadTemplate(post_processor);
  } else if (type == "RobertaProcessing" || type == "BertProcessing") {
    result = {{IdOfPair(post_processor, "cls")}, {IdOfPair(post_processor, "sep")}};
  } else if (type != "ByteLevel") {
    throw UnsupportedPart("post-processor \"" + type + '"');
  }
  return result;
}

ConfigFields ReadTokenizerFile(const std::string& path) {
  try {
    return ReadModelFile(path);
  } catch (const LoadError& error) {
    throw LoadError("tokenizer.json", error.what());
  }
}

TokenizerParts ReadTokenizerParts(const std::string& path, const ConfigFields& file) {
  try {
    return ReadParts(path, file);
  } catch (const LoadError& error) {  // about a field of it
    throw LoadError("tokenizer.json", error.what());
  } catch (const JsonError& error) {  // an entry of the vocabulary or a merge has a wrong type
    throw LoadError("tokenizer.json", path + ": " + error.what());
  }
}

}  // namespace mlc_native
