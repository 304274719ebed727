#include "tokenizer/added_tokens.h"

#include <algorithm>
#include <utility>

#include "tokenizer/unicode.h"

namespace mlc_native {
namespace {

constexpr size_t kMaxNormalizedBytes = size_t{16} << 20;  // of all tokens
constexpr std::string_view kWideBar = "\xEF\xBD\x9C";     // U+FF5C

// Removes "|" or its wide form at the beginning (or the end). Returns false if there is none.
bool TakeBar(bool at_end, std::string_view* text) {
  for (std::string_view bar : {std::string_view("|"), kWideBar}) {
    if (at_end ? !text->ends_with(bar) : !text->starts_with(bar)) continue;
    if (at_end) {
      text->remove_suffix(bar.size());
    } else {
      text->remove_prefix(bar.size());
    }
    return true;
  }
  return false;
}

// <|...|>
bool LooksSpecial(std::string_view text) {
  if (text.size() < 2 || !text.starts_with('<') || !text.ends_with('>')) return false;
  text = text.substr(1, text.size() - 2);
  return TakeBar(/*at_end=*/false, &text) && TakeBar(/*at_end=*/true, &text) && !text.empty();
}

bool EndsWithWord(std::string_view text) {
  return !text.empty() && unicode::WordChars().Has(LastChar(text).code_point);
}

bool StartsWithWord(std::string_view text) {
  return !text.empty() && unicode::WordChars().Has(FirstChar(text).code_point);
}

}  // namespace

bool AddedToken::is_control() const { return special || LooksSpecial(content); }

AddedTokens::AddedTokens(std::vector<AddedToken> tokens, const Normalizer& normalizer)
    : tokens_(std::move(tokens)) {
  using Texts = std::vector<std::pair<std::string, int32_t>>;
  Texts raw, normalized, raw_texts, normalized_texts, controls;
  size_t num_bytes = 0;
  for (size_t i = 0; i < tokens_.size(); ++i) {
    const AddedToken& token = tokens_[i];
    const auto index = static_cast<int32_t>(i);
    std::string text = token.normalized ? normalizer.Apply(token.content).text : token.content;
    num_bytes += text.size();
    if (num_bytes > kMaxNormalizedBytes) {
      throw TextTooCostly("added tokens that the normalizers make so long");
    }
    if (token.is_control()) {
      controls.emplace_back(token.content, index);
      control_ids_.insert(token.id);
    } else {
      (token.normalized ? normalized_texts : raw_texts).emplace_back(text, index);
    }
    (token.normalized ? normalized : raw).emplace_back(std::move(text), index);
  }
  raw_ = ByteTrie(std::move(raw));
  normalized_ = ByteTrie(std::move(normalized));
  raw_texts_ = ByteTrie(std::move(raw_texts));
  normalized_texts_ = ByteTrie(std::move(normalized_texts));
  controls_ = ByteTrie(std::move(controls));
}

std::vector<size_t> AddedTokens::ForeignControls(std::string_view text,
                                                 std::span<const TextSpan> own) const {
  std::vector<Match> matches;
  Find(controls_, text, {0, text.size()}, &matches);
  std::vector<size_t> begins;
  size_t next = 0;
  for (const Match& match : matches) {
    while (next < own.size() && own[next].end < match.end) ++next;
    if (next == own.size() || own[next].begin > match.begin) begins.push_back(match.begin);
  }
  return begins;
}

void AddedTokens::Find(const ByteTrie& trie, std::string_view text, TextSpan within,
                       std::vector<Match>* matches) const {
  text = text.substr(0, within.end);
  for (size_t at = within.begin; at < text.size();) {
    const ByteTrie::Found found = trie.Longest(text.substr(at));
    if (found.value == ByteTrie::kNone) {
      ++at;
      continue;
    }
    matches->push_back({at, at + found.length, &tokens_[static_cast<size_t>(found.value)]});
    at += found.length;
  }
}

void AddedTokens::Split(std::string_view text, std::vector<TextPiece>* pieces) const {
  std::vector<Match> matches;
  Find(raw_, text, {0, text.size()}, &matches);
  Cut({.text = text, .at_start = true}, matches, pieces);
}

void AddedTokens::SplitOwn(std::string_view text, std::span<const TextSpan> own,
                           std::vector<TextPiece>* pieces) const {
  std::vector<Match> controls, matches;
  for (const TextSpan& span : own) Find(controls_, text, span, &controls);
  size_t at = 0;
  for (Match& control : controls) {
    control.is_own = true;
    Find(raw_texts_, text, {at, control.begin}, &matches);
    matches.push_back(control);
    at = control.end;
  }
  Find(raw_texts_, text, {at, text.size()}, &matches);
  Cut({.text = text, .at_start = true}, matches, pieces);
}

void AddedTokens::SplitNormalized(const TextPiece& normalized, bool wants_controls,
                                  std::vector<TextPiece>* pieces) const {
  std::vector<Match> matches;
  Find(wants_controls ? normalized_ : normalized_texts_, normalized.text,
       {0, normalized.text.size()}, &matches);
  Cut(normalized, matches, pieces);
}

void AddedTokens::Cut(const TextPiece& whole, const std::vector<Match>& matches,
                      std::vector<TextPiece>* pieces) {
  const std::string_view text = whole.text;
  size_t done = 0;        // everything before it is in pieces
  TextSpan spaces{0, 0};  // the last run that a token with rstrip has found
  const auto piece = [&](size_t begin, size_t end) {
    return TextPiece{.text = text.substr(begin, end - begin),
                     .at_start = whole.at_start && begin == 0};
  };
  for (auto [begin, end, token, is_own] : matches) {
    if (token->single_word && !is_own &&
        (EndsWithWord(text.substr(0, begin)) || StartsWithWord(text.substr(end)))) {
      continue;
    }
    if (token->lstrip) {
      const size_t from = std::min(done, begin);
      begin -= TrailingSpaces(text.substr(from, begin - from));
      begin = std::max(begin, done);
    }
    if (token->rstrip) {
      if (end < spaces.begin || end >= spaces.end) {
        spaces = {end, end + LeadingSpaces(text.substr(end))};
      }
      end = spaces.end;
    }
    if (token->lstrip && begin >= end) continue;  // a token before it has taken all of its spaces
    if (done < begin) pieces->push_back(piece(done, begin));
    TextPiece found = piece(begin, std::max(begin, end));
    found.token_id = token->id;
    pieces->push_back(found);
    done = end;
  }
  if (done < text.size()) pieces->push_back(piece(done, text.size()));
}

}  // namespace mlc_native
