// TokenTable::FromTokenizerJson: reads the vocabulary, the added tokens and the decoder of
// tokenizer.json (format: huggingface/tokenizers). Everything else of the file concerns encoding.
//
// Streamed text equals what the tokenizers package decodes from all ids together with special
// tokens skipped, but for these, where we keep more of the text:
//   - ByteFallback: of a run of byte tokens that is not valid UTF-8 only the invalid bytes become
//     U+FFFD, not every byte of the run.
//   - Metaspace drops one space at the beginning, not all U+2581 of the first token.
//   - WordPiece: a "##" is dropped also from the first token.
//   - Added tokens stand for their content, not for what normalizer or byte-level alphabet make of
//   it.
// clean_up_tokenization_spaces of transformers is never applied: it is no part of decoding.
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "support/error.h"
#include "tokenizer/token_decoder.h"
#include "tokenizer/token_table.h"
#include "tokenizer/tokenizer_file.h"

namespace mlc_native {
namespace {

using Json = nlohmann::json;

constexpr int64_t kMaxTokenId =
    1 << 24;  // far above any vocabulary; bounds what a bad id allocates

class Reader {
 public:
  explicit Reader(std::string path) : path_(std::move(path)) {}

  std::shared_ptr<const TokenTable> Read() {
    const Json file = Parse();
    decoder_ = ReadDecoder(file.value("decoder", Json()));
    ReadVocabulary(Member(file, "model"));
    ReadAddedTokens(file.value("added_tokens", Json::array()));
    return std::make_shared<const TokenTable>(std::move(token_bytes_), std::move(is_special_),
                                              decoder_.strip_leading_space);
  }

 private:
  [[noreturn]] void Fail(const std::string& what) const { FailTokenizerFile(path_, what); }

  Json Parse() const {
    const std::string text = ReadTokenizerFile(path_);
    // Merges and pre-tokenizer tables are the larger part of the file and concern encoding only.
    const auto keep = [](int, Json::parse_event_t event, Json& parsed) {
      return event != Json::parse_event_t::key ||
             (parsed != "merges" && parsed != "precompiled_charsmap");
    };
    Json file = Json::parse(text, keep);
    if (!file.is_object()) Fail("is not a JSON object");
    return file;
  }

  const Json& Member(const Json& object, const char* name) const {
    const auto it = object.find(name);
    if (it == object.end() || !it->is_object()) {
      Fail(std::string("has no object \"") + name + '"');
    }
    return *it;
  }

  // ---- tokens ----

  void ReadVocabulary(const Json& model) {
    // Files of old versions name no type; their shape tells.
    const auto vocab = model.find("vocab");
    if (vocab == model.end() || !vocab->is_structured()) Fail("\"model\" has no \"vocab\"");
    const std::string type = model.value("type", vocab->is_array() ? "Unigram" : "BPE");
    if (type == "Unigram") {
      if (!vocab->is_array()) Fail("\"vocab\" of a Unigram model must be an array");
      for (size_t id = 0; id < vocab->size(); ++id) {
        SetToken(static_cast<int64_t>(id), (*vocab)[id].at(0).get<std::string>(), false);
      }
    } else if (type == "BPE" || type == "WordPiece" || type == "WordLevel") {
      if (!vocab->is_object()) Fail("\"vocab\" of a " + type + " model must be an object");
      for (const auto& [token, id] : vocab->items()) SetToken(id.get<int64_t>(), token, false);
    } else {
      Fail("model type \"" + type +
           "\" is not supported (supported: BPE, Unigram, WordPiece, WordLevel)");
    }
  }

  void ReadAddedTokens(const Json& added_tokens) {
    for (const Json& added : added_tokens) {
      const auto id = added.at("id").get<int64_t>();
      const auto content = added.at("content").get<std::string>();
      SetToken(id, content, true);
      if (added.value("special", false)) {
        is_special_[id] = true;
        token_bytes_[id] = content;
      }
    }
  }

  void SetToken(int64_t id, const std::string& token, bool is_added) {
    if (id < 0 || id > kMaxTokenId) {
      Fail("token \"" + token + "\" has id " + std::to_string(id) + ", must be in [0, " +
           std::to_string(kMaxTokenId) + "]");
    }
    if (static_cast<size_t>(id) >= token_bytes_.size()) {
      token_bytes_.resize(id + 1);
      is_special_.resize(id + 1);
    }
    token_bytes_[id] = decoder_.Decode(token, is_added);
  }

  // ---- decoder ----

  TokenDecoder ReadDecoder(const Json& json) const {
    TokenDecoder decoder;
    if (json.is_null()) {  // tokens are words, joined by spaces
      decoder.steps.emplace_back(decoder_step::WordPiece{.prefix = "", .cleanup = false});
      decoder.strip_leading_space = true;
      return decoder;
    }
    bool fused = false;
    AddSteps(json, &decoder, &fused);
    return decoder;
  }

  // fused: the tokens have become one text, on which only a strip of the first space is possible.
  void AddSteps(const Json& json, TokenDecoder* decoder, bool* fused) const {
    const auto type = json.at("type").get<std::string>();
    if (type == "Sequence") {
      for (const Json& inner : json.at("decoders")) AddSteps(inner, decoder, fused);
      return;
    }
    if (type == "Fuse") {
      *fused = true;
      return;
    }
    if (type == "Strip") {
      AddStrip(json, decoder, *fused);
      return;
    }
    if (*fused) Fail("decoder \"" + type + "\" after \"Fuse\" is not supported");
    if (type == "ByteLevel") {
      decoder->steps.emplace_back(decoder_step::ByteLevel{});
    } else if (type == "ByteFallback") {
      decoder->steps.emplace_back(decoder_step::ByteFallback{});
    } else if (type == "Metaspace") {
      AddMetaspace(json, decoder);
    } else if (type == "Replace") {
      AddReplace(json, decoder);
    } else if (type == "WordPiece") {
      decoder->steps.emplace_back(decoder_step::WordPiece{.prefix = json.value("prefix", "##"),
                                                          .cleanup = json.value("cleanup", true)});
      decoder->strip_leading_space = true;
    } else {
      Fail("decoder \"" + type +
           "\" is not supported (supported: ByteLevel, ByteFallback, Fuse, Metaspace, Replace, "
           "Sequence, Strip, WordPiece)");
    }
  }

  void AddStrip(const Json& json, TokenDecoder* decoder, bool fused) const {
    decoder_step::Strip strip{.content = json.at("content").get<std::string>(),
                              .start = json.at("start").get<int64_t>(),
                              .stop = json.at("stop").get<int64_t>()};
    if (strip.content.empty()) Fail("decoder \"Strip\" has an empty \"content\"");
    if (!fused) {
      decoder->steps.emplace_back(std::move(strip));
      return;
    }
    if (strip.content != " " || strip.start > 1 || strip.stop != 0) {
      Fail("decoder \"Strip\" after \"Fuse\" is supported for one space at the start only");
    }
    decoder->strip_leading_space = strip.start == 1;
  }

  void AddMetaspace(const Json& json, TokenDecoder* decoder) const {
    decoder->steps.emplace_back(decoder_step::Replace{
        .pattern = json.value("replacement", "\xE2\x96\x81"), .content = " "});
    // Versions before 0.15 of the format have the flag instead of the scheme.
    const std::string scheme =
        json.value("prepend_scheme", json.value("add_prefix_space", true) ? "always" : "never");
    decoder->strip_leading_space = scheme != "never";
  }

  void AddReplace(const Json& json, TokenDecoder* decoder) const {
    const Json& pattern = json.at("pattern");
    if (!pattern.contains("String")) Fail("decoder \"Replace\" supports only a \"String\" pattern");
    decoder_step::Replace replace{.pattern = pattern.at("String").get<std::string>(),
                                  .content = json.at("content").get<std::string>()};
    if (replace.pattern.empty()) Fail("decoder \"Replace\" has an empty pattern");
    decoder->steps.emplace_back(std::move(replace));
  }

  std::string path_;
  TokenDecoder decoder_;
  std::vector<std::string> token_bytes_;
  std::vector<bool> is_special_;
};

}  // namespace

std::shared_ptr<const TokenTable> TokenTable::FromTokenizerJson(
    const std::string& tokenizer_json_path) {
  try {
    return Reader(tokenizer_json_path).Read();
  } catch (const Json::exception& e) {  // damaged text, a missing member, a wrong type
    throw LoadError("tokenizer.json", tokenizer_json_path + ": " + e.what());
  }
}

}  // namespace mlc_native
