// Measures the limits of this machine, independent of the kernels: the read bandwidth of all
// threads and, for each available instruction set, the peak rate of multiply-adds on registers in
// float32, bfloat16 and 8-bit integers. Threads: MLC_NATIVE_BENCH_THREADS (default 2).
#include "kernels_machine.h"

int main() {
  using namespace mlc_native::kernels;
  for (std::string_view isa : AvailableIsas()) {
    setenv("MLC_NATIVE_ISA", std::string(isa).c_str(), 1);
    PrintLimits(MeasureMachine());
  }
}
