#include "model_files/gguf_tokenizer.h"

#include <algorithm>
#include <iterator>
#include <optional>
#include <tuple>
#include <unordered_map>

#include "model_files/gguf_encoder_tokenizers.h"
#include "model_files/gguf_encoders.h"
#include "model_files/gguf_vocabulary.h"
#include "support/json.h"

namespace mlc_native {
namespace {

constexpr char kPre[] = "tokenizer.ggml.pre";
constexpr char kMerges[] = "tokenizer.ggml.merges";
constexpr size_t kMaxTokenBytes = 512;  // of a token that is made of two others

// Of control tokens; converters do not always say which of them end a turn.
constexpr std::string_view kEndTexts[] = {
    "<|eot_id|>",    "<|eom_id|>", "<|im_end|>",      "<|end|>", "<end_of_turn>",
    "<|endoftext|>", "<|return|>", "<|end_of_text|>", "<EOT>",   "<|END_OF_TURN_TOKEN|>",
    "<turn|>",
};
// Gemma 4 ends its calls of tools with it. The converter makes no control token of it.
constexpr std::string_view kEndOfCalls = "<|tool_response>";

void PutByteLevel(JsonWriter& json, bool use_regex) {
  PutGgufType(json, "ByteLevel");
  json.Add("add_prefix_space", false).Add("trim_offsets", true).Add("use_regex", use_regex);
  json.EndObject();
}

void PutReplace(JsonWriter& json, std::string_view from, std::string_view to) {
  PutGgufType(json, "Replace");
  json.Name("pattern").BeginObject().Add("String", from).EndObject();
  json.Add("content", to).EndObject();
}

bool AddsBos(const GgufFile& file, bool absent) {
  return file.Bool("tokenizer.ggml.add_bos_token").value_or(absent);
}

// The tokens in front of a text and behind it. Encoders have some between two texts.
void PutTemplate(JsonWriter& json, const GgufFile& file, const GgufVocabulary& vocabulary,
                 bool adds_bos) {
  GgufTemplate around;
  const bool adds_eos = file.Bool("tokenizer.ggml.add_eos_token").value_or(false);
  if (adds_bos) around.front = vocabulary.IdOf(file, kGgufBos);
  if (adds_eos) around.back = vocabulary.IdOf(file, kGgufEos);
  if (around.back && IsGgufEncoder(file)) {
    around.between.assign(file.String(kPre) == "roberta-bpe" ? 2 : 1, *around.back);
  }
  PutGgufTemplate(json, vocabulary, around);
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
  PutGgufType(json, "Sequence");
  json.Name("pretokenizers").BeginArray();
  if (words.single_digits) {
    PutGgufType(json, "Digits");
    json.Add("individual_digits", true).EndObject();
  }
  for (const std::string_view regex : words.regexes) {
    PutGgufType(json, "Split");
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
  const GgufVocabulary vocabulary(file);
  const GgufPreTokenizer& words = PreTokenizerOf(file);
  JsonWriter json;
  BeginGgufTokenizer(json, file, vocabulary);
  json.Name("normalizer");
  if (words.composes) {
    PutGgufType(json, "NFC");
    json.EndObject();
  } else {
    json.Null();
  }
  PutPreTokenizer(json, words);
  PutTemplate(json, file, vocabulary, AddsBos(file, words.adds_bos));
  json.Name("decoder");
  PutByteLevel(json, true);
  json.Name("model");
  PutGgufType(json, "BPE");
  for (const char* absent :
       {"dropout", "unk_token", "continuing_subword_prefix", "end_of_word_suffix"}) {
    json.Name(absent).Null();
  }
  json.Add("fuse_unk", false).Add("byte_fallback", false);
  json.Add("ignore_merges", words.ignore_merges);
  PutGgufIds(json, vocabulary);
  PutMerges(json, file, with_merges);
  json.EndObject().EndObject();
  return json.Take();
}

// ---- SentencePiece's BPE ----

// The merges that spell the tokens, in the order of their scores. SentencePiece joins the two
// neighbours whose union has the best score; that is a list of merges in which the scores fall.
class Merges {
 public:
  Merges(const GgufVocabulary& vocabulary, const std::vector<double>& scores) : scores_(scores) {
    for (size_t id = 0; id < vocabulary.tokens.size(); ++id) {
      const GgufTokenType type = vocabulary.type(id);
      const bool is_text = type == GgufTokenType::kNormal || type == GgufTokenType::kUserDefined;
      if (is_text) ids_.emplace(vocabulary.tokens[id], id);
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
  PutGgufType(json, "Sequence");
  json.Name("normalizers").BeginArray();
  if (adds_space) {
    PutGgufType(json, "Prepend");
    json.Add("prepend", kGgufSpace).EndObject();
  }
  PutReplace(json, " ", kGgufSpace);
  json.EndArray().EndObject();
  json.Name("pre_tokenizer").Null();
}

void PutFallbackDecoder(JsonWriter& json, bool adds_space) {
  json.Name("decoder");
  PutGgufType(json, "Sequence");
  json.Name("decoders").BeginArray();
  PutReplace(json, kGgufSpace, " ");
  for (const char* step : {"ByteFallback", "Fuse"}) {
    PutGgufType(json, step);
    json.EndObject();
  }
  if (adds_space) {
    PutGgufType(json, "Strip");
    json.Add("content", " ").Add("start", 1).Add("stop", 0).EndObject();
  }
  json.EndArray().EndObject();
}

// Of characters and bytes, with spaces as "▁"; `put_merges` adds the merges to the model.
template <typename PutMergesOf>
std::string SpacedJson(const GgufFile& file, const GgufVocabulary& vocabulary, bool adds_space,
                       bool adds_bos, const PutMergesOf& put_merges) {
  JsonWriter json;
  BeginGgufTokenizer(json, file, vocabulary);
  PutSpaces(json, adds_space);
  PutTemplate(json, file, vocabulary, adds_bos);
  PutFallbackDecoder(json, adds_space);
  json.Name("model");
  PutGgufType(json, "BPE");
  for (const char* absent : {"dropout", "continuing_subword_prefix", "end_of_word_suffix"}) {
    json.Name(absent).Null();
  }
  json.Name("unk_token");
  const auto unknown = vocabulary.IdOfUnknown(file);
  unknown ? json.Put(vocabulary.tokens[*unknown]) : json.Null();
  json.Add("fuse_unk", true).Add("byte_fallback", true).Add("ignore_merges", false);
  PutGgufIds(json, vocabulary);
  put_merges(json);
  json.EndObject().EndObject();
  return json.Take();
}

std::string SentencePieceJson(const GgufFile& file, bool with_merges) {
  const GgufVocabulary vocabulary(file);
  const std::vector<double> scores = vocabulary.Scores(file);
  const bool adds_space = file.Bool("tokenizer.ggml.add_space_prefix").value_or(true);
  return SpacedJson(file, vocabulary, adds_space, AddsBos(file, true), [&](JsonWriter& json) {
    if (with_merges) Merges(vocabulary, scores).Put(json);
  });
}

// Its merges are those of the file. Every text begins with a token, also where the file says
// otherwise, as some of the first ones do.
std::string Gemma4Json(const GgufFile& file, bool with_merges) {
  return SpacedJson(file, GgufVocabulary(file), /*adds_space=*/false, /*adds_bos=*/true,
                    [&](JsonWriter& json) { PutMerges(json, file, with_merges); });
}

}  // namespace

bool HasGgufTokenizer(const GgufFile& file) { return file.Has(kGgufTokenizerModel); }

std::string GgufTokenizerJson(const GgufFile& file, bool with_merges) {
  const std::string model = file.String(kGgufTokenizerModel).value_or("");
  if (model == "gpt2") return ByteLevelJson(file, with_merges);
  if (model == "llama") return SentencePieceJson(file, with_merges);
  if (model == "gemma4") return Gemma4Json(file, with_merges);
  if (model == "bert") return GgufWordPieceJson(file);
  if (model == "t5") return GgufUnigramJson(file);
  file.Fail(kGgufTokenizerModel, "= " + JsonExcerpt(JsonValue(model)) +
                                     " is not supported; supported: gpt2, llama, gemma4, bert, t5");
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
  const GgufVocabulary vocabulary(file);
  for (size_t id = 0; id < vocabulary.tokens.size(); ++id) {
    const std::string_view text = vocabulary.tokens[id];
    const bool is_end = vocabulary.type(id) == GgufTokenType::kControl
                            ? std::ranges::find(kEndTexts, text) != std::end(kEndTexts)
                            : vocabulary.is_added(id) && text == kEndOfCalls;
    if (is_end) add(static_cast<int64_t>(id));
  }
  return ends;
}

}  // namespace mlc_native
