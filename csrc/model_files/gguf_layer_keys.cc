#include "model_files/gguf_layer_keys.h"

namespace mlc_native {

void GgufLayerKeys::Fail(std::string_view name, const std::string& what) const {
  file_.Fail(Key(name), what);
}

void GgufLayerKeys::Require(std::string_view name) const {
  if (!file_.Has(Key(name))) Fail(name, "is missing");
}

int64_t GgufLayerKeys::Required(std::string_view name) const {
  Require(name);
  return file_.Integer(Key(name)).value_or(0);
}

void GgufLayerKeys::CheckMultiple(std::string_view name, int64_t value, std::string_view of,
                                  int64_t divisor) const {
  if (divisor < 1) Fail(of, "= " + std::to_string(divisor) + " must be at least 1");
  if (value % divisor == 0) return;
  Fail(name, "= " + std::to_string(value) + " must be a multiple of " + Key(of) + " = " +
                 std::to_string(divisor));
}

std::vector<int64_t> GgufLayerKeys::OfLayers(std::string_view name) const {
  constexpr int64_t kMaxLayers = 1 << 16;  // above what the reader of the configuration allows
  constexpr char kCount[] = "block_count", kGuessing[] = "nextn_predict_layers";
  const int64_t layers = Required(kCount);
  if (layers < 1 || layers > kMaxLayers) {
    Fail(kCount,
         "= " + std::to_string(layers) + " must be in [1, " + std::to_string(kMaxLayers) + "]");
  }
  const int64_t guessing = file_.Integer(Key(kGuessing)).value_or(0);
  if (guessing < 0 || guessing >= layers) {
    Fail(kGuessing,
         "= " + std::to_string(guessing) + " must be in [0, " + std::to_string(layers - 1) + "]");
  }
  Require(name);
  std::vector<int64_t> values;
  if (file_.IsList(Key(name))) {
    values = file_.Integers(Key(name));
    if (std::ssize(values) != layers) {
      Fail(name, "has " + std::to_string(values.size()) + " entries for " + std::to_string(layers) +
                     " layers");
    }
  } else {
    values.assign(static_cast<size_t>(layers), file_.Integer(Key(name)).value_or(0));
  }
  values.resize(static_cast<size_t>(layers - guessing));
  return values;
}

int64_t GgufLayerKeys::OnlyOne(std::string_view name, const std::vector<int64_t>& of_layers,
                               const char* those) const {
  int64_t only = 0;
  for (const int64_t value : of_layers) {
    if (value == 0) continue;
    if (only != 0 && value != only) {
      Fail(name, "differs among layers with " + std::string(those) + ", which is not supported");
    }
    only = value;
  }
  return only;
}

}  // namespace mlc_native
