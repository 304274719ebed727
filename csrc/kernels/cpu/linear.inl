// y = x w^T + bias on packed panels, for every format of formats.inl. Included by
// cpu/linear_kernels.cc only.
//
// First the rows are converted into the workspace, tile after tile, as [group][row] Inputs in each.
// Then tiles of rows are multiplied with panels. Every output is one float sum that runs over the
// groups of k from 0 upwards and then adds the bias; tiles, blocks and spilled sums do not change
// its order. A row's result therefore depends neither on the other rows nor on the blocking.
#pragma once

#include "kernels/cpu/formats.inl"

namespace mlc_native::kernels {
namespace {

// A block of rows (with its inputs in L2) is multiplied with one panel after the other. Within a
// panel, a block of k (in L1) is used for all tiles of the rows while the next block is prefetched.
// Sums are kept in a separate buffer meanwhile, because rows of y are so far apart that they would
// compete for the same cache sets.
constexpr int64_t kBlockInputBytes = 512 * 1024;
constexpr int64_t kBlockWeightBytes = 20 * 1024;
constexpr int64_t kAheadBytes = 8 * 1024;  // how far one tile prefetches
constexpr int64_t kL2FromRows = 8;
constexpr int64_t kMaxBlockRows = 384;
constexpr int64_t kLine = 64;

constexpr int64_t CeilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }

// The best first tile of the last rows. A tile takes as many cycles as it has rows, but never fewer
// than kLatencyRows, whose sums hide the latency of the multiply-adds.
template <int kMaxRows>
struct RestOfRows {
  int first_tile[2 * kMaxRows] = {};

  constexpr RestOfRows() {
    constexpr int kLatencyRows = 4;
    int cycles[2 * kMaxRows] = {};
    for (int rows = 1; rows < 2 * kMaxRows; ++rows) {
      for (int size = 1; size <= kMaxRows && size <= rows; ++size) {
        if (size != kMaxRows && TileSizeBelow(size + 1) != size) continue;
        const int sum = (size > kLatencyRows ? size : kLatencyRows) + cycles[rows - size];
        if (first_tile[rows] != 0 && sum > cycles[rows]) continue;
        cycles[rows] = sum;
        first_tile[rows] = size;
      }
    }
  }
};

// How rows are cut into tiles: full ones, then those that take the fewest cycles for the rest, or
// one of any size.
template <int kMaxRows, bool kAnySize>
class RowSplit {
 public:
  explicit RowSplit(int64_t rows) : full_(rows < 2 * kMaxRows ? 0 : rows / kMaxRows - 1) {
    int64_t begin = full_ * kMaxRows;
    for (; begin < rows; begin += kAnySize ? kMaxRows : kRest.first_tile[rows - begin]) {
      tail_[tail_tiles_++] = begin;
    }
    tail_[tail_tiles_] = rows;
  }
  int64_t tiles() const { return full_ + tail_tiles_; }
  int64_t Begin(int64_t tile) const { return tile < full_ ? tile * kMaxRows : tail_[tile - full_]; }
  int64_t Rows(int64_t tile) const { return Begin(tile + 1) - Begin(tile); }
  int64_t TileOf(int64_t row) const {
    if (row < full_ * kMaxRows) return row / kMaxRows;
    int64_t tile = full_;
    while (Begin(tile + 1) <= row) ++tile;
    return tile;
  }

 private:
  static constexpr RestOfRows<kMaxRows> kRest{};
  static constexpr int kMaxTail = 4;

  int64_t full_;
  int64_t tail_tiles_ = 0;
  int64_t tail_[kMaxTail + 1];  // where each begins; the end
};

template <typename F>
using RowSplitOf = RowSplit<F::kMaxRows, F::kUnitSums>;

// ---- Inputs ----

template <typename F>
constexpr int64_t Groups(int64_t k) {
  return CeilDiv(k, F::kGroup);
}

// Writes one row to its place in its tile, whose Inputs are [groups][rows].
template <typename F>
void ConvertRow(const float* x, int64_t k, int64_t rows, typename F::Input* out) {
  int64_t i = 0;
  for (; i + F::kGroup <= k; i += F::kGroup, out += rows) F::Convert(x + i, out);
  if (i < k) {
    float padded[F::kGroup] = {};
    for (int64_t j = 0; j < k - i; ++j) padded[j] = x[i + j];
    F::Convert(padded, out);
  }
}

void LinearInputRows(const PackedLinear& w, const LinearArgs& a, int64_t begin, int64_t end) {
  WithFormat(w.format, a.m, [&](auto format) {
    using F = decltype(format);
    const RowSplitOf<F> split(a.m);
    auto* inputs = static_cast<typename F::Input*>(a.workspace);
    for (int64_t row = begin; row < end; ++row) {
      const int64_t tile = split.TileOf(row);
      const int64_t first = split.Begin(tile);
      const int64_t from = a.rows == nullptr ? row : a.rows[row];
      ConvertRow<F>(a.x + from * a.ldx, w.k, split.Rows(tile),
                    inputs + first * Groups<F>(w.k) + (row - first));
    }
  });
}

// ---- Panels ----

// Some groups of some rows and one panel.
struct Tile {
  const char* w;
  const void* x;  // Inputs [groups][rows]
  int64_t groups;
  const float* from;  // sums so far, [rows][kPanel]; null: start at 0
  float* y;           // receives the sums
  int64_t ldy;
  bool y_is_full;     // y has room for the rows of a full tile
  const float* bias;  // null: none, or not the last groups
  // The data to be read next, prefetched along with the groups. If few tiles share the work, some
  // in each step of a group; else some before the first step, which costs fewer instructions.
  const char* prefetch;
  int64_t step_lines;
  int64_t step_bytes;
  int64_t group_bytes;
  bool prefetch_l2;  // prefetches go to the level-2 cache

  void PrefetchLine(const char* p) const { prefetch_l2 ? PrefetchL2(p) : Prefetch(p); }
};

// Prefetches the part of a group's inputs that belongs to a step. Elements of floats are so large
// that the inputs of a full tile's next group come from the level-2 cache, a line or two per row,
// which the hardware's prefetches do not follow.
template <typename F, int kRows>
inline void PrefetchInputs(const typename F::Input* x, int step) {
  if constexpr (!F::kSumsIntegers && kRows == F::kMaxRows) {
    constexpr int64_t kBytes = kRows * sizeof(typename F::Input) / F::kSteps;
    for (int64_t at = 0; at < kBytes; at += kLine) {
      Prefetch(reinterpret_cast<const char*>(x) + step * kBytes + at);
    }
  }
}

// The loops over the sums must be fully unrolled, so that the sums stay in registers.
template <typename F, int kRows>
inline void RunTile(const Tile& t) {
  Vec sums[kRows][2];
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 2
    for (int v = 0; v < 2; ++v) {
      const int at = r * kPanel + v * Vec::kLanes;
      sums[r][v] = t.from != nullptr ? Vec::Load(t.from + at) : Vec::Zero();
    }
  }
  const char* w = t.w;
  const auto* x = static_cast<const typename F::Input*>(t.x);
  const char* prefetch = t.prefetch;
  for (int64_t g = 0; g < t.groups; ++g, w += F::kTileBytes, x += kRows) {
#pragma GCC unroll 1
    for (int64_t at = 0; at < t.group_bytes; at += kLine) t.PrefetchLine(prefetch + at);
    prefetch += t.group_bytes;
    F::Add(w, x, sums, [&](int step) {
      PrefetchInputs<F, kRows>(x + kRows, step);
      if (t.step_lines == 0) return;
      t.PrefetchLine(prefetch);
#pragma GCC unroll 1
      for (int64_t line = 1; line < t.step_lines; ++line) t.PrefetchLine(prefetch + line * kLine);
      prefetch += t.step_bytes;
    });
  }
#pragma GCC unroll 2
  for (int v = 0; v < 2; ++v) {
    const int column = v * Vec::kLanes;
    const Vec bias = t.bias != nullptr ? Vec::Load(t.bias + column) : Vec::Zero();
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r) {
      if (t.bias != nullptr) sums[r][v] = sums[r][v] + bias;
      sums[r][v].Store(t.y + r * t.ldy + column);
    }
  }
}

// The same where F's unit holds the sums, in kTiles tiles of rows.
template <typename F, int kTiles>
void RunUnit(const Tile& t, int64_t rows) {
  using Unit = typename F::Unit;
  using Input = typename F::Input;
  const char* w = t.w;
  const auto* x = static_cast<const Input*>(t.x);
  const char* prefetch = t.prefetch;
  Unit::template Start<kTiles>(t.from);
  for (int64_t g = 0; g < t.groups; ++g, w += F::kTileBytes, x += rows) {
    const int64_t bytes = t.step_bytes + t.group_bytes;
#pragma GCC unroll 1
    for (int64_t at = 0; at < bytes; at += kLine) t.PrefetchLine(prefetch + at);
    prefetch += bytes;
    if (rows == F::kMaxRows) PrefetchInputs<F, F::kMaxRows>(x + rows, 0);
    Unit::template Add<kTiles>(x, sizeof(Input), w);
  }
  constexpr int64_t kRows = kTiles * Unit::kRowsOfTile;
  if (t.bias == nullptr && (t.y_is_full || rows == kRows)) {
    return Unit::template Store<kTiles>(t.y, t.ldy * static_cast<int64_t>(sizeof(float)));
  }
  alignas(64) float y[kRows][kPanel];
  Unit::template Store<kTiles>(y[0], sizeof(y[0]));
  for (int64_t r = 0; r < rows; ++r) {
#pragma GCC unroll 2
    for (int v = 0; v < 2; ++v) {
      const int column = v * Vec::kLanes;
      Vec sum = Vec::Load(y[r] + column);
      if (t.bias != nullptr) sum = sum + Vec::Load(t.bias + column);
      sum.Store(t.y + r * t.ldy + column);
    }
  }
}

// Runs a tile of any size.
template <typename F>
inline void RunRows(const Tile& t, int64_t rows) {
  if constexpr (F::kUnitSums) {
    rows > F::Unit::kRowsOfTile ? RunUnit<F, 2>(t, rows) : RunUnit<F, 1>(t, rows);
  } else {
    WithTileSize<F::kMaxRows>(rows, [&](auto r) { RunTile<F, decltype(r)::value>(t); });
  }
}

// Runs a tile of the last panel, which has fewer columns, on a whole temporary panel.
template <typename F>
inline void RunTail(const Tile& t, int64_t rows, int64_t columns) {
  float y[F::kMaxRows * kPanel];
  float bias[kPanel] = {};
  Tile copy = t;
  copy.y = y;
  copy.ldy = kPanel;
  copy.y_is_full = true;
  if (t.bias != nullptr) {
    for (int64_t c = 0; c < columns; ++c) bias[c] = t.bias[c];
    copy.bias = bias;
  }
  RunRows<F>(copy, rows);
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t c = 0; c < columns; ++c) t.y[r * t.ldy + c] = y[r * kPanel + c];
  }
}

struct Range {
  int64_t begin;
  int64_t end;
};

// One linear in one format.
template <typename F>
class Problem {
 public:
  Problem(const PackedLinear& w, const LinearArgs& a) : w_(w), a_(a) {}

  // Multiplies all rows with some panels.
  void Run(Range panels) const {
    const int64_t tile_bytes = groups_ * kMaxRows * static_cast<int64_t>(sizeof(Input));
    const int64_t block_tiles = Min64(kMaxTiles, kBlockInputBytes / tile_bytes + 1);
    const bool at_once = split_.tiles() == 1 && !F::kWidens;  // `wide` has room for a block
    const int64_t blocks = CeilDiv(groups_, at_once ? groups_ : kMaxBlockGroups);
    const int64_t block_groups = CeilDiv(groups_, blocks);
    alignas(64) float sums[kMaxTiles * kMaxRows * kPanel];
    alignas(64) char wide[F::kWidens ? kMaxBlockGroups * F::kTileBytes : 1];
    [[maybe_unused]] const typename F::Unit unit;
    for (int64_t tile = 0; tile < split_.tiles(); tile += block_tiles) {
      const Range tiles{tile, Min64(split_.tiles(), tile + block_tiles)};
      for (int64_t panel = panels.begin; panel < panels.end; ++panel) {
        for (int64_t group = 0; group < groups_; group += block_groups) {
          RunBlock(tiles, {group, Min64(groups_, group + block_groups)}, panel, sums, wide);
        }
      }
    }
  }

 private:
  using Input = typename F::Input;
  static constexpr int64_t kMaxRows = F::kMaxRows;
  static constexpr int64_t kMaxTiles = kMaxBlockRows / kMaxRows;
  static constexpr int64_t kMaxBlockGroups = Min64(kBlockWeightBytes / F::kTileBytes, 16);

  // One row of q8 in vectors of a whole line reads so fast that the hardware's own prefetches do
  // better.
  static constexpr bool kOneRowPrefetches =
      F::kGroupBytes / F::kSteps % kLine == 0 || !F::kSumsIntegers || kPanel < 32;

  // Whether prefetches go to the level-2 cache: for floats with so many rows that products and
  // reads take about as long, since the level-1 cache has fewer misses in flight, and with more,
  // when the block that all tiles share and their inputs fill it.
  bool PrefetchesL2() const { return !F::kSumsIntegers && a_.m >= kL2FromRows; }

  // The sums of all tiles stay in `sums` until the last groups have been added.
  void RunBlock(Range tiles, Range groups, int64_t panel, float* sums, char* wide) const {
    const bool last = groups.end == groups_;
    const int64_t columns = last ? w_.n - panel * kPanel : kPanel;
    Tile t{};
    t.w = static_cast<const char*>(w_.data) + panel * panel_stride_ + groups.begin * F::kGroupBytes;
    t.groups = groups.end - groups.begin;
    t.ldy = last ? a_.ldy : kPanel;
    t.y_is_full = !last;
    t.bias = last && a_.bias != nullptr ? a_.bias + panel * kPanel : nullptr;
    if (a_.m > 1 || kOneRowPrefetches) {
      // A block ahead if there are several; maybe of the next panel.
      const int64_t ahead = split_.tiles() > 1 ? t.groups : kAheadBytes / F::kGroupBytes;
      t.prefetch_l2 = PrefetchesL2();
      t.prefetch = t.w + Min64(ahead, kMaxBlockGroups) * F::kGroupBytes;
      const int64_t share = F::kGroupBytes / (tiles.end - tiles.begin);
      t.step_bytes = share / F::kSteps;
      t.step_lines = (t.step_bytes + kLine / 2) / kLine;
      if (t.step_lines == 0) {
        t.step_bytes = 0;
        t.group_bytes = share;
      }
    }
    if constexpr (F::kWidens) {
      for (int64_t g = 0; g < t.groups; ++g) {
        F::Widen(t.w + g * F::kGroupBytes, wide + g * F::kTileBytes);
      }
      t.w = wide;
    }
    for (int64_t tile = tiles.begin; tile < tiles.end; ++tile) {
      const int64_t row = split_.Begin(tile);
      const int64_t rows = split_.Rows(tile);
      t.x = static_cast<const Input*>(a_.workspace) + row * groups_ + groups.begin * rows;
      t.from = groups.begin > 0 ? sums : nullptr;
      t.y = last ? a_.y + row * a_.ldy + panel * kPanel : sums;
      columns < kPanel ? RunTail<F>(t, rows, columns) : RunRows<F>(t, rows);
      sums += rows * kPanel;
      t.prefetch += (t.step_bytes * F::kSteps + t.group_bytes) * t.groups;
    }
  }

  const PackedLinear& w_;
  const LinearArgs& a_;
  const int64_t groups_ = Groups<F>(w_.k);
  const int64_t panel_stride_ = F::kLayout.PanelBytes(w_.k, kPanel);
  const RowSplitOf<F> split_{a_.m};
};

void LinearPanels(const PackedLinear& w, const LinearArgs& a, int64_t begin, int64_t end) {
  WithFormat(w.format, a.m,
             [&](auto format) { Problem<decltype(format)>(w, a).Run({begin, end}); });
}

}  // namespace
}  // namespace mlc_native::kernels
