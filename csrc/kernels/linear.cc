// Packing, look-up and threading of packed linears. The panel layout is a function of the panel
// width alone; only the inner loops (cpu/linear.inl) belong to an ISA.
#include <algorithm>
#include <type_traits>

#include "kernels/cpu/table.h"
#include "kernels/kernels.h"
#include "support/check.h"
#include "support/half.h"

namespace mlc_native::kernels {
namespace {

// A part of a linear has at least this many multiply-adds (some 10 us), and with more rows than a
// tile this many panels, over which packing the rows pays.
constexpr int64_t kMinWorkPerPart = 128 * 1024;
constexpr int64_t kMinPanelsPerPart = 32;

int64_t CeilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }

int64_t NumPanels(const PackedLinear& w) { return CeilDiv(w.n, w.panel_width); }

int64_t PanelBytes(DType dtype, int64_t k, int64_t panel_width) {
  const auto bytes = static_cast<int64_t>(DTypeSize(dtype)) * k * panel_width;
  return CeilDiv(bytes, kPackedAlignment) * kPackedAlignment;
}

// Place of a column within the panel_width elements of one k. bfloat16 interleaves the two vectors
// of a panel, so that a shift and a mask of one load give both.
int64_t ColumnSlot(DType dtype, int64_t column, int64_t panel_width) {
  if (dtype != DType::kBFloat16) return column;
  const int64_t lanes = panel_width / 2;
  return column < lanes ? 2 * column : 2 * (column - lanes) + 1;
}

// The elements of one packed row: element k is data[k * panel_width].
void* RowStart(const PackedLinear& w, int64_t row) {
  const int64_t slot = ColumnSlot(w.dtype, row % w.panel_width, w.panel_width);
  return static_cast<char*>(w.data) +
         row / w.panel_width * PanelBytes(w.dtype, w.k, w.panel_width) +
         slot * static_cast<int64_t>(DTypeSize(w.dtype));
}

void CheckPacked(const PackedLinear& w) {
  MLC_CHECK(w.n > 0 && w.k > 0 && w.panel_width > 0 && w.data != nullptr)
      << "n " << w.n << " k " << w.k << " panel_width " << w.panel_width;
}

// Element types as (storage, conversions), so that the loops below are free of switches.
struct Float32Codec {
  using Storage = float;
  static float Decode(float x) { return x; }
  static float Encode(float x) { return x; }
};
struct BFloat16Codec {
  using Storage = uint16_t;
  static float Decode(uint16_t x) { return BFloat16ToFloat(x); }
  static uint16_t Encode(float x) { return FloatToBFloat16(x); }
};
struct Float16Codec {
  using Storage = uint16_t;
  static float Decode(uint16_t x) { return Float16ToFloat(x); }
  static uint16_t Encode(float x) { return FloatToFloat16(x); }
};

template <typename F>
void WithCodec(DType dtype, F f) {
  switch (dtype) {
    case DType::kFloat32:
      return f(Float32Codec{});
    case DType::kBFloat16:
      return f(BFloat16Codec{});
    case DType::kFloat16:
      return f(Float16Codec{});
  }
}

template <typename From, typename To>
void PackRow(const typename From::Storage* from, int64_t k, typename To::Storage* to,
             int64_t stride) {
  for (int64_t i = 0; i < k; ++i) {
    if constexpr (std::is_same_v<From, To>) {
      to[i * stride] = from[i];  // bit copy
    } else {
      to[i * stride] = To::Encode(From::Decode(from[i]));
    }
  }
}

// Blocks of k, so that a panel's lines stay in L1 while its rows are written one after the other.
constexpr int64_t kPackBlock = 256;

template <typename From, typename To>
void PackPanelRows(const PackedLinear& w, int64_t row_begin, int64_t row_end,
                   const typename From::Storage* source, int64_t ld) {
  for (int64_t k0 = 0; k0 < w.k; k0 += kPackBlock) {
    const int64_t k = std::min(kPackBlock, w.k - k0);
    for (int64_t row = row_begin; row < row_end; ++row) {
      auto* to = static_cast<typename To::Storage*>(RowStart(w, row)) + k0 * w.panel_width;
      PackRow<From, To>(source + (row - row_begin) * ld + k0, k, to, w.panel_width);
    }
  }
}

void ZeroTail(const PackedLinear& w) {
  for (int64_t row = w.n; row < NumPanels(w) * w.panel_width; ++row) {
    for (int64_t k = 0; k < w.k; ++k) StoreElement(w.dtype, RowStart(w, row), k * w.panel_width, 0);
  }
}

// Runs fn(begin, end) over rows, each thread with at least kMinElementsPerThread elements.
constexpr int64_t kMinElementsPerThread = 16 * 1024;

template <typename F>
void ForRows(const Cpu& cpu, int64_t rows, int64_t elements_per_row, F fn) {
  const int64_t grain = CeilDiv(kMinElementsPerThread, std::max<int64_t>(1, elements_per_row));
  cpu.pool->ParallelFor(rows, [&](int64_t begin, int64_t end, int) { fn(begin, end); }, grain);
}

template <typename Codec>
void GatherRow(const void* data, int64_t stride, int64_t k, float scale, float* out) {
  const auto* from = static_cast<const typename Codec::Storage*>(data);
  for (int64_t i = 0; i < k; ++i) out[i] = Codec::Decode(from[i * stride]) * scale;
}

void CheckIds(const GatherArgs& args, int64_t n) {
  for (int64_t i = 0; i < args.m; ++i) {
    MLC_CHECK(args.ids[i] >= 0 && args.ids[i] < n) << "id " << args.ids[i] << " of " << n;
  }
}

}  // namespace

size_t PackedLinearBytes(const CpuKernels& isa, DType dtype, int64_t n, int64_t k) {
  return static_cast<size_t>(CeilDiv(n, isa.panel_width) * PanelBytes(dtype, k, isa.panel_width));
}

PackedLinear MakePackedLinear(const CpuKernels& isa, DType dtype, int64_t n, int64_t k,
                              void* data) {
  const PackedLinear w{
      .dtype = dtype, .n = n, .k = k, .panel_width = isa.panel_width, .data = data};
  CheckPacked(w);
  return w;
}

void PackLinear(const PackedLinear& w, int64_t row_offset, const PackSource& source) {
  CheckPacked(w);
  MLC_CHECK(row_offset >= 0 && row_offset + source.rows <= w.n && source.ld >= w.k)
      << "rows " << row_offset << " + " << source.rows << " of " << w.n << ", ld " << source.ld;
  WithCodec(source.dtype, [&](auto from) {
    WithCodec(w.dtype, [&](auto to) {
      using From = decltype(from);
      const auto* data = static_cast<const typename From::Storage*>(source.data);
      for (int64_t row = row_offset; row < row_offset + source.rows;) {
        const int64_t next =
            std::min((row / w.panel_width + 1) * w.panel_width, row_offset + source.rows);
        PackPanelRows<From, decltype(to)>(w, row, next, data + (row - row_offset) * source.ld,
                                          source.ld);
        row = next;
      }
    });
  });
  if (row_offset + source.rows == w.n) ZeroTail(w);
}

void Linear(const Cpu& cpu, const PackedLinear& w, const LinearArgs& args) {
  CheckPacked(w);
  MLC_CHECK(w.panel_width == cpu.isa->panel_width) << "packed for another ISA";
  MLC_CHECK(args.m >= 0 && args.ldx >= w.k && args.ldy >= w.n);
  if (args.m == 0) return;
  int64_t grain = CeilDiv(kMinWorkPerPart, args.m * w.k * w.panel_width);
  if (args.m > cpu.isa->tile_rows) {
    const int64_t share = NumPanels(w) / cpu.pool->num_threads();
    grain = std::max(grain, std::min(kMinPanelsPerPart, share));
  }
  cpu.pool->ParallelFor(
      NumPanels(w), [&](int64_t begin, int64_t end, int) { cpu.isa->linear(w, args, begin, end); },
      grain);
}

void GatherPackedRows(const Cpu& cpu, const PackedLinear& table, const GatherArgs& args) {
  CheckPacked(table);
  CheckIds(args, table.n);
  ForRows(cpu, args.m, table.k, [&](int64_t begin, int64_t end) {
    WithCodec(table.dtype, [&](auto codec) {
      for (int64_t i = begin; i < end; ++i) {
        GatherRow<decltype(codec)>(RowStart(table, args.ids[i]), table.panel_width, table.k,
                                   args.scale, args.out + i * args.ldo);
      }
    });
  });
}

void GatherRows(const Cpu& cpu, const RowTable& table, const GatherArgs& args) {
  CheckIds(args, table.n);
  ForRows(cpu, args.m, table.k, [&](int64_t begin, int64_t end) {
    WithCodec(table.dtype, [&](auto codec) {
      using Storage = typename decltype(codec)::Storage;
      for (int64_t i = begin; i < end; ++i) {
        GatherRow<decltype(codec)>(static_cast<const Storage*>(table.data) + args.ids[i] * table.ld,
                                   1, table.k, args.scale, args.out + i * args.ldo);
      }
    });
  });
}

}  // namespace mlc_native::kernels
