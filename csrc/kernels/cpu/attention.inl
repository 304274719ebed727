// Paged attention of one block: some rows of a sequence, all q heads of one kv head. Included by
// cpu/kernels.inl only.
//
// Online softmax in steps of kPagesPerStep pages. A "query" is one (row, q head). What a query adds
// up, in which order and in which steps is a function of its own position: steps are cut at
// multiples of kPagesPerStep, a step's rescaling uses that query's scores only, values are added
// token by token. Queries share a tile only to load K and V once.
#pragma once

#include "kernels/cpu/attention_tiles.inl"
#include "kernels/cpu/rowwise.inl"

namespace mlc_native::kernels {
namespace {

// Layout of a thread's scratch memory, in floats: q and out [queries, head_dim] (rows padded to
// vectors), scores [queries, kStepTokens], sums [queries, lanes], maxima [queries].
struct Scratch {
  int64_t row;  // padded head_dim
  float* q;
  float* out;
  float* scores;
  float* sums;
  float* maxima;
  Scratch(float* base, int64_t queries, int64_t head_dim)
      : row(AttentionScratchRow(head_dim)),
        q(base),
        out(q + queries * row),
        scores(out + queries * row),
        sums(scores + queries * kStepTokens),
        maxima(sums + queries * kMaxLanes) {}
};

// Positions [first, last] that a row attends.
struct KeyRange {
  int64_t first;
  int64_t last;
};

struct BlockContext {
  const KvLayer& kv;
  const AttentionArgs& args;
  const AttentionBlock& block;
  int64_t group;  // q heads per kv head
  Scratch scratch;

  KeyRange Keys(int64_t row) const {
    const int64_t position = block.sequence->first_position + row;
    const int64_t first = args.window > 0 ? position - args.window + 1 : 0;
    return {first > 0 ? first : 0, position};
  }
  // Where this kv head's part of a page of the sequence starts, in elements.
  int64_t PageOffset(int64_t page_index) const {
    const int64_t page = block.sequence->block_table[page_index];
    return (page * kv.kv_heads + block.kv_head) * kv.head_dim * kPageSize;
  }
};

// Pages read in turn at a kv head, followed by the kAhead that are read after them.
template <typename S>
struct StepPages {
  const S* at[kPagesPerStep + kAhead] = {};
  int64_t count = 0;
};

// Scores of the queries [begin, end) for consecutive pages, written from `scores` (of query 0) on.
template <typename T>
void ScorePages(const BlockContext& c, int64_t begin, int64_t end,
                const StepPages<typename T::Storage>& pages, float* scores) {
  const Scratch& s = c.scratch;
  for (int64_t i = begin; i < end; i += kTileRows) {
    WithRows<kTileRows>(Min64(kTileRows, end - i), [&](auto n) {
      constexpr int kQueries = decltype(n)::value;
      constexpr int kTogether = kAtOnce<kQueries * kPageVectors, 4>;
      const auto* k = pages.at;
      const float* q = s.q + i * s.row;
      float* out = scores + i * kStepTokens;
      int64_t page = 0;
      for (; page + kTogether <= pages.count; page += kTogether) {
        ScorePageGroup<T, kQueries, kTogether>(k + page, q, s.row, c.kv.head_dim,
                                               out + page * kPageSize);
      }
      for (; page < pages.count; ++page) {
        ScorePageGroup<T, kQueries, 1>(k + page, q, s.row, c.kv.head_dim, out + page * kPageSize);
      }
    });
  }
}

// Soft-caps and masks a query's scores, updates its maximum and sum, rescales what it has added up
// so far, and turns the scores into weights. Tokens are relative to the step: [0, tokens) were
// scored, [first, last] belong to the query.
inline void Softmax(const BlockContext& c, int64_t query, int64_t tokens, int64_t first,
                    int64_t last) {
  const Scratch& s = c.scratch;
  float* scores = s.scores + query * kStepTokens;
  if (c.args.soft_cap > 0) {
    for (int64_t t = 0; t < tokens; t += Vec::kLanes) {
      CapScore(Vec::Load(scores + t), c.args.soft_cap).Store(scores + t);
    }
  }
  for (int64_t t = 0; t < first; ++t) scores[t] = -__builtin_inff();
  for (int64_t t = last + 1; t < tokens; ++t) scores[t] = -__builtin_inff();
  Vec best = Vec::Set(s.maxima[query]);
  for (int64_t t = 0; t < tokens; t += Vec::kLanes) best = Max(best, Vec::Load(scores + t));
  const float maximum = MaxLane(best);
  Vec sum = Vec::Load(s.sums + query * kMaxLanes);
  if (maximum > s.maxima[query]) {
    const Vec factor = Exp(Vec::Set(s.maxima[query]) - Vec::Set(maximum));
    sum = sum * factor;
    float* out = s.out + query * s.row;
    for (int64_t d = 0; d < s.row; d += Vec::kLanes) (Vec::Load(out + d) * factor).Store(out + d);
    s.maxima[query] = maximum;
  }
  for (int64_t t = 0; t < tokens; t += Vec::kLanes) {
    const Vec weight = Exp(Vec::Load(scores + t) - Vec::Set(maximum));
    weight.Store(scores + t);
    sum = sum + weight;
  }
  sum.Store(s.sums + query * kMaxLanes);
}

// Adds tokens [first, last] (positions within one step) to the queries [begin, end), which all
// attend all of them. pages holds the step's V pages from page `page0` on.
template <typename T>
void AddTokens(const BlockContext& c, int64_t begin, int64_t end, int64_t first, int64_t last,
               const StepPages<typename T::Storage>& pages, int64_t page0) {
  const Scratch& s = c.scratch;
  for (int64_t page = first / kPageSize; page * kPageSize <= last; ++page) {
    const typename T::Storage* v = pages.at[page - page0];
    const typename T::Storage* next = pages.at[page - page0 + 2];
    const int64_t page_token = page * kPageSize;
    ValueTile tile{};
    tile.out_stride = s.row;
    tile.first_token = first > page_token ? first - page_token : 0;
    tile.last_token = Min64(last - page_token, kPageSize - 1);
    for (int64_t i = begin; i < end; i += kTileRows) {
      tile.weights = s.scores + i * kStepTokens + page_token % kStepTokens;
      tile.out = s.out + i * s.row;
      WithRows<kTileRows>(Min64(kTileRows, end - i), [&](auto n) {
        AddPage<T, decltype(n)::value>(v, next, c.kv.head_dim, tile);
      });
    }
  }
}

// One step for the rows [row, row_end), each of which attends some token of it.
template <typename T>
void AttendStep(const BlockContext& c, int64_t row, int64_t row_end, int64_t step) {
  const int64_t step_first = step * kStepTokens;
  const int64_t step_last = step_first + kStepTokens - 1;
  const auto first_of = [&](int64_t r) {
    const int64_t first = c.Keys(r).first;
    return first > step_first ? first : step_first;
  };
  const auto last_of = [&](int64_t r) { return Min64(c.Keys(r).last, step_last); };
  const auto query_of = [&](int64_t r) { return (r - c.block.row_begin) * c.group; };

  // Later rows start and end later: row has the first token, row_end - 1 the last one.
  const int64_t page = first_of(row) / kPageSize;
  const int64_t page_end = last_of(row_end - 1) / kPageSize + 1;
  using S = typename T::Storage;
  StepPages<S> k_pages, v_pages;
  k_pages.count = v_pages.count = page_end - page;
  const int64_t last_page = c.Keys(c.block.row_end - 1).last / kPageSize;
  for (int64_t i = 0; i < k_pages.count + kAhead; ++i) {
    const int64_t offset = c.PageOffset(Min64(page + i, last_page));
    const S* k = static_cast<const S*>(c.kv.k_pages) + offset;
    const S* v = static_cast<const S*>(c.kv.v_pages) + offset;
    if (i < k_pages.count) {
      k_pages.at[i] = k;
      v_pages.at[i] = v;
    } else {
      v_pages.at[i] = k;
    }
  }
  for (int64_t i = 0; i < kAhead; ++i) {
    k_pages.at[k_pages.count + i] = v_pages.at[Min64(i, v_pages.count - 1)];
  }
  ScorePages<T>(c, query_of(row), query_of(row_end), k_pages,
                c.scratch.scores + page % kPagesPerStep * kPageSize);
  const int64_t tokens = page_end * kPageSize - step_first;
  for (int64_t r = row; r < row_end; ++r) {
    for (int64_t query = query_of(r); query < query_of(r + 1); ++query) {
      Softmax(c, query, tokens, first_of(r) - step_first, last_of(r) - step_first);
    }
  }
  const auto add = [&](int64_t r, int64_t r_end, int64_t first, int64_t last) {
    AddTokens<T>(c, query_of(r), query_of(r_end), first, last, v_pages, page);
  };
  // Tokens that all rows attend are added in common, those before and after row by row.
  const int64_t common_first = first_of(row_end - 1);
  const int64_t common_last = last_of(row);
  if (common_first > common_last) {
    for (int64_t r = row; r < row_end; ++r) {
      add(r, r + 1, first_of(r), last_of(r));
    }
    return;
  }
  for (int64_t r = row; r < row_end; ++r) {
    if (first_of(r) < common_first) {
      add(r, r + 1, first_of(r), common_first - 1);
    }
  }
  add(row, row_end, common_first, common_last);
  for (int64_t r = row; r < row_end; ++r) {
    if (last_of(r) > common_last) {
      add(r, r + 1, common_last + 1, last_of(r));
    }
  }
}

// Scaled queries into scratch; sums and outputs to zero.
void BeginBlock(const BlockContext& c) {
  const Scratch& s = c.scratch;
  const AttentionBlock& b = c.block;
  const Vec scale = Vec::Set(c.args.scale);
  const int64_t head_dim = c.kv.head_dim;
  int64_t query = 0;
  for (int64_t row = b.row_begin; row < b.row_end; ++row) {
    const float* q =
        c.args.q + (b.sequence->row_begin + row) * c.args.ldq + b.kv_head * c.group * head_dim;
    for (int64_t head = 0; head < c.group; ++head, ++query, q += head_dim) {
      ForVectors(head_dim, [&](int64_t at, auto load, auto) {
        (load(q) * scale).Store(s.q + query * s.row + at);
      });
      for (int64_t d = 0; d < s.row; ++d) s.out[query * s.row + d] = 0.0f;
      Vec::Zero().Store(s.sums + query * kMaxLanes);
      s.maxima[query] = -__builtin_inff();
    }
  }
}

void EndBlock(const BlockContext& c) {
  const Scratch& s = c.scratch;
  const AttentionBlock& b = c.block;
  const int64_t head_dim = c.kv.head_dim;
  int64_t query = 0;
  for (int64_t row = b.row_begin; row < b.row_end; ++row) {
    float* out =
        c.args.out + (b.sequence->row_begin + row) * c.args.ldo + b.kv_head * c.group * head_dim;
    for (int64_t head = 0; head < c.group; ++head, ++query, out += head_dim) {
      const Vec inverse = Vec::Set(1.0f / Sum(Vec::Load(s.sums + query * kMaxLanes)));
      ForVectors(head_dim, [&](int64_t at, auto, auto store) {
        store(out, Vec::Load(s.out + query * s.row + at) * inverse);
      });
    }
  }
}

void AttendBlock(const KvLayer& kv, const AttentionArgs& args, const AttentionBlock& block) {
  const int64_t group = args.q_heads / kv.kv_heads;
  const int64_t queries = (block.row_end - block.row_begin) * group;
  const BlockContext c{kv, args, block, group, Scratch(block.scratch, queries, kv.head_dim)};
  BeginBlock(c);
  WithType(kv.dtype, [&](auto type) {
    const int64_t first_step = c.Keys(block.row_begin).first / kStepTokens;
    const int64_t last_step = c.Keys(block.row_end - 1).last / kStepTokens;
    int64_t row = block.row_begin;  // rows before `row` end in an earlier step
    int64_t row_end = block.row_begin;
    for (int64_t step = first_step; step <= last_step; ++step) {
      while (c.Keys(row).last / kStepTokens < step) ++row;
      while (row_end < block.row_end && c.Keys(row_end).first / kStepTokens <= step) ++row_end;
      AttendStep<decltype(type)>(c, row, row_end, step);
    }
  });
  EndBlock(c);
}

}  // namespace
}  // namespace mlc_native::kernels
