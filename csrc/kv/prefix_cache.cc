#include "kv/prefix_cache.h"

#include <algorithm>
#include <iterator>
#include <new>
#include <string>
#include <unordered_set>
#include <utility>

#include "support/check.h"
#include "support/error.h"

namespace mlc_native {

PrefixCache::PrefixCache(PagedKvCache* kv, PrefixCacheLimits limits)
    : kv_(kv), page_size_(kv->page_size()), limits_(limits) {
  states_.reserve(static_cast<size_t>(kv_->slots().num_total()));
  kv_->pool().set_reclaim([this] { ReclaimPage(); });
  kv_->slots().set_reclaim([this] { ReclaimState(); });
}

PrefixCache::~PrefixCache() {
  kv_->pool().set_reclaim(nullptr);
  kv_->slots().set_reclaim(nullptr);
}

// ---- Lookup

template <typename Visitor>
void PrefixCache::VisitPages(const Node& end, int64_t length, const Visitor& visit) const {
  const Node* node = &end;
  for (int64_t slot = NumPages(length) - 1; slot >= 0; --slot) {
    const int64_t last = std::min((slot + 1) * page_size_, length) - 1;
    while (node->begin > last) node = node->parent;
    const Node* holder = node;
    size_t index = slot - holder->begin / page_size_;
    while (index >= holder->payload.size()) {  // an inner node that ends within its last slot
      holder = holder->first_child;
      index = slot - holder->begin / page_size_;
    }
    visit(slot, holder->payload[index].page());
  }
}

std::vector<Page> PrefixCache::PagesOf(const Tree::Match& match) const {
  std::vector<Page> pages(NumPages(match.length));
  VisitPages(*match.node, match.length,
             [&](int64_t slot, const Page& page) { pages[slot] = page; });
  return pages;
}

PrefixCache::Prefix PrefixCache::Find(std::span<const int32_t> tokens, CacheSpace space) {
  const Tree::Match match = tree_.Find(tokens, space);
  Prefix prefix{.length = match.length};
  if (kv_->has_states()) {
    const CachedState* const state = FindState(match);
    prefix.length = state == nullptr ? 0 : state->position;
  }
  VisitPages(*match.node, prefix.length, [&](int64_t, const Page& page) {
    prefix.num_cached_pages += kv_->pool().is_cached(page.id()) ? 1 : 0;
  });
  return prefix;
}

void PrefixCache::StartSequence(int64_t seq_id, std::span<const int32_t> tokens, CacheSpace space) {
  const Tree::Match match = tree_.Find(tokens, space);
  MLC_CHECK(match.length == std::ssize(tokens)) << match.length << " of " << tokens.size();
  Page slot;
  if (kv_->has_states() && match.length > 0) {
    CachedState* const state = FindState(match);
    MLC_CHECK(state != nullptr && state->position == match.length)
        << "no state behind " << match.length << " tokens";
    state->last_use = ++num_uses_;
    slot = state->slot.page();
  }
  kv_->AddSequence(seq_id, match.length, PagesOf(match), std::move(slot));
  tree_.Touch(*match.node);
}

PrefixCache::CachedState* PrefixCache::FindState(const Tree::Match& match) {
  CachedState* found = nullptr;
  for (const Node* node = match.node; node != &tree_.root() && found == nullptr;
       node = node->parent) {
    for (CachedState& state : states_) {
      if (state.node != node || state.position > match.length) continue;
      if (found == nullptr || found->position < state.position) found = &state;
    }
  }
  return found;
}

// ---- Insertion

void PrefixCache::Insert(int64_t seq_id, std::span<const int32_t> tokens, CacheSpace space) {
  MLC_CHECK(std::ssize(tokens) <= kv_->length(seq_id)) << "sequence " << seq_id;
  try {
    Tree::Match match = tree_.Find(tokens, space);
    if (match.length < std::ssize(tokens)) Add(seq_id, tokens, space, &match);
    VisitPages(*match.node, match.length, [&](int64_t slot, const Page& page) {
      const bool is_full = (slot + 1) * page_size_ <= match.length;
      if (is_full && kv_->block_table(seq_id)[slot] != page.id()) {
        kv_->ReplacePage(seq_id, slot, page);
      }
    });
    tree_.Touch(*match.node);
    AddStates(seq_id, match);
    kv_->DropKeptStates(seq_id, std::ssize(tokens));
  } catch (const std::bad_alloc&) {
    // Not caching is allowed; the sequence itself is unchanged.
  }
}

void PrefixCache::AddStates(int64_t seq_id, const Tree::Match& match) {
  for (const PlacedState& state : kv_->kept_states(seq_id)) {
    if (state.position > match.length) break;
    Node* node = match.node;
    while (node->begin >= state.position) node = node->parent;
    const auto same = std::ranges::find_if(states_, [&](const CachedState& other) {
      return other.node == node && other.position == state.position;
    });
    if (same != states_.end()) {
      same->last_use = ++num_uses_;
      continue;
    }
    // There is room, so this does not throw.
    states_.push_back({node, state.position, CachedPage(state.slot), ++num_uses_});
    states_.back().slot.set_hold(CacheHold::kTail);
  }
}

void PrefixCache::DropStates(const Node& node, int64_t end) {
  std::erase_if(states_, [&](const CachedState& state) {
    return state.node == &node && state.position > end;
  });
}

void PrefixCache::Add(int64_t seq_id, std::span<const int32_t> tokens, CacheSpace space,
                      Tree::Match* match) {
  const auto rest = tokens.subspan(match->length);
  const auto pages =
      kv_->pages(seq_id).first(NumPages(std::ssize(tokens))).subspan(match->length / page_size_);
  Node* node = match->node;
  const bool extends = node != &tree_.root() && node->is_leaf() && match->length == node->end();
  const bool is_held = extends && node->payload.back().id() == pages[0].id();
  // A fork may hold this page without holding the tree's pages of the path.
  if (pages[0].is_shared() && !is_held) return;
  if (match->length < node->end()) node = &Split(*node, match->length);
  if (extends) {
    ExtendLeaf(*node, rest, pages);
  } else {
    node = &AddLeaf(*node, rest, space, pages);
  }
  kv_->ShowTokens(seq_id, std::ssize(tokens));
  *match = {node, std::ssize(tokens)};
}

void PrefixCache::ExtendLeaf(Node& leaf, std::span<const int32_t> tokens,
                             std::span<const Page> pages) {
  std::vector<CachedPage>& held = leaf.payload;
  const bool ends_within_slot = leaf.end() % page_size_ != 0;
  held.reserve(held.size() + pages.size());
  tree_.ExtendLeaf(leaf, tokens);
  // From here on nothing throws.
  held.back().set_hold(CacheHold::kInner);
  if (ends_within_slot) {
    if (held.back().id() != pages[0].id()) {
      MovePins(held.back().page(), pages[0]);
      held.back() = CachedPage(pages[0]);
    }
    pages = pages.subspan(1);
  }
  for (const Page& page : pages) held.emplace_back(page);
  held.back().set_hold(CacheHold::kTail);
}

PrefixCache::Node& PrefixCache::AddLeaf(Node& parent, std::span<const int32_t> tokens,
                                        CacheSpace space, std::span<const Page> pages) {
  std::vector<CachedPage> held;
  held.reserve(pages.size());
  for (const Page& page : pages) held.emplace_back(page);
  held.back().set_hold(CacheHold::kTail);
  Node& leaf = tree_.AddLeaf(parent, tokens, space);
  leaf.payload = std::move(held);
  return leaf;
}

PrefixCache::Node& PrefixCache::Split(Node& node, int64_t position) {
  const int64_t num_upper = position / page_size_ - node.begin / page_size_;
  std::vector<CachedPage> held;
  held.reserve(num_upper);
  Node& upper = tree_.Split(node, position);
  for (CachedState& state : states_) {
    if (state.node == &node && state.position <= position) state.node = &upper;
  }
  const auto cut = node.payload.begin() + num_upper;
  std::move(node.payload.begin(), cut, std::back_inserter(held));
  node.payload.erase(node.payload.begin(), cut);
  upper.payload = std::move(held);
  return upper;
}

void PrefixCache::MovePins(const Page& from, const Page& to) {
  // Only the last page of a pin can be partly filled.
  for (PinEntry& pin : pins_) {
    if (pin.pages.back().id() == from.id()) pin.pages.back() = to;
  }
}

// ---- Eviction

void PrefixCache::EvictExcess() {
  if (limits_.max_num_recycling_seqs < 0) return;
  while (kv_->pool().num_cached(CacheHold::kTail) > limits_.max_num_recycling_seqs) ReclaimPage();
}

void PrefixCache::ReclaimState() {
  auto oldest = states_.end();
  for (auto state = states_.begin(); state != states_.end(); ++state) {
    if (!kv_->slots().is_cached(state->slot.id())) continue;
    if (oldest == states_.end() || state->last_use < oldest->last_use) oldest = state;
  }
  MLC_CHECK(oldest != states_.end()) << "no state without a user";
  states_.erase(oldest);
}

void PrefixCache::ReclaimPage() {
  MLC_CHECK(kv_->pool().num_cached(CacheHold::kTail) > 0) << "no leaf without a user";
  Node* leaf = tree_.oldest();
  while (!kv_->pool().is_cached(leaf->payload.back().id())) {
    tree_.Touch(*leaf);  // in use, so it was used now
    leaf = tree_.oldest();
  }
  leaf->payload.pop_back();
  ++num_evicted_pages_;
  TrimToPages(leaf);
}

void PrefixCache::TrimToPages(Node* node) {
  while (node->payload.empty()) {
    Node* const parent = node->parent;
    DropStates(*node, node->begin);
    tree_.RemoveLeaf(*node);
    if (parent == &tree_.root() || !parent->is_leaf()) return;
    node = parent;
  }
  const int64_t end = (node->begin / page_size_ + std::ssize(node->payload)) * page_size_;
  if (end < node->end()) {
    tree_.TruncateLeaf(*node, end);
    DropStates(*node, end);
  }
  node->payload.back().set_hold(CacheHold::kTail);
}

void PrefixCache::Clear() {
  pins_.clear();
  states_.clear();
  tree_.Clear();
  num_evicted_pages_ = 0;
}

// ---- Pins

int64_t PrefixCache::Pin(std::span<const int32_t> tokens, CacheSpace space,
                         std::string_view owner) {
  for (PinEntry& pin : pins_) {
    if (pin.space == space &&
        std::equal(pin.tokens.begin(), pin.tokens.end(), tokens.begin(), tokens.end())) {
      if (owner.empty()) pin.owner.clear();
      return pin.id;
    }
  }
  if (std::ssize(pins_) >= limits_.max_pins) {
    throw InvalidRequest("max_pinned_prefixes", std::to_string(pins_.size()) +
                                                    " prefixes are pinned, at most " +
                                                    std::to_string(limits_.max_pins) +
                                                    " may be (\"max_pinned_prefixes\")");
  }
  const Tree::Match match = tree_.Find(tokens, space);
  if (tokens.empty() || match.length < std::ssize(tokens)) {
    throw InvalidRequest("prompt", "Only a prompt that is in the prefix cache can be pinned; of " +
                                       std::to_string(tokens.size()) + " tokens " +
                                       std::to_string(match.length) + " are");
  }
  PinEntry pin{
      next_pin_id_, space, {tokens.begin(), tokens.end()}, PagesOf(match), std::string(owner)};
  if (const int64_t num_pages = NumPinnedPages(pin.pages); num_pages > limits_.max_pinned_pages) {
    throw InvalidRequest(
        "prompt",
        "With this prompt " + std::to_string(num_pages) + " pages would be pinned, at most " +
            std::to_string(limits_.max_pinned_pages) +
            " may be (\"max_total_sequence_length\" less \"max_single_sequence_length\")");
  }
  const auto num_slots =
      std::ranges::count_if(pins_, [](const PinEntry& other) { return bool{other.slot}; });
  const CachedState* const state = FindState(match);
  if (state != nullptr && num_slots < limits_.max_pinned_slots) pin.slot = state->slot.page();
  pins_.push_back(std::move(pin));
  return next_pin_id_++;
}

void PrefixCache::Unpin(int64_t pin_id) {
  const auto pin = std::find_if(pins_.begin(), pins_.end(),
                                [&](const PinEntry& entry) { return entry.id == pin_id; });
  if (pin == pins_.end()) {
    throw InvalidRequest("pin_id", "No prefix is pinned with id " + std::to_string(pin_id));
  }
  pins_.erase(pin);
  EvictExcess();
}

std::vector<PinnedPrefix> PrefixCache::pinned_prefixes() const {
  std::vector<PinnedPrefix> prefixes;
  prefixes.reserve(pins_.size());
  for (const PinEntry& pin : pins_) {
    prefixes.push_back({pin.id, std::ssize(pin.tokens), std::ssize(pin.pages), pin.owner});
  }
  return prefixes;
}

int64_t PrefixCache::NumPinnedPages(std::span<const Page> more) const {
  std::unordered_set<int32_t> ids;
  for (const Page& page : more) ids.insert(page.id());
  for (const PinEntry& pin : pins_) {
    for (const Page& page : pin.pages) ids.insert(page.id());
  }
  return std::ssize(ids);
}

// ---- Audit

std::vector<int32_t> PrefixCache::CountHolders() const {
  std::vector<int32_t> counts(kv_->pool().num_total());
  tree_.ForEach([&](const Node& node) {
    for (const CachedPage& page : node.payload) ++counts[page.id()];
  });
  for (const PinEntry& pin : pins_) {
    for (const Page& page : pin.pages) ++counts[page.id()];
  }
  return counts;
}

std::vector<int32_t> PrefixCache::CountHoldersOfSlots() const {
  std::vector<int32_t> counts(kv_->slots().num_total());
  for (const CachedState& state : states_) ++counts[state.slot.id()];
  for (const PinEntry& pin : pins_) {
    if (pin.slot) ++counts[pin.slot.id()];
  }
  return counts;
}

std::vector<PrefixCache::Path> PrefixCache::Paths() const {
  std::vector<Path> paths;
  tree_.ForEach([&](const Node& leaf) {
    if (!leaf.is_leaf()) return;
    Path path;
    path.tokens.resize(leaf.end());
    for (const Node* node = &leaf; node->parent != nullptr; node = node->parent) {
      std::copy(node->tokens.begin(), node->tokens.end(), path.tokens.begin() + node->begin);
    }
    path.page_ids.resize(NumPages(leaf.end()));
    VisitPages(leaf, leaf.end(),
               [&](int64_t slot, const Page& page) { path.page_ids[slot] = page.id(); });
    paths.push_back(std::move(path));
  });
  return paths;
}

void PrefixCache::Audit() const {
  tree_.Audit();
  std::unordered_set<const Node*> nodes;
  tree_.ForEach([&](const Node& node) { nodes.insert(&node); });
  for (const CachedState& state : states_) {
    MLC_CHECK(nodes.contains(state.node) && state.position > state.node->begin &&
              state.position <= state.node->end())
        << "a state at " << state.position;
  }
  std::unordered_set<const Node*> in_use;  // nodes with a page in use at or behind their end
  tree_.ForEach([&](const Node& node) {    // children come before their parents
    const bool has_partial = node.is_leaf() && node.end() % page_size_ != 0;
    MLC_CHECK(std::ssize(node.payload) ==
              node.end() / page_size_ - node.begin / page_size_ + (has_partial ? 1 : 0))
        << node.payload.size() << " pages for [" << node.begin << ", " << node.end() << ")";
    bool used_behind = in_use.contains(&node);
    for (auto page = node.payload.rbegin(); page != node.payload.rend(); ++page) {
      const bool is_tail = node.is_leaf() && page == node.payload.rbegin();
      MLC_CHECK(page->hold() == (is_tail ? CacheHold::kTail : CacheHold::kInner)) << page->id();
      const bool is_cached = kv_->pool().is_cached(page->id());
      MLC_CHECK(!(used_behind && is_cached)) << "page " << page->id() << " cannot be reclaimed";
      used_behind = used_behind || !is_cached;
    }
    if (used_behind) in_use.insert(node.parent);
  });
  std::vector<int64_t> shown_until(kv_->pool().num_total());
  tree_.ForEach([&](const Node& node) {
    int64_t slot = node.begin / page_size_;
    for (const CachedPage& page : node.payload) {
      shown_until[page.id()] = std::min(++slot * page_size_, node.end());
    }
  });
  kv_->AuditShown(shown_until);
}

}  // namespace mlc_native
