// PagePool hands out page ids of a KV cache; Page is a counted reference to one page.
//
// Copying a Page shares it, dropping the last reference frees it. free + used == total always; the
// pool's destructor proves that every page came back. No tensors, no threads: the engine's thread
// only. Pages must not outlive the pool.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

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
  Page(PagePool* pool, int32_t id) : pool_(pool), id_(id) {}

  PagePool* pool_ = nullptr;
  int32_t id_ = -1;
};

class PagePool {
 public:
  explicit PagePool(int64_t num_pages);
  PagePool(const PagePool&) = delete;
  PagePool& operator=(const PagePool&) = delete;
  ~PagePool();

  // Throws InternalError when nothing is free: callers check num_free() first.
  Page Allocate();

  int64_t num_total() const { return static_cast<int64_t>(ref_counts_.size()); }
  int64_t num_free() const { return static_cast<int64_t>(free_ids_.size()); }
  int64_t num_used() const { return num_total() - num_free(); }
  int32_t ref_count(int32_t id) const { return ref_counts_[id]; }

  // Full check: each id is either free once or referenced. Throws InternalError.
  void Audit() const;

 private:
  friend class Page;
  void AddRef(int32_t id);
  void Release(int32_t id) noexcept;

  std::vector<int32_t> ref_counts_;  // [num_pages], 0 when free
  std::vector<int32_t> free_ids_;    // LIFO: the page used last is still warm
};

}  // namespace mlc_native
