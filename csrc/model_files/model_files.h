// The files of a model folder, and the texts that stand for files which are not there.
//
// A GGUF file is like a folder: the path of the file (x.gguf), or of a folder that holds one
// instead of a config.json, followed by "/config.json", "/generation_config.json",
// "/tokenizer.json" or "/tokenizer_config.json" names the text that is made of its metadata.
// "/tokenizer.json" of a folder that has a tokenizer in another form names the text that is made of
// its files, and
// "/tokenizer_config.json" of one with tekken.json what that form always says. Pure; any thread.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "mlc_native/detail/export.h"
#include "support/config_fields.h"

namespace mlc_native {

// Returns the GGUF file that a model's path stands for; "" for a folder of other files, and for
// what does not exist. Of a split one it is the first. Throws LoadError for a folder with several
// models.
MLC_NATIVE_PRIVATE_API std::string GgufOf(const std::string& model);

// Whether the path names such a text, or a file. Of a text, that it can be made is not said.
MLC_NATIVE_PRIVATE_API bool HasModelFile(const std::string& path);

// Whether the folder has MLC-LLM's form: mlc-chat-config.json, and no config.json.
MLC_NATIVE_PRIVATE_API bool IsMlcFolder(const std::string& folder);

// The text, which is no file; nullopt: the path names a file, or nothing. Throws LoadError. Lists
// named `skipped_list` may be left out.
MLC_NATIVE_PRIVATE_API std::optional<std::string> MadeText(const std::string& path,
                                                           std::string_view skipped_list = {});

// ConfigFields::ReadFile, for both.
MLC_NATIVE_PRIVATE_API ConfigFields ReadModelFile(const std::string& path,
                                                  std::string_view skipped_list = {});

}  // namespace mlc_native
