// TemplateError: why a chat template was not compiled or a prompt not rendered.
#pragma once

#include <cstdint>
#include <string>

#include "mlc_native/detail/export.h"
#include "mlc_native/errors.h"

namespace mlc_native {

class MLC_NATIVE_PRIVATE_API TemplateError : public CallerError {
 public:
  enum class Kind : uint8_t {
    kSyntax,        // the source is no template
    kNotSupported,  // it uses what this renderer does not have; jinja2 may
    kFailed,        // an operation failed: an undefined value, a type that does not fit
    kRaised,        // the template called raise_exception; the message is its own
    kLimit,         // the rendering exceeded one of its RenderLimits
  };

  // The message may quote a text up to the middle of a character, which U+FFFD then replaces.
  TemplateError(Kind kind, const std::string& message, int line);

  Kind kind() const { return kind_; }
  // The line of the source, counted from 1; 0 where it is not known.
  int line() const { return line_; }

 private:
  Kind kind_;
  int line_;
};

}  // namespace mlc_native
