// A choice of keys (key_choice.h): scores of the keys of an index, which say how well they fit the
// query of a row, and copies of what is chosen. Included by cpu/attention_kernels.cc only.
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

// ---- Copies ----

// The key, or the value, of a token whose value is in a page, as KvWriter takes it. The value is
// [latent | rope], and the key [rope | latent].
template <typename T>
class ValueSource {
  static constexpr bool kInPairs = KvInPairs(T::kFormat);
  using Storage = typename T::Storage;

 public:
  ValueSource() = default;
  // first: where the first element that is read lies in the value; behind the last, the value
  // begins again.
  ValueSource(const KvPages& kv, int64_t page, int64_t token, int64_t first)
      : page_(KvPage<T>(kv, kv.v_pages, 0, page)),
        value_(page_ + KvValueIndex(kInPairs, KvRow(kv.head_dim), token, 0)),
        token_(token),
        first_(first),
        head_dim_(kv.head_dim) {}

  void Encode(int64_t d, Storage* to) const {
    const int64_t at = first_ + d;
    const int64_t wrapped = at < head_dim_ ? at : at - head_dim_;
    if (wrapped + kKvRowUnit <= head_dim_ && (at >= head_dim_ || at + kKvRowUnit <= head_dim_) &&
        d + kKvRowUnit <= head_dim_) {
      return LoadUnit(wrapped, to);
    }
    for (int64_t i = 0; i < kKvRowUnit; ++i) {
      const int64_t of_value = (at + i) % head_dim_;
      to[i] = d + i < head_dim_ ? value_[of_value * kStep] : Storage{};
    }
  }
  void SetScale(Storage* page, int64_t row, int64_t token) const {
    if constexpr (T::kFormat == KvFormat::kInt8) {
      KvScales(page, row)[token] = KvScales(page_, row)[token_];
    }
  }
  // Of all lines of the value.
  void Prefetch() const {
    const Storage* const begin = value_ - (kInPairs ? token_ % 2 : 0);
    for (int64_t d = 0; d < head_dim_ * kStep; d += 64) PrefetchElements<64>(begin + d);
  }

 private:
  static constexpr int64_t kStep = kInPairs ? 2 : 1;
  using Both = std::conditional_t<sizeof(Storage) == 1, uint16_t, uint32_t>;  // of two tokens

  void LoadUnit(int64_t d, Storage* to) const {
    if constexpr (kInPairs) {
      using Pairs __attribute__((vector_size(sizeof(Both) * kKvRowUnit))) = Both;
      using Elements __attribute__((vector_size(sizeof(Storage) * kKvRowUnit))) =
          std::make_unsigned_t<std::conditional_t<sizeof(Storage) == 1, int8_t, int16_t>>;
      Pairs pairs;
      __builtin_memcpy(&pairs, value_ - token_ % 2 + 2 * d, sizeof(pairs));
      const Elements elements =
          __builtin_convertvector(pairs >> (token_ % 2 * 8 * sizeof(Storage)), Elements);
      __builtin_memcpy(to, &elements, sizeof(elements));
    } else {
      __builtin_memcpy(to, value_ + d, kKvRowUnit * sizeof(Storage));
    }
  }

  const Storage* page_ = nullptr;
  const Storage* value_ = nullptr;
  int64_t token_ = 0;
  int64_t first_ = 0;
  int64_t head_dim_ = 0;
};

template <typename T>
void CopyTokens(const KvPages& from, const KvPages& to, const ChosenTokens& tokens, int64_t page) {
  using Writer = KvWriter<T>;
  const int64_t latent = from.head_dim - tokens.rope_dim;
  const auto source = [&](int64_t i, int64_t first) {
    const int64_t position = tokens.chosen[i];
    return ValueSource<T>(from, tokens.block_table[position / kPageSize], position % kPageSize,
                          first);
  };
  const Writer writer(to, 0, page);
  const int64_t to_slot = tokens.first_slot;
  int64_t token = 0;
  const auto copy_one = [&] {
    writer.WriteOne(to_slot + token, source(token, latent), source(token, 0));
    ++token;
  };
  while (token < tokens.count && (to_slot + token) % Writer::kTokens != 0) copy_one();
  for (; token + Writer::kTokens <= tokens.count; token += Writer::kTokens) {
    const int64_t ahead = Min64(tokens.num_ahead, token + 2 * Writer::kTokens);
    for (int64_t i = token + Writer::kTokens; i < ahead; ++i) source(i, 0).Prefetch();
    ValueSource<T> keys[Writer::kTokens];
    ValueSource<T> values[Writer::kTokens];
    for (int i = 0; i < Writer::kTokens; ++i) {
      keys[i] = source(token + i, latent);
      values[i] = source(token + i, 0);
    }
    writer.WriteMany(to_slot + token, keys, values);
  }
  while (token < tokens.count) copy_one();
}

void CopyChosen(const KvPages& from, const KvPages& to, const ChosenTokens& tokens, int64_t page) {
  WithKvFormat(from.format,
               [&](auto format) { CopyTokens<decltype(format)>(from, to, tokens, page); });
}

}  // namespace
}  // namespace mlc_native::kernels
