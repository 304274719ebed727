// What DecodeWorker counts on, each left out in turn: its values, or the process, are lost then.
#include <cstdlib>

#include "cuda/paged_kv.h"
#include "kernels/cuda/decode_worker.cuh"

namespace mlc_native::kernels::cuda {
namespace {

// ---- The two kinds of rings, and planted bugs ----

template <typename Base>
struct OnGroups : Base {
  template <int kSlots, int kSlotBytes, typename Rules>
  using Ring = GroupRing<kSlots, kSlotBytes, Rules>;
};

struct NoWait : DecodeRules {
  static void WaitForBytes(uint64_t*, uint32_t) {}
  template <int kLeft>
  static void WaitForGroups() {
    __syncwarp();
  }
};
struct ShortWait : DecodeRules {
  template <int kLeft>
  static void WaitForGroups() {
    WaitForCopies<kLeft + 1>();
    __syncwarp();
  }
};
struct OwnCopiesOnly : DecodeRules {
  template <int kLeft>
  static void WaitForGroups() {
    WaitForCopies<kLeft>();
  }
};
struct OtherPhase : DecodeRules {
  static void WaitForBytes(uint64_t* barrier, uint32_t parity) {
    WaitForPhase(barrier, parity ^ 1);
  }
};
struct OnePhase : DecodeRules {
  static void WaitForBytes(uint64_t* barrier, uint32_t) { WaitForPhase(barrier, 0); }
};
// The slot that is read next; the copy overwrites it instead of the one that has been read.
struct SlotInUse : DecodeRules {
  static int FreeSlot(int slot) { return (slot + 1) % DecodeShape<BFloat16, 64>::kSlots; }
};
// The pages of the item beside the next one of this block.
struct OtherItem : DecodeRules {
  static int ItemAhead(int item, int distance) { return distance > 0 ? item + 1 : item; }
};
// Those of the item before the next one, once the block goes on.
struct SameItem : DecodeRules {
  static int ItemAhead(int item, int distance) {
    return item + (distance > static_cast<int>(gridDim.x) ? distance / 2 : distance);
  }
};

class DecodeFaultsTest : public CudaKernelTest {
 protected:
  // Whether rows of one and of several pages come out as in DecodeAttention, bit by bit. Each block
  // has several items.
  template <typename Rules>
  static bool HasTheBits() {
    const KvShape shape{DType::kBFloat16, KvFormat::kBFloat16, 4, 2, 64};
    std::vector<int64_t> lengths;
    std::vector<uint32_t> seeds;
    for (uint32_t i = 0; i < 24; ++i) {
      lengths.push_back(1 + i * 61 % 300);
      seeds.push_back(i);
    }
    const PagedKv paged(shape, lengths, seeds);
    const DeviceArray<int32_t> device_lengths(std::vector<int32_t>(lengths.begin(), lengths.end()));
    const auto m = static_cast<int64_t>(lengths.size());
    const int64_t width = shape.q_heads * shape.head_dim;
    std::mt19937 random(3);
    std::uniform_real_distribution<float> uniform(-1, 1);
    Floats queries(m * width);
    for (float& q : queries) q = uniform(random);
    const DeviceBytes q(Encode(shape.dtype, queries));
    int64_t max_splits = 0;
    for (const int64_t length : lengths) max_splits += MaxDecodeSplits(length);
    const DeviceBytes workspace(
        std::vector<uint8_t>(DecodeWorkspaceBytes(max_splits, shape.q_heads, shape.head_dim), 0));
    const DeviceBytes splits(static_cast<int64_t>(DecodeSplitsBytes(max_splits)));
    const DecodeRows rows{.lengths = device_lengths.data(),
                          .m = m,
                          .max_splits = max_splits,
                          .workspace = workspace.data(),
                          .splits = splits.data()};
    ListSplits(rows, 0, nullptr);
    const DeviceBytes want(q.size()), got(q.size());
    AttentionArgs args{.dtype = shape.dtype,
                       .q = q.data(),
                       .ldq = width,
                       .out = want.data(),
                       .ldo = width,
                       .q_heads = shape.q_heads,
                       .scale = 0.3f,
                       .block_tables = paged.tables->data(),
                       .ld_block_tables = paged.ld_tables};
    DecodeAttention(paged.kv, args, rows, nullptr);
    args.out = got.data();
    Launch(DecodeAttentionKernel<BFloat16, BFloat16, 64, Rules>, DecodeLaunchShape<BFloat16, 64>(),
           nullptr, DecodeArgsOf(paged.kv, args, rows));
    return got.Download() == want.Download();
  }

  // For bugs that may also end the process.
  template <typename Rules>
  [[noreturn]] static void EndsWithTheBits() {
    const bool has = HasTheBits<Rules>();
    std::fprintf(stderr, has ? "the same bits\n" : "other bits\n");
    std::exit(has ? 0 : 1);
  }
};

constexpr auto kFound =
    "other bits|ends before its copies|announced twice|copies that never come|barrier that not all";

TEST_F(DecodeFaultsTest, BothKindsOfRingsHaveTheSameBits) {
  EXPECT_TRUE(HasTheBits<DecodeRules>());
  EXPECT_TRUE(HasTheBits<OnGroups<DecodeRules>>());
}

TEST_F(DecodeFaultsTest, AMissingWaitShows) {
  EXPECT_DEATH(EndsWithTheBits<NoWait>(), kFound);
  EXPECT_FALSE(HasTheBits<OnGroups<NoWait>>());
  EXPECT_FALSE(HasTheBits<OnGroups<ShortWait>>());
  EXPECT_FALSE(HasTheBits<OnGroups<OwnCopiesOnly>>());
}

TEST_F(DecodeFaultsTest, AWaitForAnotherPhaseShows) {
  EXPECT_DEATH(EndsWithTheBits<OtherPhase>(), kFound);
  EXPECT_DEATH(EndsWithTheBits<OnePhase>(), kFound);
}

TEST_F(DecodeFaultsTest, ASlotThatIsFilledBeforeItIsFreeShows) {
  EXPECT_DEATH(EndsWithTheBits<SlotInUse>(), kFound);
  EXPECT_FALSE(HasTheBits<OnGroups<SlotInUse>>());
}

TEST_F(DecodeFaultsTest, APageOfAnotherItemShows) {
  EXPECT_DEATH(EndsWithTheBits<OtherItem>(), kFound);
  EXPECT_DEATH(EndsWithTheBits<SameItem>(), kFound);
  EXPECT_DEATH(EndsWithTheBits<OnGroups<OtherItem>>(), kFound);
}

}  // namespace
}  // namespace mlc_native::kernels::cuda
