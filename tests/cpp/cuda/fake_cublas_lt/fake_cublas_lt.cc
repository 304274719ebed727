// A fake cuBLASLt for the emulated machine: the twelve functions that models/cuda/cublas_lt_api.h
// declares, with column-major products summed in double. It refuses what the real library refuses
// (layouts that do not fit together, unknown attributes).
#include "cuda/fake_cublas_lt/fake_cublas_lt.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <map>
#include <thread>

#include "cuda/emulator/emulator.h"
#include "models/cuda/cublas_lt_api.h"
#include "support/half.h"

namespace mlc_native::cublas_lt {

struct HandleTag {};
struct DescTag {
  std::map<int, uint64_t> values;  // by attribute
};
struct LayoutTag {
  int type;
  int64_t rows;
  int64_t columns;
  int64_t ld;
};
struct PreferenceTag {
  std::map<int, uint64_t> values;
};

namespace {

constexpr int kInvalidValue = 7;
constexpr int kNotSupported = 15;
constexpr uint64_t kAlgorithm = 0x416c676f;

int num_products = 0;
int num_objects = 0;
int lookups_left = -1;
int num_algorithms = 1;
std::map<int, int> products_of;  // by algorithm

template <typename T>
int Make(T** out) {
  *out = new T();
  ++num_objects;
  return kSuccess;
}

template <typename T>
int Drop(T* object) {
  delete object;
  --num_objects;
  return kSuccess;
}

template <typename Tag>
int Set(Tag* tag, int attribute, const std::map<int, size_t>& sizes, const void* value,
        size_t size) {
  const auto known = sizes.find(attribute);
  if (known == sizes.end() || known->second != size) return kInvalidValue;
  std::memcpy(&tag->values[attribute], value, size);
  return kSuccess;
}

DType TypeOf(int type) {
  return type == cublas_lt::kFloat32    ? DType::kFloat32
         : type == cublas_lt::kBFloat16 ? DType::kBFloat16
                                        : DType::kFloat16;
}

// d = a^T b (+ bias): what a launch is told.
struct Product {
  LayoutTag a_layout, b_layout, d_layout;
  const void* a;
  const void* b;
  void* d;
  const void* bias;
  int bias_type;
  float more;  // of each output
  std::chrono::milliseconds time;
};

void Run(const Product& p) {
  std::this_thread::sleep_for(p.time);
  for (int64_t column = 0; column < p.d_layout.columns; ++column) {
    for (int64_t row = 0; row < p.d_layout.rows; ++row) {
      double sum = p.bias == nullptr ? 0 : LoadElement(TypeOf(p.bias_type), p.bias, row);
      for (int64_t k = 0; k < p.a_layout.rows; ++k) {
        sum += static_cast<double>(
                   LoadElement(TypeOf(p.a_layout.type), p.a, row * p.a_layout.ld + k)) *
               LoadElement(TypeOf(p.b_layout.type), p.b, column * p.b_layout.ld + k);
      }
      StoreElement(TypeOf(p.d_layout.type), p.d, column * p.d_layout.ld + row,
                   static_cast<float>(sum) * (1 + p.more));
    }
  }
}

bool Fit(const DescTag& desc, const LayoutTag& a, const LayoutTag& b, const LayoutTag& d) {
  const auto transposed = desc.values.find(static_cast<int>(DescAttribute::kTransA));
  return transposed != desc.values.end() && transposed->second == 1 && a.rows == b.rows &&
         d.rows == a.columns && d.columns == b.columns && a.ld >= a.rows && b.ld >= b.rows &&
         d.ld >= d.rows && a.type == b.type;
}

}  // namespace
}  // namespace mlc_native::cublas_lt

using namespace mlc_native::cublas_lt;  // NOLINT: C functions

extern "C" {

int fake_cublas_lt_num_products() { return num_products; }
int fake_cublas_lt_num_objects() { return num_objects; }
void fake_cublas_lt_refuse(int num_lookups) { lookups_left = num_lookups; }
void fake_cublas_lt_suggest(int number) { num_algorithms = number; }
int fake_cublas_lt_num_products_of(int algorithm) { return products_of[algorithm]; }

int cublasLtCreate(Handle* handle) { return Make(handle); }
int cublasLtDestroy(Handle handle) { return Drop(handle); }

int cublasLtMatmulDescCreate(Desc* desc, int compute, int scale) {
  if (compute != kComputeFloat32 || scale != kFloat32) return kNotSupported;
  return Make(desc);
}
int cublasLtMatmulDescDestroy(Desc desc) { return Drop(desc); }
int cublasLtMatmulDescSetAttribute(Desc desc, int attribute, const void* value, size_t size) {
  return Set(desc, attribute, {{3, 4}, {4, 4}, {7, 4}, {8, 8}, {26, 4}}, value, size);
}

int cublasLtMatrixLayoutCreate(Layout* layout, int type, uint64_t rows, uint64_t columns,
                               int64_t ld) {
  Make(layout);
  **layout = {type, static_cast<int64_t>(rows), static_cast<int64_t>(columns), ld};
  return kSuccess;
}
int cublasLtMatrixLayoutDestroy(Layout layout) { return Drop(layout); }

int cublasLtMatmulPreferenceCreate(Preference* preference) { return Make(preference); }
int cublasLtMatmulPreferenceDestroy(Preference preference) { return Drop(preference); }
int cublasLtMatmulPreferenceSetAttribute(Preference preference, int attribute, const void* value,
                                         size_t size) {
  return Set(preference, attribute, {{1, 8}, {3, 4}}, value, size);
}

int cublasLtMatmulAlgoGetHeuristic(Handle, Desc desc, Layout a, Layout b, Layout c, Layout d,
                                   Preference preference, int asked, Heuristic* results,
                                   int* found) {
  *found = 0;
  if (lookups_left == 0) return kNotSupported;
  if (lookups_left > 0) --lookups_left;
  if (asked < 1 || c != d || !Fit(*desc, *a, *b, *d)) return kInvalidValue;
  if (preference->values.at(3) != 0) return kNotSupported;  // sums over blocks
  for (; *found < std::min(asked, num_algorithms); ++*found) {
    results[*found] = {};
    results[*found].algorithm.data[0] = kAlgorithm;
    results[*found].algorithm.data[1] = static_cast<uint64_t>(*found);
  }
  return kSuccess;
}

int cublasLtMatmul(Handle, Desc desc, const void* alpha, const void* a, Layout a_layout,
                   const void* b, Layout b_layout, const void* beta, const void*, Layout, void* d,
                   Layout d_layout, const Algorithm* algorithm, void*, size_t,
                   CUstream_st* stream) {
  if (*static_cast<const float*>(alpha) != 1 || *static_cast<const float*>(beta) != 0 ||
      algorithm->data[0] != kAlgorithm || !Fit(*desc, *a_layout, *b_layout, *d_layout)) {
    return kInvalidValue;
  }
  const auto number = static_cast<int>(algorithm->data[1]);
  const bool is_slow = number == 0 && num_algorithms > 1;
  Product product{.a_layout = *a_layout,
                  .b_layout = *b_layout,
                  .d_layout = *d_layout,
                  .a = a,
                  .b = b,
                  .d = d,
                  .bias = nullptr,
                  .bias_type = 0,
                  .more = number == 1 ? 0.25f : 0.0f,
                  .time = std::chrono::milliseconds(is_slow ? 20 : 0)};
  if (desc->values[7] == kEpilogueBias) {
    product.bias = reinterpret_cast<const void*>(desc->values[8]);
    product.bias_type = static_cast<int>(desc->values[26]);
  }
  ++num_products;
  ++products_of[number];
  mlc_native::emulator::PutLaunch(stream, [product] { Run(product); });
  return kSuccess;
}
}
