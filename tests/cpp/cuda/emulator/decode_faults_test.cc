// What DecodeWorker counts on, each left out in turn: its values, or the process, are lost then.
#include <cstdlib>

#include "cuda/paged_kv.h"
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
struct ItemsLeftOut : DecodeRules {
  static int ItemOfQueue(int taken, int blocks) { return 2 * blocks + 1 + taken; }
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
    Launch(DecodeAttentionKernel<BFloat16, BFloat16, DecodeShape<64>, Rules>,
           DecodeLaunchShape<DecodeShape<64>>(), nullptr, DecodeArgsOf(paged.kv, args, rows));
    return got.Download() == want.Download();
  }

  // For bugs that may also end the process.
  template <typename Rules>
  [[noreturn]] static void EndsWithTheBits() {
    std::exit(HasTheBits<Rules>() ? 0 : 1);
  }
};

TEST_F(DecodeFaultsTest, TheKernelItselfHasTheBits) { EXPECT_TRUE(HasTheBits<DecodeRules>()); }

TEST_F(DecodeFaultsTest, AMissingWaitShows) {
  EXPECT_DEATH(EndsWithTheBits<NoWait>(), "");
  EXPECT_DEATH(EndsWithTheBits<OwnLookupsOnly>(), "");
}

TEST_F(DecodeFaultsTest, ALookupInTheWrongPlaceShows) {
  EXPECT_DEATH(EndsWithTheBits<OnePlace>(), "");
}

TEST_F(DecodeFaultsTest, SumsThatAreOverwrittenShow) {
  EXPECT_DEATH(EndsWithTheBits<NoWaitForReaders>(), "");
}

TEST_F(DecodeFaultsTest, AnItemThatIsLeftOutShows) {
  EXPECT_DEATH(EndsWithTheBits<ItemsLeftOut>(), "");
}

}  // namespace
}  // namespace mlc_native::kernels::cuda
