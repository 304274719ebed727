// AdversarialDrafter: guesses of every kind that a drafter may make, from a seed. Often right ones;
// wrong ones, tokens that do not exist, tokens that end the answer, too many, none, and exceptions.
#pragma once

#include <cstdint>
#include <span>
#include <stdexcept>
#include <utility>
#include <vector>

#include "draft/drafter.h"
#include "fake_model/fake_model.h"
#include "support/random.h"

namespace mlc_native::testing {

class AdversarialDrafter final : public Drafter {
 public:
  // Counts its exceptions in num_failures, which outlives it.
  AdversarialDrafter(FakeModelOptions model, uint64_t seed, int64_t* num_failures = nullptr)
      : model_(std::move(model)), seed_(seed), num_failures_(num_failures) {}

  void Propose(std::span<const int32_t> tokens, int64_t /*prompt_len*/, int64_t max_tokens,
               std::vector<int32_t>* drafts) override {
    const uint64_t kind = Draw(10);
    if (kind == 0) {
      if (num_failures_ != nullptr) ++*num_failures_;
      throw std::runtime_error("the drafter fails");
    }
    if (kind == 1) return;
    const int64_t length = kind == 2 ? 3 * max_tokens : max_tokens;
    const uint64_t one_wrong_of = 1 + Draw(12);
    std::vector<int32_t> text(tokens.begin(), tokens.end());
    for (int64_t i = 0; i < length; ++i) {
      int32_t token = FakeModel::NextToken(model_, text);  // what is most likely
      if (Draw(one_wrong_of) == 0) token = static_cast<int32_t>(Draw(model_.vocab_size + 4)) - 2;
      drafts->push_back(token);
      text.push_back(token);
    }
  }

 private:
  uint64_t Draw(uint64_t bound) { return MixBits(seed_ ^ MixBits(++num_drawn_)) % bound; }

  const FakeModelOptions model_;
  const uint64_t seed_;
  int64_t* const num_failures_;
  uint64_t num_drawn_ = 0;
};

}  // namespace mlc_native::testing
