// The fake model is what other tests trust, so it is held to its word first.
#include "fake_model/fake_model.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <vector>

#include "support/error.h"
#include "testing/temp_folder.h"

namespace mlc_native::testing {
namespace {

// One sequence on the model, fed in chunks.
class OneSequence {
 public:
  explicit OneSequence(const FakeModelOptions& options) : model(options) {
    model.Allocate(8, 64, 4);
  }

  // The token after `tokens`, which follow `position` tokens that are in the pages already.
  int32_t Forward(std::vector<int32_t> tokens, int64_t position = 0) {
    const int64_t num_pages = (position + std::ssize(tokens) + 15) / 16;
    const SequenceSlice slice{.first_row = 0,
                              .num_tokens = static_cast<int32_t>(tokens.size()),
                              .position = position,
                              .block_table = std::span(table).first(num_pages)};
    const int32_t last_row = static_cast<int32_t>(tokens.size()) - 1;
    const LogitsView logits = model.Forward({tokens, {&slice, 1}, {&last_row, 1}});
    const auto row = logits.row(0);
    return static_cast<int32_t>(std::max_element(row.begin(), row.end()) - row.begin());
  }

  FakeModel model;
  std::vector<int32_t> table = {5, 2, 7};
};

std::vector<int32_t> Count(int32_t first, int32_t length) {
  std::vector<int32_t> tokens;
  for (int32_t i = 0; i < length; ++i) tokens.push_back(first + i);
  return tokens;
}

TEST(FakeModel, AnswersTheOracleHoweverThePromptIsCut) {
  const FakeModelOptions options;
  const std::vector<int32_t> prompt = Count(1, 40);
  for (int32_t cut = 1; cut < 40; ++cut) {
    OneSequence sequence(options);
    sequence.Forward(Count(1, cut));
    EXPECT_EQ(sequence.Forward(Count(1 + cut, 40 - cut), cut),
              FakeModel::NextToken(options, prompt));
  }
}

TEST(FakeModel, ReadsItsHistoryFromThePages) {
  OneSequence sequence({});
  const int32_t right = sequence.Forward(Count(1, 20));
  sequence.Forward(Count(1, 20));
  sequence.table = {5, 3};  // not the page that tokens 16 to 19 are in
  EXPECT_NE(sequence.Forward({20}, 19), right);
  const PageCopy copy{2, 3};
  sequence.model.CopyPages({&copy, 1});
  EXPECT_EQ(sequence.Forward({20}, 19), right);
}

TEST(FakeModel, AWindowForgets) {
  FakeModelOptions options;
  options.history_window = 2;
  EXPECT_EQ(FakeModel::NextToken(options, Count(1, 5)), FakeModel::NextToken(options, Count(4, 2)));
  OneSequence sequence(options);
  EXPECT_EQ(sequence.Forward(Count(1, 5)), FakeModel::NextToken(options, Count(4, 2)));
}

TEST(FakeModel, NeverAnswersItsEos) {
  FakeModelOptions options;
  const int32_t next = FakeModel::NextToken(options, Count(1, 5));
  options.eos_token_id = next;
  EXPECT_NE(FakeModel::NextToken(options, Count(1, 5)), next);
}

TEST(FakeModel, AScriptIsAnsweredInTurn) {
  FakeModelOptions options;
  options.script = {5, 5, 7};
  OneSequence sequence(options);
  std::vector<int32_t> answer = {sequence.Forward(Count(100, 20))};
  for (int64_t position = 20; answer.size() < 7; ++position) {
    answer.push_back(sequence.Forward({answer.back()}, position));
  }
  EXPECT_EQ(answer, (std::vector<int32_t>{5, 5, 7, 5, 5, 7, 5}));
}

TEST(FakeModel, FailuresComeWhenAskedForAndARepeatIsRight) {
  FakeModelOptions options;
  options.fail_at_forward = {2};
  options.fail_copy_at = {1};
  OneSequence sequence(options);
  const int32_t first = sequence.Forward(Count(1, 9));
  EXPECT_THROW(sequence.Forward(Count(1, 9)), std::runtime_error);
  EXPECT_EQ(sequence.Forward(Count(1, 9)), first);
  const PageCopy copy{5, 1};
  EXPECT_THROW(sequence.model.CopyPages({&copy, 1}), std::runtime_error);
  sequence.model.CopyPages({&copy, 1});
  EXPECT_EQ(sequence.model.num_forwards(), 3);
  EXPECT_EQ(sequence.model.num_rows(), 27);
}

TEST(FakeModel, NamesThePoisonedSequence) {
  FakeModelOptions options;
  options.poison_token = 77;
  OneSequence sequence(options);
  sequence.Forward({1, 2});
  EXPECT_THROW(sequence.Forward({77}, 2), SequenceError);
  EXPECT_THROW(sequence.Forward({3}, 3), SequenceError) << "it is in the history";
}

TEST(FakeModel, ReusedRowsFavourOneTokenAtATime) {
  FakeModelOptions options;
  options.reuse_rows = true;
  OneSequence sequence(options);
  for (int32_t first : {1, 2, 3}) {
    EXPECT_EQ(sequence.Forward(Count(first, 9)), FakeModel::NextToken(options, Count(first, 9)));
  }
}

TEST(FakeModelOptions, AreReadFromTheFolder) {
  const TempFolder folder;
  const auto read = [&folder](const char* config) {
    folder.Write("config.json", config);
    return ReadFakeModelOptions(folder.path());
  };
  const FakeModelOptions options =
      read(R"({"fake": {"vocab_size": 99, "cost": "sleep", "fail_at_forward": [3]}})");
  EXPECT_EQ(options.vocab_size, 99);
  EXPECT_TRUE(options.sleep);
  EXPECT_EQ(options.fail_at_forward, (std::vector<int64_t>{3}));
  EXPECT_EQ(read("{}").vocab_size, 256);
  EXPECT_THROW(read(R"({"fake": {"vocabsize": 99}})"), LoadError);
  EXPECT_THROW(read(R"({"fake": {"vocab_size": "many"}})"), LoadError);
  EXPECT_THROW(read(R"({"fake": 3})"), LoadError);
  EXPECT_THROW(read("{"), LoadError);
  std::filesystem::remove(folder.file("config.json"));
  EXPECT_THROW(ReadFakeModelOptions(folder.path()), LoadError);
}

}  // namespace
}  // namespace mlc_native::testing
