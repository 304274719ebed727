#include "kernels/processor.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

#include <cstring>

namespace mlc_native::kernels {

Processor ThisProcessor() {
  Processor processor;
#if defined(__x86_64__)
  unsigned int eax = 0, ebx = 0, ecx = 0, edx = 0;
  if (__get_cpuid(0, &eax, &ebx, &ecx, &edx) == 0) return processor;
  processor.vendor.resize(12);
  std::memcpy(processor.vendor.data(), &ebx, 4);
  std::memcpy(processor.vendor.data() + 4, &edx, 4);
  std::memcpy(processor.vendor.data() + 8, &ecx, 4);
  if (__get_cpuid(1, &eax, &ebx, &ecx, &edx) == 0) return processor;
  constexpr unsigned int kExtended = 15;  // the family is longer than its field
  processor.family = eax >> 8 & 15;
  if (processor.family == kExtended) processor.family += eax >> 20 & 255;
  processor.model = (eax >> 4 & 15) | (eax >> 12 & 240);
#endif
  return processor;
}

bool MultipliesPairsSlowly(const Processor& processor) {
  constexpr unsigned int kCooperLake = 0x55;  // has the instructions, and no AMX
  return processor.vendor == "GenuineIntel" && processor.family == 6 &&
         processor.model != kCooperLake;
}

}  // namespace mlc_native::kernels
