#include "kv/paged_kv_cache.h"

#include <algorithm>
#include <limits>
#include <new>
#include <utility>

#include "support/check.h"

namespace mlc_native {
namespace {

constexpr int64_t kNothingOwned = std::numeric_limits<int64_t>::max();

}  // namespace

PagedKvCache::PagedKvCache(int64_t num_pages, int64_t page_size, Log log, int64_t num_slots)
    : page_size_(page_size), pool_(num_pages, log), slots_(num_slots, log) {
  MLC_CHECK(page_size > 0) << page_size;
}

const PagedKvCache::Sequence& PagedKvCache::Get(int64_t seq_id) const {
  MLC_CHECK(HasSequence(seq_id)) << "no sequence " << seq_id;
  return sequences_[seq_id];
}

PagedKvCache::Sequence& PagedKvCache::Get(int64_t seq_id) {
  return const_cast<Sequence&>(std::as_const(*this).Get(seq_id));
}

bool PagedKvCache::HasSequence(int64_t seq_id) const {
  return seq_id >= 0 && seq_id < static_cast<int64_t>(sequences_.size()) && sequences_[seq_id].live;
}

PagedKvCache::Sequence& PagedKvCache::NewSequence(int64_t seq_id) {
  MLC_CHECK(seq_id >= 0 && !HasSequence(seq_id)) << "sequence " << seq_id << " is live";
  if (seq_id >= static_cast<int64_t>(sequences_.size())) sequences_.resize(seq_id + 1);
  return sequences_[seq_id];
}

void PagedKvCache::AddSequence(int64_t seq_id, int64_t length, std::span<const Page> pages,
                               Page slot) {
  MLC_CHECK(NumPages(length) == std::ssize(pages)) << length << " tokens, " << pages.size();
  MLC_CHECK(length == 0 || has_states() == static_cast<bool>(slot)) << "sequence " << seq_id;
  Sequence& seq = NewSequence(seq_id);
  seq.page_ids.reserve(pages.size());
  seq.pages.reserve(pages.size());
  seq.states.reserve(1);
  if (slot) seq.states.push_back({length, std::move(slot)});
  for (const Page& page : pages) {
    seq.page_ids.push_back(page.id());
    seq.pages.push_back(page);
  }
  seq.length = length;
  seq.owned_from = length == 0 ? 0 : kNothingOwned;
  seq.live = true;
  ++num_sequences_;
}

void PagedKvCache::ForkSequence(int64_t parent_id, int64_t child_id, int64_t length) {
  MLC_CHECK(length >= 0 && length <= Get(parent_id).length)
      << "fork at " << length << " of " << Get(parent_id).length << " tokens";
  MLC_CHECK(!Get(parent_id).replaced) << "fork with a forward in flight";
  NewSequence(child_id);  // before Get(parent_id): it may move the parent
  const Sequence& parent = Get(parent_id);
  std::vector<PlacedState> states;
  for (const PlacedState& state : parent.states) {
    if (state.position <= length) states.push_back(state);
  }
  const bool has_state = !states.empty() && states.back().position == length;
  MLC_CHECK(!has_states() || has_state || length == 0) << "no state behind " << length << " tokens";
  AddSequence(child_id, length, std::span(parent.pages).first(NumPages(length)),
              has_state ? states.back().slot : Page());
  Get(child_id).states = std::move(states);
  ShowTokens(parent_id, length);
}

void PagedKvCache::ShowTokens(int64_t seq_id, int64_t length) {
  Sequence& seq = Get(seq_id);
  MLC_CHECK(length <= seq.length) << length << " of " << seq.length << " tokens";
  seq.owned_from = std::max(seq.owned_from, length);
}

void PagedKvCache::ReplacePage(int64_t seq_id, int64_t index, const Page& page) {
  Sequence& seq = Get(seq_id);
  MLC_CHECK(!seq.replaced && (index + 1) * page_size_ <= seq.length) << "page " << index;
  seq.pages[index] = page;
  seq.page_ids[index] = page.id();
  seq.owned_from = std::max(seq.owned_from, (index + 1) * page_size_);
}

void PagedKvCache::RemoveSequence(int64_t seq_id) {
  Sequence& seq = Get(seq_id);
  seq.live = false;
  seq.length = 0;
  seq.pages.clear();  // keeps its memory for the next sequence of this id
  seq.page_ids.clear();
  seq.replaced = Page();
  seq.states.clear();
  seq.kept.clear();
  DropReserved(&seq);
  --num_sequences_;
}

int32_t PagedKvCache::state_slot(int64_t seq_id) const {
  const Sequence& seq = Get(seq_id);
  const bool has = !seq.states.empty() && seq.states.back().position == seq.length;
  return has ? seq.states.back().slot.id() : -1;
}

int64_t PagedKvCache::LengthToGoOnFrom(int64_t seq_id, int64_t length) const {
  if (!has_states()) return length;
  int64_t furthest = 0;
  for (const PlacedState& state : Get(seq_id).states) {
    if (state.position <= length) furthest = state.position;
  }
  return furthest;
}

void PagedKvCache::DropReserved(Sequence* seq) {
  seq->reserved.clear();
  seq->is_reserved_kept.clear();
  seq->writes.clear();
}

void PagedKvCache::KeepState(int64_t seq_id) noexcept {
  Sequence& seq = sequences_[static_cast<size_t>(seq_id)];
  if (seq.states.empty() || seq.states.back().position != seq.length) return;
  if (!seq.kept.empty() && seq.kept.back().position == seq.length) return;
  try {
    seq.kept.push_back(seq.states.back());
  } catch (const std::bad_alloc&) {
    // The prefix cache does without it.
  }
}

void PagedKvCache::DropKeptStates(int64_t seq_id, int64_t num_tokens) {
  std::erase_if(Get(seq_id).kept,
                [&](const PlacedState& state) { return state.position <= num_tokens; });
}

void PagedKvCache::ReserveStates(int64_t seq_id, std::span<const StatePlace> places) {
  Sequence& seq = Get(seq_id);
  MLC_CHECK(has_states() && (seq.length == 0 || state_slot(seq_id) >= 0))
      << "sequence " << seq_id << " has no state behind its " << seq.length << " tokens";
  if (seq.states.size() > 1) seq.states.erase(seq.states.begin(), seq.states.end() - 1);
  DropReserved(&seq);
  seq.states.reserve(seq.states.size() + places.size());
  seq.kept.reserve(seq.kept.size() + places.size());
  for (const StatePlace& place : places) {
    if (place.num_tokens == 0) {
      if (place.is_kept) KeepState(seq_id);
      continue;
    }
    MLC_CHECK(place.num_tokens > (seq.writes.empty() ? 0 : seq.writes.back().num_tokens))
        << place.num_tokens;
    seq.reserved.push_back({seq.length + place.num_tokens, slots_.Allocate()});
    seq.is_reserved_kept.push_back(place.is_kept);
    seq.writes.push_back({static_cast<int32_t>(place.num_tokens), seq.reserved.back().slot.id()});
  }
}

bool PagedKvCache::WritesSharedPage(const Sequence& seq) const {
  // A page behind the last token is private: only pages with visible tokens are ever shared.
  return seq.length < seq.owned_from && seq.length % page_size_ != 0 && !seq.replaced &&
         seq.pages[seq.length / page_size_].is_shared();
}

int64_t PagedKvCache::PagesNeeded(int64_t seq_id, int64_t num_tokens) const {
  const Sequence& seq = Get(seq_id);
  if (num_tokens == 0) return 0;
  const int64_t missing =
      NumPages(seq.length + num_tokens) - static_cast<int64_t>(seq.pages.size());
  return (missing > 0 ? missing : 0) + (WritesSharedPage(seq) ? 1 : 0);
}

void PagedKvCache::Reserve(int64_t seq_id, int64_t num_tokens, std::vector<PageCopy>* copies) {
  MLC_CHECK(num_tokens > 0) << num_tokens;
  Sequence& seq = Get(seq_id);
  const int64_t num_pages = NumPages(seq.length + num_tokens);
  if (WritesSharedPage(seq)) {
    const int64_t index = seq.length / page_size_;
    Page copy = pool_.Allocate();
    copies->push_back(PageCopy{seq.page_ids[index], copy.id()});
    seq.page_ids[index] = copy.id();
    seq.replaced = std::exchange(seq.pages[index], std::move(copy));
  }
  while (static_cast<int64_t>(seq.pages.size()) < num_pages) {
    Page page = pool_.Allocate();
    seq.page_ids.push_back(page.id());
    seq.pages.push_back(std::move(page));
  }
}

void PagedKvCache::Commit(int64_t seq_id, int64_t num_tokens) {
  Sequence& seq = Get(seq_id);
  MLC_CHECK(num_tokens >= 0 &&
            NumPages(seq.length + num_tokens) <= static_cast<int64_t>(seq.pages.size()))
      << num_tokens << " tokens at " << seq.length << ", " << seq.pages.size() << " pages";
  MLC_CHECK(num_tokens == 0 || !WritesSharedPage(seq)) << "sequence " << seq_id << " not reserved";
  if (num_tokens > 0) seq.owned_from = std::min(seq.owned_from, seq.length);
  seq.length += num_tokens;
  for (RecurrentWrite& write : seq.writes) write.num_tokens -= static_cast<int32_t>(num_tokens);
  CommitStates(&seq);
  MLC_CHECK(!has_states() || seq.length == 0 || state_slot(seq_id) >= 0) << "sequence " << seq_id;
  if (seq.replaced) seq.replaced = Page();
}

void PagedKvCache::CommitStates(Sequence* seq) {
  size_t count = 0;
  while (count < seq->reserved.size() && seq->reserved[count].position <= seq->length) {
    PlacedState& state = seq->reserved[count];
    if (seq->is_reserved_kept[count++]) seq->kept.push_back(state);
    seq->states.push_back(std::move(state));
  }
  const auto end = static_cast<std::ptrdiff_t>(count);
  seq->reserved.erase(seq->reserved.begin(), seq->reserved.begin() + end);
  seq->is_reserved_kept.erase(seq->is_reserved_kept.begin(), seq->is_reserved_kept.begin() + end);
  seq->writes.erase(seq->writes.begin(), seq->writes.begin() + end);
}

void PagedKvCache::PopN(int64_t seq_id, int64_t num_tokens) {
  Sequence& seq = Get(seq_id);
  MLC_CHECK(num_tokens >= 0 && num_tokens <= seq.length)
      << "pop " << num_tokens << " of " << seq.length << " tokens";
  if (seq.replaced) {
    const int64_t index = seq.length / page_size_;
    seq.page_ids[index] = seq.replaced.id();
    seq.pages[index] = std::exchange(seq.replaced, Page());
  }
  seq.length -= num_tokens;
  DropReserved(&seq);
  for (std::vector<PlacedState>* states : {&seq.states, &seq.kept}) {
    while (!states->empty() && states->back().position > seq.length) states->pop_back();
  }
  const int64_t num_pages = NumPages(seq.length);
  seq.pages.resize(num_pages);
  seq.page_ids.resize(num_pages);
}

void PagedKvCache::AuditSlots(std::vector<int32_t> holders) const {
  slots_.Audit();
  holders.resize(slots_.num_total(), 0);
  for (size_t id = 0; id < sequences_.size(); ++id) {
    const Sequence& seq = sequences_[id];
    MLC_CHECK(seq.live || (seq.states.empty() && seq.reserved.empty()))
        << "removed sequence " << id << " holds states";
    for (const std::vector<PlacedState>* states : {&seq.states, &seq.kept}) {
      for (const PlacedState& state : *states) {
        MLC_CHECK(state.position > 0 && state.position <= seq.length) << "sequence " << id;
        ++holders[state.slot.id()];
      }
    }
    for (const PlacedState& state : seq.reserved) ++holders[state.slot.id()];
  }
  for (size_t slot = 0; slot < holders.size(); ++slot) {
    MLC_CHECK(holders[slot] == slots_.ref_count(static_cast<int32_t>(slot)))
        << "slot " << slot << " has " << holders[slot] << " holders and "
        << slots_.ref_count(static_cast<int32_t>(slot)) << " references";
  }
}

void PagedKvCache::Audit(std::vector<int32_t> other_holders, std::vector<int32_t> of_slots) const {
  AuditSlots(std::move(of_slots));
  pool_.Audit();
  std::vector<int32_t>& holders = other_holders;
  holders.resize(pool_.num_total(), 0);
  int64_t num_live = 0;
  for (size_t id = 0; id < sequences_.size(); ++id) {
    const Sequence& seq = sequences_[id];
    num_live += seq.live ? 1 : 0;
    MLC_CHECK(seq.live || seq.pages.empty()) << "removed sequence " << id << " holds pages";
    MLC_CHECK(NumPages(seq.length) <= static_cast<int64_t>(seq.pages.size())) << "sequence " << id;
    MLC_CHECK(seq.pages.size() == seq.page_ids.size()) << "sequence " << id;
    for (size_t i = 0; i < seq.pages.size(); ++i) {
      MLC_CHECK(seq.pages[i] && seq.pages[i].id() == seq.page_ids[i]) << "sequence " << id;
      ++holders[seq.page_ids[i]];
    }
    if (seq.replaced) ++holders[seq.replaced.id()];
  }
  MLC_CHECK(num_live == num_sequences_) << num_live << " live, counted " << num_sequences_;
  for (size_t page = 0; page < holders.size(); ++page) {
    MLC_CHECK(holders[page] == pool_.ref_count(static_cast<int32_t>(page)))
        << "page " << page << " has " << holders[page] << " holders and "
        << pool_.ref_count(static_cast<int32_t>(page)) << " references";
  }
}

void PagedKvCache::AuditShown(std::span<const int64_t> shown_until) const {
  for (size_t id = 0; id < sequences_.size(); ++id) {
    for (const int32_t page : sequences_[id].page_ids) {
      MLC_CHECK(shown_until[page] <= sequences_[id].owned_from)
          << "sequence " << id << " owns positions from " << sequences_[id].owned_from
          << " on, page " << page << " is shown until " << shown_until[page];
    }
  }
}

}  // namespace mlc_native
