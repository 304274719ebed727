// TemplateInput: the variables of one rendering, built value by value in the order of a JSON text.
//
//   input.BeginObject().Key("messages").BeginArray() ... .EndArray().EndObject();
//
// The first object has the variables that the request brings, whose texts count as the input's;
// those of a second one are the template's own, and come where the first one does not have them.
// One thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>

#include "mlc_native/detail/export.h"

namespace mlc_native {

namespace templates {
class InputBuilder;
}

class MLC_NATIVE_PRIVATE_API TemplateInput {
 public:
  // With `trusted`, texts of the request count as the template's own, too.
  explicit TemplateInput(bool trusted = false);
  TemplateInput(TemplateInput&&) noexcept;
  TemplateInput& operator=(TemplateInput&&) noexcept;
  ~TemplateInput();

  TemplateInput& BeginObject();
  TemplateInput& EndObject();
  TemplateInput& BeginArray();
  TemplateInput& EndArray();
  TemplateInput& Key(std::string_view name);
  TemplateInput& Null();
  TemplateInput& Put(bool value);
  TemplateInput& Put(int64_t value);
  TemplateInput& Put(double value);
  // Throws TemplateError (kFailed) for bytes that are not UTF-8.
  TemplateInput& Put(std::string_view text);

  templates::InputBuilder& builder() { return *builder_; }

 private:
  std::unique_ptr<templates::InputBuilder> builder_;
};

// Reads an object of variables, as Python's json does: numbers may be NaN and Infinity. Throws
// TemplateError: kFailed for what is no JSON object, kNotSupported for integers of more than 64
// bits.
void ReadVariables(std::string_view json, TemplateInput* input);

}  // namespace mlc_native
