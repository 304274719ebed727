// The formats of a loaded model as settings name them. Pure; any thread.
#pragma once

#include "kernels/kv_format.h"
#include "mlc_native/config.h"

namespace mlc_native {

constexpr KvCacheDType KvCacheDTypeOf(kernels::KvFormat format) {
  switch (format) {
    case kernels::KvFormat::kFloat32:
      return KvCacheDType::kFloat32;
    case kernels::KvFormat::kBFloat16:
      return KvCacheDType::kBFloat16;
    case kernels::KvFormat::kFloat16:
      return KvCacheDType::kFloat16;
    case kernels::KvFormat::kInt8:
      return KvCacheDType::kInt8;
    case kernels::KvFormat::kFloat8:
      return KvCacheDType::kFloat8;
  }
  return KvCacheDType::kAuto;
}

}  // namespace mlc_native
