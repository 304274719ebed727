#include <algorithm>
#include <array>
#include <cstdlib>
#include <string>

#include "kernels/cpu/table.h"
#include "kernels/kernels.h"
#include "kernels/processor.h"
#include "kernels/self_check.h"
#include "support/error.h"

#if defined(__x86_64__)
#include <cpuid.h>
#if defined(__linux__)
#include <sys/syscall.h>
#include <unistd.h>
#endif
#elif defined(__aarch64__) && defined(__linux__)
#include <asm/hwcap.h>
#include <sys/auxv.h>
#endif

namespace mlc_native::kernels {
namespace {

struct Isa {
  std::string_view name;
  bool (*available)();
  const CpuKernels& (*table)();
};

// `others` has all but the linears.
#define MLC_NATIVE_LINEAR_ISA(isa, others, available)                                  \
  {#isa, available, []() -> const CpuKernels& {                                        \
     static const CpuKernels table = {isa::kLinear, others::kAttention, others::kRows, \
                                      others::kDelta, #isa};                           \
     return table;                                                                     \
   }}
#define MLC_NATIVE_ISA(isa, available) MLC_NATIVE_LINEAR_ISA(isa, isa, available)

#if defined(MLC_NATIVE_PORTABLE_ONLY)
#elif defined(__x86_64__)
bool HasAvx2() {
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
         __builtin_cpu_supports("f16c");
}
// Bit 4 of EAX of leaf 7, subleaf 1, which __builtin_cpu_supports knows in later compilers only.
// The instructions need no more of the operating system than AVX2.
bool HasAvx2Vnni() {
  unsigned int eax = 0, ebx = 0, ecx = 0, edx = 0;
  return HasAvx2() && __get_cpuid_count(7, 1, &eax, &ebx, &ecx, &edx) != 0 && (eax & 1U << 4) != 0;
}
bool HasAvx512() {
  return HasAvx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
}
bool HasAvx512Vnni() { return HasAvx512() && __builtin_cpu_supports("avx512vnni"); }
bool HasAvx512Bf16() { return HasAvx512Vnni() && __builtin_cpu_supports("avx512bf16"); }

// Linux gives the threads of a process tiles when it asks for them; not if one of them has a signal
// stack that is too small for them.
bool MayUseTiles() {
#if defined(__linux__)
  constexpr int kRequestPermission = 0x1023, kTileData = 18;
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
#else
  return false;
#endif
}
// Bits 22 (products of bfloat16), 24 (tiles) and 25 (products of 8 bits) of EDX of leaf 7.
bool HasAvx512Amx() {
  static const bool has = [] {
    constexpr unsigned int kTiles = 1U << 22 | 1U << 24 | 1U << 25;
    unsigned int eax = 0, ebx = 0, ecx = 0, edx = 0;
    return HasAvx512Bf16() && __get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) != 0 &&
           (edx & kTiles) == kTiles && MayUseTiles() &&
           MultipliesLike(avx512_amx::kLinear, avx512_bf16::kLinear);
  }();
  return has;
}
#elif defined(__aarch64__)
bool HasNeon() { return true; }  // part of AArch64
#if defined(__linux__)
bool HasNeonDotprod() { return (getauxval(AT_HWCAP) & HWCAP_ASIMDDP) != 0; }
bool HasNeonBf16() { return HasNeonDotprod() && (getauxval(AT_HWCAP2) & HWCAP2_BF16) != 0; }
bool HasNeonI8mm() { return HasNeonBf16() && (getauxval(AT_HWCAP2) & HWCAP2_I8MM) != 0; }
#else  // only what the compiler's target guarantees
bool HasNeonDotprod() {
#if defined(__ARM_FEATURE_DOTPROD)
  return true;
#else
  return false;
#endif
}
bool HasNeonBf16() {
#if defined(__ARM_FEATURE_DOTPROD) && defined(__ARM_FEATURE_BF16_VECTOR_ARITHMETIC)
  return true;
#else
  return false;
#endif
}
bool HasNeonI8mm() {
#if defined(__ARM_FEATURE_MATMUL_INT8)
  return HasNeonBf16();
#else
  return false;
#endif
}
#endif
#endif

// Best first.
constexpr Isa kIsas[] = {
#if defined(MLC_NATIVE_PORTABLE_ONLY)
#elif defined(__x86_64__)
    MLC_NATIVE_LINEAR_ISA(avx512_amx, avx512_vnni, HasAvx512Amx),
    MLC_NATIVE_ISA(avx512_bf16, HasAvx512Bf16),
    MLC_NATIVE_ISA(avx512_vnni, HasAvx512Vnni),
    MLC_NATIVE_ISA(avx512, HasAvx512),
    MLC_NATIVE_ISA(avx2_vnni, HasAvx2Vnni),
    MLC_NATIVE_ISA(avx2, HasAvx2),
#elif defined(__aarch64__)
    MLC_NATIVE_LINEAR_ISA(neon_i8mm, neon_bf16, HasNeonI8mm),
    MLC_NATIVE_ISA(neon_bf16, HasNeonBf16),
    MLC_NATIVE_ISA(neon_dotprod, HasNeonDotprod),
    MLC_NATIVE_ISA(neon, HasNeon),
#endif
    MLC_NATIVE_ISA(portable, [] { return true; }),
};
#undef MLC_NATIVE_ISA
#undef MLC_NATIVE_LINEAR_ISA

}  // namespace

std::vector<std::string_view> AvailableIsas() {
  std::vector<std::string_view> names;
  for (const Isa& isa : kIsas) {
    if (isa.available()) names.push_back(isa.name);
  }
  const auto pairs = std::ranges::find(names, "avx512_bf16");
  if (pairs != names.end() && MultipliesPairsSlowly(ThisProcessor())) {
    std::iter_swap(pairs, pairs + 1);  // with avx512_vnni, which makes floats of bfloat16
  }
  return names;
}

const CpuKernels& SelectCpuKernels(std::string_view name) {
  for (const Isa& isa : kIsas) {
    if (isa.name == name && isa.available()) return isa.table();
  }
  std::string message = "\"MLC_NATIVE_ISA\" must be one of";
  for (std::string_view available : AvailableIsas()) message.append(" ").append(available);
  message.append(" (what this machine has), got \"").append(name).append("\"");
  throw InvalidConfig("MLC_NATIVE_ISA", message);
}

const CpuKernels& SelectCpuKernels() {
  const char* forced = std::getenv("MLC_NATIVE_ISA");
  if (forced != nullptr && *forced != '\0') return SelectCpuKernels(forced);
  return SelectCpuKernels(AvailableIsas().front());
}

std::string_view IsaName(const CpuKernels& kernels) { return kernels.name; }

}  // namespace mlc_native::kernels
