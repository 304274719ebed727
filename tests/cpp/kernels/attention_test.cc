#include <algorithm>
#include <numeric>

#include "kernels/test_util.h"

namespace mlc_native::kernels {
namespace {

struct Sequence {
  int64_t cached = 0;  // positions before the rows of this call
  int64_t rows = 0;
  Floats q, k, v;  // q of the rows; k and v of all positions, rounded to the KV dtype
  std::vector<int32_t> table;
};

struct Shape {
  DType dtype = DType::kFloat32;
  int64_t q_heads = 4;
  int64_t kv_heads = 2;
  int64_t head_dim = 32;
  float soft_cap = 0;
  int64_t window = 0;
};

class AttentionTest : public KernelTest {
 protected:
  // Pages in shuffled order, every slot that no position fills is NaN.
  struct Cache {
    AlignedBuffer k_pages, v_pages;
    KvLayer layer;
  };

  static int64_t PagesOf(const Sequence& s) {
    return (s.cached + s.rows + kPageSize - 1) / kPageSize;
  }

  Sequence MakeSequence(const Shape& shape, int64_t cached, int64_t rows) {
    Sequence s;
    s.cached = cached;
    s.rows = rows;
    const int64_t kv = (cached + rows) * shape.kv_heads * shape.head_dim;
    s.q = Random(rows * shape.q_heads * shape.head_dim, 2.0f);
    s.k = Random(kv, 2.0f);
    s.v = Random(kv);
    for (Floats* values : {&s.k, &s.v}) {
      for (float& x : *values) x = RoundTo(shape.dtype, x);
    }
    return s;
  }

  Cache MakeCache(const Shape& shape, std::vector<Sequence>& sequences) {
    int64_t num_pages = 3;
    for (const Sequence& s : sequences) num_pages += PagesOf(s);
    std::vector<int32_t> free(num_pages);
    std::iota(free.begin(), free.end(), 0);
    std::shuffle(free.begin(), free.end(), random_);
    Cache cache;
    const size_t bytes = KvLayerBytes(shape.dtype, num_pages, shape.kv_heads, shape.head_dim);
    cache.k_pages = AlignedBuffer(bytes);
    cache.v_pages = AlignedBuffer(bytes);
    std::memset(cache.k_pages.data(), 0xff, bytes);
    std::memset(cache.v_pages.data(), 0xff, bytes);
    cache.layer = {.dtype = shape.dtype,
                   .kv_heads = shape.kv_heads,
                   .head_dim = shape.head_dim,
                   .num_pages = num_pages,
                   .k_pages = cache.k_pages.data(),
                   .v_pages = cache.v_pages.data()};
    for (Sequence& s : sequences) {
      s.table.assign(free.end() - PagesOf(s), free.end());
      free.resize(free.size() - PagesOf(s));
      Write(cache.layer, s);
    }
    return cache;
  }

  void Write(const KvLayer& layer, const Sequence& s) {
    std::vector<int64_t> slots;
    for (int64_t p = 0; p < s.cached + s.rows; ++p) {
      slots.push_back(s.table[p / kPageSize] * kPageSize + p % kPageSize);
    }
    const int64_t width = layer.kv_heads * layer.head_dim;
    WriteKv(Threads(2), layer,
            {.k = s.k.data(),
             .ldk = width,
             .v = s.v.data(),
             .ldv = width,
             .m = static_cast<int64_t>(slots.size()),
             .slots = slots.data()});
  }

  // The rows of all sequences in one call -> out, dense.
  Floats Run(const Cpu& cpu, const Shape& shape, const KvLayer& layer,
             const std::vector<Sequence>& sequences) {
    Floats q;
    std::vector<AttentionSequence> batch;
    const int64_t width = shape.q_heads * shape.head_dim;
    for (const Sequence& s : sequences) {
      batch.push_back({.row_begin = static_cast<int64_t>(q.size()) / width,
                       .num_rows = s.rows,
                       .first_position = s.cached,
                       .block_table = s.table.data()});
      q.insert(q.end(), s.q.begin(), s.q.end());
    }
    const int64_t m = static_cast<int64_t>(q.size()) / width;
    Poisoned out(m, width, 5);
    const AlignedBuffer workspace(AttentionWorkspaceBytes(cpu.pool->num_threads(), shape.q_heads,
                                                          shape.kv_heads, shape.head_dim));
    std::memset(workspace.data(), 0xff, workspace.size());
    PagedAttention(cpu, layer,
                   {.q = q.data(),
                    .ldq = width,
                    .out = out.data.data(),
                    .ldo = out.ld,
                    .q_heads = shape.q_heads,
                    .scale = Scale(shape),
                    .soft_cap = shape.soft_cap,
                    .window = shape.window,
                    .sequences = batch.data(),
                    .num_sequences = static_cast<int64_t>(batch.size()),
                    .workspace = workspace.data()});
    out.ExpectPaddingUntouched();
    return out.Dense();
  }

  static float Scale(const Shape& shape) {
    return 1.0f / std::sqrt(static_cast<float>(shape.head_dim));
  }

  reference::Matrix Truth(const Shape& shape, const Sequence& s) {
    return reference::Attention({.q_heads = shape.q_heads,
                                 .kv_heads = shape.kv_heads,
                                 .head_dim = shape.head_dim,
                                 .scale = Scale(shape),
                                 .soft_cap = shape.soft_cap,
                                 .window = shape.window},
                                ToDouble(s.q), ToDouble(s.k), ToDouble(s.v), s.cached);
  }

  // Rows [from, to) of a sequence as a call of their own.
  static Sequence Slice(const Shape& shape, const Sequence& s, int64_t from, int64_t to) {
    Sequence part = s;
    const int64_t width = shape.q_heads * shape.head_dim;
    part.q.assign(s.q.begin() + from * width, s.q.begin() + to * width);
    part.cached = s.cached + from;
    part.rows = to - from;
    return part;
  }
};

TEST_P(AttentionTest, MatchesReference) {
  const std::vector<std::pair<int64_t, int64_t>> heads = {{4, 2}, {8, 1}, {3, 3}, {14, 2}, {32, 1}};
  for (int trial = 0; trial < 30; ++trial) {
    Shape shape;
    shape.dtype = static_cast<DType>(trial % 3);
    std::tie(shape.q_heads, shape.kv_heads) = heads[trial % heads.size()];
    shape.head_dim = std::vector<int64_t>{32, 64, 6, 20, 128, 80}[trial % 6];
    if (trial % 4 == 1) shape.soft_cap = 2.0f;
    if (trial % 3 == 1) shape.window = RandomInt(1, 150);
    std::vector<Sequence> sequences;
    for (int i = 0; i < 3; ++i) {
      const int64_t cached = i == 0 ? 0 : RandomInt(0, 300);
      sequences.push_back(MakeSequence(shape, cached, i == 2 ? 1 : RandomInt(1, 60)));
    }
    SCOPED_TRACE(testing::Message() << "trial " << trial);
    const Cache cache = MakeCache(shape, sequences);
    const Floats got = Run(Threads(1 + trial % 3), shape, cache.layer, sequences);
    reference::Matrix want;
    for (const Sequence& s : sequences) {
      const reference::Matrix part = Truth(shape, s);
      want.insert(want.end(), part.begin(), part.end());
    }
    ExpectClose(got, want, 3e-6);
  }
}

TEST_P(AttentionTest, ChunksBatchesAndThreadsDoNotChangeABit) {
  for (int trial = 0; trial < 8; ++trial) {
    Shape shape;
    shape.dtype = static_cast<DType>(trial % 3);
    shape.q_heads = trial % 2 == 0 ? 4 : 6;
    shape.soft_cap = trial % 4 == 2 ? 5.0f : 0.0f;
    shape.window = trial % 3 == 2 ? RandomInt(1, 170) : 0;
    const int64_t width = shape.q_heads * shape.head_dim;
    std::vector<Sequence> sequences = {MakeSequence(shape, 37, 200), MakeSequence(shape, 150, 1),
                                       MakeSequence(shape, 0, 33)};
    const Cache cache = MakeCache(shape, sequences);
    const Floats all = Run(Threads(1), shape, cache.layer, sequences);
    for (int threads : {2, 3}) {
      ASSERT_EQ(Run(Threads(threads), shape, cache.layer, sequences), all);
    }
    for (int64_t from = 0; from < sequences[0].rows;) {
      const int64_t to = std::min(sequences[0].rows, from + RandomInt(1, 40));
      const std::vector<Sequence> alone = {Slice(shape, sequences[0], from, to)};
      const Floats part = Run(Threads(1 + static_cast<int>(from) % 3), shape, cache.layer, alone);
      ASSERT_TRUE(SameBits(part.data(), &all[from * width], (to - from) * width))
          << "trial " << trial << " rows " << from << " to " << to;
      from = to;
    }
    // In another order, the single row first.
    const std::vector<Sequence> turned = {sequences[1], sequences[2], sequences[0]};
    const Floats other = Run(Threads(2), shape, cache.layer, turned);
    ASSERT_TRUE(SameBits(other.data(), &all[200 * width], 34 * width));
    ASSERT_TRUE(SameBits(&other[34 * width], all.data(), 200 * width));
  }
}

TEST_P(AttentionTest, ValuesOfLaterPositionsDoNotReachEarlierRows) {
  Shape shape;
  std::vector<Sequence> sequences = {MakeSequence(shape, 5, 40)};
  Cache cache = MakeCache(shape, sequences);
  const Floats before = Run(Threads(1), shape, cache.layer, sequences);
  const int64_t kv_width = shape.kv_heads * shape.head_dim;
  const int64_t changed = 30;  // position, row 25
  for (int64_t i = changed * kv_width; i < (changed + 1) * kv_width; ++i) {
    sequences[0].k[i] = sequences[0].v[i] = std::numeric_limits<float>::infinity();
  }
  Write(cache.layer, sequences[0]);
  const Floats after = Run(Threads(1), shape, cache.layer, sequences);
  const int64_t width = shape.q_heads * shape.head_dim;
  EXPECT_TRUE(SameBits(after.data(), before.data(), 25 * width));
  EXPECT_FALSE(std::isfinite(after[25 * width]));
}

TEST_P(AttentionTest, PagesOutsideTheWindowAreNotRead) {
  Shape shape;
  shape.window = 20;
  std::vector<Sequence> sequences = {MakeSequence(shape, 400, 3)};
  const Cache cache = MakeCache(shape, sequences);
  const Floats before = Run(Threads(1), shape, cache.layer, sequences);
  // Positions 381 .. 402 are attended: pages 23 .. 25.
  for (int64_t page = 0; page < 23; ++page) sequences[0].table[page] = -1000000;
  EXPECT_EQ(Run(Threads(1), shape, cache.layer, sequences), before);
}

TEST_P(AttentionTest, LargeScoresDoNotOverflow) {
  Shape shape;
  std::vector<Sequence> sequences = {MakeSequence(shape, 100, 2)};
  for (float& x : sequences[0].q) x *= 300;
  const Cache cache = MakeCache(shape, sequences);
  ExpectClose(Run(Threads(1), shape, cache.layer, sequences), Truth(shape, sequences[0]), 3e-4);
}

TEST_P(AttentionTest, WriteKvTouchesOnlyItsSlotsAndCopyPageCopiesAll) {
  for (DType dtype : {DType::kFloat32, DType::kBFloat16, DType::kFloat16}) {
    const int64_t heads = 3, dim = 20, pages = 4, row = heads * dim;
    const size_t bytes = KvLayerBytes(dtype, pages, heads, dim);
    const AlignedBuffer k_pages(bytes), v_pages(bytes);
    std::memset(k_pages.data(), 0x5a, bytes);
    std::memset(v_pages.data(), 0x5a, bytes);
    const float old = LoadElement(dtype, k_pages.data(), 0);
    const KvLayer layer{.dtype = dtype,
                        .kv_heads = heads,
                        .head_dim = dim,
                        .num_pages = pages,
                        .k_pages = k_pages.data(),
                        .v_pages = v_pages.data()};
    const std::vector<int64_t> slots = {1 * kPageSize + 15, 3 * kPageSize + 0};
    Floats k = Random(2 * row), v = Random(2 * row);
    k[5] = std::numeric_limits<float>::quiet_NaN();
    WriteKv(Threads(1), layer,
            {.k = k.data(), .ldk = row, .v = v.data(), .ldv = row, .m = 2, .slots = slots.data()});
    CopyPage(layer, 3, 0);
    for (int64_t i = 0; i < pages * heads * dim * kPageSize; ++i) {
      const int64_t page = i / (row * kPageSize), head = i / (dim * kPageSize) % heads;
      const int64_t k_d = i / kPageSize % dim, k_offset = i % kPageSize;
      const int64_t v_d = i % dim, v_offset = i / dim % kPageSize;
      const auto want = [&](const Floats& values, int64_t offset, int64_t d) {
        if (page == 1 && offset == 15) return RoundTo(dtype, values[head * dim + d]);
        if ((page == 3 || page == 0) && offset == 0) {
          return RoundTo(dtype, values[row + head * dim + d]);
        }
        return old;
      };
      const float k_got = LoadElement(dtype, layer.k_pages, i);
      const float k_want = want(k, k_offset, k_d);
      ASSERT_TRUE(k_got == k_want || (std::isnan(k_got) && std::isnan(k_want))) << i;
      ASSERT_EQ(LoadElement(dtype, layer.v_pages, i), want(v, v_offset, v_d)) << i;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Isa, AttentionTest, testing::ValuesIn(IsaNames()),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace mlc_native::kernels
