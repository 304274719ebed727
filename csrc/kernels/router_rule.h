// How a router of a mixture of experts chooses, of the CPU's kernels and of CUDA's. Pure; any
// thread.
#pragma once

#include <cstdint>

namespace mlc_native::kernels {

inline constexpr int64_t kMaxExperts = 1024;

// What the logits of a router mean:
//   kSoftmax      An expert's score is its probability among all experts.
//   kSigmoid      An expert's score is its own probability.
//   kSparseMixer  The experts are chosen one after the other, each with the greatest logit that is
//                 left. Its weight is its probability among those left whose logits are near
//                 (relative to their size, within twice `jitter`).
//   kRootSoftplus An expert's score is the root of the softplus of its logit. On the CPU alone.
enum class RouterScore : uint8_t { kSoftmax, kSigmoid, kSparseMixer, kRootSoftplus };

// How a router chooses num_chosen of num_experts. Of equal experts, the lower one is better.
struct RouterRule {
  RouterScore score = RouterScore::kSoftmax;
  int64_t num_experts = 0;  // at most kMaxExperts
  int64_t num_chosen = 0;
  // Experts come in num_groups groups of equal size. Only those of the num_chosen_groups best
  // groups are chosen; a group is as good as its `num_judged` best experts together, 1 or 2.
  int64_t num_groups = 1;
  int64_t num_chosen_groups = 1;
  int64_t num_judged = 2;
  bool renormalize = false;     // weights are divided by their sum,
  float smallest_sum = 1e-20f;  // or by this if the sum is smaller
  float scale = 1.0f;           // of the weights, at last
  float jitter = 0.0f;          // of kSparseMixer
  float logit_cap = 0.0f;       // of kSigmoid: x is cap * tanh(x / cap) first; 0: it stays
  bool judges_logits = false;   // experts are chosen by their logits; scores may be equal, rounded

  // Requires: these hold.
  bool IsValid() const {
    return num_experts >= 1 && num_experts <= kMaxExperts && num_groups >= 1 &&
           num_experts % num_groups == 0 && num_chosen_groups >= 1 &&
           num_chosen_groups <= num_groups && (num_judged == 1 || num_judged == 2) &&
           num_chosen >= 1 && num_chosen <= num_experts / num_groups * num_chosen_groups &&
           (logit_cap == 0 || (score == RouterScore::kSigmoid && !judges_logits));
  }
};

}  // namespace mlc_native::kernels
