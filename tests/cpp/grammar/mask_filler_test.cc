#include "grammar/mask_filler.h"

#include <gtest/gtest.h>

#include <atomic>
#include <exception>
#include <stdexcept>
#include <vector>

namespace mlc_native {
namespace {

// Writes its number, or throws when it is negative.
class NumberMatcher : public GrammarMatcher {
 public:
  NumberMatcher(int number, std::atomic<int>* num_fills) : number_(number), num_fills_(num_fills) {}
  bool FillMask(std::span<int32_t> mask) override {
    ++*num_fills_;
    if (number_ < 0) throw std::runtime_error("negative");
    if (number_ == 0) return false;
    mask[0] = number_;
    return true;
  }
  bool AcceptToken(int32_t) override { return false; }
  void Rollback(int64_t) override {}
  std::string FindJumpForwardString() override { return ""; }
  bool IsTerminated() const override { return false; }
  bool IsCompleted() const override { return false; }
  std::unique_ptr<GrammarMatcher> Fork() const override { return nullptr; }

 private:
  const int number_;
  std::atomic<int>* const num_fills_;
};

TEST(MaskFiller, FillsEveryRowOnceInEveryBatch) {
  MaskFiller filler;
  for (int batch = 0; batch < 500; ++batch) {
    std::atomic<int> num_fills = 0;
    const int num_rows = 1 + batch % 67;
    std::vector<NumberMatcher> matchers;
    std::vector<int32_t> words(num_rows, -1);
    std::vector<MaskRow> rows(num_rows);
    for (int i = 0; i < num_rows; ++i) matchers.emplace_back(i % 5 - 1, &num_fills);
    for (int i = 0; i < num_rows; ++i) {
      rows[i] = {&matchers[i], std::span(words).subspan(i, 1), /*constrained=*/i % 2 == 0,
                 std::make_exception_ptr(1)};
    }
    filler.Start(rows);
    EXPECT_GT(filler.Wait(), 0.0);
    EXPECT_EQ(num_fills, num_rows);
    for (int i = 0; i < num_rows; ++i) {
      const int number = i % 5 - 1;
      EXPECT_EQ(words[i], number > 0 ? number : -1);
      EXPECT_EQ(rows[i].constrained, number > 0);
      EXPECT_EQ(rows[i].error != nullptr, number < 0);
      if (number < 0) EXPECT_THROW(std::rethrow_exception(rows[i].error), std::runtime_error);
    }
  }
}

TEST(MaskFiller, EndsWithoutEverHavingStarted) { MaskFiller filler; }

}  // namespace
}  // namespace mlc_native
