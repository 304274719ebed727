// Structural tags as xgrammar reads them, from what clients send. Pure; any thread.
//
// Two shapes of response_format are known: {"type": "structural_tag", "format": ...} is xgrammar's
// own, {"type": "structural_tag", "structures": [{"begin", "schema", "end"}], "triggers": [...]} is
// the older one of other servers. In both, white space between the parts of a JSON value is limited
// where the client does not say otherwise: a model could print blanks until its budget is spent.
#pragma once

#include <string>

namespace mlc_native {

// Throws GrammarError for what is no structural tag of either shape.
std::string PrepareStructuralTag(const std::string& text);

}  // namespace mlc_native
