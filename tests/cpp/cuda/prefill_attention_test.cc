#include <limits>

#include "cuda/paged_kv.h"

namespace mlc_native::kernels::cuda {
namespace {

struct Slice {
  int64_t first_position;
  int64_t num_rows;
  int64_t last_key = 0;  // that all of them see

  int64_t length() const { return std::max(first_position + num_rows, last_key + 1); }
};

struct PrefillCase {
  KvShape shape;
  std::vector<Slice> slices{};  // one sequence each
  float soft_cap = 0;
  AttentionWindow window{};
  Floats sinks{};  // [q_heads]; empty: none
};

class PrefillAttentionTest : public CudaKernelTest {
 protected:
  static constexpr float kScale = 0.2f;

  static std::vector<PrefillTile> Tiles(const PrefillCase& c) {
    int64_t tile_rows = PrefillTileRows(c.shape.q_heads, c.shape.kv_heads, c.shape.head_dim);
    if (c.window.is_chunk) tile_rows = std::min(tile_rows, c.window.size);
    std::vector<PrefillTile> tiles;
    int64_t row = 0;
    for (size_t i = 0; i < c.slices.size(); ++i) {
      for (int64_t at = 0; at < c.slices[i].num_rows; at += tile_rows) {
        tiles.push_back(
            {.row_begin = static_cast<int32_t>(row + at),
             .num_rows = static_cast<int32_t>(std::min(tile_rows, c.slices[i].num_rows - at)),
             .first_position = static_cast<int32_t>(c.slices[i].first_position + at),
             .table = static_cast<int32_t>(i),
             .last_key = static_cast<int32_t>(c.slices[i].last_key)});
      }
      row += c.slices[i].num_rows;
    }
    return tiles;
  }

  // `q` [rows of all slices, q_heads, head_dim]
  static Floats Run(const PrefillCase& c, const Floats& q, const PagedKv& paged,
                    decltype(PrefillAttention)* attention = PrefillAttention) {
    const int64_t width = c.shape.q_heads * c.shape.head_dim;
    DeviceBytes device_q(Encode(c.shape.dtype, q)), out(q.size() * DTypeSize(c.shape.dtype)),
        sinks(Encode(c.shape.dtype, c.sinks));
    const std::vector<PrefillTile> tiles = Tiles(c);
    DeviceArray<PrefillTile> device_tiles(tiles);
    attention(paged.kv,
              {.dtype = c.shape.dtype,
               .q = device_q.data(),
               .ldq = width,
               .out = out.data(),
               .ldo = width,
               .q_heads = c.shape.q_heads,
               .scale = kScale,
               .soft_cap = c.soft_cap,
               .window = c.window,
               .sinks = c.sinks.empty() ? nullptr : sinks.data(),
               .block_tables = paged.tables->data(),
               .ld_block_tables = paged.ld_tables},
              device_tiles.data(), static_cast<int64_t>(tiles.size()), nullptr);
    return Decode(c.shape.dtype, out.Download());
  }

  // The sequences of the slices, without what no row sees.
  static PagedKv Sequences(const PrefillCase& c) {
    std::vector<int64_t> lengths;
    std::vector<uint32_t> seeds;
    for (const Slice& slice : c.slices) {
      lengths.push_back(slice.length());
      seeds.push_back(static_cast<uint32_t>(seeds.size()) + 1);
    }
    PagedKv paged(c.shape, lengths, seeds);
    for (size_t i = 0; i < c.slices.size(); ++i) {
      paged.ForgetPagesBelow(i, c.window.First(c.slices[i].first_position));
    }
    return paged;
  }
  Floats RandomQueries(const PrefillCase& c) {
    int64_t num_rows = 0;
    for (const Slice& slice : c.slices) num_rows += slice.num_rows;
    return Random(c.shape.dtype, num_rows * c.shape.q_heads * c.shape.head_dim, 2);
  }

  void Check(const PrefillCase& c) {
    const PagedKv paged = Sequences(c);
    const int64_t width = c.shape.q_heads * c.shape.head_dim;
    const Floats q = RandomQueries(c);
    const Floats got = Run(c, q, paged);
    int64_t row = 0;
    for (size_t i = 0; i < c.slices.size(); ++i) {
      const int64_t end = row + c.slices[i].num_rows;
      const auto part = [&](const Floats& x) {
        return Floats(x.begin() + row * width, x.begin() + end * width);
      };
      const auto want = paged.Reference(i, part(q), c.slices[i].first_position, kScale, c.soft_cap,
                                        c.window, c.sinks, c.slices[i].last_key);
      // The weights are rounded to the type, too.
      ExpectClose(part(got), want, 2 * Epsilon(c.shape.dtype));
      row = end;
    }
  }

  void ExpectSameOnWarpgroups(const PrefillCase& c) {
    const PagedKv paged = Sequences(c);
    if (!HasWarpgroupPrefillAttention(paged.kv, {.dtype = c.shape.dtype})) return;
    const Floats q = RandomQueries(c);
    EXPECT_EQ(Run(c, q, paged, WarpgroupPrefillAttention), Run(c, q, paged));
  }

  // The rows of a sequence in one call, and from each of the cuts on. `last_key`: that all see.
  void ExpectSameInChunks(PrefillCase c, int64_t length, const std::vector<int64_t>& cuts,
                          int64_t last_key = 0) {
    const int64_t width = c.shape.q_heads * c.shape.head_dim;
    const PagedKv paged(c.shape, {length}, {3});
    const Floats q = Random(c.shape.dtype, length * width, 2);
    c.slices = {{0, length, last_key}};
    const Floats whole = Run(c, q, paged);
    for (int64_t cut : cuts) {
      c.slices = {{cut, length - cut, last_key}};
      const Floats got = Run(c, Floats(q.begin() + cut * width, q.end()), paged);
      EXPECT_EQ(got, Floats(whole.begin() + cut * width, whole.end())) << cut;
    }
  }
};

constexpr DType kBf16 = DType::kBFloat16;

TEST_F(PrefillAttentionTest, MatchesTheReference) {
  for (DType dtype : {DType::kBFloat16, DType::kFloat16}) {
    const auto format = KvFormatOf(dtype);
    Check({.shape = {dtype, format, 2, 1, 64}, .slices = {{0, 100}, {37, 3}, {64, 1}}});
    Check({.shape = {dtype, format, 4, 2, 128}, .slices = {{0, 33}, {130, 40}}});
    Check({.shape = {dtype, KvFormat::kFloat8, 2, 1, 64}, .slices = {{0, 70}, {37, 40}}});
  }
}

TEST_F(PrefillAttentionTest, EveryGroupOfHeadsAndHeadSize) {
  for (int64_t group : {1, 3, 7, 8}) {
    for (int64_t head_dim : {16, 80, 256}) {
      const KvShape shape{kBf16, KvFormat::kBFloat16, 2 * group, 2, head_dim};
      Check({.shape = shape, .slices = {{5, 19}}});
    }
  }
  for (int64_t head_dim : {64, 96, 128}) {
    Check({.shape = {kBf16, KvFormat::kBFloat16, 5, 1, head_dim}, .slices = {{60, 27}, {0, 1}}});
    Check({.shape = {kBf16, KvFormat::kFloat8, 3, 1, head_dim}, .slices = {{61, 5}}});
  }
}

// Those of which a block computes a row together (latent.h).
TEST_F(PrefillAttentionTest, HeadsThatAreTooWideForAWarp) {
  for (DType dtype : {DType::kBFloat16, DType::kFloat16}) {
    for (const KvFormat format : {KvFormatOf(dtype), KvFormat::kFloat8}) {
      Check({.shape = {dtype, format, 2, 1, 512}, .slices = {{0, 40}, {37, 3}, {64, 1}}});
      Check({.shape = {dtype, format, 6, 2, 264}, .slices = {{5, 33}}});
    }
  }
  for (const int64_t group : {1, 7, 16}) {
    Check({.shape = {kBf16, KvFormat::kBFloat16, 2 * group, 2, 512}, .slices = {{30, 35}}});
  }
  ExpectSameInChunks({.shape = {kBf16, KvFormat::kBFloat16, 3, 1, 512}}, 70, {7, 33, 69});
  ExpectSameInChunks({.shape = {kBf16, KvFormat::kFloat8, 2, 2, 512}}, 40, {7});
}

TEST_F(PrefillAttentionTest, WindowsAndSoftCap) {
  const KvShape shape{kBf16, KvFormat::kBFloat16, 2, 1, 32};
  for (int64_t window : {1, 16, 63, 64, 100}) {
    Check({.shape = shape, .slices = {{0, 90}, {150, 70}}, .window = window});
    const AttentionWindow chunk(window, /*is_chunk=*/true);
    Check({.shape = shape, .slices = {{0, 90}, {150, 70}}, .window = chunk});
  }
  Check({.shape = shape, .slices = {{0, 70}}, .soft_cap = 0.7f});
  Check({.shape = shape, .slices = {{80, 70}}, .soft_cap = 0.7f, .window = 40});
}

// The rows of an image, of which those in front see those behind: within a tile, across tiles and
// as far as the next step of keys, whatever the window.
TEST_F(PrefillAttentionTest, RowsThatSeeEachOther) {
  for (DType dtype : {DType::kBFloat16, DType::kFloat16}) {
    const KvShape shape{dtype, KvFormatOf(dtype), 4, 2, 64};
    Check({.shape = shape, .slices = {{0, 100, 99}, {37, 3, 39}, {64, 1, 64}}});
    Check({.shape = shape, .slices = {{20, 40, 130}, {0, 1, 63}, {5, 9}}});
    for (const int64_t window : {1, 16, 90}) {
      Check({.shape = shape, .slices = {{30, 80, 109}, {150, 70, 219}, {7, 3}}, .window = window});
    }
  }
  Check({.shape = {kBf16, KvFormat::kFloat8, 3, 1, 96}, .slices = {{10, 60, 69}}});
  Check({.shape = {kBf16, KvFormat::kBFloat16, 2, 1, 256}, .slices = {{3, 70, 72}}, .window = 40});
  const KvShape shape{kBf16, KvFormat::kBFloat16, 4, 2, 64};
  ExpectSameInChunks({.shape = shape}, 150, {1, 64, 77}, 149);
  ExpectSameInChunks({.shape = shape, .window = 40}, 150, {1, 64, 77}, 149);
}

TEST_F(PrefillAttentionTest, SinksOfAnySize) {
  const Floats sinks{-300, 300, 0.5f, -std::numeric_limits<float>::infinity()};
  for (DType dtype : {DType::kBFloat16, DType::kFloat16}) {
    const KvShape shape{dtype, KvFormatOf(dtype), 4, 2, 32};
    Check({.shape = shape, .slices = {{0, 70}, {130, 9}}, .sinks = sinks});
    Check({.shape = shape, .slices = {{80, 20}}, .window = 40, .sinks = sinks});
  }
}

TEST_F(PrefillAttentionTest, ARowIsTheSameInEveryChunk) {
  const KvShape shape{kBf16, KvFormat::kBFloat16, 4, 2, 64};
  for (const AttentionWindow window :
       {AttentionWindow(), AttentionWindow(40), AttentionWindow(40, true)}) {
    ExpectSameInChunks({.shape = shape, .window = window}, 150, {1, 64, 77});
  }
  ExpectSameInChunks({.shape = shape, .soft_cap = 0.7f, .sinks = {1, -1, 0, 2}}, 70, {33});
}

// The rows of a token lie in both halves of a product's rows, in two warps and in two tiles.
TEST_F(PrefillAttentionTest, ARowIsTheSameInEveryPlaceOfATile) {
  for (int64_t head_dim : {96, 128}) {
    ExpectSameInChunks({.shape = {kBf16, KvFormat::kBFloat16, 3, 1, head_dim}}, 70, {5, 43});
  }
  ExpectSameInChunks({.shape = {kBf16, KvFormat::kBFloat16, 3, 1, 256}}, 40, {7});
  ExpectSameInChunks({.shape = {kBf16, KvFormat::kFloat8, 3, 1, 128}}, 70, {43});
}

TEST_F(PrefillAttentionTest, WarpgroupsHaveTheSameBits) {
  for (DType dtype : {DType::kBFloat16, DType::kFloat16}) {
    const auto format = KvFormatOf(dtype);
    ExpectSameOnWarpgroups({.shape = {dtype, format, 2, 1, 64}, .slices = {{0, 150}, {37, 3}}});
    ExpectSameOnWarpgroups({.shape = {dtype, format, 4, 2, 128}, .slices = {{0, 33}, {890, 70}}});
    ExpectSameOnWarpgroups({.shape = {dtype, format, 3, 1, 80}, .slices = {{64, 1}, {130, 40}}});
  }
  const Floats sinks{-300, 300, 0.5f, -std::numeric_limits<float>::infinity()};
  const KvShape shape{kBf16, KvFormat::kBFloat16, 4, 2, 32};
  ExpectSameOnWarpgroups({.shape = shape, .slices = {{0, 70}, {130, 9}}, .sinks = sinks});
  for (int64_t window : {1, 63, 64, 100}) {
    ExpectSameOnWarpgroups({.shape = shape, .slices = {{0, 90}, {450, 70}}, .window = window});
    const AttentionWindow chunk(window, /*is_chunk=*/true);
    ExpectSameOnWarpgroups({.shape = shape, .slices = {{0, 90}, {450, 70}}, .window = chunk});
  }
  ExpectSameOnWarpgroups({.shape = shape, .slices = {{80, 70}}, .soft_cap = 0.7f, .window = 40});
  for (int64_t window : {0, 40}) {
    ExpectSameOnWarpgroups(
        {.shape = shape, .slices = {{0, 100, 99}, {450, 70, 519}, {3, 4, 90}}, .window = window});
  }
}

TEST_F(PrefillAttentionTest, ChecksTheShape) {
  const KvPages kv{.kv_heads = 2, .head_dim = 64};
  EXPECT_ANY_THROW(
      PrefillAttention(kv, {.dtype = DType::kFloat32, .q_heads = 2}, nullptr, 1, nullptr));
  EXPECT_ANY_THROW(PrefillAttention(kv, {.q_heads = 3}, nullptr, 1, nullptr));
  EXPECT_ANY_THROW(WarpgroupPrefillAttention(kv, {.q_heads = 3}, nullptr, 1, nullptr));
  const KvPages large{.kv_heads = 2, .head_dim = 256};
  const KvPages small{.format = KvFormat::kFloat8, .kv_heads = 2, .head_dim = 64};
  for (const KvPages& other : {large, small}) {
    EXPECT_FALSE(HasWarpgroupPrefillAttention(other, {.q_heads = 2}));
    EXPECT_ANY_THROW(WarpgroupPrefillAttention(other, {.q_heads = 2}, nullptr, 1, nullptr));
  }
}

}  // namespace
}  // namespace mlc_native::kernels::cuda
