// Loops that measure the peak rate of multiply-adds of an instruction set, on registers, without
// memory. Included by kernels_machine.h only.
#pragma once

#include <cstdint>
#include <string_view>

namespace mlc_native::kernels {
// The type of the products whose peak is measured.
enum class Arithmetic : uint8_t { kFloat32, kBFloat16, kInt8 };
constexpr const char* kArithmeticNames[] = {"float32", "bfloat16", "int8"};

// A loop of `iterations` > 0 passes; returns the operations (2 per multiply-add) of one pass.
using PeakLoop = int64_t (*)(int64_t iterations);

#if defined(__x86_64__)
// Written in assembly, because compilers move sums between registers and memory. UPDATE
// adds to register \r, which is independent of the others; registers 13 to 15 hold operands.
#define MLC_NATIVE_PEAK_LOOP(NAME, CLEAR, UPDATE, OPERATIONS)                                    \
  inline int64_t NAME(int64_t iterations) {                                                      \
    asm volatile(".irp r,0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15\n" CLEAR                          \
                 "\n.endr\n"                                                                     \
                 ".p2align 6\n1:\n"                                                              \
                 ".irp r,0,1,2,3,4,5,6,7,8,9,10,11\n" UPDATE                                     \
                 "\n.endr\n"                                                                     \
                 "dec %0\njnz 1b\n"                                                              \
                 : "+r"(iterations)                                                              \
                 :                                                                               \
                 : "cc", "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", \
                   "xmm9", "xmm10", "xmm11", "xmm12", "xmm13", "xmm14", "xmm15");                \
    if constexpr (std::string_view(CLEAR).front() == 'v') asm volatile("vzeroupper");            \
    return 12 * (OPERATIONS);                                                                    \
  }

#define MLC_NATIVE_CLEAR_YMM "vpxor %%ymm\\r, %%ymm\\r, %%ymm\\r"
#define MLC_NATIVE_CLEAR_ZMM "vpxord %%zmm\\r, %%zmm\\r, %%zmm\\r"
MLC_NATIVE_PEAK_LOOP(SsePeak, "xorps %%xmm\\r, %%xmm\\r",
                     "movaps %%xmm15, %%xmm13\nmulps %%xmm14, %%xmm13\naddps %%xmm13, %%xmm\\r", 8)
MLC_NATIVE_PEAK_LOOP(Avx2FloatPeak, MLC_NATIVE_CLEAR_YMM, "vfmadd231ps %%ymm14, %%ymm15, %%ymm\\r",
                     16)
MLC_NATIVE_PEAK_LOOP(Avx2Int8Peak, MLC_NATIVE_CLEAR_YMM,
                     "vpmaddubsw %%ymm14, %%ymm15, %%ymm13\n"
                     "vpmaddwd %%ymm13, %%ymm15, %%ymm13\nvpaddd %%ymm13, %%ymm\\r, %%ymm\\r",
                     64)
MLC_NATIVE_PEAK_LOOP(Avx512FloatPeak, MLC_NATIVE_CLEAR_ZMM,
                     "vfmadd231ps %%zmm14, %%zmm15, %%zmm\\r", 32)
MLC_NATIVE_PEAK_LOOP(Avx512Int8Peak, MLC_NATIVE_CLEAR_ZMM,
                     "vpmaddubsw %%zmm14, %%zmm15, %%zmm13\n"
                     "vpmaddwd %%zmm13, %%zmm15, %%zmm13\nvpaddd %%zmm13, %%zmm\\r, %%zmm\\r",
                     128)
MLC_NATIVE_PEAK_LOOP(BFloat16Peak, MLC_NATIVE_CLEAR_ZMM, "vdpbf16ps %%zmm14, %%zmm15, %%zmm\\r", 64)
MLC_NATIVE_PEAK_LOOP(VnniPeak, MLC_NATIVE_CLEAR_ZMM, "vpdpbusd %%zmm14, %%zmm15, %%zmm\\r", 128)
MLC_NATIVE_PEAK_LOOP(Avx2VnniPeak, MLC_NATIVE_CLEAR_YMM,
                     "%{vex%} vpdpbusd %%ymm14, %%ymm15, %%ymm\\r", 64)

// Six tiles of sums of 16 rows and columns; tiles 6 and 7 hold operands of K k, 64 bytes a row.
#define MLC_NATIVE_TILE_LOOP(NAME, INSTRUCTION, K)               \
  inline int64_t NAME(int64_t iterations) {                      \
    struct {                                                     \
      uint8_t palette = 1;                                       \
      uint8_t unused[15] = {};                                   \
      uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64}; \
      uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};       \
    } shapes;                                                    \
    asm volatile(                                                \
        "ldtilecfg %1\n"                                         \
        ".irp r,0,1,2,3,4,5,6,7\ntilezero %%tmm\\r\n.endr\n"     \
        ".p2align 6\n1:\n"                                       \
        ".irp r,0,1,2,3,4,5\n" INSTRUCTION                       \
        " %%tmm7, %%tmm6, %%tmm\\r\n.endr\n"                     \
        "dec %0\njnz 1b\ntilerelease\n"                          \
        : "+r"(iterations)                                       \
        : "m"(shapes)                                            \
        : "cc");                                                 \
    return int64_t{6} * 2 * 16 * 16 * (K);                       \
  }
MLC_NATIVE_TILE_LOOP(TileInt8Peak, "tdpbsud", 64)
MLC_NATIVE_TILE_LOOP(TileBFloat16Peak, "tdpbf16ps", 32)
#undef MLC_NATIVE_TILE_LOOP
#undef MLC_NATIVE_CLEAR_ZMM
#undef MLC_NATIVE_CLEAR_YMM
#undef MLC_NATIVE_PEAK_LOOP
#elif defined(__aarch64__)
// Likewise, with 24 sums for up to four units; registers 28 and 29 hold products, 30 and 31
// operands.
#define MLC_NATIVE_PEAK_LOOP(NAME, UPDATE, OPERATIONS)                                           \
  inline int64_t NAME(int64_t iterations) {                                                      \
    asm volatile(                                                                                \
        ".irp r,0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21,22,23,30,31\n"           \
        "movi v\\r\\().16b, #0\n.endr\n"                                                         \
        ".p2align 6\n1:\n"                                                                       \
        ".irp r,0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21,22,23\n" UPDATE          \
        "\n.endr\n"                                                                              \
        "subs %0, %0, #1\nb.ne 1b\n"                                                             \
        : "+r"(iterations)                                                                       \
        :                                                                                        \
        : "cc", "v0", "v1", "v2", "v3", "v4", "v5", "v6", "v7", "v8", "v9", "v10", "v11", "v12", \
          "v13", "v14", "v15", "v16", "v17", "v18", "v19", "v20", "v21", "v22", "v23", "v28",    \
          "v29", "v30", "v31");                                                                  \
    return 24 * (OPERATIONS);                                                                    \
  }

MLC_NATIVE_PEAK_LOOP(NeonFloatPeak, "fmla v\\r\\().4s, v30.4s, v31.4s", 8)
MLC_NATIVE_PEAK_LOOP(NeonInt8Peak,
                     "smull v28.8h, v30.8b, v31.8b\nsmull2 v29.8h, v30.16b, v31.16b\n"
                     "addp v28.8h, v28.8h, v29.8h\nsadalp v\\r\\().4s, v28.8h",
                     32)
MLC_NATIVE_PEAK_LOOP(DotprodPeak, ".arch armv8.2-a+dotprod\nsdot v\\r\\().4s, v30.16b, v31.16b", 32)
MLC_NATIVE_PEAK_LOOP(BFloat16Peak, ".arch armv8.2-a+bf16\nbfdot v\\r\\().4s, v30.8h, v31.8h", 16)
MLC_NATIVE_PEAK_LOOP(I8mmPeak, ".arch armv8.2-a+i8mm\nsmmla v\\r\\().4s, v30.16b, v31.16b", 64)
#undef MLC_NATIVE_PEAK_LOOP
#endif

// Returns the loop for the products that the kernels of `isa` use. Without a dot product of
// bfloat16, those are the products of float32.
inline PeakLoop PeakLoopOf(std::string_view isa, Arithmetic arithmetic) {
  [[maybe_unused]] const bool int8 = arithmetic == Arithmetic::kInt8;
#if defined(__x86_64__)
  if (isa == "avx2") return int8 ? Avx2Int8Peak : Avx2FloatPeak;
  if (isa == "avx2_vnni") return int8 ? Avx2VnniPeak : Avx2FloatPeak;
  if (isa == "avx512") return int8 ? Avx512Int8Peak : Avx512FloatPeak;
  if (isa == "avx512_vnni") return int8 ? VnniPeak : Avx512FloatPeak;
  if (isa == "avx512_bf16" || isa == "avx512_amx") {
    const bool tiles = isa == "avx512_amx";
    if (int8) return tiles ? TileInt8Peak : VnniPeak;
    if (arithmetic == Arithmetic::kFloat32) return Avx512FloatPeak;
    return tiles ? TileBFloat16Peak : BFloat16Peak;
  }
  if (isa == "portable") return SsePeak;
#elif defined(__aarch64__)
  if (isa == "neon") return int8 ? NeonInt8Peak : NeonFloatPeak;
  if (isa == "neon_dotprod") return int8 ? DotprodPeak : NeonFloatPeak;
  if (isa == "neon_bf16" || isa == "neon_i8mm") {
    if (int8) return isa == "neon_i8mm" ? I8mmPeak : DotprodPeak;
    return arithmetic == Arithmetic::kBFloat16 ? BFloat16Peak : NeonFloatPeak;
  }
  if (isa == "portable") return NeonFloatPeak;
#endif
  return nullptr;  // no loop for this architecture: the peak is reported as 0
}

}  // namespace mlc_native::kernels
