#include "models/cuda/upload_buffer.h"

#include "support/check.h"

namespace mlc_native {

using kernels::cuda::DeviceMemory;
using kernels::cuda::PinnedMemory;

UploadBuffer::UploadBuffer(size_t bytes) : device_(bytes) {
  for (Host& host : hosts_) host.memory = PinnedMemory(bytes);
}

void UploadBuffer::Begin() {
  current_ = 1 - current_;
  used_ = 0;
  hosts_[current_].copied.Synchronize();
}

size_t UploadBuffer::Reserve(size_t bytes) {
  MLC_CHECK(bytes <= free()) << bytes << " of " << free() << " bytes";
  const size_t at = used_;
  used_ += bytes;
  return at;
}

void UploadBuffer::Upload(kernels::cuda::Stream stream) {
  if (used_ == 0) return;
  kernels::cuda::CopyToDevice(device_.data(), hosts_[current_].memory.data(), used_, stream);
  hosts_[current_].copied.Record(stream);
}

}  // namespace mlc_native
