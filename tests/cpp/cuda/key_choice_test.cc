// The kernels of a choice of keys: what they write of the index, and which keys they choose.
#include "kernels/cuda/key_choice.h"

#include "cuda/paged_kv.h"

namespace mlc_native::kernels::cuda {
namespace {

class KeyChoiceTest : public CudaKernelTest {
 protected:
  struct Sizes {
    DType dtype = DType::kBFloat16;
    int64_t heads = 8;
    int64_t dim = 32;
    int64_t num_chosen = 20;
  };
  static KvFormat FormatOf(DType dtype) {
    return dtype == DType::kFloat32   ? KvFormat::kFloat32
           : dtype == DType::kFloat16 ? KvFormat::kFloat16
                                      : KvFormat::kBFloat16;
  }

  // Rows of sequences of their own; the choice, and how many keys it has.
  struct Choice {
    std::vector<int32_t> chosen;
    std::vector<int32_t> counts;
  };
  static PagedKv Keys(const Sizes& s, const std::vector<int64_t>& lengths) {
    std::vector<uint32_t> seeds(lengths.size());
    std::iota(seeds.begin(), seeds.end(), 1);
    return {{s.dtype, FormatOf(s.dtype), s.heads, 1, s.dim}, lengths, seeds};
  }
  static Choice Choose(const Sizes& s, const PagedKv& paged, const std::vector<int64_t>& lengths,
                       const Floats& q, const Floats& weights,
                       const std::vector<int32_t>& tables = {}) {
    const int64_t m = std::ssize(lengths);
    const int64_t longest = std::ranges::max(lengths);
    const DeviceBytes device_q(Encode(s.dtype, q));
    const DeviceArray<float> device_weights(weights);
    const DeviceArray<int32_t> device_lengths(
        std::vector<int32_t>(lengths.begin(), lengths.end()));
    const DeviceArray<int32_t> device_tables(tables);
    DeviceArray<float> scores(std::min(m, kChosenAtOnce) * ScoreRow(longest));
    DeviceArray<int32_t> chosen(m * s.num_chosen);
    DeviceArray<int32_t> counts(m);
    const KvPages index = IndexPages(s.dtype, s.dim, paged.kv.num_pages, paged.kv.k);
    ChooseKeys(index,
               {.dtype = s.dtype,
                .queries = device_q.data(),
                .heads = s.heads,
                .weights = device_weights.data(),
                .lengths = device_lengths.data(),
                .tables = tables.empty() ? nullptr : device_tables.data(),
                .block_tables = paged.tables->data(),
                .ld_block_tables = paged.ld_tables,
                .m = m,
                .max_length = longest,
                .num_chosen = s.num_chosen,
                .scores = scores.data(),
                .chosen = chosen.data(),
                .counts = counts.data()},
               nullptr);
    return {chosen.Download(), counts.Download()};
  }

  static double Score(const Sizes& s, const double* key, const float* q, const float* weights) {
    double score = 0;
    for (int64_t head = 0; head < s.heads; ++head) {
      double product = 0;
      for (int64_t d = 0; d < s.dim; ++d) product += key[d] * q[head * s.dim + d];
      score += weights[head] * std::max(product, 0.0);
    }
    return score;
  }

  void Check(const Sizes& s, const std::vector<int64_t>& lengths) {
    SCOPED_TRACE(::testing::Message() << s.heads << " heads of " << s.dim << ", type "
                                      << static_cast<int>(s.dtype));
    const PagedKv paged = Keys(s, lengths);
    const int64_t m = std::ssize(lengths);
    const Floats q = Random(s.dtype, m * s.heads * s.dim);
    const Floats weights = Random(DType::kFloat32, m * s.heads);
    const Choice choice = Choose(s, paged, lengths, q, weights);
    for (int64_t row = 0; row < m; ++row) {
      const int32_t* const begin = choice.chosen.data() + row * s.num_chosen;
      const std::vector<int32_t> chosen(begin, begin + choice.counts[row]);
      ASSERT_EQ(choice.counts[row], std::min(lengths[row], s.num_chosen));
      ASSERT_TRUE(std::ranges::is_sorted(chosen, std::ranges::less_equal()));
      if (chosen.empty()) continue;
      ASSERT_TRUE(chosen.front() >= 0 && chosen.back() < lengths[row]);
      double least = INFINITY;
      double most = -INFINITY;
      for (int64_t p = 0; p < lengths[row]; ++p) {
        const double score = Score(s, &paged.k[row][p * s.dim], &q[row * s.heads * s.dim],
                                   &weights[row * s.heads]);
        double& bound = std::ranges::binary_search(chosen, p) ? least : most;
        bound = &bound == &least ? std::min(least, score) : std::max(most, score);
      }
      // Products of these types are exact, and sums are floats.
      ASSERT_GE(least, most - 1e-4) << "row " << row << " of " << lengths[row];
    }
  }
};

TEST_F(KeyChoiceTest, ChoosesTheBest) {
  for (const DType dtype : kDTypes) {
    Check({dtype, 8, 32, 20}, {0, 1, 19, 20, 21, 63, 64, 65, 300});
    Check({dtype, 64, 128, 100}, {131, 1000});
    Check({dtype, 9, 24, 3}, {70});
    Check({dtype, 17, 256, 1}, {50, 1});
    Check({dtype, 1, 8, 260}, {700});
  }
}

TEST_F(KeyChoiceTest, MoreRowsThanAreScoredAtOnce) {
  const Sizes s{.num_chosen = 7};
  std::vector<int64_t> lengths(kChosenAtOnce + 9);
  for (int64_t& length : lengths) length = RandomInt(0, 60);
  Check(s, lengths);
}

// Alone, with others, and with a table that several rows share.
TEST_F(KeyChoiceTest, ARowsChoiceDoesNotDependOnOthers) {
  for (const DType dtype : kDTypes) {
    const Sizes s{dtype, 20, 40, 30};
    const std::vector<int64_t> lengths = {333, 90, 500};
    const PagedKv paged = Keys(s, lengths);
    const Floats q = Random(dtype, 3 * s.heads * s.dim);
    const Floats weights = Random(DType::kFloat32, 3 * s.heads);
    const Choice all = Choose(s, paged, lengths, q, weights);
    const int64_t width = s.heads * s.dim;
    for (int32_t row = 0; row < 3; ++row) {
      const Choice alone =
          Choose(s, paged, {lengths[row]},
                 Floats(q.begin() + row * width, q.begin() + (row + 1) * width),
                 Floats(weights.begin() + row * s.heads, weights.begin() + (row + 1) * s.heads),
                 {row});
      EXPECT_TRUE(std::equal(alone.chosen.begin(), alone.chosen.end(),
                             all.chosen.begin() + row * s.num_chosen));
    }
  }
}

TEST_F(KeyChoiceTest, OfEqualScoresTheEarlierOnesAreTaken) {
  const Sizes s{.heads = 2, .dim = 8, .num_chosen = 300};
  const PagedKv paged = Keys(s, {1000});
  const Floats zeros(s.heads * s.dim);
  const Choice choice = Choose(s, paged, {1000}, zeros, {1, -1});
  std::vector<int32_t> wanted(300);
  std::iota(wanted.begin(), wanted.end(), 0);
  EXPECT_EQ(choice.chosen, wanted);
}

TEST_F(KeyChoiceTest, WritesTheIndex) {
  for (const DType dtype : kDTypes) {
    for (const bool interleaved : {false, true}) {
      constexpr int64_t kHeads = 5, kDim = 40, kRotary = 16, kRows = 3;
      const Floats q = Random(dtype, kRows * kHeads * kDim);
      const Floats keys = Random(dtype, kRows * kDim, 3);
      const Floats weight = Random(dtype, kDim);
      const Floats bias = Random(dtype, kDim);
      const Floats cos = Random(DType::kFloat32, 10 * kRotary / 2);
      const Floats sin = Random(DType::kFloat32, 10 * kRotary / 2);
      const std::vector<int32_t> positions = {4, 9, 0};
      const std::vector<int64_t> slots = {17, -1, 3};
      const DeviceBytes device_q(Encode(dtype, q));
      const DeviceBytes device_keys(Encode(dtype, keys));
      const DeviceBytes device_weight(Encode(dtype, weight));
      const DeviceBytes device_bias(Encode(dtype, bias));
      const DeviceArray<float> device_cos(cos);
      const DeviceArray<float> device_sin(sin);
      const DeviceArray<int32_t> device_positions(positions);
      const DeviceArray<int64_t> device_slots(slots);
      const Floats untouched(2 * kKvPageSize * kDim, 7.0f);
      const DeviceBytes pages(Encode(dtype, untouched));
      WriteIndex(IndexPages(dtype, kDim, 2, pages.data()),
                 {.dtype = dtype,
                  .queries = device_q.data(),
                  .heads = kHeads,
                  .keys = device_keys.data(),
                  .norm_weight = device_weight.data(),
                  .norm_bias = device_bias.data(),
                  .eps = 1e-6f,
                  .m = kRows,
                  .rotary_dim = kRotary,
                  .positions = device_positions.data(),
                  .slots = device_slots.data(),
                  .cos = device_cos.data(),
                  .sin = device_sin.data(),
                  .interleaved = interleaved},
                 nullptr);
      const auto rotate = [&](std::vector<double> x, int64_t position) {
        std::vector<double> y = x;
        for (int64_t i = 0; i < kRotary / 2; ++i) {
          const int64_t a = interleaved ? 2 * i : i;
          const int64_t b = interleaved ? 2 * i + 1 : i + kRotary / 2;
          const double c = cos[position * kRotary / 2 + i];
          const double t = sin[position * kRotary / 2 + i];
          y[a] = x[a] * c - x[b] * t;
          y[b] = x[b] * c + x[a] * t;
        }
        return y;
      };
      const double tolerance = 2 * Epsilon(dtype) + 1e-5;
      const Floats got_q = Decode(dtype, device_q.Download());
      const Floats got = Decode(dtype, pages.Download());
      std::vector<double> want(untouched.begin(), untouched.end());
      for (int64_t row = 0; row < kRows; ++row) {
        for (int64_t head = 0; head < kHeads; ++head) {
          const int64_t at = (row * kHeads + head) * kDim;
          std::vector<double> x(q.begin() + at, q.begin() + at + kDim);
          if (slots[row] >= 0) x = rotate(x, positions[row]);
          ExpectClose(Floats(got_q.begin() + at, got_q.begin() + at + kDim), x, tolerance);
        }
        if (slots[row] < 0) continue;
        std::vector<double> x(keys.begin() + row * kDim, keys.begin() + (row + 1) * kDim);
        const double mean = std::accumulate(x.begin(), x.end(), 0.0) / kDim;
        double variance = 0;
        for (const double element : x) variance += (element - mean) * (element - mean) / kDim;
        for (int64_t d = 0; d < kDim; ++d) {
          x[d] = (x[d] - mean) / std::sqrt(variance + 1e-6) * weight[d] + bias[d];
        }
        std::ranges::copy(rotate(x, positions[row]), want.begin() + slots[row] * kDim);
      }
      ExpectClose(got, want, tolerance);
    }
  }
}

}  // namespace
}  // namespace mlc_native::kernels::cuda
