// The drafter of speculative_mode "suffix": what followed the last tokens when they occurred
// before, in the sequence itself or in what earlier sequences of the engine have said.
#include <algorithm>
#include <optional>

#include "draft/drafter.h"
#include "draft/past_answers.h"
#include "draft/token_index.h"

namespace mlc_native {
namespace {

class SuffixDrafter final : public Drafter {
 public:
  SuffixDrafter(int64_t min_match, int64_t space, PastAnswers& past)
      : own_(min_match, std::max(min_match, PastAnswers::kMaxMatch)), space_(space), past_(past) {}

  // The longest match counts, and of equally long ones that in the sequence itself.
  void Propose(std::span<const int32_t> tokens, int64_t /*prompt_len*/, int64_t max_tokens,
               std::vector<int32_t>* drafts) override {
    own_.Extend(tokens);
    const std::optional<TextMatch> own = own_.Find(tokens, tokens, std::ssize(tokens));
    const int64_t length = own ? own->length : 0;
    past_.Find(space_, tokens, length + 1, max_tokens, drafts);
    if (drafts->empty() && own) GoOn(tokens, own->position, std::min(max_tokens, length), drafts);
  }

  void OnEnd(std::span<const int32_t> tokens, int64_t prompt_len) noexcept override {
    past_.Add(space_, tokens, prompt_len);
  }

 private:
  TokenIndex own_;
  const int64_t space_;
  PastAnswers& past_;
};

}  // namespace

std::unique_ptr<Drafter> MakeSuffixDrafter(const DraftSource& source) {
  if (source.past_answers == nullptr) return nullptr;
  return std::make_unique<SuffixDrafter>(source.engine.prompt_lookup_min, source.request.cache_salt,
                                         *source.past_answers);
}

}  // namespace mlc_native
