// Lets torch take the memory of CPU tensors from the emulated device, so that the emulator treats
// the arguments of torch.ops.mlc_native_emulated as it treats all device memory: it starts as NaNs,
// ends at a page that may not be touched, and a kernel that is given anything else is refused.
#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>

#include <cstring>
#include <memory>

#include "kernels/cuda/runtime.h"

namespace mlc_native::ops {
namespace {

using kernels::cuda::DeviceMemory;

class EmulatedAllocator : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    auto memory = std::make_unique<DeviceMemory>(bytes);
    void* data = bytes > 0 ? memory->data() : nullptr;
    return {data, memory.release(), &Free, c10::Device(c10::DeviceType::CPU)};
  }
  void copy_data(void* to, const void* from, size_t bytes) const override {
    std::memcpy(to, from, bytes);
  }

 private:
  static void Free(void* memory) {
    const std::unique_ptr<DeviceMemory> owner(static_cast<DeviceMemory*>(memory));
  }
};

}  // namespace
}  // namespace mlc_native::ops

// For tensors made from now on.
extern "C" __attribute__((visibility("default"))) void mlc_native_emulated_allocate_tensors(
    int emulated) {
  static mlc_native::ops::EmulatedAllocator allocator;
  c10::SetCPUAllocator(emulated != 0 ? &allocator : c10::GetDefaultCPUAllocator());
}
