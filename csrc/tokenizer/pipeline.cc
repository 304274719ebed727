#include "tokenizer/pipeline.h"

#include <algorithm>
#include <functional>
#include <utility>

#include "support/error.h"
#include "support/utf8.h"
#include "tokenizer/text_streamer.h"

namespace mlc_native {
namespace {

[[noreturn]] void CannotEncode(const std::string& reason) {
  throw InvalidRequest("prompt", "the tokenizer of the model cannot encode a text: " + reason);
}

bool EndsWith(const std::vector<int32_t>& ids, const std::vector<int32_t>& end) {
  return ids.size() >= end.size() && std::equal(end.rbegin(), end.rend(), ids.rbegin());
}

bool BeginsWith(const std::vector<int32_t>& ids, const std::vector<int32_t>& begin) {
  return ids.size() >= begin.size() && std::equal(begin.begin(), begin.end(), ids.begin());
}

// The tokens of words that came before in the same text.
class WordCache {
 public:
  // Texts of few words repeat too few of them.
  explicit WordCache(size_t num_words) : entries_(num_words < kFewWords ? 0 : kNumEntries) {}

  // Appends the tokens of a word. Returns false if they are not known; Keep may then follow.
  bool Append(std::string_view word, std::vector<int32_t>* ids) {
    if (entries_.empty()) return false;
    next_ = &entries_[std::hash<std::string_view>()(word) % kNumEntries];
    if (next_->word != word) {
      next_->word = word;
      next_->size = 0;
      return false;
    }
    for (size_t i = 0; i < next_->size; ++i) ids->push_back((*ids)[next_->begin + i]);
    return next_->size > 0;
  }
  // The tokens of the word that was not known are ids[begin, begin + size).
  void Keep(size_t begin, size_t size) {
    if (entries_.empty()) return;
    next_->begin = begin;
    next_->size = size;
  }

 private:
  static constexpr size_t kFewWords = 64;
  static constexpr size_t kNumEntries = 4096;
  struct Entry {
    std::string_view word;
    size_t begin = 0;  // of its tokens in those of the text
    size_t size = 0;
  };
  std::vector<Entry> entries_;
  Entry* next_ = nullptr;  // of the last word
};

// The spans within text[begin, end), as spans of that part.
std::vector<TextSpan> SpansWithin(std::span<const TextSpan> spans, size_t begin, size_t end) {
  std::vector<TextSpan> within;
  for (const TextSpan& span : spans) {
    const size_t first = std::max(span.begin, begin), last = std::min(span.end, end);
    if (first < last) within.push_back({first - begin, last - begin});
  }
  return within;
}

}  // namespace

void SpecialTokens::PutAround(std::vector<int32_t>* token_ids) const {
  if (!BeginsWith(*token_ids, front)) {
    token_ids->insert(token_ids->begin(), front.begin(), front.end());
  }
  if (!EndsWith(*token_ids, back)) {
    token_ids->insert(token_ids->end(), back.begin(), back.end());
  }
}

TokenizerPipeline::TokenizerPipeline(TokenizerParts parts, std::shared_ptr<const TokenTable> table)
    : parts_(std::move(parts)),
      added_tokens_(parts_.added_tokens, parts_.normalizer),
      table_(std::move(table)),
      vocab_size_(static_cast<int64_t>(parts_.vocab->size())) {
  for (const auto& [token, id] : *parts_.vocab) tokens_.emplace(id, token);
  for (const AddedToken& token : parts_.added_tokens) {
    if (!parts_.vocab->contains(token.content)) ++vocab_size_;
    tokens_.insert_or_assign(token.id, token.content);
    added_ids_.emplace(token.content, token.id);
  }
  for (int64_t id = 0; id < table_->size(); ++id) {
    most_text_bytes_ = std::max(most_text_bytes_, table_->bytes(static_cast<int32_t>(id)).size());
  }
  most_text_bytes_ *= parts_.most_shrinking;
}

std::vector<int32_t> TokenizerPipeline::Encode(std::string_view text) const {
  const TextSpan whole{0, text.size()};
  return Encode(text, {&whole, 1});
}

std::vector<int32_t> TokenizerPipeline::Encode(std::string_view text,
                                               std::span<const TextSpan> own) const {
  if (!IsValidUtf8(text)) CannotEncode("it is not valid UTF-8");
  try {
    const bool is_whole = own.size() == 1 && own[0].begin == 0 && own[0].end == text.size();
    const std::vector<size_t> foreign =
        is_whole ? std::vector<size_t>() : added_tokens_.ForeignControls(text, own);
    bool has_control = false;
    if (foreign.empty()) {
      std::vector<TextPiece> pieces;
      added_tokens_.Split(text, &pieces);
      return EncodePieces(pieces, /*wants_controls=*/true, &has_control);
    }
    std::vector<int32_t> ids = EncodeOwn(text, own, &has_control);
    if (!has_control) return ids;
    // The vocabulary has a control token as a word: its text is cut behind the first character.
    ids.clear();
    size_t begin = 0;
    for (size_t i = 0; i <= foreign.size(); ++i) {
      const bool is_last = i == foreign.size();
      const size_t end =
          is_last ? text.size() : foreign[i] + FirstChar(text.substr(foreign[i])).length;
      const std::vector<TextSpan> within = SpansWithin(own, begin, end);
      has_control = false;
      const std::vector<int32_t> part =
          EncodeOwn(text.substr(begin, end - begin), within, &has_control);
      if (!has_control) ids.insert(ids.end(), part.begin(), part.end());
      begin = end;
    }
    return ids;
  } catch (const TextTooCostly& error) {
    CannotEncode(error.what());
  }
}

std::vector<int32_t> TokenizerPipeline::EncodeOwn(std::string_view text,
                                                  std::span<const TextSpan> own,
                                                  bool* has_control) const {
  std::vector<TextPiece> pieces;
  added_tokens_.SplitOwn(text, own, &pieces);
  return EncodePieces(pieces, /*wants_controls=*/false, has_control);
}

std::vector<int32_t> TokenizerPipeline::EncodePieces(const std::vector<TextPiece>& raw,
                                                     bool wants_controls, bool* has_control) const {
  TextPool pool;
  std::vector<TextPiece> pieces;
  for (TextPiece piece : raw) {
    if (piece.token_id != TextPiece::kNoToken) {
      pieces.push_back(piece);
      continue;
    }
    if (!parts_.normalizer.empty()) {
      Normalizer::Text normalized = parts_.normalizer.Apply(piece.text);
      piece.at_start &= normalized.keeps_start;
      piece.text = pool.emplace_back(std::move(normalized.text));
    }
    added_tokens_.SplitNormalized(piece, wants_controls, &pieces);
  }
  parts_.pre_tokenizer.Apply(/*continues=*/false, &pool, &pieces);
  std::vector<int32_t> ids;
  WordCache cache(pieces.size());
  for (const TextPiece& piece : pieces) {
    if (piece.token_id != TextPiece::kNoToken) {
      ids.push_back(piece.token_id);
      continue;
    }
    const size_t begin = ids.size();
    if (cache.Append(piece.text, &ids)) continue;
    if (!parts_.model->Encode(piece.text, /*allows_unknown=*/true, &ids)) {
      CannotEncode("it has a character without a token");
    }
    cache.Keep(begin, ids.size() - begin);
    if (wants_controls) continue;
    *has_control |= std::any_of(
        ids.begin() + static_cast<std::ptrdiff_t>(begin), ids.end(),
        [&](int32_t id) { return id != parts_.model->unk_id() && added_tokens_.IsControl(id); });
  }
  return ids;
}

std::string TokenizerPipeline::Decode(std::span<const int32_t> token_ids,
                                      bool skip_special_tokens) const {
  TextStreamer streamer(table_->strip_leading_space());
  std::string text;
  for (int32_t id : token_ids) {
    streamer.Put(skip_special_tokens ? table_->text_bytes(id) : table_->bytes(id), &text);
  }
  streamer.Finish(&text);
  return text;
}

std::optional<int32_t> TokenizerPipeline::IdOf(std::string_view token) const {
  const auto added = added_ids_.find(token);
  if (added != added_ids_.end()) return added->second;
  const auto found = parts_.vocab->find(token);
  if (found == parts_.vocab->end()) return std::nullopt;
  return found->second;
}

std::optional<std::string> TokenizerPipeline::TokenOf(int32_t token_id) const {
  const auto found = tokens_.find(token_id);
  if (found == tokens_.end()) return std::nullopt;
  return std::string(found->second);
}

std::shared_ptr<const Tokenizer> Tokenizer::FromTokenizerJson(
    const std::string& tokenizer_json_path, std::string* reason) {
  try {
    const ConfigFields file = ReadTokenizerFile(tokenizer_json_path);
    TokenizerParts parts = ReadTokenizerParts(tokenizer_json_path, file);
    return std::make_shared<const TokenizerPipeline>(std::move(parts),
                                                     ReadTokenTable(tokenizer_json_path, file, {}));
  } catch (const UnsupportedPart& unsupported) {
    *reason = unsupported.what();
  } catch (const TextTooCostly& costly) {
    *reason = costly.what();
  }
  return nullptr;
}

}  // namespace mlc_native
