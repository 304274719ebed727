// What the benchmarks of attention compute with: the heads of models, and sequences in pages.
#pragma once

#include <algorithm>
#include <random>
#include <vector>

#include "kernels/cuda/kernels.h"
#include "timing.h"

namespace mlc_native::kernels::cuda {

struct Heads {
  const char* name;
  int64_t q, kv, dim;
};
inline constexpr Heads kQwen06{"qwen3-0.6b", 16, 8, 128};
inline constexpr Heads kLlama1{"llama-3.2-1b", 32, 8, 64};
inline constexpr Heads kLlama8{"llama-3.1-8b", 32, 8, 128};

// A pool with `rows` sequences of `length` tokens, pages in random order.
class Cache {
 public:
  Cache(const Heads& heads, int64_t rows, int64_t length, KvFormat format = KvFormat::kBFloat16)
      : pages_((length + kKvPageSize - 1) / kKvPageSize),
        pool_bytes_(rows * pages_ * heads.kv * KvHeadBytes(format, heads.dim)),
        pools_(2 * pool_bytes_),
        tables_(Shuffled(rows * pages_)) {
    kv.format = format;
    kv.kv_heads = heads.kv;
    kv.head_dim = heads.dim;
    kv.num_pages = rows * pages_;
    kv.k = pools_.data();
    kv.v = pools_.data(pool_bytes_);
  }
  double bytes() const { return 2.0 * static_cast<double>(pool_bytes_); }
  AttentionArgs Args(const Heads& heads, const Buffer& q, const Buffer& out) const {
    return {.q = q.data(),
            .ldq = heads.q * heads.dim,
            .out = out.data(),
            .ldo = heads.q * heads.dim,
            .q_heads = heads.q,
            .scale = 0.1f,
            .block_tables = tables_.data<int32_t>(),
            .ld_block_tables = pages_};
  }
  KvPages kv;

 private:
  static std::vector<int32_t> Shuffled(int64_t n) {
    std::vector<int32_t> pages(n);
    for (int64_t i = 0; i < n; ++i) pages[i] = static_cast<int32_t>(i);
    std::shuffle(pages.begin(), pages.end(), std::mt19937(2));
    return pages;
  }

  const int64_t pages_;
  const int64_t pool_bytes_;
  const Buffer pools_;
  const Buffer tables_;
};

// One row of each of `rows` sequences of `length` tokens; with a tiny bench, few and short ones.
struct DecodeInputs {
  DecodeInputs(const Bench& bench, const Heads& heads, int64_t num_rows, int64_t num_tokens,
               KvFormat format = KvFormat::kBFloat16)
      : DecodeInputs(heads, bench.Size(num_rows, std::min<int64_t>(num_rows, 2)),
                     bench.Size(num_tokens, 200), format) {}
  double operations() const {
    return 4.0 * static_cast<double>(rows.m * length * heads.q * heads.dim);
  }

  const Heads heads;
  const int64_t length;
  const Cache cache;

 private:
  DecodeInputs(const Heads& heads, int64_t num_rows, int64_t num_tokens, KvFormat format)
      : heads(heads),
        length(num_tokens),
        cache(heads, num_rows, num_tokens, format),
        q_(num_rows * heads.q * heads.dim * 2),
        out_(num_rows * heads.q * heads.dim * 2),
        lengths_(std::vector<int32_t>(num_rows, static_cast<int32_t>(num_tokens))),
        max_splits_(num_rows * MaxDecodeSplits(num_tokens)),
        workspace_(static_cast<int64_t>(DecodeWorkspaceBytes(max_splits_, heads.q, heads.dim))),
        splits_(static_cast<int64_t>(DecodeSplitsBytes(max_splits_))),
        args(cache.Args(heads, q_, out_)),
        rows{.lengths = lengths_.data<int32_t>(),
             .m = num_rows,
             .max_splits = max_splits_,
             .workspace = workspace_.data(),
             .splits = splits_.data()} {
    workspace_.Clear(ZeroedDecodeBytes(heads.q));
    const OwnedStream stream;
    ListSplits(rows, 0, stream.get());
    stream.Synchronize();
  }

  const Buffer q_, out_, lengths_;
  const int64_t max_splits_;
  Buffer workspace_;
  const Buffer splits_;

 public:
  const AttentionArgs args;
  const DecodeRows rows;
};

}  // namespace mlc_native::kernels::cuda
