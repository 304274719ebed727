// Sequences with random keys and values in shuffled pages. All other slots of the pool are NaN. One
// thread.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>
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
    const int64_t pool = num_pages * shape.kv_heads * HeadBytes();
    std::vector<uint8_t> k_bytes(pool, 0xff), v_bytes = k_bytes;
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
      k.push_back(Fill(lengths[i], table, content, &k_bytes));
      v.push_back(Fill(lengths[i], table, content, &v_bytes));
    }
    k_pages = std::make_unique<DeviceBytes>(k_bytes);
    v_pages = std::make_unique<DeviceBytes>(v_bytes);
    tables = std::make_unique<DeviceArray<int32_t>>(all_tables);
    kv = {.format = shape.format,
          .kv_heads = shape.kv_heads,
          .head_dim = shape.head_dim,
          .num_pages = num_pages,
          .k = k_pages->data(),
          .v = v_pages->data()};
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
    for (DeviceBytes* pages : {k_pages.get(), v_pages.get()}) {
      std::vector<uint8_t> bytes = pages->Download();
      for (int64_t p = 0; p < position; ++p) {
        const int64_t page = table_pages[i * ld_tables + p / kKvPageSize];
        for (int64_t h = 0; h < shape_.kv_heads; ++h) {
          const Place place = PlaceOf(page, h, p % kKvPageSize);
          std::fill_n(bytes.begin() + place.row, RowBytes(), uint8_t{0xff});
          if (place.scale > 0) std::fill_n(bytes.begin() + place.scale, 4, uint8_t{0xff});
        }
      }
      pages->Upload(bytes);
    }
  }

  // The reference output of sequence i for rows from first_position on, [rows, q_heads, head_dim].
  reference::Matrix Reference(size_t i, const Floats& q, int64_t first_position, float scale,
                              float soft_cap, AttentionWindow window, const Floats& sinks = {},
                              int64_t last_key = 0, DistanceBias bias = {}) const {
    return reference::Attention({.q_heads = shape_.q_heads,
                                 .kv_heads = shape_.kv_heads,
                                 .head_dim = shape_.head_dim,
                                 .scale = scale,
                                 .soft_cap = soft_cap,
                                 .window = window,
                                 .bias = bias,
                                 .sinks = ToDouble(sinks),
                                 .last_key = last_key},
                                ToDouble(q), k[i], v[i], first_position);
  }

  KvPages kv;
  std::vector<reference::Matrix> k, v;  // [length, kv_heads, head_dim] of each sequence
  std::unique_ptr<DeviceArray<int32_t>> tables;
  int64_t ld_tables = 1;

 private:
  static int64_t PagesOf(int64_t length) { return (length + kKvPageSize - 1) / kKvPageSize; }
  int64_t RowBytes() const { return shape_.head_dim * KvElementBytes(shape_.format); }
  int64_t HeadBytes() const { return KvHeadBytes(shape_.format, shape_.head_dim); }

  // Where the row of a token begins, in bytes, and its scale (0: there is none).
  struct Place {
    int64_t row = 0;
    int64_t scale = 0;
  };
  Place PlaceOf(int64_t page, int64_t head, int64_t token) const {
    const int64_t begin = (page * shape_.kv_heads + head) * HeadBytes();
    const bool has_scale = shape_.format == KvFormat::kFloat8;
    return {begin + token * RowBytes(),
            has_scale ? begin + kKvPageSize * RowBytes() + token * 4 : 0};
  }

  reference::Matrix Fill(int64_t length, const int32_t* table, std::mt19937& random,
                         std::vector<uint8_t>* bytes) {
    reference::Matrix dense;
    std::uniform_real_distribution<float> uniform(-1, 1);
    std::uniform_int_distribution<int> magnitude(0, 0x38);  // up to 1
    for (int64_t p = 0; p < length; ++p) {
      for (int64_t h = 0; h < shape_.kv_heads; ++h) {
        const Place place = PlaceOf(table[p / kKvPageSize], h, p % kKvPageSize);
        uint8_t* const row = bytes->data() + place.row;
        const float scale = std::abs(uniform(random));
        if (place.scale > 0) std::memcpy(bytes->data() + place.scale, &scale, sizeof scale);
        for (int64_t d = 0; d < shape_.head_dim; ++d) {
          if (place.scale > 0) {
            row[d] = static_cast<uint8_t>(magnitude(random) | (random() % 2 << 7));
            dense.push_back(Float8Value(row[d]) * scale);
          } else {
            StoreElement(shape_.dtype, row, d, uniform(random));
            dense.push_back(LoadElement(shape_.dtype, row, d));
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
