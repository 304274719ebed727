#include "kv/page_pool.h"

#include <algorithm>
#include <cstdio>
#include <utility>

#include "support/check.h"

namespace mlc_native {

Page::Page(const Page& other) : pool_(other.pool_), id_(other.id_) {
  if (pool_ != nullptr) pool_->AddRef(id_);
}

Page::~Page() {
  if (pool_ != nullptr) pool_->Release(id_);
}

bool Page::is_shared() const { return pool_ != nullptr && pool_->ref_counts_[id_] > 1; }

CachedPage::CachedPage(Page page) : page_(std::move(page)) {
  MLC_CHECK(hold() == CacheHold::kNone) << "page " << id() << " is in the prefix cache already";
  set_hold(CacheHold::kInner);
}

CachedPage::~CachedPage() {
  if (page_) set_hold(CacheHold::kNone);
}

CacheHold CachedPage::hold() const { return page_.pool_->holds_[page_.id_]; }

void CachedPage::set_hold(CacheHold hold) { page_.pool_->SetHold(page_.id_, hold); }

PagePool::PagePool(int64_t num_pages, Log log)
    : ref_counts_(num_pages, 0), holds_(num_pages, CacheHold::kNone), log_(std::move(log)) {
  free_ids_.reserve(num_pages);
  for (int64_t id = num_pages - 1; id >= 0; --id) free_ids_.push_back(static_cast<int32_t>(id));
}

PagePool::~PagePool() {
  // Throwing here would end the process. A page that outlives its pool is reported and leaked.
  if (num_free() == num_total()) return;
  char message[80];
  const int length =
      std::snprintf(message, sizeof message, "%lld KV pages were not returned to their pool",
                    static_cast<long long>(num_total() - num_free()));
  log_.Write(LogLevel::kError, {message, static_cast<size_t>(length)});
}

Page PagePool::Allocate() {
  if (free_ids_.empty() && num_cached() > 0 && reclaim_) reclaim_();
  MLC_CHECK(!free_ids_.empty()) << "out of KV pages, total " << num_total();
  const int32_t id = free_ids_.back();
  free_ids_.pop_back();
  ref_counts_[id] = 1;
  ++num_single(id);
  return Page(this, id);
}

void PagePool::AddRef(int32_t id) {
  MLC_CHECK(ref_counts_[id] > 0) << "page " << id << " is free";
  if (ref_counts_[id]++ == 1) --num_single(id);
}

void PagePool::Release(int32_t id) noexcept {
  if (--ref_counts_[id] == 1) ++num_single(id);
  if (ref_counts_[id] > 0) return;
  --num_single(id);
  free_ids_.push_back(id);  // has room for every page from the start, so this cannot throw
}

void PagePool::SetHold(int32_t id, CacheHold hold) noexcept {
  const bool single = ref_counts_[id] == 1;
  if (single) --num_single(id);
  holds_[id] = hold;
  if (single) ++num_single(id);
}

void PagePool::Audit() const {
  std::vector<bool> free(ref_counts_.size(), false);
  for (int32_t id : free_ids_) {
    MLC_CHECK(!free[id]) << "page " << id << " is twice in the free list";
    free[id] = true;
  }
  std::array<int64_t, 3> num_single{};
  for (size_t id = 0; id < ref_counts_.size(); ++id) {
    MLC_CHECK(ref_counts_[id] >= 0) << "page " << id;
    MLC_CHECK(free[id] == (ref_counts_[id] == 0))
        << "page " << id << " has " << ref_counts_[id] << " references, free: " << bool{free[id]};
    MLC_CHECK(!free[id] || holds_[id] == CacheHold::kNone) << "page " << id << " is free and held";
    if (ref_counts_[id] == 1) ++num_single[static_cast<size_t>(holds_[id])];
  }
  MLC_CHECK(num_single == num_single_)
      << num_cached() << " pages counted as cached, of " << num_total();
}

}  // namespace mlc_native
