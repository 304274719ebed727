// Values as json.dumps of Python writes them, with the options that the filter tojson of
// transformers has.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "template/rendering.h"
#include "template/value.h"

namespace mlc_native::templates {

struct JsonTextOptions {
  bool ensure_ascii = false;
  std::optional<std::string> indent;  // of one level; members are on lines of their own
  std::string item_separator = ", ";
  std::string key_separator = ": ";
  bool sort_keys = false;
};

// Fails for what JSON does not have. Sets `foreign` if a text in it is not the template's own.
std::string JsonText(Rendering& rendering, const Value& value, const JsonTextOptions& options,
                     bool* foreign);

}  // namespace mlc_native::templates
