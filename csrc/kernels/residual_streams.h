// Residual streams (AltUp): each row has several hidden states in place of one. A layer reads one
// of them, the active one, and what it computes of it corrects all.
//
// Of the streams h_0, h_1, ... of a row, with `router` the rows of a matrix, and both kinds of
// coefficients products of m = tanh(router norm(.)) with a matrix of their own:
//
//   kSpread    h_0 = x, and each other one is scaled to the magnitude of x
//   kPredict   h_i += sum over j of c_ij h_j, with m of the active stream; x = the active one
//   kCorrect   h_i += (1 + c_i) (x - h_active), with m of x; x = the active one, times `scale`
//   kAdd       h_i += norm(added) for i >= 1
//   kJoin      x = the mean of h_0 and of the parts of `added`, each of which is scaled to the
//              magnitude of h_0
//
// Hyper-connections (DeepSeek V4, manifold-constrained): each block of a layer reads a sum of the
// streams, and what it gives is added to all of them. With z, the products of the rows of `mix` and
// all streams of a row, divided by the root of their mean square, and sigmoids of s_k z_i + base_i
// with a scale s_k for each of three parts of z:
//
//   kRepeat    h_i = x
//   kCollapse  x = sum over i of (sigmoid of part 0 + floor)_i h_i. The doubled sigmoids of part 1,
//              and the matrix c that part 2 becomes, are kept behind the streams of the row
//              (KeptFloats). It begins as the softmax of each row, plus floor. Then its columns
//              are divided by their sums plus floor, `rounds` times, and its rows likewise in
//              between.
//   kExpand    h_i = (part 1)_i added + sum over j of c_ji h_j
//   kLeave     x as of kCollapse; `mix` has part 0 alone
//
// x is what the layer's blocks read and add to (the residual of run_layers.h). A vector's magnitude
// is the root of the mean of its squares, of one that is scaled at least the root of 1e-5.
#pragma once

#include <cstdint>

namespace mlc_native::kernels {

inline constexpr int64_t kMaxStreams = 8;
inline constexpr float kLeastMeanSquare = 1e-5f;

// What hyper-connections keep behind `count` streams of a row, and the rows of `mix`.
constexpr int64_t KeptFloats(int64_t count) { return count + count * count; }
constexpr int64_t NumMixes(int64_t count) { return 2 * count + count * count; }

// Stream i of row r begins at data + r * ld + i * step.
struct StreamsView {
  float* data = nullptr;
  int64_t ld = 0;
  int64_t step = 0;
  int64_t count = 0;  // in [2, kMaxStreams]
  int64_t active = 0;
};

enum class StreamOp : uint8_t {
  kSpread,
  kPredict,
  kCorrect,
  kAdd,
  kJoin,
  kRepeat,
  kCollapse,
  kExpand,
  kLeave,
};
constexpr bool IsOfHyperConnections(StreamOp op) { return op >= StreamOp::kRepeat; }

// A row-wise step of the CPU's kernels (RowStep). Norms are RMSNorms without an offset.
struct StreamStep {
  StreamOp op = StreamOp::kSpread;
  StreamsView streams{};
  float* x = nullptr;  // [m, dim], of all but kAdd and kExpand
  int64_t ldx = 0;
  const float* added = nullptr;  // kAdd, kExpand: [m, dim]; kJoin: [m, (count - 1) * dim]
  int64_t ld_added = 0;
  const float* norm = nullptr;  // [dim], of kPredict, kCorrect and kAdd
  float eps = 1e-6f;
  const float* router = nullptr;  // [count, dim], of kPredict and kCorrect
  const float* coefficients =
      nullptr;                   // kPredict: [count * count, count]; kCorrect: [count, count]
  const float* scale = nullptr;  // [dim], of kCorrect; null: ones
  // Of hyper-connections:
  const float* mix = nullptr;         // [NumMixes(count), count * dim]; kLeave: [count, ...]
  const float* mix_base = nullptr;    // as many as rows
  const float* mix_scales = nullptr;  // one for each part
  float floor = 0;
  int64_t rounds = 1;
  int64_t m = 0;
  int64_t dim = 0;
};

}  // namespace mlc_native::kernels
