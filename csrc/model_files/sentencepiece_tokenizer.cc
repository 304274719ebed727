#include "model_files/sentencepiece_tokenizer.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <optional>
#include <span>
#include <string_view>
#include <utility>

#include "model_files/merges.h"
#include "model_files/sentencepiece_model.h"
#include "support/error.h"

namespace mlc_native {
namespace {

constexpr int64_t kMaxExtraIds = 100'000;

// How a family numbers the pieces, and what it puts around a text.
enum class Layout : uint8_t {
  kPlain,       // as the file has them, behind BOS
  kXlmRoberta,  // fairseq's: behind four tokens, and "<mask>" behind them
  kCamembert,   // behind five
  kT5,          // sentinels behind them
  kDeberta,     // between [CLS] and [SEP]
  kUnknown,
};

struct NamedLayout {
  std::string_view name;
  Layout layout;
};

constexpr NamedLayout kLayoutsOfClasses[] = {
    {"XLMRobertaTokenizer", Layout::kXlmRoberta},
    {"CamembertTokenizer", Layout::kCamembert},
    {"T5Tokenizer", Layout::kT5},
    {"DebertaV2Tokenizer", Layout::kDeberta},
    // With ids, spellings or special tokens of their own.
    {"AlbertTokenizer", Layout::kUnknown},
    {"BarthezTokenizer", Layout::kUnknown},
    {"BigBirdTokenizer", Layout::kUnknown},
    {"ChatGLMTokenizer", Layout::kUnknown},
    {"M2M100Tokenizer", Layout::kUnknown},
    {"MBartTokenizer", Layout::kUnknown},
    {"MBart50Tokenizer", Layout::kUnknown},
    {"MarianTokenizer", Layout::kUnknown},
    {"NllbTokenizer", Layout::kUnknown},
    {"PegasusTokenizer", Layout::kUnknown},
    {"RemBertTokenizer", Layout::kUnknown},
    {"XGLMTokenizer", Layout::kUnknown},
    {"XLNetTokenizer", Layout::kUnknown},
};
// Where no class is named.
constexpr NamedLayout kLayoutsOfModelTypes[] = {
    {"xlm-roberta", Layout::kXlmRoberta},
    {"camembert", Layout::kCamembert},
    {"t5", Layout::kT5},
    {"mt5", Layout::kT5},
    {"umt5", Layout::kT5},
    {"deberta-v2", Layout::kDeberta},
};
constexpr NamedLayout kLayoutsOfFiles[] = {
    {"sentencepiece.bpe.model", Layout::kXlmRoberta},
    {"spiece.model", Layout::kT5},
    {"spm.model", Layout::kDeberta},
};

template <size_t kSize>
std::optional<Layout> FindLayout(const NamedLayout (&table)[kSize], std::string_view name) {
  const auto* found = std::ranges::find(table, name, &NamedLayout::name);
  return found == std::end(table) ? std::nullopt : std::optional(found->layout);
}

Layout LayoutOf(const std::string& path, const TokenizerSettings& settings) {
  const std::string name = path.substr(path.rfind('/') + 1);
  const std::string& of_class = settings.tokenizer_class();
  std::optional<Layout> layout = FindLayout(kLayoutsOfClasses, of_class);
  if (!layout) layout = FindLayout(kLayoutsOfModelTypes, settings.model_type());
  if (!layout) layout = FindLayout(kLayoutsOfFiles, name);
  if (layout != Layout::kUnknown) return layout.value_or(Layout::kPlain);
  throw LoadError("tokenizer_class", path + ": \"tokenizer_class\" " + of_class +
                                         " is not supported with this file and without "
                                         "tokenizer.json");
}

constexpr FamilyToken kMask[] = {{"mask_token", "<mask>", true}};

// Fills a vocabulary with the pieces of a model.
class PieceReader {
 public:
  PieceReader(const SentencePieceModel& model, Vocabulary* vocabulary)
      : model_(model), vocabulary_(*vocabulary) {}

  void Add(std::string_view text, double score, TokenType type) {
    vocabulary_.tokens.push_back(text);
    vocabulary_.scores.push_back(score);
    vocabulary_.types.push_back(static_cast<int64_t>(type));
  }

  void AddPieces(size_t first) {
    for (size_t i = first; i < model_.pieces.size(); ++i) {
      const SentencePieceModel::Piece& piece = model_.pieces[i];
      Add(piece.text, static_cast<double>(piece.score), piece.type);
    }
  }

  // The four or five in front of the pieces have the ids of fairseq.
  void AddFairseq(bool is_camembert) {
    if (is_camembert) {
      for (const char* text : {"<s>NOTUSED", "<pad>", "</s>NOTUSED"}) {
        Add(text, 0.0, TokenType::kControl);
      }
    } else {
      for (const char* text : {"<s>", "<pad>", "</s>"}) Add(text, 0.0, TokenType::kControl);
    }
    Add("<unk>", 0.0, TokenType::kUnknown);
    if (is_camembert) Add("<unk>NOTUSED", -100.0, TokenType::kControl);
    AddPieces(is_camembert ? 1 : 3);
    Add("<mask>", 0.0, TokenType::kControl);
    vocabulary_.unknown = 3;
  }

  void AddSentinels(int64_t count) {
    for (int64_t i = count - 1; i >= 0; --i) {
      const std::string text = "<extra_id_" + std::to_string(i) + ">";
      Add(vocabulary_.Own(text), 0.0, TokenType::kControl);
    }
  }

 private:
  const SentencePieceModel& model_;
  Vocabulary& vocabulary_;
};

// The tokens that the vocabularies of encoders have around a text and between two.
void SurroundPieces(const TokenizerSettings& settings, const std::string& path, Layout layout,
                    Vocabulary* vocabulary) {
  const auto id_of = [&](const char* name, std::string_view text) {
    const std::optional<size_t> id = settings.IdOf(name, *vocabulary, {text});
    if (id) return *id;
    throw LoadError(name, path + ": has no token " + std::string(text) + " for \"" + name + "\"");
  };
  SpecialTemplate& around = vocabulary->around;
  if (layout == Layout::kDeberta) {
    around.front = id_of("cls_token", "[CLS]");
    around.back = id_of("sep_token", "[SEP]");
    around.between = {*around.back};
    around.second_type = 1;
    return;
  }
  around.back = id_of("eos_token", "</s>");
  around.between = {*around.back};
  if (layout == Layout::kT5) return;
  around.front = id_of("bos_token", "<s>");
  around.between.push_back(*around.back);
}

void SurroundText(const SentencePieceModel& model, const TokenizerSettings& settings,
                  Vocabulary* vocabulary) {
  const auto id_of = [&](const char* name, int64_t in_model) {
    if (settings.Token(name) || settings.IsNull(name)) {
      return settings.IdOf(name, *vocabulary, {});
    }
    return in_model < 0 ? std::nullopt : std::optional(static_cast<size_t>(in_model));
  };
  SpecialTemplate& around = vocabulary->around;
  if (settings.Bool("add_bos_token").value_or(true)) {
    around.front = id_of("bos_token", model.bos_id);
  }
  if (settings.Bool("add_eos_token").value_or(false)) {
    around.back = id_of("eos_token", model.eos_id);
  }
  if (around.front) around.between = {*around.front};
  if (around.back) around.between.insert(around.between.begin(), *around.back);
}

void ReadSpaces(const SentencePieceModel& model, const TokenizerSettings& settings, Layout layout,
                Vocabulary* vocabulary) {
  using Spaces = Vocabulary::Spaces;
  vocabulary->characters = model.characters;
  vocabulary->adds_space = settings.Bool("add_prefix_space").value_or(model.add_dummy_prefix);
  vocabulary->joins_spaces = model.remove_extra_whitespaces;
  if (layout == Layout::kPlain) {
    const bool is_legacy = settings.Bool("legacy").value_or(true);
    vocabulary->spaces = is_legacy ? Spaces::kInTexts : Spaces::kAtStart;
  } else if (layout != Layout::kDeberta) {
    vocabulary->spaces = Spaces::kInWords;
    vocabulary->joins_spaces = true;
  }
}

}  // namespace

Vocabulary ReadSentencePieceTokenizer(const std::string& path, std::string content,
                                      const TokenizerSettings& settings, bool with_merges) {
  const Layout layout = LayoutOf(path, settings);
  for (const char* unsupported : {"do_lower_case", "split_by_punct"}) {
    if (!settings.Bool(unsupported).value_or(false)) continue;
    throw LoadError(unsupported, path + ": \"" + unsupported +
                                     "\" of tokenizer_config.json is not supported with this file");
  }
  Vocabulary vocabulary;
  const SentencePieceModel model(path, vocabulary.Own(std::move(content)));
  const bool is_bpe = model.kind == SentencePieceModel::Kind::kBpe;
  if (is_bpe && layout != Layout::kPlain) {
    throw LoadError("trainer_spec.model_type",
                    path + ": \"trainer_spec.model_type\" must be 1 (unigram) for the family " +
                        (settings.tokenizer_class().empty() ? settings.model_type()
                                                            : settings.tokenizer_class()) +
                        ", got 2 (BPE)");
  }
  vocabulary.model = is_bpe ? Vocabulary::Model::kSpacedBpe : Vocabulary::Model::kUnigram;
  vocabulary.unknown = model.unk_id;
  vocabulary.falls_back_to_bytes = model.byte_fallback;
  PieceReader pieces(model, &vocabulary);
  const bool is_fairseq = layout == Layout::kXlmRoberta || layout == Layout::kCamembert;
  if (is_fairseq) {
    pieces.AddFairseq(layout == Layout::kCamembert);
  } else {
    pieces.AddPieces(0);
  }
  if (layout == Layout::kT5)
    pieces.AddSentinels(settings.Integer("extra_ids", 100, 0, kMaxExtraIds));
  ReadSpaces(model, settings, layout, &vocabulary);
  AddTokensOfTypes(&vocabulary);
  settings.AddTokens(is_fairseq ? kMask : std::span<const FamilyToken>(), &vocabulary);
  // Behind them, as some may take the places of pieces.
  if (is_bpe && with_merges) vocabulary.merge_pairs = MergesByScore(vocabulary, path);
  if (layout == Layout::kPlain) {
    SurroundText(model, settings, &vocabulary);
  } else {
    SurroundPieces(settings, path, layout, &vocabulary);
  }
  return vocabulary;
}

}  // namespace mlc_native
