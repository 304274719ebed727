#include "draft/past_answers.h"

#include <algorithm>
#include <bit>

#include "support/check.h"
#include "support/random.h"

namespace mlc_native {
namespace {

constexpr double kLeastShare = 0.1;  // of the answers that have begun like the draft

}  // namespace

// There are at most as many heads as entries.
PastAnswers::PastAnswers(int64_t max_bytes, int64_t min_match)
    : capacity_(max_bytes / static_cast<int64_t>(sizeof(Entry) + sizeof(uint32_t))),
      min_match_(min_match),
      max_match_(std::max(min_match, kMaxMatch)),
      heads_(std::bit_floor(static_cast<size_t>(capacity_))) {
  MLC_CHECK(max_bytes >= kMinBytes && min_match >= 1) << max_bytes;
  ring_.reserve(static_cast<size_t>(capacity_));
}

int64_t PastAnswers::max_bytes() const {
  return static_cast<int64_t>(ring_.capacity() * sizeof(Entry) + heads_.size() * sizeof(uint32_t));
}

void PastAnswers::Clear() {
  ring_.clear();
  std::ranges::fill(heads_, 0);
  end_ = 0;
}

// ---- What is remembered

void PastAnswers::Push(const Entry& entry) {
  if (end_ < capacity_) {
    ring_.push_back(entry);
  } else {
    ring_[static_cast<size_t>(end_ % capacity_)] = entry;
  }
  ++end_;
}

void PastAnswers::Add(int64_t space, std::span<const int32_t> tokens, int64_t prompt_len) noexcept {
  const int64_t length = std::ssize(tokens);
  const int64_t begin =
      std::max({int64_t{0}, prompt_len - max_match_, length - (capacity_ - kHeaderEntries)});
  const int64_t first_filed = std::max(prompt_len, begin + min_match_);
  if (first_filed >= length) return;
  Push({.token = static_cast<int32_t>(space), .offset = 0});
  Push({.token = static_cast<int32_t>(static_cast<uint64_t>(space) >> 32), .offset = 1});
  for (int64_t i = begin; i < length; ++i) {
    Entry entry{.token = tokens[i], .offset = static_cast<uint32_t>(i - begin + kHeaderEntries)};
    if (i >= first_filed) {
      uint32_t& head = heads_[SlotOf(space, tokens.first(static_cast<size_t>(i)))];
      const uint32_t distance = static_cast<uint32_t>(end_) - head;
      entry.back = IsKept(end_ - distance) ? distance : 0;
      head = static_cast<uint32_t>(end_);
    }
    Push(entry);
  }
}

size_t PastAnswers::SlotOf(int64_t space, std::span<const int32_t> tokens) const {
  uint64_t hash = MixBits(static_cast<uint64_t>(space));
  for (int32_t token : tokens.last(static_cast<size_t>(min_match_))) {
    hash = MixBits(hash ^ static_cast<uint32_t>(token));
  }
  return static_cast<size_t>(hash) & (heads_.size() - 1);
}

// ---- What is found

bool PastAnswers::IsToken(int64_t position) const {
  if (!IsKept(position)) return false;
  const int64_t offset = At(position).offset;
  return offset >= kHeaderEntries && IsKept(position - offset);
}

int64_t PastAnswers::SpaceOf(int64_t position) const {
  const int64_t first = position - At(position).offset;
  const auto low = static_cast<uint32_t>(At(first).token);
  const auto high = static_cast<uint32_t>(At(first + 1).token);
  return static_cast<int64_t>((uint64_t{high} << 32) | low);
}

int64_t PastAnswers::MatchAt(int64_t position, std::span<const int32_t> context) const {
  const int64_t limit = std::min({max_match_, std::ssize(context),
                                  static_cast<int64_t>(At(position).offset) - kHeaderEntries});
  int64_t length = 0;
  while (length < limit &&
         At(position - 1 - length).token == context[context.size() - 1 - length]) {
    ++length;
  }
  return length;
}

PastAnswers::Candidates PastAnswers::Longest(int64_t space,
                                             std::span<const int32_t> context) const {
  Candidates best;
  best.length = min_match_;
  int64_t at = end_ - (static_cast<uint32_t>(end_) - heads_[SlotOf(space, context)]);
  for (int i = 0; i < kMaxCandidates && IsToken(at); ++i) {
    if (SpaceOf(at) == space) {
      const int64_t length = MatchAt(at, context);
      if (length > best.length) best = {.positions = {}, .count = 0, .length = length};
      if (length == best.length) best.positions[best.count++] = at;
    }
    if (At(at).back == 0) break;
    at -= At(at).back;
  }
  return best;
}

void PastAnswers::Find(int64_t space, std::span<const int32_t> context, int64_t min_length,
                       int64_t max_tokens, std::vector<int32_t>* drafts) const {
  if (std::ssize(context) < min_match_) return;
  Candidates agreeing = Longest(space, context);
  if (agreeing.count == 0 || agreeing.length < min_length) return;
  const int num_found = agreeing.count;
  const std::span<int64_t> all(agreeing.positions);
  for (int64_t left = std::min(max_tokens, agreeing.length); left > 0; --left) {
    // The latest position comes first and wins if several tokens were said as often.
    const std::span<int64_t> positions = all.first(static_cast<size_t>(agreeing.count));
    int most = 0;
    int32_t token = 0;
    for (int64_t position : positions) {
      const int32_t said = At(position).token;
      const auto count = static_cast<int>(
          std::ranges::count_if(positions, [&](int64_t other) { return At(other).token == said; }));
      if (count > most) most = count, token = said;
    }
    if (most == 0 || most < kLeastShare * num_found) return;
    drafts->push_back(token);
    int num_left = 0;
    for (int64_t position : positions) {
      if (At(position).token == token && IsToken(position + 1)) all[num_left++] = position + 1;
    }
    agreeing.count = num_left;
  }
}

}  // namespace mlc_native
