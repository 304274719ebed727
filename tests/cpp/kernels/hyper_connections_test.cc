// The steps of hyper-connections (residual_streams.h) against sums in double.
#include <array>
#include <numeric>
#include <string>

#include "kernels/residual_streams.h"
#include "kernels/test_util.h"
#include "support/check.h"

namespace mlc_native::kernels {
namespace {

constexpr float kFloor = 1e-3f, kEps = 1e-4f;
constexpr StreamOp kSteps[] = {StreamOp::kRepeat, StreamOp::kCollapse, StreamOp::kExpand,
                               StreamOp::kLeave};

using Row = std::vector<double>;

// One row in double: streams, then what is kept.
struct MixedRow {
  int64_t dim, count, rounds;
  Row streams, x, added, mix, base, scales;

  std::vector<double> Mixes(int64_t rows) const {
    const int64_t n = count * dim;
    const double squares =
        std::inner_product(streams.begin(), streams.begin() + n, streams.begin(), 0.0);
    std::vector<double> z(static_cast<size_t>(rows));
    for (int64_t i = 0; i < rows; ++i) {
      double product = 0;
      for (int64_t d = 0; d < n; ++d) product += mix[i * n + d] * streams[d];
      const int64_t part = i < count ? 0 : i < 2 * count ? 1 : 2;
      z[i] = product / std::sqrt(squares / static_cast<double>(n) + kEps) * scales[part] + base[i];
    }
    return z;
  }
  void Balance(double* matrix) const {
    for (int64_t i = 0; i < count; ++i) {
      double sum = 0;
      for (int64_t j = 0; j < count; ++j) sum += std::exp(matrix[i * count + j]);
      for (int64_t j = 0; j < count; ++j) {
        matrix[i * count + j] = std::exp(matrix[i * count + j]) / sum + kFloor;
      }
    }
    const auto divide = [&](int64_t begin, int64_t step) {
      double sum = kFloor;
      for (int64_t j = 0; j < count; ++j) sum += matrix[begin + j * step];
      for (int64_t j = 0; j < count; ++j) matrix[begin + j * step] /= sum;
    };
    for (int64_t round = 0; round < rounds; ++round) {
      for (int64_t i = 0; round > 0 && i < count; ++i) divide(i * count, 1);
      for (int64_t j = 0; j < count; ++j) divide(j, count);
    }
  }
  void Run(StreamOp op) {
    const auto sigmoid = [](double z) { return 1 / (1 + std::exp(-z)); };
    const Row before = streams;
    const double* kept = before.data() + count * dim;
    if (op == StreamOp::kRepeat) {
      for (int64_t i = 0; i < count; ++i) std::copy_n(x.begin(), dim, streams.begin() + i * dim);
    } else if (op == StreamOp::kExpand) {
      for (int64_t i = 0; i < count; ++i) {
        for (int64_t d = 0; d < dim; ++d) {
          double sum = kept[i] * added[d];
          for (int64_t j = 0; j < count; ++j) {
            sum += kept[count + j * count + i] * before[j * dim + d];
          }
          streams[i * dim + d] = sum;
        }
      }
    } else {
      std::vector<double> z = Mixes(op == StreamOp::kLeave ? count : NumMixes(count));
      for (int64_t d = 0; d < dim; ++d) {
        x[d] = 0;
        for (int64_t i = 0; i < count; ++i) x[d] += (sigmoid(z[i]) + kFloor) * streams[i * dim + d];
      }
      if (op == StreamOp::kLeave) return;
      Balance(z.data() + 2 * count);
      for (int64_t i = 0; i < count; ++i) z[count + i] = 2 * sigmoid(z[count + i]);
      std::copy(z.begin() + count, z.end(), streams.begin() + count * dim);
    }
  }
};

struct MixedRows {
  int64_t m, dim, count, rounds;
  Poisoned streams, x, added;
  Floats mix, base, scales;

  StreamStep Step(StreamOp op, int64_t begin, int64_t rows) {
    return {.op = op,
            .streams = {.data = streams.data.data() + begin * streams.ld,
                        .ld = streams.ld,
                        .step = dim,
                        .count = count},
            .x = x.data.data() + begin * x.ld,
            .ldx = x.ld,
            .added = added.data.data() + begin * added.ld,
            .ld_added = added.ld,
            .eps = kEps,
            .mix = mix.data(),
            .mix_base = base.data(),
            .mix_scales = scales.data(),
            .floor = kFloor,
            .rounds = rounds,
            .m = rows,
            .dim = dim};
  }
  MixedRow RowOf(int64_t row) const {
    const auto take = [&](const Poisoned& from) {
      const float* data = from.data.data() + row * from.ld;
      return Row(data, data + from.columns);
    };
    const auto all = [](const Floats& from) { return Row(from.begin(), from.end()); };
    return {dim,         count,    rounds,    take(streams), take(x),
            take(added), all(mix), all(base), all(scales)};
  }
};

class HyperConnectionsTest : public KernelTest {
 protected:
  MixedRows Make(int64_t m, int64_t dim, int64_t count, int64_t rounds) {
    const int64_t width = count * dim + KeptFloats(count);
    MixedRows rows{m, dim, count, rounds, {m, width, 3}, {m, dim, 2}, {m, dim, 1}, {}, {}, {}};
    rows.streams.Fill(Random(m * width, 2));
    rows.x.Fill(Random(m * dim, 2));
    rows.added.Fill(Random(m * dim, 2));
    rows.mix = Random(NumMixes(count) * count * dim);
    rows.base = Random(NumMixes(count));
    rows.scales = Random(3, 2);
    return rows;
  }
};

TEST_P(HyperConnectionsTest, StepsMatchTheReference) {
  for (const StreamOp op : kSteps) {
    for (const int64_t dim : {1, 7, 16, 33, 100}) {
      for (const int64_t count : {2, 3, 4, 8}) {
        MixedRows rows = Make(3, dim, count, 1 + dim % 4);
        reference::Matrix streams, x;
        for (int64_t row = 0; row < 3; ++row) {
          MixedRow want = rows.RowOf(row);
          want.Run(op);
          streams.insert(streams.end(), want.streams.begin(), want.streams.end());
          x.insert(x.end(), want.x.begin(), want.x.end());
        }
        RunRows(Threads(2), std::array<RowStep, 1>{rows.Step(op, 0, 3)});
        SCOPED_TRACE(std::to_string(static_cast<int>(op)) + ' ' + std::to_string(dim) + ' ' +
                     std::to_string(count));
        ExpectClose(rows.streams.Dense(), streams, 1e-5);
        ExpectClose(rows.x.Dense(), x, 1e-5);
        rows.streams.ExpectPaddingUntouched();
        rows.x.ExpectPaddingUntouched();
      }
    }
  }
}

TEST_P(HyperConnectionsTest, RowsAreTheSameInEveryBatchOnEveryThreadCount) {
  for (const StreamOp op : kSteps) {
    const MixedRows rows = Make(37, 250, 4, 5);
    const auto run = [&](const Cpu& cpu, int64_t begin, int64_t count) {
      MixedRows copy = rows;
      RunRows(cpu, std::array<RowStep, 1>{copy.Step(op, begin, count)});
      return copy;
    };
    const MixedRows all = run(Threads(1), 0, rows.m);
    const MixedRows two = run(Threads(2), 0, rows.m);
    EXPECT_EQ(two.streams.data, all.streams.data);
    EXPECT_EQ(two.x.data, all.x.data);
    for (int64_t row = 0; row < rows.m; row += 9) {
      const MixedRows one = run(Threads(1), row, 1);
      EXPECT_TRUE(SameBits(&one.streams.data[row * one.streams.ld],
                           &all.streams.data[row * one.streams.ld], one.streams.ld));
      EXPECT_TRUE(SameBits(&one.x.data[row * one.x.ld], &all.x.data[row * one.x.ld], one.x.ld));
    }
  }
}

TEST_P(HyperConnectionsTest, WhatIsKeptNeedsItsPlace) {
  MixedRows rows = Make(1, 8, 3, 2);
  StreamStep step = rows.Step(StreamOp::kCollapse, 0, 1);
  step.streams.ld = 3 * 8 + KeptFloats(3) - 1;
  EXPECT_THROW(RunRows(Threads(1), std::array<RowStep, 1>{step}), InternalError);
  step = rows.Step(StreamOp::kCollapse, 0, 1);
  step.rounds = 0;
  EXPECT_THROW(RunRows(Threads(1), std::array<RowStep, 1>{step}), InternalError);
}

INSTANTIATE_TEST_SUITE_P(Isa, HyperConnectionsTest, testing::ValuesIn(IsaNames()),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace mlc_native::kernels
