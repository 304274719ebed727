#include "grammar/mask_filler.h"

#include <gtest/gtest.h>

#include <atomic>
#include <exception>
#include <numeric>
#include <stdexcept>
#include <vector>

#include "testing/allocations.h"

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

// The mask is the sum of the accepted tokens, which binds from 101 on. Refuses token 9, and throws
// for token 8.
class SumMatcher : public GrammarMatcher {
 public:
  bool FillMask(std::span<int32_t> mask) override {
    mask[0] = Sum();
    return Sum() > 100;
  }
  bool AcceptToken(int32_t token) override {
    if (token == 8) throw std::runtime_error("eight");
    if (token != 9) accepted_.push_back(token);
    return token != 9;
  }
  void Rollback(int64_t num_tokens) override { accepted_.resize(accepted_.size() - num_tokens); }
  std::string FindJumpForwardString() override { return ""; }
  bool IsTerminated() const override { return false; }
  bool IsCompleted() const override { return Sum() % 2 == 0; }
  std::unique_ptr<GrammarMatcher> Fork() const override { return nullptr; }
  int32_t Sum() const { return std::accumulate(accepted_.begin(), accepted_.end(), 0); }

 private:
  std::vector<int32_t> accepted_ = {100};
};

TEST(MaskFiller, FillsTheRowsBehindDraftTokens) {
  MaskFiller filler;
  for (const int32_t bad : {0, 8, 9}) {
    const std::vector<int32_t> drafts = {1, 2, bad, 4};
    SumMatcher matcher;
    std::vector<int32_t> words(5, -1);
    std::vector<MaskRow> behind(4);
    for (size_t i = 0; i < 4; ++i) behind[i].mask = std::span(words).subspan(i + 1, 1);
    std::vector<MaskRow> rows(1);
    rows[0].matcher = &matcher;
    rows[0].mask = std::span(words).first(1);
    rows[0].draft_tokens = drafts;
    rows[0].behind = behind;
    filler.Start(rows);
    filler.Wait();
    EXPECT_EQ(matcher.Sum(), 100) << "the draft tokens are taken back";
    // After an error the matcher may be anywhere, so that no row of it can be used.
    EXPECT_EQ(rows[0].error != nullptr, bad > 0);
    EXPECT_EQ(std::vector(words.begin(), words.begin() + 3), std::vector({100, 101, 103}));
    EXPECT_FALSE(behind[0].completed);
    for (size_t i = 0; i < 4; ++i) EXPECT_EQ(behind[i].error != nullptr, bad > 0 && i >= 2);
    EXPECT_FALSE(rows[0].constrained);
    EXPECT_TRUE(behind[0].constrained && behind[1].constrained) << "it begins within the draft";
    if (bad > 0) continue;
    EXPECT_EQ(words[4], 107);
    EXPECT_TRUE(behind[3].constrained);
  }
}

TEST(MaskFiller, FillsWithoutMemoryForAThread) {
  MaskFiller filler;
  std::atomic<int> num_fills = 0;
  NumberMatcher matcher(7, &num_fills);
  int32_t word = -1;
  MaskRow row{.matcher = &matcher, .mask = std::span(&word, 1), .error = nullptr};
  testing::FailAllocation(1);
  EXPECT_NO_THROW(filler.Start(std::span(&row, 1)));
  EXPECT_TRUE(testing::FailAllocation(-1)) << "the thread takes no memory";
  filler.Wait();
  EXPECT_EQ(word, 7);
}

TEST(MaskFiller, EndsWithoutEverHavingStarted) { MaskFiller filler; }

}  // namespace
}  // namespace mlc_native
