// The kernels of residual streams and LAuReL, and of gates that are cut, against double precision.
#include "kernels/cuda/residual_streams.h"

#include <string>

#include "cuda/test_util.h"
#include "kernels/cuda/gate_cut.h"
#include "kernels/reference_streams.h"

namespace mlc_native::kernels::cuda {
namespace {

constexpr StreamOp kOps[] = {StreamOp::kSpread, StreamOp::kPredict, StreamOp::kCorrect,
                             StreamOp::kAdd, StreamOp::kJoin};
constexpr float kEps = 1e-3f;

// Rows of a step: each stream has all rows, with some elements behind them.
struct Rows {
  DType dtype;
  int64_t m, dim, count, active;
  int64_t step = m * dim + 16;
  Floats streams, x, added, norm, router, coefficients, scale;

  reference::StreamRow Row(StreamOp op, int64_t row) const {
    const auto take = [&](const Floats& from, int64_t part) {
      const auto begin = from.begin() + part * step + row * dim;
      return reference::StreamRow::Row(begin, begin + dim);
    };
    reference::StreamRow of;
    of.x = {x.begin() + row * dim, x.begin() + (row + 1) * dim};
    of.eps = kEps;
    of.active = static_cast<size_t>(active);
    of.norm = ToDouble(norm);
    of.coefficients = ToDouble(coefficients);
    of.scale = ToDouble(scale);
    for (int64_t i = 0; i < count; ++i) {
      of.streams.push_back(take(streams, i));
      of.router.push_back({router.begin() + i * dim, router.begin() + (i + 1) * dim});
      if (i > 0) of.added.push_back(take(added, i - 1));
    }
    if (op == StreamOp::kAdd) of.added.resize(1);
    return of;
  }
};

// What a step leaves.
struct Result {
  Floats streams, x;
};

Result RunOn(StreamOp op, const Rows& rows, int64_t first, int64_t m) {
  const DeviceArray<float> streams(rows.streams), x(rows.x), router(rows.router),
      coefficients(rows.coefficients), scale(rows.scale);
  const bool is_rounded = op == StreamOp::kAdd;  // else the parts of kJoin
  const DType added_type = is_rounded ? rows.dtype : DType::kFloat32;
  const DeviceBytes added(Encode(added_type, rows.added)), norm(Encode(rows.dtype, rows.norm));
  const int64_t begin = first * rows.dim;
  RunStreams({.op = op,
              .dtype = rows.dtype,
              .streams = {.data = streams.data() + begin,
                          .ld = rows.dim,
                          .step = rows.step,
                          .count = rows.count,
                          .active = rows.active},
              .x = x.data() + begin,
              .added = added.data() + begin * static_cast<int64_t>(DTypeSize(added_type)),
              .added_step = rows.step,
              .norm = norm.data(),
              .eps = kEps,
              .router = router.data(),
              .coefficients = coefficients.data(),
              .scale = rows.scale.empty() ? nullptr : scale.data(),
              .m = m,
              .dim = rows.dim},
             nullptr);
  return {streams.Download(), x.Download()};
}

class ResidualStreamsTest : public CudaKernelTest {
 protected:
  Rows Make(DType dtype, int64_t m, int64_t dim, int64_t count, int64_t active, bool has_scale) {
    Rows rows{.dtype = dtype,
              .m = m,
              .dim = dim,
              .count = count,
              .active = active,
              .streams = {},
              .x = {},
              .added = {},
              .norm = Random(dtype, dim),
              .router = Random(DType::kFloat32, count * dim, 16.0f / static_cast<float>(dim)),
              .coefficients = Random(DType::kFloat32, count * count * count),
              .scale = {}};
    rows.streams = Random(DType::kFloat32, count * rows.step, 2);
    rows.x = Random(DType::kFloat32, m * dim, 2);
    rows.added = Random(dtype, count * rows.step, 2);
    if (has_scale) rows.scale = Random(DType::kFloat32, dim);
    return rows;
  }

  static void Check(StreamOp op, const Rows& rows) {
    const Result got = RunOn(op, rows, 0, rows.m);
    reference::Matrix want_streams = ToDouble(rows.streams), want_x;
    for (int64_t row = 0; row < rows.m; ++row) {
      reference::StreamRow want = rows.Row(op, row);
      want.Run(op);
      for (int64_t i = 0; i < rows.count; ++i) {
        std::ranges::copy(want.streams[static_cast<size_t>(i)],
                          want_streams.begin() + i * rows.step + row * rows.dim);
      }
      want_x.insert(want_x.end(), want.x.begin(), want.x.end());
    }
    ExpectClose(got.streams, want_streams, 1e-5);
    ExpectClose(got.x, want_x, 1e-5);
  }
};

TEST_F(ResidualStreamsTest, StepsMatchTheReference) {
  for (const DType dtype : kDTypes) {
    for (const StreamOp op : kOps) {
      for (const auto& [dim, count] : {std::pair{8, 2}, {72, 3}, {2056, 4}, {256, 8}}) {
        SCOPED_TRACE(std::to_string(static_cast<int>(op)) + ' ' + std::to_string(dim));
        Check(op, Make(dtype, 3, dim, count, dim / 8 % count, dim % 16 == 8));
      }
    }
  }
}

// The mean square of a small vector is taken for 1e-5.
TEST_F(ResidualStreamsTest, SmallVectorsAreNotScaledToTheMagnitude) {
  Rows rows = Make(DType::kBFloat16, 2, 16, 3, 1, true);
  for (Floats* small : {&rows.streams, &rows.added}) {
    for (float& value : *small) value *= 1e-3f;
  }
  Check(StreamOp::kSpread, rows);
  Check(StreamOp::kJoin, rows);
}

TEST_F(ResidualStreamsTest, ARowIsTheSameInEveryBatch) {
  for (const StreamOp op : kOps) {
    const Rows rows = Make(DType::kBFloat16, 9, 520, 4, 2, true);
    const Result all = RunOn(op, rows, 0, rows.m);
    const Result one = RunOn(op, rows, 4, 1);
    const int64_t begin = 4 * rows.dim;
    for (int64_t i = 0; i < rows.dim; ++i) {
      ASSERT_EQ(one.x[begin + i], all.x[begin + i]);
      for (int64_t s = 0; s < rows.count; ++s) {
        ASSERT_EQ(one.streams[s * rows.step + begin + i], all.streams[s * rows.step + begin + i]);
      }
    }
  }
}

TEST_F(ResidualStreamsTest, SizesAreChecked) {
  for (const auto& [count, active] : {std::pair{1, 0}, {9, 0}, {3, 3}}) {
    Rows rows = Make(DType::kFloat32, 1, 8, 3, 1, true);
    rows.count = count;
    rows.active = active;
    EXPECT_ANY_THROW(RunOn(StreamOp::kPredict, rows, 0, 1));
  }
  EXPECT_ANY_THROW(RunOn(StreamOp::kPredict, Make(DType::kFloat32, 1, 12, 3, 1, true), 0, 1));
}

TEST_F(ResidualStreamsTest, LaurelMatchesTheReference) {
  for (const DType dtype : kDTypes) {
    for (const int64_t dim : {8, 72, 2056}) {
      const int64_t m = 3;
      const Floats residual = Random(DType::kFloat32, m * dim), input = Random(dtype, m * dim),
                   x = Random(dtype, m * dim, 3), norm = Random(dtype, dim);
      const DeviceArray<float> device_residual(residual);
      const DeviceBytes device_input(Encode(dtype, input)), device_x(Encode(dtype, x)),
          device_norm(Encode(dtype, norm));
      AddLaurel({.dtype = dtype,
                 .residual = device_residual.data(),
                 .input = device_input.data(),
                 .x = device_x.data(),
                 .norm = device_norm.data(),
                 .eps = kEps,
                 .scale = 0.75f,
                 .m = m,
                 .dim = dim},
                nullptr);
      reference::Matrix want = reference::Normalize(ToDouble(x), ToDouble(norm), 0.0, kEps);
      for (size_t i = 0; i < want.size(); ++i) want[i] += 0.75 * (double{residual[i]} + input[i]);
      ExpectClose(device_residual.Download(), want, 3e-6);
    }
  }
}

// Whole rows, and rows of which two devices have a half each.
TEST_F(ResidualStreamsTest, GatesAreCutAsInTheReference) {
  for (const DType dtype : kDTypes) {
    for (const int64_t n : {16, 80, 4112}) {
      for (const float deviations : {-0.5f, 0.0f, 1.6448536f}) {
        const int64_t m = 3, ld = n + 8;
        const Floats x = Random(dtype, m * ld, 3);
        reference::Matrix want = ToDouble(x);
        for (int64_t row = 0; row < m; ++row) reference::Cut(want.data() + row * ld, n, deviations);
        const DeviceBytes device_x(Encode(dtype, x));
        CutGatesArgs args{.dtype = dtype,
                          .x = device_x.data(),
                          .ld = ld,
                          .deviations = deviations,
                          .m = m,
                          .n = n};
        CutGates(args, nullptr);
        ExpectClose(Decode(dtype, device_x.Download()), want, Epsilon(dtype) + 3e-6);

        const DeviceBytes parts(Encode(dtype, x));
        const DeviceArray<float> sums(static_cast<size_t>(2 * m));
        Floats both(static_cast<size_t>(2 * m));
        args.n = n / 2;
        for (const int64_t half : {0, 1}) {
          args.x = parts.data() + half * n / 2 * static_cast<int64_t>(DTypeSize(dtype));
          SumGates(args, sums.data(), nullptr);
          const Floats of_half = sums.Download();
          for (size_t i = 0; i < both.size(); ++i) both[i] += of_half[i];
        }
        const DeviceArray<float> whole(both);
        args.sums = whole.data();
        args.whole_n = n;
        for (const int64_t half : {0, 1}) {
          args.x = parts.data() + half * n / 2 * static_cast<int64_t>(DTypeSize(dtype));
          CutGates(args, nullptr);
        }
        ExpectClose(Decode(dtype, parts.Download()), want, Epsilon(dtype) + 1e-5);
      }
    }
  }
}

}  // namespace
}  // namespace mlc_native::kernels::cuda
