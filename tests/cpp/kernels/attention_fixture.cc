#include "kernels/attention_fixture.h"

#include <algorithm>
#include <numeric>

namespace mlc_native::kernels {

float RoundTo(KvFormat format, float x) {
  if (format == KvFormat::kBFloat16) return RoundTo(DType::kBFloat16, x);
  return format == KvFormat::kFloat16 ? RoundTo(DType::kFloat16, x) : x;
}

void RoundAsStored(KvFormat format, int64_t head_dim, Floats& rows) {
  for (size_t at = 0; at < rows.size(); at += head_dim) {
    float largest = 0;
    for (int64_t d = 0; d < head_dim; ++d) largest = std::max(largest, std::abs(rows[at + d]));
    for (int64_t d = 0; d < head_dim; ++d) {
      float& x = rows[at + d];
      x = format == KvFormat::kInt8 ? std::nearbyint(x * (127 / largest)) * (largest / 127)
                                    : RoundTo(format, x);
    }
  }
}

Sequence AttentionTest::MakeSequence(const Shape& shape, int64_t cached, int64_t rows) {
  Sequence s;
  s.cached = cached;
  s.rows = rows;
  const int64_t kv = (cached + rows) * shape.kv_heads * shape.head_dim;
  s.q = Random(rows * shape.q_heads * shape.head_dim, 2.0f);
  s.k = Random(kv, 2.0f);
  s.v = Random(kv);
  RoundAsStored(shape.format, shape.head_dim, s.k);
  RoundAsStored(shape.format, shape.head_dim, s.v);
  return s;
}

AttentionTest::Cache AttentionTest::MakeCache(const Shape& shape,
                                              std::vector<Sequence>& sequences) {
  int64_t num_pages = 3;
  for (const Sequence& s : sequences) num_pages += PagesOf(s);
  std::vector<int32_t> free(num_pages);
  std::iota(free.begin(), free.end(), 0);
  std::shuffle(free.begin(), free.end(), random_);
  Cache cache;
  const size_t block = KvLayerBytes(shape.format, kKvBlockPages, shape.kv_heads, shape.head_dim);
  const size_t bytes = (num_pages + kKvBlockPages - 1) / kKvBlockPages * block;
  cache.k_pages = AlignedBuffer(bytes);
  cache.v_pages = AlignedBuffer(bytes);
  std::memset(cache.k_pages.data(), 0xff, bytes);
  std::memset(cache.v_pages.data(), 0xff, bytes);
  cache.layer = {.format = shape.format,
                 .kv_heads = shape.kv_heads,
                 .head_dim = shape.head_dim,
                 .num_pages = num_pages,
                 .k_pages = cache.k_pages.data(),
                 .v_pages = cache.v_pages.data(),
                 .block_bytes = static_cast<int64_t>(block)};
  for (Sequence& s : sequences) {
    s.table.assign(free.end() - PagesOf(s), free.end());
    free.resize(free.size() - PagesOf(s));
    Write(cache.layer, s);
  }
  return cache;
}

void AttentionTest::Write(const KvPages& layer, const Sequence& s) {
  std::vector<int64_t> slots;
  for (int64_t p = 0; p < s.cached + s.rows; ++p) {
    slots.push_back(s.table[p / kPageSize] * kPageSize + p % kPageSize);
  }
  const int64_t width = layer.kv_heads * layer.head_dim;
  WriteKv(Threads(2), layer,
          {.k = s.k.data(),
           .ldk = width,
           .v = s.v.data(),
           .ldv = width,
           .m = static_cast<int64_t>(slots.size()),
           .slots = slots.data()});
}

void AttentionTest::AddDistances(int trial, Shape* shape) {
  if (trial % 9 != 6) {
    for (int64_t head = 0; head < shape->q_heads; ++head) {
      shape->slopes.push_back(std::exp2(-static_cast<float>(head % 12) - 2));
    }
  }
  if (trial % 9 == 0) return;
  shape->reach = RandomInt(0, 140);
  shape->distances = Random(shape->q_heads * (2 * shape->reach + 1), 4.0f);
}

DistanceBias AttentionTest::BiasOf(const Shape& shape, Floats* table) {
  DistanceBias bias{.slopes = shape.slopes.empty() ? nullptr : shape.slopes.data()};
  if (shape.distances.empty()) return bias;
  *table = PadDistances(shape.distances, shape.q_heads, shape.reach);
  bias.table = table->data();
  bias.reach = shape.reach;
  return bias;
}

void AttentionTest::AddVectors(int trial, Shape* shape) {
  shape->vector_reach = RandomInt(0, 140);
  const int64_t size = shape->q_heads * shape->head_dim * (2 * shape->vector_reach + 1);
  if (trial % 5 != 1) shape->key_vectors = Random(size, 2.0f);
  if (trial % 5 != 3) shape->query_vectors = Random(size, 2.0f);
}

AttentionTest::VectorRows::VectorRows(const Shape& shape) : view{.reach = shape.vector_reach} {
  const int64_t rows = shape.q_heads * shape.head_dim;
  if (!shape.key_vectors.empty()) {
    keys = PadDistances(shape.key_vectors, rows, shape.vector_reach);
    view.keys = keys.data();
  }
  if (!shape.query_vectors.empty()) {
    queries = PadDistances(shape.query_vectors, rows, shape.vector_reach);
    view.queries = queries.data();
  }
}

Floats AttentionTest::Run(const Cpu& cpu, const Shape& shape, const KvPages& layer,
                          const std::vector<Sequence>& sequences) {
  Floats q;
  std::vector<AttentionSequence> batch;
  const int64_t width = shape.q_heads * shape.head_dim;
  for (const Sequence& s : sequences) {
    batch.push_back({.row_begin = static_cast<int64_t>(q.size()) / width,
                     .num_rows = s.rows,
                     .first_position = s.cached,
                     .block_table = s.table.data(),
                     .last_key = s.last_key});
    q.insert(q.end(), s.q.begin(), s.q.end());
  }
  const int64_t m = static_cast<int64_t>(q.size()) / width;
  Poisoned out(m, width, 5);
  const AlignedBuffer workspace(AttentionWorkspaceBytes(cpu.pool->num_threads(), shape.q_heads,
                                                        shape.kv_heads, shape.head_dim));
  std::memset(workspace.data(), 0xff, workspace.size());
  Floats table;
  const VectorRows vectors(shape);
  PagedAttention(cpu, layer,
                 {.q = q.data(),
                  .ldq = width,
                  .out = out.data.data(),
                  .ldo = out.ld,
                  .q_heads = shape.q_heads,
                  .scale = Scale(shape),
                  .soft_cap = shape.soft_cap,
                  .window = shape.window,
                  .bias = BiasOf(shape, &table),
                  .vectors = vectors.view,
                  .sinks = shape.sinks.empty() ? nullptr : shape.sinks.data(),
                  .value_columns = shape.value_columns,
                  .sequences = batch.data(),
                  .num_sequences = static_cast<int64_t>(batch.size()),
                  .workspace = workspace.data()});
  out.ExpectPaddingUntouched();
  return out.Dense();
}

reference::Matrix AttentionTest::Truth(const Shape& shape, const Sequence& s) {
  Floats table;
  const VectorRows vectors(shape);
  return reference::Attention({.q_heads = shape.q_heads,
                               .kv_heads = shape.kv_heads,
                               .head_dim = shape.head_dim,
                               .scale = Scale(shape),
                               .soft_cap = shape.soft_cap,
                               .window = shape.window,
                               .bias = BiasOf(shape, &table),
                               .vectors = vectors.view,
                               .sinks = {shape.sinks.begin(), shape.sinks.end()},
                               .last_key = s.last_key},
                              ToDouble(s.q), ToDouble(s.k), ToDouble(s.v), s.cached);
}

Sequence AttentionTest::Slice(const Shape& shape, const Sequence& s, int64_t from, int64_t to) {
  Sequence part = s;
  const int64_t width = shape.q_heads * shape.head_dim;
  part.q.assign(s.q.begin() + from * width, s.q.begin() + to * width);
  part.cached = s.cached + from;
  part.rows = to - from;
  return part;
}

}  // namespace mlc_native::kernels
