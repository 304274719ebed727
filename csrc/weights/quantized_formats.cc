#include "weights/quantized_formats.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "support/error.h"
#include "support/half.h"
#include "weights/float8_weight.h"
#include "weights/nvfp4_weight.h"
#include "weights/quantized_weight.h"
#include "weights/ternary_weight.h"

namespace mlc_native {
namespace {

using Shape = std::vector<int64_t>;

int64_t CeilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }

bool IsUsualOrder(const ColumnGroups& groups) {
  int64_t column = 0;
  return std::ranges::all_of(groups.of_column,
                             [&](int32_t group) { return group == column++ / groups.group_size; });
}

// Collects the tensors of one matrix [rows, columns].
class Parts {
 public:
  Parts(const Quantization& quantization, const Checkpoint& checkpoint, std::string base,
        std::span<const int64_t> shape)
      : quantization(quantization),
        rows(shape[0]),
        columns(shape[1]),
        per_word(32 / quantization.bits),
        group_size(quantization.group_size == 0 ? columns : quantization.group_size),
        num_groups(CeilDiv(columns, group_size)),
        checkpoint_(checkpoint),
        base_(std::move(base)) {}

  const Quantization& quantization;
  const int64_t rows;
  const int64_t columns;
  const int64_t per_word;
  const int64_t group_size;
  const int64_t num_groups;

  bool Has(const char* suffix) const { return checkpoint_.Find(base_ + suffix) != nullptr; }
  bool IsBytes(const char* suffix) const {
    return checkpoint_.Find(base_ + suffix)->tensor->dtype_name == "I8";
  }

  // Of a tensor that may be missing, which is found when it is taken.
  size_t RankOf(const char* suffix) const {
    const Checkpoint::Entry* entry = checkpoint_.Find(base_ + suffix);
    return entry == nullptr ? 2 : entry->tensor->shape.size();
  }

  bool reads_data() const { return checkpoint_.reads_data(); }

  [[noreturn]] void Fail(const char* suffix, const std::string& what) const {
    throw LoadError(base_ + suffix, Where(suffix) + what);
  }

  // Returns a tensor of 32-bit integers.
  const LoadedTensor* Words(const char* suffix, const Shape& shape) {
    return Hold(Take(suffix, {"I32", "U32"}, shape));
  }

  // Notes a tensor whose bytes the weight needs when it is packed.
  const LoadedTensor* Hold(const Checkpoint::Entry& entry) {
    held_.push_back(std::make_unique<LoadedTensor>(entry));
    return held_.back().get();
  }

  // Returns a tensor of the matrix, after checking its type and shape.
  const Checkpoint::Entry& Take(const char* suffix, const std::vector<std::string_view>& dtypes,
                                const Shape& shape) {
    const Checkpoint::Entry* entry = checkpoint_.Find(base_ + suffix);
    if (entry == nullptr) {
      throw LoadError(base_ + suffix, "the checkpoint lacks tensor \"" + base_ + suffix +
                                          "\" of a quantized matrix");
    }
    const TensorInfo& tensor = *entry->tensor;
    if (tensor.shape != shape) {
      Fail(suffix, "shape " + ShapeString(tensor.shape) + ", a quantized matrix " +
                       ShapeString(Shape{rows, columns}) + " needs " + ShapeString(shape));
    }
    if (std::find(dtypes.begin(), dtypes.end(), tensor.dtype_name) == dtypes.end()) {
      Fail(suffix, "dtype " + tensor.dtype_name + ", must be " + std::string(dtypes[0]));
    }
    taken_.push_back(entry);
    return *entry;
  }

  // Reads a small tensor of integers, of as many as its shape says.
  template <typename T>
  static std::vector<T> ReadAll(const Checkpoint::Entry& entry) {
    std::vector<T> values(entry.tensor->bytes / sizeof(T));
    entry.Open().Read(0, std::as_writable_bytes(std::span(values)));
    return values;
  }

  Scales TakeScales(const char* suffix, const Shape& shape, int64_t row_stride,
                    int64_t group_stride) {
    const Checkpoint::Entry& entry = Take(suffix, {"F16", "BF16", "F32"}, shape);
    return {.dtype = *entry.tensor->dtype,
            .tensor = Hold(entry),
            .row_stride = row_stride,
            .group_stride = group_stride};
  }

  ColumnGroups Groups() const {
    return {.count = num_groups, .group_size = group_size, .of_column = {}};
  }

  // Groups as listed by a tensor [columns]. In compressed-tensors a -1 means the usual order; GPTQ
  // lists that order explicitly.
  ColumnGroups TakeGroups(const char* suffix, bool may_be_unset) {
    ColumnGroups groups = Groups();
    groups.of_column = ReadAll<int32_t>(Take(suffix, {"I32"}, {columns}));
    if (may_be_unset && std::ranges::count(groups.of_column, -1) > 0) return Groups();
    for (int32_t group : groups.of_column) {
      if (group < 0 || group >= num_groups) {
        Fail(suffix, "group " + std::to_string(group) + " of a column is not in [0, " +
                         std::to_string(num_groups) + ")");
      }
    }
    return IsUsualOrder(groups) ? Groups() : groups;
  }

  // Dense integers fill words in multiples of 32.
  void RequireWholeWords(const char* suffix, int64_t size, const char* what,
                         bool dense = false) const {
    const int64_t multiple = dense ? 32 : per_word;
    if (size % multiple == 0) return;
    Fail(suffix,
         std::to_string(size) + " " + what + " do not fill words of " + std::to_string(multiple));
  }

  std::unique_ptr<WeightSource> Finish(QuantizedParts parts) {
    parts.tensors = std::move(held_);
    parts.reads_data = checkpoint_.reads_data();
    return std::make_unique<QuantizedWeight>(std::move(taken_), rows, columns, std::move(parts));
  }
  std::unique_ptr<WeightSource> FinishFloat8(const Float8Parts& parts) {
    return std::make_unique<Float8Weight>(std::move(taken_), std::move(held_), parts);
  }
  std::unique_ptr<WeightSource> FinishTernary(const TernaryParts& parts) {
    return std::make_unique<TernaryWeight>(std::move(taken_), std::move(held_), parts);
  }
  std::unique_ptr<WeightSource> FinishNvfp4(const Nvfp4Parts& parts) {
    return std::make_unique<Nvfp4Weight>(std::move(taken_), std::move(held_), parts);
  }

 private:
  std::string Where(const char* suffix) const {
    const Checkpoint::Entry* entry = checkpoint_.Find(base_ + suffix);
    const std::string file = entry == nullptr ? "" : entry->file->path + ": ";
    return file + "tensor \"" + base_ + suffix + "\": ";
  }

  const Checkpoint& checkpoint_;
  std::string base_;
  std::vector<const Checkpoint::Entry*> taken_;
  LoadedTensors held_;
};

ZeroPoints Offset(int offset) {
  ZeroPoints zeros;
  zeros.offset = offset;
  return zeros;
}

// MLC-LLM, layout 1: q_weight [rows, words], q_scale [rows, groups]; the columns are padded to
// whole groups. Signed integers plus the largest one.
std::unique_ptr<WeightSource> OpenMlc(Parts parts) {
  const int bits = parts.quantization.bits;
  const int64_t words = parts.num_groups * (parts.group_size / parts.per_word);
  const LoadedTensor* integers = parts.Words(".q_weight", {parts.rows, words});
  return parts.Finish(
      {.tensors = {},
       .integers = {.words = integers, .bits = bits, .row_stride = words, .column_stride = 1},
       .scales = parts.TakeScales(".q_scale", {parts.rows, parts.num_groups}, parts.num_groups, 1),
       .zeros = Offset((1 << (bits - 1)) - 1),
       .groups = parts.Groups()});
}

// GPTQ: the matrix is transposed; qweight [columns * bits / 32, rows], qzeros [groups, rows * bits
// / 32], scales [groups, rows], g_idx [columns]. 32 integers of 3 bits fill 3 words.
std::unique_ptr<WeightSource> OpenGptq(Parts parts) {
  const int bits = parts.quantization.bits;
  const int64_t rows = parts.rows;
  const bool dense = 32 % bits != 0;
  parts.RequireWholeWords(".qweight", parts.columns, "columns", dense);
  parts.RequireWholeWords(".qzeros", rows, "rows", dense);
  const LoadedTensor* integers = parts.Words(".qweight", {parts.columns * bits / 32, rows});
  const int64_t zero_words = rows * bits / 32;
  ZeroPoints zeros = Offset(parts.quantization.zeros_minus_one ? 1 : 0);
  zeros.packed = {.words = parts.Words(".qzeros", {parts.num_groups, zero_words}),
                  .bits = bits,
                  .along_rows = true,
                  .dense = dense,
                  .row_stride = 1,
                  .column_stride = zero_words};
  return parts.Finish({.tensors = {},
                       .integers = {.words = integers,
                                    .bits = bits,
                                    .dense = dense,
                                    .row_stride = 1,
                                    .column_stride = rows},
                       .scales = parts.TakeScales(".scales", {parts.num_groups, rows}, 1, rows),
                       .zeros = zeros,
                       .groups = parts.Has(".g_idx")
                                     ? parts.TakeGroups(".g_idx", /*may_be_unset=*/false)
                                     : parts.Groups()});
}

// AWQ (gemm): transposed and packed along the rows; qweight [columns, rows / 8], qzeros
// [groups, rows / 8], scales [groups, rows]. In a word the even rows come first.
std::unique_ptr<WeightSource> OpenAwq(Parts parts) {
  const int64_t rows = parts.rows;
  parts.RequireWholeWords(".qweight", rows, "rows");
  const int64_t words = rows / parts.per_word;
  PackedIntegers integers{.words = parts.Words(".qweight", {parts.columns, words}),
                          .bits = parts.quantization.bits,
                          .along_rows = true,
                          .interleaved = true,
                          .row_stride = 1,
                          .column_stride = words};
  ZeroPoints zeros = Offset(0);
  zeros.packed = integers;
  zeros.packed->words = parts.Words(".qzeros", {parts.num_groups, words});
  return parts.Finish({.tensors = {},
                       .integers = integers,
                       .scales = parts.TakeScales(".scales", {parts.num_groups, rows}, 1, rows),
                       .zeros = zeros,
                       .groups = parts.Groups()});
}

// AWQ (gemv): qweight [rows, columns / 8], qzeros [rows, width], scales [rows, 8 width]. The width
// is that of the groups in words, rounded up for groups below 128.
std::unique_ptr<WeightSource> OpenAwqGemv(Parts parts) {
  parts.RequireWholeWords(".qweight", parts.columns, "columns");
  const int64_t words = parts.columns / parts.per_word;
  const int64_t multiple = parts.group_size >= 128 ? 1 : parts.group_size >= 64 ? 2 : 4;
  const int64_t width = CeilDiv(CeilDiv(parts.num_groups, parts.per_word), multiple) * multiple;
  PackedIntegers integers{.words = parts.Words(".qweight", {parts.rows, words}),
                          .bits = parts.quantization.bits,
                          .row_stride = words,
                          .column_stride = 1};
  ZeroPoints zeros = Offset(0);
  zeros.packed = integers;
  zeros.packed->words = parts.Words(".qzeros", {parts.rows, width});
  zeros.packed->row_stride = width;
  const int64_t scales = width * parts.per_word;
  return parts.Finish({.tensors = {},
                       .integers = integers,
                       .scales = parts.TakeScales(".scales", {parts.rows, scales}, scales, 1),
                       .zeros = zeros,
                       .groups = parts.Groups()});
}

void CheckStoredShape(Parts& parts) {
  const Shape shape = Parts::ReadAll<int64_t>(parts.Take(".weight_shape", {"I64"}, {2}));
  if (shape[0] != parts.rows || shape[1] != parts.columns) {
    parts.Fail(".weight_shape", "says " + ShapeString(shape) + ", the configuration asks for " +
                                    ShapeString(Shape{parts.rows, parts.columns}));
  }
}

// Signed integers plus half of their range; zero points packed likewise, or bytes where they are
// one number and in old versions.
ZeroPoints CompressedZeros(Parts& parts, const Shape& scales) {
  constexpr char kSuffix[] = ".weight_zero_point";
  const int half = 1 << (parts.quantization.bits - 1);
  if (parts.quantization.symmetric) return Offset(half);
  const int64_t per_row = scales.back();
  if (parts.Has(kSuffix) && parts.IsBytes(kSuffix)) {
    ZeroPoints zeros = Offset(half);
    zeros.bytes = parts.Hold(parts.Take(kSuffix, {"I8"}, scales));
    zeros.row_stride = scales.size() == 1 ? 0 : per_row;
    return zeros;
  }
  ZeroPoints zeros = Offset(0);
  zeros.packed = {.words = parts.Words(kSuffix, {CeilDiv(parts.rows, parts.per_word), per_row}),
                  .bits = parts.quantization.bits,
                  .along_rows = true,
                  .row_stride = per_row,
                  .column_stride = 1};
  return zeros;
}

// compressed-tensors, pack-quantized: weight_packed [rows, words], weight_scale [rows, groups] or
// [1], weight_zero_point [rows / per word, groups], weight_shape [2], weight_g_idx [columns].
std::unique_ptr<WeightSource> OpenCompressedTensors(Parts parts) {
  CheckStoredShape(parts);
  const int64_t words = CeilDiv(parts.columns, parts.per_word);
  const bool one = parts.quantization.per_tensor;
  const Shape scales = one ? Shape{1} : Shape{parts.rows, parts.num_groups};
  const LoadedTensor* integers = parts.Words(".weight_packed", {parts.rows, words});
  return parts.Finish(
      {.tensors = {},
       .integers = {.words = integers,
                    .bits = parts.quantization.bits,
                    .row_stride = words,
                    .column_stride = 1},
       .scales = parts.TakeScales(".weight_scale", scales, one ? 0 : parts.num_groups, 1),
       .zeros = CompressedZeros(parts, scales),
       .groups =
           parts.Has(".weight_g_idx") ? parts.TakeGroups(".weight_g_idx", true) : parts.Groups()});
}

// weight [rows, columns] in E4M3, and weight_scale_inv or weight_scale: one scale, in a tensor
// without dimensions or of one element, or [row blocks, column blocks]; that of a channel is [rows]
// or [rows, 1].
std::unique_ptr<WeightSource> OpenFloat8(Parts parts) {
  const Quantization& q = parts.quantization;
  const bool is_inv = q.scale_inv && !parts.Has(".weight_scale");
  const char* scale = is_inv ? ".weight_scale_inv" : ".weight_scale";
  const int64_t block_rows = q.block_rows == 0 ? parts.rows : q.block_rows;
  const int64_t block_columns = q.block_columns == 0 ? parts.columns : q.block_columns;
  const LoadedTensor* elements =
      parts.Hold(parts.Take(".weight", {"F8_E4M3"}, {parts.rows, parts.columns}));
  Shape blocks{CeilDiv(parts.rows, block_rows), CeilDiv(parts.columns, block_columns)};
  const size_t rank = parts.RankOf(scale);
  if (blocks[1] == 1 && rank == 1) blocks.pop_back();
  if (q.block_rows == 0 && rank == 0) blocks.clear();
  const Scales scales = parts.TakeScales(scale, blocks, 0, 0);
  return parts.FinishFloat8({.elements = elements,
                             .scales = scales.tensor,
                             .scale_dtype = scales.dtype,
                             .columns = parts.columns,
                             .block_rows = block_rows,
                             .block_columns = block_columns});
}

// compressed-tensors: weight_packed [rows, columns / 2], weight_scale [rows, columns / 16],
// weight_global_scale [1], which divides. ModelOpt: weight, weight_scale, and weight_scale_2, a
// factor in a tensor without dimensions or of one element.
std::unique_ptr<WeightSource> OpenNvfp4(Parts parts) {
  const bool divides = parts.quantization.format == QuantizedFormat::kCompressedNvfp4;
  const char* codes = divides ? ".weight_packed" : ".weight";
  const char* of_all = divides ? ".weight_global_scale" : ".weight_scale_2";
  if (parts.columns % kNvfp4Columns != 0) {
    parts.Fail(codes, std::to_string(parts.columns) + " columns are no whole groups of " +
                          std::to_string(kNvfp4Columns) + ", which NVFP4 has");
  }
  const LoadedTensor* packed =
      parts.Hold(parts.Take(codes, {"U8"}, {parts.rows, parts.columns / 2}));
  const LoadedTensor* scales = parts.Hold(
      parts.Take(".weight_scale", {"F8_E4M3"}, {parts.rows, parts.columns / kNvfp4Columns}));
  const Checkpoint::Entry& scale =
      parts.Take(of_all, {"F32"}, parts.RankOf(of_all) == 0 ? Shape{} : Shape{1});
  Nvfp4Parts found{.codes = packed,
                   .scales = scales,
                   .scale_of_all = std::nullopt,
                   .divides = divides,
                   .columns = parts.columns};
  if (parts.reads_data()) {
    found.scale_of_all = Parts::ReadAll<float>(scale)[0];
    if (!std::isfinite(*found.scale_of_all) || *found.scale_of_all == 0) {
      parts.Fail(of_all, "is " + std::to_string(*found.scale_of_all) +
                             ", must be a finite number other than 0");
    }
  }
  return parts.FinishNvfp4(found);
}

// BitNet: weight [rows / 4, columns] and weight_scale [1], which multiplies or divides.
std::unique_ptr<WeightSource> OpenTernary(Parts parts) {
  constexpr char kScale[] = ".weight_scale";
  if (parts.rows % kTernaryRows != 0) {
    parts.Fail(".weight", std::to_string(parts.rows) + " rows are not a multiple of " +
                              std::to_string(kTernaryRows) + ", which bytes of BitNet have");
  }
  const LoadedTensor* codes =
      parts.Hold(parts.Take(".weight", {"U8"}, {parts.rows / kTernaryRows, parts.columns}));
  const Checkpoint::Entry& entry = parts.Take(kScale, {"BF16", "F16", "F32"}, {1});
  TernaryParts found{.codes = codes,
                     .precision = *entry.tensor->dtype,
                     .scale = std::nullopt,
                     .rows = parts.rows,
                     .columns = parts.columns};
  if (parts.reads_data()) {
    const std::vector<std::byte> bytes = Parts::ReadAll<std::byte>(entry);
    const float scale = LoadElement(found.precision, bytes.data(), 0);
    if (!std::isfinite(scale) || scale == 0) {
      parts.Fail(kScale, "is " + std::to_string(scale) + ", must be a finite number other than 0");
    }
    found.scale = parts.quantization.divides ? 1 / scale : scale;
  }
  return parts.FinishTernary(found);
}

}  // namespace

std::string QuantizedTensorName(QuantizedFormat format, const std::string& base) {
  switch (format) {
    case QuantizedFormat::kMlcGroup:
      return base + ".q_weight";
    case QuantizedFormat::kGptq:
    case QuantizedFormat::kAwq:
    case QuantizedFormat::kAwqGemv:
      return base + ".qweight";
    case QuantizedFormat::kCompressedTensors:
    case QuantizedFormat::kCompressedNvfp4:
      return base + ".weight_packed";
    case QuantizedFormat::kMxfp4:
      break;  // mxfp4_weight.h
    case QuantizedFormat::kFloat8:
    case QuantizedFormat::kModeloptNvfp4:
    case QuantizedFormat::kBitNet:
      return base + ".weight";
  }
  return base;
}

std::unique_ptr<WeightSource> OpenQuantized(const Quantization& quantization,
                                            const Checkpoint& checkpoint, const std::string& base,
                                            std::span<const int64_t> shape) {
  Parts parts(quantization, checkpoint, base, shape);
  switch (quantization.format) {
    case QuantizedFormat::kMlcGroup:
      return OpenMlc(std::move(parts));
    case QuantizedFormat::kGptq:
      return OpenGptq(std::move(parts));
    case QuantizedFormat::kAwq:
      return OpenAwq(std::move(parts));
    case QuantizedFormat::kAwqGemv:
      return OpenAwqGemv(std::move(parts));
    case QuantizedFormat::kCompressedTensors:
      return OpenCompressedTensors(std::move(parts));
    case QuantizedFormat::kFloat8:
      return OpenFloat8(std::move(parts));
    case QuantizedFormat::kCompressedNvfp4:
    case QuantizedFormat::kModeloptNvfp4:
      return OpenNvfp4(std::move(parts));
    case QuantizedFormat::kBitNet:
      return OpenTernary(std::move(parts));
    case QuantizedFormat::kMxfp4:
      break;
  }
  return nullptr;
}

}  // namespace mlc_native
