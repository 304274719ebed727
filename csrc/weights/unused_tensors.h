// The tensors of a checkpoint that a decoder does not use, and what is said of them. Pure; any
// thread.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "arch/model_config.h"
#include "weights/weight_set.h"
#include "weights/weight_source.h"

namespace mlc_native {

// The decoder, for messages.
std::string_view NameOf(const ModelConfig& config);
// The first ones of the names, and how many there are besides.
std::string JoinNames(const std::vector<std::string>& names);

// The names of tensors and files that no source uses, besides those that are known not to be
// needed.
std::vector<std::string> FindUnused(const ModelConfig& config, const WeightSet& weights,
                                    std::span<const std::unique_ptr<WeightSource>> sources);
// Adds how many tensors are of parts that read no text.
void NoteIgnored(const ModelConfig& config, const WeightSet& weights,
                 std::vector<std::string>* unused);
// Throws LoadError.
[[noreturn]] void RefuseUnused(const ModelConfig& config, const std::vector<std::string>& unused);

}  // namespace mlc_native
