// What the benchmarks of attention compute with: the heads of models, and sequences in pages.
#pragma once

#include <algorithm>
#include <random>
#include <vector>

#include "kernels/cuda/latent.h"
#include "timing.h"

namespace mlc_native::kernels::cuda {

struct Heads {
  const char* name;
  int64_t q, kv, dim;
  int64_t latent = 0;  // of latent attention

  int64_t value_dim() const { return latent > 0 ? latent : dim; }
  int64_t arrays() const { return latent > 0 ? 1 : 2; }  // of pages
  int64_t tile_rows() const { return latent > 0 ? kLatentTileRows : PrefillTileRows(q, kv, dim); }
  // Of a query and a key.
  double operations() const { return 2.0 * static_cast<double>(q * (dim + value_dim())); }
};
inline constexpr Heads kQwen06{"qwen3-0.6b", 16, 8, 128};
inline constexpr Heads kLlama1{"llama-3.2-1b", 32, 8, 64};
inline constexpr Heads kLlama8{"llama-3.1-8b", 32, 8, 128};
inline constexpr Heads kDeepSeekLite{"deepseek-v2-lite", 16, 1, 576, 512};
inline constexpr Heads kGlmFlash{"glm-4.7-flash", 20, 1, 576, 512};

// A pool with `rows` sequences of `length` tokens, pages in random order.
class Cache {
 public:
  Cache(const Heads& heads, int64_t rows, int64_t length, KvFormat format = KvFormat::kBFloat16)
      : pages_((length + kKvPageSize - 1) / kKvPageSize),
        pool_bytes_(rows * pages_ * heads.kv * KvHeadBytes(format, heads.dim)),
        num_bytes_(heads.arrays() * pool_bytes_),
        pools_(num_bytes_),
        tables_(Shuffled(rows * pages_)) {
    kv.format = format;
    kv.kv_heads = heads.kv;
    kv.head_dim = heads.dim;
    kv.latent_dim = heads.latent;
    kv.num_pages = rows * pages_;
    kv.k = pools_.data();
    if (heads.latent == 0) kv.v = pools_.data(pool_bytes_);
  }
  double bytes() const { return static_cast<double>(num_bytes_); }
  AttentionArgs Args(const Heads& heads, const Buffer& q, const Buffer& out) const {
    return {.q = q.data(),
            .ldq = heads.q * heads.dim,
            .out = out.data(),
            .ldo = heads.q * heads.value_dim(),
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
  const int64_t num_bytes_;
  const Buffer pools_;
  const Buffer tables_;
};

// One row of each of `rows` sequences of `length` tokens; with a tiny bench, few and short ones.
struct DecodeInputs {
  DecodeInputs(const Bench& bench, const Heads& heads, int64_t num_rows, int64_t num_tokens,
               KvFormat format = KvFormat::kBFloat16)
      : DecodeInputs(heads, bench.Size(num_rows, std::min<int64_t>(num_rows, 2)),
                     bench.Size(num_tokens, 200), format) {}
  double operations() const { return static_cast<double>(rows.m * length) * heads.operations(); }

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
        workspace_(
            static_cast<int64_t>(DecodeWorkspaceBytes(max_splits_, heads.q, heads.value_dim()))),
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
