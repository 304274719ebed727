// The choice of experts. A row's is scalar code: it costs a few microseconds for hundreds of
// experts, while their matrices take milliseconds.
#include "kernels/experts.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "kernels/row_loop.h"
#include "support/check.h"

namespace mlc_native::kernels {
namespace {

constexpr float kNever = -std::numeric_limits<float>::infinity();
// The cost of an expert for a row, in simple operations: an exponential and the searches.
constexpr int64_t kElementsPerExpert = 32;

using Scores = std::array<float, kMaxExperts>;

// The best of [begin, end) that is not marked as taken. Requires: there is one.
int64_t BestOf(const float* values, const bool* taken, int64_t begin, int64_t end) {
  int64_t best = -1;
  for (int64_t i = begin; i < end; ++i) {
    if (!taken[i] && (best < 0 || values[i] > values[best])) best = i;
  }
  return best;
}

// Of one row, whose memory is on the stack.
class RowRouter {
 public:
  explicit RowRouter(const RouterRule& rule) : rule_(rule) {}

  // Writes num_chosen experts, ascending, and their weights.
  void Choose(const float* logits, const float* correction, int32_t* experts, float* weights) {
    std::fill_n(taken_.begin(), rule_.num_experts, false);
    if (rule_.score == RouterScore::kSparseMixer) {
      ChooseOneByOne(logits);
    } else {
      Score(logits);
      for (int64_t i = 0; i < rule_.num_experts; ++i) {
        const float judged = rule_.judges_logits ? logits[i] : scores_[i];
        choice_[i] = correction == nullptr ? judged : judged + correction[i];
      }
      if (rule_.num_chosen_groups < rule_.num_groups) LeaveBestGroups();
      for (int64_t i = 0; i < rule_.num_chosen; ++i) {
        taken_[BestOf(choice_.data(), taken_.data(), 0, rule_.num_experts)] = true;
      }
    }
    for (int64_t i = 0; i < rule_.num_experts; ++i) {
      if (!taken_[i]) continue;
      *experts++ = static_cast<int32_t>(i);
      *weights++ = scores_[i];
    }
    Finish(weights - rule_.num_chosen);
  }

  // Writes the weights of experts that are chosen already, which may be there several times.
  void Weigh(const float* logits, const int32_t* experts, float* weights) {
    Score(logits);
    for (int64_t i = 0; i < rule_.num_chosen; ++i) weights[i] = scores_[experts[i]];
    Finish(weights);
  }

 private:
  float Capped(float logit) const {
    const float cap = rule_.logit_cap;
    return cap > 0 ? cap * std::tanh(logit / cap) : logit;
  }

  void Score(const float* logits) {
    if (rule_.score == RouterScore::kSigmoid) {
      for (int64_t i = 0; i < rule_.num_experts; ++i) {
        scores_[i] = 1.0f / (1.0f + std::exp(-Capped(logits[i])));
      }
      return;
    }
    if (rule_.score == RouterScore::kRootSoftplus) {
      for (int64_t i = 0; i < rule_.num_experts; ++i) {
        const float x = logits[i];
        scores_[i] = std::sqrt(std::max(x, 0.0f) + std::log1p(std::exp(-std::fabs(x))));
      }
      return;
    }
    const float largest = *std::max_element(logits, logits + rule_.num_experts);
    float sum = 0;
    for (int64_t i = 0; i < rule_.num_experts; ++i) {
      scores_[i] = std::exp(logits[i] - largest);
      sum += scores_[i];
    }
    for (int64_t i = 0; i < rule_.num_experts; ++i) scores_[i] /= sum;
  }

  // Experts of the other groups are never chosen.
  void LeaveBestGroups() {
    const int64_t size = rule_.num_experts / rule_.num_groups;
    std::fill_n(group_taken_.begin(), rule_.num_groups, false);
    for (int64_t group = 0; group < rule_.num_groups; ++group) {
      float best[2] = {kNever, kNever};
      for (int64_t i = group * size; i < (group + 1) * size; ++i) {
        if (choice_[i] > best[0]) {
          best[1] = best[0];
          best[0] = choice_[i];
        } else if (choice_[i] > best[1]) {
          best[1] = choice_[i];
        }
      }
      group_scores_[group] = size == 1 || rule_.num_judged == 1 ? best[0] : best[0] + best[1];
    }
    for (int64_t i = 0; i < rule_.num_chosen_groups; ++i) {
      group_taken_[BestOf(group_scores_.data(), group_taken_.data(), 0, rule_.num_groups)] = true;
    }
    for (int64_t i = 0; i < rule_.num_experts; ++i) {
      if (!group_taken_[i / size]) choice_[i] = kNever;
    }
  }

  void ChooseOneByOne(const float* logits) {
    for (int64_t chosen = 0; chosen < rule_.num_chosen; ++chosen) {
      const int64_t best = BestOf(logits, taken_.data(), 0, rule_.num_experts);
      const float largest = logits[best];
      float sum = 0;
      for (int64_t i = 0; i < rule_.num_experts; ++i) {
        const float size = std::max(std::fabs(logits[i]), largest);
        const bool is_far = (largest - logits[i]) / size > 2 * rule_.jitter;
        if (!taken_[i] && !is_far) sum += std::exp(logits[i] - largest);
      }
      taken_[best] = true;
      scores_[best] = 1.0f / sum;
    }
  }

  void Finish(float* weights) const {
    float factor = rule_.scale;
    if (rule_.renormalize) {
      float sum = 0;
      for (int64_t i = 0; i < rule_.num_chosen; ++i) sum += weights[i];
      factor /= std::max(sum, rule_.smallest_sum);
    }
    for (int64_t i = 0; i < rule_.num_chosen; ++i) weights[i] *= factor;
  }

  const RouterRule& rule_;
  Scores scores_;  // by expert
  Scores choice_;  // what the choice goes by
  std::array<bool, kMaxExperts> taken_;
  Scores group_scores_;
  std::array<bool, kMaxExperts> group_taken_;
};

// Sorts the choices of m rows by expert: a counting sort, in the order of the rows.
void SortByExpert(const RouterRule& rule, int64_t m, ExpertChoices* choices) {
  const int64_t num_choices = m * rule.num_chosen;
  std::array<int32_t, kMaxExperts + 1> next{};  // place, by expert
  for (int64_t i = 0; i < num_choices; ++i) ++next[choices->experts[i] + 1];
  choices->groups.clear();
  for (int64_t expert = 0; expert < rule.num_experts; ++expert) {
    const int32_t begin = next[expert];
    const int32_t end = begin + next[expert + 1];
    next[expert + 1] = end;
    if (begin == end) continue;
    choices->groups.push_back({.expert = static_cast<int32_t>(expert), .begin = begin, .end = end});
  }
  for (int64_t i = 0; i < num_choices; ++i) {
    const int32_t place = next[choices->experts[i]]++;
    choices->places[i] = place;
    choices->rows[place] = static_cast<int32_t>(i / rule.num_chosen);
  }
}

}  // namespace

void ExpertChoices::Resize(int64_t max_rows, const RouterRule& rule) {
  MLC_CHECK(max_rows * rule.num_chosen <= std::numeric_limits<int32_t>::max()) << max_rows;
  const auto size = static_cast<size_t>(max_rows * rule.num_chosen);
  experts.resize(size);
  weights.resize(size);
  places.resize(size);
  rows.resize(size);
  groups.reserve(static_cast<size_t>(rule.num_experts));
}

void Route(const Cpu& cpu, const RouterRule& rule, const RouteArgs& args, ExpertChoices* choices) {
  MLC_CHECK(rule.IsValid()) << rule.num_chosen << " of " << rule.num_experts << " experts";
  MLC_CHECK(args.ld >= rule.num_experts);
  MLC_CHECK(args.table == nullptr || rule.score != RouterScore::kSparseMixer);
  MLC_CHECK(args.m * rule.num_chosen <= static_cast<int64_t>(choices->experts.size())) << args.m;
  const int64_t elements = kElementsPerExpert * rule.num_experts;
  if (cpu.profile != nullptr) {
    const auto rows = static_cast<double>(args.m);
    cpu.profile->Count(KernelProfile::IdOf(KernelKind::kRoute),
                       rows * static_cast<double>(rule.num_experts * sizeof(float)),
                       rows * static_cast<double>(elements));
  }
  ForRows(cpu, KernelKind::kRoute, args.m, elements, [&](int64_t begin, int64_t end) {
    RowRouter router(rule);
    for (int64_t row = begin; row < end; ++row) {
      int32_t* const experts = choices->experts.data() + row * rule.num_chosen;
      float* const weights = choices->weights.data() + row * rule.num_chosen;
      const float* const logits = args.logits + row * args.ld;
      if (args.table != nullptr) {
        std::copy_n(args.table + args.ids[row] * rule.num_chosen, rule.num_chosen, experts);
        router.Weigh(logits, experts, weights);
      } else {
        router.Choose(logits, args.correction, experts, weights);
      }
      for (int64_t i = 0; args.scales != nullptr && i < rule.num_chosen; ++i) {
        weights[i] *= args.scales[experts[i]];
      }
    }
  });
  SortByExpert(rule, args.m, choices);
}

}  // namespace mlc_native::kernels
