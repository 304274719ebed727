// The CUDA kernels of a mixture of experts, the counterpart of kernels/experts.h for the CPU:
// RouterLogits and Route choose experts for each row, GroupedGemv multiplies the rows of every
// chosen expert with its matrix, and Mix adds up what the experts of a row give. Where the weights
// are of what experts read instead, Spread writes that.
//
// The contracts of kernels.h hold: launches depend on sizes alone, a row's choice, weights and
// results have the same bits in any batch, and unused rows choose nothing. Of matrices that no row
// has chosen, nothing is read.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/products.h"
#include "kernels/router_rule.h"

namespace mlc_native::kernels::cuda {

// ---- The choice ----

// logits[m, n] = x[m, k] w^T (+ bias[n]) for any m, with weights that are float32 whatever x is.
struct RouterLogitsArgs {
  DType dtype = DType::kBFloat16;  // of x and bias
  const float* weight = nullptr;   // [n, k]
  int64_t n = 0;
  int64_t k = 0;  // a multiple of 8
  const void* x = nullptr;
  int64_t ldx = 0;
  int64_t m = 0;
  const void* bias = nullptr;
  float* logits = nullptr;
  int64_t ld = 0;
};
void RouterLogits(const RouterLogitsArgs& args, Stream stream);

// The places [begin, end) of the rows that have chosen an expert.
struct ExpertGroup {
  int32_t expert = 0;
  int32_t begin = 0;
  int32_t end = 0;
};

// The experts of some rows, in device memory. A choice is a pair of a row and an expert; its place
// is its position when all choices are sorted by expert and then by row. An unused row has -1 as
// its experts and places.
struct ExpertChoices {
  int32_t* experts = nullptr;     // [m, num_chosen], ascending
  float* weights = nullptr;       // [m, num_chosen]
  int32_t* places = nullptr;      // [m, num_chosen]
  int32_t* rows = nullptr;        // [m * num_chosen], by place
  ExpertGroup* groups = nullptr;  // [MaxExpertGroups]: those of chosen experts, ascending, then
                                  // empty ones
};
inline int64_t MaxExpertGroups(const RouterRule& rule, int64_t m) {
  const int64_t choices = m * rule.num_chosen;
  return choices < rule.num_experts ? choices : rule.num_experts;
}

struct RouteArgs {
  const float* logits = nullptr;  // [m, num_experts]
  int64_t ld = 0;
  int64_t m = 0;
  const int32_t* lengths = nullptr;   // [m], 0: an unused row; null: all are used
  const float* correction = nullptr;  // as the CPU's, and the next one
  const float* scales = nullptr;
};
void Route(const RouterRule& rule, const RouteArgs& args, const ExpertChoices& choices,
           Stream stream);

// ---- Products of many matrices ----

// y[i] = x[rows[i]] w^T (+ bias), with the weight and bias of the group that has i. The matrices of
// all experts have one shape and format. Without groups (of the heads of latent attention): every
// matrix has all m rows, and its own columns of x and y.
struct GroupedGemvArgs {
  GemvArgs first;  // x and y of all groups, weight and bias of expert 0; m is the most rows that a
                   // group can have, of any number. Neither float_output nor accumulate
  int64_t weight_stride = 0;  // bytes from each expert to the next
  int64_t bias_stride = 0;
  const ExpertGroup* groups = nullptr;
  int64_t num_groups = 0;
  int64_t x_step = 0;  // without groups: elements from each matrix to the next
  int64_t y_step = 0;
  const int32_t* rows = nullptr;  // null: y[i] comes from x[i]
};
void GroupedGemv(const GroupedGemvArgs& args, Stream stream);

// ---- The sum ----

// out[i, n] = the sum over j of weights[i, j] * x[places[i, j], n], in the order of j, and then
// sigmoid(shared_gate[i]) * shared[i, n].
struct MixArgs {
  DType dtype = DType::kBFloat16;   // of x, shared and out
  const void* x = nullptr;          // [places, n]
  const int32_t* places = nullptr;  // [m, num_chosen]
  const float* weights = nullptr;   // [m, num_chosen]; null: ones
  int64_t num_chosen = 0;
  const void* shared = nullptr;  // [m, n]; null: none
  float shared_scale = 1.0f;
  const float* shared_gate = nullptr;  // null: its factor is 1
  int64_t ld_gate = 0;
  void* out = nullptr;  // [m, n]; overlaps neither x nor shared
  int64_t m = 0;
  int64_t n = 0;  // a multiple of 8
};
void Mix(const MixArgs& args, Stream stream);

// The other way: out[places[i, j], n] = weights[i, j] * x[i, n].
struct SpreadArgs {
  DType dtype = DType::kBFloat16;   // of x and out
  const void* x = nullptr;          // [m, n]
  const int32_t* places = nullptr;  // [m, num_chosen]
  const float* weights = nullptr;   // [m, num_chosen]
  int64_t num_chosen = 0;
  void* out = nullptr;  // [places, n]; does not overlap x
  int64_t m = 0;
  int64_t n = 0;  // a multiple of 8
};
void Spread(const SpreadArgs& args, Stream stream);

}  // namespace mlc_native::kernels::cuda
