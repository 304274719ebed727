// Packs weights into panels and reads rows back from them (embeddings). Besides packed_format.h,
// stored_groups.h and the loops of cpu/linear.inl, only this file depends on the layout of panels.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <type_traits>

#include "kernels/cpu/table.h"
#include "kernels/kernels.h"
#include "kernels/packed_format.h"
#include "kernels/row_loop.h"
#include "kernels/stored_groups.h"
#include "support/check.h"

namespace mlc_native::kernels {
namespace {

// A view of column `c` in a group of `width` columns.
template <typename Group>
void StoreColumn(const typename Group::Stored& from, char* group, int64_t width, int64_t c) {
  constexpr PanelLayout kLayout = Group::kLayout;
  const auto* bytes = reinterpret_cast<const char*>(from.codes);
  for (int64_t at = 0; at < kLayout.CodeBytes(1); at += kLayout.chunk_bytes) {
    std::memcpy(group + at * width + c * kLayout.chunk_bytes, bytes + at, kLayout.chunk_bytes);
  }
  const auto* scales = reinterpret_cast<const char*>(&from.scale);
  char* to = group + kLayout.CodeBytes(width);
  for (int64_t i = 0; i < kLayout.scales; ++i) {
    constexpr int64_t kBytes = kLayout.scale_bytes / kLayout.scales;
    std::memcpy(to + (i * width + c) * kBytes, scales + i * kBytes, kBytes);
  }
}
template <typename Group>
typename Group::Stored LoadColumn(const char* group, int64_t width, int64_t c) {
  constexpr PanelLayout kLayout = Group::kLayout;
  typename Group::Stored to;
  auto* bytes = reinterpret_cast<char*>(to.codes);
  for (int64_t at = 0; at < kLayout.CodeBytes(1); at += kLayout.chunk_bytes) {
    std::memcpy(bytes + at, group + at * width + c * kLayout.chunk_bytes, kLayout.chunk_bytes);
  }
  auto* scales = reinterpret_cast<char*>(&to.scale);
  const char* from = group + kLayout.CodeBytes(width);
  for (int64_t i = 0; i < kLayout.scales; ++i) {
    constexpr int64_t kBytes = kLayout.scale_bytes / kLayout.scales;
    std::memcpy(scales + i * kBytes, from + (i * width + c) * kBytes, kBytes);
  }
  return to;
}

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

template <typename F>
void WithGroup(WeightFormat format, F f) {
  switch (format) {
    case WeightFormat::kFloat32:
      return f(FloatGroup<Float32Codec>{});
    case WeightFormat::kBFloat16:
      return f(FloatGroup<BFloat16Codec>{});
    case WeightFormat::kFloat16:
      return f(FloatGroup<Float16Codec>{});
    case WeightFormat::kQ8:
      return f(QuantGroup<WeightFormat::kQ8>{});
    case WeightFormat::kQ4:
      return f(QuantGroup<WeightFormat::kQ4>{});
    case WeightFormat::kMxfp4:
      return f(Mxfp4Group{});
    case WeightFormat::kQ8Group32:
      return f(QuantGroup<WeightFormat::kQ8Group32>{});
    case WeightFormat::kQ4Group16:
      return f(QuantGroup<WeightFormat::kQ4Group16>{});
    case WeightFormat::kIq4:
      return f(TableGroup<WeightFormat::kIq4>{});
    case WeightFormat::kIq3:
      return f(TableGroup<WeightFormat::kIq3>{});
    case WeightFormat::kIq2Group16:
      return f(TableGroup<WeightFormat::kIq2Group16>{});
    case WeightFormat::kFp4Group16:
      return f(TableGroup<WeightFormat::kFp4Group16>{});
    case WeightFormat::kQ4AffineGroup16:
      return f(AffineGroup<WeightFormat::kQ4AffineGroup16,  //
                           QuantGroup<WeightFormat::kQ4Group16>>{});
    case WeightFormat::kQ2AffineGroup16:
      return f(AffineGroup<WeightFormat::kQ2AffineGroup16,  //
                           Q2Group<WeightFormat::kQ2AffineGroup16>>{});
    case WeightFormat::kQ2:
      return f(Q2Group<WeightFormat::kQ2>{});
    case WeightFormat::kFloat8:
      return f(Float8Group{});
    case WeightFormat::kQ6:
      return f(Q6Group<WeightFormat::kQ6>{});
    case WeightFormat::kQ6Group16:
      return f(Q6Group<WeightFormat::kQ6Group16>{});
    case WeightFormat::kQ4Affine:
      return f(AffineGroup<WeightFormat::kQ4Affine, QuantGroup<WeightFormat::kQ4>>{});
    case WeightFormat::kQ6Affine:
      return f(AffineGroup<WeightFormat::kQ6Affine, Q6Group<WeightFormat::kQ6Affine>>{});
    case WeightFormat::kQ6AffineGroup16:
      return f(AffineGroup<WeightFormat::kQ6AffineGroup16,  //
                           Q6Group<WeightFormat::kQ6AffineGroup16>>{});
  }
}

char* PanelOf(const PackedLinear& w, int64_t row) {
  return static_cast<char*>(w.data) +
         row / w.panel_width * LayoutOf(w.format).PanelBytes(w.k, w.panel_width);
}

void CheckPacked(const PackedLinear& w) {
  MLC_CHECK(w.n > 0 && w.k > 0 && w.panel_width > 0 && w.data != nullptr)
      << "n " << w.n << " k " << w.k << " panel_width " << w.panel_width;
}

// Writes rows of one panel. encode(row, k, count, out) writes `count` elements of a row as groups.
template <typename Group, typename Encode>
void PackPanelRows(const PackedLinear& w, int64_t row_begin, int64_t row_end,
                   const Encode& encode) {
  constexpr PanelLayout kLayout = Group::kLayout;
  const int64_t group_bytes = kLayout.GroupBytes(w.panel_width);
  char* panel = PanelOf(w, row_begin);
  for (int64_t k = 0; k < w.k; k += kPackBlock) {
    const int64_t count = std::min(kPackBlock, w.k - k);
    for (int64_t row = row_begin; row < row_end; ++row) {
      typename Group::Stored groups[kPackBlock / kLayout.group] = {};
      encode(row, k, count, groups);
      char* group = panel + k / kLayout.group * group_bytes;
      for (int64_t g = 0; g < kLayout.Groups(count); ++g, group += group_bytes) {
        StoreColumn<Group>(groups[g], group, w.panel_width, row % w.panel_width);
      }
    }
  }
}

// Zeroes the columns of the last panel beyond the weight. Zero bytes mean zero in every format.
template <typename Group>
void ZeroTail(const PackedLinear& w) {
  constexpr PanelLayout kLayout = Group::kLayout;
  const int64_t width = w.panel_width;
  char* group = PanelOf(w, w.n - 1);
  for (int64_t i = 0; i < kLayout.Groups(w.k); ++i, group += kLayout.GroupBytes(width)) {
    for (int64_t row = w.n; row % width != 0; ++row)
      StoreColumn<Group>({}, group, width, row % width);
  }
}

// Writes rows [begin, end), panel by panel.
template <typename Group, typename Encode>
void PackRows(const PackedLinear& w, int64_t begin, int64_t end, const Encode& encode) {
  for (int64_t row = begin; row < end;) {
    const int64_t next = std::min(end, (row / w.panel_width + 1) * w.panel_width);
    PackPanelRows<Group>(w, row, next, encode);
    row = next;
  }
  if (end == w.n) ZeroTail<Group>(w);
}

void CheckRows(const PackedLinear& w, int64_t row_offset, int64_t rows, int64_t ld) {
  CheckPacked(w);
  MLC_CHECK(row_offset >= 0 && row_offset + rows <= w.n && ld >= w.k)
      << "rows " << row_offset << " + " << rows << " of " << w.n << ", ld " << ld;
}

template <typename Group>
void PackCodeRows(const PackedLinear& w, int64_t row_offset, const PackCodes& source) {
  constexpr int64_t kGroup = Group::kLayout.group;
  MLC_CHECK(source.group >= w.k || (source.group > 0 && source.group % kGroup == 0))
      << "group " << source.group << " of k " << w.k << ", the format's is " << kGroup;
  constexpr int64_t kScaleWords = Group::kLayout.scale_bytes / sizeof(uint16_t);
  const int64_t scales = (w.k + source.group - 1) / source.group;
  const auto encode = [&](int64_t row, int64_t begin, int64_t count, typename Group::Stored* out) {
    const int8_t* codes = source.codes + (row - row_offset) * source.ld;
    for (int64_t k = begin; k < begin + count; k += kGroup) {
      const int64_t scale = (row - row_offset) * scales + k / source.group;
      *out++ = Group::FromCodes(codes + k, std::min(kGroup, w.k - k),
                                source.scales + scale * kScaleWords);
    }
  };
  PackRows<Group>(w, row_offset, row_offset + source.rows, encode);
}

template <typename Group>
void UnpackRow(const PackedLinear& w, int64_t row, float scale, float* out) {
  constexpr PanelLayout kLayout = Group::kLayout;
  const char* group = PanelOf(w, row);
  for (int64_t k = 0; k < w.k; k += kLayout.group, group += kLayout.GroupBytes(w.panel_width)) {
    float values[kLayout.group];
    Group::Decode(LoadColumn<Group>(group, w.panel_width, row % w.panel_width), values);
    const int64_t count = std::min(kLayout.group, w.k - k);
    for (int64_t i = 0; i < count; ++i) out[k + i] = values[i] * scale;
  }
}

void CheckIds(const GatherArgs& args, int64_t n) {
  for (int64_t i = 0; i < args.m; ++i) {
    MLC_CHECK(args.ids[i] >= 0 && (args.ids[i] < n || args.is_short))
        << "id " << args.ids[i] << " of " << n;
  }
}

// Counts rows of k elements that are read from a table and written as float32.
void CountRows(KernelProfile& profile, int64_t m, int64_t k, int64_t row_bytes) {
  const auto elements = static_cast<double>(m * k);
  profile.Count(KernelProfile::IdOf(KernelKind::kEmbedding),
                static_cast<double>(m * row_bytes) + sizeof(float) * elements, elements);
}

}  // namespace

int64_t PanelWidth(const CpuKernels& isa) { return isa.panel_width; }

size_t PackedLinearBytes(const CpuKernels& isa, WeightFormat format, int64_t n, int64_t k) {
  const int64_t width = isa.panel_width;
  return static_cast<size_t>((n + width - 1) / width * LayoutOf(format).PanelBytes(k, width));
}

PackedLinear MakePackedLinear(const CpuKernels& isa, WeightFormat format, int64_t n, int64_t k,
                              void* data) {
  const PackedLinear w{
      .format = format, .n = n, .k = k, .panel_width = isa.panel_width, .data = data};
  CheckPacked(w);
  return w;
}

void PackLinear(const PackedLinear& w, int64_t row_offset, const PackSource& source) {
  CheckRows(w, row_offset, source.rows, source.ld);
  WithGroup(w.format, [&](auto group) {
    WithCodec(source.dtype, [&](auto from) {
      using Group = decltype(group);
      using From = decltype(from);
      const auto* data = static_cast<const typename From::Storage*>(source.data);
      const auto encode = [&](int64_t row, int64_t k, int64_t count, typename Group::Stored* out) {
        Group::template Encode<From>(data + (row - row_offset) * source.ld + k, count, out);
      };
      PackRows<Group>(w, row_offset, row_offset + source.rows, encode);
    });
  });
}

void PackLinear(const PackedLinear& w, int64_t row_offset, const PackCodes& source) {
  CheckRows(w, row_offset, source.rows, source.ld);
  WithGroup(w.format, [&](auto group) {
    using Group = decltype(group);
    if constexpr (Group::kLayout.scale_bytes > 0) {
      PackCodeRows<Group>(w, row_offset, source);
    } else {
      MLC_CHECK(false) << "codes for a weight of floats";
    }
  });
}

void GatherPackedRows(const Cpu& cpu, const PackedLinear& table, const GatherArgs& args) {
  CheckPacked(table);
  CheckIds(args, table.n);
  MLC_CHECK(!args.adds && !args.is_short);
  if (cpu.profile != nullptr) {
    const PanelLayout layout = LayoutOf(table.format);
    CountRows(*cpu.profile, args.m, table.k, layout.Groups(table.k) * layout.GroupBytes(1));
  }
  ForRows(cpu, KernelKind::kEmbedding, args.m, table.k, [&](int64_t begin, int64_t end) {
    WithGroup(table.format, [&](auto group) {
      for (int64_t i = begin; i < end; ++i) {
        UnpackRow<decltype(group)>(table, args.ids[i], args.scale, args.out + i * args.ldo);
      }
    });
  });
}

void GatherRows(const Cpu& cpu, const RowTable& table, const GatherArgs& args) {
  CheckIds(args, table.n);
  if (cpu.profile != nullptr) {
    const auto element_bytes = static_cast<int64_t>(DTypeSize(table.dtype));
    CountRows(*cpu.profile, args.m, table.k, element_bytes * table.k);
  }
  ForRows(cpu, KernelKind::kEmbedding, args.m, table.k, [&](int64_t begin, int64_t end) {
    WithCodec(table.dtype, [&](auto codec) {
      using Codec = decltype(codec);
      for (int64_t i = begin; i < end; ++i) {
        const int64_t id = args.ids[i] < table.n ? args.ids[i] : 0;
        const auto* from = static_cast<const typename Codec::Storage*>(table.data) + id * table.ld;
        float* out = args.out + i * args.ldo;
        for (int64_t j = 0; j < table.k; ++j) {
          const float value = Codec::Decode(from[j]) * args.scale;
          out[j] = args.adds ? out[j] + value : value;
        }
      }
    });
  });
}

}  // namespace mlc_native::kernels
