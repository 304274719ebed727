// torch::stable::Tensor and a few functions on it. The ops use only torch's stable ABI
// (torch/csrc/stable, torch/headeronly), so that one build works with every release of torch from
// TORCH_TARGET_VERSION (MlcNativeOps.cmake) on. Any thread.
#pragma once

#include <torch/csrc/stable/ops.h>
#include <torch/csrc/stable/tensor.h>

#include <array>
#include <optional>

namespace mlc_native::ops {

using torch::headeronly::ScalarType;
using torch::stable::Device;
using torch::stable::DeviceType;
using torch::stable::Tensor;
using OptionalTensor = std::optional<Tensor>;
using Sizes = torch::headeronly::IntHeaderOnlyArrayRef;

inline bool IsMeta(const Tensor& x) { return x.device().type() == DeviceType::Meta; }

// Allocates an uninitialized tensor on the device of `like`.
inline Tensor Empty(Sizes sizes, const Tensor& like, ScalarType dtype) {
  return torch::stable::new_empty(like, sizes, dtype);
}

// Allocates uninitialized bytes on the CPU, aligned for kernels.
inline Tensor HostBytes(size_t bytes) {
  return torch::stable::empty({static_cast<int64_t>(bytes)}, ScalarType::Byte, std::nullopt,
                              Device(DeviceType::CPU));
}

// Returns a contiguous tensor on the CPU, of type `dtype` if one is given.
inline Tensor ToHost(const Tensor& x, std::optional<ScalarType> dtype = std::nullopt) {
  return torch::stable::contiguous(
      torch::stable::to(x, dtype, std::nullopt, Device(DeviceType::CPU)));
}

// Returns the view x[:, start : start + length, ...], where `dim` is the dimension with the range.
inline Tensor Narrow(Tensor x, int64_t dim, int64_t start, int64_t length) {
  return torch::stable::narrow(x, dim, start, length);
}

// Calls an operator that torch/csrc/stable/ops.h lacks. The arguments are those of its schema.
template <typename... Args>
Tensor CallTorch(const char* name, const char* overload, const Args&... args) {
  std::array<StableIValue, sizeof...(Args)> stack{torch::stable::detail::from(args)...};
  STABLE_TORCH_ERROR_CODE_CHECK(
      torch_call_dispatcher(name, overload, stack.data(), TORCH_ABI_VERSION));
  return torch::stable::detail::to<Tensor>(stack[0]);
}

// Returns the same bytes as elements of another type.
inline Tensor ViewAs(const Tensor& x, ScalarType dtype) {
  return CallTorch("aten::view", "dtype", x, dtype);
}

}  // namespace mlc_native::ops
