// FieldReader reads the members of a config from a JSON object, through the config's Visit...Fields
// function. Each field's type and range is checked where it is read; an absent or null field leaves
// a member as it is. Belongs to one thread.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "mlc_native/detail/field.h"
#include "mlc_native/detail/generation_config.h"
#include "mlc_native/detail/weight_quantization.h"
#include "support/config_fields.h"

namespace mlc_native {

template <typename Config>
class FieldReader {
 public:
  // Fields of the names `own_form` are left to the caller, who reads them in another form.
  FieldReader(const ConfigFields& fields, Config* config, std::vector<std::string> own_form = {})
      : fields_(fields), config_(config), own_form_(std::move(own_form)) {}

  template <typename T>
  void operator()(const Field& field, T Config::* member) {
    known_.emplace_back(field.name);
    if (std::ranges::count(own_form_, field.name) > 0) return;
    if (fields_.Has(field.name)) Read(field, config_->*member);
  }

  // The names of all fields that were visited.
  const std::vector<std::string>& known() const { return known_; }

 private:
  void Read(const Field& field, std::string& out) {
    out = fields_.String(field.name);
    const auto is_out = [&](const char* choice) { return out == choice; };
    if (!field.choices.empty() && std::ranges::none_of(field.choices, is_out)) {
      fields_.FailValue(field.name, "one of " + ListNames(field.choices));
    }
  }
  void Read(const Field& field, bool& out) { out = fields_.Bool(field.name, out); }
  void Read(const Field& field, std::vector<std::string>& out) {
    out = fields_.Strings(field.name);
  }
  template <typename Integer>
    requires(std::is_same_v<Integer, int64_t> || std::is_same_v<Integer, int32_t>)
  void Read(const Field& field, Integer& out) {
    using Limits = std::numeric_limits<Integer>;
    const double low = field.range.low;
    const double high = field.range.high;
    out = static_cast<Integer>(fields_.Integer(
        field.name, std::nullopt,
        low > static_cast<double>(Limits::min()) ? static_cast<int64_t>(low) : Limits::min(),
        high < static_cast<double>(Limits::max()) ? static_cast<int64_t>(high) : Limits::max()));
  }
  void Read(const Field& field, double& out) {
    const JsonValue& value = *fields_.Find(field.name);
    if (!value.is_number() || !field.range.Contains(value.AsNumber())) {
      fields_.FailValue(field.name, RangeText(field.range));
    }
    out = value.AsNumber();
  }
  void Read(const Field& field, std::vector<int32_t>& out) {
    const JsonValue& value = *fields_.Find(field.name);
    const auto is_id = [](const JsonValue& id) {
      return id.IsIntegerIn(0, std::numeric_limits<int32_t>::max());
    };
    if (!value.is_array() || !std::ranges::all_of(value.AsArray(), is_id)) {
      fields_.FailValue(field.name, "a list of token ids in [0, 2^31)");
    }
    out.clear();
    for (const JsonValue& id : value.AsArray()) out.push_back(static_cast<int32_t>(id.AsInteger()));
  }
  void Read(const Field& field, LogitBias& out) {
    const JsonValue& value = *fields_.Find(field.name);
    constexpr const char* kAllowed = "an object of token ids in [0, 2^31) and numbers";
    if (!value.is_object()) fields_.FailValue(field.name, kAllowed);
    out.clear();
    for (const JsonMember& member : value.AsObject()) {
      int64_t id = 0;
      constexpr size_t kMostDigits = 10;
      bool is_id = !member.name.empty() && member.name.size() <= kMostDigits;
      for (const char digit : member.name) {
        is_id = is_id && digit >= '0' && digit <= '9';
        id = id * 10 + (digit - '0');
        if (!is_id) break;
      }
      if (!is_id || id > std::numeric_limits<int32_t>::max() || !member.value.is_number()) {
        fields_.FailValue(field.name, kAllowed);
      }
      out.emplace_back(static_cast<int32_t>(id), member.value.AsNumber());
    }
  }
  void Read(const Field& field, DebugConfig& out) {
    const JsonValue& value = *fields_.Find(field.name);
    if (!value.is_object()) fields_.FailValue(field.name, "an object");
    const ConfigFields object = fields_.Object(field.name);
    FieldReader<DebugConfig> read(object, &out);
    VisitDebugFields(read);
    for (const std::string& name : object.Names()) {
      if (std::ranges::count(read.known(), name) == 0) object.Fail(name, "is no debug option");
    }
  }
  // Those have several forms: see own_form.
  void Read(const Field& field, ResponseFormat& /*out*/) { ThrowNoForm(field); }
  void Read(const Field& field, std::vector<std::vector<int32_t>>& /*out*/) { ThrowNoForm(field); }
  void ThrowNoForm(const Field& field) { fields_.Fail(field.name, "is not read here"); }

  template <typename T>
  void Read(const Field& field, std::optional<T>& out) {
    T value{};
    Read(field, value);
    out = value;
  }
  template <typename Enum>
    requires std::is_enum_v<Enum>
  void Read(const Field& field, Enum& out) {
    const JsonValue& value = *fields_.Find(field.name);
    const auto named = value.is_string() ? ValueOf<Enum>(value.AsString()) : std::nullopt;
    if (!named) fields_.FailValue(field.name, "one of " + ListNamesOf<Enum>());
    out = *named;
  }

  void Read(const Field& field, WeightQuantization& out) {
    const JsonValue& value = *fields_.Find(field.name);
    const auto named =
        value.is_string() ? WeightQuantization::Parse(value.AsString()) : std::nullopt;
    if (!named) fields_.FailValue(field.name, WeightQuantization::Allowed());
    out = *named;
  }

  const ConfigFields& fields_;
  Config* config_;
  std::vector<std::string> own_form_;
  std::vector<std::string> known_;
};

// Throws through the fields' thrower for a field that is not among `known`: what = "the engine
// config".
void RefuseUnknownFields(const ConfigFields& fields, const std::vector<std::string>& known,
                         const std::string& what);

}  // namespace mlc_native
