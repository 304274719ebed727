#include "step/draft_chain.h"

#include <algorithm>
#include <utility>

namespace mlc_native {
namespace {

// Its guesses do not begin at a known position.
bool IsMoved(const DraftChain::Work& work) { return work.behind && work.behind.num_guesses > 0; }

// The row behind which the first guess is drawn, if no guess of the step in flight is right.
int64_t LastRow(const DraftChain::Work& work) {
  return std::ssize(work.known) - (work.behind ? 0 : 1);
}

std::span<const int32_t> PagesOf(const DraftChain::Work& work, int64_t num_tokens) {
  return work.block_table.first(static_cast<size_t>((num_tokens + kKvPageSize - 1) / kKvPageSize));
}

}  // namespace

DraftChain::DraftChain() { greedy_.temperature = 0; }

void DraftChain::Run(StepQueue& queue, std::span<const Work> work, const StateMemory* states,
                     TokenMemory* tokens) {
  tokens_ = tokens;
  Read(queue, work, states);
  for (int64_t step = 1; !active_.empty(); ++step) {
    std::vector<const Work*> before = std::exchange(active_, {});
    Continue(queue, before, step, states != nullptr);
  }
}

void DraftChain::Read(StepQueue& queue, std::span<const Work> work, const StateMemory* states) {
  token_ids_.clear();
  slices_.clear();
  logits_rows_.clear();
  logits_behind_.clear();
  state_places_.clear();
  guesses_.clear();
  active_.clear();
  for (const Work& w : work) {
    const auto first_row = static_cast<int32_t>(token_ids_.size());
    token_ids_.insert(token_ids_.end(), w.known.begin(), w.known.end());
    for (int64_t i = std::ssize(w.known); i < w.num_rows(); ++i) {
      const auto drawn = static_cast<int32_t>(i - std::ssize(w.known));
      token_ids_.push_back(TokenAt(w.behind.drawn(drawn)));
    }
    state_places_.insert(state_places_.end(), w.places.begin(), w.places.end());
    slices_.push_back({.first_row = first_row,
                       .num_tokens = static_cast<int32_t>(w.num_rows()),
                       .position = w.position,
                       .block_table = PagesOf(w, w.position + w.num_rows())});
    if (w.length == 0) continue;
    logits_rows_.push_back(first_row + static_cast<int32_t>(LastRow(w)));
    logits_behind_.push_back(IsMoved(w) ? w.behind.count() : TokenBlock::kNone);
    guesses_.push_back(w.first_guess);
    active_.push_back(&w);
  }
  if (!std::ranges::any_of(work, IsMoved)) logits_behind_.clear();
  Submit(queue, {.target = states, .places = state_places_, .own_rows = {}, .num_guessed = 0});
}

void DraftChain::Continue(StepQueue& queue, std::span<const Work* const> before, int64_t step,
                          bool is_head) {
  token_ids_.clear();
  slices_.clear();
  logits_rows_.clear();
  logits_behind_.clear();
  own_rows_.clear();
  guesses_.clear();
  for (size_t i = 0; i < before.size(); ++i) {
    const Work& w = *before[i];
    if (w.length <= step) continue;
    const auto row = static_cast<int32_t>(slices_.size());
    const int64_t position = w.position + LastRow(w) + step;
    const TokenBlock behind = IsMoved(w) ? w.behind : TokenBlock();
    const auto guess = static_cast<int32_t>(w.first_guess + step);
    token_ids_.push_back(TokenAt(guess - 1));
    slices_.push_back({.first_row = row,
                       .num_tokens = 1,
                       .position = position,
                       .block_table = PagesOf(w, position + behind.num_guesses + 1),
                       .behind = behind});
    logits_rows_.push_back(row);
    if (is_head) own_rows_.push_back(static_cast<int32_t>(i));
    guesses_.push_back(guess);
    active_.push_back(&w);
  }
  if (slices_.empty()) return;
  Submit(queue, {.places = {}, .own_rows = own_rows_, .num_guessed = step});
}

void DraftChain::Submit(StepQueue& queue, const DraftInput& draft) {
  queue.Forward({.token_ids = token_ids_,
                 .sequences = slices_,
                 .logits_rows = logits_rows_,
                 .hidden = {},
                 .draft = draft,
                 .tokens = tokens_,
                 .logits_behind = logits_behind_});
  TokenRow row;
  row.config = &greedy_;
  token_rows_.assign(logits_rows_.size(), row);
  queue.SampleInto(token_rows_, guesses_);
}

}  // namespace mlc_native
