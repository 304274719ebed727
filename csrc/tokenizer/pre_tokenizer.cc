#include "tokenizer/pre_tokenizer.h"

#include <algorithm>

namespace mlc_native {
namespace {

// A part of a piece: a match of the splitting rule, or what lies between two.
struct SplitPart {
  size_t begin;
  size_t end;
  bool is_match;
};

// Lets every match that follows what is no match join its neighbour. `parts` are in the order in
// which neighbours are met.
template <typename Join>
std::vector<SplitPart> JoinMatches(const std::vector<SplitPart>& parts, Join join) {
  std::vector<SplitPart> joined;
  bool after_match = false;
  for (const SplitPart& part : parts) {
    if (part.is_match && !after_match && !joined.empty()) {
      join(&joined.back(), part);
    } else {
      joined.push_back(part);
    }
    after_match = part.is_match;
  }
  return joined;
}

void ApplyBehavior(SplitBehavior behavior, std::vector<SplitPart>* parts) {
  switch (behavior) {
    case SplitBehavior::kIsolated:
      return;
    case SplitBehavior::kRemoved:
      std::erase_if(*parts, [](const SplitPart& part) { return part.is_match; });
      return;
    case SplitBehavior::kMergedWithPrevious:
      *parts =
          JoinMatches(*parts, [](SplitPart* last, const SplitPart& part) { last->end = part.end; });
      return;
    case SplitBehavior::kMergedWithNext:
      std::ranges::reverse(*parts);
      *parts = JoinMatches(
          *parts, [](SplitPart* last, const SplitPart& part) { last->begin = part.begin; });
      std::ranges::reverse(*parts);
      return;
    case SplitBehavior::kContiguous: {
      std::vector<SplitPart> joined;
      for (const SplitPart& part : *parts) {
        if (!joined.empty() && joined.back().is_match == part.is_match) {
          joined.back().end = part.end;
        } else {
          joined.push_back(part);
        }
      }
      *parts = std::move(joined);
      return;
    }
  }
}

class PreTokenizerRunner {
 public:
  PreTokenizerRunner(bool continues, TextPool* pool) : continues_(continues), pool_(*pool) {}

  void Run(const PreTokenizer::Step& step, std::vector<TextPiece>* pieces) {
    words_.clear();
    for (const TextPiece& piece : *pieces) {
      if (piece.token_id != TextPiece::kNoToken) {
        words_.push_back(piece);
        continue;
      }
      piece_ = piece;
      std::visit(*this, step);
    }
    std::swap(words_, *pieces);
  }

  void operator()(const pre_tokenizer_step::Split& step) {
    step.pattern->FindAll(piece_.text, &matches_);
    parts_.clear();
    size_t at = 0;
    for (const TextRegex::Match& match : matches_) {
      if (match.begin > at) parts_.push_back({at, match.begin, step.invert});
      parts_.push_back({match.begin, match.end, !step.invert});
      at = match.end;
    }
    if (at < piece_.text.size()) parts_.push_back({at, piece_.text.size(), step.invert});
    AddWords(step.behavior);
  }

  void operator()(const pre_tokenizer_step::SplitChars& step) {
    FindParts([&](char32_t c) { return step.set->Has(c); });
    AddWords(step.behavior);
  }

  void operator()(const pre_tokenizer_step::Words&) {
    const std::string_view text = piece_.text;
    enum class Kind : uint8_t { kSpace, kWord, kOther };
    const auto kind_of = [](char32_t c) {
      if (unicode::WordChars().Has(c)) return Kind::kWord;
      return unicode::Spaces().Has(c) ? Kind::kSpace : Kind::kOther;
    };
    parts_.clear();
    Kind last = Kind::kSpace;
    for (size_t at = 0; at < text.size();) {
      const TextChar c = FirstChar(text.substr(at));
      const Kind kind = kind_of(c.code_point);
      if (kind != last || parts_.empty()) parts_.push_back({at, at, kind == Kind::kSpace});
      at += c.length;
      parts_.back().end = at;
      last = kind;
    }
    AddWords(SplitBehavior::kRemoved);
  }

  void operator()(const pre_tokenizer_step::Metaspace& step) {
    using Prepend = pre_tokenizer_step::Metaspace::Prepend;
    const bool may_prepend =
        step.prepend == Prepend::kAlways || (step.prepend == Prepend::kFirst && piece_.at_start);
    const bool begins_so =
        piece_.text.starts_with(' ') || piece_.text.starts_with(step.replacement);
    std::string text;
    if (may_prepend && !begins_so && !continues_) text = step.replacement;
    for (char c : piece_.text) {
      if (c == ' ') {
        text += step.replacement;
      } else {
        text += c;
      }
    }
    piece_.text = pool_.emplace_back(std::move(text));
    if (!step.split) {
      words_.push_back(piece_);
      return;
    }
    const char32_t replacement = FirstChar(step.replacement).code_point;
    FindParts([=](char32_t c) { return c == replacement; });
    AddWords(SplitBehavior::kMergedWithNext);
  }

  void operator()(const pre_tokenizer_step::PrefixSpace&) {
    if (!continues_ && !piece_.text.starts_with(' ')) {
      piece_.text = pool_.emplace_back(' ' + std::string(piece_.text));
    }
    words_.push_back(piece_);
  }

 private:
  // Sets parts_ to the characters that match, one by one, and what lies between them.
  template <typename Matches>
  void FindParts(Matches matches) {
    const std::string_view text = piece_.text;
    parts_.clear();
    bool after_match = true;
    for (size_t at = 0; at < text.size();) {
      const TextChar c = FirstChar(text.substr(at));
      const bool is_match = c.is_valid && matches(c.code_point);
      if (is_match || is_match != after_match || parts_.empty()) {
        parts_.push_back({at, at, is_match});
      }
      at += c.length;
      parts_.back().end = at;
      after_match = is_match;
    }
  }

  void AddWords(SplitBehavior behavior) {
    ApplyBehavior(behavior, &parts_);
    for (const SplitPart& part : parts_) {
      words_.push_back({.text = piece_.text.substr(part.begin, part.end - part.begin),
                        .at_start = piece_.at_start && part.begin == 0});
    }
  }

  const bool continues_;
  TextPool& pool_;
  TextPiece piece_;  // the one that is split
  std::vector<TextPiece> words_;
  std::vector<SplitPart> parts_;  // of the piece
  std::vector<TextRegex::Match> matches_;
};

}  // namespace

void PreTokenizer::Apply(bool continues, TextPool* pool, std::vector<TextPiece>* pieces) const {
  PreTokenizerRunner runner(continues, pool);
  for (const Step& step : steps_) runner.Run(step, pieces);
}

}  // namespace mlc_native
