#include "kv/page_pool.h"

#include <algorithm>
#include <cstdio>

#include "support/check.h"

namespace mlc_native {

Page::Page(const Page& other) : pool_(other.pool_), id_(other.id_) {
  if (pool_ != nullptr) pool_->AddRef(id_);
}

Page::~Page() {
  if (pool_ != nullptr) pool_->Release(id_);
}

bool Page::is_shared() const { return pool_ != nullptr && pool_->ref_counts_[id_] > 1; }

PagePool::PagePool(int64_t num_pages) : ref_counts_(num_pages, 0) {
  free_ids_.reserve(num_pages);
  for (int64_t id = num_pages - 1; id >= 0; --id) free_ids_.push_back(static_cast<int32_t>(id));
}

PagePool::~PagePool() {
  // Throwing here would end the process; a page that outlives its pool is reported and left alone.
  if (num_free() != num_total()) {
    std::fprintf(stderr, "mlc_native: %lld KV pages were not returned to their pool\n",
                 static_cast<long long>(num_used()));
  }
}

Page PagePool::Allocate() {
  MLC_CHECK(!free_ids_.empty()) << "out of KV pages, total " << num_total();
  const int32_t id = free_ids_.back();
  free_ids_.pop_back();
  ref_counts_[id] = 1;
  return Page(this, id);
}

void PagePool::AddRef(int32_t id) {
  MLC_CHECK(ref_counts_[id] > 0) << "page " << id << " is free";
  ++ref_counts_[id];
}

void PagePool::Release(int32_t id) noexcept {
  // free_ids_ has room for every page from the start, so this cannot throw.
  if (--ref_counts_[id] == 0) free_ids_.push_back(id);
}

void PagePool::Audit() const {
  std::vector<bool> free(ref_counts_.size(), false);
  for (int32_t id : free_ids_) {
    MLC_CHECK(!free[id]) << "page " << id << " is twice in the free list";
    free[id] = true;
  }
  for (size_t id = 0; id < ref_counts_.size(); ++id) {
    MLC_CHECK(ref_counts_[id] >= 0) << "page " << id;
    MLC_CHECK(free[id] == (ref_counts_[id] == 0))
        << "page " << id << " has " << ref_counts_[id] << " references, free: " << free[id];
  }
}

}  // namespace mlc_native
