#include "tokenizer/stop_str_handler.h"

#include <gtest/gtest.h>

#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "support/error.h"

namespace mlc_native {
namespace {

struct Outcome {
  std::string text;
  std::vector<int32_t> ids;
  bool stopped = false;
  friend bool operator==(const Outcome&, const Outcome&) = default;
};

std::ostream& operator<<(std::ostream& out, const Outcome& outcome) {
  return out << testing::PrintToString(outcome.text) << " ids "
             << testing::PrintToString(outcome.ids) << (outcome.stopped ? " stopped" : "");
}

StopStrHandler MakeHandler(const std::vector<std::string>& stop_strs, bool include_match = false) {
  return StopStrHandler(std::make_shared<const StopStrSet>(stop_strs), include_match);
}

// Token i has id i.
Outcome Feed(const std::vector<std::string>& stop_strs, const std::vector<std::string>& tokens,
             bool include_match = false) {
  StopStrHandler handler = MakeHandler(stop_strs, include_match);
  Outcome outcome;
  for (size_t i = 0; i < tokens.size(); ++i) {
    handler.Put(static_cast<int32_t>(i), tokens[i], &outcome.text, &outcome.ids);
  }
  outcome.stopped = handler.stop_triggered();
  handler.Finish(&outcome.text, &outcome.ids);
  return outcome;
}

// Tries every stop string at every place of the whole text.
Outcome Oracle(const std::vector<std::string>& stop_strs, const std::vector<std::string>& tokens,
               bool include_match = false) {
  const std::string whole = std::accumulate(tokens.begin(), tokens.end(), std::string());
  size_t begin = std::string::npos;
  size_t end = std::string::npos;
  for (const std::string& stop_str : stop_strs) {
    const size_t at = whole.find(stop_str);
    if (at == std::string::npos) continue;
    const size_t stop_end = at + stop_str.size();
    if (stop_end < end || (stop_end == end && at < begin)) {
      begin = at;
      end = stop_end;
    }
  }
  Outcome outcome;
  outcome.stopped = end != std::string::npos;
  if (include_match) begin = end;
  outcome.text = outcome.stopped ? whole.substr(0, begin) : whole;
  size_t offset = 0;
  for (size_t i = 0; i < tokens.size(); ++i) {
    // Ids with some text, and ids without text that stand before the stop string.
    const bool has_text = offset < outcome.text.size() && !tokens[i].empty();
    const bool is_empty = tokens[i].empty() && offset <= outcome.text.size();
    const bool before_stop = !outcome.stopped || offset < end;
    if (before_stop && (has_text || is_empty)) outcome.ids.push_back(static_cast<int32_t>(i));
    offset += tokens[i].size();
  }
  return outcome;
}

TEST(StopStrHandler, TextBeforeTheStopStringInTheSameTokenIsKept) {
  EXPECT_EQ(Feed({"<stop>"}, {"Hi ", "there<st", "op> not", " this"}),
            (Outcome{"Hi there", {0, 1}, true}));
  EXPECT_EQ(Feed({"<stop>"}, {"Hi", "<stop>"}), (Outcome{"Hi", {0}, true}));
  EXPECT_EQ(Feed({"<stop>"}, {"<stop>"}), (Outcome{"", {}, true}));
  EXPECT_EQ(Feed({"b"}, {"abc"}), (Outcome{"a", {0}, true}));
}

TEST(StopStrHandler, AFalseBeginningIsReleased) {
  EXPECT_EQ(Feed({"abcd"}, {"ab", "ab", "cx"}), (Outcome{"ababcx", {0, 1, 2}, false}));
  EXPECT_EQ(Feed({"aab"}, {"a", "a", "a", "b", "z"}), (Outcome{"a", {0}, true}));
}

TEST(StopStrHandler, WithholdsOnlyWhatMayBelongToAStopString) {
  StopStrHandler handler = MakeHandler({"\n\nUser"});
  Outcome outcome;
  handler.Put(7, "end.\n", &outcome.text, &outcome.ids);
  EXPECT_EQ(outcome, (Outcome{"end.", {}, false}));
  handler.Put(8, "\n", &outcome.text, &outcome.ids);
  EXPECT_EQ(outcome, (Outcome{"end.", {}, false}));
  handler.Put(9, "\n", &outcome.text, &outcome.ids);
  EXPECT_EQ(outcome, (Outcome{"end.\n", {7}, false}));
  handler.Finish(&outcome.text, &outcome.ids);
  EXPECT_EQ(outcome, (Outcome{"end.\n\n\n", {7, 8, 9}, false}));
}

TEST(StopStrHandler, TheEarliestEndWinsThenTheLongest) {
  EXPECT_EQ(Feed({"bcde", "cd"}, {"abcdef"}), (Outcome{"ab", {0}, true}));
  EXPECT_EQ(Feed({"cd", "abcd", "bcd"}, {"x", "abcd"}), (Outcome{"x", {0}, true}));
  EXPECT_EQ(Feed({"he", "hers", "she"}, {"us", "hers"}), (Outcome{"u", {0}, true}));
}

TEST(StopStrHandler, TokensWithoutTextKeepTheirPlace) {
  EXPECT_EQ(Feed({"xy"}, {"", "a", "", "x", "", "z", ""}),
            (Outcome{"axz", {0, 1, 2, 3, 4, 5, 6}, false}));
  StopStrHandler handler = MakeHandler({"xy"});
  Outcome outcome;
  handler.Put(1, "", &outcome.text, &outcome.ids);
  EXPECT_EQ(outcome.ids, std::vector<int32_t>({1}));
  handler.Put(2, "x", &outcome.text, &outcome.ids);
  handler.Put(3, "", &outcome.text, &outcome.ids);
  EXPECT_EQ(outcome.ids, std::vector<int32_t>({1})) << "the text before token 3 is not released";
  handler.Put(4, "y", &outcome.text, &outcome.ids);
  EXPECT_EQ(outcome.ids, std::vector<int32_t>({1}));
  EXPECT_TRUE(handler.stop_triggered());
}

TEST(StopStrHandler, NothingComesAfterTheStop) {
  StopStrHandler handler = MakeHandler({"!"});
  Outcome outcome;
  handler.Put(0, "a!b", &outcome.text, &outcome.ids);
  EXPECT_TRUE(handler.stop_triggered());
  handler.Put(1, "more", &outcome.text, &outcome.ids);
  handler.Finish(&outcome.text, &outcome.ids);
  EXPECT_EQ(outcome.text, "a");
  EXPECT_EQ(outcome.ids, std::vector<int32_t>({0}));
}

// mlc_llm's tests/python/tokenizers/test_streamer.py: stop, no stop, and flushed at the end; the
// emoji's bytes come in several tokens.
TEST(StopStrHandler, StopStringsOfBytes) {
  const std::string stop = " \xF0\x9F\xA4\x94";
  EXPECT_EQ(Feed({stop}, {"Hm", " \xF0\x9F", "\xA4", "\x94", " more"}), (Outcome{"Hm", {0}, true}));
  EXPECT_EQ(Feed({stop}, {"Hm", " \xF0\x9F", "\xA4", "\x95"}),
            (Outcome{"Hm \xF0\x9F\xA4\x95", {0, 1, 2, 3}, false}));
  EXPECT_EQ(Feed({"^^"}, {"a^", "b", "^"}), (Outcome{"a^b^", {0, 1, 2}, false}));
  EXPECT_EQ(Feed({"\n\n\n"}, {"text", "\n", "\n"}), (Outcome{"text\n\n", {0, 1, 2}, false}));
  EXPECT_EQ(Feed({std::string("\0\xFF", 2)}, {std::string("a\0", 2), "\xFFz"}),
            (Outcome{"a", {0}, true}));
}

TEST(StopStrHandler, AgreesWithSearchingTheWholeText) {
  std::mt19937 random(4);
  int num_stopped = 0;
  for (int i = 0; i < 100000; ++i) {
    const uint32_t num_letters = 1 + random() % 3;
    const auto random_string = [&](size_t min, size_t max) {
      std::string s(min + random() % (max - min + 1), '\0');
      for (char& c : s) c = static_cast<char>('a' + random() % num_letters);
      return s;
    };
    std::vector<std::string> stop_strs(1 + random() % 4);
    for (std::string& stop_str : stop_strs) stop_str = random_string(1, 6);
    std::vector<std::string> tokens(random() % 12);
    for (std::string& token : tokens) token = random_string(0, 4);
    const bool include_match = random() % 2 == 0;
    const Outcome expected = Oracle(stop_strs, tokens, include_match);
    ASSERT_EQ(Feed(stop_strs, tokens, include_match), expected)
        << "stop " << testing::PrintToString(stop_strs) << " tokens "
        << testing::PrintToString(tokens);
    num_stopped += expected.stopped ? 1 : 0;
  }
  EXPECT_GT(num_stopped, 20000);
  EXPECT_LT(num_stopped, 90000);
}

TEST(StopStrHandler, ManyStopStringsWithCommonParts) {
  // Nodes with many children, and text that ends far behind what can be released.
  std::mt19937 random(5);
  std::vector<std::string> stop_strs;
  for (int i = 0; i < StopStrSet::kMaxStopStrs; ++i) {
    std::string stop_str = "<";
    for (int j = 0; j < 8; ++j) stop_str += static_cast<char>(random() % 256);
    stop_strs.push_back(stop_str + ">");
  }
  for (int i = 0; i < 2000; ++i) {
    std::vector<std::string> tokens;
    for (int j = 0; j < 8; ++j) {
      const std::string& stop_str = stop_strs[random() % stop_strs.size()];
      tokens.push_back(stop_str.substr(0, random() % 9));
    }
    if (i % 2 == 0) tokens.push_back(stop_strs[random() % stop_strs.size()]);
    tokens.push_back("end");
    ASSERT_EQ(Feed(stop_strs, tokens), Oracle(stop_strs, tokens));
  }
}

TEST(StopStrHandler, ALongStopStringThatNearlyMatchesReleasesInOrder) {
  const std::string stop_str = std::string(StopStrSet::kMaxTotalBytes - 1, 'a') + "b";
  StopStrHandler handler = MakeHandler({stop_str});
  Outcome outcome;
  const int32_t num_tokens = 2 * StopStrSet::kMaxTotalBytes;
  for (int32_t id = 0; id < num_tokens; ++id) handler.Put(id, "a", &outcome.text, &outcome.ids);
  EXPECT_EQ(outcome.text.size(), static_cast<size_t>(num_tokens - StopStrSet::kMaxTotalBytes + 1));
  handler.Put(num_tokens, "c", &outcome.text, &outcome.ids);
  EXPECT_EQ(outcome.text.size(), static_cast<size_t>(num_tokens + 1));
  std::vector<int32_t> all(num_tokens + 1);
  std::iota(all.begin(), all.end(), 0);
  EXPECT_EQ(outcome.ids, all);
}

TEST(StopStrSet, SequencesShareOneSet) {
  const auto set = std::make_shared<const StopStrSet>(std::vector<std::string>{"ab"});
  StopStrHandler first(set), second(set);
  Outcome a, b;
  first.Put(0, "a", &a.text, &a.ids);
  second.Put(0, "b", &b.text, &b.ids);
  first.Put(1, "b", &a.text, &a.ids);
  EXPECT_TRUE(first.stop_triggered());
  EXPECT_FALSE(second.stop_triggered());
  EXPECT_EQ(b.text, "b");
}

TEST(StopStrSet, RefusesWhatIsNoStopString) {
  EXPECT_TRUE(StopStrSet({}).empty());
  EXPECT_FALSE(StopStrSet({"a"}).empty());
  EXPECT_THROW(StopStrSet({"a", ""}), InvalidRequest);
  EXPECT_NO_THROW(StopStrSet(std::vector<std::string>(StopStrSet::kMaxStopStrs, "a")));
  EXPECT_THROW(StopStrSet(std::vector<std::string>(StopStrSet::kMaxStopStrs + 1, "a")),
               InvalidRequest);
  EXPECT_NO_THROW(StopStrSet({std::string(StopStrSet::kMaxTotalBytes, 'a')}));
  try {
    StopStrSet({std::string(StopStrSet::kMaxTotalBytes, 'a'), "b"});
    FAIL() << "too many bytes were accepted";
  } catch (const InvalidRequest& e) {
    EXPECT_EQ(e.field(), "stop_strs");
    EXPECT_NE(std::string(e.what()).find("65537"), std::string::npos) << e.what();
  }
}

}  // namespace
}  // namespace mlc_native
