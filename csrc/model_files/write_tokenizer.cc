#include "model_files/write_tokenizer.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <set>
#include <string_view>

#include "support/base64.h"
#include "support/json.h"

namespace mlc_native {
namespace {

void BeginType(JsonWriter& json, const char* type) { json.BeginObject().Add("type", type); }

void PutReplace(JsonWriter& json, const char* kind, std::string_view from, std::string_view to) {
  BeginType(json, "Replace");
  json.Name("pattern").BeginObject().Add(kind, from).EndObject();
  json.Add("content", to).EndObject();
}

void PutAddedTokens(JsonWriter& json, const Vocabulary& vocabulary) {
  json.Name("added_tokens").BeginArray();
  for (const AddedTokenText& token : vocabulary.added) {
    json.BeginObject().Add("id", token.id).Add("content", vocabulary.tokens[token.id]);
    json.Add("single_word", token.single_word).Add("lstrip", token.lstrip);
    json.Add("normalized", token.normalized).Add("rstrip", token.rstrip);
    json.Add("special", token.special).EndObject();
  }
  json.EndArray();
}

// The post-processor.
void PutTemplate(JsonWriter& json, const Vocabulary& vocabulary) {
  const SpecialTemplate& around = vocabulary.around;
  json.Name("post_processor");
  if (!around.front && !around.back) {
    json.Null();
    return;
  }
  std::set<size_t> named;
  const auto put_special = [&](size_t id, int type) {
    named.insert(id);
    json.BeginObject().Name("SpecialToken").BeginObject();
    json.Add("id", vocabulary.tokens[id]).Add("type_id", type).EndObject().EndObject();
  };
  const auto put_text = [&](const char* text, int type) {
    json.BeginObject().Name("Sequence").BeginObject();
    json.Add("id", text).Add("type_id", type).EndObject().EndObject();
  };
  BeginType(json, "TemplateProcessing");
  for (const bool is_pair : {false, true}) {
    json.Name(is_pair ? "pair" : "single").BeginArray();
    if (around.front) put_special(*around.front, 0);
    put_text("A", 0);
    if (is_pair) {
      for (const size_t id : around.between) put_special(id, 0);
      put_text("B", around.second_type);
    }
    if (around.back) put_special(*around.back, is_pair ? around.second_type : 0);
    json.EndArray();
  }
  json.Name("special_tokens").BeginObject();
  for (const size_t id : named) {
    json.Name(vocabulary.tokens[id]).BeginObject().Add("id", vocabulary.tokens[id]);
    json.Name("ids").BeginArray().Put(id).EndArray();
    json.Name("tokens").BeginArray().Put(vocabulary.tokens[id]).EndArray().EndObject();
  }
  json.EndObject().EndObject();
}

// The ids of a model's tokens, by their texts.
void PutIds(JsonWriter& json, const Vocabulary& vocabulary) {
  json.Name("vocab").BeginObject();
  for (size_t id = 0; id < vocabulary.tokens.size(); ++id) {
    if (vocabulary.type(id) == TokenType::kUnused) continue;
    json.Add(vocabulary.tokens[id], id);
  }
  json.EndObject();
}

void PutMerges(JsonWriter& json, const Vocabulary& vocabulary) {
  json.Name("merges").BeginArray();
  for (const std::string_view merge : vocabulary.merge_texts) json.Put(merge);
  const bool has_spaces = vocabulary.model != Vocabulary::Model::kByteLevelBpe;
  std::string both;
  for (const auto& [left, right] : vocabulary.merge_pairs) {
    const std::string_view first = vocabulary.tokens[left], second = vocabulary.tokens[right];
    if (has_spaces) {
      json.BeginArray().Put(first).Put(second).EndArray();
    } else {
      json.Put(both.assign(first).append(" ").append(second));
    }
  }
  json.EndArray();
}

// ---- byte-level BPE ----

void PutByteLevel(JsonWriter& json, bool adds_space, bool use_regex) {
  BeginType(json, "ByteLevel");
  json.Add("add_prefix_space", adds_space).Add("trim_offsets", true).Add("use_regex", use_regex);
  json.EndObject();
}

void PutWordSplit(JsonWriter& json, const Vocabulary& vocabulary) {
  const WordSplit& words = vocabulary.words;
  json.Name("pre_tokenizer");
  BeginType(json, "Sequence");
  json.Name("pretokenizers").BeginArray();
  if (words.single_digits) {
    BeginType(json, "Digits");
    json.Add("individual_digits", true).EndObject();
  }
  const auto put_split = [&](std::string_view regex) {
    BeginType(json, "Split");
    json.Name("pattern").BeginObject().Add("Regex", regex).EndObject();
    json.Add("behavior", "Isolated").Add("invert", false).EndObject();
  };
  for (const std::string_view regex : words.regexes) put_split(regex);
  for (const std::string_view regex : vocabulary.regexes) put_split(regex);
  const bool has_regexes = !words.regexes.empty() || !vocabulary.regexes.empty();
  PutByteLevel(json, vocabulary.adds_word_space, !has_regexes);
  json.EndArray().EndObject();
}

void PutByteLevelBpe(JsonWriter& json, const Vocabulary& vocabulary) {
  json.Name("normalizer");
  if (vocabulary.words.composes) {
    BeginType(json, "NFC");
    json.EndObject();
  } else {
    json.Null();
  }
  PutWordSplit(json, vocabulary);
  PutTemplate(json, vocabulary);
  json.Name("decoder");
  PutByteLevel(json, false, true);
  json.Name("model");
  BeginType(json, "BPE");
  for (const char* absent :
       {"dropout", "unk_token", "continuing_subword_prefix", "end_of_word_suffix"}) {
    json.Name(absent).Null();
  }
  json.Add("fuse_unk", false).Add("byte_fallback", false);
  json.Add("ignore_merges", vocabulary.words.ignore_merges);
  PutIds(json, vocabulary);
  PutMerges(json, vocabulary);
  json.EndObject();
}

// ---- SentencePiece ----

void PutMetaspace(JsonWriter& json, const char* prepend, bool splits) {
  BeginType(json, "Metaspace");
  json.Add("replacement", kSpaceMark).Add("prepend_scheme", prepend);
  json.Add("split", splits).EndObject();
}

// Appends what SentencePiece does to a text before its spaces count.
void PutCleaning(JsonWriter& json, const Vocabulary& vocabulary) {
  if (!vocabulary.characters.empty()) {
    BeginType(json, "Precompiled");
    json.Add("precompiled_charsmap", ToBase64(vocabulary.characters)).EndObject();
  }
  if (!vocabulary.joins_spaces) return;
  BeginType(json, "Strip");
  json.Add("strip_left", true).Add("strip_right", true).EndObject();
  PutReplace(json, "Regex", " {2,}", " ");
}

void PutSpaces(JsonWriter& json, const Vocabulary& vocabulary) {
  const bool is_in_texts = vocabulary.spaces == Vocabulary::Spaces::kInTexts;
  json.Name("normalizer");
  BeginType(json, "Sequence");
  json.Name("normalizers").BeginArray();
  PutCleaning(json, vocabulary);
  if (is_in_texts) {
    if (vocabulary.adds_space) {
      BeginType(json, "Prepend");
      json.Add("prepend", kSpaceMark).EndObject();
    }
    PutReplace(json, "String", " ", kSpaceMark);
  }
  json.EndArray().EndObject();
  json.Name("pre_tokenizer");
  if (is_in_texts) {
    json.Null();
  } else {
    PutMetaspace(json, vocabulary.adds_space ? "first" : "never", /*splits=*/false);
  }
}

void PutFallbackDecoder(JsonWriter& json, bool adds_space) {
  json.Name("decoder");
  BeginType(json, "Sequence");
  json.Name("decoders").BeginArray();
  PutReplace(json, "String", kSpaceMark, " ");
  for (const char* step : {"ByteFallback", "Fuse"}) {
    BeginType(json, step);
    json.EndObject();
  }
  if (adds_space) {
    BeginType(json, "Strip");
    json.Add("content", " ").Add("start", 1).Add("stop", 0).EndObject();
  }
  json.EndArray().EndObject();
}

// Where further spaces count for nothing, each word has one in front of it.
void PutSpacedWords(JsonWriter& json, const Vocabulary& vocabulary) {
  const auto put_metaspace = [&](bool adds_space) {
    PutMetaspace(json, adds_space ? "always" : "never", /*splits=*/true);
  };
  json.Name("normalizer");
  if (vocabulary.characters.empty()) {
    json.Null();
  } else {
    BeginType(json, "Precompiled");
    json.Add("precompiled_charsmap", ToBase64(vocabulary.characters)).EndObject();
  }
  json.Name("pre_tokenizer");
  if (vocabulary.joins_spaces) {
    BeginType(json, "Sequence");
    json.Name("pretokenizers").BeginArray();
    BeginType(json, "WhitespaceSplit");
    json.EndObject();
    put_metaspace(true);
    json.EndArray().EndObject();
  } else {
    put_metaspace(vocabulary.adds_space);
  }
  json.Name("decoder");
  put_metaspace(vocabulary.adds_space);
}

void PutSpacedBpe(JsonWriter& json, const Vocabulary& vocabulary) {
  PutSpaces(json, vocabulary);
  PutTemplate(json, vocabulary);
  PutFallbackDecoder(json, vocabulary.adds_space);
  json.Name("model");
  BeginType(json, "BPE");
  for (const char* absent : {"dropout", "continuing_subword_prefix", "end_of_word_suffix"}) {
    json.Name(absent).Null();
  }
  json.Name("unk_token");
  vocabulary.unknown ? json.Put(vocabulary.tokens[*vocabulary.unknown]) : json.Null();
  json.Add("fuse_unk", true).Add("byte_fallback", vocabulary.falls_back_to_bytes);
  json.Add("ignore_merges", false);
  PutIds(json, vocabulary);
  PutMerges(json, vocabulary);
  json.EndObject();
}

// Each token with its score, in the order of the ids. Tokens that are not used become texts with a
// space, which no word has, and do not make unknown characters cheaper or dearer.
void PutPieces(JsonWriter& json, const Vocabulary& vocabulary) {
  const std::vector<double>& scores = vocabulary.scores;
  const auto is_unused = [&](size_t id) { return vocabulary.type(id) == TokenType::kUnused; };
  double worst = std::numeric_limits<double>::infinity();
  for (size_t id = 0; id < scores.size(); ++id) {
    if (!is_unused(id)) worst = std::min(worst, scores[id]);
  }
  json.Name("vocab").BeginArray();
  for (size_t id = 0; id < scores.size(); ++id) {
    // A reader of a file may have made the nearest short number of a float32.
    const auto score = static_cast<double>(static_cast<float>(scores[id]));
    json.BeginArray();
    if (is_unused(id)) {
      json.Put(" " + std::string(vocabulary.tokens[id]))
          .Put(static_cast<double>(static_cast<float>(worst)));
    } else {
      json.Put(vocabulary.tokens[id]).Put(score);
    }
    json.EndArray();
  }
  json.EndArray();
}

void PutUnigram(JsonWriter& json, const Vocabulary& vocabulary) {
  if (vocabulary.spaces == Vocabulary::Spaces::kInWords) {
    PutSpacedWords(json, vocabulary);
  } else {
    PutSpaces(json, vocabulary);
    PutFallbackDecoder(json, vocabulary.adds_space);
  }
  PutTemplate(json, vocabulary);
  json.Name("model");
  BeginType(json, "Unigram");
  json.Name("unk_id");
  vocabulary.unknown ? json.Put(*vocabulary.unknown) : json.Null();
  PutPieces(json, vocabulary);
  json.Add("byte_fallback", vocabulary.falls_back_to_bytes);
  json.EndObject();
}

// ---- WordPiece ----

constexpr std::string_view kContinues = "##";

void PutWordPiece(JsonWriter& json, const Vocabulary& vocabulary) {
  json.Name("normalizer");
  BeginType(json, "BertNormalizer");
  json.Add("clean_text", true).Add("handle_chinese_chars", vocabulary.splits_chinese);
  json.Name("strip_accents");
  vocabulary.strips_accents ? json.Put(*vocabulary.strips_accents) : json.Null();
  json.Add("lowercase", vocabulary.lowers_case).EndObject();
  json.Name("pre_tokenizer");
  BeginType(json, "BertPreTokenizer");
  json.EndObject();
  PutTemplate(json, vocabulary);
  json.Name("decoder");
  BeginType(json, "WordPiece");
  json.Add("prefix", kContinues).Add("cleanup", true).EndObject();
  json.Name("model");
  BeginType(json, "WordPiece");
  json.Add("unk_token", vocabulary.tokens[vocabulary.unknown.value_or(0)]);
  json.Add("continuing_subword_prefix", kContinues).Add("max_input_chars_per_word", 100);
  PutIds(json, vocabulary);
  json.EndObject();
}

}  // namespace

std::string WriteTokenizerJson(const Vocabulary& vocabulary) {
  JsonWriter json;
  json.BeginObject().Add("version", "1.0");
  json.Name("truncation").Null().Name("padding").Null();
  PutAddedTokens(json, vocabulary);
  switch (vocabulary.model) {
    case Vocabulary::Model::kByteLevelBpe:
      PutByteLevelBpe(json, vocabulary);
      break;
    case Vocabulary::Model::kSpacedBpe:
      PutSpacedBpe(json, vocabulary);
      break;
    case Vocabulary::Model::kUnigram:
      PutUnigram(json, vocabulary);
      break;
    case Vocabulary::Model::kWordPiece:
      PutWordPiece(json, vocabulary);
      break;
  }
  json.EndObject();
  return json.Take();
}

}  // namespace mlc_native
