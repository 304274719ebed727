// The kernels of latent attention: what they write, attention of single rows and of prompts, and
// the products of heads.
#include "kernels/cuda/latent.h"

#include "cuda/gemv_weights.h"
#include "cuda/paged_kv.h"
#include "kernels/cuda/experts.h"

namespace mlc_native::kernels::cuda {
namespace {

struct LatentSizes {
  DType dtype = DType::kBFloat16;
  KvFormat format = KvFormat::kBFloat16;
  int64_t heads = 16;
  int64_t latent = 32;
  int64_t rope = 16;

  int64_t dim() const { return latent + rope; }
  KvShape kv() const { return {dtype, format, heads, 1, dim()}; }
};

// In every 16-bit type, and in eight bits.
constexpr std::pair<DType, KvFormat> kTypes[] = {{DType::kBFloat16, KvFormat::kBFloat16},
                                                 {DType::kFloat16, KvFormat::kFloat16},
                                                 {DType::kBFloat16, KvFormat::kFloat8},
                                                 {DType::kFloat16, KvFormat::kFloat8}};

class LatentAttentionTest : public CudaKernelTest {
 protected:
  static constexpr float kScale = 0.2f;

  // Sequences of latents, each made of its seed alone.
  static PagedKv Sequences(const LatentSizes& s, const std::vector<int64_t>& lengths,
                           const std::vector<uint32_t>& seeds) {
    PagedKv paged(s.kv(), lengths, seeds);
    paged.kv.latent_dim = s.latent;
    paged.kv.v = nullptr;
    return paged;
  }

  static AttentionArgs Args(const LatentSizes& s, const PagedKv& paged, const void* q, void* out) {
    return {.dtype = s.dtype,
            .q = q,
            .ldq = s.heads * s.dim(),
            .out = out,
            .ldo = s.heads * s.latent,
            .q_heads = s.heads,
            .scale = kScale,
            .block_tables = paged.tables->data(),
            .ld_block_tables = paged.ld_tables};
  }

  // [rows, heads, latent] of rows from first_position on.
  static reference::Matrix Reference(const LatentSizes& s, const reference::Matrix& keys,
                                     const Floats& q, int64_t first_position) {
    reference::Matrix values(keys.size());
    for (size_t at = 0; at < keys.size(); at += s.dim()) {
      std::copy_n(keys.begin() + at + s.rope, s.latent, values.begin() + at);
    }
    const reference::Matrix all = reference::Attention(
        {.q_heads = s.heads, .kv_heads = 1, .head_dim = s.dim(), .scale = kScale}, ToDouble(q),
        keys, values, first_position);
    reference::Matrix want;
    for (size_t at = 0; at < all.size(); at += s.dim()) {
      want.insert(want.end(), all.begin() + at, all.begin() + at + s.latent);
    }
    return want;
  }

  static double Tolerance(const LatentSizes& s) { return 2 * Epsilon(s.dtype) + 1e-5; }

  // ---- Single rows ----

  Floats Queries(const LatentSizes& s, uint32_t seed) {
    random_.seed(seed);
    return Random(s.dtype, s.heads * s.dim(), 2);
  }

  // Rows of the lengths, whose queries are made of the seeds; tables: of each row; empty: its own.
  // chosen: the keys of each row, which its length counts; empty: the first ones.
  std::vector<uint8_t> Decode(const LatentSizes& s, const std::vector<int64_t>& row_lengths,
                              const std::vector<uint32_t>& seeds, const PagedKv& paged,
                              const std::vector<int32_t>& row_tables = {},
                              const std::vector<int32_t>& chosen = {}) {
    Floats q;
    for (const uint32_t seed : seeds) {
      const Floats row = Queries(s, seed);
      q.insert(q.end(), row.begin(), row.end());
    }
    const DeviceBytes device_q(Encode(s.dtype, q));
    const DeviceArray<int32_t> lengths(
        std::vector<int32_t>(row_lengths.begin(), row_lengths.end()));
    const DeviceArray<int32_t> tables(row_tables);
    int64_t max_splits = 0;
    for (const int64_t length : row_lengths) max_splits += MaxDecodeSplits(length);
    const DeviceBytes workspace(DecodeWorkspaceBytes(max_splits, s.heads, s.latent));
    const DeviceBytes splits(DecodeSplitsBytes(max_splits));
    const DecodeRows rows{.lengths = lengths.data(),
                          .tables = row_tables.empty() ? nullptr : tables.data(),
                          .m = std::ssize(row_lengths),
                          .max_splits = max_splits,
                          .workspace = workspace.data(),
                          .splits = splits.data()};
    ListSplits(rows, 0, nullptr);
    DeviceBytes out(seeds.size() * s.heads * s.latent * DTypeSize(s.dtype));
    AttentionArgs args = Args(s, paged, device_q.data(), out.data());
    const DeviceArray<int32_t> device_chosen(chosen);
    if (!chosen.empty()) {
      args.chosen = device_chosen.data();
      args.ld_chosen = std::ssize(chosen) / std::ssize(row_lengths);
    }
    DecodeAttention(paged.kv, args, rows, nullptr);
    return out.Download();
  }

  void CheckDecode(const LatentSizes& s, const std::vector<int64_t>& lengths) {
    SCOPED_TRACE(::testing::Message() << s.heads << " heads of " << s.latent << " + " << s.rope);
    std::vector<uint32_t> seeds(lengths.size());
    std::iota(seeds.begin(), seeds.end(), 1);
    const PagedKv paged = Sequences(s, lengths, seeds);
    const Floats got = cuda::Decode(s.dtype, Decode(s, lengths, seeds, paged));
    const int64_t width = s.heads * s.latent;
    for (size_t i = 0; i < lengths.size(); ++i) {
      const Floats row(got.begin() + i * width, got.begin() + (i + 1) * width);
      if (lengths[i] == 0) {
        for (const float x : row) ASSERT_TRUE(std::isnan(x));
        continue;
      }
      ExpectClose(row, Reference(s, paged.k[i], Queries(s, seeds[i]), lengths[i] - 1),
                  Tolerance(s));
    }
  }

  // ---- Prompts ----

  struct Slice {
    int64_t first_position;
    int64_t num_rows;
  };

  static Floats Prefill(const LatentSizes& s, const std::vector<Slice>& slices, const Floats& q,
                        const PagedKv& paged, int64_t tile_rows = kLatentTileRows) {
    std::vector<PrefillTile> tiles;
    int64_t row = 0;
    for (size_t i = 0; i < slices.size(); ++i) {
      for (int64_t at = 0; at < slices[i].num_rows; at += tile_rows) {
        tiles.push_back(
            {.row_begin = static_cast<int32_t>(row + at),
             .num_rows = static_cast<int32_t>(std::min(tile_rows, slices[i].num_rows - at)),
             .first_position = static_cast<int32_t>(slices[i].first_position + at),
             .table = static_cast<int32_t>(i)});
      }
      row += slices[i].num_rows;
    }
    const DeviceArray<PrefillTile> device_tiles(tiles);
    const DeviceBytes device_q(Encode(s.dtype, q));
    DeviceBytes out(row * s.heads * s.latent * DTypeSize(s.dtype));
    PrefillAttention(paged.kv, Args(s, paged, device_q.data(), out.data()), device_tiles.data(),
                     std::ssize(tiles), nullptr);
    return cuda::Decode(s.dtype, out.Download());
  }

  void CheckPrefill(const LatentSizes& s, const std::vector<Slice>& slices) {
    SCOPED_TRACE(::testing::Message() << s.heads << " heads of " << s.latent << " + " << s.rope);
    std::vector<int64_t> lengths;
    std::vector<uint32_t> seeds;
    int64_t num_rows = 0;
    for (const Slice& slice : slices) {
      lengths.push_back(slice.first_position + slice.num_rows);
      seeds.push_back(static_cast<uint32_t>(seeds.size()) + 1);
      num_rows += slice.num_rows;
    }
    const PagedKv paged = Sequences(s, lengths, seeds);
    const int64_t width = s.heads * s.dim();
    const Floats q = Random(s.dtype, num_rows * width, 2);
    const Floats got = Prefill(s, slices, q, paged);
    int64_t row = 0;
    for (size_t i = 0; i < slices.size(); ++i) {
      const int64_t end = row + slices[i].num_rows;
      const Floats of_slice(q.begin() + row * width, q.begin() + end * width);
      ExpectClose(
          Floats(got.begin() + row * s.heads * s.latent, got.begin() + end * s.heads * s.latent),
          Reference(s, paged.k[i], of_slice, slices[i].first_position), Tolerance(s));
      row = end;
    }
  }
};

TEST_F(LatentAttentionTest, SingleRowsInEveryType) {
  for (const auto& [dtype, format] : kTypes) {
    CheckDecode({dtype, format, 16, 32, 16}, {1, 0, 16, 17, 70});
    CheckDecode({dtype, format, 20, 24, 8}, {37});
  }
  CheckDecode({DType::kFloat32, KvFormat::kFloat32, 16, 32, 16}, {1, 0, 70});
}

// Far apart, and more of them than a split has. Only these are read.
TEST_F(LatentAttentionTest, SingleRowsOfChosenKeys) {
  std::vector<LatentSizes> all = {{DType::kFloat32, KvFormat::kFloat32, 5, 24, 8},
                                  {.heads = 40, .latent = 72, .rope = 8}};
  for (const auto& [dtype, format] : kTypes) all.push_back({dtype, format, 16, 32, 16});
  for (const LatentSizes& s : all) {
    const std::vector<int64_t> lengths = {700, 40};
    const std::vector<int64_t> counts = {601, 35};
    const PagedKv paged = Sequences(s, lengths, {1, 2});
    constexpr int64_t kStep = 610;  // from the keys of a row to those of the next
    std::vector<int32_t> chosen(2 * kStep, 1 << 26);
    std::vector<reference::Matrix> keys(2);
    for (int i = 0; i < 2; ++i) {
      std::vector<int32_t> positions(lengths[i]);
      std::iota(positions.begin(), positions.end(), 0);
      std::vector<int32_t> some;
      std::ranges::sample(positions, std::back_inserter(some), counts[i], random_);
      std::ranges::copy(some, chosen.begin() + i * kStep);
      for (const int32_t p : some) {
        const auto key = paged.k[i].begin() + p * s.dim();
        keys[i].insert(keys[i].end(), key, key + s.dim());
      }
    }
    const Floats got = cuda::Decode(s.dtype, Decode(s, counts, {1, 2}, paged, {}, chosen));
    const int64_t width = s.heads * s.latent;
    for (int i = 0; i < 2; ++i) {
      ExpectClose(Floats(got.begin() + i * width, got.begin() + (i + 1) * width),
                  Reference(s, keys[i], Queries(s, i + 1), counts[i] - 1), Tolerance(s));
    }
  }
}

// One and two tiles of rows, several pieces, and warps that have columns, a part of them or none.
TEST_F(LatentAttentionTest, SingleRowsOfEverySize) {
  for (const int64_t heads : {1, 3, 16, 17, 32, 40, 128}) {
    CheckDecode({.heads = heads, .latent = 72, .rope = 8}, {33});
    CheckDecode({DType::kFloat32, KvFormat::kFloat32, heads, 24, 8}, {33});
  }
  for (const auto& [dtype, format] : kTypes) CheckDecode({dtype, format, 16, 512, 64}, {67});
  CheckDecode({.heads = 4, .latent = 504, .rope = 64}, {40});
  CheckDecode({.heads = 20, .latent = 512, .rope = 56}, {40});
  CheckDecode({.heads = 4, .latent = 16, .rope = 0}, {40});
  CheckDecode({DType::kFloat32, KvFormat::kFloat32, 4, 512, 64}, {40});
}

TEST_F(LatentAttentionTest, SingleRowsAroundEveryEdge) {
  std::vector<int64_t> lengths;
  for (int64_t edge = 16; edge <= 160; edge += 16) {
    lengths.insert(lengths.end(), {edge - 1, edge, edge + 1});
  }
  CheckDecode({.heads = 4}, lengths);
  CheckDecode({.heads = 3}, {255, 256, 257, 383, 384, 385, 1024, 1025, 2300});
  CheckDecode({DType::kFloat32, KvFormat::kFloat32, 3, 16, 8}, {256, 257, 1025});
}

TEST_F(LatentAttentionTest, MoreRowsThanBlocks) {
  std::vector<int64_t> lengths(40);
  for (int64_t& length : lengths) length = RandomInt(1, 60);
  CheckDecode({.heads = 16}, lengths);
}

TEST_F(LatentAttentionTest, ARowIsTheSameInEveryBatch) {
  const LatentSizes shapes[] = {{.heads = 16},
                                {DType::kFloat16, KvFormat::kFloat16, 20, 40, 8},
                                {DType::kBFloat16, KvFormat::kFloat8, 16, 32, 16},
                                {DType::kFloat32, KvFormat::kFloat32, 12, 16, 8}};
  for (const LatentSizes& s : shapes) {
    const size_t row_bytes = s.heads * s.latent * DTypeSize(s.dtype);
    for (const int64_t length : {1, 17, 129, 333}) {
      const auto want = Decode(s, {length}, {9}, Sequences(s, {length}, {9}));
      const std::vector<int64_t> lengths{520, 1, length, 0, 70};
      const std::vector<uint32_t> seeds{1, 2, 9, 3, 4};
      const auto got = Decode(s, lengths, seeds, Sequences(s, lengths, seeds));
      EXPECT_TRUE(std::equal(want.begin(), want.end(), got.begin() + 2 * row_bytes))
          << s.heads << ", length " << length;
    }
  }
}

// Rows that verify guesses share a table.
TEST_F(LatentAttentionTest, RowsOfADraftHaveTheBitsOfSingleRows) {
  const LatentSizes s{.heads = 16};
  const size_t row_bytes = s.heads * s.latent * DTypeSize(s.dtype);
  for (const int64_t last : {6, 18, 131, 258}) {
    const PagedKv paged = Sequences(s, {last, 40}, {5, 6});
    std::vector<int64_t> lengths{40};
    std::vector<uint32_t> seeds{77};
    std::vector<int32_t> tables{1};
    for (int64_t length = last - 5; length <= last; ++length) {
      lengths.push_back(length);
      seeds.push_back(static_cast<uint32_t>(length));
      tables.push_back(0);
    }
    const auto got = Decode(s, lengths, seeds, paged, tables);
    for (size_t i = 0; i < seeds.size(); ++i) {
      const auto want = Decode(s, {lengths[i]}, {seeds[i]}, paged, {tables[i]});
      EXPECT_TRUE(std::equal(want.begin(), want.end(), got.begin() + i * row_bytes)) << lengths[i];
    }
  }
}

TEST_F(LatentAttentionTest, PromptsInEveryType) {
  for (const auto& [dtype, format] : kTypes) {
    CheckPrefill({dtype, format, 16, 32, 16}, {{0, 40}, {37, 3}, {64, 1}});
    CheckPrefill({dtype, format, 5, 24, 8}, {{130, 20}});
  }
}

// Rows of a token in one block, in two, and in several.
TEST_F(LatentAttentionTest, PromptsOfEverySize) {
  for (const int64_t heads : {1, 3, 16, 20, 40}) {
    CheckPrefill({.heads = heads, .latent = 72, .rope = 8}, {{5, 19}, {0, 1}});
  }
  CheckPrefill({.heads = 128, .latent = 16, .rope = 8}, {{60, 3}});
  CheckPrefill({.heads = 16, .latent = 512, .rope = 64}, {{30, 5}});
}

TEST_F(LatentAttentionTest, ARowOfAPromptIsTheSameInEveryChunk) {
  for (const LatentSizes& s :
       {LatentSizes{.heads = 3}, {.heads = 20}, {DType::kFloat16, KvFormat::kFloat8, 6, 24, 8}}) {
    constexpr int64_t kLength = 90;
    const PagedKv paged = Sequences(s, {kLength}, {3});
    const int64_t width = s.heads * s.dim();
    const Floats q = Random(s.dtype, kLength * width, 2);
    const Floats whole = Prefill(s, {{0, kLength}}, q, paged);
    for (const int64_t cut : {1, 31, 64, 77}) {
      const Floats got =
          Prefill(s, {{cut, kLength - cut}}, Floats(q.begin() + cut * width, q.end()), paged);
      EXPECT_EQ(got, Floats(whole.begin() + cut * s.heads * s.latent, whole.end())) << cut;
    }
    EXPECT_EQ(Prefill(s, {{0, kLength}}, q, paged, 7), whole);
  }
}

TEST_F(LatentAttentionTest, ChecksTheShape) {
  uint8_t page[1];
  const KvPages good{.kv_heads = 1, .head_dim = 48, .latent_dim = 32, .k = page};
  CheckLatents(good);
  KvPages with_values = good;
  with_values.v = page;
  KvPages two_heads = good;
  two_heads.kv_heads = 2;
  KvPages odd = good;
  odd.latent_dim = 28;
  KvPages large = good;
  large.head_dim = 600;
  large.latent_dim = 544;
  KvPages much_rope = good;
  much_rope.head_dim = 112;
  for (const KvPages& kv : {with_values, two_heads, odd, large, much_rope}) {
    EXPECT_ANY_THROW(CheckLatents(kv));
    EXPECT_ANY_THROW(PrefillAttention(kv, {.q_heads = 2}, nullptr, 1, nullptr));
  }
  for (const AttentionArgs& args : {AttentionArgs{.q_heads = 2, .soft_cap = 1},
                                    {.q_heads = 2, .window = 9},
                                    {.q_heads = 2, .sinks = page},
                                    {.dtype = DType::kFloat32, .q_heads = 2}}) {
    EXPECT_ANY_THROW(PrefillAttention(good, args, nullptr, 1, nullptr));
  }
}

// ---- What is written ----

class WriteLatentsTest : public CudaKernelTest {
 protected:
  void Check(const LatentSizes& s, int64_t rotary_dim, bool interleaved, float amplitude = 1,
             bool scales_queries = false) {
    SCOPED_TRACE(::testing::Message() << s.latent << " + " << s.rope << ", " << rotary_dim);
    constexpr int64_t kRows = 4;
    const std::vector<int32_t> positions{0, 17, 3, 18};
    const std::vector<int64_t> slots{47, 1, -1, 16};  // row 2 is an unused one
    const int64_t step = s.rope + 24;                 // of queries; 24 elements are without rope
    const int64_t ld_queries = s.heads * step + 8;
    const int64_t ld_latents = 16 + s.dim() + 8;
    const int64_t ldq = s.heads * s.dim() + 16;
    const Floats queries = Random(s.dtype, kRows * ld_queries);
    const Floats latents = Random(s.dtype, kRows * ld_latents, amplitude);
    const Floats norm = Random(s.dtype, s.latent);
    std::vector<double> frequencies(rotary_dim / 2);
    for (size_t i = 0; i < frequencies.size(); ++i) frequencies[i] = 1.0 / (1.0 + 3.0 * i);
    Floats cos, sin;
    for (int p = 0; p < 19; ++p) {
      for (const double f : frequencies) {
        cos.push_back(static_cast<float>(std::cos(p * f)));
        sin.push_back(static_cast<float>(std::sin(p * f)));
      }
    }
    KvPages kv{.format = s.format,
               .kv_heads = 1,
               .head_dim = s.dim(),
               .latent_dim = s.latent,
               .num_pages = 3};
    DeviceBytes pages(kv.num_pages * kv.head_bytes());
    kv.k = pages.data();
    const DeviceBytes device_queries(Encode(s.dtype, queries)),
        device_latents(Encode(s.dtype, latents)), device_norm(Encode(s.dtype, norm));
    // What the product with the heads' matrices has left, NaNs elsewhere.
    Floats before(kRows * ldq, NAN);
    for (int64_t i = 0; scales_queries && i < std::ssize(before); ++i) {
      const int64_t column = i % ldq;
      if (column < s.heads * s.dim() && column % s.dim() >= s.rope) before[i] = 0.25f;
    }
    DeviceBytes q(Encode(s.dtype, before));
    const DeviceArray<int32_t> device_positions(positions);
    const DeviceArray<int64_t> device_slots(slots);
    Floats scales(19);
    for (size_t p = 0; p < scales.size(); ++p) scales[p] = 1.0f + 0.1f * static_cast<float>(p);
    const DeviceArray<float> device_cos(cos), device_sin(sin), device_scales(scales);
    const auto scale_at = [&](int64_t row) {
      return scales_queries ? scales[positions[row]] : 1.0f;
    };
    const auto behind = [&](const DeviceBytes& bytes, int64_t elements) -> const void* {
      return static_cast<const uint8_t*>(bytes.data()) + elements * DTypeSize(s.dtype);
    };
    WriteLatents(kv,
                 {.dtype = s.dtype,
                  .queries = behind(device_queries, 24),
                  .ld_queries = ld_queries,
                  .query_step = step,
                  .latents = behind(device_latents, 16),
                  .ld_latents = ld_latents,
                  .norm = device_norm.data(),
                  .weight_offset = 1.0f,
                  .eps = 1e-5f,
                  .q = q.data(),
                  .ldq = ldq,
                  .q_heads = s.heads,
                  .m = kRows,
                  .rotary_dim = rotary_dim,
                  .positions = device_positions.data(),
                  .slots = device_slots.data(),
                  .cos = device_cos.data(),
                  .sin = device_sin.data(),
                  .interleaved = interleaved,
                  .q_scales = scales_queries ? device_scales.data() : nullptr},
                 nullptr);

    const Floats got = Decode(s.dtype, q.Download());
    const std::vector<uint8_t> bytes = pages.Download();
    const double tolerance = 2 * Epsilon(s.dtype) + 1e-5;
    const auto rotated = [&](Floats::const_iterator from, int32_t position) {
      return reference::Rope(reference::Matrix(from, from + s.rope), s.rope, {position},
                             frequencies, interleaved);
    };
    for (int64_t row = 0; row < kRows; ++row) {
      for (int64_t i = 0; i < ldq; ++i) {  // nothing else is written
        const int64_t column = i % s.dim();
        const bool is_written = slots[row] >= 0 && i < s.heads * s.dim() && column < s.rope;
        const float x = got[row * ldq + i];
        if (!is_written && !std::isnan(before[row * ldq + i])) {
          ASSERT_NEAR(x, 0.25f * (slots[row] >= 0 ? scale_at(row) : 1.0f), 2 * tolerance) << i;
        } else {
          ASSERT_EQ(std::isnan(x), !is_written) << row << ' ' << i;
        }
      }
      if (slots[row] < 0) continue;
      for (int64_t h = 0; h < s.heads; ++h) {
        const auto head = got.begin() + row * ldq + h * s.dim();
        reference::Matrix want =
            rotated(queries.begin() + row * ld_queries + 24 + h * step, positions[row]);
        for (double& x : want) x *= scale_at(row);
        ExpectClose(Floats(head, head + s.rope), want, 2 * tolerance);
      }
      const auto latent = latents.begin() + row * ld_latents + 16;
      reference::Matrix want = rotated(latent + s.latent, positions[row]);
      const reference::Matrix normalized = reference::Normalize(
          reference::Matrix(latent, latent + s.latent), ToDouble(norm), 1.0, 1e-5);
      want.insert(want.end(), normalized.begin(), normalized.end());
      const uint8_t* const page = bytes.data() + slots[row] / kKvPageSize * kv.head_bytes();
      const int64_t token = slots[row] % kKvPageSize;
      const uint8_t* const key = page + token * s.dim() * KvElementBytes(s.format);
      if (s.format != KvFormat::kFloat8) {
        Floats stored;
        for (int64_t i = 0; i < s.dim(); ++i) stored.push_back(LoadElement(s.dtype, key, i));
        ExpectClose(stored, want, tolerance * amplitude);
        continue;
      }
      float scale;
      std::memcpy(&scale, page + kKvPageSize * s.dim() + token * 4, sizeof scale);
      double largest = 0;
      for (const double x : want) largest = std::max(largest, std::abs(x));
      ASSERT_NEAR(scale * 448, largest, 0.02 * largest);
      for (int64_t i = 0; i < s.dim(); ++i) {
        const double error = std::max(std::abs(want[i]) / 16, largest / 448 / 1024);
        ASSERT_NEAR(scale * Float8Value(key[i]), want[i], 1.02 * error + 1e-2 * largest) << i;
      }
    }
    // Of the pages, three keys.
    int64_t poison = 0;
    for (size_t i = 0; i < bytes.size(); ++i) poison += bytes[i] == 0xff ? 1 : 0;
    const int64_t written = 3 * (s.dim() * KvElementBytes(s.format) + KvScaleBytes(s.format) / 16);
    EXPECT_GE(poison, std::ssize(bytes) - written);
  }
};

TEST_F(WriteLatentsTest, MatchesTheReference) {
  for (const DType dtype : kDTypes) {
    for (const bool interleaved : {false, true}) {
      Check({dtype, KvFormatOf(dtype), 3, 32, 16}, 16, interleaved);
      Check({dtype, KvFormatOf(dtype), 16, 512, 64}, 64, interleaved);
      Check({dtype, KvFormatOf(dtype), 5, 504, 40}, 20, interleaved);
    }
    Check({dtype, KvFormatOf(dtype), 2, 24, 8}, 0, false);
    Check({dtype, KvFormatOf(dtype), 3, 512, 64}, 64, true, 1, true);
    Check({dtype, KvFormatOf(dtype), 2, 24, 8}, 8, false, 1, true);
  }
}

TEST_F(WriteLatentsTest, AScaleKeepsLargeAndSmallNumbers) {
  for (const float amplitude : {1e-4f, 1.0f, 1000.0f}) {
    Check({DType::kFloat16, KvFormat::kFloat8, 3, 32, 16}, 16, true, amplitude);
    Check({DType::kBFloat16, KvFormat::kFloat8, 16, 512, 64}, 64, true, amplitude);
  }
}

// ---- The products of heads ----

class HeadProductsTest : public GemvWeightsTest {
 protected:
  void Check(DType dtype, WeightFormat format, int64_t m) {
    SCOPED_TRACE(::testing::Message() << static_cast<int>(format) << ", " << m);
    constexpr int64_t kHeads = 3;
    constexpr int64_t kN = 40;
    constexpr int64_t kK = 136;
    constexpr int64_t kXStep = kK + 8;
    constexpr int64_t kYStep = kN + 16;
    std::vector<uint8_t> all;
    std::vector<std::vector<uint8_t>> own;
    for (int64_t h = 0; h < kHeads; ++h) {
      own.push_back(RandomWeights(format, kN, kK).bytes);
      all.insert(all.end(), own.back().begin(), own.back().end());
    }
    const Floats x = Random(dtype, m * kHeads * kXStep);
    const DeviceBytes weights(all), device_x(Encode(dtype, x));
    const int64_t size = static_cast<int64_t>(DTypeSize(dtype));
    DeviceBytes got(m * kHeads * kYStep * size), want(m * kHeads * kYStep * size);
    GemvArgs head{.format = format,
                  .dtype = dtype,
                  .weight = weights.data(),
                  .n = kN,
                  .k = kK,
                  .x = device_x.data(),
                  .ldx = kHeads * kXStep,
                  .m = m,
                  .y = got.data(),
                  .ldy = kHeads * kYStep};
    GroupedGemv({.first = head,
                 .weight_stride = std::ssize(all) / kHeads,
                 .num_groups = kHeads,
                 .x_step = kXStep,
                 .y_step = kYStep},
                nullptr);
    for (int64_t h = 0; h < kHeads; ++h) {
      const DeviceBytes weight(own[h]);
      head.weight = weight.data();
      head.x = static_cast<const uint8_t*>(device_x.data()) + h * kXStep * size;
      head.y = static_cast<uint8_t*>(want.data()) + h * kYStep * size;
      Gemm(head, nullptr);
    }
    EXPECT_EQ(got.Download(), want.Download());
  }
};

TEST_F(HeadProductsTest, HaveTheBitsOfOneProductForEachHead) {
  for (const DType dtype : {DType::kBFloat16, DType::kFloat16}) {
    for (const WeightFormat format : FormatsWith(dtype)) {
      for (const int64_t m : {1, 8, 37, 70}) Check(dtype, format, m);
    }
  }
  for (const int64_t m : {1, 9}) Check(DType::kFloat32, WeightFormat::kFloat32, m);
}

}  // namespace
}  // namespace mlc_native::kernels::cuda
