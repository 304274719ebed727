#include "template/template_error.h"

#include "support/utf8.h"

namespace mlc_native {

TemplateError::TemplateError(Kind kind, const std::string& message, int line)
    : CallerError("chat_template", ToValidUtf8(message)), kind_(kind), line_(line) {}

}  // namespace mlc_native
