// The kernels of a mixture of experts: Route chooses experts for each row and sorts the choices by
// expert, GroupedLinear multiplies the rows of every chosen expert with its matrix, and Mix
// (kernels.h) adds up what the experts of a row give.
//
// The contracts of kernels.h hold: a row's choice, weights and results have the same bits in any
// batch. Of matrices that no row has chosen, nothing is read.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/kernels.h"
#include "kernels/router_rule.h"

namespace mlc_native::kernels {

// ---- The choice ----

// The rows [begin, end) of a grouped linear, and the expert that they go to.
struct LinearGroup {
  int32_t expert = 0;
  int64_t begin = 0;
  int64_t end = 0;
  const PackedLinear* weight = nullptr;
  const float* bias = nullptr;  // null: none
};

// The experts of some rows. A choice is a pair of a row and an expert; its place is its position
// when all choices are sorted by expert and then by row.
struct ExpertChoices {
  std::vector<int32_t> experts;     // [m, num_chosen], ascending, or those of a table
  std::vector<float> weights;       // [m, num_chosen]
  std::vector<int32_t> places;      // [m, num_chosen]
  std::vector<int32_t> rows;        // [m * num_chosen], by place
  std::vector<LinearGroup> groups;  // the places of each expert that has some, ascending

  // Makes room for as many rows. Route allocates nothing for up to that many.
  MLC_NATIVE_PRIVATE_API void Resize(int64_t max_rows, const RouterRule& rule);
};

struct RouteArgs {
  const float* logits = nullptr;  // [m, num_experts]
  int64_t ld = 0;
  int64_t m = 0;
  // Added to the scores for the choice, while weights come from the scores; null: none. Not for
  // kSparseMixer.
  const float* correction = nullptr;
  const float* scales = nullptr;  // [num_experts]: of the weights, at last; null: none
  // The experts of a row are those of its id, [ids, num_chosen], in place of a choice; null: no. An
  // expert may be there several times. Not for kSparseMixer.
  const int32_t* table = nullptr;
  const int32_t* ids = nullptr;  // [m]
};
// Requires: `choices` has room for m rows.
MLC_NATIVE_PRIVATE_API void Route(const Cpu& cpu, const RouterRule& rule, const RouteArgs& args,
                                  ExpertChoices* choices);

// ---- Linears of many matrices ----

// y[i] = x[rows[i]] w^T (+ bias), with the weight and bias of the group that has i.
struct GroupedLinearArgs {
  // Consecutive from 0 on, none empty. All weights have the same shape; formats may differ.
  std::span<const LinearGroup> groups;
  const float* x = nullptr;
  int64_t ldx = 0;
  const int32_t* rows = nullptr;  // null: y[i] comes from x[i]
  float* y = nullptr;
  int64_t ldy = 0;
  void* workspace = nullptr;  // LinearWorkspaceBytes(all rows, k), aligned to kPackedAlignment
};
// Runs the steps `before` on the rows x and then the linears, all panels in one loop. All of x is
// read before y is written, so that they may overlap. Requires: `rows` is null or `before` empty.
MLC_NATIVE_PRIVATE_API void GroupedLinear(const Cpu& cpu, const GroupedLinearArgs& args,
                                          std::span<const RowStep> before = {});

}  // namespace mlc_native::kernels
