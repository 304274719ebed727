// PrefixCache keeps computed KV pages for reuse: a radix tree of token sequences whose nodes hold
// pages. A prompt with the same beginning as an earlier sequence starts from the pages of that one.
//
// A slot is page_size consecutive positions. The page that a node holds for a slot contains the
// tokens of the whole path in that slot, up to the node's end. A page is held by at most one node:
// a node holds the pages of the slots that it fills to the end; a leaf also holds the page of its
// last, partly filled slot. Where an inner node ends within a slot, the first page of each child
// contains these tokens too.
//
//   slots        |    slot 0    |    slot 1    |    slot 2    |
//   inner node   [ A A A A A A A A A A A )                      holds the page of slot 0
//   leaf                                 [ B B B B B B B )      holds those of slots 1 and 2
//
// Each sequence belongs to a space; a prompt finds what its own space has.
//
// A holder of a page holds all pages before it on the path: sequences start from whole paths, and
// Insert makes them share the pages of their path. So no page behind a page that only the tree
// holds is in use, and every such page can be reclaimed from the tails of leaves, one page at a
// time, the least recently used leaf first. Pins are holders like sequences.
//
// Of a model with recurrent layers, the cache also holds states, at positions of nodes. A prompt
// then starts from the last state on its path, and computes the rest of it again. The slot of the
// state that was used least recently is reclaimed when another one is needed.
//
// A function that throws (no memory) leaves the cache consistent. Engine's thread only.
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kv/cache_space.h"
#include "kv/page_pool.h"
#include "kv/paged_kv_cache.h"
#include "kv/radix_tree.h"

namespace mlc_native {

struct PrefixCacheLimits {
  int64_t max_num_recycling_seqs = -1;  // unused leaves to keep; -1: any number
  int64_t max_pinned_pages = 0;
  int64_t max_pins = std::numeric_limits<int64_t>::max();
  int64_t max_pinned_slots = 0;  // of states
};

class PrefixCache {
 public:
  // The cache reclaims pages whenever the pool of `kv` has no free one.
  PrefixCache(PagedKvCache* kv, PrefixCacheLimits limits);
  ~PrefixCache();
  PrefixCache(const PrefixCache&) = delete;
  PrefixCache& operator=(const PrefixCache&) = delete;

  struct Prefix {
    int64_t length = 0;            // tokens; of a model with recurrent layers, up to a state
    int64_t num_cached_pages = 0;  // available pages that using this prefix takes
  };
  // Returns the longest cached prefix of `tokens`. Does not count as a use.
  Prefix Find(std::span<const int32_t> tokens, CacheSpace space = {});
  // The number of tokens whose pages are cached, wherever the states are.
  int64_t NumMatched(std::span<const int32_t> tokens, CacheSpace space = {}) {
    return tree_.Find(tokens, space).length;
  }
  // Adds a sequence to the KV cache that starts with these tokens. Requires: all are cached.
  void StartSequence(int64_t seq_id, std::span<const int32_t> tokens, CacheSpace space = {});
  // Caches `tokens`, the first tokens of the sequence, and the states that it keeps. Pages that the
  // cache already has replace the sequence's own. Tokens whose pages only a fork shares are not
  // cached; nothing is without memory. Requires: the sequence has no uncommitted reservation.
  void Insert(int64_t seq_id, std::span<const int32_t> tokens, CacheSpace space = {});
  // Evicts leaves beyond max_num_recycling_seqs. Call it when a sequence has ended.
  void EvictExcess();

  // Returns the id of the pin for these tokens, a new one if there is none. A pin belongs to the
  // request that made it; the host (no owner) takes over the pin of a request. Throws
  // InvalidRequest if the tokens are not cached, or more than max_pinned_pages or max_pins would be
  // pinned.
  int64_t Pin(std::span<const int32_t> tokens, CacheSpace space = {}, std::string_view owner = {});
  // Throws InvalidRequest for an id that is not pinned.
  void Unpin(int64_t pin_id);
  std::vector<PinnedPrefix> pinned_prefixes() const;
  int64_t num_pinned_pages() const { return NumPinnedPages({}); }  // each counted once

  // Drops everything, including pins.
  void Clear();
  int64_t num_evicted_pages() const { return num_evicted_pages_; }
  int64_t num_states() const { return std::ssize(states_); }
  // Returns the number of references that tree and pins have to each page, or slot of a state.
  std::vector<int32_t> CountHolders() const;
  std::vector<int32_t> CountHoldersOfSlots() const;
  // What one leaf of the tree shows: all tokens up to its end and the pages that hold them.
  struct Path {
    std::vector<int32_t> tokens;
    std::vector<int32_t> page_ids;
  };
  std::vector<Path> Paths() const;
  // Throws InternalError.
  void Audit() const;

 private:
  using Tree = RadixTree<std::vector<CachedPage>>;
  using Node = Tree::Node;
  struct PinEntry {
    int64_t id;
    CacheSpace space;
    std::vector<int32_t> tokens;
    std::vector<Page> pages;  // covering the tokens
    std::string owner;        // the id of a request; empty: the host
    Page slot{};              // of the last state within the tokens, if it can be spared
  };
  // A state behind `position` tokens of the path that ends in `node`, within it or at its end.
  struct CachedState {
    Node* node;
    int64_t position;
    CachedPage slot;
    int64_t last_use;
  };

  int64_t NumPages(int64_t num_tokens) const { return (num_tokens + page_size_ - 1) / page_size_; }
  // Calls visit(slot, page) for the pages that cover a match, from the last slot to the first.
  template <typename Visitor>
  void VisitPages(const Node& end, int64_t length, const Visitor& visit) const;
  std::vector<Page> PagesOf(const Tree::Match& match) const;

  // Adds the tokens behind the match, which then covers all tokens.
  void Add(int64_t seq_id, std::span<const int32_t> tokens, CacheSpace space, Tree::Match* match);
  void ExtendLeaf(Node& leaf, std::span<const int32_t> tokens, std::span<const Page> pages);
  Node& AddLeaf(Node& parent, std::span<const int32_t> tokens, CacheSpace space,
                std::span<const Page> pages);
  Node& Split(Node& node, int64_t position);
  // Returns the number of pinned pages if `more` were pinned too.
  int64_t NumPinnedPages(std::span<const Page> more) const;
  // Makes pins hold `to` instead of `from`, a partly filled page whose tokens `to` also has.
  void MovePins(const Page& from, const Page& to);

  // The last state on the path of the match; null: there is none.
  CachedState* FindState(const Tree::Match& match);
  void AddStates(int64_t seq_id, const Tree::Match& match);
  // Drops those of the node behind a position.
  void DropStates(const Node& node, int64_t end);
  // Drops the state that was used least recently. Requires: a slot is cached.
  void ReclaimState();

  // Drops one cached page. Requires: there is one.
  void ReclaimPage();
  // Cuts a leaf to the tokens that it has pages for, and removes it if there are none.
  void TrimToPages(Node* node);

  PagedKvCache* const kv_;
  const int64_t page_size_;
  const PrefixCacheLimits limits_;
  Tree tree_;
  std::vector<PinEntry> pins_;       // few: searched one by one
  std::vector<CachedState> states_;  // few, too; has room for all slots
  int64_t num_uses_ = 0;             // of states
  int64_t next_pin_id_ = 0;
  int64_t num_evicted_pages_ = 0;
};

}  // namespace mlc_native
