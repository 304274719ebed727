// Converts structural tags from the requests of clients to the form that xgrammar reads. Pure; any
// thread.
//
// There are two forms of response_format: {"type": "structural_tag", "format": ...} is xgrammar's
// own, and {"type": "structural_tag", "structures": [{"begin", "schema", "end"}], "triggers":
// [...]} is the older one of other servers. In both, white space between the parts of a JSON value
// is limited unless the client sets it, because a model could print blanks until its budget is
// spent.
#pragma once

#include <string>

namespace mlc_native {

// Throws GrammarError for a text that is not a structural tag of either form.
std::string PrepareStructuralTag(const std::string& text);

}  // namespace mlc_native
