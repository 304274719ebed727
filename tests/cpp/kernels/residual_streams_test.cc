#include "kernels/residual_streams.h"

#include <array>
#include <string>

#include "kernels/reference_streams.h"
#include "kernels/test_util.h"
#include "support/check.h"

namespace mlc_native::kernels {
namespace {

constexpr StreamOp kOps[] = {StreamOp::kSpread, StreamOp::kPredict, StreamOp::kCorrect,
                             StreamOp::kAdd, StreamOp::kJoin};

// Rows of one step, with the streams of a row beside one another.
struct Rows {
  int64_t m, dim, count, active;
  Poisoned streams, x, added;
  Floats norm, router, coefficients, scale;

  StreamStep Step(StreamOp op, int64_t begin, int64_t rows) {
    return {.op = op,
            .streams = {.data = streams.data.data() + begin * streams.ld,
                        .ld = streams.ld,
                        .step = dim,
                        .count = count,
                        .active = active},
            .x = x.data.data() + begin * x.ld,
            .ldx = x.ld,
            .added = added.data.data() + begin * added.ld,
            .ld_added = added.ld,
            .norm = norm.data(),
            .eps = 1e-3f,
            .router = router.data(),
            .coefficients = coefficients.data(),
            .scale = scale.empty() ? nullptr : scale.data(),
            .m = rows,
            .dim = dim};
  }
  // A row as the reference has it.
  reference::StreamRow Row(int64_t row) const {
    const auto take = [&](const Poisoned& from, int64_t part) {
      const float* data = from.data.data() + row * from.ld + part * dim;
      return reference::StreamRow::Row(data, data + dim);
    };
    reference::StreamRow of;
    of.x = take(x, 0);
    of.eps = 1e-3f;
    of.active = static_cast<size_t>(active);
    of.norm = {norm.begin(), norm.end()};
    of.coefficients = {coefficients.begin(), coefficients.end()};
    of.scale = {scale.begin(), scale.end()};
    for (int64_t i = 0; i < count; ++i) {
      of.streams.push_back(take(streams, i));
      of.router.push_back({router.begin() + i * dim, router.begin() + (i + 1) * dim});
      if (i > 0) of.added.push_back(take(added, i - 1));
    }
    return of;
  }
};

class ResidualStreamsTest : public KernelTest {
 protected:
  Rows Make(int64_t m, int64_t dim, int64_t count, int64_t active, bool has_scale) {
    Rows rows{m,  dim, count, active, {m, count * dim, 3}, {m, dim, 2}, {m, (count - 1) * dim, 1},
              {}, {},  {},    {}};
    rows.streams.Fill(Random(m * count * dim, 2));
    rows.x.Fill(Random(m * dim, 2));
    rows.added.Fill(Random(m * (count - 1) * dim, 2));
    rows.norm = Random(dim);
    rows.router = Random(count * dim);
    rows.coefficients = Random(count * count * count);
    if (has_scale) rows.scale = Random(dim);
    return rows;
  }
};

TEST_P(ResidualStreamsTest, StepsMatchTheReference) {
  for (const StreamOp op : kOps) {
    for (const int64_t dim : {1, 7, 16, 33, 100}) {
      for (const int64_t count : {2, 3, 4, 8}) {
        const int64_t m = 3, active = dim % count;
        Rows rows = Make(m, dim, count, active, dim % 2 == 1);
        reference::Matrix streams, x;
        for (int64_t row = 0; row < m; ++row) {
          reference::StreamRow want = rows.Row(row);
          want.Run(op);
          for (const auto& stream : want.streams) {
            streams.insert(streams.end(), stream.begin(), stream.end());
          }
          x.insert(x.end(), want.x.begin(), want.x.end());
        }
        RunRows(Threads(2), std::array<RowStep, 1>{rows.Step(op, 0, m)});
        SCOPED_TRACE(std::to_string(static_cast<int>(op)) + ' ' + std::to_string(dim) + ' ' +
                     std::to_string(count));
        ExpectClose(rows.streams.Dense(), streams, 5e-6);
        ExpectClose(rows.x.Dense(), x, 5e-6);
        rows.streams.ExpectPaddingUntouched();
        rows.x.ExpectPaddingUntouched();
      }
    }
  }
}

// The mean square of a small vector is taken for 1e-5, of one of zeros, too.
TEST_P(ResidualStreamsTest, SmallVectorsAreNotScaledToTheMagnitude) {
  for (const StreamOp op : {StreamOp::kSpread, StreamOp::kJoin}) {
    Rows rows = Make(2, 40, 3, 1, true);
    for (Poisoned* small : {&rows.streams, &rows.added}) {
      for (int64_t i = 0; i < 40; ++i) small->data[static_cast<size_t>(i)] *= 1e-3f;
      if (op == StreamOp::kSpread) {
        for (int64_t i = 40; i < 80; ++i) small->data[static_cast<size_t>(i)] *= 1e-3f;
        for (int64_t i = 80; i < 120; ++i) small->data[static_cast<size_t>(i)] = 0.0f;
        break;
      }
    }
    reference::StreamRow want = rows.Row(0);
    want.Run(op);
    RunRows(Threads(1), std::array<RowStep, 1>{rows.Step(op, 0, 1)});
    for (int64_t i = 0; i < 40; ++i) {
      const auto at = static_cast<size_t>(i);
      if (op == StreamOp::kJoin) {
        ASSERT_NEAR(rows.x.data[at], want.x[at], 1e-6);
        continue;
      }
      ASSERT_NEAR(rows.streams.data[at + 40], want.streams[1][at], 1e-5);
      ASSERT_EQ(rows.streams.data[at + 80], 0.0f);
    }
  }
}

TEST_P(ResidualStreamsTest, RowsAreTheSameInEveryBatchOnEveryThreadCount) {
  for (const StreamOp op : kOps) {
    const int64_t m = 37;
    const Rows rows = Make(m, 250, 4, 2, true);
    const auto run = [&](const Cpu& cpu, int64_t begin, int64_t count) {
      Rows copy = rows;
      RunRows(cpu, std::array<RowStep, 1>{copy.Step(op, begin, count)});
      return copy;
    };
    const Rows all = run(Threads(1), 0, m);
    const Rows two = run(Threads(2), 0, m);
    EXPECT_EQ(two.streams.data, all.streams.data);
    EXPECT_EQ(two.x.data, all.x.data);
    for (int64_t row = 0; row < m; row += 9) {
      const Rows one = run(Threads(1), row, 1);
      EXPECT_TRUE(SameBits(&one.streams.data[static_cast<size_t>(row * one.streams.ld)],
                           &all.streams.data[static_cast<size_t>(row * one.streams.ld)],
                           one.streams.ld));
      EXPECT_TRUE(SameBits(&one.x.data[static_cast<size_t>(row * one.x.ld)],
                           &all.x.data[static_cast<size_t>(row * one.x.ld)], one.x.ld));
    }
  }
}

TEST_P(ResidualStreamsTest, NumbersOfStreamsAreChecked) {
  Rows rows = Make(1, 8, 3, 1, true);
  for (const auto& [count, active] : {std::pair{1, 0}, {9, 0}, {3, 3}, {3, -1}}) {
    StreamStep step = rows.Step(StreamOp::kPredict, 0, 1);
    step.streams.count = count;
    step.streams.active = active;
    EXPECT_THROW(RunRows(Threads(1), std::array<RowStep, 1>{step}), InternalError);
  }
}

// A mean far from zero, which a deviation from sums of squares would lose.
TEST_P(ResidualStreamsTest, CutMatchesTheReference) {
  for (const int64_t n : {1, 7, 16, 45, 300}) {
    for (const float deviations : {-0.5f, 0.0f, 1.6448536f}) {
      const int64_t m = 5;
      Floats x = Random(m * n, 3);
      for (float& value : x) value += 40;
      reference::Matrix want = ToDouble(x);
      for (int64_t row = 0; row < m; ++row) reference::Cut(want.data() + row * n, n, deviations);
      Poisoned view(m, n, 3);
      view.Fill(x);
      Cut(Threads(2),
          {.x = view.data.data(), .ld = view.ld, .deviations = deviations, .m = m, .n = n});
      ExpectClose(view.Dense(), want, 2e-5);
      view.ExpectPaddingUntouched();
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Isa, ResidualStreamsTest, testing::ValuesIn(IsaNames()),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace mlc_native::kernels
