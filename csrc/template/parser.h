// From the source of a template to a Program.
#pragma once

#include <memory>
#include <string_view>

#include "template/program.h"

namespace mlc_native::templates {

// Throws TemplateError (kSyntax, kNotSupported).
std::unique_ptr<const Program> ParseTemplate(std::string_view source);

}  // namespace mlc_native::templates
