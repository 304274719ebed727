// AddAdapters: against sums in double, and what must not change a bit.
#include "kernels/cuda/adapters.h"

#include <optional>

#include "cuda/test_util.h"

namespace mlc_native::kernels::cuda {
namespace {

constexpr int64_t kNumAdapterLinears = 3;
constexpr int64_t kTestedLinear = 1;

// The matrices of an adapter for one linear among others.
struct TestAdapter {
  int64_t rank = 0;
  Floats down, up;  // [rank, k], [n, rank]
  DeviceBytes down_on_device, up_on_device;
  DeviceArray<AdapterMatrices> table;

  TestAdapter(DType dtype, int64_t of_rank, Floats down_values, Floats up_values)
      : rank(of_rank),
        down(std::move(down_values)),
        up(std::move(up_values)),
        down_on_device(Encode(dtype, down)),
        up_on_device(Encode(dtype, up)),
        table(static_cast<size_t>(kNumAdapterLinears)) {
    std::vector<AdapterMatrices> all(kNumAdapterLinears);
    all[kTestedLinear] = {down_on_device.data(), up_on_device.data(), rank};
    table.Upload(all);
  }
};

struct AdapterSizes {
  int64_t k;
  int64_t n;
};

// One linear, some adapters for it, and rows of x and y, of which x has columns that are not read
// and y columns that are not written.
class AdapterCase {
 public:
  AdapterCase(DType dtype, bool float_output, const AdapterSizes& sizes, int64_t num_rows)
      : dtype_(dtype), float_output_(float_output), sizes_(sizes), num_rows_(num_rows) {}

  int64_t ldx() const { return sizes_.k + 8; }
  int64_t ldy() const { return sizes_.n + 3; }
  DType y_dtype() const { return float_output_ ? DType::kFloat32 : dtype_; }

  // What is left in y for rows [first, end), each with the adapter that it has.
  std::vector<uint8_t> Run(int64_t first, int64_t end) const {
    std::vector<const AdapterMatrices*> adapters;
    for (int64_t row = first; row < end; ++row) adapters.push_back(Table(row));
    return Launch(first, end, DeviceArray<const AdapterMatrices*>(adapters), nullptr);
  }
  // The same where the adapters are those of all rows, and an index says which.
  std::vector<uint8_t> RunByIndex(int64_t first, int64_t end) const {
    std::vector<const AdapterMatrices*> adapters = {nullptr};
    for (int64_t row = num_rows_ - 1; row >= 0; --row) adapters.push_back(Table(row));
    std::vector<int32_t> rows;
    for (int64_t row = first; row < end; ++row) {
      rows.push_back(static_cast<int32_t>(num_rows_ - row));
    }
    const DeviceArray<int32_t> on_device(rows);
    return Launch(first, end, DeviceArray<const AdapterMatrices*>(adapters), on_device.data());
  }

  // In double, of all rows; y itself where a row has no adapter, and behind its columns.
  reference::Matrix Want() const {
    reference::Matrix want(y.begin(), y.end());
    for (int64_t row = 0; row < num_rows_; ++row) {
      if (!of_rows[row]) continue;
      const TestAdapter& adapter = *adapters[*of_rows[row]];
      for (int64_t r = 0; r < adapter.rank; ++r) {
        double inner = 0;
        for (int64_t i = 0; i < sizes_.k; ++i) {
          inner += double{adapter.down[r * sizes_.k + i]} * x[row * ldx() + i];
        }
        for (int64_t j = 0; j < sizes_.n; ++j) {
          want[row * ldy() + j] += adapter.up[j * adapter.rank + r] * inner;
        }
      }
    }
    return want;
  }

  std::vector<std::unique_ptr<TestAdapter>> adapters;
  std::vector<std::optional<size_t>> of_rows;  // [num_rows]: of `adapters`
  Floats x, y;

 private:
  const AdapterMatrices* Table(int64_t row) const {
    return of_rows[row] ? adapters[*of_rows[row]]->table.data() : nullptr;
  }
  std::vector<uint8_t> Launch(int64_t first, int64_t end,
                              const DeviceArray<const AdapterMatrices*>& of_rows_on_device,
                              const int32_t* rows) const {
    const auto part = [&](const Floats& values, int64_t ld) {
      return Floats(values.begin() + first * ld, values.begin() + end * ld);
    };
    const DeviceBytes x_on_device(Encode(dtype_, part(x, ldx())));
    const DeviceBytes y_on_device(Encode(y_dtype(), part(y, ldy())));
    const DeviceArray<float> workspace(static_cast<size_t>(AdapterWorkspaceFloats(end - first)));
    AddAdapters({.dtype = dtype_,
                 .adapters = of_rows_on_device.data(),
                 .rows = rows,
                 .linear = kTestedLinear,
                 .x = x_on_device.data(),
                 .ldx = ldx(),
                 .k = sizes_.k,
                 .y = y_on_device.data(),
                 .ldy = ldy(),
                 .n = sizes_.n,
                 .float_output = float_output_,
                 .m = end - first,
                 .workspace = workspace.data()},
                nullptr);
    return y_on_device.Download();
  }

  const DType dtype_;
  const bool float_output_;
  const AdapterSizes sizes_;
  const int64_t num_rows_;
};

class AdaptersTest : public CudaKernelTest {
 protected:
  // Adapters of several ranks, the last one without this linear, and rows in a row that have the
  // same one, another or none.
  AdapterCase MakeCase(DType dtype, bool float_output, const AdapterSizes& sizes,
                       int64_t num_rows) {
    AdapterCase made(dtype, float_output, sizes, num_rows);
    for (const int64_t rank : {8, 24, 136, 8, 0}) {
      made.adapters.push_back(std::make_unique<TestAdapter>(
          dtype, rank, Random(dtype, rank * sizes.k, 0.3f), Random(dtype, sizes.n * rank, 0.3f)));
    }
    for (int64_t row = 0; row < num_rows; ++row) {
      const int64_t kind = row / 3 % 2 == 0 ? row / 6 : RandomInt(0, 5);
      made.of_rows.push_back(kind % 6 == 5 ? std::nullopt : std::optional<size_t>(kind % 6));
    }
    made.x = Random(dtype, num_rows * made.ldx());
    made.y = Random(dtype, num_rows * made.ldy());
    // Rows without an adapter are not read.
    for (int64_t row = 0; row < num_rows; ++row) {
      if (made.of_rows[row]) continue;
      std::fill_n(made.x.begin() + row * made.ldx(), made.ldx(), NAN);
    }
    return made;
  }
};

// Fewer columns than a vector of a block, more than a block has threads for; rows up to more than
// are computed at once.
constexpr AdapterSizes kAdapterSizes[] = {{8, 5}, {264, 130}, {1160, 17}, {2048, 128}};

TEST_F(AdaptersTest, MatchesSumsInDouble) {
  for (const DType dtype : kDTypes) {
    for (const bool float_output : {false, true}) {
      for (const AdapterSizes& sizes : kAdapterSizes) {
        for (const int64_t num_rows : {1, 7, 32, 43}) {
          const AdapterCase made = MakeCase(dtype, float_output, sizes, num_rows);
          const double scale = sizes.k > 1000 ? 8 : 1;  // of what the sums add up
          ExpectClose(Decode(made.y_dtype(), made.Run(0, num_rows)), made.Want(),
                      Epsilon(made.y_dtype()) + scale * 1e-5);
        }
      }
    }
  }
  const AdapterCase many = MakeCase(DType::kBFloat16, false, {16, 9}, 523);
  ExpectClose(Decode(DType::kBFloat16, many.Run(0, 523)), many.Want(),
              Epsilon(DType::kBFloat16) + 1e-5);
}

TEST_F(AdaptersTest, RowsHaveTheirBitsBesideOthers) {
  for (const DType dtype : {DType::kFloat32, DType::kBFloat16}) {
    for (const AdapterSizes& sizes : {AdapterSizes{1160, 17}, AdapterSizes{16, 130}}) {
      constexpr int64_t kRows = 39;
      const AdapterCase made = MakeCase(dtype, false, sizes, kRows);
      const auto row_bytes = static_cast<int64_t>(DTypeSize(dtype)) * made.ldy();
      const std::vector<uint8_t> together = made.Run(0, kRows);
      EXPECT_EQ(made.RunByIndex(0, kRows), together);
      for (int64_t first = 0; first < kRows; first += 5) {
        const int64_t end = std::min<int64_t>(first + (first % 2 == 0 ? 1 : 4), kRows);
        const std::vector<uint8_t> want(together.begin() + first * row_bytes,
                                        together.begin() + end * row_bytes);
        EXPECT_EQ(made.Run(first, end), want) << first;
        EXPECT_EQ(made.RunByIndex(first, end), want) << first;
      }
    }
  }
}

TEST_F(AdaptersTest, RowsWithoutAnAdapterStayAsTheyAre) {
  for (const DType dtype : kDTypes) {
    for (const int64_t num_rows : {9, 41}) {
      AdapterCase made = MakeCase(dtype, false, {264, 130}, num_rows);
      made.y.assign(made.y.size(), -0.0f);
      const Floats got = Decode(dtype, made.Run(0, num_rows));
      for (int64_t row = 0; row < num_rows; ++row) {
        const bool changes = made.of_rows[row] && made.adapters[*made.of_rows[row]]->rank > 0;
        for (int64_t i = 0; i < made.ldy(); ++i) {
          const float value = got[row * made.ldy() + i];
          ASSERT_EQ(value == 0 && std::signbit(value), !changes || i >= 130) << row << " " << i;
        }
      }
    }
  }
}

}  // namespace
}  // namespace mlc_native::kernels::cuda
