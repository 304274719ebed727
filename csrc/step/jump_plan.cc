#include "step/jump_plan.h"

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>

#include "mlc_native/model.h"
#include "request/request_state.h"
#include "step/step_context.h"
#include "support/check.h"
#include "tokenizer/retokenizer.h"

namespace mlc_native {
namespace {

bool AnyBit(std::span<const int32_t> mask, int64_t vocab_size) {
  const auto tail = static_cast<uint32_t>(vocab_size % kTokensPerWord);
  const uint32_t last_word = tail == 0 ? ~uint32_t{0} : (uint32_t{1} << tail) - 1;
  if ((static_cast<uint32_t>(mask.back()) & last_word) != 0) return true;
  return std::any_of(mask.begin(), mask.end() - 1, [](int32_t word) { return word != 0; });
}

class JumpFinder {
 public:
  JumpFinder(const JumpInput& input, size_t mask_size, GrammarMatcher& matcher,
             std::vector<int32_t>* mask)
      : input_(input), mask_size_(mask_size), matcher_(matcher), mask_(*mask) {}

  std::optional<Jump> Run() {
    const std::string text = matcher_.FindJumpForwardString();
    if (text.empty()) return std::nullopt;
    std::optional<Jump> jump = Plan(text);
    if (!jump || !Match(&*jump)) return std::nullopt;
    return jump;
  }

 private:
  const Retokenizer& retokenizer() const { return *input_.request->retokenizer; }

  // ---- What the tokens will be

  std::optional<Jump> Plan(std::string_view text) const {
    for (std::span<const int32_t> last :
         {std::span<const int32_t>(input_.replaceable), std::span<const int32_t>()}) {
      std::optional<Retokenizer::Extension> extension = retokenizer().Extend(last, text);
      if (!extension) return std::nullopt;
      Jump jump;
      jump.num_taken_back = std::ssize(last) - static_cast<int64_t>(extension->num_kept);
      jump.num_old_bytes = NumBytes(last.subspan(extension->num_kept));
      jump.added = std::move(extension->added);
      const auto max_added = static_cast<size_t>(jump.num_taken_back + input_.room);
      if (jump.added.size() > max_added) jump.added.resize(max_added);
      if (IsUsable(jump)) return jump;
    }
    return std::nullopt;
  }

  bool IsUsable(const Jump& jump) const {
    const std::vector<int32_t>& stop_token_ids = input_.request->generation_cfg.stop_token_ids;
    size_t num_bytes = 0;
    int64_t num_replacing = 0;
    for (int32_t token_id : jump.added) {
      if (num_bytes >= jump.num_old_bytes) break;
      // A caller that has been given the text cannot be told that it ended in the middle of it.
      if (std::ranges::find(stop_token_ids, token_id) != stop_token_ids.end()) return false;
      num_bytes += NumBytes(std::span(&token_id, 1));
      ++num_replacing;
    }
    return num_replacing <= kMaxGrammarRollback && NumBytes(jump.added) > jump.num_old_bytes;
  }

  size_t NumBytes(std::span<const int32_t> tokens) const {
    size_t num_bytes = 0;
    for (int32_t token_id : tokens) num_bytes += retokenizer().TextOf(token_id).size();
    return num_bytes;
  }

  // ---- The grammar

  // Moves the matcher over the jump and cuts the jump to what it accepts. False when that gains
  // nothing; the matcher is then where it was.
  bool Match(Jump* jump) {
    matcher_.Rollback(jump->num_taken_back);
    const size_t num_planned = jump->added.size();
    size_t num_accepted = 0;
    while (num_accepted < num_planned) {
      const int32_t token_id = jump->added[num_accepted];
      if (num_accepted + 1 == num_planned && IsLeftToTheModel(token_id)) break;
      if (!matcher_.AcceptToken(token_id)) break;
      ++num_accepted;
    }
    jump->added.resize(num_accepted);
    if (NumBytes(jump->added) > jump->num_old_bytes) return true;
    matcher_.Rollback(static_cast<int64_t>(num_accepted));
    for (int32_t token_id : std::span(input_.replaceable).last(jump->num_taken_back)) {
      MLC_CHECK(matcher_.AcceptToken(token_id)) << "the grammar forbids what it has accepted";
    }
    return false;
  }

  bool IsLeftToTheModel(int32_t token_id) {
    if (!retokenizer().MayBeLonger(token_id, {})) return false;
    mask_.resize(mask_size_);
    const bool constrained = matcher_.FillMask(mask_);
    return !constrained || retokenizer().MayBeLonger(token_id, mask_);
  }

  const JumpInput& input_;
  const size_t mask_size_;
  GrammarMatcher& matcher_;
  std::vector<int32_t>& mask_;
};

}  // namespace

EndTokens EndTokensOf(const StepContext& context) {
  return {.eos = context.eos_token_ids, .vocab_size = context.model.metadata().vocab_size};
}

std::optional<Jump> FindJump(const JumpInput& input, const EndTokens& ends, GrammarMatcher& matcher,
                             std::vector<int32_t>* mask) {
  std::optional<Jump> jump = JumpFinder(input, ends.mask_size(), matcher, mask).Run();
  if (jump) jump->ends = MustEnd(*input.request, ends, matcher, mask);
  return jump;
}

bool MustEnd(const Request& request, const EndTokens& ends, GrammarMatcher& matcher,
             std::vector<int32_t>* mask) {
  if (!matcher.IsCompleted()) return false;
  if (matcher.IsTerminated()) return true;
  mask->resize(ends.mask_size());
  if (!matcher.FillMask(*mask)) return false;
  for (int32_t token_id : ends.eos) SetTokenBit(*mask, token_id, false);
  for (int32_t token_id : request.generation_cfg.stop_token_ids)
    SetTokenBit(*mask, token_id, false);
  return !AnyBit(*mask, ends.vocab_size);
}

}  // namespace mlc_native
