// RouterLogits, Route, Mix and Spread: what a mixture of experts computes around the experts'
// products.
//
// RouterLogits: a warp per expert and kRouterRows rows, which share its loads of the weight.
// Route: a warp per row chooses its experts, whose scores stay in shared memory. Then a block per
// expert counts the choices of all experts and gives each of its own a place: num_experts reads of
// all choices, from the L2 cache.
// Mix: a thread per 8 elements of a row; it reads each output of an expert once.
#include <climits>

#include "kernels/cuda/experts.h"
#include "kernels/cuda/numbers.cuh"
#include "kernels/cuda/reduce.cuh"

namespace mlc_native::kernels::cuda {
inline namespace experts_cu {

constexpr int kExpertThreads = 256;
constexpr int kWarps = kExpertThreads / kWarp;
constexpr int kRouterRows = 4;

__device__ inline int Lane() { return static_cast<int>(threadIdx.x) % kWarp; }
__device__ inline unsigned LanesBelow() { return (1u << Lane()) - 1; }

// ---- Logits ----

template <typename T>
__global__ void __launch_bounds__(kExpertThreads)
    RouterLogitsKernel(const __grid_constant__ RouterLogitsArgs args) {
  WaitForPrevious();
  const int64_t column = static_cast<int64_t>(blockIdx.x) * kWarps + threadIdx.x / kWarp;
  const int64_t first_row = static_cast<int64_t>(blockIdx.y) * kRouterRows;
  if (column >= args.n) return;
  float sums[kRouterRows] = {};
  for (int64_t k = Lane() * kVector; k < args.k; k += kWarp * kVector) {
    float w[kVector];
    LoadFloats(args.weight + column * args.k + k, w);
#pragma unroll
    for (int r = 0; r < kRouterRows; ++r) {
      const int64_t row = first_row + r < args.m ? first_row + r : args.m - 1;
      float x[kVector];
      LoadFloats(static_cast<const T*>(args.x) + row * args.ldx + k, x);
#pragma unroll
      for (int j = 0; j < kVector; ++j) sums[r] += w[j] * x[j];
    }
  }
#pragma unroll
  for (int r = 0; r < kRouterRows; ++r) {
    float sum = ReduceWarp(sums[r], Plus());
    if (Lane() != 0 || first_row + r >= args.m) continue;
    if (args.bias != nullptr) sum += ToFloat(static_cast<const T*>(args.bias)[column]);
    args.logits[(first_row + r) * args.ld + column] = sum;
  }
}

// ---- The choice of a row ----

struct ChooseArgs {
  RouterRule rule;
  RouteArgs route;
  ExpertChoices choices;
};

// One of some values. NaN is as bad as -inf, and of equal ones the lower is better.
struct Candidate {
  float value;
  int index;
};

__device__ inline Candidate BestOfWarp(Candidate mine) {
#pragma unroll
  for (int distance = kWarp / 2; distance > 0; distance /= 2) {
    const Candidate other = {__shfl_xor_sync(kAllLanes, mine.value, distance),
                             __shfl_xor_sync(kAllLanes, mine.index, distance)};
    const bool is_better =
        other.value > mine.value || (other.value == mine.value && other.index < mine.index);
    if (is_better) mine = other;
  }
  return mine;
}

// A warp. Values of expert i belong to lane i % 32, and bit i / 32 of a lane's set is that expert:
// lanes read values of their own only.
class RowRouter {
 public:
  __device__ RowRouter(const ChooseArgs& args, int64_t row, float* scores, float* choice,
                       float* others)
      : rule_(args.rule),
        logits_(args.route.logits + row * args.route.ld),
        correction_(args.route.correction),
        scales_(args.route.scales),
        experts_(args.choices.experts + row * args.rule.num_chosen),
        weights_(args.choices.weights + row * args.rule.num_chosen),
        num_experts_(static_cast<int>(args.rule.num_experts)),
        num_chosen_(static_cast<int>(args.rule.num_chosen)),
        scores_(scores),
        choice_(choice),
        others_(others) {}

  __device__ void Run() {
    if (rule_.score == RouterScore::kSparseMixer) {
      ChooseOneByOne();
    } else {
      Score();
      if (rule_.num_chosen_groups < rule_.num_groups) LeaveBestGroups();
      for (int i = 0; i < num_chosen_; ++i) {
        Add(BestOf(choice_, num_experts_, taken_).index, &taken_);
      }
    }
    Write();
  }

 private:
  __device__ static bool Has(uint32_t set, int i) { return (set >> (i / kWarp) & 1) != 0; }
  __device__ static void Add(int i, uint32_t* set) {
    if (i % kWarp == Lane()) *set |= 1u << (i / kWarp);
  }

  // The best value outside of the set. Requires: there is one.
  __device__ static Candidate BestOf(const float* values, int count, uint32_t set) {
    Candidate best = {-INFINITY, INT_MAX};
    for (int i = Lane(); i < count; i += kWarp) {
      if (Has(set, i)) continue;
      const float value = isnan(values[i]) ? -INFINITY : values[i];
      if (best.index == INT_MAX || value > best.value) best = {value, i};
    }
    return BestOfWarp(best);
  }

  __device__ float Capped(float logit) const {
    const float cap = rule_.logit_cap;
    return cap > 0.0f ? cap * tanhf(logit / cap) : logit;
  }

  __device__ void Score() {
    float largest = -INFINITY;
    for (int i = Lane(); i < num_experts_; i += kWarp) largest = fmaxf(largest, logits_[i]);
    largest = ReduceWarp(largest, Max());
    float sum = 0.0f;
    for (int i = Lane(); i < num_experts_; i += kWarp) {
      scores_[i] = rule_.score == RouterScore::kSigmoid ? 1.0f / (1.0f + expf(-Capped(logits_[i])))
                                                        : expf(logits_[i] - largest);
      sum += scores_[i];
    }
    sum = ReduceWarp(sum, Plus());
    for (int i = Lane(); i < num_experts_; i += kWarp) {
      if (rule_.score == RouterScore::kSoftmax) scores_[i] /= sum;
      const float judged = rule_.judges_logits ? logits_[i] : scores_[i];
      choice_[i] = correction_ == nullptr ? judged : judged + correction_[i];
    }
  }

  // Experts of the other groups are never chosen.
  __device__ void LeaveBestGroups() {
    const auto num_groups = static_cast<int>(rule_.num_groups);
    const int size = num_experts_ / num_groups;
    __syncwarp();  // a group's values belong to many lanes
    for (int group = Lane(); group < num_groups; group += kWarp) {
      float best = -INFINITY;
      float second = -INFINITY;
      for (int i = group * size; i < (group + 1) * size; ++i) {
        second = fmaxf(second, fminf(best, choice_[i]));
        best = fmaxf(best, choice_[i]);
      }
      others_[group] = size == 1 || rule_.num_judged == 1 ? best : best + second;
    }
    __syncwarp();
    uint32_t groups = 0;
    uint32_t left = 0;  // experts
    for (int n = 0; n < static_cast<int>(rule_.num_chosen_groups); ++n) {
      const int group = BestOf(others_, num_groups, groups).index;
      Add(group, &groups);
      for (int i = Lane(); i < num_experts_; i += kWarp) {
        if (i / size == group) Add(i, &left);
      }
    }
    for (int i = Lane(); i < num_experts_; i += kWarp) {
      if (!Has(left, i)) choice_[i] = -INFINITY;
    }
  }

  __device__ void ChooseOneByOne() {
    for (int chosen = 0; chosen < num_chosen_; ++chosen) {
      const Candidate best = BestOf(logits_, num_experts_, taken_);
      float sum = 0.0f;
      for (int i = Lane(); i < num_experts_; i += kWarp) {
        const float size = fmaxf(fabsf(logits_[i]), best.value);
        const bool is_far = (best.value - logits_[i]) / size > 2 * rule_.jitter;
        if (!Has(taken_, i) && !is_far) sum += expf(logits_[i] - best.value);
      }
      sum = ReduceWarp(sum, Plus());
      if (best.index % kWarp == Lane()) scores_[best.index] = 1.0f / sum;
      Add(best.index, &taken_);
    }
  }

  // The experts that are taken, ascending, and their weights.
  __device__ void Write() {
    __syncwarp();
    int count = 0;
    for (int first = 0; first < num_experts_; first += kWarp) {
      const bool is_taken = Has(taken_, first + Lane());
      const unsigned lanes = __ballot_sync(kAllLanes, is_taken);
      if (is_taken) {
        const int at = count + __popc(lanes & LanesBelow());
        experts_[at] = first + Lane();
        others_[at] = scores_[first + Lane()];
      }
      count += __popc(lanes);
    }
    __syncwarp();
    float factor = rule_.scale;
    if (rule_.renormalize) {
      float sum = 0.0f;
      for (int i = 0; i < num_chosen_; ++i) sum += others_[i];
      factor /= fmaxf(sum, rule_.smallest_sum);
    }
    for (int i = Lane(); i < num_chosen_; i += kWarp) {
      const float scale = scales_ == nullptr ? 1.0f : scales_[experts_[i]];
      weights_[i] = others_[i] * factor * scale;
    }
  }

  const RouterRule& rule_;
  const float* const logits_;
  const float* const correction_;
  const float* const scales_;
  int32_t* const experts_;
  float* const weights_;
  const int num_experts_;
  const int num_chosen_;
  float* const scores_;
  float* const choice_;  // what the choice goes by
  float* const others_;  // scores of groups, then those of the chosen experts
  uint32_t taken_ = 0;
};

__global__ void __launch_bounds__(kWarp) ChooseKernel(const __grid_constant__ ChooseArgs args) {
  WaitForPrevious();
  __shared__ float scores[kMaxExperts];
  __shared__ float choice[kMaxExperts];
  __shared__ float others[kMaxExperts];
  const int64_t row = blockIdx.x;
  if (args.route.lengths != nullptr && args.route.lengths[row] == 0) {
    for (int64_t i = Lane(); i < args.rule.num_chosen; i += kWarp) {
      const int64_t at = row * args.rule.num_chosen + i;
      args.choices.experts[at] = args.choices.places[at] = -1;
      args.choices.weights[at] = 0.0f;
    }
    return;
  }
  RowRouter(args, row, scores, choice, others).Run();
}

// ---- Places ----

struct SortArgs {
  ExpertChoices choices;
  int num_experts;
  int num_chosen;   // of a row
  int num_choices;  // of all rows
  int num_groups;
};

struct Counts {
  int before;         // choices of experts below this one
  int own;            // of this one
  int groups_before;  // experts below this one that are chosen
  int groups;         // experts that are chosen
};

__device__ inline Counts CountChoices(const SortArgs& args, int expert) {
  __shared__ int counts[kMaxExperts];
  __shared__ int sums[3][kWarps];
  const auto thread = static_cast<int>(threadIdx.x);
  for (int i = thread; i < args.num_experts; i += kExpertThreads) counts[i] = 0;
  __syncthreads();
  for (int i = thread; i < args.num_choices; i += kExpertThreads) {
    const int chosen = args.choices.experts[i];
    if (chosen >= 0) atomicAdd(&counts[chosen], 1);
  }
  __syncthreads();
  Counts mine{};
  for (int i = thread; i < args.num_experts; i += kExpertThreads) {
    const int is_chosen = counts[i] > 0 ? 1 : 0;
    mine.groups += is_chosen;
    if (i >= expert) continue;
    mine.before += counts[i];
    mine.groups_before += is_chosen;
  }
  return {ReduceBlock(mine.before, Plus(), sums[0]), counts[expert],
          ReduceBlock(mine.groups_before, Plus(), sums[1]),
          ReduceBlock(mine.groups, Plus(), sums[2])};
}

__global__ void __launch_bounds__(kExpertThreads)
    SortKernel(const __grid_constant__ SortArgs args) {
  WaitForPrevious();
  __shared__ int found[kWarps];  // choices, by warp
  const auto thread = static_cast<int>(threadIdx.x);
  const auto expert = static_cast<int>(blockIdx.x);
  const Counts counts = CountChoices(args, expert);
  if (expert == 0) {
    for (int i = counts.groups + thread; i < args.num_groups; i += kExpertThreads) {
      args.choices.groups[i] = {0, 0, 0};
    }
  }
  if (counts.own == 0) return;
  if (thread == 0) {
    args.choices.groups[counts.groups_before] = {expert, counts.before, counts.before + counts.own};
  }
  int place = counts.before;
  for (int first = 0; first < args.num_choices; first += kExpertThreads) {
    const int i = first + thread;
    const bool is_own = i < args.num_choices && args.choices.experts[i] == expert;
    const unsigned lanes = __ballot_sync(kAllLanes, is_own);
    if (Lane() == 0) found[thread / kWarp] = __popc(lanes);
    __syncthreads();
    int at = place + __popc(lanes & LanesBelow());
    for (int warp = 0; warp < kWarps; ++warp) {
      if (warp < thread / kWarp) at += found[warp];
      place += found[warp];
    }
    if (is_own) {
      args.choices.places[i] = at;
      args.choices.rows[at] = i / args.num_chosen;
    }
    __syncthreads();
  }
}

// ---- The sum ----

template <typename T>
__global__ void __launch_bounds__(kExpertThreads) MixKernel(const __grid_constant__ MixArgs args) {
  WaitForPrevious();
  const int64_t vectors = args.n / kVector;
  const int64_t i = static_cast<int64_t>(blockIdx.x) * kExpertThreads + threadIdx.x;
  if (i >= args.m * vectors) return;
  const int64_t row = i / vectors;
  const int64_t column = i % vectors * kVector;
  float sum[kVector] = {};
  const auto add = [&](const void* rows, int64_t from, float weight) {
    float x[kVector];
    LoadFloats(static_cast<const T*>(rows) + from * args.n + column, x);
#pragma unroll
    for (int j = 0; j < kVector; ++j) sum[j] += weight * x[j];
  };
  for (int64_t j = row * args.num_chosen; j < (row + 1) * args.num_chosen; ++j) {
    if (args.places[j] < 0) continue;
    add(args.x, args.places[j], args.weights == nullptr ? 1.0f : args.weights[j]);
  }
  if (args.shared != nullptr) {
    const float* gate = args.shared_gate;
    const float factor = gate == nullptr ? 1.0f : 1.0f / (1.0f + expf(-gate[row * args.ld_gate]));
    add(args.shared, row, args.shared_scale * factor);
  }
  StoreFloats(static_cast<T*>(args.out) + row * args.n + column, sum);
}

// A thread per 8 elements of a choice.
template <typename T>
__global__ void __launch_bounds__(kExpertThreads)
    SpreadKernel(const __grid_constant__ SpreadArgs args) {
  WaitForPrevious();
  const int64_t vectors = args.n / kVector;
  const int64_t i = static_cast<int64_t>(blockIdx.x) * kExpertThreads + threadIdx.x;
  if (i >= args.m * args.num_chosen * vectors) return;
  const int64_t choice = i / vectors;
  const int64_t column = i % vectors * kVector;
  const int64_t place = args.places[choice];
  if (place < 0) return;
  float x[kVector];
  LoadFloats(static_cast<const T*>(args.x) + choice / args.num_chosen * args.n + column, x);
  const float weight = args.weights[choice];
#pragma unroll
  for (float& element : x) element *= weight;
  StoreFloats(static_cast<T*>(args.out) + place * args.n + column, x);
}

dim3 Blocks(int64_t items, int64_t of_block) {
  return dim3(static_cast<unsigned>((items + of_block - 1) / of_block));
}

}  // namespace experts_cu

void RouterLogits(const RouterLogitsArgs& args, Stream stream) {
  MLC_CHECK(args.k % kVector == 0 && args.ld >= args.n) << args.n << " x " << args.k;
  if (args.m == 0) return;
  LaunchShape shape{.grid = Blocks(args.n, kWarps), .threads = kExpertThreads};
  shape.grid.y = Blocks(args.m, kRouterRows).x;
  WithActivationType(args.dtype, [&](auto tag) {
    Launch(RouterLogitsKernel<typename decltype(tag)::Type>, shape, stream, args);
  });
}

void Route(const RouterRule& rule, const RouteArgs& args, const ExpertChoices& choices,
           Stream stream) {
  MLC_CHECK(rule.IsValid()) << rule.num_chosen << " of " << rule.num_experts << " experts";
  MLC_CHECK(args.ld >= rule.num_experts) << args.ld;
  const int64_t num_choices = args.m * rule.num_chosen;
  MLC_CHECK(num_choices <= INT_MAX - kExpertThreads) << num_choices;
  if (args.m == 0) return;
  Launch(ChooseKernel, {.grid = Blocks(args.m, 1), .threads = kWarp}, stream,
         ChooseArgs{.rule = rule, .route = args, .choices = choices});
  Launch(SortKernel, {.grid = Blocks(rule.num_experts, 1), .threads = kExpertThreads}, stream,
         SortArgs{.choices = choices,
                  .num_experts = static_cast<int>(rule.num_experts),
                  .num_chosen = static_cast<int>(rule.num_chosen),
                  .num_choices = static_cast<int>(num_choices),
                  .num_groups = static_cast<int>(MaxExpertGroups(rule, args.m))});
}

void Mix(const MixArgs& args, Stream stream) {
  MLC_CHECK(args.n % kVector == 0) << args.n;
  if (args.m == 0) return;
  WithActivationType(args.dtype, [&](auto tag) {
    Launch(MixKernel<typename decltype(tag)::Type>,
           {.grid = Blocks(args.m * args.n / kVector, kExpertThreads), .threads = kExpertThreads},
           stream, args);
  });
}

void Spread(const SpreadArgs& args, Stream stream) {
  MLC_CHECK(args.n % kVector == 0) << args.n;
  if (args.m == 0) return;
  const int64_t vectors = args.m * args.num_chosen * args.n / kVector;
  WithActivationType(args.dtype, [&](auto tag) {
    Launch(SpreadKernel<typename decltype(tag)::Type>,
           {.grid = Blocks(vectors, kExpertThreads), .threads = kExpertThreads}, stream, args);
  });
}

}  // namespace mlc_native::kernels::cuda
