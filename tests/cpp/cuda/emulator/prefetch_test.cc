// What products ask into the cache: what WeightPrefetch says, what the blocks of a kernel ask for,
// and what a model does.
#include <algorithm>
#include <map>

#include "cuda/emulator/emulator.h"
#include "cuda/gemv_weights.h"
#include "cuda/model_driver.h"
#include "models/cuda/weight_prefetch.h"

namespace mlc_native {
namespace {

using kernels::cuda::GemvArgs;
using kernels::cuda::Prefetch;

constexpr LinearRole kDense[] = {LinearRole::kQkv, LinearRole::kOut, LinearRole::kGateUp,
                                 LinearRole::kDown};
constexpr const char* kVariable = "MLC_NATIVE_CUDA_PREFETCH_MB";

int64_t NumPrefetched() { return mlc_native_emulated_counter(MLC_NATIVE_EMULATED_PREFETCHED); }

// ---- WeightPrefetch ----

// The products of a step, in order, with weights at made-up addresses.
class Products {
 public:
  struct Product {
    size_t layer;
    LinearRole role;
    CudaMatrix matrix;

    int64_t bytes() const { return matrix.n * matrix.k * 2; }
  };

  void AddLayer(bool has_experts = false) {
    CudaDecoderWeights::Layer::Linears linears;
    for (const LinearRole role : kDense) {
      if (has_experts && role > LinearRole::kOut) continue;
      const CudaMatrix matrix{.data = reinterpret_cast<const void*>(next_),
                              .n = 1001 + 200 * static_cast<int64_t>(role),
                              .k = 8};
      products_.push_back({weights_.layers.size(), role, matrix});
      linears.push_back({{role, 0}, {.matrix = matrix}});
      next_ += uintptr_t{1} << 20;
    }
    weights_.layers.emplace_back(linears, CudaDecoderWeights::Layer::Norms{});
  }

  struct Asked {
    size_t product;
    int64_t begin, end;  // of the bytes of its weight
  };
  // By each product.
  std::vector<std::vector<Asked>> AskAll(int64_t window) const {
    const WeightPrefetch prefetch(weights_, window);
    WeightPrefetch::Cursor cursor = 0;
    std::vector<std::vector<Asked>> all;
    for (const Product& product : products_) {
      GemvArgs args;
      prefetch.Ask(product.layer, product.role, &cursor, &args);
      all.emplace_back();
      for (const Prefetch& each : args.prefetches) {
        if (each.bytes > 0) all.back().push_back(Find(each));
      }
    }
    return all;
  }

  const std::vector<Product>& list() const { return products_; }

 private:
  Asked Find(const Prefetch& prefetch) const {
    const auto address = reinterpret_cast<uintptr_t>(prefetch.data);
    for (size_t i = products_.size(); i-- > 0;) {
      const auto first = reinterpret_cast<uintptr_t>(products_[i].matrix.data);
      if (address < first) continue;
      const auto begin = static_cast<int64_t>(address - first);
      return {i, begin, begin + prefetch.bytes};
    }
    ADD_FAILURE() << "before all weights";
    return {};
  }

  std::vector<Product> products_;
  CudaDecoderWeights weights_;
  uintptr_t next_ = uintptr_t{1} << 30;
};

TEST(WeightPrefetch, AsksForEachByteOnceAndBeforeItsProduct) {
  Products products;
  for (int layer = 0; layer < 3; ++layer) products.AddLayer();
  for (const int64_t window : {0, 256, 4096, 20000, 40000, 100000, 1000000}) {
    std::map<size_t, int64_t> asked;  // how much of each weight
    const auto all = products.AskAll(window);
    for (size_t i = 0; i < all.size(); ++i) {
      int64_t bytes = 0;
      for (const Products::Asked& each : all[i]) {
        EXPECT_GT(each.product, i);
        EXPECT_EQ(each.begin, asked[each.product]) << "with a gap, or twice";
        EXPECT_LE(each.end, products.list()[each.product].bytes());
        EXPECT_EQ((each.begin | each.end) % 16, 0);
        asked[each.product] = each.end;
        bytes += each.end - each.begin;
      }
      EXPECT_LE(bytes, products.list()[i].role == LinearRole::kQkv ? window : window / 2);
      // Of what is next, what the window has.
      const int64_t next = i + 1 < all.size() ? products.list()[i + 1].bytes() / 16 * 16 : 0;
      EXPECT_GE(asked[i + 1], std::min(next, window / 256 * 256 / 2)) << window;
    }
    if (window < 1000000) continue;
    for (size_t i = 1; i < all.size(); ++i) {
      EXPECT_EQ(asked[i], products.list()[i].bytes() / 16 * 16);
    }
  }
}

TEST(WeightPrefetch, StopsInFrontOfExperts) {
  Products products;
  products.AddLayer(true);
  products.AddLayer(true);
  products.AddLayer();
  const auto all = products.AskAll(1000000);
  ASSERT_EQ(all.size(), 8u);
  for (const size_t qkv : {0u, 2u}) {
    ASSERT_EQ(all[qkv].size(), 1u);
    EXPECT_EQ(all[qkv][0].product, qkv + 1);
    EXPECT_TRUE(all[qkv + 1].empty());
  }
  EXPECT_EQ(all[4].size(), 2u);
}

// ---- Models ----

// The logits of some steps of one row, and the bytes that each asks for.
struct Steps {
  std::vector<std::vector<float>> logits;
  std::vector<int64_t> asked;
};
Steps Decode(const TinyModel& tiny, ModelSource source, int rows) {
  const auto model = tiny.Load(source);
  std::vector<TestSequence> sequences;
  for (int i = 0; i < rows; ++i) sequences.emplace_back(i);
  Steps steps;
  for (int step = 0; step < 4; ++step) {  // the later ones from a graph
    TestBatch batch;
    for (TestSequence& sequence : sequences) batch.Add(sequence, {step + 3});
    const int64_t before = NumPrefetched();
    steps.logits.push_back(Logits(*model, batch));
    steps.asked.push_back(NumPrefetched() - before);
  }
  return steps;
}

// In steps that are recorded and replayed, too.
TEST(CudaPrefetch, ChangesNoBits) {
  for (const auto& [architecture, fields] :
       {std::pair{"LlamaForCausalLM", ""},
        {"Qwen3ForCausalLM", R"("head_dim": 32)"},
        {"Gemma2ForCausalLM", R"("head_dim": 16, "sliding_window": 9)"},
        {"CohereForCausalLM", ""},
        {"Qwen3MoeForCausalLM", kQwenExperts}}) {
    TinyModel tiny(architecture, fields);
    for (const int rows : {1, 8, 9}) {
      const Steps without = Decode(tiny, tiny.Source("bfloat16"), rows);
      EXPECT_EQ(without.asked, std::vector<int64_t>(4, 0));
      setenv(kVariable, "1", 1);
      const Steps with = Decode(tiny, tiny.Source("bfloat16"), rows);
      unsetenv(kVariable);
      EXPECT_EQ(with.logits, without.logits) << architecture;
      for (const int64_t asked : with.asked) {
        EXPECT_EQ(asked, with.asked.front());
        EXPECT_EQ(asked > 0, rows <= 8) << architecture << ", " << rows << " rows";
      }
    }
  }
}

TEST(CudaPrefetch, RefusesWindowsThatNoCacheHas) {
  TinyModel tiny;
  for (const char* wrong : {"-1", "65", "1.5", "16 MB", "on"}) {
    setenv(kVariable, wrong, 1);
    EXPECT_THROW(tiny.OnDevice(), InvalidConfig) << wrong;
  }
  unsetenv(kVariable);
}

}  // namespace

// ---- Kernels ----

namespace kernels::cuda {
namespace {

class PrefetchTest : public GemvWeightsTest {
 protected:
  // Whether the blocks of a product ask for all of what it says, and for nothing else: the
  // emulator ends the process where it does not belong to the memory. Returns y.
  std::vector<uint8_t> Check(GemvArgs args, int64_t y_bytes) {
    const DeviceBytes y(y_bytes);
    args.y = y.data();
    Gemv(args, nullptr);
    const std::vector<uint8_t> alone = y.Download();
    for (const int64_t bytes : {16, 112, 128, 144, 4096, 40016}) {
      const DeviceBytes first(bytes), second(bytes / 2 / 16 * 16 + 16);
      args.prefetches[0] = {first.data(), static_cast<uint32_t>(bytes)};
      args.prefetches[1] = {second.data(), static_cast<uint32_t>(bytes / 2 / 16 * 16 + 16)};
      const int64_t before = NumPrefetched();
      Gemv(args, nullptr);
      EXPECT_EQ(y.Download(), alone);
      EXPECT_EQ(NumPrefetched() - before, args.prefetches[0].bytes + args.prefetches[1].bytes);
    }
    return alone;
  }
};

// Blocks of one tile, of 8 and of 16 rows; some that walk over tiles, and those that normalize.
TEST_F(PrefetchTest, BlocksShareWhatTheyAskFor) {
  for (const WeightFormat format : FormatsWith(DType::kBFloat16)) {
    for (const int64_t n : {8, 40, 72, 304}) {
      constexpr int64_t kK = 264;
      const DeviceBytes weight(RandomWeights(format, n, kK).bytes),
          x(Encode(DType::kBFloat16, Random(DType::kBFloat16, 8 * kK))),
          norm(Encode(DType::kBFloat16, Random(DType::kBFloat16, kK)));
      const DeviceArray<float> residual(Random(DType::kFloat32, kK));
      GemvArgs args{.format = format,
                    .weight = weight.data(),
                    .n = n,
                    .k = kK,
                    .x = x.data(),
                    .ldx = kK,
                    .ldy = n};
      for (const int64_t m : {1, 8}) {
        args.m = m;
        Check(args, m * n * 2);
      }
      args.m = 1;
      args.x = residual.data();
      args.normalizes = true;
      args.norm = {.weight = norm.data()};
      Check(args, n * 2);
    }
  }
}

}  // namespace
}  // namespace kernels::cuda
}  // namespace mlc_native
