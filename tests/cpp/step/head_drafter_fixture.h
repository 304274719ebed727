// HeadDrafterTest: a draft head on the fake model, with the target that it guesses for played by
// the test. One thread.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <utility>
#include <vector>

#include "fake_model/fake_model.h"
#include "step/head_drafter.h"
#include "testing/test_engine.h"

namespace mlc_native::testing {

inline constexpr BatchDrafter::Sizes kRoomy{.num_pages = 64, .max_rows = 64, .max_sequences = 8};

inline FakeModelOptions HeadTarget() {
  FakeModelOptions options;
  options.history_window = 2;
  options.gives_states = true;
  return options;
}

inline FakeModelOptions Head() {
  FakeModelOptions options = HeadTarget();
  options.is_draft_head = true;
  return options;
}

// Plays the target: what it computes of sequences, and the states that it is asked for.
class HeadDrafterTest : public ::testing::Test {
 protected:
  struct Computed {
    int64_t id = 0;
    int64_t position = 0;
    int32_t num_rows = 0;
  };

  void Make(const BatchDrafter::Sizes& sizes = kRoomy, const FakeModelOptions& options = Head()) {
    auto head = std::make_unique<FakeModel>(options);
    head_ = head.get();
    drafter_ = std::make_unique<HeadDrafter>(std::move(head), target_, sizes);
  }

  // The target computes these rows of `tokens_`.
  void Compute(const std::vector<Computed>& parts, bool is_collected = true) {
    std::vector<BatchDrafter::WatchedSlice> slices;
    std::vector<int32_t> ids;
    for (const Computed& part : parts) {
      const std::vector<int32_t>& tokens = tokens_.at(part.id);
      slices.push_back({.sequence_id = part.id,
                        .tokens = &tokens,
                        .position = part.position,
                        .first_row = static_cast<int32_t>(ids.size()),
                        .num_rows = part.num_rows});
      for (int32_t i = 0; i < part.num_rows; ++i) ids.push_back(tokens.at(part.position + i));
    }
    const HiddenStates asked = drafter_->Watch(slices);
    ASSERT_EQ(asked.rows.size(), ids.size());
    for (size_t i = 0; i < asked.rows.size(); ++i) {
      std::vector<float> state;
      for (int32_t stream : asked.streams) {
        state.push_back(static_cast<float>(ids.at(asked.rows[i])));
        state.push_back(static_cast<float>(stream));
        state.push_back(0);  // the history, which no head reads
      }
      asked.memory->Write(asked.places[i], state);
    }
    if (is_collected) drafter_->Collected();
  }

  std::vector<int32_t> Guess(int64_t id, int64_t count) {
    std::vector<int32_t> drafts;
    const BatchDrafter::Wish wish{
        .sequence_id = id, .tokens = tokens_.at(id), .max_tokens = count, .drafts = &drafts};
    drafter_->Propose({&wish, 1});
    drafter_->Audit();
    return drafts;
  }

  // What the target says next.
  std::vector<int32_t> Next(int64_t id, int64_t count) const {
    return Oracle(HeadTarget(), tokens_.at(id), count);
  }

  FakeModel target_{HeadTarget()};
  FakeModel* head_ = nullptr;
  std::unique_ptr<HeadDrafter> drafter_;
  std::vector<std::vector<int32_t>> tokens_ = std::vector<std::vector<int32_t>>(8);
};

}  // namespace mlc_native::testing
