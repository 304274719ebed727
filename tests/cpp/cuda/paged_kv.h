// Sequences with random keys and values in shuffled pages. All other slots of the pool are NaN. One
// thread.
#pragma once

#include <algorithm>
#include <memory>
#include <numeric>
#include <random>
#include <vector>

#include "cuda/test_util.h"

namespace mlc_native::kernels::cuda {

struct KvShape {
  DType dtype = DType::kBFloat16;  // type of the activations
  KvFormat format = KvFormat::kBFloat16;
  int64_t q_heads = 1;
  int64_t kv_heads = 1;
  int64_t head_dim = 64;
};

class PagedKv {
 public:
  // The contents of sequence i depend only on seeds[i].
  PagedKv(const KvShape& shape, const std::vector<int64_t>& lengths,
          const std::vector<uint32_t>& seeds)
      : shape_(shape), lengths_(lengths) {
    int64_t num_pages = 2;
    for (int64_t length : lengths) {
      num_pages += PagesOf(length);
      ld_tables = std::max(ld_tables, PagesOf(length));
    }
    const int64_t pool = num_pages * kKvPageSize * shape.kv_heads * shape.head_dim;
    std::vector<uint8_t> k_bytes(pool * KvElementBytes(shape.format), 0xff), v_bytes = k_bytes;
    std::vector<int32_t> free(num_pages);
    std::iota(free.begin(), free.end(), 0);
    std::mt19937 random(static_cast<unsigned>(pool));
    std::shuffle(free.begin(), free.end(), random);
    std::vector<int32_t> all_tables(lengths.size() * ld_tables, -1);
    for (size_t i = 0; i < lengths.size(); ++i) {
      int32_t* table = &all_tables[i * ld_tables];
      for (int64_t p = 0; p < PagesOf(lengths[i]); ++p) {
        table[p] = free.back();
        free.pop_back();
      }
      std::mt19937 content(seeds[i]);
      k.push_back(Fill(lengths[i], table, KScale(), content, &k_bytes));
      v.push_back(Fill(lengths[i], table, VScale(), content, &v_bytes));
    }
    k_pages = std::make_unique<DeviceBytes>(k_bytes);
    v_pages = std::make_unique<DeviceBytes>(v_bytes);
    tables = std::make_unique<DeviceArray<int32_t>>(all_tables);
    kv = {.format = shape.format,
          .kv_heads = shape.kv_heads,
          .head_dim = shape.head_dim,
          .num_pages = num_pages,
          .k = k_pages->data(),
          .v = v_pages->data(),
          .k_scale = KScale(),
          .v_scale = VScale()};
  }

  // Removes the pages wholly below `position`: a kernel that looks them up reads far outside the
  // pool.
  void ForgetPagesBelow(size_t i, int64_t position) {
    constexpr int32_t kNowhere = 1 << 26;
    std::vector<int32_t> changed = tables->Download();
    for (int64_t p = 0; (p + 1) * kKvPageSize <= position; ++p)
      changed[i * ld_tables + p] = kNowhere;
    tables->Upload(changed);
  }

  // Overwrites what lies below `position` with NaNs: nothing may depend on it any more.
  void ForgetKeysBelow(size_t i, int64_t position) {
    const std::vector<int32_t> table_pages = tables->Download();
    const int64_t row_bytes = shape_.head_dim * static_cast<int64_t>(KvElementBytes(shape_.format));
    for (DeviceBytes* pages : {k_pages.get(), v_pages.get()}) {
      std::vector<uint8_t> bytes = pages->Download();
      for (int64_t p = 0; p < position; ++p) {
        const int64_t page = table_pages[i * ld_tables + p / kKvPageSize];
        for (int64_t h = 0; h < shape_.kv_heads; ++h) {
          const int64_t slot = (page * shape_.kv_heads + h) * kKvPageSize + p % kKvPageSize;
          std::fill_n(bytes.begin() + slot * row_bytes, row_bytes, uint8_t{0xff});
        }
      }
      pages->Upload(bytes);
    }
  }

  // The reference output of sequence i for rows from first_position on, [rows, q_heads, head_dim].
  reference::Matrix Reference(size_t i, const Floats& q, int64_t first_position, float scale,
                              float soft_cap, int64_t window, const Floats& sinks = {}) const {
    return reference::Attention({.q_heads = shape_.q_heads,
                                 .kv_heads = shape_.kv_heads,
                                 .head_dim = shape_.head_dim,
                                 .scale = scale,
                                 .soft_cap = soft_cap,
                                 .window = window,
                                 .sinks = ToDouble(sinks)},
                                ToDouble(q), k[i], v[i], first_position);
  }

  KvPages kv;
  std::vector<reference::Matrix> k, v;  // [length, kv_heads, head_dim] of each sequence
  std::unique_ptr<DeviceArray<int32_t>> tables;
  int64_t ld_tables = 1;

 private:
  static int64_t PagesOf(int64_t length) { return (length + kKvPageSize - 1) / kKvPageSize; }
  float KScale() const { return shape_.format == KvFormat::kFloat8 ? 0.5f : 1.0f; }
  float VScale() const { return shape_.format == KvFormat::kFloat8 ? 0.25f : 1.0f; }

  reference::Matrix Fill(int64_t length, const int32_t* table, float scale, std::mt19937& random,
                         std::vector<uint8_t>* bytes) {
    reference::Matrix dense;
    std::uniform_real_distribution<float> uniform(-1, 1);
    std::uniform_int_distribution<int> magnitude(0, 0x38);  // up to 1
    for (int64_t p = 0; p < length; ++p) {
      for (int64_t h = 0; h < shape_.kv_heads; ++h) {
        const int64_t at =
            ((table[p / kKvPageSize] * shape_.kv_heads + h) * kKvPageSize + p % kKvPageSize) *
            shape_.head_dim;
        for (int64_t d = 0; d < shape_.head_dim; ++d) {
          if (shape_.format == KvFormat::kFloat8) {
            const auto code = static_cast<uint8_t>(magnitude(random) | (random() % 2 << 7));
            (*bytes)[at + d] = code;
            dense.push_back(Float8Value(code) * scale);
          } else {
            StoreElement(shape_.dtype, bytes->data(), at + d, uniform(random));
            dense.push_back(LoadElement(shape_.dtype, bytes->data(), at + d));
          }
        }
      }
    }
    return dense;
  }

  const KvShape shape_;
  const std::vector<int64_t> lengths_;
  std::unique_ptr<DeviceBytes> k_pages, v_pages;
};

}  // namespace mlc_native::kernels::cuda
