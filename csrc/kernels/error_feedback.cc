#include "kernels/error_feedback.h"

#include <algorithm>
#include <cmath>
#include <cstddef>

#include "kernels/packed_format.h"
#include "kernels/quantize.h"
#include "support/aligned_buffer.h"
#include "support/check.h"
#include "support/half.h"
#include "support/thread_pool.h"

namespace mlc_native::kernels {
namespace {

constexpr int64_t kBlock = ErrorFeedback::kBlock;
constexpr size_t kRows = 16;  // that are rounded side by side, so that loops over them are vectors
constexpr double kDamping = 0.01;  // of the mean of the diagonal

using Side = std::array<float, kRows>;  // one column of the rows side by side

// ---- The factors of the inputs ----

// out[count, count] = x^T x of the columns from `first` on.
void Moments(const Cpu& cpu, const InputRows& inputs, int64_t first, int64_t count, float* out) {
  const int64_t m = inputs.m;
  std::vector<float> columns(static_cast<size_t>(count * m));
  cpu.pool->ParallelFor(count, [&](int64_t begin, int64_t end, int) {
    for (int64_t i = 0; i < m; ++i) {
      const int64_t row = inputs.rows == nullptr ? i : inputs.rows[i];
      const float* x = inputs.x + row * inputs.ldx + first;
      for (int64_t c = begin; c < end; ++c) columns[static_cast<size_t>(c * m + i)] = x[c];
    }
  });
  const AlignedBuffer packed(PackedLinearBytes(*cpu.isa, WeightFormat::kFloat32, count, m));
  const PackedLinear w =
      MakePackedLinear(*cpu.isa, WeightFormat::kFloat32, count, m, packed.data());
  PackLinear(w, 0, {.dtype = DType::kFloat32, .data = columns.data(), .ld = m, .rows = count});
  const AlignedBuffer workspace(LinearWorkspaceBytes(count, m));
  Linear(cpu, w,
         {.x = columns.data(),
          .ldx = m,
          .m = count,
          .y = out,
          .ldy = count,
          .workspace = workspace.data()});
}

// A square matrix of doubles in reversed order of rows and columns.
class Reversed {
 public:
  Reversed(const float* x, int64_t n) : n_(n), x_(static_cast<size_t>(n * n)) {
    for (int64_t i = 0; i < n; ++i) {
      for (int64_t j = 0; j <= i; ++j) at(i, j) = x[(n - 1 - j) * n + n - 1 - i];
    }
  }

  double& at(int64_t i, int64_t j) { return x_[static_cast<size_t>(i * n_ + j)]; }
  int64_t size() const { return n_; }

  double MeanOfDiagonal() {
    double sum = 0;
    for (int64_t i = 0; i < n_; ++i) sum += at(i, i);
    return sum / static_cast<double>(n_);
  }

  // The lower triangle becomes L with L L^T = the matrix. False: it is not positive definite.
  bool Factor() {
    for (int64_t i = 0; i < n_; ++i) {
      for (int64_t j = 0; j <= i; ++j) {
        double sum = at(i, j);
        for (int64_t l = 0; l < j; ++l) sum -= at(i, l) * at(j, l);
        if (i > j) {
          at(i, j) = sum / at(j, j);
        } else if (sum > 0 && std::isfinite(sum)) {
          at(i, i) = std::sqrt(sum);
        } else {
          return false;
        }
      }
    }
    return true;
  }

  // The lower triangle becomes its inverse.
  void InvertTriangle() {
    for (int64_t j = 0; j < n_; ++j) {
      at(j, j) = 1 / at(j, j);
      for (int64_t i = j + 1; i < n_; ++i) {
        double sum = 0;
        for (int64_t l = j; l < i; ++l) sum -= at(i, l) * at(l, j);
        at(i, j) = sum / at(i, i);
      }
    }
  }

 private:
  int64_t n_;
  std::vector<double> x_;
};

// In place: from x^T x to U. With L L^T of the reversed matrix, the matrix is R R^T for the upper
// triangle R that is L in the usual order, so U = R^-1.
void Factor(float* x, int64_t n) {
  Reversed matrix(x, n);
  const double damping = kDamping * matrix.MeanOfDiagonal();
  for (int64_t i = 0; i < n; ++i) matrix.at(i, i) += damping;
  const bool works = damping > 0 && matrix.Factor();
  if (works) matrix.InvertTriangle();
  for (int64_t i = 0; i < n; ++i) {
    for (int64_t j = 0; j < n; ++j) {
      const double value = works && j >= i ? matrix.at(n - 1 - i, n - 1 - j) : 0;
      x[i * n + j] = static_cast<float>(works || i != j ? value : 1);
    }
  }
}

// ---- Rounding ----

// kSteps: the extreme value over the scales that are tried, as QuantizeQ4 and QuantizeQ6 do.
struct Q4Grid {
  static constexpr size_t kGroup = kQ4Group;
  static constexpr float kLow = -8, kHigh = 7;
  static constexpr float kSteps[] = {-9.5f, -9.0f, -8.5f, -8.0f, -7.5f, -7.0f,
                                     6.5f,  7.0f,  7.5f,  8.0f,  8.5f};
};
struct Q6Grid {
  static constexpr size_t kGroup = kQ6Group;
  static constexpr float kLow = -32, kHigh = 31;
  static constexpr float kSteps[] = {-34.0f, -33.0f, -32.0f, -31.0f, -30.0f, 31.0f, 32.0f};
};
struct Q8Grid {
  static constexpr size_t kGroup = kQ8Group;
  static constexpr float kLow = -127, kHigh = 127;
};

// Adding it leaves |x| < 2^22 rounded to nearest even, as an integer in the lowest bits.
constexpr float kShift = 12582912.0f;

// Columns of a group on their way: the errors are scaled by 1 / U[i][i].
template <typename Grid>
struct GroupState {
  std::array<Side, Grid::kGroup> codes;
  std::array<Side, Grid::kGroup> errors;
  Side loss;  // the sum of the squared errors
};

// Rounds the columns of a group with these scales; each passes its error on to the others. `u` is U
// at the first column, [count, ld].
template <typename Grid>
void RoundGroup(std::array<Side, Grid::kGroup> w, const Side& scale, const float* u, int64_t ld,
                size_t count, GroupState<Grid>* state) {
  Side inverse;
  for (size_t r = 0; r < kRows; ++r) inverse[r] = scale[r] != 0 ? 1 / scale[r] : 0;
  state->loss.fill(0);
  for (size_t i = 0; i < count; ++i) {
    const float* row = u + static_cast<int64_t>(i) * ld;
    const float factor = 1 / row[i];
    Side& error = state->errors[i];
    for (size_t r = 0; r < kRows; ++r) {
      const float x = std::min(std::max(w[i][r] * inverse[r], Grid::kLow), Grid::kHigh);
      const float code = (x + kShift) - kShift;
      state->codes[i][r] = code;
      error[r] = (w[i][r] - code * scale[r]) * factor;
      state->loss[r] += error[r] * error[r];
    }
    for (size_t j = i + 1; j < count; ++j) {
      for (size_t r = 0; r < kRows; ++r) w[j][r] -= error[r] * row[j];
    }
  }
}

// The magnitude that a group's scale must hold: the extreme value with its sign.
template <size_t kGroup>
Side Extremes(const std::array<Side, kGroup>& w) {
  Side low{}, high{}, extreme;
  for (const Side& column : w) {
    for (size_t r = 0; r < kRows; ++r) {
      low[r] = std::min(low[r], column[r]);
      high[r] = std::max(high[r], column[r]);
    }
  }
  for (size_t r = 0; r < kRows; ++r) extreme[r] = -low[r] > high[r] ? low[r] : high[r];
  return extreme;
}

Side InFloat16(Side scale) {
  for (float& each : scale) each = Float16ToFloat(FloatToFloat16(each));
  return scale;
}

// Takes the scale with the least loss.
template <typename Grid>
Side RoundBest(const std::array<Side, Grid::kGroup>& w, const float* u, int64_t ld, size_t count,
               GroupState<Grid>* best) {
  const Side extreme = Extremes(w);
  Side scales{};
  RoundGroup(w, scales, u, ld, count, best);
  for (const float steps : Grid::kSteps) {
    Side scale;
    for (size_t r = 0; r < kRows; ++r) scale[r] = extreme[r] / steps;
    scale = InFloat16(scale);
    GroupState<Grid> tried;
    RoundGroup(w, scale, u, ld, count, &tried);
    Side is_better;
    for (size_t r = 0; r < kRows; ++r) is_better[r] = tried.loss[r] < best->loss[r] ? 1 : 0;
    const auto take = [&](Side* to, const Side& from) {
      for (size_t r = 0; r < kRows; ++r) (*to)[r] = is_better[r] != 0 ? from[r] : (*to)[r];
    };
    take(&scales, scale);
    take(&best->loss, tried.loss);
    for (size_t i = 0; i < count; ++i) {
      take(&best->codes[i], tried.codes[i]);
      take(&best->errors[i], tried.errors[i]);
    }
  }
  return scales;
}

// The largest magnitude becomes code 127, as in QuantizeQ8.
template <>
Side RoundBest(const std::array<Side, Q8Grid::kGroup>& w, const float* u, int64_t ld, size_t count,
               GroupState<Q8Grid>* best) {
  Side scale = Extremes(w);
  for (float& each : scale) each = std::fabs(each) / Q8Grid::kHigh;
  scale = InFloat16(scale);
  RoundGroup(w, scale, u, ld, count, best);
  return scale;
}

// Where a rounded group of the rows goes.
struct Target {
  int8_t* codes;     // [rows, k]
  uint16_t* scales;  // [rows, groups]
  int64_t k;
  int64_t groups;
  size_t rows;
};

template <typename Grid>
void StoreGroup(const GroupState<Grid>& state, const Side& scales,
                const std::array<Side, Grid::kGroup>& w, int64_t first, size_t count,
                const Target& to) {
  constexpr uint16_t kNaN = 0x7e00;
  for (size_t r = 0; r < to.rows; ++r) {
    bool is_finite = true;
    for (size_t i = 0; i < count; ++i) is_finite &= std::isfinite(w[i][r]);
    const auto row = static_cast<int64_t>(r);
    for (size_t i = 0; i < count; ++i) {
      to.codes[row * to.k + first + static_cast<int64_t>(i)] =
          static_cast<int8_t>(is_finite ? state.codes[i][r] : 0);
    }
    to.scales[row * to.groups + first / static_cast<int64_t>(Grid::kGroup)] =
        is_finite ? FloatToFloat16(scales[r]) : kNaN;
  }
}

// Rounds the columns from `first` on, which are those of U.
template <typename Grid>
void RoundBlock(std::array<Side, kBlock>& w, const float* u, int64_t first, int64_t count,
                const Target& to) {
  constexpr auto kGroup = static_cast<int64_t>(Grid::kGroup);
  for (int64_t begin = 0; begin < count; begin += kGroup) {
    const auto size = static_cast<size_t>(std::min(kGroup, count - begin));
    std::array<Side, Grid::kGroup> group{};
    std::copy_n(w.begin() + begin, size, group.begin());
    const float* rows = u + begin * count + begin;
    GroupState<Grid> state{};
    const Side scales = RoundBest(group, rows, count, size, &state);
    StoreGroup<Grid>(state, scales, group, first + begin, size, to);
    for (int64_t j = begin + kGroup; j < count; ++j) {
      Side& column = w[static_cast<size_t>(j)];
      for (size_t i = 0; i < size; ++i) {
        const float factor = rows[static_cast<int64_t>(i) * count + j - begin];
        for (size_t r = 0; r < kRows; ++r) column[r] -= state.errors[i][r] * factor;
      }
    }
  }
}

template <typename Grid>
void RoundRows(std::span<const float> w, const std::vector<float>& factors, int64_t k,
               int8_t* codes, uint16_t* scales) {
  constexpr auto kGroup = static_cast<int64_t>(Grid::kGroup);
  const int64_t groups = (k + kGroup - 1) / kGroup;
  const size_t n = w.size() / static_cast<size_t>(k);
  for (size_t row = 0; row < n; row += kRows) {
    const size_t rows = std::min(kRows, n - row);
    const auto offset = static_cast<int64_t>(row);
    const Target to{codes + offset * k, scales + offset * groups, k, groups, rows};
    const float* u = factors.data();
    for (int64_t first = 0; first < k; first += kBlock) {
      const int64_t count = std::min(kBlock, k - first);
      alignas(kPackedAlignment) std::array<Side, kBlock> columns{};
      for (size_t r = 0; r < rows; ++r) {
        const float* from = w.data() + (offset + static_cast<int64_t>(r)) * k + first;
        for (int64_t i = 0; i < count; ++i) columns[static_cast<size_t>(i)][r] = from[i];
      }
      RoundBlock<Grid>(columns, u, first, count, to);
      u += count * count;
    }
  }
}

}  // namespace

ErrorFeedback::ErrorFeedback(const Cpu& cpu, const InputRows& inputs, int64_t k) : k_(k) {
  MLC_CHECK(k > 0 && inputs.m > 0 && inputs.ldx >= k) << "m " << inputs.m << " k " << k;
  const int64_t tail = k % kBlock;
  factors_.resize(static_cast<size_t>((k - tail) * kBlock + tail * tail));
  const auto factor = [&](int64_t block) { return factors_.data() + block * kBlock * kBlock; };
  const auto count = [&](int64_t block) { return std::min(kBlock, k - block * kBlock); };
  const int64_t blocks = (k + kBlock - 1) / kBlock;
  for (int64_t b = 0; b < blocks; ++b) Moments(cpu, inputs, b * kBlock, count(b), factor(b));
  cpu.pool->ParallelFor(blocks, [&](int64_t begin, int64_t end, int) {
    for (int64_t b = begin; b < end; ++b) Factor(factor(b), count(b));
  });
}

bool ErrorFeedback::Rounds(WeightFormat format) {
  return format == WeightFormat::kQ4 || format == WeightFormat::kQ6 || format == WeightFormat::kQ8;
}

void ErrorFeedback::Round(WeightFormat format, std::span<const float> w, int8_t* codes,
                          uint16_t* scales) const {
  MLC_CHECK(Rounds(format) && w.size() % static_cast<size_t>(k_) == 0)
      << FormatName(format) << ' ' << w.size() << " of " << k_;
  if (format == WeightFormat::kQ4) return RoundRows<Q4Grid>(w, factors_, k_, codes, scales);
  if (format == WeightFormat::kQ6) return RoundRows<Q6Grid>(w, factors_, k_, codes, scales);
  RoundRows<Q8Grid>(w, factors_, k_, codes, scales);
}

}  // namespace mlc_native::kernels
