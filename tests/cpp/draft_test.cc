// The parts that drafts are made with: the index, the drafters, the choice of a length.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "draft/draft_length.h"
#include "draft/drafter.h"
#include "draft/past_answers.h"
#include "draft/sequence_drafts.h"
#include "draft/token_index.h"

namespace mlc_native {
namespace {

using Tokens = std::vector<int32_t>;

// The length of the match of the end of `context` at `position`, at most max_match.
int64_t MatchAt(const Tokens& text, int64_t position, const Tokens& context, int64_t max_match) {
  int64_t length = 0;
  while (length < max_match && length < position && length < std::ssize(context) &&
         text[position - 1 - length] == context[context.size() - 1 - length]) {
    ++length;
  }
  return length;
}

TEST(TokenIndex, FindsOnlyWhatMatchesInATextThatLosesTokens) {
  std::mt19937 random(1);
  int num_found = 0;
  for (int round = 0; round < 200; ++round) {
    const int64_t min_match = 1 + random() % 3;
    const int64_t max_match = min_match + random() % 4;
    TokenIndex index(min_match, max_match);
    Tokens text;
    for (int step = 0; step < 60; ++step) {
      text.push_back(static_cast<int32_t>(random() % (2 + round % 40)));
      if (random() % 12 == 0) text.resize(random() % text.size() + 1);
      index.Extend(text);
      const auto found = index.Find(text, text, std::ssize(text));
      if (!found) continue;
      ++num_found;
      ASSERT_LT(found->position, std::ssize(text));
      ASSERT_GE(found->length, min_match);
      ASSERT_EQ(MatchAt(text, found->position, text, max_match), found->length);
    }
  }
  EXPECT_GT(num_found, 1000);
}

TEST(TokenIndex, MissesNoMatchOfATextThatOnlyGrows) {
  TokenIndex index(2, 5);
  Tokens text;
  for (int32_t i = 0; i < 3000; ++i) text.push_back(i);
  for (int32_t i = 0; i < 500; ++i) {
    text.push_back(100 + 3 * i);
    text.push_back(101 + 3 * i);
    index.Extend(text);
    const auto found = index.Find(text, text, 0);
    ASSERT_TRUE(found.has_value());
    EXPECT_EQ(found->position, 102 + 3 * i);
  }
}

TEST(TokenIndex, TakesTheNearestOfEquallyLongMatches) {
  const Tokens text = {7, 8, 1, 7, 8, 2, 7, 8, 3, 9};
  TokenIndex index(2, 4);
  index.Extend(text);
  const Tokens context = {5, 7, 8};
  for (const auto& [near, position] : {std::pair(0, 2), std::pair(5, 5), std::pair(9, 8)}) {
    const auto found = index.Find(text, context, near);
    ASSERT_TRUE(found.has_value());
    EXPECT_EQ(found->position, position);
  }
  EXPECT_FALSE(index.Find(text, Tokens{8, 7}, 0).has_value());
  EXPECT_FALSE(index.Find(text, Tokens{7}, 0).has_value());
}

// ---- Past answers

constexpr int64_t kSpace = 77;

Tokens GoOnFrom(const PastAnswers& past, const Tokens& context, int64_t max_tokens = 10,
                int64_t space = kSpace, int64_t min_length = 1) {
  Tokens drafts;
  past.Find(space, context, min_length, max_tokens, &drafts);
  return drafts;
}

TEST(PastAnswers, GoOnAsMostOfThemDid) {
  PastAnswers past(PastAnswers::kMinBytes, 2);
  past.Add(kSpace, Tokens{1, 2, 3, 4, 5, 6, 7}, 1);
  EXPECT_EQ(GoOnFrom(past, {9, 3, 4}), Tokens({5, 6})) << "as many as match";
  EXPECT_EQ(GoOnFrom(past, {9, 3, 4}, 1), Tokens({5}));
  EXPECT_EQ(GoOnFrom(past, {2, 3, 4}), Tokens({5, 6, 7})) << "up to the end of the answer";
  EXPECT_EQ(GoOnFrom(past, {2, 3, 4}, 10, kSpace, 4), Tokens()) << "a longer match is known";
  EXPECT_EQ(GoOnFrom(past, {1, 2}), Tokens({3, 4})) << "the prompt counts as what was before";
  EXPECT_EQ(GoOnFrom(past, {6, 7}), Tokens());
  EXPECT_EQ(GoOnFrom(past, {4}), Tokens());
  past.Add(kSpace, Tokens{0, 2, 3, 4, 8, 8}, 1);
  EXPECT_EQ(GoOnFrom(past, {2, 3, 4}), Tokens({8, 8})) << "the latest of two";
  past.Add(kSpace, Tokens{0, 2, 3, 4, 5, 9, 9}, 1);
  EXPECT_EQ(GoOnFrom(past, {2, 3, 4}), Tokens({5, 9, 9})) << "the one that was said more often";
}

TEST(PastAnswers, StopWhereTheyDisagree) {
  PastAnswers past(1 << 16, 2);
  for (int32_t i = 0; i < 15; ++i) past.Add(kSpace, Tokens{0, 1, 2, 3, 100 + i, 200 + i}, 1);
  EXPECT_EQ(GoOnFrom(past, {0, 1, 2, 3}), Tokens()) << "one of fifteen";
  EXPECT_EQ(GoOnFrom(past, {0, 1, 2}), Tokens({3}));
}

TEST(PastAnswers, BelongToTheirSpace) {
  PastAnswers past(1 << 16, 2);
  past.Add(1, Tokens{5, 6, 7, 8}, 1);
  past.Add(2, Tokens{5, 6, 9, 9}, 1);
  EXPECT_EQ(GoOnFrom(past, {5, 6}, 10, 1), Tokens({7, 8}));
  EXPECT_EQ(GoOnFrom(past, {5, 6}, 10, 2), Tokens({9, 9}));
  EXPECT_EQ(GoOnFrom(past, {5, 6}, 10, 3), Tokens());
  // Neither does an answer of another space go on behind the end of one.
  EXPECT_EQ(GoOnFrom(past, {7, 8}, 10, 1), Tokens());
}

// Every bound of the ring is passed many times. What is found was said behind the same tokens in
// the same space, and what was said last is found.
TEST(PastAnswers, ForgetTheOldestAndKeepWithinTheirMemory) {
  constexpr int64_t kBytes = 1 << 14;
  PastAnswers past(kBytes, 2);
  const int64_t num_bytes = past.max_bytes();
  EXPECT_LE(num_bytes, kBytes);
  std::mt19937 random(3);
  std::vector<std::pair<int64_t, Tokens>> said;
  int64_t num_found = 0;
  for (int round = 0; round < 3000; ++round) {
    const int64_t space = random() % 3;
    Tokens tokens(1 + random() % (round % 50 == 0 ? 3000 : 60));
    for (int32_t& token : tokens) token = static_cast<int32_t>(random() % (round % 2 ? 4 : 900));
    const auto prompt_len = static_cast<int64_t>(random() % tokens.size());
    past.Add(space, tokens, prompt_len);
    said.emplace_back(space, tokens);
    const auto& [other_space, other] =
        said[said.size() - 1 - random() % std::min<size_t>(said.size(), 20)];
    const auto length = static_cast<int64_t>(2 + random() % 5);
    if (std::ssize(other) <= length) continue;
    const auto from = static_cast<int64_t>(random() % (other.size() - length));
    const Tokens context(other.begin() + from, other.begin() + from + length);
    const Tokens found = GoOnFrom(past, context, 5, other_space, 2);
    if (found.empty()) continue;
    ++num_found;
    const auto was_said = [&](const auto& answer) {
      const auto& [its_space, text] = answer;
      Tokens wanted(context.end() - 2, context.end());
      wanted.push_back(found.front());
      return its_space == other_space && !std::ranges::search(text, wanted).empty();
    };
    ASSERT_TRUE(std::ranges::any_of(said, was_said));
  }
  EXPECT_GT(num_found, 500);
  EXPECT_EQ(past.max_bytes(), num_bytes);
  past.Clear();
  EXPECT_EQ(past.num_tokens(), 0);
  past.Add(kSpace, Tokens{1, 2, 3}, 1);
  EXPECT_EQ(GoOnFrom(past, {1, 2}), Tokens({3}));
}

// However often the same has been said, a search looks at few places.
TEST(PastAnswers, AreSearchedInBoundedTime) {
  PastAnswers past(1 << 24, 2);
  const Tokens same(1000, 7);
  for (int i = 0; i < 500; ++i) past.Add(kSpace, same, 1);
  // 10,000 searches that looked at all of the 500,000 places would take minutes.
  int64_t num_guesses = 0;
  for (int i = 0; i < 10000; ++i) num_guesses += std::ssize(GoOnFrom(past, same, 4));
  EXPECT_EQ(num_guesses, 40000);
}

// ---- Drafters

Tokens Guess(SequenceDrafts& drafts, const Tokens& tokens, int64_t prompt_len, int64_t max_tokens) {
  drafts.Propose(tokens, prompt_len, {.max_length = max_tokens, .length = max_tokens});
  return drafts.proposal();
}

TEST(Lookup, GoesOnAsBefore) {
  EngineConfig engine;
  engine.speculative_mode = SpeculativeMode::kNGram;
  const GenerationConfig request;
  AcceptanceRate model_rate;
  SequenceDrafts drafts({.engine = engine, .request = request}, {}, &model_rate);
  EXPECT_EQ(Guess(drafts, {1, 2, 3, 4, 1, 2}, 6, 2), Tokens({3, 4}));
  EXPECT_EQ(Guess(drafts, {1, 2, 3, 4, 1, 2, 9}, 6, 2), Tokens());
  // A text that repeats itself, for longer than it is.
  EXPECT_EQ(Guess(drafts, {1, 2, 3, 4, 1, 2, 9, 5, 6, 5, 6}, 6, 7), Tokens({5, 6, 5, 6, 5, 6, 5}));
  EXPECT_FALSE(drafts.is_prediction());
}

TEST(Suffix, TakesTheLongestMatchAndThenItsOwnSequence) {
  EngineConfig engine;
  engine.speculative_mode = SpeculativeMode::kSuffix;
  GenerationConfig request;
  request.cache_salt = 5;
  PastAnswers past(PastAnswers::kMinBytes, engine.prompt_lookup_min);
  AcceptanceRate model_rate;
  const DraftSource source{.engine = engine, .request = request, .past_answers = &past};
  SequenceDrafts first(source, {}, &model_rate);
  EXPECT_EQ(Guess(first, {1, 2, 3, 4, 1, 2}, 6, 9), Tokens({3, 4}));
  first.OnEnd(Tokens{9, 1, 2, 3, 5, 6, 7}, 1);
  SequenceDrafts second(source, {}, &model_rate);
  EXPECT_EQ(Guess(second, {1, 2, 3}, 2, 9), Tokens({5, 6, 7}));
  EXPECT_EQ(Guess(second, {8, 2, 3, 8, 8, 2, 3}, 2, 9), Tokens({8, 8, 2}));
  EXPECT_EQ(Guess(second, {2, 3, 8, 9, 1, 2, 3}, 2, 9), Tokens({5, 6, 7})) << "it is longer";
  SequenceDrafts third(source, {}, &model_rate);
  EXPECT_EQ(Guess(third, {2, 3, 8, 8, 2, 3}, 2, 9), Tokens({8, 8})) << "it is as long";
  request.cache_salt = 6;
  SequenceDrafts other(source, {}, &model_rate);
  EXPECT_EQ(Guess(other, {1, 2, 3}, 2, 9), Tokens());
}

// Guesses that do not pay are compared with what comes, so that it is noticed when they would pay.
TEST(SequenceDrafts, WatchWhatTheyWouldHaveGuessed) {
  EngineConfig engine;
  engine.speculative_mode = SpeculativeMode::kNGram;
  const GenerationConfig request;
  AcceptanceRate model_rate;
  SequenceDrafts drafts({.engine = engine, .request = request}, {}, &model_rate);
  const DraftLimits limits{.max_length = 4, .cost = 0.3};
  const auto num_guessed = [&](const Tokens& tokens) {
    drafts.Propose(tokens, 1, limits);
    const int64_t length = std::ssize(drafts.proposal());
    if (length > 0) drafts.Verified(false);
    return length;
  };
  Tokens tokens = {1, 2};
  int64_t num_tried = 0;
  for (int32_t i = 0; i < 20; ++i) {
    tokens.insert(tokens.end(), {1, 2});
    num_tried += num_guessed(tokens) > 0 ? 1 : 0;
    tokens.push_back(100 + i);  // never what was guessed
  }
  EXPECT_LT(num_tried, 5);
  EXPECT_GE(num_tried, 1);
  tokens.insert(tokens.end(), {1, 2});
  EXPECT_EQ(num_guessed(tokens), 0);
  for (int i = 0; i < 8; ++i) {
    tokens.insert(tokens.end(), {3, 4, 1, 2});
    drafts.Propose(tokens, 1, limits);
    if (!drafts.proposal().empty()) break;
    drafts.Propose(tokens, 1, limits);
  }
  EXPECT_GT(std::ssize(drafts.proposal()), 0);
}

TEST(SequenceDrafts, AskNoneWhileASureGuessWouldNotPay) {
  struct Counting final : Drafter {
    explicit Counting(int* num_calls) : num_calls(num_calls) {}
    void Propose(std::span<const int32_t> /*tokens*/, int64_t /*prompt_len*/,
                 int64_t /*max_tokens*/, Tokens* drafts) override {
      ++*num_calls;
      drafts->push_back(7);
    }
    int* num_calls;
  };
  const EngineConfig engine;
  const GenerationConfig request;
  AcceptanceRate model_rate;
  int num_calls = 0;
  std::vector<std::unique_ptr<Drafter>> extra;
  extra.push_back(std::make_unique<Counting>(&num_calls));
  SequenceDrafts drafts({.engine = engine, .request = request}, std::move(extra), &model_rate);
  const Tokens tokens = {1, 2};
  drafts.Propose(tokens, 1, {.max_length = 4, .cost = 1.1});
  EXPECT_EQ(num_calls, 0);
  EXPECT_EQ(drafts.proposal(), Tokens());
  drafts.Propose(tokens, 1, {.max_length = 4, .length = 2, .cost = 1.1});
  EXPECT_EQ(num_calls, 1) << "the length is fixed";
  drafts.Propose(tokens, 1, {.max_length = 4, .cost = 0.9});
  EXPECT_EQ(num_calls, 2) << "it is watched";
}

TEST(Prediction, IsFollowedAndFoundAgain) {
  const EngineConfig engine;
  GenerationConfig request;
  request.prediction = {10, 11, 12, 13, 14, 15, 16, 17};
  AcceptanceRate model_rate;
  SequenceDrafts drafts({.engine = engine, .request = request}, {}, &model_rate);
  Tokens tokens = {1, 2};
  EXPECT_EQ(Guess(drafts, tokens, 2, 3), Tokens({10, 11, 12}));
  EXPECT_TRUE(drafts.is_prediction());
  tokens.insert(tokens.end(), {10, 11});
  EXPECT_EQ(Guess(drafts, tokens, 2, 10), Tokens({12, 13, 14, 15, 16, 17}));
  tokens.insert(tokens.end(), {99, 98});
  EXPECT_EQ(Guess(drafts, tokens, 2, 10), Tokens());
  tokens.insert(tokens.end(), {14, 15});
  EXPECT_EQ(Guess(drafts, tokens, 2, 10), Tokens({16, 17}));
  tokens.insert(tokens.end(), {16, 17, 18});
  EXPECT_EQ(Guess(drafts, tokens, 2, 10), Tokens());
  tokens.resize(2);  // all of it was taken back
  EXPECT_EQ(Guess(drafts, tokens, 2, 1), Tokens({10}));
  // One token shows where the answer goes on that leaves some out, or has others in their place.
  tokens.insert(tokens.end(), {10, 13});
  EXPECT_EQ(Guess(drafts, tokens, 2, 2), Tokens({14, 15}));
  tokens.push_back(99);
  EXPECT_EQ(Guess(drafts, tokens, 2, 2), Tokens());
  tokens.push_back(15);
  EXPECT_EQ(Guess(drafts, tokens, 2, 10), Tokens({16, 17}));
  // Far behind the place where the answer has left the text, it takes more.
  tokens.insert(tokens.end(), {99, 99, 99, 99, 17});
  EXPECT_EQ(Guess(drafts, tokens, 2, 10), Tokens());
}

// Tokens by their texts, as a tokenizer has them.
class Words {
 public:
  Tokens operator()(const std::vector<std::string>& texts) {
    Tokens tokens;
    for (const std::string& text : texts) {
      const auto known = std::ranges::find(texts_, text);
      tokens.push_back(static_cast<int32_t>(known - texts_.begin()));
      if (known == texts_.end()) texts_.push_back(text);
    }
    return tokens;
  }
  TokenText text_of() const {
    return [this](int32_t token_id) -> std::string_view { return texts_.at(token_id); };
  }

 private:
  std::vector<std::string> texts_;
};

// The guess behind an answer, of which the drafter sees one more token at a time.
Tokens GuessBehind(Words& words, const std::vector<std::string>& prediction,
                   const std::vector<std::string>& answer, int64_t max_tokens) {
  const EngineConfig engine;
  GenerationConfig request;
  request.prediction = words(prediction);
  AcceptanceRate model_rate;
  SequenceDrafts drafts({.engine = engine, .request = request, .text_of = words.text_of()}, {},
                        &model_rate);
  Tokens tokens = {0};
  for (const int32_t token : words(answer)) {
    Guess(drafts, tokens, 1, max_tokens);
    tokens.push_back(token);
  }
  return Guess(drafts, tokens, 1, max_tokens);
}

TEST(Prediction, IsIndexedOncePerRequest) {
  EngineConfig engine;
  GenerationConfig request;
  request.prediction = {10, 11, 12, 13, 14, 15};
  int num_read = 0;
  std::shared_ptr<const PredictedText> text;
  const DraftSource source{.engine = engine,
                           .request = request,
                           .text_of =
                               [&num_read](int32_t) {
                                 ++num_read;
                                 return std::string_view("word ");
                               },
                           .predicted_text = &text};
  const std::unique_ptr<Drafter> first = MakePredictionDrafter(source);
  EXPECT_EQ(num_read, 6);
  const std::unique_ptr<Drafter> second = MakePredictionDrafter(source);
  EXPECT_EQ(num_read, 6);
  std::vector<int32_t> guesses;
  second->Propose(Tokens{1}, 1, 2, &guesses);
  EXPECT_EQ(guesses, Tokens({10, 11}));
}

TEST(Prediction, IsComparedByBytes) {
  Words words;
  const std::vector<std::string> text = {"The",   " o",  " zebra", "pposite", " of",
                                         " poor", " is", " rich",  ".",       "\n"};
  const auto behind = [&](const std::vector<std::string>& answer) {
    return GuessBehind(words, text, answer, 2);
  };
  EXPECT_EQ(behind({}), words({"The", " o"}));
  // Other tokens of the same text: there is a guess where a token of the text begins.
  EXPECT_EQ(behind({"T", "he"}), words({" o", " zebra"}));
  EXPECT_EQ(behind({"T"}), Tokens());
  EXPECT_EQ(behind({"The o"}), words({" zebra", "pposite"}));
  EXPECT_EQ(behind({"The", " o z"}), Tokens());
  EXPECT_EQ(behind({"The", "", " o"}), words({" zebra", "pposite"})) << "a token without a text";
  EXPECT_EQ(behind({"The", " o z", "ebrapposite"}), words({" of", " poor"}));
  // Something is left out, and the token that shows where the answer goes on is not in the text.
  EXPECT_EQ(behind({"The", " opposite"}), words({" of", " poor"}));
  // Another word; the word behind it is of two tokens.
  EXPECT_EQ(behind({"The", " o", " zebra", "pposite", " of", " rich"}), words({".", "\n"}))
      << "it may be a place further on";
  EXPECT_EQ(behind({"The", " o", " zebra", "pposite", " of", " rich", " i"}), Tokens());
  EXPECT_EQ(behind({"The", " o", " zebra", "pposite", " of", " rich", " i", "s"}),
            words({" rich", "."}))
      << "and if it is not, the answer is looked for where it has left the text";
}

// The place of a text that occurs often: the next one, and far from the text the longest match.
TEST(Prediction, GoesOnAtTheNextPlaceOfRepeatedText) {
  Words words;
  std::vector<std::string> text;
  for (const char* name : {"a", "b", "c", "d"}) {
    for (const char* piece : {"let ", name, " = ", "call", "(", name, ");", "\n"}) {
      text.emplace_back(piece);
    }
  }
  const auto behind = [&](const std::vector<std::string>& answer) {
    return GuessBehind(words, text, answer, 3);
  };
  // The second line has another name on the right.
  std::vector<std::string> answer(text.begin(), text.begin() + 13);
  answer.insert(answer.end(), {"x", ");"});
  EXPECT_EQ(behind(answer), words({"\n", "let ", "c"}));
  // The second line is left out.
  answer.assign(text.begin(), text.begin() + 8);
  answer.insert(answer.end(), {"let ", "c"});
  EXPECT_EQ(behind(answer), words({" = ", "call", "("}));
  // Two lines that the text lacks.
  answer.assign(text.begin(), text.begin() + 8);
  for (int i = 0; i < 2; ++i) {
    answer.insert(answer.end(), {"print", "ln", "(", "one", " more", ")", "!", "\n"});
  }
  answer.insert(answer.end(), {"let ", "b", " = "});
  EXPECT_EQ(behind(answer), words({"call", "(", "b"}));
}

}  // namespace
}  // namespace mlc_native
