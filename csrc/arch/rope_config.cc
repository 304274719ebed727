#include "arch/rope_config.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <string>
#include <utility>

#include "mlc_native/data.h"
#include "support/error.h"

namespace mlc_native {
namespace {

bool HasLongSequences(const RopeConfig& rope, const SequenceLengths& lengths) {
  return std::min(lengths.longest, lengths.max_positions) > rope.original_max_positions;
}

// What the parameters of one rope fall back on.
struct RopeReader {
  const ConfigFields& fields;  // fields of the whole model
  const ArchSpec& arch;
  int64_t head_dim;
  SequenceLengths lengths;
  double default_theta;

  RopeConfig Read(const ConfigFields& params) const {
    RopeConfig rope;
    rope.theta = params.Positive("rope_theta", default_theta);
    rope.rotary_dim = RotaryDim(params);
    rope.backward = arch.backward_rope;
    if (arch.reads_mrope) rope.components = Components(params, rope.rotary_dim / 2);
    const std::string type = params.String("rope_type", params.String("type", "default"));
    if (type == "dynamic" && arch.reads_rope_alpha && params.Has("alpha")) {
      StretchBase(params, rope);
    }
    if (type == "default" || type == "dynamic" || (type == "mrope" && arch.reads_mrope))
      return rope;
    if (type == "proportional" && arch.proportional_rope) {
      ReadProportional(params, rope);
      return rope;
    }
    if (type == "linear") {
      rope.scaling = RopeScaling::kLinear;
      rope.factor = params.Positive("factor", std::nullopt);
    } else if (type == "llama3") {
      ReadLlama3(params, rope);
    } else if (type == "longrope" || (arch.yarn_is_longrope && (type == "su" || type == "yarn"))) {
      ReadLongRope(params, rope);
    } else if (type == "yarn" || (arch.latent.exists && type == "deepseek_yarn")) {
      ReadYarn(params, rope);
    } else {
      params.Fail("rope_type", "= \"" + type +
                                   "\" is not supported; supported: default, linear, dynamic, "
                                   "llama3, yarn, longrope");
    }
    return rope;
  }

 private:
  // By sections, or in turns as far as those of height and width go. Sections that do not fit are
  // left to whoever has positions of images.
  static std::vector<uint8_t> Components(const ConfigFields& params, int64_t num_pairs) {
    constexpr char kField[] = "mrope_section";
    if (!params.Has(kField)) return {};
    const std::vector<int64_t> sections = params.Sizes(kField);
    if (sections.size() != std::tuple_size_v<RowPosition>) return {};
    const bool in_turns = params.Bool("mrope_interleaved", false);
    const int64_t sum = sections[0] + sections[1] + sections[2];
    if (in_turns ? 3 * std::max(sections[1], sections[2]) > num_pairs + 2 : sum != num_pairs) {
      return {};
    }
    std::vector<uint8_t> components(static_cast<size_t>(num_pairs));
    for (int64_t i = 0; i < num_pairs; ++i) {
      const auto turn = static_cast<size_t>(i % 3);
      components[static_cast<size_t>(i)] =
          in_turns ? (turn > 0 && i < 3 * sections[turn] ? static_cast<uint8_t>(turn) : 0)
                   : static_cast<uint8_t>((i >= sections[0]) + (i >= sections[0] + sections[1]));
    }
    return components;
  }

  int64_t RotaryDim(const ConfigFields& params) const {
    // That of Mistral 4 is of a head with its other elements, and says the same as head_dim here.
    if (arch.latent.exists && arch.reads_partial_rotary_factor) return head_dim;
    if (arch.proportional_rope) return EvenDim(params, head_dim);
    const double part = params.Positive("partial_rotary_factor", PartOutside());
    if (part > 1.0) params.FailValue("partial_rotary_factor", "a number in (0, 1]");
    if (part != 1.0 && !arch.reads_partial_rotary_factor) {
      constexpr char kField[] = "partial_rotary_factor";
      const bool is_outside = !params.Has(kField) && !arch.partial_rotary_field.empty();
      (is_outside ? fields : params)
          .Fail(is_outside ? std::string(arch.partial_rotary_field) : kField,
                "is not supported for " + std::string(arch.architecture) + " (only 1)");
    }
    return EvenDim(params, static_cast<int64_t>(static_cast<double>(head_dim) * part));
  }

  static int64_t EvenDim(const ConfigFields& params, int64_t dim) {
    if (dim <= 0 || dim % 2 != 0) {
      params.Fail("head_dim", "gives " + std::to_string(dim) +
                                  " rotated dimensions, they must be an even number");
    }
    return dim;
  }

  // The context before scaling: the model's own field wins, as in transformers.
  int64_t OriginalPositions(const ConfigFields& params) const {
    constexpr char kField[] = "original_max_position_embeddings";
    const int64_t given = params.Integer(kField, lengths.max_positions, 1, kMaxPositions);
    const int64_t of_family = arch.defaults.original_max_position_embeddings;
    return fields.Integer(kField, of_family != 0 ? of_family : given, 1, kMaxPositions);
  }

  // HunYuan's "dynamic": a fixed stretch of the base, whatever the length.
  static void StretchBase(const ConfigFields& params, RopeConfig& rope) {
    const auto dim = static_cast<double>(rope.rotary_dim);
    rope.theta *= std::pow(params.Positive("alpha", std::nullopt), dim / (dim - 2));
  }

  // Pairs are those of all of a head, of which the first ones are rotated.
  static void ReadProportional(const ConfigFields& params, RopeConfig& rope) {
    const double part = params.Positive("partial_rotary_factor", 1.0);
    if (part > 1.0) params.FailValue("partial_rotary_factor", "a number in (0, 1]");
    rope.scaling = RopeScaling::kProportional;
    rope.factor = params.Positive("factor", 1.0);
    rope.num_rotated =
        static_cast<int64_t>(std::floor(part * static_cast<double>(rope.rotary_dim) / 2));
  }

  double FactorOrRatio(const ConfigFields& params, const RopeConfig& rope) const {
    return params.Positive("factor", static_cast<double>(lengths.max_positions) /
                                         static_cast<double>(rope.original_max_positions));
  }

  void ReadLlama3(const ConfigFields& params, RopeConfig& rope) const {
    rope.scaling = RopeScaling::kLlama3;
    rope.factor = params.Positive("factor", std::nullopt);
    rope.low_freq_factor = params.Positive("low_freq_factor", std::nullopt);
    rope.high_freq_factor = params.Positive("high_freq_factor", std::nullopt);
    rope.original_max_positions = OriginalPositions(params);
    if (rope.high_freq_factor < rope.low_freq_factor) {
      params.FailValue("high_freq_factor", "at least low_freq_factor");
    }
  }

  void ReadYarn(const ConfigFields& params, RopeConfig& rope) const {
    rope.scaling = RopeScaling::kYarn;
    rope.original_max_positions = OriginalPositions(params);
    rope.factor = FactorOrRatio(params, rope);
    rope.beta_fast = params.Positive("beta_fast", 32.0);
    rope.beta_slow = params.Positive("beta_slow", 1.0);
    rope.truncate = params.Bool("truncate", true);
    const auto magnitude = [&](double scale) {
      return rope.factor <= 1.0 ? 1.0 : 0.1 * scale * std::log(rope.factor) + 1.0;
    };
    const double mscale = params.Number("mscale", 0.0);
    const double all_dim = params.Number("mscale_all_dim", 0.0);
    const bool both = mscale != 0.0 && all_dim != 0.0;
    rope.attention_factor = params.Positive(
        "attention_factor", both ? magnitude(mscale) / magnitude(all_dim) : magnitude(1.0));
  }

  void ReadLongRope(const ConfigFields& params, RopeConfig& rope) const {
    rope.scaling = RopeScaling::kLongRope;
    rope.original_max_positions = OriginalPositions(params);
    rope.factor = FactorOrRatio(params, rope);
    const std::vector<double> short_factors = LongRopeFactors(params, rope, "short_factor");
    const std::vector<double> long_factors = LongRopeFactors(params, rope, "long_factor");
    const bool is_long = HasLongSequences(rope, lengths);
    rope.factors = is_long ? long_factors : short_factors;
    const char* scale = is_long ? "long_mscale" : "short_mscale";
    if (arch.reads_rope_mscales && params.Has(scale)) {
      rope.attention_factor = params.Positive(scale, std::nullopt);
      return;
    }
    const double context = std::log(static_cast<double>(rope.original_max_positions));
    rope.attention_factor = params.Positive(
        "attention_factor",
        rope.factor <= 1.0 ? 1.0 : std::sqrt(1.0 + std::log(rope.factor) / context));
  }

  // Of a head, where the rope's parameters do not say it.
  double PartOutside() const {
    if (arch.partial_rotary_field.empty()) return arch.defaults.partial_rotary_factor;
    return fields.Positive(std::string(arch.partial_rotary_field).c_str(), PartWithoutField());
  }

  // Null is all of them. The first releases of MiniMax-M2 state the number of dimensions instead of
  // the part.
  double PartWithoutField() const {
    if (fields.IsNull(std::string(arch.partial_rotary_field).c_str())) return 1.0;
    const int64_t absent = std::min(arch.defaults.rotary_dim, head_dim);
    if (!arch.reads_partial_rotary_factor || (absent == 0 && !fields.Has("rotary_dim"))) {
      return arch.defaults.partial_rotary_factor;
    }
    const int64_t dim = fields.Integer("rotary_dim", absent, 1, head_dim);
    return static_cast<double>(dim) / static_cast<double>(head_dim);
  }

  static std::vector<double> LongRopeFactors(const ConfigFields& params, const RopeConfig& rope,
                                             const char* field) {
    std::vector<double> factors = params.Numbers(field);
    const auto wrong = [](double f) { return !(f > 0); };
    if (factors.size() != static_cast<size_t>(rope.rotary_dim / 2) ||
        std::any_of(factors.begin(), factors.end(), wrong)) {
      params.Fail(field,
                  "must be a list of " + std::to_string(rope.rotary_dim / 2) + " numbers above 0");
    }
    return factors;
  }
};

// Of compressed attention: that of layers without entries, then that of layers with some. The
// parameters may have an object for each, else they are those of the second one, whose magnitude
// is 1.
template <typename Read>
std::vector<RopeConfig> ReadCompressedRopes(const ConfigFields& fields, const ArchSpec& arch,
                                            double default_theta, const Read& read) {
  constexpr char kMain[] = "main", kOther[] = "compress";
  const ConfigFields params = RopeParameters(fields, arch);
  const double theta = fields.Positive("compress_rope_theta", 160000.0);
  if (params.HasObject(kMain) && params.HasObject(kOther)) {
    return {read(params.Object(kMain), default_theta), read(params.Object(kOther), theta)};
  }
  RopeConfig main = read(fields.Object("none"), default_theta);
  RopeConfig other = read(params, theta);
  other.theta = theta;
  if (other.scaling == RopeScaling::kYarn) {
    other.attention_factor = params.Positive("attention_factor", 1.0);
  }
  return {std::move(main), std::move(other)};
}

bool IsByLayerType(const ConfigFields& params) {
  return params.HasObject("full_attention") || params.HasObject("sliding_attention");
}

}  // namespace

ConfigFields RopeParameters(const ConfigFields& fields, const ArchSpec& arch) {
  for (const char* field : {"rope_scaling", "rope_parameters"}) {
    if (fields.HasObject(field)) return fields.Object(field);
  }
  if (arch.defaults.rope_parameters.empty()) return fields.Object("rope_parameters");
  return ConfigFields::Parse(arch.defaults.rope_parameters, fields.place(), "rope_parameters",
                             ThrowFieldError<LoadError>);
}

std::vector<RopeConfig> ReadRopes(const ConfigFields& fields, const ArchSpec& arch,
                                  const RopedDims& dims, const SequenceLengths& lengths) {
  const auto read = [&](const ConfigFields& rope, int64_t dim, double default_theta) {
    return RopeReader{fields, arch, dim, lengths, default_theta}.Read(rope);
  };
  const double default_theta =
      fields.Positive(std::string(arch.rope_theta_field).c_str(), arch.defaults.rope_theta);
  if (arch.has_compressed_attention) {
    return ReadCompressedRopes(fields, arch, default_theta, [&](const auto& rope, double theta) {
      return read(rope, dims.full, theta);
    });
  }
  if (!arch.local_rope) {
    const ConfigFields params = RopeParameters(fields, arch);
    if (IsByLayerType(params)) {
      fields.Fail("rope_parameters",
                  "per layer type are not supported for " + std::string(arch.architecture));
    }
    return {read(params, dims.full, default_theta)};
  }
  // rope_parameters has an object for each rope, and the older rope_scaling is of the first one.
  const bool has_none = !fields.HasObject("rope_parameters") && !fields.HasObject("rope_scaling");
  const ConfigFields by_type =
      has_none ? RopeParameters(fields, arch) : fields.Object("rope_parameters");
  const ConfigFields scaling = fields.Object("rope_scaling");
  if (fields.HasObject("rope_parameters") && !IsByLayerType(by_type)) {
    fields.Fail("rope_parameters",
                "must have the objects \"full_attention\" and "
                "\"sliding_attention\" for " +
                    std::string(arch.architecture));
  }
  if (IsByLayerType(scaling)) {
    fields.Fail("rope_scaling", "per layer type are not supported (but \"rope_parameters\" are)");
  }
  // Else transformers would add the scaling to a rope that is "default", which changes nothing.
  if (fields.HasObject("rope_scaling") && !scaling.Has("rope_type")) {
    fields.Fail("rope_scaling", "must have a \"rope_type\" for " + std::string(arch.architecture));
  }
  const ConfigFields full = by_type.Object("full_attention");
  const std::string local_theta(arch.local_rope_theta_field);
  const double absent = arch.defaults.local_rope_theta;
  return {read(fields.HasObject("rope_scaling") ? scaling : full, dims.full,
               full.Positive("rope_theta", default_theta)),
          read(by_type.Object("sliding_attention"), dims.local,
               local_theta.empty() ? absent : fields.Positive(local_theta.c_str(), absent))};
}

int64_t TrainedPositions(const ConfigFields& fields, const ArchSpec& arch) {
  constexpr char kField[] = "max_trained_positions";
  const int64_t absent = arch.defaults.trained_positions;
  if (absent == 0 || !(fields.Has(kField) || fields.Has("rotary_scaling_factor"))) {
    return kMaxPositions;
  }
  return fields.Integer(kField, absent, 1, kMaxPositions);
}

int64_t ExactPositions(const std::vector<RopeConfig>& ropes, const SequenceLengths& lengths) {
  int64_t positions = lengths.max_positions;
  for (const RopeConfig& rope : ropes) {
    if (rope.scaling != RopeScaling::kLongRope || HasLongSequences(rope, lengths)) continue;
    positions = std::min(positions, rope.original_max_positions);
  }
  return positions;
}

}  // namespace mlc_native
