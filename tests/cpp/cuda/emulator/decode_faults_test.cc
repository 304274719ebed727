// What DecodeWorker counts on, each left out in turn: its values, or the process, are lost then.
#include <cstdlib>

#include "cuda/rope_rows.h"
#include "kernels/cuda/decode_worker.cuh"

namespace mlc_native::kernels::cuda {
namespace {

// ---- Planted bugs ----

struct NoWait : DecodeRules {
  static void WaitForLookups() { __syncwarp(); }
};
struct OwnLookupsOnly : DecodeRules {
  static void WaitForLookups() {
    CommitCopies();
    WaitForCopies<0>();
  }
};
// The next item's place is that of this one.
struct OnePlace : DecodeRules {
  static int OtherPlace(int place) { return place; }
};
struct NoWaitForReaders : DecodeRules {
  static void WaitForReaders() {}
};
struct NoWaitForRotated : DecodeRules {
  static void WaitForRotated() {}
};
struct ItemsLeftOut : DecodeRules {
  static int ItemOfQueue(int taken, int blocks) { return 2 * blocks + 1 + taken; }
};

class DecodeFaultsTest : public CudaKernelTest {
 protected:
  // Of one and of several pages, and so many that each block has several items.
  static RopeRows Rows() {
    std::vector<int64_t> lengths;
    std::vector<uint32_t> seeds;
    for (uint32_t i = 0; i < 24; ++i) {
      lengths.push_back(1 + i * 61 % 300);
      seeds.push_back(i);
    }
    return {{DType::kBFloat16, KvFormat::kBFloat16, 4, 2, 64},
            lengths,
            {.rotary_dim = 64, .has_norm = true},
            seeds};
  }

  // Whether rows come out as in DecodeAttention, bit by bit.
  template <typename Rules>
  static bool HasTheBits() {
    const RopeRows want = Rows(), got = Rows();
    for (const RopeRows* rows : {&want, &got}) QkRopeWriteKv(rows->paged.kv, rows->rope, nullptr);
    DecodeAttention(want.paged.kv, want.args, want.rows, nullptr);
    Launch(DecodeAttentionKernel<BFloat16, BFloat16, DecodeShape<64>, Rules>,
           DecodeLaunchShape<DecodeShape<64>>(), nullptr,
           DecodeArgsOf(got.paged.kv, got.args, got.rows));
    return got.Out() == want.Out();
  }

  // The same of rows that are rotated in the kernel.
  template <typename Rules>
  static bool HasTheRopeBits() {
    const RopeRows want = Rows(), got = Rows();
    RopeDecodeAttention(want.paged.kv, want.args, want.rows, want.rope, nullptr);
    using Shared = RowRope<BFloat16, DecodeShape<64>>::Shared;
    Launch(RopeDecodeAttentionKernel<BFloat16, DecodeShape<64>, Rules>,
           DecodeLaunchShape<DecodeShape<64>, Shared>(), nullptr,
           RopeDecodeKernelArgs{DecodeArgsOf(got.paged.kv, got.args, got.rows), got.rope});
    return got.Out() == want.Out();
  }

  // For bugs that may also end the process.
  template <typename Rules>
  [[noreturn]] static void EndsWithTheBits() {
    std::exit(HasTheBits<Rules>() ? 0 : 1);
  }
  template <typename Rules>
  [[noreturn]] static void EndsWithTheRopeBits() {
    std::exit(HasTheRopeBits<Rules>() ? 0 : 1);
  }
};

TEST_F(DecodeFaultsTest, TheKernelItselfHasTheBits) {
  EXPECT_TRUE(HasTheBits<DecodeRules>());
  EXPECT_TRUE(HasTheRopeBits<DecodeRules>());
}

TEST_F(DecodeFaultsTest, AMissingWaitShows) {
  EXPECT_DEATH(EndsWithTheBits<NoWait>(), "");
  EXPECT_DEATH(EndsWithTheBits<OwnLookupsOnly>(), "");
}

TEST_F(DecodeFaultsTest, ALookupInTheWrongPlaceShows) {
  EXPECT_DEATH(EndsWithTheBits<OnePlace>(), "");
}

TEST_F(DecodeFaultsTest, HeadsThatAreReadBeforeTheyAreRotatedShow) {
  EXPECT_DEATH(EndsWithTheRopeBits<NoWaitForRotated>(), "");
}

TEST_F(DecodeFaultsTest, SumsThatAreOverwrittenShow) {
  EXPECT_DEATH(EndsWithTheBits<NoWaitForReaders>(), "");
}

TEST_F(DecodeFaultsTest, AnItemThatIsLeftOutShows) {
  EXPECT_DEATH(EndsWithTheBits<ItemsLeftOut>(), "");
}

}  // namespace
}  // namespace mlc_native::kernels::cuda
