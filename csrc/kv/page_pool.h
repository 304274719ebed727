// PagePool hands out page ids of a KV cache; Page is a counted reference to one page.
//
// Copying a Page shares it; dropping the last reference frees it. A page is free (no reference),
// cached (the prefix cache has the only reference) or used, and free + cached + used == total
// always holds. Cached pages count as available: when no page is free, Allocate reclaims one. The
// pool's destructor reports pages that were not returned. Pages must not outlive the pool. Integers
// only; engine's thread only.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "mlc_native/detail/log.h"

namespace mlc_native {

class PagePool;

class Page {
 public:
  Page() = default;
  Page(const Page& other);
  Page(Page&& other) noexcept : pool_(std::exchange(other.pool_, nullptr)), id_(other.id_) {}
  Page& operator=(Page other) noexcept {
    std::swap(pool_, other.pool_);
    std::swap(id_, other.id_);
    return *this;
  }
  ~Page();

  int32_t id() const { return id_; }
  bool is_shared() const;
  explicit operator bool() const { return pool_ != nullptr; }

 private:
  friend class PagePool;
  friend class CachedPage;
  Page(PagePool* pool, int32_t id) : pool_(pool), id_(id) {}

  PagePool* pool_ = nullptr;
  int32_t id_ = -1;
};

// How the prefix cache holds a page. kTail: the last page of a leaf of its tree, which can be
// reclaimed next.
enum class CacheHold : uint8_t { kNone, kInner, kTail };

// The prefix cache's reference to a page. There is at most one per page.
class CachedPage {
 public:
  explicit CachedPage(Page page);
  CachedPage(CachedPage&&) noexcept = default;
  CachedPage& operator=(CachedPage&& other) noexcept {
    std::swap(page_, other.page_);
    return *this;
  }
  ~CachedPage();

  const Page& page() const { return page_; }
  int32_t id() const { return page_.id(); }
  CacheHold hold() const;
  void set_hold(CacheHold hold);

 private:
  Page page_;
};

class PagePool {
 public:
  explicit PagePool(int64_t num_pages, Log log = {});
  PagePool(const PagePool&) = delete;
  PagePool& operator=(const PagePool&) = delete;
  ~PagePool();

  // Requires: num_available() > 0. Throws InternalError otherwise.
  Page Allocate();
  // `reclaim` must free at least one cached page. It is called when no page is free but some are
  // cached.
  void set_reclaim(std::function<void()> reclaim) { reclaim_ = std::move(reclaim); }

  int64_t num_total() const { return static_cast<int64_t>(ref_counts_.size()); }
  int64_t num_free() const { return static_cast<int64_t>(free_ids_.size()); }
  int64_t num_cached() const {
    return num_cached(CacheHold::kInner) + num_cached(CacheHold::kTail);
  }
  int64_t num_cached(CacheHold hold) const { return num_single_[static_cast<size_t>(hold)]; }
  int64_t num_available() const { return num_free() + num_cached(); }
  int64_t num_used() const { return num_total() - num_available(); }
  int32_t ref_count(int32_t id) const { return ref_counts_[id]; }
  bool is_cached(int32_t id) const {
    return ref_counts_[id] == 1 && holds_[id] != CacheHold::kNone;
  }

  // Checks that each id is either in the free list once or referenced, and that the counts are
  // right. Throws InternalError.
  void Audit() const;

 private:
  friend class Page;
  friend class CachedPage;
  void AddRef(int32_t id);
  void Release(int32_t id) noexcept;
  void SetHold(int32_t id, CacheHold hold) noexcept;
  int64_t& num_single(int32_t id) { return num_single_[static_cast<size_t>(holds_[id])]; }

  std::vector<int32_t> ref_counts_;  // [num_pages], 0 when free
  std::vector<CacheHold> holds_;     // [num_pages], kNone when free
  std::vector<int32_t> free_ids_;    // LIFO: the most recently used page is still in caches
  // Number of pages with one reference, by CacheHold. Those of kInner and kTail are cached.
  std::array<int64_t, 3> num_single_{};
  std::function<void()> reclaim_;
  const Log log_;
};

}  // namespace mlc_native
