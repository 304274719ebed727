#include <limits>

#include "cuda/paged_kv.h"

namespace mlc_native::kernels::cuda {
namespace {

struct DecodeCase {
  KvShape shape;
  std::vector<int64_t> lengths;  // 0: an unused row
  float soft_cap = 0;
  AttentionWindow window{};
  Floats sinks{};                 // [q_heads]; empty: none
  std::vector<int32_t> tables{};  // of each row; empty: its own
  int64_t other_heads = 0;        // of a layer whose calls share the memory; 0: none
  // Of each row, which may be in front of its last key; empty: there.
  std::vector<int32_t> positions{};
  Floats slopes{};     // [q_heads]; empty: none
  Floats distances{};  // [q_heads, 2 * reach + 1]; empty: none
  int64_t reach = 0;

  int64_t position(size_t row) const {
    return positions.empty() ? lengths[row] - 1 : positions[row];
  }
  // DistanceBias::table
  Floats table() const {
    return distances.empty() ? Floats() : PadDistances(distances, shape.q_heads, reach);
  }
  DistanceBias BiasOf(const float* slopes_at, const float* table_at) const {
    return {.slopes = slopes.empty() ? nullptr : slopes_at,
            .table = distances.empty() ? nullptr : table_at,
            .reach = reach};
  }
};

// In every 16-bit type, and in eight bits.
struct Types {
  DType dtype;
  KvFormat format;
};
constexpr Types kTypes[] = {{DType::kBFloat16, KvFormat::kBFloat16},
                            {DType::kFloat16, KvFormat::kFloat16},
                            {DType::kBFloat16, KvFormat::kFloat8},
                            {DType::kFloat16, KvFormat::kFloat8}};

// Around the ends of pages, of the pages that warps take in turn, and of splits.
std::vector<int64_t> EdgeLengths(int64_t most) {
  std::vector<int64_t> lengths{1, 2};
  for (int64_t edge = 16; edge <= most; edge += edge < 160 ? 16 : 64) {
    lengths.insert(lengths.end(), {edge - 1, edge, edge + 1});
  }
  return lengths;
}

class DecodeAttentionTest : public CudaKernelTest {
 protected:
  static constexpr float kScale = 0.3f;

  Floats Queries(const KvShape& shape, uint32_t seed) {
    random_.seed(seed);
    return Random(shape.dtype, shape.q_heads * shape.head_dim, 2);
  }

  // Rows of q_heads * head_dim, each made of its seed alone. Unused rows come back as poison.
  std::vector<uint8_t> Run(const DecodeCase& c, const std::vector<uint32_t>& seeds,
                           const PagedKv& paged) {
    const int64_t width = c.shape.q_heads * c.shape.head_dim;
    const auto m = static_cast<int64_t>(c.lengths.size());
    Floats q;
    for (uint32_t seed : seeds) {
      const Floats row = Queries(c.shape, seed);
      q.insert(q.end(), row.begin(), row.end());
    }
    DeviceBytes device_q(Encode(c.shape.dtype, q)), sinks(Encode(c.shape.dtype, c.sinks));
    DeviceArray<int32_t> lengths(std::vector<int32_t>(c.lengths.begin(), c.lengths.end()));
    int64_t max_splits = 0;
    for (const int64_t length : c.lengths) max_splits += MaxDecodeSplits(length);
    DeviceArray<uint8_t> workspace(
        DecodeWorkspaceBytes(max_splits, c.shape.q_heads, c.shape.head_dim));
    std::vector<uint8_t> start(workspace.size(), 0xff);
    std::fill_n(start.begin(), ZeroedDecodeBytes(c.shape.q_heads), uint8_t{0});
    workspace.Upload(start);
    DeviceArray<uint8_t> splits(DecodeSplitsBytes(max_splits));
    const DeviceArray<int32_t> tables(c.tables), positions(c.positions);
    const DeviceArray<float> slopes(c.slopes), distances(c.table());
    const DecodeRows rows{.lengths = lengths.data(),
                          .positions = c.positions.empty() ? nullptr : positions.data(),
                          .tables = c.tables.empty() ? nullptr : tables.data(),
                          .m = m,
                          .max_splits = max_splits,
                          .most_heads = c.shape.q_heads,
                          .workspace = workspace.data(),
                          .splits = splits.data()};
    ListSplits(rows, c.window, nullptr);
    std::vector<uint8_t> result;
    for (int call = 0; call < 2; ++call) {  // the second finds what the first left
      DeviceBytes out(q.size() * DTypeSize(c.shape.dtype));
      AttentionArgs args{.dtype = c.shape.dtype,
                         .q = device_q.data(),
                         .ldq = width,
                         .out = out.data(),
                         .ldo = width,
                         .q_heads = c.other_heads,
                         .scale = kScale,
                         .soft_cap = c.soft_cap,
                         .window = c.window,
                         .bias = c.BiasOf(slopes.data(), distances.data()),
                         .sinks = c.sinks.empty() ? nullptr : sinks.data(),
                         .block_tables = paged.tables->data(),
                         .ld_block_tables = paged.ld_tables};
      if (c.other_heads > 0) DecodeAttention(paged.kv, args, rows, nullptr);
      args.q_heads = c.shape.q_heads;
      DecodeAttention(paged.kv, args, rows, nullptr);
      result = out.Download();
    }
    return result;
  }

  void Check(const DecodeCase& c) {
    std::vector<uint32_t> seeds(c.lengths.size());
    std::iota(seeds.begin(), seeds.end(), 1);
    PagedKv paged(c.shape, c.lengths, seeds);
    for (size_t i = 0; i < c.lengths.size(); ++i) {
      if (c.lengths[i] == 0) continue;
      paged.ForgetKeysBelow(i, c.window.First(c.position(i)));
      paged.ForgetPagesBelow(i, c.window.First(c.position(i)));
    }
    const Floats got = Decode(c.shape.dtype, Run(c, seeds, paged));
    const int64_t width = c.shape.q_heads * c.shape.head_dim;
    const Floats table = c.table();
    for (size_t i = 0; i < c.lengths.size(); ++i) {
      const Floats row(got.begin() + i * width, got.begin() + (i + 1) * width);
      if (c.lengths[i] == 0) {
        for (float x : row) ASSERT_TRUE(std::isnan(x));
        continue;
      }
      const auto want = paged.Reference(i, Queries(c.shape, seeds[i]), c.position(i), kScale,
                                        c.soft_cap, c.window, c.sinks, c.lengths[i] - 1,
                                        c.BiasOf(c.slopes.data(), table.data()));
      ExpectClose(row, want, Epsilon(c.shape.dtype) + 1e-5);
    }
  }
};

TEST_F(DecodeAttentionTest, MatchesTheReference) {
  for (DType dtype : kDTypes) {
    const auto format = KvFormatOf(dtype);
    Check({.shape = {dtype, format, 4, 2, 64}, .lengths = {1, 16, 17, 200}});
    Check({.shape = {dtype, format, 4, 1, 128}, .lengths = {65, 0, 3}});
  }
  const auto bf16 = DType::kBFloat16;
  Check({.shape = {bf16, KvFormat::kFloat8, 4, 2, 128}, .lengths = {70, 5}});
  Check({.shape = {bf16, KvFormat::kFloat8, 3, 3, 24}, .lengths = {70}});
}

TEST_F(DecodeAttentionTest, EveryGroupOfHeadsAndHeadSize) {
  for (int64_t group : {1, 2, 3, 5, 7, 8, 12}) {
    for (int64_t head_dim : {8, 80, 256}) {
      const KvShape shape{DType::kFloat32, KvFormat::kFloat32, 2 * group, 2, head_dim};
      Check({.shape = shape, .lengths = {37}});
    }
  }
}

TEST_F(DecodeAttentionTest, EveryGroupHeadSizeAndType) {
  int64_t length = 1;
  for (const Types& types : kTypes) {
    for (int64_t group : {1, 2, 4, 5, 7, 8, 16}) {
      for (int64_t head_dim : {64, 80, 96, 128, 256}) {
        const KvShape shape{types.dtype, types.format, 2 * group, 2, head_dim};
        Check({.shape = shape, .lengths = {length, 160 - length}});
        length = length % 149 + 11;
      }
    }
  }
}

// Those of which a block computes a row together (latent.h): one and two tiles of heads, several
// pieces of a group, and rows of several splits.
TEST_F(DecodeAttentionTest, HeadsThatAreTooWideForAWarp) {
  for (const Types& types : kTypes) {
    for (const int64_t group : {1, 8, 17, 40}) {
      const KvShape shape{types.dtype, types.format, 2 * group, 2, 512};
      Check({.shape = shape, .lengths = {1, 0, 16, 33}});
    }
    Check({.shape = {types.dtype, types.format, 6, 3, 264}, .lengths = {37, 32}});
    Check({.shape = {types.dtype, types.format, 4, 1, 512}, .lengths = {300, 1, 700}});
  }
  for (const int64_t group : {1, 8, 12}) {
    const KvShape shape{DType::kFloat32, KvFormat::kFloat32, 2 * group, 2, 512};
    Check({.shape = shape, .lengths = {1, 0, 70}});
  }
  Check({.shape = {DType::kFloat32, KvFormat::kFloat32, 6, 3, 264}, .lengths = {300}});
}

// Those of an image, whose window is that of the row.
TEST_F(DecodeAttentionTest, RowsThatSeeKeysBehindTheirOwn) {
  for (const DType dtype : kDTypes) {
    const KvShape shape{dtype, KvFormatOf(dtype), 4, 2, 64};
    for (const int64_t window : {0, 16, 41}) {
      Check({.shape = shape,
             .lengths = {200, 200, 0, 700, 33},
             .window = window,
             .positions = {120, 199, 0, 3, 16}});
    }
  }
}

TEST_F(DecodeAttentionTest, LengthsAroundEveryEdge) {
  const KvShape shape{DType::kBFloat16, KvFormat::kBFloat16, 4, 1, 64};
  Check({.shape = shape, .lengths = EdgeLengths(600)});
  Check({.shape = shape, .lengths = EdgeLengths(300), .window = 41});
}

TEST_F(DecodeAttentionTest, LongRowsInSplitsOfEverySize) {
  const KvShape bf16{DType::kBFloat16, KvFormat::kBFloat16, 5, 1, 64};
  Check({.shape = bf16, .lengths = {1024, 1025, 6144, 6145, 12289}});
  const KvShape shape{DType::kFloat32, KvFormat::kFloat32, 2, 1, 16};
  Check({.shape = shape, .lengths = {1537, 6200, 64 * 24, 128 * 24 + 1}});
  Check({.shape = shape, .lengths = {13000}});
}

TEST_F(DecodeAttentionTest, LayersWithFewerHeadsShareTheMemory) {
  const KvShape shape{DType::kFloat32, KvFormat::kFloat32, 32, 1, 16};
  Check({.shape = shape, .lengths = std::vector<int64_t>(40, 400), .other_heads = 1});
}

TEST_F(DecodeAttentionTest, MoreRowsThanBlocks) {
  const KvShape shape{DType::kBFloat16, KvFormat::kBFloat16, 4, 2, 64};
  std::vector<int64_t> lengths(30);
  for (int64_t& length : lengths) length = RandomInt(1, 60);
  Check({.shape = shape, .lengths = lengths});
}

TEST_F(DecodeAttentionTest, WindowsAndSoftCap) {
  const KvShape shape{DType::kBFloat16, KvFormat::kBFloat16, 4, 2, 32};
  for (int64_t window : {1, 15, 16, 64, 100}) {
    Check({.shape = shape, .lengths = {1, 64, 99, 100, 101, 300}, .window = window});
    const AttentionWindow chunk(window, /*is_chunk=*/true);
    Check({.shape = shape, .lengths = {1, 64, 99, 100, 101, 300}, .window = chunk});
  }
  Check({.shape = shape, .lengths = {77, 130}, .soft_cap = 0.7f});
  Check({.shape = shape, .lengths = {77, 130}, .soft_cap = 0.7f, .window = 40});
}

TEST_F(DecodeAttentionTest, SinksOfAnySize) {
  const Floats sinks{-300, 300, 0.5f, -std::numeric_limits<float>::infinity()};
  for (DType dtype : kDTypes) {
    const KvShape shape{dtype, KvFormatOf(dtype), 4, 2, 32};
    Check({.shape = shape, .lengths = {1, 77, 3000}, .sinks = sinks});
    Check({.shape = shape, .lengths = {130}, .window = 40, .sinks = sinks});
  }
}

TEST_F(DecodeAttentionTest, BiasesByDistance) {
  for (const DType dtype : kDTypes) {
    const KvShape shape{dtype, KvFormatOf(dtype), 4, 2, 64};
    const Floats slopes{0.5f, 0.0625f, 0.0078125f, 0};
    Check({.shape = shape, .lengths = {1, 0, 300, 17}, .slopes = slopes});
    Check({.shape = shape, .lengths = {700}, .window = 41, .slopes = slopes});
    for (const int64_t reach : {0, 3, 130}) {
      DecodeCase c{.shape = shape, .lengths = {300, 300, 19}, .positions = {140, 299, 0}};
      c.reach = reach;
      c.distances = Random(DType::kFloat32, shape.q_heads * (2 * reach + 1), 4);
      Check(c);
      c.slopes = slopes;
      Check(c);
    }
    const KvShape wide{dtype, KvFormatOf(dtype), 12, 1, 256};
    Check({.shape = wide, .lengths = {40}, .slopes = Random(DType::kFloat32, 12, 1)});
  }
}

TEST_F(DecodeAttentionTest, ARowIsTheSameInEveryBatch) {
  const std::vector<KvShape> shapes{{DType::kBFloat16, KvFormat::kBFloat16, 4, 2, 64},
                                    {DType::kFloat16, KvFormat::kFloat16, 5, 1, 80},
                                    {DType::kBFloat16, KvFormat::kFloat8, 16, 1, 128},
                                    {DType::kBFloat16, KvFormat::kBFloat16, 2, 2, 256},
                                    {DType::kBFloat16, KvFormat::kBFloat16, 4, 2, 512},
                                    {DType::kFloat32, KvFormat::kFloat32, 4, 2, 64}};
  for (const KvShape& shape : shapes) {
    const size_t row_bytes = shape.q_heads * shape.head_dim * DTypeSize(shape.dtype);
    for (const AttentionWindow window :
         {AttentionWindow(), AttentionWindow(250), AttentionWindow(250, true)}) {
      if (window.size > 0 && shape.head_dim > kMaxHeadDim) continue;
      for (const int64_t length : {1, 17, 129, 333}) {
        const DecodeCase alone{.shape = shape, .lengths = {length}, .window = window};
        const auto want = Run(alone, {9}, PagedKv(shape, alone.lengths, {9}));
        const DecodeCase batch{
            .shape = shape, .lengths = {520, 1, length, 0, 70}, .window = window};
        const std::vector<uint32_t> seeds{1, 2, 9, 3, 4};
        const auto got = Run(batch, seeds, PagedKv(shape, batch.lengths, seeds));
        EXPECT_TRUE(std::equal(want.begin(), want.end(), got.begin() + 2 * row_bytes))
            << shape.head_dim << ", length " << length << ", window " << window.size;
      }
    }
  }
}

// Rows that verify guesses: they share a table, and see of it what a single row of their length
// sees.
TEST_F(DecodeAttentionTest, RowsOfADraftHaveTheBitsOfSingleRows) {
  for (const int64_t head_dim : {64, 128}) {
    const KvShape shape{DType::kBFloat16, KvFormat::kBFloat16, 8, 2, head_dim};
    const size_t row_bytes = shape.q_heads * shape.head_dim * 2;
    for (const int64_t last : {6, 18, 131, 258}) {
      const PagedKv paged(shape, {last, 40}, {5, 6});
      DecodeCase draft{.shape = shape, .lengths = {}};
      std::vector<uint32_t> seeds;
      for (int64_t length = std::max<int64_t>(last - 5, 1); length <= last; ++length) {
        draft.lengths.push_back(length);
        draft.tables.push_back(0);
        seeds.push_back(static_cast<uint32_t>(length));
      }
      draft.lengths.push_back(40);
      draft.tables.push_back(1);
      seeds.push_back(77);
      const auto got = Run(draft, seeds, paged);
      for (size_t i = 0; i < seeds.size(); ++i) {
        const DecodeCase single{
            .shape = shape, .lengths = {draft.lengths[i]}, .tables = {draft.tables[i]}};
        const auto want = Run(single, {seeds[i]}, paged);
        EXPECT_TRUE(std::equal(want.begin(), want.end(), got.begin() + i * row_bytes))
            << head_dim << ", length " << draft.lengths[i];
      }
    }
  }
}

TEST_F(DecodeAttentionTest, ChecksTheShape) {
  const KvPages kv{.kv_heads = 2, .head_dim = 12};
  EXPECT_ANY_THROW(DecodeAttention(kv, {.q_heads = 2}, {.m = 1, .max_splits = 1}, nullptr));
  int nothing = 0;
  const float slope = 0;
  const KvPages wide{.kv_heads = 2, .head_dim = 512, .k = &nothing, .v = &nothing};
  EXPECT_NO_THROW(DecodeAttention(wide, {.q_heads = 2}, {.m = 0, .max_splits = 1}, nullptr));
  for (const AttentionArgs& args : {AttentionArgs{.q_heads = 2, .window = 9},
                                    {.q_heads = 2, .soft_cap = 1},
                                    {.q_heads = 2, .sinks = &nothing},
                                    {.q_heads = 2, .bias = {.slopes = &slope}},
                                    {.q_heads = 3}}) {
    EXPECT_ANY_THROW(DecodeAttention(wide, args, {.m = 0, .max_splits = 1}, nullptr));
  }
}

}  // namespace
}  // namespace mlc_native::kernels::cuda
