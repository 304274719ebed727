// The drafter of speculative_mode "ngram": what followed the last tokens when they occurred before,
// in the prompt or in the answer.
#include "draft/drafter.h"
#include "draft/token_index.h"

namespace mlc_native {
namespace {

class LookupDrafter final : public Drafter {
 public:
  LookupDrafter(int64_t min_match, int64_t max_match) : index_(min_match, max_match) {}

  void Propose(std::span<const int32_t> tokens, int64_t /*prompt_len*/, int64_t max_tokens,
               std::vector<int32_t>* drafts) override {
    index_.Extend(tokens);
    const auto found = index_.Find(tokens, tokens, /*near=*/std::ssize(tokens));
    if (found) GoOn(tokens, found->position, max_tokens, drafts);
  }

 private:
  TokenIndex index_;
};

}  // namespace

std::unique_ptr<Drafter> MakeLookupDrafter(const DraftSource& source) {
  if (source.engine.speculative_mode != SpeculativeMode::kNGram) return nullptr;
  return std::make_unique<LookupDrafter>(source.engine.prompt_lookup_min,
                                         source.engine.prompt_lookup_max);
}

}  // namespace mlc_native
