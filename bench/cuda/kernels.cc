// cuda_kernels [--tiny] [--only TEXT] FILE: times each CUDA kernel, or those with TEXT in their
// names, at the shapes of real models on GPU 0 and writes a JSON list of {name, seconds, bytes,
// operations} to FILE. tools/gpu_check.sh runs it and compares with the bandwidth and the peak
// measured in the same run. With --tiny, also on the emulator.
#include "kernels/cuda/kernels.h"

#include <algorithm>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "attention_inputs.h"
#include "kernels/cuda/experts.h"
#include "state_kernels.h"
#include "timing.h"

namespace mlc_native::kernels::cuda {
namespace {

constexpr int64_t kRotate = 256 << 20;  // bytes of inputs to cycle through, more than any cache

// ---- Products ----

struct Product {
  const char* name;
  int64_t n, k;
};
constexpr Product kProducts[] = {
    {"qwen3-0.6b qkv", 4096, 1024},     {"qwen3-0.6b gate_up", 6144, 1024},
    {"qwen3-0.6b down", 1024, 3072},    {"llama-3.2-1b gate_up", 16384, 2048},
    {"llama-3.1-8b qkv", 6144, 4096},   {"llama-3.1-8b gate_up", 28672, 4096},
    {"llama-3.1-8b down", 4096, 14336}, {"llama-3.1-8b head", 128256, 4096},
};

int64_t WeightBytes(WeightFormat format, int64_t n, int64_t k) {
  return format == WeightFormat::kBFloat16 ? n * k * 2
                                           : static_cast<int64_t>(GemvWeightBytes(format, n, k));
}

void Products(Bench& bench) {
  constexpr struct {
    const char* name;
    WeightFormat format;
    DType dtype = DType::kBFloat16;
  } kFormats[] = {{"bf16", WeightFormat::kBFloat16},
                  {"fp8", WeightFormat::kFloat8},
                  {"q8", WeightFormat::kQ8},
                  {"q4", WeightFormat::kQ4},
                  {"nvfp4", WeightFormat::kFp4Group16},
                  {"q8_0", WeightFormat::kQ8Group32, DType::kFloat16},
                  {"q4_k", WeightFormat::kQ4Affine, DType::kFloat16}};
  for (const auto& [format_name, format, dtype] : kFormats) {
    for (Product p : kProducts) {
      if (bench.is_tiny()) p = {p.name, 64, 128};
      const auto may_want = [&](const char* kernel) {
        return bench.MayWant(std::string(kernel) + " " + format_name + " " + p.name);
      };
      if (!may_want("batch_gemv") && !may_want("warpgroup_gemm")) continue;
      const int64_t bytes = WeightBytes(format, p.n, p.k);
      const auto copies = static_cast<int>(bench.is_tiny() ? 2 : kRotate / bytes + 2);
      const int64_t rows = bench.Size(256, 128);
      Buffer weights(copies * bytes), x(rows * p.k * 2), y(rows * p.n * 2);
      const auto run = [&](const std::string& kernel, int64_t m, auto product) {
        bench.Run(kernel + " " + format_name + " " + p.name + " m=" + std::to_string(m),
                  {.bytes = static_cast<double>(bytes), .operations = 2.0 * m * p.n * p.k}, copies,
                  [&](int i, Stream stream) {
                    product(GemvArgs{.format = format,
                                     .dtype = dtype,
                                     .weight = weights.data(i * bytes),
                                     .n = p.n,
                                     .k = p.k,
                                     .x = x.data(),
                                     .ldx = p.k,
                                     .m = m,
                                     .y = y.data(),
                                     .ldy = p.n},
                            stream);
                  });
      };
      for (int64_t m : {1, 8}) run("gemv", m, Gemv);
      for (int64_t m : {16, 32, 64}) {
        if (HasBatchGemv({.m = m})) run("batch_gemv", m, BatchGemv);
      }
      for (int64_t m : {128, 256}) {
        if (m > rows) continue;
        if (HasWarpgroupGemm({.format = format})) {
          run("warpgroup_gemm", m, WarpgroupGemm);
        } else {
          run("gemm", m, Gemm);
        }
      }
    }
  }
}

// One row through a product, the norm of the residual and a product of that: as three kernels, and
// as two, of which the first adds to the residual and the second normalizes it.
void ProductsAroundNorms(Bench& bench, const char* format_name, WeightFormat format) {
  for (Product p : {Product{"qwen3-0.6b qkv", 4096, 1024},
                    {"qwen3-0.6b gate_up", 6144, 1024},
                    {"llama-3.2-1b qkv", 3072, 2048},
                    {"llama-3.2-1b gate_up", 16384, 2048},
                    {"llama-3.1-8b qkv", 6144, 4096},
                    {"llama-3.1-8b gate_up", 28672, 4096}}) {
    if (!bench.MayWant("norm ")) return;
    const bool activates = std::string(p.name).ends_with("gate_up");
    if (bench.is_tiny()) p = {p.name, 64, 128};
    const int64_t first_bytes = WeightBytes(format, p.k, p.k);
    const int64_t bytes = first_bytes + WeightBytes(format, p.n, p.k);
    const auto copies = static_cast<int>(bench.is_tiny() ? 2 : kRotate / bytes + 2);
    const Buffer weights(copies * bytes), x(p.k * 2), input(p.k * 2), y(p.n * 2), norm(p.k * 2);
    const Buffer residual(std::vector<float>(p.k, 0.5f));
    for (const bool fused : {false, true}) {
      const auto call = [&](int i, Stream stream) {
        GemvArgs first{.format = format,
                       .weight = weights.data(i * bytes),
                       .n = p.k,
                       .k = p.k,
                       .x = x.data(),
                       .ldx = p.k,
                       .m = 1,
                       .y = input.data(),
                       .ldy = p.k};
        GemvArgs second = first;
        second.weight = weights.data(i * bytes + first_bytes);
        second.n = p.n;
        second.x = input.data();
        second.y = y.data();
        second.ldy = p.n;
        second.activates = activates;
        if (fused) {
          first.y = residual.data();
          first.float_output = first.accumulate = true;
          second.x = residual.data();
          second.normalizes = true;
          second.norm.weight = norm.data();
        }
        Gemv(first, stream);
        if (!fused) {
          AddNorm({.residual = residual.data<float>(),
                   .x = input.data(),
                   .pre_weight = norm.data(),
                   .y = input.data(),
                   .m = 1,
                   .dim = p.k},
                  stream);
        }
        Gemv(second, stream);
      };
      bench.Run(std::string(fused ? "norm fused " : "norm separate ") + format_name + " " + p.name,
                {.bytes = static_cast<double>(bytes), .operations = 2.0 * p.k * (p.k + p.n)},
                copies, call);
    }
  }
}

// The gate_up products of one layer of a mixture of experts: every row chooses `chosen` of them.
void Experts(Bench& bench, int64_t m) {
  if (!bench.MayWant("grouped_gemv")) return;
  // qwen3-30b-a3b
  const int64_t experts = bench.Size(128, 16), chosen = 8, n = bench.Size(1536, 32),
                k = bench.Size(2048, 64);
  const int64_t bytes = n * k * 2;
  const int64_t active = std::min(experts, m * chosen);
  const Buffer weights(experts * bytes), x(m * k * 2), y(m * chosen * n * 2);
  std::vector<ExpertGroup> groups;
  std::vector<int32_t> rows;
  for (int64_t i = 0; i < active; ++i) {
    const auto begin = static_cast<int32_t>(rows.size());
    for (int64_t row = i; row < m * chosen; row += active) {
      rows.push_back(static_cast<int32_t>(row % m));
    }
    const auto expert = static_cast<int32_t>(i * experts / active);
    groups.push_back({expert, begin, static_cast<int32_t>(rows.size())});
  }
  const Buffer device_groups(groups), device_rows(rows);
  bench.Run("grouped_gemv bf16 qwen3-30b-a3b gate_up m=" + std::to_string(m),
            {.bytes = static_cast<double>(active * bytes),
             .operations = 2.0 * static_cast<double>(m * chosen * n * k)},
            4, [&](int, Stream stream) {
              GroupedGemv({.first = {.weight = weights.data(),
                                     .n = n,
                                     .k = k,
                                     .x = x.data(),
                                     .ldx = k,
                                     .m = m,
                                     .y = y.data(),
                                     .ldy = n},
                           .weight_stride = bytes,
                           .groups = device_groups.data<ExpertGroup>(),
                           .num_groups = active,
                           .rows = device_rows.data<int32_t>()},
                          stream);
            });
}

// What makes the keys of latent attention, which the queries of all heads are multiplied with: in
// one launch, and in one for each head.
void HeadProducts(Bench& bench, int64_t m) {
  if (!bench.MayWant("head_products")) return;
  const int64_t heads = kDeepSeekLite.q, n = bench.Size(kDeepSeekLite.latent, 32),
                k = bench.Size(128, 64);
  m = bench.Size(m, 3);
  const int64_t bytes = n * k * 2;
  const Buffer weights(heads * bytes), x(m * heads * k * 2), y(m * heads * n * 2);
  const auto product = [&](int64_t head) -> GemvArgs {
    return {.weight = weights.data(head * bytes),
            .n = n,
            .k = k,
            .x = x.data(head * k * 2),
            .ldx = heads * k,
            .m = m,
            .y = y.data(head * n * 2),
            .ldy = heads * n};
  };
  const Cost cost{static_cast<double>(heads * (bytes + 2 * m * (n + k))),
                  2.0 * static_cast<double>(m * heads * n * k)};
  const std::string of_model = " deepseek-v2-lite m=" + std::to_string(m);
  bench.Run("head_products together" + of_model, cost, 10, [&](int, Stream stream) {
    GroupedGemv({.first = product(0),
                 .weight_stride = bytes,
                 .num_groups = heads,
                 .x_step = k,
                 .y_step = n},
                stream);
  });
  bench.Run("head_products apart" + of_model, cost, 10, [&](int, Stream stream) {
    for (int64_t head = 0; head < heads; ++head) Gemm(product(head), stream);
  });
}

void Dequantizations(Bench& bench) {
  if (!bench.MayWant("dequantize")) return;
  Product p = kProducts[std::size(kProducts) - 3];  // the largest of a layer of 8B
  if (bench.is_tiny()) p = {p.name, 64, 128};
  for (const auto& [name, format] :
       {std::pair{"fp8", WeightFormat::kFloat8}, std::pair{"q8", WeightFormat::kQ8},
        std::pair{"q4", WeightFormat::kQ4}}) {
    const auto packed = static_cast<int64_t>(GemvWeightBytes(format, p.n, p.k));
    const Buffer weight(packed), out(p.n * p.k * 2);
    bench.Run(std::string("dequantize ") + name + " " + p.name,
              {.bytes = static_cast<double>(packed + p.n * p.k * 2)}, 4, [&](int, Stream stream) {
                Dequantize({.format = format,
                            .weight = weight.data(),
                            .n = p.n,
                            .k = p.k,
                            .num_rows = p.n,
                            .out = out.data()},
                           stream);
              });
  }
}

// ---- Attention ----

void Decode(Bench& bench, const Heads& heads, int64_t rows, int64_t length,
            KvFormat format = KvFormat::kBFloat16) {
  const std::string kernel =
      format == KvFormat::kFloat8 ? "decode_attention fp8 " : "decode_attention ";
  if (!bench.MayWant(kernel + heads.name)) return;
  const DecodeInputs inputs(bench, heads, rows, length, format);
  const std::string name = kernel + heads.name + " rows=" + std::to_string(inputs.rows.m) +
                           " length=" + std::to_string(inputs.length);
  bench.Run(name, {inputs.cache.bytes(), inputs.operations()}, 10, [&](int, Stream stream) {
    DecodeAttention(inputs.cache.kv, inputs.args, inputs.rows, stream);
  });
}

void Prefill(Bench& bench, const Heads& heads, int64_t length) {
  const auto may_want = [&](const char* kernel) {
    return bench.MayWant(std::string(kernel) + " " + heads.name);
  };
  if (!may_want("prefill_attention") && !may_want("warpgroup_prefill_attention")) return;
  length = bench.Size(length, 70);
  const Cache cache(heads, 1, length);
  const int64_t row_bytes = heads.q * heads.dim * 2;
  const Buffer q(length * row_bytes), out(length * row_bytes);
  const int64_t rows = heads.tile_rows();
  std::vector<PrefillTile> tiles;
  for (int64_t at = 0; at < length; at += rows) {
    tiles.push_back({.row_begin = static_cast<int32_t>(at),
                     .num_rows = static_cast<int32_t>(std::min(rows, length - at)),
                     .first_position = static_cast<int32_t>(at),
                     .table = 0});
  }
  std::reverse(tiles.begin(), tiles.end());
  const Buffer device_tiles(tiles);
  const double operations = 0.5 * length * length * heads.operations();
  const auto run = [&](const char* kernel, auto attention) {
    bench.Run(std::string(kernel) + " " + heads.name + " length=" + std::to_string(length),
              {cache.bytes(), operations}, 4, [&](int, Stream stream) {
                attention(cache.kv, cache.Args(heads, q, out), device_tiles.data<PrefillTile>(),
                          static_cast<int64_t>(tiles.size()), stream);
              });
  };
  run("prefill_attention", PrefillAttention);
  if (heads.latent == 0 && HasWarpgroupPrefillAttention(cache.kv, cache.Args(heads, q, out))) {
    run("warpgroup_prefill_attention", WarpgroupPrefillAttention);
  }
}

// ---- The rest ----

void Norms(Bench& bench, int64_t rows) {
  if (!bench.MayWant("add_norm")) return;
  const int64_t dim = bench.Size(4096, 64);
  rows = bench.Size(rows, 2);
  const Buffer x(rows * dim * 2), y(rows * dim * 2), weight(dim * 2);
  const Buffer residual(std::vector<float>(rows * dim, 0.5f));
  bench.Run("add_norm 4096 rows=" + std::to_string(rows), {.bytes = 12.0 * rows * dim}, 10,
            [&](int, Stream stream) {
              AddNorm({.residual = residual.data<float>(),
                       .x = x.data(),
                       .pre_weight = weight.data(),
                       .y = y.data(),
                       .m = rows,
                       .dim = dim},
                      stream);
            });
}

void Activations(Bench& bench, int64_t rows) {
  if (!bench.MayWant("activate")) return;
  const int64_t ffn = bench.Size(14336, 64);
  rows = bench.Size(rows, 2);
  const Buffer x(rows * 2 * ffn * 2), out(rows * ffn * 2);
  bench.Run("activate 14336 rows=" + std::to_string(rows), {.bytes = 6.0 * rows * ffn}, 10,
            [&](int, Stream stream) {
              Activate({.x = x.data(), .out = out.data(), .m = rows, .ffn = ffn}, stream);
            });
}

void Sampling(Bench& bench, const std::string& name, const SamplingRow& settings, int64_t rows) {
  if (!bench.MayWant("sample " + name)) return;
  const int64_t vocab = bench.Size(151936, 512);
  rows = bench.Size(rows, 2);
  std::mt19937 random(3);
  std::normal_distribution<float> normal(0, 3);
  std::vector<float> logits(rows * vocab);
  for (float& logit : logits) logit = normal(random);
  const Buffer device_logits(logits), tokens(rows * 4), logprobs(rows * 4),
      top_ids(rows * kMaxTopLogprobs * 4), top_logprobs(rows * kMaxTopLogprobs * 4);
  const Buffer device_rows(std::vector<SamplingRow>(rows, settings));
  const Buffer positions(std::vector<int32_t>(rows, 7));
  const Buffer workspace(static_cast<int64_t>(SampleWorkspaceBytes(rows, vocab)));
  bench.Run("sample " + name + " rows=" + std::to_string(rows), {.bytes = 8.0 * rows * vocab}, 10,
            [&](int, Stream stream) {
              SampleTokens({.logits = device_logits.data<float>(),
                            .ld = vocab,
                            .m = rows,
                            .vocab = vocab,
                            .rows = device_rows.data<SamplingRow>(),
                            .positions = positions.data<int32_t>(),
                            .tokens = tokens.data<int32_t>(),
                            .logprobs = logprobs.data<float>(),
                            .top_ids = top_ids.data<int32_t>(),
                            .top_logprobs = top_logprobs.data<float>(),
                            .workspace = workspace.data()},
                           stream);
            });
}

void RunAll(Bench& bench) {
  Products(bench);
  ProductsAroundNorms(bench, "bf16", WeightFormat::kBFloat16);
  ProductsAroundNorms(bench, "q4", WeightFormat::kQ4);
  for (int64_t m : {1, 16, 2048}) Experts(bench, m);
  for (int64_t m : {1, 32, 256, 1024, 8192}) HeadProducts(bench, m);
  Dequantizations(bench);
  Decode(bench, kQwen06, 1, 512);
  Decode(bench, kLlama1, 1, 4096);
  Decode(bench, kLlama8, 1, 4096);
  Decode(bench, kQwen06, 256, 600);
  Decode(bench, kLlama8, 64, 4096);
  for (const auto& [heads, rows, length] :
       {std::tuple{kQwen06, 1, 512}, std::tuple{kQwen06, 256, 600},
        std::tuple{kLlama8, 64, 4096}}) {
    Decode(bench, heads, rows, length, KvFormat::kFloat8);
  }
  Prefill(bench, kQwen06, 1024);
  Prefill(bench, kLlama8, 8192);
  for (const KvFormat format : {KvFormat::kBFloat16, KvFormat::kFloat8}) {
    for (const Heads& heads : {kDeepSeekLite, kGlmFlash}) {
      for (const auto& [rows, length] : {std::pair{1, 512}, {1, 4096}, {64, 4096}, {256, 600}}) {
        Decode(bench, heads, rows, length, format);
      }
    }
  }
  for (const int64_t length : {1024, 8192}) Prefill(bench, kDeepSeekLite, length);
  LayersWithStates(bench);
  for (int64_t rows : {1, 64, 8192}) Norms(bench, rows);
  for (int64_t rows : {1, 64, 8192}) Activations(bench, rows);
  SamplingRow greedy, plain, top_p, top_k;
  greedy.greedy = true;
  top_p.top_p = 0.95f;
  top_k.top_k = 50;
  for (int64_t rows : {1, 64, 256}) {
    Sampling(bench, "greedy", greedy, rows);
    Sampling(bench, "plain", plain, rows);
    Sampling(bench, "top_p=0.95", top_p, rows);
    Sampling(bench, "top_k=50", top_k, rows);
  }
}

}  // namespace
}  // namespace mlc_native::kernels::cuda

int main(int argc, char** argv) {
  using namespace mlc_native::kernels::cuda;  // NOLINT: main has nothing else
  return RunBench(argc, argv, RunAll);
}
