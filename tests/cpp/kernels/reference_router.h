// The choice of experts in double, and what tests of it choose from, for every device.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <random>
#include <utility>
#include <vector>

#include "kernels/experts.h"

namespace mlc_native::kernels {

// Without kSparseMixer.
inline constexpr RouterRule kRouterRules[] = {
    {.num_experts = 8, .num_chosen = 2, .renormalize = true},
    {.num_experts = 60, .num_chosen = 4},
    {.score = RouterScore::kSigmoid, .num_experts = 32, .num_chosen = 8},
    {.score = RouterScore::kSigmoid,
     .num_experts = 32,
     .num_chosen = 5,
     .num_groups = 8,
     .num_chosen_groups = 3,
     .renormalize = true,
     .scale = 2.5f},
    {.num_experts = 32,
     .num_chosen = 5,
     .num_groups = 8,
     .num_chosen_groups = 3,
     .num_judged = 1,
     .scale = 16.0f},
    {.num_experts = 6, .num_chosen = 2, .num_groups = 6, .num_chosen_groups = 4},
    {.score = RouterScore::kSigmoid,
     .num_experts = 16,
     .num_chosen = 4,
     .renormalize = true,
     .logit_cap = 0.8f},
    {.num_experts = 1, .num_chosen = 1}};

// Rows without two logits that are nearly equal, of which either may be the better one.
inline std::vector<float> DistinctLogits(int64_t m, int64_t num_experts, std::mt19937& random) {
  std::vector<float> row(static_cast<size_t>(num_experts)), all;
  for (int64_t i = 0; i < m; ++i) {
    for (int64_t e = 0; e < num_experts; ++e) row[e] = -2.0f + 0.07f * static_cast<float>(e);
    std::shuffle(row.begin(), row.end(), random);
    all.insert(all.end(), row.begin(), row.end());
  }
  return all;
}

// Expert -> weight of one row, in double.
using ChosenExperts = std::vector<std::pair<int64_t, double>>;

inline std::vector<double> ScoresOf(const RouterRule& rule, const float* logits) {
  std::vector<double> scores(rule.num_experts);
  double sum = 0;
  for (int64_t e = 0; e < rule.num_experts; ++e) {
    const double cap = rule.logit_cap;
    const double logit = cap > 0 ? cap * std::tanh(logits[e] / cap) : logits[e];
    scores[e] = rule.score == RouterScore::kSigmoid ? 1 / (1 + std::exp(-logit)) : std::exp(logit);
    sum += scores[e];
  }
  if (rule.score == RouterScore::kSoftmax) {
    for (double& score : scores) score /= sum;
  }
  return scores;
}

// The experts of the best groups, by the best of each.
inline std::vector<int64_t> CandidatesOf(const RouterRule& rule,
                                         const std::vector<double>& choice) {
  const int64_t size = rule.num_experts / rule.num_groups;
  std::vector<std::pair<double, int64_t>> groups;
  for (int64_t group = 0; group < rule.num_groups; ++group) {
    std::vector<double> of_group(choice.begin() + group * size,
                                 choice.begin() + (group + 1) * size);
    std::ranges::sort(of_group, std::greater<>());
    groups.push_back({-of_group[0] - (size > 1 && rule.num_judged > 1 ? of_group[1] : 0), group});
  }
  std::ranges::sort(groups);
  std::vector<int64_t> candidates;
  for (int64_t i = 0; i < rule.num_chosen_groups; ++i) {
    for (int64_t j = 0; j < size; ++j) candidates.push_back(groups[i].second * size + j);
  }
  return candidates;
}

inline ChosenExperts ReferenceChoice(const RouterRule& rule, const float* logits,
                                     const std::vector<float>& correction) {
  const std::vector<double> scores = ScoresOf(rule, logits);
  std::vector<double> choice = scores;
  for (size_t e = 0; e < correction.size(); ++e) choice[e] += correction[e];
  std::vector<int64_t> candidates = CandidatesOf(rule, choice);
  std::ranges::sort(candidates, {}, [&](int64_t e) { return std::pair(-choice[e], e); });
  candidates.resize(rule.num_chosen);
  std::ranges::sort(candidates);
  double sum = 0;
  for (int64_t e : candidates) sum += scores[e];
  ChosenExperts chosen;
  for (int64_t e : candidates) {
    chosen.push_back({e, scores[e] * rule.scale / (rule.renormalize ? sum : 1)});
  }
  return chosen;
}

}  // namespace mlc_native::kernels
