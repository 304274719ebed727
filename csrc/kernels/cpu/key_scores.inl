// Scores of the keys of an index: how well they fit the query of a row (key_choice.h). Included by
// cpu/attention_kernels.cc only.
//
// Products of queries and keys are those of attention, in its tiles. The order of a score's sums is
// that of head_dim and then of the heads, whatever else is computed.
#pragma once

#include "kernels/cpu/attention.inl"

namespace mlc_native::kernels {
namespace {

// scores[t] (+)= the sum over the heads of a step's products, which are left by ScorePages.
template <bool kIsFirst>
inline void AddHeads(const BlockContext& c, const float* weights, int64_t tokens, float* scores) {
  for (int64_t t = 0; t < tokens; t += Vec::kLanes) {
    Vec sum = kIsFirst ? Vec::Zero() : Vec::Load(scores + t);
    for (int64_t head = 0; head < c.block.num_heads; ++head) {
      const Vec product = Vec::Load(c.scratch.scores + head * kStepTokens + t);
      sum = Fma(Max(product, Vec::Zero()), Vec::Set(weights[head]), sum);
    }
    sum.Store(scores + t);
  }
}

// Of some heads: for each step, products and then their sums.
template <typename T>
void ScoreSteps(const BlockContext& c, const KeyScoreArgs& args, const KeyScoreSteps& steps,
                float* scores) {
  PackQueries<T>(c);
  const float* const weights =
      args.weights + c.block.sequence->row_begin * args.ld_weights + c.block.q_head;
  const int64_t last_page = c.Keys(0).last / kPageSize;
  for (int64_t step = steps.begin; step < steps.end; ++step) {
    const int64_t first = step * kPagesPerStep;
    const int64_t count = Min64(kPagesPerStep, last_page + 1 - first);
    StepPages<T> pages;
    for (int64_t p = 0; p < count; ++p) {
      pages.data[p] = c.Page<T>(c.kv.k_pages, first + p);
      const int64_t ahead = first + p + kPagesPerStep;
      pages.ahead[p] = ahead <= last_page ? c.Page<T>(c.kv.k_pages, ahead) : pages.data[p];
    }
    ScorePages<T>(c, 0, c.queries, step, pages, 0, count);
    float* const of_step = scores + step * kStepTokens;
    if (c.block.q_head == 0) {
      AddHeads<true>(c, weights, count * kPageSize, of_step);
    } else {
      AddHeads<false>(c, weights, count * kPageSize, of_step);
    }
  }
}

// As many heads at a time as a block may have queries.
void ScoreKeys(const KvPages& index, const KeyScoreArgs& args, const KeyScoreSteps& steps,
               float* scores) {
  const AttentionArgs attention{
      .q = args.q, .ldq = args.ldq, .q_heads = args.heads, .scale = 1.0f / kLog2E};
  for (int64_t head = 0; head < args.heads; head += kMaxBlockQueries) {
    const AttentionBlock block{.sequence = steps.row,
                               .kv_head = 0,
                               .q_head = head,
                               .num_heads = Min64(kMaxBlockQueries, args.heads - head),
                               .row_begin = 0,
                               .row_end = 1,
                               .scratch = steps.scratch};
    const BlockContext c(index, attention, block, nullptr);
    WithKvFormat(index.format,
                 [&](auto format) { ScoreSteps<decltype(format)>(c, args, steps, scores); });
  }
}

}  // namespace
}  // namespace mlc_native::kernels
