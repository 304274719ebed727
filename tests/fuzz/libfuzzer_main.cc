// For clang's libFuzzer, which has the main function: the target is that of the environment
// variable MLC_NATIVE_FUZZ_TARGET.
#include <cstdio>
#include <cstdlib>

#include "run_target.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const mlc_native::fuzz::Target* const target = [] {
    const char* name = std::getenv("MLC_NATIVE_FUZZ_TARGET");
    const auto* found = mlc_native::fuzz::FindTarget(name == nullptr ? "" : name);
    if (found == nullptr) {
      std::fprintf(stderr, "MLC_NATIVE_FUZZ_TARGET names no target\n");
      std::exit(2);
    }
    return found;
  }();
  mlc_native::fuzz::RunOnce(*target, {data, size});
  return 0;
}
