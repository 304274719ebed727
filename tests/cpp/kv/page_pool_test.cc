#include "kv/page_pool.h"

#include <gtest/gtest.h>

#include <optional>
#include <utility>
#include <vector>

#include "support/check.h"

namespace mlc_native {
namespace {

TEST(PagePool, CountsFreeAndUsed) {
  PagePool pool(3);
  EXPECT_EQ(pool.num_total(), 3);
  EXPECT_EQ(pool.num_free(), 3);
  {
    Page a = pool.Allocate();
    Page b = pool.Allocate();
    EXPECT_NE(a.id(), b.id());
    EXPECT_EQ(pool.num_free(), 1);
    EXPECT_EQ(pool.num_used(), 2);
    pool.Audit();
  }
  EXPECT_EQ(pool.num_free(), 3);
  pool.Audit();
}

TEST(PagePool, CopiesShareAndTheLastOneFrees) {
  PagePool pool(1);
  Page a = pool.Allocate();
  EXPECT_FALSE(a.is_shared());
  {
    Page b = a;
    EXPECT_EQ(b.id(), a.id());
    EXPECT_TRUE(a.is_shared());
    EXPECT_EQ(pool.num_free(), 0);
    Page c = std::move(b);
    EXPECT_FALSE(b);  // NOLINT(bugprone-use-after-move): what a move leaves is the promise
    EXPECT_EQ(pool.ref_count(a.id()), 2);
  }
  EXPECT_FALSE(a.is_shared());
  a = Page();
  EXPECT_EQ(pool.num_free(), 1);
  pool.Audit();
}

TEST(PagePool, SelfAssignmentKeepsThePage) {
  PagePool pool(1);
  Page a = pool.Allocate();
  Page& alias = a;
  a = alias;
  EXPECT_TRUE(a);
  EXPECT_EQ(pool.ref_count(a.id()), 1);
}

TEST(PagePool, AllocateFromAnEmptyPoolIsAnInternalError) {
  PagePool pool(1);
  Page a = pool.Allocate();
  EXPECT_THROW(pool.Allocate(), InternalError);
  pool.Audit();
}

TEST(PagePool, APageThatOnlyTheCacheHoldsIsAvailable) {
  PagePool pool(2);
  Page page = pool.Allocate();
  CachedPage cached(page);
  EXPECT_EQ(pool.num_used(), 1);
  page = Page();
  EXPECT_EQ(pool.num_used(), 0);
  EXPECT_EQ(pool.num_cached(), 1);
  EXPECT_EQ(pool.num_free(), 1);
  EXPECT_EQ(pool.num_available(), 2);
  cached.set_hold(CacheHold::kTail);
  EXPECT_EQ(pool.num_cached(CacheHold::kTail), 1);
  page = cached.page();
  EXPECT_EQ(pool.num_available(), 1);
  EXPECT_THROW(CachedPage{page}, InternalError) << "once in the cache";
  pool.Audit();
}

TEST(PagePool, CachedPagesAreReclaimedWhenNothingIsFree) {
  PagePool pool(1);
  std::optional<CachedPage> cached(pool.Allocate());
  pool.set_reclaim([&] { cached.reset(); });
  EXPECT_TRUE(pool.Allocate());
  EXPECT_FALSE(cached);
  pool.Audit();
}

TEST(PagePool, ThePageUsedLastIsReusedFirst) {
  PagePool pool(4);
  Page a = pool.Allocate();
  Page b = pool.Allocate();
  const int32_t warm = a.id();
  a = Page();
  EXPECT_EQ(pool.Allocate().id(), warm);
}

}  // namespace
}  // namespace mlc_native
