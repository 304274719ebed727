// Paged attention of one block: some rows of a sequence, some q heads of one kv head. Included by
// cpu/attention_kernels.cc only.
//
// Online softmax in steps of kPagesPerStep pages. A "query" is one (row, q head). The terms of a
// query's sums, their order and their steps depend only on its own position: steps begin at
// multiples of kPagesPerStep, the rescaling of a step uses only that query's scores, and values are
// added token by token (in pairs). Queries share a tile only to load K and V once.
//
// A new softmax begins every kStepsPerSegment steps. The segments of a query are added in ascending
// order, whether one thread computes them all or several threads share them. A query whose keys lie
// in one segment has nothing to add.
//
// Scores are in units of log2: softmax weights are powers of two.
#pragma once

#include "kernels/cpu/attention_state.inl"
#include "kernels/cpu/attention_tiles.inl"
#include "kernels/cpu/distance_bias.inl"
#include "kernels/cpu/distance_vectors.inl"

namespace mlc_native::kernels {
namespace {

constexpr float kLog2E = 1.44269504088896341f;

// Layout of a thread's scratch memory, in floats: q (as inputs) [queries, row], scores [queries,
// kStepTokens], two states.
struct Scratch {
  int64_t row;  // padded head_dim
  float* q;
  float* scores;
  float* segment;
  float* total;
  Scratch(float* base, int64_t queries, int64_t head_dim)
      : row(AttentionScratchRow(head_dim)),
        q(base),
        scores(q + queries * row),
        segment(scores + queries * kStepTokens),
        total(segment + AttentionStateFloats(queries, head_dim)) {}
};

// Returns the positions that a row attends to.
inline KeyRange KeysOf(const AttentionArgs& args, const AttentionBlock& block, int64_t row) {
  const int64_t position = block.sequence->first_position + row;
  return {args.window.First(position), args.window.Last(position, block.sequence->last_key)};
}

// Prefetches the queries of the next block, if they are those of the following rows, and the
// outputs of this one, a few lines between two tiles: a burst would fill the core's queue of
// misses.
class RowPrefetch {
 public:
  RowPrefetch(const AttentionArgs& args, const AttentionBlock& block, int64_t columns)
      : parts_((columns + kPart - 1) / kPart),
        queries_(args.q, args.ldq, block, block.row_end, columns),
        outputs_(args.out, args.ldo, block, block.row_begin, columns) {
    const int64_t rows = block.row_end - block.row_begin;
    queries_.rows = Min64(rows, block.sequence->num_rows - block.row_end);
    outputs_.rows = rows;
  }
  void Next() {
    const bool of_queries = at_ < queries_.rows * parts_;
    const int64_t at = of_queries ? at_ : at_ - queries_.rows * parts_;
    const Rows& rows = of_queries ? queries_ : outputs_;
    if (at >= rows.rows * parts_) return;
    const float* part = rows.first + at / parts_ * rows.ld + at % parts_ * kPart;
    for (int64_t i = 0; i < kPart; i += kLine) Prefetch(part + i);
    ++at_;
  }

 private:
  static constexpr int64_t kLine = 16, kPart = 16 * kLine;  // floats
  struct Rows {
    const float* first;
    int64_t ld;
    int64_t rows = 0;
    Rows(const float* base, int64_t ld, const AttentionBlock& block, int64_t row, int64_t columns)
        : first(base + (block.sequence->row_begin + row) * ld +
                block.q_head * (columns / block.num_heads)),
          ld(ld) {}
  };
  int64_t parts_;  // of a row
  Rows queries_;
  Rows outputs_;
  int64_t at_ = 0;
};

struct BlockContext {
  const KvPages& kv;
  const AttentionArgs& args;
  const AttentionBlock& block;
  int64_t queries;
  int64_t kv_row;     // KvRow(head_dim)
  int64_t value_row;  // likewise, without values that are zero
  Scratch scratch;
  State segment;                // state of the current segment
  RowPrefetch* rows = nullptr;  // in AttendBlock
  // Steps of this call, by default all of them.
  int64_t step_begin;
  int64_t step_end;

  // The segment's state is at `state`, or in the scratch memory if that is null.
  BlockContext(const KvPages& kv, const AttentionArgs& args, const AttentionBlock& block,
               float* state)
      : kv(kv),
        args(args),
        block(block),
        queries((block.row_end - block.row_begin) * block.num_heads),
        kv_row(KvRow(kv.head_dim)),
        value_row(args.value_columns > 0 ? KvRow(args.value_columns) : kv_row),
        scratch(block.scratch, queries, kv.head_dim),
        segment(StateAt(state != nullptr ? state : scratch.segment)),
        step_begin(Keys(block.row_begin).first / kStepTokens),
        step_end(Keys(block.row_end - 1).last / kStepTokens + 1) {}

  State StateAt(float* base) const { return State(base, queries, kv.head_dim); }
  KeyRange Keys(int64_t row) const { return KeysOf(args, block, row); }
  // Returns the part of Keys(row) in a step, relative to the step.
  KeyRange KeysInStep(int64_t row, int64_t step) const {
    const KeyRange keys = Keys(row);
    const int64_t first = keys.first - step * kStepTokens;
    return {first > 0 ? first : 0, Min64(keys.last - step * kStepTokens, kStepTokens - 1)};
  }
  int64_t Query(int64_t row) const { return (row - block.row_begin) * block.num_heads; }
  int64_t Row(int64_t query) const { return block.row_begin + query / block.num_heads; }
  // Block table entries of pages outside the window are never read.
  template <typename T>
  const typename T::Storage* Page(void* pages, int64_t index) const {
    return KvPage<T>(kv, pages, block.kv_head, block.sequence->block_table[index]);
  }
};

// The pages of K and V in the order in which blocks read them: K of a step, then V of the step,
// then the next step, and behind the last one what the thread computes next.
template <typename T>
class PageWalk {
 public:
  using Storage = typename T::Storage;

  // Begins kPagesAhead pages behind the start of a block, which it prefetches.
  explicit PageWalk(const BlockContext& c) : c_(c) {
    Enter(&c.block, c.step_begin, c.step_end);
    for (int64_t i = 0; i < kPagesAhead; ++i) {
      const Storage* page = Take();
      if (!c.block.prefetched) PrefetchPage(page);
    }
  }

  // Sets what tiles prefetch while they read the pages [begin, end).
  void SetAhead(StepPages<T>& pages, int64_t begin, int64_t end) {
    for (int64_t p = begin; p < end; ++p) {
      const Storage* ahead = Take();
      pages.ahead[p] = ahead != nullptr ? ahead : pages.data[p];
    }
  }

 private:
  static constexpr int64_t kPagesAhead = 4;

  void PrefetchPage(const Storage* page) const {
    if (page == nullptr) return;
    const int64_t elements = KvPageBytes(T::kFormat, c_.kv.head_dim) / int64_t{sizeof(Storage)};
    for (int64_t at = 0; at < elements; at += 64) PrefetchElements<64>(page + at);
  }
  void Enter(const AttentionBlock* block, int64_t step, int64_t step_end) {
    block_ = block;
    step_ = step;
    step_end_ = step_end;
    if (block == nullptr) return;
    first_page_ = KeysOf(c_.args, *block, block->row_begin).first / kPageSize;
    last_page_ = KeysOf(c_.args, *block, block->row_end - 1).last / kPageSize;
    page_ = StepBegin();
  }
  int64_t StepBegin() const { return Max64(step_ * kPagesPerStep, first_page_); }
  int64_t StepLast() const { return Min64((step_ + 1) * kPagesPerStep - 1, last_page_); }

  const Storage* Take() {
    if (block_ == nullptr) return nullptr;
    const Storage* taken = KvPage<T>(c_.kv, values_ ? c_.kv.v_pages : c_.kv.k_pages,
                                     block_->kv_head, block_->sequence->block_table[page_]);
    if (++page_ > StepLast()) {
      values_ = !values_;
      if (!values_) ++step_;
      page_ = StepBegin();
      if (step_ == step_end_) EnterNext();
    }
    return taken;
  }
  void EnterNext() {
    const AttentionBlock* next = block_->next;
    if (next == nullptr) return Enter(nullptr, 0, 0);
    const BlockContext c(c_.kv, c_.args, *next, nullptr);
    Enter(next, c.step_begin, c.step_end);
  }

  const BlockContext& c_;
  const AttentionBlock* block_ = nullptr;  // null at the end
  int64_t first_page_ = 0;                 // of the block
  int64_t last_page_ = 0;
  int64_t step_ = 0;
  int64_t step_end_ = 0;
  int64_t page_ = 0;
  bool values_ = false;  // whether the next page is one of V
};

// Adds the products of some pairs of elements to the scores of the queries [begin, end) for the
// step's pages [page, page_end), at most kMostPages.
constexpr int kMostPages = 4;
template <typename T>
void ScorePairs(const BlockContext& c, int64_t begin, int64_t end, int64_t step,
                const StepPages<T>& pages, int64_t page, int64_t page_end, PairRange pairs) {
  const Scratch& s = c.scratch;
  for (int64_t i = begin; i < end;) {
    WithTileSize<kTileRows>(end - i, [&](auto n) {
      constexpr int kQueries = decltype(n)::value;
      constexpr int kFew = 2 / kPageVectors;
      constexpr int kFit = kAtOnce<kQueries * kPageVectors, kMostPages>;
      constexpr int kTogether = kFit > kFew ? kFit : kFew;
      const float* q = s.q + i * s.row;
      float* scores = s.scores + i * kStepTokens;
      // No query of the tile attends to later pages.
      const int64_t last_page = c.KeysInStep(c.Row(i + kQueries - 1), step).last / kPageSize;
      const int64_t tile_stop = Min64(page_end, last_page + 1);
      int64_t p = page;
      for (; p + kTogether <= tile_stop; p += kTogether) {
        ScoreTile<T, kQueries, kTogether>(pages, p, q, c.kv_row, pairs, scores + p * kPageSize);
        if (c.rows != nullptr) c.rows->Next();
      }
      for (; p < tile_stop; ++p) {
        ScoreTile<T, kQueries, 1>(pages, p, q, c.kv_row, pairs, scores + p * kPageSize);
      }
      i += kQueries;
    });
  }
}

// Computes scores of the queries [begin, end) for the step's pages [page, page_end).
template <typename T>
void ScorePages(const BlockContext& c, int64_t begin, int64_t end, int64_t step,
                const StepPages<T>& pages, int64_t page, int64_t page_end) {
  const int64_t num_pairs = c.kv_row / 2;
  for (; page < page_end; page += kMostPages) {
    const int64_t stop = Min64(page_end, page + kMostPages);
    for (int64_t pair = 0; pair < num_pairs; pair += kElementsAtOnce / 2) {
      const PairRange pairs{pair, Min64(num_pairs, pair + kElementsAtOnce / 2)};
      ScorePairs<T>(c, begin, end, step, pages, page, stop, pairs);
    }
  }
}

// Adds the products with vectors of the distance to the scores of the rows [row, row_end) for a
// step's pages.
template <typename T>
void AddDistanceProducts(const BlockContext& c, int64_t row, int64_t row_end, int64_t step,
                         const StepPages<T>& pages) {
  const AttentionArgs& a = c.args;
  const AttentionSequence& sequence = *c.block.sequence;
  for (int64_t head = 0; head < c.block.num_heads; ++head) {
    for (int64_t r = row; r < row_end;) {
      WithTileSize<kDistanceRows>(row_end - r, [&](auto n) {
        constexpr int kRows = decltype(n)::value;
        const int64_t begin = c.KeysInStep(r, step).first / kPageSize;
        const int64_t end = c.KeysInStep(r + kRows - 1, step).last / kPageSize + 1;
        const int64_t position = sequence.first_position + r;
        for (int64_t page = begin; page < end; ++page) {
          AddDistanceTile<T, kRows>(
              a.vectors,
              {.keys = pages.data[page],
               .head = c.block.q_head + head,
               .head_dim = c.kv.head_dim,
               .q =
                   a.q + (sequence.row_begin + r) * a.ldq + (c.block.q_head + head) * c.kv.head_dim,
               .ldq = a.ldq,
               .distance = step * kStepTokens + page * kPageSize - position,
               .unit = a.scale * kLog2E,
               .scores = c.scratch.scores + (c.Query(r) + head) * kStepTokens + page * kPageSize,
               .ld_scores = c.block.num_heads * kStepTokens});
        }
        r += kRows;
      });
    }
  }
}

// Sets the scores outside of `keys` in its first and last page.
inline void Restrict(float* scores, KeyRange keys, Vec value) {
  static constexpr float kIndex[] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
  const Vec first = Vec::Set(static_cast<float>(keys.first));
  const Vec last = Vec::Set(static_cast<float>(keys.last));
  const auto restrict_page = [&](int64_t page) {
    for (int64_t t = page * kPageSize; t < (page + 1) * kPageSize; t += Vec::kLanes) {
      const Vec index = Vec::Load(kIndex) + Vec::Set(static_cast<float>(t));
      const Vec kept = SelectLess(last, index, value, Vec::Load(scores + t));
      SelectLess(index, first, value, kept).Store(scores + t);
    }
  };
  if (keys.first % kPageSize != 0) restrict_page(keys.first / kPageSize);
  if (keys.last % kPageSize != kPageSize - 1) restrict_page(keys.last / kPageSize);
}

// The vectors of scores that hold a step's keys of one query.
struct ScoreRange {
  int64_t begin;
  int64_t end;
  explicit ScoreRange(KeyRange keys)
      : begin(keys.first / kPageSize * kPageSize), end((keys.last / kPageSize + 1) * kPageSize) {}
};

// Finishes a query's scores of a step, and raises its maximum to theirs.
inline void FinishScores(const BlockContext& c, int64_t query, int64_t step, KeyRange keys) {
  const State s = c.segment;
  float* scores = c.scratch.scores + query * kStepTokens;
  const ScoreRange range(keys);
  if (c.args.soft_cap > 0) {
    for (int64_t t = range.begin; t < range.end; t += Vec::kLanes) {
      CapScore(Vec::Load(scores + t), c.args.soft_cap * kLog2E).Store(scores + t);
    }
  }
  if (c.args.bias) {
    const int64_t position = c.block.sequence->first_position + c.Row(query);
    AddDistanceBias(c.args.bias, c.block.q_head + query % c.block.num_heads,
                    step * kStepTokens - position, kLog2E, range.begin, range.end, scores);
  }
  Restrict(scores, keys, Vec::Set(-__builtin_inff()));
  Vec best = Vec::Load(scores + range.begin);
  for (int64_t t = range.begin; t < range.end; t += Vec::kLanes) {
    best = Max(best, Vec::Load(scores + t));
  }
  const float maximum = MaxLane(best);
  if (maximum > s.maxima[query]) RaiseMaximum(s, query, maximum);
}

// Turns a query's scores of a step into weights, in the form of inputs for the values.
template <typename T>
void Weigh(const BlockContext& c, int64_t query, KeyRange keys, const StepPages<T>& v) {
  const State s = c.segment;
  float* scores = c.scratch.scores + query * kStepTokens;
  const ScoreRange range(keys);
  const Vec offset = Vec::Set(s.maxima[query]);
  Vec sum = Vec::Load(s.sums + query * kMaxLanes);
  for (int64_t t = range.begin; t < range.end; t += Vec::kLanes) {
    const Vec weight = Exp2(Vec::Load(scores + t) - offset);
    weight.Store(scores + t);
    sum = sum + weight;
  }
  sum.Store(s.sums + query * kMaxLanes);
  if constexpr (T::kFormat == KvFormat::kInt8) {
    for (int64_t t = range.begin; t < range.end; t += Vec::kLanes) {
      const Vec scale = Vec::Load(KvScales(v.data[t / kPageSize], c.kv_row) + t % kPageSize);
      (Vec::Load(scores + t) * scale).Store(scores + t);
    }
    Restrict(scores, keys, Vec::Zero());  // other tokens may have any scale
  }
  T::PackInputs(scores, range.end / 2);
}

// Adds tokens of a step to the queries [begin, end), which all attend to all of them.
template <typename T>
void AddTokens(const BlockContext& c, int64_t begin, int64_t end, KeyRange tokens,
               const StepPages<T>& v) {
  if (tokens.first > tokens.last) return;
  for (int64_t d = 0; d < c.value_row; d += kElementsAtOnce) {
    const int64_t d_end = Min64(c.value_row, d + kElementsAtOnce);
    for (int64_t i = begin; i < end;) {
      const ValueTile<T> tile{.v = v,
                              .weights = c.scratch.scores + i * kStepTokens,
                              .out = c.segment.out + i * c.segment.row,
                              .row = c.kv_row,
                              .tokens = tokens};
      WithTileSize<kTileRows>(end - i, [&](auto n) {
        AddAllValues<T, decltype(n)::value>(tile, d, d_end);
        if (c.rows != nullptr) c.rows->Next();
        i += decltype(n)::value;
      });
    }
  }
}

// Adds the values of a step to the rows [row, row_end). Whole pairs of tokens that all rows attend
// to are added together; the tokens before and after them are added row by row.
template <typename T>
void AddStep(const BlockContext& c, int64_t row, int64_t row_end, int64_t step,
             const StepPages<T>& v) {
  KeyRange common{(c.KeysInStep(row_end - 1, step).first + 1) / 2 * 2,
                  (c.KeysInStep(row, step).last + 1) / 2 * 2 - 1};
  const bool shared = common.first <= common.last && row_end - row > 1;
  for (int64_t r = row; r < row_end; ++r) {
    const KeyRange keys = c.KeysInStep(r, step);
    const int64_t last = shared ? common.first - 1 : keys.last;
    AddTokens<T>(c, c.Query(r), c.Query(r + 1), {keys.first, last}, v);
  }
  if (!shared) return;
  AddTokens<T>(c, c.Query(row), c.Query(row_end), common, v);
  for (int64_t r = row; r < row_end; ++r) {
    const KeyRange keys = c.KeysInStep(r, step);
    AddTokens<T>(c, c.Query(r), c.Query(r + 1), {common.last + 1, keys.last}, v);
  }
}

// Computes one step for the rows [row, row_end), each of which attends to some token of it.
template <typename T>
void AttendStep(const BlockContext& c, int64_t row, int64_t row_end, int64_t step,
                PageWalk<T>& walk) {
  // Later rows start and end later: row has the first token, row_end - 1 the last one.
  const int64_t page = c.KeysInStep(row, step).first / kPageSize;
  const int64_t page_end = c.KeysInStep(row_end - 1, step).last / kPageSize + 1;
  const int64_t first_page = step * kPagesPerStep;
  StepPages<T> k, v;
  for (int64_t p = page; p < page_end; ++p) {
    k.data[p] = c.Page<T>(c.kv.k_pages, first_page + p);
    v.data[p] = c.Page<T>(c.kv.v_pages, first_page + p);
  }
  walk.SetAhead(k, page, page_end);
  walk.SetAhead(v, page, page_end);
  ScorePages<T>(c, c.Query(row), c.Query(row_end), step, k, page, page_end);
  if (c.args.vectors.NumTables() > 0) AddDistanceProducts<T>(c, row, row_end, step, k);
  // Two passes: the operations on one query depend on one another, those on the next do not, and
  // the short chains of a pass overlap.
  const auto for_queries = [&](auto f) {
    for (int64_t r = row; r < row_end; ++r) {
      const KeyRange keys = c.KeysInStep(r, step);
      for (int64_t q = c.Query(r); q < c.Query(r + 1); ++q) f(q, keys);
    }
  };
  for_queries([&](int64_t q, KeyRange keys) { FinishScores(c, q, step, keys); });
  for_queries([&](int64_t q, KeyRange keys) { Weigh<T>(c, q, keys, v); });
  AddStep<T>(c, row, row_end, step, v);
}

// Writes the scaled queries to scratch memory.
template <typename T>
void PackQueries(const BlockContext& c) {
  const Scratch& s = c.scratch;
  const AttentionBlock& b = c.block;
  const Vec scale = Vec::Set(c.args.scale * kLog2E);
  const int64_t head_dim = c.kv.head_dim;
  float* input = s.q;
  for (int64_t row = b.row_begin; row < b.row_end; ++row) {
    const float* q = c.args.q + (b.sequence->row_begin + row) * c.args.ldq + b.q_head * head_dim;
    for (int64_t head = 0; head < b.num_heads; ++head, input += s.row, q += head_dim) {
      for (int64_t d = 0; d < s.row; d += Vec::kLanes) {
        (LoadUpTo(q + d, head_dim - d) * scale).Store(input + d);
      }
      T::PackInputs(input, s.row / 2);
    }
  }
}

// Computes c.segment, the state of the block's queries for one segment. The state of a row without
// a key in the segment is unspecified.
template <typename T>
void AttendSteps(const BlockContext& c, int64_t segment, PageWalk<T>& walk) {
  const State& s = c.segment;
  for (int64_t i = 0; i < c.queries * s.row; i += Vec::kLanes) Vec::Zero().Store(s.out + i);
  for (int64_t i = 0; i < c.queries * kMaxLanes; i += Vec::kLanes) Vec::Zero().Store(s.sums + i);
  for (int64_t i = 0; i < c.queries; ++i) s.maxima[i] = -__builtin_inff();
  const int64_t begin = Max64(c.step_begin, segment * kStepsPerSegment);
  const int64_t end = Min64(c.step_end, (segment + 1) * kStepsPerSegment);
  int64_t row = c.block.row_begin;  // rows before `row` end in an earlier step
  int64_t row_end = c.block.row_begin;
  for (int64_t step = begin; step < end; ++step) {
    while (c.Keys(row).last / kStepTokens < step) ++row;
    while (row_end < c.block.row_end && c.Keys(row_end).first / kStepTokens <= step) ++row_end;
    AttendStep<T>(c, row, row_end, step, walk);
  }
}

// Adds a segment's state to the total of the earlier ones. The positions of queries, and not their
// maxima, tell which queries have keys in the segment and for which it is the first: scores that
// are all NaN also leave the maxima at -inf, and must not be lost.
void FoldSegment(const BlockContext& c, int64_t segment, const State& part, const State& total) {
  for (int64_t row = c.block.row_begin; row < c.block.row_end; ++row) {
    const KeyRange keys = c.Keys(row);
    const int64_t first = keys.first / kSegmentTokens, last = keys.last / kSegmentTokens;
    if (segment < first || segment > last) continue;
    for (int64_t query = c.Query(row); query < c.Query(row + 1); ++query) {
      if (segment == first) {
        CopyQuery(part, total, query);
      } else {
        AddQuery(part, total, query);
      }
    }
  }
}

// What the sums of a query are multiplied with when e^sink is added to those of its weights. Either
// may be the larger by far.
inline float ScaleWithSink(const State& s, int64_t query, float sink) {
  const float weight = sink * kLog2E;
  const float maximum = s.maxima[query] > weight ? s.maxima[query] : weight;
  const Vec lowered = Vec::Set(s.maxima[query] - maximum);
  const float factor = MaxLane(Exp2(lowered));
  const float rest = MaxLane(Exp2(Vec::Set(weight - maximum)));
  return factor / (Sum(Vec::Load(s.sums + query * kMaxLanes)) * factor + rest);
}

void EndBlock(const BlockContext& c, const State& s) {
  const AttentionBlock& b = c.block;
  const int64_t head_dim = c.kv.head_dim;
  int64_t query = 0;
  for (int64_t row = b.row_begin; row < b.row_end; ++row) {
    float* out = c.args.out + (b.sequence->row_begin + row) * c.args.ldo + b.q_head * head_dim;
    for (int64_t head = 0; head < b.num_heads; ++head, ++query, out += head_dim) {
      float scale = 1.0f / Sum(Vec::Load(s.sums + query * kMaxLanes));
      if (c.args.sinks != nullptr) {
        scale = ScaleWithSink(s, query, c.args.sinks[b.q_head + head]);
      }
      const Vec inverse = Vec::Set(scale);
      ForVectors(head_dim, [&](int64_t at, auto, auto store) {
        store(out, Vec::Load(s.out + query * s.row + at) * inverse);
      });
    }
  }
}

void AttendBlock(const KvPages& kv, const AttentionArgs& args, const AttentionBlock& block) {
  BlockContext c(kv, args, block, nullptr);
  RowPrefetch rows(args, block, block.num_heads * kv.head_dim);
  c.rows = &rows;
  const int64_t first = c.step_begin / kStepsPerSegment;
  const int64_t last = (c.step_end - 1) / kStepsPerSegment;
  const State total = c.StateAt(c.scratch.total);
  WithKvFormat(kv.format, [&](auto format) {
    using T = decltype(format);
    PageWalk<T> walk(c);
    PackQueries<T>(c);
    for (int64_t segment = first; segment <= last; ++segment) {
      AttendSteps<T>(c, segment, walk);
      if (first < last) FoldSegment(c, segment, c.segment, total);
    }
  });
  EndBlock(c, first < last ? total : c.segment);
}

void AttendSegment(const KvPages& kv, const AttentionArgs& args, const AttentionBlock& block,
                   int64_t segment, float* state) {
  BlockContext c(kv, args, block, state);
  c.step_begin = Max64(c.step_begin, segment * kStepsPerSegment);
  c.step_end = Min64(c.step_end, (segment + 1) * kStepsPerSegment);
  WithKvFormat(kv.format, [&](auto format) {
    using T = decltype(format);
    PageWalk<T> walk(c);
    PackQueries<T>(c);
    AttendSteps<T>(c, segment, walk);
  });
}

void FoldSegments(const KvPages& kv, const AttentionArgs& args, const AttentionBlock& block,
                  const AttentionParts& parts) {
  const BlockContext c(kv, args, block, nullptr);
  const State total = c.StateAt(parts.total);
  float* state = parts.states;
  for (int64_t segment = parts.begin; segment < parts.end; ++segment) {
    FoldSegment(c, segment, c.StateAt(state), total);
    state += parts.state_floats;
  }
  if (parts.end * kStepsPerSegment >= c.step_end) EndBlock(c, total);
}

}  // namespace
}  // namespace mlc_native::kernels
