// TokenTable::FromTokenizerJson: reads the vocabulary, the added tokens and the decoder of
// tokenizer.json (format: huggingface/tokenizers). Everything else of the file concerns encoding.
//
// Streamed text equals the text that the tokenizers package decodes from all ids at once, without
// special tokens. In these cases more of the text is kept:
//   - ByteFallback: in a run of byte tokens that is not valid UTF-8, only the invalid bytes become
//     U+FFFD, and not every byte of the run.
//   - Metaspace drops one space at the beginning, and not all U+2581 of the first token.
//   - WordPiece: a "##" is also dropped from the first token.
//   - Added tokens stand for their content, without normalizer and byte-level alphabet.
// clean_up_tokenization_spaces of transformers is never applied, because it is not part of
// decoding.
#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "mlc_native/tokenizer.h"
#include "model_files/model_files.h"
#include "support/config_fields.h"
#include "support/error.h"
#include "support/json.h"
#include "tokenizer/token_decoder.h"
#include "tokenizer/tokenizer_parts.h"

namespace mlc_native {
namespace {

// Far above any vocabulary, a decoder and what it makes of the largest one. They bound the memory
// and the time that a bad file costs.
constexpr int64_t kMaxTokenId = 1 << 22;
constexpr size_t kMaxDecoderSteps = 32;
constexpr size_t kMaxDecoderWork = size_t{1} << 30;
constexpr int64_t kMaxStrip = 1 << 24;  // characters at an end of a token

class Reader {
 public:
  Reader(const std::string& path, const ConfigFields& file, const std::vector<std::string>& visible)
      : path_(path), file_(file), visible_(visible) {}

  std::shared_ptr<const TokenTable> Read() {
    decoder_ = ReadDecoder();
    ReadVocabulary();
    ReadAddedTokens();
    return std::make_shared<const TokenTable>(std::move(token_bytes_), std::move(is_special_),
                                              decoder_.strip_leading_space);
  }

 private:
  [[noreturn]] void Fail(const std::string& what) const {
    throw LoadError("tokenizer.json", path_ + ": " + what);
  }

  // ---- tokens ----

  void ReadVocabulary() {
    if (!file_.HasObject("model")) Fail("has no object \"model\"");
    const ConfigFields model = file_.Object("model");
    const JsonValue* vocab = model.Find("vocab");
    if (vocab == nullptr || (!vocab->is_array() && !vocab->is_object())) {
      Fail("\"model\" has no \"vocab\"");
    }
    // Files of old versions have no type, which then follows from their structure.
    const std::string type = model.String("type", vocab->is_array() ? "Unigram" : "BPE");
    if (type == "Unigram") {
      if (!vocab->is_array()) Fail("\"vocab\" of a Unigram model must be an array");
      int64_t id = 0;
      for (const JsonValue& entry : vocab->AsArray()) {
        if (entry.AsArray().empty()) Fail("\"vocab\" has an empty entry");
        SetToken(id++, entry.AsArray()[0].AsString(), false);
      }
    } else if (type == "BPE" || type == "WordPiece" || type == "WordLevel") {
      if (!vocab->is_object()) Fail("\"vocab\" of a " + type + " model must be an object");
      for (const auto& [token, id] : vocab->AsObject()) SetToken(id.AsInteger(), token, false);
    } else {
      Fail("model type \"" + type +
           "\" is not supported (supported: BPE, Unigram, WordPiece, WordLevel)");
    }
  }

  void ReadAddedTokens() {
    if (!file_.Has("added_tokens")) return;
    for (const ConfigFields& added : file_.Objects("added_tokens")) {
      const int64_t id = added.Integer("id", std::nullopt, 0, kMaxTokenId);
      const std::string content = added.String("content");
      SetToken(id, content, true);
      if (added.Bool("special", false)) {
        is_special_[id] = std::ranges::count(visible_, content) == 0;
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
    token_bytes_[id] = decoder_.Decode(token, is_added, &decoder_work_);
    if (decoder_work_ > kMaxDecoderWork) {
      Fail(
          "its decoder takes too long for its vocabulary (more than 2^30 bytes of texts and "
          "patterns in " +
          std::to_string(decoder_.steps.size()) + " steps)");
    }
  }

  // ---- decoder ----

  TokenDecoder ReadDecoder() const {
    TokenDecoder decoder;
    if (!file_.Has("decoder")) {  // tokens are words, joined by spaces
      decoder.steps.emplace_back(decoder_step::WordPiece{.prefix = "", .cleanup = false});
      decoder.strip_leading_space = true;
      return decoder;
    }
    bool fused = false;
    AddSteps(file_.Object("decoder"), &decoder, &fused);
    if (decoder.steps.size() > kMaxDecoderSteps) {
      Fail("its decoder has " + std::to_string(decoder.steps.size()) + " steps, allowed are " +
           std::to_string(kMaxDecoderSteps));
    }
    return decoder;
  }

  // If `fused`, the tokens have become one text, of which only the first space can be stripped.
  void AddSteps(const ConfigFields& step, TokenDecoder* decoder, bool* fused) const {
    const std::string type = step.String("type");
    if (type == "Sequence") {
      for (const ConfigFields& inner : step.Objects("decoders")) AddSteps(inner, decoder, fused);
      return;
    }
    if (type == "Fuse") {
      *fused = true;
      return;
    }
    if (type == "Strip") {
      AddStrip(step, decoder, *fused);
      return;
    }
    if (*fused) Fail("decoder \"" + type + "\" after \"Fuse\" is not supported");
    if (type == "ByteLevel") {
      decoder->steps.emplace_back(decoder_step::ByteLevel{});
    } else if (type == "ByteFallback") {
      decoder->steps.emplace_back(decoder_step::ByteFallback{});
    } else if (type == "Metaspace") {
      AddMetaspace(step, decoder);
    } else if (type == "Replace") {
      AddReplace(step, decoder);
    } else if (type == "WordPiece") {
      decoder->steps.emplace_back(decoder_step::WordPiece{.prefix = step.String("prefix", "##"),
                                                          .cleanup = step.Bool("cleanup", true)});
      decoder->strip_leading_space = true;
    } else {
      Fail("decoder \"" + type +
           "\" is not supported (supported: ByteLevel, ByteFallback, Fuse, Metaspace, Replace, "
           "Sequence, Strip, WordPiece)");
    }
  }

  void AddStrip(const ConfigFields& step, TokenDecoder* decoder, bool fused) const {
    decoder_step::Strip strip{.content = step.String("content"),
                              .start = step.Integer("start", std::nullopt, 0, kMaxStrip),
                              .stop = step.Integer("stop", std::nullopt, 0, kMaxStrip)};
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

  void AddMetaspace(const ConfigFields& step, TokenDecoder* decoder) const {
    decoder->steps.emplace_back(decoder_step::Replace{
        .pattern = step.String("replacement", "\xE2\x96\x81"), .content = " "});
    // Versions before 0.15 of the format have the flag instead of the scheme.
    const std::string scheme =
        step.String("prepend_scheme", step.Bool("add_prefix_space", true) ? "always" : "never");
    decoder->strip_leading_space = scheme != "never";
  }

  void AddReplace(const ConfigFields& step, TokenDecoder* decoder) const {
    const ConfigFields pattern = step.Object("pattern");
    if (!pattern.Has("String")) Fail("decoder \"Replace\" supports only a \"String\" pattern");
    decoder_step::Replace replace{.pattern = pattern.String("String"),
                                  .content = step.String("content")};
    if (replace.pattern.empty()) Fail("decoder \"Replace\" has an empty pattern");
    decoder->steps.emplace_back(std::move(replace));
  }

  const std::string& path_;
  const ConfigFields& file_;
  const std::vector<std::string>& visible_;
  TokenDecoder decoder_;
  std::vector<std::string> token_bytes_;
  std::vector<bool> is_special_;
  size_t decoder_work_ = 0;
};

}  // namespace

std::shared_ptr<const TokenTable> ReadTokenTable(const std::string& path, const ConfigFields& file,
                                                 const std::vector<std::string>& visible) {
  try {
    return Reader(path, file, visible).Read();
  } catch (const LoadError& e) {  // about a field of it
    throw LoadError("tokenizer.json", e.what());
  } catch (const TokenTooLong& e) {
    throw LoadError("tokenizer.json", path + ": " + e.what());
  } catch (const JsonError& e) {  // an entry of the vocabulary has a wrong type
    throw LoadError("tokenizer.json", path + ": " + e.what());
  }
}

// Merges are the larger part of the file and concern encoding only.
std::shared_ptr<const TokenTable> TokenTable::FromTokenizerJson(
    const std::string& tokenizer_json_path, const std::vector<std::string>& visible) {
  try {
    return ReadTokenTable(tokenizer_json_path, ReadModelFile(tokenizer_json_path, "merges"),
                          visible);
  } catch (const LoadError& e) {
    throw LoadError("tokenizer.json", e.what());
  }
}

}  // namespace mlc_native
