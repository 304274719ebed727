#include "checkpoint/quantization.h"

#include <algorithm>
#include <cctype>
#include <initializer_list>
#include <optional>
#include <vector>

namespace mlc_native {
namespace {

constexpr char kSupported[] =
    "; supported: gptq (2, 3, 4 and 8 bits), awq (4 bits, versions gemm and gemv), "
    "compressed-tensors (pack-quantized, int 4 and 8 bits; float-quantized, 8 bits; "
    "nvfp4-pack-quantized), fp8, mxfp4, modelopt (FP8, NVFP4), bitnet (offline)";
constexpr int64_t kMaxGroup = int64_t{1} << 24;

constexpr Quantization MlcGroup(int bits, int64_t group_size) {
  return {.format = QuantizedFormat::kMlcGroup, .bits = bits, .group_size = group_size};
}

// q4f16_2 does not quantize embeddings and head, as the stored tensors show.
constexpr MlcQuantization kMlcQuantizations[] = {
    {"q0f16", DType::kFloat16, std::nullopt},        {"q0bf16", DType::kBFloat16, std::nullopt},
    {"q0f32", DType::kFloat32, std::nullopt},        {"q3f16_1", DType::kFloat16, MlcGroup(3, 40)},
    {"q4f16_1", DType::kFloat16, MlcGroup(4, 32)},   {"q4f16_2", DType::kFloat16, MlcGroup(4, 32)},
    {"q4bf16_1", DType::kBFloat16, MlcGroup(4, 32)}, {"q4f32_1", DType::kFloat32, MlcGroup(4, 32)},
};

std::string Lower(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return text;
}

void Require(const ConfigFields& fields, const char* field, const std::string& value,
             const std::vector<std::string>& allowed) {
  if (std::find(allowed.begin(), allowed.end(), value) != allowed.end()) return;
  fields.Fail(field, "= \"" + value + "\" is not supported" + kSupported);
}

// An object that is not empty would change the meaning of the weights.
void RefuseObject(const ConfigFields& fields, const char* field) {
  if (fields.HasObject(field)) fields.Fail(field, std::string("is not supported") + kSupported);
}

int Bits(const ConfigFields& fields, const char* field, std::initializer_list<int64_t> allowed) {
  const int64_t bits = fields.Integer(field, std::nullopt, 1, 64);
  if (std::find(allowed.begin(), allowed.end(), bits) == allowed.end()) {
    fields.Fail(field, "= " + std::to_string(bits) + " is not supported" + kSupported);
  }
  return static_cast<int>(bits);
}

// -1 is the whole row.
int64_t GroupSize(const ConfigFields& fields) {
  const int64_t size = fields.Integer("group_size", -1, -1, kMaxGroup);
  if (size == 0) fields.FailValue("group_size", "-1 or above 0");
  return std::max<int64_t>(size, 0);
}

// transformers 5 calls "format" what the quantizers call by an older name, which counts first.
const char* FormatField(const ConfigFields& fields, const char* older) {
  return fields.Has("format") && !fields.Has(older) ? "format" : older;
}

Quantization ReadGptq(const ConfigFields& fields) {
  const char* const field = FormatField(fields, "checkpoint_format");
  const std::string format = Lower(fields.String(field, "gptq"));
  Require(fields, field, format, {"gptq", "gptq_v2"});
  Require(fields, "pack_dtype", fields.String("pack_dtype", "int32"), {"int32"});
  RefuseObject(fields, "dynamic");
  return {.format = QuantizedFormat::kGptq,
          .bits = Bits(fields, "bits", {2, 3, 4, 8}),
          .group_size = GroupSize(fields),
          .symmetric = false,
          .zeros_minus_one = format == "gptq"};
}

Quantization ReadAwq(const ConfigFields& fields) {
  const char* const field = FormatField(fields, "version");
  const std::string version = Lower(fields.String(field, "gemm"));
  Require(fields, field, version, {"gemm", "gemv"});
  if (!fields.Bool("zero_point", true)) {
    fields.Fail("zero_point", std::string("= false is not supported") + kSupported);
  }
  return {.format = version == "gemm" ? QuantizedFormat::kAwq : QuantizedFormat::kAwqGemv,
          .bits = Bits(fields, "bits", {4}),
          .group_size = GroupSize(fields),
          .symmetric = false};
}

// "weight_block_size": [128, 128]. Scales of activations, which are not rounded, are ignored.
void ReadBlock(const ConfigFields& fields, const char* field, Quantization* out) {
  const std::vector<int64_t> block = fields.Sizes(field);
  const auto is_wrong = [](int64_t size) { return size < 1 || size > kMaxGroup; };
  if (block.size() != 2 || std::ranges::any_of(block, is_wrong)) {
    fields.FailValue(field, "a list of two integers in [1, " + std::to_string(kMaxGroup) + "]");
  }
  out->block_rows = block[0];
  out->block_columns = block[1];
}

Quantization ReadFloat8(const ConfigFields& fields) {
  Require(fields, "fmt", Lower(fields.String("fmt", "e4m3")), {"e4m3", "float8_e4m3fn"});
  Quantization quantization{.format = QuantizedFormat::kFloat8, .bits = 8, .scale_inv = true};
  if (fields.Has("weight_block_size")) ReadBlock(fields, "weight_block_size", &quantization);
  return quantization;
}

Quantization ReadCompressedFloats(const ConfigFields& group) {
  const ConfigFields weights = group.Object("weights");
  Require(weights, "type", weights.String("type", "float"), {"float"});
  Quantization quantization{.format = QuantizedFormat::kFloat8, .bits = 8};
  if (weights.Integer("num_bits", std::nullopt, 1, 64) != 8) {
    weights.Fail("num_bits", std::string("is not 8, which is not supported") + kSupported);
  }
  const std::string strategy = weights.String("strategy", "tensor");
  Require(weights, "strategy", strategy, {"tensor", "channel", "block"});
  if (strategy == "channel") quantization.block_rows = 1;
  if (strategy == "block") ReadBlock(weights, "block_structure", &quantization);
  return quantization;
}

// Inputs stay floats, whatever their scheme says: they are not rounded to 4 bits.
Quantization ReadCompressedNvfp4(const ConfigFields& group) {
  constexpr int64_t kColumns = 16;
  const ConfigFields weights = group.Object("weights");
  Require(weights, "type", weights.String("type", "float"), {"float"});
  Require(weights, "strategy", weights.String("strategy", "tensor_group"), {"tensor_group"});
  if (GroupSize(weights) != kColumns) weights.FailValue("group_size", "16");
  return {.format = QuantizedFormat::kCompressedNvfp4,
          .bits = Bits(weights, "num_bits", {4}),
          .group_size = kColumns};
}

Quantization ReadCompressedGroup(const ConfigFields& group, const std::string& format) {
  const std::string own = group.String("format", format);
  if (own == "float-quantized") return ReadCompressedFloats(group);
  if (own == "nvfp4-pack-quantized") return ReadCompressedNvfp4(group);
  Require(group, "format", own, {"pack-quantized"});
  RefuseObject(group, "input_activations");
  RefuseObject(group, "output_activations");
  const ConfigFields weights = group.Object("weights");
  Require(weights, "type", weights.String("type", "int"), {"int"});
  if (weights.Bool("dynamic", false)) {
    weights.Fail("dynamic", std::string("= true is not supported") + kSupported);
  }
  const int64_t group_size = GroupSize(weights);
  const std::string strategy = weights.String("strategy", group_size > 0 ? "group" : "channel");
  Require(weights, "strategy", strategy, {"group", "channel", "tensor"});
  if (strategy == "group" && group_size == 0) weights.FailValue("group_size", "above 0");
  return {.format = QuantizedFormat::kCompressedTensors,
          .bits = Bits(weights, "num_bits", {4, 8}),
          .group_size = strategy == "group" ? group_size : 0,
          .per_tensor = strategy == "tensor",
          .symmetric = weights.Bool("symmetric", true)};
}

Quantization ReadCompressedTensors(const ConfigFields& fields) {
  const std::string format = fields.String("format", "");
  Require(fields, "format", format, {"pack-quantized", "float-quantized", "nvfp4-pack-quantized"});
  RefuseObject(fields, "transform_config");
  const ConfigFields sparsity = fields.Object("sparsity_config");
  Require(sparsity, "format", sparsity.String("format", "dense"), {"dense"});
  const ConfigFields groups = fields.Object("config_groups");
  const std::vector<std::string> names = groups.Names();
  if (names.size() != 1) {
    fields.Fail("config_groups", "has " + std::to_string(names.size()) +
                                     " groups, only one is supported" + kSupported);
  }
  return ReadCompressedGroup(groups.Object(names[0].c_str()), format);
}

// NVIDIA's ModelOpt. Scales of inputs, keys and values are not used, because these are not rounded.
Quantization ReadModelopt(const ConfigFields& fields) {
  const std::string algorithm = fields.String("quant_algo", "");
  Require(fields, "quant_algo", algorithm, {"FP8", "NVFP4"});
  if (algorithm == "FP8") return {.format = QuantizedFormat::kFloat8, .bits = 8};
  return {.format = QuantizedFormat::kModeloptNvfp4, .bits = 4, .group_size = 16};
}

// The older class of linears divides by the scale. That inputs are rounded to 8 bits is a matter of
// the device.
Quantization ReadBitNet(const ConfigFields& fields) {
  const std::string linear = fields.String("linear_class", "bitlinear");
  Require(fields, "linear_class", linear, {"bitlinear", "autobitlinear"});
  Require(fields, "quantization_mode", fields.String("quantization_mode", "offline"), {"offline"});
  if (fields.Bool("use_rms_norm", false)) {
    fields.Fail("use_rms_norm", std::string("= true is not supported") + kSupported);
  }
  return {.format = QuantizedFormat::kBitNet, .bits = 2, .divides = linear == "bitlinear"};
}

}  // namespace

Quantization ReadQuantization(const ConfigFields& fields) {
  const std::string method = Lower(fields.String("quant_method", ""));
  if (method == "gptq") return ReadGptq(fields);
  if (method == "awq") return ReadAwq(fields);
  if (method == "mxfp4") return {.format = QuantizedFormat::kMxfp4};
  if (method == "compressed-tensors") return ReadCompressedTensors(fields);
  if (method == "fp8") return ReadFloat8(fields);
  if (method == "modelopt" || method == "modelopt_fp4") return ReadModelopt(fields);
  if (method == "bitnet") return ReadBitNet(fields);
  fields.Fail("quant_method", "= \"" + method + "\" is not supported" + kSupported);
}

std::optional<Quantization> ReadModeloptFile(const ConfigFields& file) {
  const ConfigFields fields = file.Object("quantization");
  if (!fields.Has("quant_algo")) return std::nullopt;
  return ReadModelopt(fields);
}

const MlcQuantization* FindMlcQuantization(std::string_view name) {
  const auto* it = std::find_if(std::begin(kMlcQuantizations), std::end(kMlcQuantizations),
                                [&](const MlcQuantization& q) { return q.name == name; });
  return it == std::end(kMlcQuantizations) ? nullptr : it;
}

std::string MlcQuantizationList() {
  std::string list;
  for (const MlcQuantization& quantization : kMlcQuantizations) {
    if (!list.empty()) list += ", ";
    list += quantization.name;
  }
  return list;
}

}  // namespace mlc_native
