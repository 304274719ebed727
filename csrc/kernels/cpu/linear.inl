// y = x w^T + bias on packed panels. Included by cpu/kernels.inl only.
//
// Every output is one accumulator that runs over k from 0 upwards and then adds the bias; tiles,
// blocks and spills to y only decide when. So a row's result does not depend on the other rows nor
// on the blocking.
#pragma once

#include "kernels/cpu/vec_math.inl"

namespace mlc_native::kernels {
namespace {

constexpr int kPanel = 2 * Vec::kLanes;
// Blocks of calls with more rows than a tile: kBlockRows x kBlockK packed inputs (96 KiB) are
// walked over kBlockPanels panels; a panel's k block (16 KiB of bfloat16) serves all tiles of the
// rows. Measured on Zen 3: 94 % of the FMA peak at 512 rows; 86 % with 24 x 256 over 32.
constexpr int64_t kBlockK = 512;
constexpr int64_t kBlockPanels = 64;
constexpr int64_t kBlockRows = 8 * kTileRows;
constexpr int64_t kPrefetchBytes = 1024;  // ahead in each panel read from memory

// Elements from panel to panel; each starts at a multiple of kPackedAlignment bytes.
template <typename T>
inline int64_t PanelStride(int64_t k) {
  constexpr int64_t kAlign = kPackedAlignment / static_cast<int64_t>(sizeof(typename T::Storage));
  return (k * kPanel + kAlign - 1) / kAlign * kAlign;
}

// A tile's operands besides the weights. Packed x is [k][rows], else row-major with stride ldx.
struct Tile {
  const float* x;
  int64_t ldx;
  int64_t k;
  float* y;  // whole panels; RunTail sees to the last one
  int64_t ldy;
  const float* bias;       // of the first column; null: none, or not the last k block
  bool resume;             // continue the sums in y instead of starting at 0
  const char* prefetch;    // of packed tiles: what the next ones read, walked along with k
  int64_t prefetch_bytes;  // per k
};

// The sums of kRows x one panel. Loops over it must unroll fully, else it does not live in
// registers.
template <int kRows>
struct Sums {
  Vec lo[kRows];
  Vec hi[kRows];

  inline void Zero() {
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r) lo[r] = hi[r] = Vec::Zero();
  }
  inline void Load(const float* y, int64_t ldy) {
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r) {
      lo[r] = Vec::Load(y + r * ldy);
      hi[r] = Vec::Load(y + r * ldy + Vec::kLanes);
    }
  }
  inline void Store(float* y, int64_t ldy) const {
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r) {
      lo[r].Store(y + r * ldy);
      hi[r].Store(y + r * ldy + Vec::kLanes);
    }
  }
  inline void AddBias(const float* bias) {
    const Vec bias_lo = Vec::Load(bias);
    const Vec bias_hi = Vec::Load(bias + Vec::kLanes);
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r) {
      lo[r] = lo[r] + bias_lo;
      hi[r] = hi[r] + bias_hi;
    }
  }
};

// Rows of x straight from the caller, panels straight from memory (several at once to have enough
// independent sums in flight), all of k.
template <typename T, int kRows, int kPanels>
inline void DirectTile(const typename T::Storage* w, int64_t panel_stride, const Tile& t) {
  Sums<kRows> sums[kPanels];
#pragma GCC unroll 16
  for (int p = 0; p < kPanels; ++p) sums[p].Zero();
  for (int64_t k = 0; k < t.k; ++k) {
#pragma GCC unroll 16
    for (int p = 0; p < kPanels; ++p) {
      const typename T::Storage* wk = w + p * panel_stride + k * kPanel;
      Prefetch(reinterpret_cast<const char*>(wk) + kPrefetchBytes);
      Vec lo, hi;
      T::LoadPair(wk, lo, hi);
#pragma GCC unroll 16
      for (int r = 0; r < kRows; ++r) {
        const Vec x = Vec::Set(t.x[r * t.ldx + k]);
        sums[p].lo[r] = Fma(x, lo, sums[p].lo[r]);
        sums[p].hi[r] = Fma(x, hi, sums[p].hi[r]);
      }
    }
  }
#pragma GCC unroll 16
  for (int p = 0; p < kPanels; ++p) {
    if (t.bias != nullptr) sums[p].AddBias(t.bias + p * kPanel);
    sums[p].Store(t.y + p * kPanel, t.ldy);
  }
}

// Packed rows, one k block of one panel.
template <typename T, int kRows>
inline void PackedTile(const typename T::Storage* w, const Tile& t) {
  Sums<kRows> sums;
  if (t.resume) {
    sums.Load(t.y, t.ldy);
  } else {
    sums.Zero();
  }
  const float* x = t.x;
  const char* prefetch = t.prefetch;
  for (int64_t k = 0; k < t.k; ++k) {
    Prefetch(prefetch);
    Vec lo, hi;
    T::LoadPair(w, lo, hi);
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r) {
      const Vec xk = Vec::Set(x[r]);
      sums.lo[r] = Fma(xk, lo, sums.lo[r]);
      sums.hi[r] = Fma(xk, hi, sums.hi[r]);
    }
    w += kPanel;
    x += kRows;
    prefetch += t.prefetch_bytes;
  }
  if (t.bias != nullptr) sums.AddBias(t.bias);
  sums.Store(t.y, t.ldy);
}

// Runs a tile of the last panel, of whose columns only some exist, on a copy of whole panels.
template <typename F>
inline void RunTail(const Tile& t, int64_t rows, int64_t columns, F run) {
  float y[kTileRows * kPanel];
  float bias[kPanel] = {};
  Tile copy = t;
  copy.y = y;
  copy.ldy = kPanel;
  for (int64_t r = 0; t.resume && r < rows; ++r) {
    for (int64_t c = 0; c < kPanel; ++c) y[r * kPanel + c] = c < columns ? t.y[r * t.ldy + c] : 0;
  }
  if (t.bias != nullptr) {
    for (int64_t c = 0; c < columns; ++c) bias[c] = t.bias[c];
    copy.bias = bias;
  }
  run(copy);
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t c = 0; c < columns; ++c) t.y[r * t.ldy + c] = y[r * kPanel + c];
  }
}

template <typename T, int kRows>
void LinearDirect(const PackedLinear& w, const LinearArgs& a, int64_t begin, int64_t end) {
  constexpr int kTogether = kTileVectors / (2 * kRows) > 1 ? kTileVectors / (2 * kRows) : 1;
  const int64_t stride = PanelStride<T>(w.k);
  const auto* data = static_cast<const typename T::Storage*>(w.data);
  const auto tile_at = [&](int64_t panel) {
    Tile t{};
    t.x = a.x;
    t.ldx = a.ldx;
    t.k = w.k;
    t.y = a.y + panel * kPanel;
    t.ldy = a.ldy;
    t.bias = a.bias == nullptr ? nullptr : a.bias + panel * kPanel;
    return t;
  };
  const int64_t whole_end = Min64(end, w.n / kPanel);
  int64_t panel = begin;
  for (; panel + kTogether <= whole_end; panel += kTogether) {
    DirectTile<T, kRows, kTogether>(data + panel * stride, stride, tile_at(panel));
  }
  if constexpr (kTogether > 1) {
    if (panel < whole_end) {
      WithRows<kTogether - 1>(whole_end - panel, [&](auto panels) {
        constexpr int kRest = decltype(panels)::value;
        DirectTile<T, kRows, kRest>(data + panel * stride, stride, tile_at(panel));
      });
      panel = whole_end;
    }
  }
  if (panel < end) {
    RunTail(tile_at(panel), kRows, w.n - panel * kPanel,
            [&](const Tile& t) { DirectTile<T, kRows, 1>(data + panel * stride, stride, t); });
  }
}

// Rows split as evenly as tiles allow, so that no tile is too thin to hide the FMA latency.
struct RowSplit {
  int64_t tiles;
  int64_t base;
  int64_t longer;  // the first `longer` tiles have base + 1 rows
  explicit RowSplit(int64_t rows)
      : tiles((rows + kTileRows - 1) / kTileRows), base(rows / tiles), longer(rows % tiles) {}
  int64_t rows(int64_t tile) const { return base + (tile < longer ? 1 : 0); }
};

// x[rows, k] -> consecutive tiles of [k][tile rows].
inline void PackRows(const float* x, int64_t ldx, int64_t k, const RowSplit& split, float* packed) {
  for (int64_t tile = 0; tile < split.tiles; ++tile) {
    const int64_t rows = split.rows(tile);
    WithRows<kTileRows>(rows, [&](auto n) {
      constexpr int kRows = decltype(n)::value;
      for (int64_t i = 0; i < k; ++i) {
#pragma GCC unroll 16
        for (int r = 0; r < kRows; ++r) packed[i * kRows + r] = x[r * ldx + i];
      }
    });
    packed += rows * k;
    x += rows * ldx;
  }
}

// One packed row block times the k block [k0, k0 + k) of the panels [begin, end).
template <typename T>
void LinearBlock(const PackedLinear& w, const LinearArgs& a, const RowSplit& split,
                 const float* packed, int64_t k0, int64_t k, int64_t begin, int64_t end) {
  const int64_t stride = PanelStride<T>(w.k);
  const auto* data = static_cast<const typename T::Storage*>(w.data) + k0 * kPanel;
  Tile t{};
  t.k = k;
  t.ldy = a.ldy;
  t.resume = k0 > 0;
  const bool last = k0 + k == w.k;
  constexpr int64_t kRowBytes = kPanel * sizeof(typename T::Storage);
  t.prefetch_bytes = kRowBytes / split.tiles;
  for (int64_t panel = begin; panel < end; ++panel) {
    const typename T::Storage* w_panel = data + panel * stride;
    const char* next = reinterpret_cast<const char*>(
        panel + 1 < end ? w_panel + stride : data + begin * stride + k * kPanel);
    t.x = packed;
    t.y = a.y + panel * kPanel;
    t.bias = last && a.bias != nullptr ? a.bias + panel * kPanel : nullptr;
    const int64_t columns = w.n - panel * kPanel;
    for (int64_t tile = 0; tile < split.tiles; ++tile) {
      const int64_t rows = split.rows(tile);
      t.prefetch = next + tile * t.prefetch_bytes * k;
      const auto run = [&](const Tile& whole) {
        WithRows<kTileRows>(rows,
                            [&](auto r) { PackedTile<T, decltype(r)::value>(w_panel, whole); });
      };
      columns < kPanel ? RunTail(t, rows, columns, run) : run(t);
      t.x += rows * k;
      t.y += rows * a.ldy;
    }
  }
}

template <typename T>
void LinearBlocked(const PackedLinear& w, const LinearArgs& a, int64_t begin, int64_t end) {
  alignas(64) float packed[kBlockRows * kBlockK];
  for (int64_t panel = begin; panel < end; panel += kBlockPanels) {
    const int64_t panel_end = Min64(end, panel + kBlockPanels);
    for (int64_t k0 = 0; k0 < w.k; k0 += kBlockK) {
      const int64_t k = Min64(kBlockK, w.k - k0);
      for (int64_t row = 0; row < a.m; row += kBlockRows) {
        const RowSplit split(Min64(kBlockRows, a.m - row));
        PackRows(a.x + row * a.ldx + k0, a.ldx, k, split, packed);
        LinearArgs block = a;
        block.y = a.y + row * a.ldy;
        LinearBlock<T>(w, block, split, packed, k0, k, panel, panel_end);
      }
    }
  }
}

void LinearPanels(const PackedLinear& w, const LinearArgs& a, int64_t begin, int64_t end) {
  WithType(w.dtype, [&](auto type) {
    using T = decltype(type);
    if (a.m > kTileRows) return LinearBlocked<T>(w, a, begin, end);
    WithRows<kTileRows>(
        a.m, [&](auto rows) { LinearDirect<T, decltype(rows)::value>(w, a, begin, end); });
  });
}

}  // namespace
}  // namespace mlc_native::kernels
