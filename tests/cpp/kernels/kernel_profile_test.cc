// KernelProfile through the kernels that it measures: what it counts is known, and times add up.
#include "kernels/kernel_profile.h"

#include <numeric>
#include <string_view>

#include "kernels/experts.h"
#include "kernels/test_util.h"
#include "support/json.h"

namespace mlc_native::kernels {
namespace {

constexpr int64_t kRows = 40, kHidden = 64, kHeads = 4, kKvHeads = 2, kHeadDim = 16;
constexpr int64_t kOutputs = (kHeads + 2 * kKvHeads) * kHeadDim;
constexpr int kThreads = 3;

// A normalized linear, rope, the write of K and V, and attention over rows of one sequence.
class KernelProfileTest : public KernelTest {
 protected:
  Floats Run(KernelProfile* profile) {
    Cpu cpu = Threads(kThreads);
    cpu.profile = profile;
    Floats hidden(kRows * kHidden), qkv(kRows * kOutputs), out(kRows * kHeads * kHeadDim);
    const AlignedBuffer inputs(LinearWorkspaceBytes(kRows, kHidden));
    const RowStep norm = NormalizeArgs{.x = x_.data(),
                                       .ldx = kHidden,
                                       .y = hidden.data(),
                                       .ldy = kHidden,
                                       .weight = norm_.data(),
                                       .m = kRows,
                                       .dim = kHidden};
    Linear(cpu, w_,
           {.x = hidden.data(),
            .ldx = kHidden,
            .m = kRows,
            .y = qkv.data(),
            .ldy = kOutputs,
            .workspace = inputs.data()},
           {&norm, 1});
    float* k = qkv.data() + kHeads * kHeadDim;
    WriteKv(cpu, kv_,
            {.k = k,
             .ldk = kOutputs,
             .v = k + kKvHeads * kHeadDim,
             .ldv = kOutputs,
             .m = kRows,
             .slots = slots_.data()});
    const AttentionSequence sequence{.num_rows = kRows, .block_table = pages_.data()};
    const AlignedBuffer workspace(AttentionWorkspaceBytes(kThreads, kHeads, kKvHeads, kHeadDim));
    PagedAttention(cpu, kv_,
                   {.q = qkv.data(),
                    .ldq = kOutputs,
                    .out = out.data(),
                    .ldo = kHeads * kHeadDim,
                    .q_heads = kHeads,
                    .window = kWindow,
                    .sequences = &sequence,
                    .num_sequences = 1,
                    .workspace = workspace.data()});
    return out;
  }

  void SetUp() override {
    PackLinear(w_, 0,
               {.dtype = DType::kFloat32, .data = weight_.data(), .ld = kHidden, .rows = kOutputs});
    std::iota(slots_.begin(), slots_.end(), 0);
    std::iota(pages_.begin(), pages_.end(), 0);
  }

  static constexpr int64_t kWindow = 30, kPages = (kRows + kPageSize - 1) / kPageSize;
  const Floats x_ = Random(kRows * kHidden), norm_ = Random(kHidden),
               weight_ = Random(kOutputs * kHidden);
  AlignedBuffer packed_{PackedLinearBytes(isa(), WeightFormat::kQ8, kOutputs, kHidden)};
  PackedLinear w_ = MakePackedLinear(isa(), WeightFormat::kQ8, kOutputs, kHidden, packed_.data());
  AlignedBuffer k_pages_{KvLayerBytes(KvFormat::kFloat32, kPages, kKvHeads, kHeadDim)};
  AlignedBuffer v_pages_{KvLayerBytes(KvFormat::kFloat32, kPages, kKvHeads, kHeadDim)};
  KvPages kv_{.format = KvFormat::kFloat32,
              .kv_heads = kKvHeads,
              .head_dim = kHeadDim,
              .num_pages = kPages,
              .k_pages = k_pages_.data(),
              .v_pages = v_pages_.data()};
  std::vector<int64_t> slots_ = std::vector<int64_t>(kRows);
  std::vector<int32_t> pages_ = std::vector<int32_t>(kPages);
};

const JsonValue& KernelNamed(const JsonValue& profile, std::string_view name) {
  for (const JsonValue& kernel : profile.At("kernels").AsArray()) {
    if (kernel.At("name").AsString() == name) return kernel;
  }
  throw std::runtime_error("no kernel " + std::string(name));
}

TEST_P(KernelProfileTest, ChangesNoResult) {
  KernelProfile profile(kThreads);
  const Floats plain = Run(nullptr), profiled = Run(&profile);
  EXPECT_TRUE(SameBits(plain.data(), profiled.data(), std::ssize(plain)));
}

TEST_P(KernelProfileTest, CountsCallsBytesAndOperations) {
  KernelProfile profile(kThreads);
  constexpr int kRuns = 2;
  for (int i = 0; i < kRuns; ++i) Run(&profile);
  const JsonValue json = ParseJson(profile.Json());
  EXPECT_EQ(json.At("num_threads").AsInteger(), kThreads);
  EXPECT_EQ(json.At("kernels").AsArray().size(), 5U);
  const auto expect = [&](std::string_view name, int64_t bytes, int64_t operations) {
    const JsonValue& kernel = KernelNamed(json, name);
    EXPECT_EQ(kernel.At("calls").AsInteger(), kRuns) << name;
    EXPECT_EQ(kernel.At("bytes").AsNumber(), static_cast<double>(kRuns * bytes)) << name;
    EXPECT_EQ(kernel.At("operations").AsNumber(), static_cast<double>(kRuns * operations)) << name;
  };
  expect("linear", static_cast<int64_t>(packed_.size()), 2 * kRows * kOutputs * kHidden);
  expect("normalize", 2 * 4 * kRows * kHidden, kRows * kHidden);
  expect("inputs of linears", 5 * kRows * kHidden, kRows * kHidden);
  expect("write K and V", 4 * 4 * kRows * kKvHeads * kHeadDim, 4 * kRows * kKvHeads * kHeadDim);
  // The first kWindow rows attend to 1, 2, ... keys, the others to kWindow.
  const int64_t keys = kWindow * (kWindow + 1) / 2 + (kRows - kWindow) * kWindow;
  expect("attention", 2 * 4 * kRows * kKvHeads * kHeadDim, 4 * kHeads * kHeadDim * keys);
  EXPECT_EQ(KernelNamed(json, "linear").At("format").AsString(), "q8");
  EXPECT_EQ(KernelNamed(json, "linear").At("n").AsInteger(), kOutputs);
  EXPECT_EQ(KernelNamed(json, "linear").At("k").AsInteger(), kHidden);
}

// Of each loop, the threads' time is that of kernels or a wait.
TEST_P(KernelProfileTest, TimesOfThreadsAddUp) {
  KernelProfile profile(kThreads);
  for (int i = 0; i < 20; ++i) Run(&profile);
  const JsonValue json = ParseJson(profile.Json());
  double sum = 0;
  for (const JsonValue& kernel : json.At("kernels").AsArray()) {
    EXPECT_GT(kernel.At("busy_s").AsNumber(), 0) << kernel.At("name").AsString();
    EXPECT_GE(kernel.At("wait_s").AsNumber(), 0) << kernel.At("name").AsString();
    sum += kernel.At("busy_s").AsNumber() + kernel.At("wait_s").AsNumber();
  }
  EXPECT_NEAR(sum, kThreads * json.At("loops_s").AsNumber(), 1e-7);
}

// Shapes beyond those that it has room for count together.
TEST_P(KernelProfileTest, HasRoomForManyShapes) {
  KernelProfile profile(1);
  for (int64_t n = 1; n <= 100; ++n) {
    const int id = profile.IdOf(PackedLinear{.format = WeightFormat::kQ8, .n = n, .k = 64});
    profile.Count(id, 1, 2);
  }
  double bytes = 0;
  const JsonValue json = ParseJson(profile.Json());
  for (const JsonValue& kernel : json.At("kernels").AsArray()) {
    bytes += kernel.At("bytes").AsNumber();
  }
  EXPECT_EQ(bytes, 100);
}

INSTANTIATE_TEST_SUITE_P(Isa, KernelProfileTest, ::testing::ValuesIn(IsaNames()));

}  // namespace
}  // namespace mlc_native::kernels
