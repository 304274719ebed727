// What LatentWorker counts on, of latents and of wide heads, each left out in turn: its values are
// others then.
#include "cuda/paged_kv.h"
#include "kernels/cuda/latent_worker.cuh"

namespace mlc_native::kernels::cuda {
namespace {
namespace latent_faults {  // faults of other attention have the same names

// ---- Planted bugs ----

struct NoKeyWait : LatentRules {
  static void AwaitKeys() { __syncthreads(); }
};
struct NoKeyBarrier : LatentRules {
  static void AwaitKeys() { WaitForCopies<0>(); }
};
struct NoWidenedBarrier : LatentRules {
  static void AwaitWidened() {}
};
struct NoScoreBarrier : LatentRules {
  static void AwaitScores() {}
};
struct NoValueWait : LatentRules {
  static void AwaitValues() {}
};
struct LateValues : LatentRules {  // other lanes may not have copied a scale yet
  static void AwaitValues() { WaitForCopies<1>(); }
};
struct NoWeightBarrier : LatentRules {
  static void AwaitWeights() {}
};
struct NoSoftmaxBarrier : LatentRules {
  static void AwaitSoftmax() {}
};
struct NoDiagonal : LatentRules {
  static bool IsSeen(int, int) { return true; }
};
struct LateDiagonal : LatentRules {
  static bool IsSeen(int key, int end) { return key <= end; }
};
struct NoScaling : LatentRules {
  static bool HasOtherMaximum(bool) { return false; }
};

struct FaultArgs {
  KvPages kv;
  const int32_t* table;
  const BFloat16* q;
  float* out;  // [sets, rows, value_dim]
};

struct FaultsPlace {
  float* row;
  float total;

  void Store(int column, float x0, float x1) const {
    row[column] = x0 / total;
    row[column + 1] = x1 / total;
  }
};

constexpr int kFirstEnd = 70;  // that the first row sees; the others see one more each
constexpr int kSets = 3;       // of rows, one behind the other

template <typename Shape, typename Kv, typename Rules>
void FaultsKernel(const FaultArgs args) {
  WaitForPrevious();
  for (int set = 0; set < kSets; ++set) {
    const int64_t row_of_set = set * Shape::kRows;
    const auto end = [&](int row) { return kFirstEnd + row + 20 * set; };
    LatentWorker<BFloat16, Kv, Shape, Rules>(args.kv, 0.2f, DynamicShared())
        .Run(
            {args.table, 0, end(Shape::kRows - 1)},
            [&](int row) { return args.q + (row_of_set + row) * args.kv.head_dim; }, end,
            [&](int row, SoftmaxOfHead softmax, bool) -> FaultsPlace {
              return {args.out + (row_of_set + row) * args.kv.value_dim(), softmax.y};
            });
  }
}

class LatentFaultsTest : public CudaKernelTest {
 protected:
  template <typename Shape, typename Kv, typename Rules>
  Floats Run() {
    constexpr int64_t kLatent = 72;
    constexpr int64_t kDim = kLatent + 16;
    const auto format = kHasKvScales<Kv> ? KvFormat::kFloat8 : KvFormat::kBFloat16;
    PagedKv paged({.format = format, .kv_heads = 1, .head_dim = kDim},
                  {kFirstEnd + 20 * kSets + Shape::kRows}, {1});
    if (!Shape::kValuesApart) {
      paged.kv.latent_dim = kLatent;
      paged.kv.v = nullptr;
    }
    random_.seed(5);
    const Floats q = Random(DType::kBFloat16, kSets * 32 * kDim, 2);
    const DeviceBytes device_q(Encode(DType::kBFloat16, q));
    const DeviceArray<float> out(kSets * Shape::kRows * paged.kv.value_dim());
    Launch(FaultsKernel<Shape, Kv, Rules>,
           {.grid = dim3(1),
            .threads = Shape::kThreads,
            .shared_bytes = sizeof(typename Shape::template Shared<BFloat16, Kv>)},
           nullptr,
           FaultArgs{.kv = paged.kv,
                     .table = paged.tables->data(),
                     .q = reinterpret_cast<const BFloat16*>(device_q.data()),
                     .out = out.data()});
    return out.Download();
  }

  // Whether a run of some has other bits: the emulator's copies are late and its threads take turns
  // by chance.
  template <typename Rules, typename Kv = BFloat16, template <int> typename Shape = LatentShape>
  bool IsFound() {
    for (int run = 0; run < 8; ++run) {
      if (Run<Shape<1>, Kv, Rules>() != Run<Shape<1>, Kv, LatentRules>()) return true;
      if (Run<Shape<2>, Kv, Rules>() != Run<Shape<2>, Kv, LatentRules>()) return true;
    }
    return false;
  }
  template <typename Rules, typename Kv = BFloat16>
  bool IsFoundInWideHeads() {
    return IsFound<Rules, Kv, WideShape>();
  }
};

TEST_F(LatentFaultsTest, TheWorkerItselfHasTheSameBits) {
  EXPECT_FALSE(IsFound<LatentRules>());
  EXPECT_FALSE((IsFound<LatentRules, Float8>()));
  EXPECT_FALSE(IsFoundInWideHeads<LatentRules>());
  EXPECT_FALSE((IsFoundInWideHeads<LatentRules, Float8>()));
}

TEST_F(LatentFaultsTest, AMissingWaitOrBarrierShows) {
  EXPECT_TRUE(IsFound<NoKeyWait>());
  EXPECT_TRUE(IsFound<NoKeyBarrier>());
  EXPECT_TRUE((IsFound<NoKeyWait, Float8>()));
  EXPECT_TRUE((IsFound<NoKeyBarrier, Float8>()));
  EXPECT_TRUE((IsFound<NoWidenedBarrier, Float8>()));
  EXPECT_TRUE(IsFound<NoScoreBarrier>());
  EXPECT_TRUE(IsFound<NoWeightBarrier>());
  EXPECT_TRUE(IsFound<NoSoftmaxBarrier>());
}

TEST_F(LatentFaultsTest, AMissingWaitOrBarrierShowsInWideHeads) {
  EXPECT_TRUE(IsFoundInWideHeads<NoKeyWait>());
  EXPECT_TRUE(IsFoundInWideHeads<NoKeyBarrier>());
  EXPECT_TRUE(IsFoundInWideHeads<NoValueWait>());
  EXPECT_TRUE((IsFoundInWideHeads<NoKeyWait, Float8>()));
  EXPECT_TRUE((IsFoundInWideHeads<NoKeyBarrier, Float8>()));
  EXPECT_TRUE((IsFoundInWideHeads<NoWidenedBarrier, Float8>()));
  EXPECT_TRUE((IsFoundInWideHeads<NoValueWait, Float8>()));
  EXPECT_TRUE((IsFoundInWideHeads<LateValues, Float8>()));
  EXPECT_TRUE((IsFoundInWideHeads<NoScoreBarrier, Float8>()));
  EXPECT_TRUE(IsFoundInWideHeads<NoScoreBarrier>());
  EXPECT_TRUE(IsFoundInWideHeads<NoWeightBarrier>());
  EXPECT_TRUE(IsFoundInWideHeads<NoSoftmaxBarrier>());
}

TEST_F(LatentFaultsTest, AMissingMaskShows) {
  EXPECT_TRUE(IsFound<NoDiagonal>());
  EXPECT_TRUE(IsFound<LateDiagonal>());
  EXPECT_TRUE(IsFoundInWideHeads<NoDiagonal>());
  EXPECT_TRUE(IsFoundInWideHeads<LateDiagonal>());
}

TEST_F(LatentFaultsTest, SumsOfAnotherScaleShow) {
  EXPECT_TRUE(IsFound<NoScaling>());
  EXPECT_TRUE(IsFoundInWideHeads<NoScaling>());
}

}  // namespace latent_faults
}  // namespace
}  // namespace mlc_native::kernels::cuda
