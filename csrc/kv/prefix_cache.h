// PrefixCache remembers what has been computed: a radix tree of token sequences whose nodes hold
// the KV pages. A prompt that begins like an earlier sequence starts from that one's pages.
//
// The page that a node holds for a slot (page_size positions) has the tokens of the whole path in
// that slot, up to the node's end. A page is held by at most one node: a node has the pages of the
// slots that it fills to the end, a leaf also the partly filled one of its end. Where an inner
// node ends within a slot, the first page of any child has these tokens too.
//
// Who holds a page of a node holds all pages of its ancestors (sequences start from whole paths,
// and Insert makes them share the pages of their path). So a page that only the tree holds has
// nothing in use behind it, and every such page can be reclaimed from the tails of leaves: the leaf
// used longest ago first, page by page, and nothing that is in use. Pins are users like sequences.
//
// Functions that throw (no memory) leave the cache consistent. Engine's thread only.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kv/page_pool.h"
#include "kv/paged_kv_cache.h"
#include "kv/radix_tree.h"

namespace mlc_native {

struct PrefixCacheLimits {
  int64_t max_num_recycling_seqs = -1;  // leaves kept though nothing uses them; -1: any number
  int64_t max_pinned_pages = 0;
};

// A prompt that is never evicted.
struct PinnedPrefix {
  int64_t id = 0;
  int64_t num_tokens = 0;
  int64_t num_pages = 0;  // another pin may share some of them
};

class PrefixCache {
 public:
  // The cache reclaims its pages whenever the pool of `kv` has no free one.
  PrefixCache(PagedKvCache* kv, PrefixCacheLimits limits);
  ~PrefixCache();
  PrefixCache(const PrefixCache&) = delete;
  PrefixCache& operator=(const PrefixCache&) = delete;

  struct Prefix {
    int64_t length = 0;            // tokens
    int64_t num_cached_pages = 0;  // pages of it that are not available any more once it is in use
  };
  // The longest prefix of `tokens` that is in the cache. Does not count as a use.
  Prefix Find(std::span<const int32_t> tokens);
  // Adds a sequence to the KV cache that starts with these tokens, all of which are in the cache.
  void StartSequence(int64_t seq_id, std::span<const int32_t> tokens);
  // Keeps what the sequence has in the KV cache: `tokens`, its first ones, with no reservation that
  // is not committed. Pages that the cache has already replace the sequence's own. What only a fork
  // shares is not kept, and without memory nothing is.
  void Insert(int64_t seq_id, std::span<const int32_t> tokens);
  // Evicts what is over max_num_recycling_seqs; to be called when a sequence has ended.
  void EvictExcess();

  // The id of the new pin, or of the pin that there is for these tokens. Throws InvalidRequest when
  // they are not in the cache, or when more than max_pinned_pages would be pinned.
  int64_t Pin(std::span<const int32_t> tokens);
  // Throws InvalidRequest for an id that is not pinned.
  void Unpin(int64_t pin_id);
  std::vector<PinnedPrefix> pinned_prefixes() const;
  int64_t num_pinned_pages() const { return NumPinnedPages({}); }  // each counted once

  // Drops everything, pins too.
  void Clear();
  int64_t num_evicted_pages() const { return num_evicted_pages_; }
  // References that the tree and the pins have, by page.
  std::vector<int32_t> CountHolders() const;
  // Throws InternalError.
  void Audit() const;

 private:
  using Tree = RadixTree<std::vector<CachedPage>>;
  using Node = Tree::Node;
  struct PinEntry {
    int64_t id;
    std::vector<int32_t> tokens;
    std::vector<Page> pages;  // covering the tokens
  };

  int64_t NumPages(int64_t num_tokens) const { return (num_tokens + page_size_ - 1) / page_size_; }
  // Calls visit(slot, page) for the pages that cover a match, from the last slot to the first.
  template <typename Visitor>
  void VisitPages(const Tree::Match& match, const Visitor& visit) const;
  std::vector<Page> PagesOf(const Tree::Match& match) const;

  // Adds what comes behind the match, which then has all tokens.
  void Add(int64_t seq_id, std::span<const int32_t> tokens, Tree::Match* match);
  void ExtendLeaf(Node& leaf, std::span<const int32_t> tokens, std::span<const Page> pages);
  Node& AddLeaf(Node& parent, std::span<const int32_t> tokens, std::span<const Page> pages);
  Node& Split(Node& node, int64_t position);
  // As it were with these ones too.
  int64_t NumPinnedPages(std::span<const Page> more) const;
  // The tree swaps the partly filled page of a leaf for one with more tokens.
  void MovePins(const Page& from, const Page& to);

  // Drops one cached page. There must be one.
  void ReclaimPage();
  // A node without children keeps the tokens that it has pages for; without any it goes.
  void TrimToPages(Node* node);

  PagedKvCache* const kv_;
  const int64_t page_size_;
  const PrefixCacheLimits limits_;
  Tree tree_;
  std::vector<PinEntry> pins_;  // few: searched one by one
  int64_t next_pin_id_ = 0;
  int64_t num_evicted_pages_ = 0;
};

}  // namespace mlc_native
