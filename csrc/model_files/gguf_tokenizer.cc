#include "model_files/gguf_tokenizer.h"

#include <algorithm>
#include <iterator>
#include <optional>
#include <string>
#include <string_view>

#include "model_files/gguf_encoder_vocabularies.h"
#include "model_files/gguf_encoders.h"
#include "model_files/gguf_vocabulary.h"
#include "model_files/merges.h"
#include "model_files/word_splits.h"
#include "support/json.h"

namespace mlc_native {
namespace {

constexpr char kPre[] = "tokenizer.ggml.pre";
constexpr char kMerges[] = "tokenizer.ggml.merges";

// Of control tokens; converters do not always say which of them end a turn.
constexpr std::string_view kEndTexts[] = {
    "<|eot_id|>",    "<|eom_id|>", "<|im_end|>",      "<|end|>", "<end_of_turn>",
    "<|endoftext|>", "<|return|>", "<|end_of_text|>", "<EOT>",   "<|END_OF_TURN_TOKEN|>",
    "<turn|>",
};
// Gemma 4 ends its calls of tools with it. The converter makes no control token of it.
constexpr std::string_view kEndOfCalls = "<|tool_response>";

// The tokens in front of a text and behind it. Encoders have some between two texts.
SpecialTemplate TemplateOf(const GgufFile& file, const Vocabulary& vocabulary, bool adds_bos) {
  SpecialTemplate around;
  const bool adds_eos = file.Bool("tokenizer.ggml.add_eos_token").value_or(false);
  if (adds_bos) around.front = GgufTokenId(file, vocabulary, kGgufBos);
  if (adds_eos) around.back = GgufTokenId(file, vocabulary, kGgufEos);
  if (around.back && IsGgufEncoder(file)) {
    around.between.assign(file.String(kPre) == "roberta-bpe" ? 2 : 1, *around.back);
  }
  return around;
}

bool AddsBos(const GgufFile& file, bool absent) {
  return file.Bool("tokenizer.ggml.add_bos_token").value_or(absent);
}

// Each merge as one text: its parts have no spaces.
void ReadMerges(const GgufFile& file, bool with_merges, Vocabulary* vocabulary) {
  if (!file.Has(kMerges)) file.Fail(kMerges, "is missing");
  if (with_merges) vocabulary->merge_texts = file.Strings(kMerges);
}

const WordSplit& WordsOf(const GgufFile& file) {
  const std::string name = file.String(kPre).value_or("default");
  const WordSplit* found = FindWordSplit(name);
  if (found != nullptr) return *found;
  file.Fail(kPre, "= " + JsonExcerpt(JsonValue(name)) +
                      " is not supported; supported: " + WordSplitList());
}

Vocabulary ReadByteLevel(const GgufFile& file, bool with_merges) {
  Vocabulary vocabulary = ReadGgufVocabulary(file);
  vocabulary.model = Vocabulary::Model::kByteLevelBpe;
  vocabulary.words = WordsOf(file);
  vocabulary.around = TemplateOf(file, vocabulary, AddsBos(file, vocabulary.words.adds_bos));
  ReadMerges(file, with_merges, &vocabulary);
  return vocabulary;
}

// Of characters and bytes, with spaces as U+2581.
Vocabulary ReadSpaced(const GgufFile& file, bool adds_space, bool adds_bos) {
  Vocabulary vocabulary = ReadGgufVocabulary(file);
  vocabulary.model = Vocabulary::Model::kSpacedBpe;
  vocabulary.adds_space = adds_space;
  vocabulary.around = TemplateOf(file, vocabulary, adds_bos);
  vocabulary.unknown = GgufUnknownId(file, vocabulary);
  vocabulary.falls_back_to_bytes = true;
  return vocabulary;
}

Vocabulary ReadSentencePiece(const GgufFile& file, bool with_merges) {
  const bool adds_space = file.Bool("tokenizer.ggml.add_space_prefix").value_or(true);
  Vocabulary vocabulary = ReadSpaced(file, adds_space, AddsBos(file, true));
  vocabulary.scores = GgufScores(file, vocabulary);
  if (with_merges) vocabulary.merge_pairs = MergesByScore(vocabulary, file.path());
  return vocabulary;
}

// Its merges are those of the file. Every text begins with a token, also where the file says
// otherwise, as some of the first ones do.
Vocabulary ReadGemma4(const GgufFile& file, bool with_merges) {
  Vocabulary vocabulary = ReadSpaced(file, /*adds_space=*/false, /*adds_bos=*/true);
  ReadMerges(file, with_merges, &vocabulary);
  return vocabulary;
}

}  // namespace

bool HasGgufTokenizer(const GgufFile& file) { return file.Has(kGgufTokenizerModel); }

Vocabulary ReadGgufTokenizer(const GgufFile& file, bool with_merges) {
  const std::string model = file.String(kGgufTokenizerModel).value_or("");
  if (model == "gpt2") return ReadByteLevel(file, with_merges);
  if (model == "llama") return ReadSentencePiece(file, with_merges);
  if (model == "gemma4") return ReadGemma4(file, with_merges);
  if (model == "bert") return ReadGgufWordPiece(file);
  if (model == "t5") return ReadGgufUnigram(file);
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
  const Vocabulary vocabulary = ReadGgufVocabulary(file);
  for (size_t id = 0; id < vocabulary.tokens.size(); ++id) {
    const std::string_view text = vocabulary.tokens[id];
    const bool is_end = vocabulary.type(id) == TokenType::kControl
                            ? std::ranges::find(kEndTexts, text) != std::end(kEndTexts)
                            : IsAddedType(vocabulary.type(id)) && text == kEndOfCalls;
    if (is_end) add(static_cast<int64_t>(id));
  }
  return ends;
}

}  // namespace mlc_native
