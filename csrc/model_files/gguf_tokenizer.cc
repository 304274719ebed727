#include "model_files/gguf_tokenizer.h"

#include <algorithm>
#include <iterator>
#include <optional>
#include <tuple>
#include <unordered_map>

#include "support/json.h"

namespace mlc_native {
namespace {

constexpr char kModel[] = "tokenizer.ggml.model";
constexpr char kPre[] = "tokenizer.ggml.pre";
constexpr char kTokens[] = "tokenizer.ggml.tokens";
constexpr char kTypes[] = "tokenizer.ggml.token_type";
constexpr char kScores[] = "tokenizer.ggml.scores";
constexpr char kMerges[] = "tokenizer.ggml.merges";
constexpr std::string_view kMetaspace = "\xE2\x96\x81";  // U+2581
constexpr size_t kMaxTokens = size_t{1} << 20;
constexpr size_t kMaxTokenBytes = 512;  // of a token that is made of two others

// Values of tokenizer.ggml.token_type, which are those of SentencePiece.
enum TokenType : int64_t { kNormal = 1, kUnknown, kControl, kUserDefined, kUnused, kByte };

// Of control tokens; converters do not always say which of them end a turn.
constexpr std::string_view kEndTexts[] = {
    "<|eot_id|>",    "<|eom_id|>", "<|im_end|>",      "<|end|>", "<end_of_turn>",
    "<|endoftext|>", "<|return|>", "<|end_of_text|>", "<EOT>",   "<|END_OF_TURN_TOKEN|>",
    "<turn|>",
};
// Gemma 4 ends its calls of tools with it. The converter makes no control token of it.
constexpr std::string_view kEndOfCalls = "<|tool_response>";

struct Vocabulary {
  explicit Vocabulary(const GgufFile& file)
      : tokens(file.Strings(kTokens)), types(file.Integers(kTypes)) {
    if (tokens.size() > kMaxTokens) {
      file.Fail(kTokens, "has " + std::to_string(tokens.size()) + " tokens, allowed are " +
                             std::to_string(kMaxTokens));
    }
    if (!types.empty() && types.size() != tokens.size()) {
      file.Fail(kTypes, "has " + std::to_string(types.size()) + " entries for " +
                            std::to_string(tokens.size()) + " tokens");
    }
  }

  int64_t type(size_t id) const { return types.empty() ? kNormal : types[id]; }
  // Found in texts before these are split into words.
  bool is_added(size_t id) const {
    return type(id) == kControl || type(id) == kUserDefined || type(id) == kUnknown;
  }

  std::vector<std::string_view> tokens;
  std::vector<int64_t> types;
};

void PutType(JsonWriter& json, const char* type) { json.BeginObject().Add("type", type); }

void PutByteLevel(JsonWriter& json, bool use_regex) {
  PutType(json, "ByteLevel");
  json.Add("add_prefix_space", false).Add("trim_offsets", true).Add("use_regex", use_regex);
  json.EndObject();
}

void PutReplace(JsonWriter& json, std::string_view from, std::string_view to) {
  PutType(json, "Replace");
  json.Name("pattern").BeginObject().Add("String", from).EndObject();
  json.Add("content", to).EndObject();
}

void PutVocabulary(JsonWriter& json, const Vocabulary& vocabulary) {
  json.Name("vocab").BeginObject();
  for (size_t id = 0; id < vocabulary.tokens.size(); ++id) {
    if (vocabulary.type(id) == kUnused) continue;
    json.Add(vocabulary.tokens[id], id);
  }
  json.EndObject();
}

// Whether spaces behind a token belong to it. Phi-3's tokenizer.json says so of all added tokens
// but three; GGUF files have no place for it.
bool TakesSpacesBehind(const GgufFile& file, std::string_view token) {
  constexpr std::string_view kOthers[] = {"<unk>", "<s>", "<|endoftext|>"};
  const std::string family = file.String("general.architecture").value_or("");
  const bool is_phi3 = (family == "phi3" || family == "phimoe") && file.String(kModel) == "llama";
  return is_phi3 && std::ranges::find(kOthers, token) == std::end(kOthers);
}

void PutAddedTokens(JsonWriter& json, const GgufFile& file, const Vocabulary& vocabulary) {
  json.Name("added_tokens").BeginArray();
  for (size_t id = 0; id < vocabulary.tokens.size(); ++id) {
    if (!vocabulary.is_added(id) || vocabulary.tokens[id].empty()) continue;
    json.BeginObject().Add("id", id).Add("content", vocabulary.tokens[id]);
    for (const char* option : {"single_word", "lstrip", "normalized"}) json.Add(option, false);
    json.Add("rstrip", TakesSpacesBehind(file, vocabulary.tokens[id]));
    json.Add("special", vocabulary.type(id) != kUserDefined).EndObject();
  }
  json.EndArray();
}

bool AddsBos(const GgufFile& file, bool absent) {
  return file.Bool("tokenizer.ggml.add_bos_token").value_or(absent);
}

// The tokens in front of a text and behind it.
void PutPostProcessor(JsonWriter& json, const GgufFile& file, const Vocabulary& vocabulary,
                      bool adds_bos) {
  const auto id_of = [&](bool adds, const char* key) -> std::optional<size_t> {
    const std::optional<int64_t> id = file.Integer(key);
    if (!adds || !id || *id < 0) return std::nullopt;
    if (static_cast<size_t>(*id) >= vocabulary.tokens.size()) {
      file.Fail(key, "= " + std::to_string(*id) + " is no token");
    }
    return static_cast<size_t>(*id);
  };
  const bool adds_eos = file.Bool("tokenizer.ggml.add_eos_token").value_or(false);
  const auto bos = id_of(adds_bos, "tokenizer.ggml.bos_token_id");
  const auto eos = id_of(adds_eos, "tokenizer.ggml.eos_token_id");
  json.Name("post_processor");
  if (!bos && !eos) {
    json.Null();
    return;
  }
  const auto put_special = [&](const std::optional<size_t>& id) {
    if (!id) return;
    json.BeginObject().Name("SpecialToken").BeginObject();
    json.Add("id", vocabulary.tokens[*id]).Add("type_id", 0).EndObject().EndObject();
  };
  const auto put_text = [&](const char* text) {
    json.BeginObject().Name("Sequence").BeginObject();
    json.Add("id", text).Add("type_id", 0).EndObject().EndObject();
  };
  PutType(json, "TemplateProcessing");
  for (const bool is_pair : {false, true}) {
    json.Name(is_pair ? "pair" : "single").BeginArray();
    put_special(bos);
    put_text("A");
    if (is_pair) put_text("B");
    put_special(eos);
    json.EndArray();
  }
  json.Name("special_tokens").BeginObject();
  for (const auto& id : {bos, eos != bos ? eos : std::nullopt}) {
    if (!id) continue;
    json.Name(vocabulary.tokens[*id]).BeginObject().Add("id", vocabulary.tokens[*id]);
    json.Name("ids").BeginArray().Put(*id).EndArray();
    json.Name("tokens").BeginArray().Put(vocabulary.tokens[*id]).EndArray().EndObject();
  }
  json.EndObject().EndObject();
}

void BeginFile(JsonWriter& json, const GgufFile& file, const Vocabulary& vocabulary) {
  json.BeginObject().Add("version", "1.0");
  json.Name("truncation").Null().Name("padding").Null();
  PutAddedTokens(json, file, vocabulary);
}

// ---- Byte-level BPE ----

const GgufPreTokenizer& PreTokenizerOf(const GgufFile& file) {
  const std::string name = file.String(kPre).value_or("default");
  const GgufPreTokenizer* found = FindGgufPreTokenizer(name);
  if (found != nullptr) return *found;
  file.Fail(kPre, "= " + JsonExcerpt(JsonValue(name)) +
                      " is not supported; supported: " + GgufPreTokenizerList());
}

void PutPreTokenizer(JsonWriter& json, const GgufPreTokenizer& words) {
  json.Name("pre_tokenizer");
  PutType(json, "Sequence");
  json.Name("pretokenizers").BeginArray();
  if (words.single_digits) {
    PutType(json, "Digits");
    json.Add("individual_digits", true).EndObject();
  }
  for (const std::string_view regex : words.regexes) {
    PutType(json, "Split");
    json.Name("pattern").BeginObject().Add("Regex", regex).EndObject();
    json.Add("behavior", "Isolated").Add("invert", false).EndObject();
  }
  PutByteLevel(json, words.regexes.empty());
  json.EndArray().EndObject();
}

// A merge as one text: its parts have no spaces.
void PutMerges(JsonWriter& json, const GgufFile& file, bool with_merges) {
  if (!file.Has(kMerges)) file.Fail(kMerges, "is missing");
  json.Name("merges").BeginArray();
  if (with_merges) {
    for (std::string_view merge : file.Strings(kMerges)) json.Put(merge);
  }
  json.EndArray();
}

std::string ByteLevelJson(const GgufFile& file, bool with_merges) {
  const Vocabulary vocabulary(file);
  const GgufPreTokenizer& words = PreTokenizerOf(file);
  JsonWriter json;
  BeginFile(json, file, vocabulary);
  json.Name("normalizer");
  if (words.composes) {
    PutType(json, "NFC");
    json.EndObject();
  } else {
    json.Null();
  }
  PutPreTokenizer(json, words);
  PutPostProcessor(json, file, vocabulary, AddsBos(file, words.adds_bos));
  json.Name("decoder");
  PutByteLevel(json, true);
  json.Name("model");
  PutType(json, "BPE");
  for (const char* absent :
       {"dropout", "unk_token", "continuing_subword_prefix", "end_of_word_suffix"}) {
    json.Name(absent).Null();
  }
  json.Add("fuse_unk", false).Add("byte_fallback", false);
  json.Add("ignore_merges", words.ignore_merges);
  PutVocabulary(json, vocabulary);
  PutMerges(json, file, with_merges);
  json.EndObject().EndObject();
  return json.Take();
}

// ---- SentencePiece's BPE ----

// The merges that spell the tokens, in the order of their scores. SentencePiece joins the two
// neighbours whose union has the best score; that is a list of merges in which the scores fall.
class Merges {
 public:
  Merges(const Vocabulary& vocabulary, const std::vector<double>& scores) : scores_(scores) {
    for (size_t id = 0; id < vocabulary.tokens.size(); ++id) {
      const int64_t type = vocabulary.type(id);
      if (type == kNormal || type == kUserDefined) ids_.emplace(vocabulary.tokens[id], id);
    }
    for (const auto& [token, id] : ids_) AddMergesOf(token, id);
    std::ranges::sort(merges_, [&](const Merge& a, const Merge& b) { return Key(a) < Key(b); });
  }

  void Put(JsonWriter& json) const {
    json.Name("merges").BeginArray();
    for (const Merge& merge : merges_) {
      json.BeginArray().Put(merge.left).Put(merge.right).EndArray();
    }
    json.EndArray();
  }

 private:
  struct Merge {
    std::string_view left, right;
    size_t left_id, right_id, whole;
  };

  // As transformers orders them: longer first parts precede shorter ones of equal score.
  std::tuple<double, size_t, size_t, size_t, size_t, size_t> Key(const Merge& m) const {
    const auto falling = [](size_t size) { return kMaxTokenBytes - size; };
    return {-scores_[m.whole], falling(m.left.size()), falling(m.right.size()), m.whole, m.left_id,
            m.right_id};
  }

  void AddMergesOf(std::string_view token, size_t id) {
    if (token.size() > kMaxTokenBytes) return;
    for (size_t at = 1; at < token.size(); ++at) {
      if ((static_cast<unsigned char>(token[at]) & 0xC0) == 0x80) continue;  // within a character
      const auto left = ids_.find(token.substr(0, at));
      if (left == ids_.end()) continue;
      const auto right = ids_.find(token.substr(at));
      if (right == ids_.end()) continue;
      merges_.push_back({left->first, right->first, left->second, right->second, id});
    }
  }

  const std::vector<double>& scores_;
  std::unordered_map<std::string_view, size_t> ids_;
  std::vector<Merge> merges_;
};

void PutSpaces(JsonWriter& json, bool adds_space) {
  json.Name("normalizer");
  PutType(json, "Sequence");
  json.Name("normalizers").BeginArray();
  if (adds_space) {
    PutType(json, "Prepend");
    json.Add("prepend", kMetaspace).EndObject();
  }
  PutReplace(json, " ", kMetaspace);
  json.EndArray().EndObject();
  json.Name("pre_tokenizer").Null();
}

void PutFallbackDecoder(JsonWriter& json, bool adds_space) {
  json.Name("decoder");
  PutType(json, "Sequence");
  json.Name("decoders").BeginArray();
  PutReplace(json, kMetaspace, " ");
  for (const char* step : {"ByteFallback", "Fuse"}) {
    PutType(json, step);
    json.EndObject();
  }
  if (adds_space) {
    PutType(json, "Strip");
    json.Add("content", " ").Add("start", 1).Add("stop", 0).EndObject();
  }
  json.EndArray().EndObject();
}

std::optional<std::string_view> UnknownToken(const GgufFile& file, const Vocabulary& vocabulary) {
  const auto unknown = std::ranges::find(vocabulary.types, kUnknown);
  if (unknown != vocabulary.types.end()) {
    return vocabulary.tokens[static_cast<size_t>(unknown - vocabulary.types.begin())];
  }
  const std::optional<int64_t> id = file.Integer("tokenizer.ggml.unknown_token_id");
  if (!id || *id < 0 || static_cast<size_t>(*id) >= vocabulary.tokens.size()) return std::nullopt;
  return vocabulary.tokens[static_cast<size_t>(*id)];
}

// Of characters and bytes, with spaces as "▁"; `put_merges` adds the merges to the model.
template <typename PutMergesOf>
std::string SpacedJson(const GgufFile& file, const Vocabulary& vocabulary, bool adds_space,
                       bool adds_bos, const PutMergesOf& put_merges) {
  JsonWriter json;
  BeginFile(json, file, vocabulary);
  PutSpaces(json, adds_space);
  PutPostProcessor(json, file, vocabulary, adds_bos);
  PutFallbackDecoder(json, adds_space);
  json.Name("model");
  PutType(json, "BPE");
  for (const char* absent : {"dropout", "continuing_subword_prefix", "end_of_word_suffix"}) {
    json.Name(absent).Null();
  }
  json.Name("unk_token");
  const auto unknown = UnknownToken(file, vocabulary);
  unknown ? json.Put(*unknown) : json.Null();
  json.Add("fuse_unk", true).Add("byte_fallback", true).Add("ignore_merges", false);
  PutVocabulary(json, vocabulary);
  put_merges(json);
  json.EndObject().EndObject();
  return json.Take();
}

std::string SentencePieceJson(const GgufFile& file, bool with_merges) {
  const Vocabulary vocabulary(file);
  const std::vector<double> scores = file.Numbers(kScores);
  if (scores.size() != vocabulary.tokens.size()) {
    file.Fail(kScores, "has " + std::to_string(scores.size()) + " entries for " +
                           std::to_string(vocabulary.tokens.size()) + " tokens");
  }
  const bool adds_space = file.Bool("tokenizer.ggml.add_space_prefix").value_or(true);
  return SpacedJson(file, vocabulary, adds_space, AddsBos(file, true), [&](JsonWriter& json) {
    if (with_merges) Merges(vocabulary, scores).Put(json);
  });
}

// Its merges are those of the file. Every text begins with a token, also where the file says
// otherwise, as some of the first ones do.
std::string Gemma4Json(const GgufFile& file, bool with_merges) {
  return SpacedJson(file, Vocabulary(file), /*adds_space=*/false, /*adds_bos=*/true,
                    [&](JsonWriter& json) { PutMerges(json, file, with_merges); });
}

}  // namespace

bool HasGgufTokenizer(const GgufFile& file) { return file.Has(kModel); }

std::string GgufTokenizerJson(const GgufFile& file, bool with_merges) {
  const std::string model = file.String(kModel).value_or("");
  if (model == "gpt2") return ByteLevelJson(file, with_merges);
  if (model == "llama") return SentencePieceJson(file, with_merges);
  if (model == "gemma4") return Gemma4Json(file, with_merges);
  file.Fail(kModel, "= " + JsonExcerpt(JsonValue(model)) +
                        " is not supported; supported: gpt2, llama, gemma4");
}

std::vector<int64_t> GgufEndTokens(const GgufFile& file) {
  std::vector<int64_t> ends;
  const auto add = [&](int64_t id) {
    if (id >= 0 && std::ranges::count(ends, id) == 0) ends.push_back(id);
  };
  for (const char* key : {"tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id",
                          "tokenizer.ggml.eom_token_id"}) {
    if (const std::optional<int64_t> id = file.Integer(key)) add(*id);
  }
  const Vocabulary vocabulary(file);
  for (size_t id = 0; id < vocabulary.tokens.size(); ++id) {
    const std::string_view text = vocabulary.tokens[id];
    const bool is_end = vocabulary.type(id) == kControl
                            ? std::ranges::find(kEndTexts, text) != std::end(kEndTexts)
                            : vocabulary.is_added(id) && text == kEndOfCalls;
    if (is_end) add(static_cast<int64_t>(id));
  }
  return ends;
}

}  // namespace mlc_native
