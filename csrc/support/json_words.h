// The words Infinity, -Infinity and NaN, which are no JSON but which Python writes: config.json of
// Granite 4 H has "time_step_limit": [0.0, Infinity]. Pure; any thread.
#pragma once

#include <string>
#include <string_view>

namespace mlc_native {

// Replaces each such word outside of strings by the object that transformers writes in its place:
// {"__float__": "Infinity"}.
std::string SpellOutJsonWords(std::string_view text);

}  // namespace mlc_native
