// What the filters and the methods of texts have in common. Results know what of them is the
// template's own where Python's sandbox keeps it: in parts, replacements and joins.
#pragma once

#include <optional>
#include <string_view>

#include "template/rendering.h"
#include "template/text.h"
#include "template/value.h"

namespace mlc_native::templates {

enum class Ends : uint8_t { kBoth, kLeft, kRight };

// str.strip: of white space, or of these characters.
const Text* Strip(Rendering& rendering, const Text& text, const Text* chars, Ends ends);
// str.replace; a negative count replaces all.
const Text* Replace(Rendering& rendering, const Text& text, const Text& old, const Text& fresh,
                    int64_t count);
// str.join of the texts of values.
const Text* Join(Rendering& rendering, const Text& separator, const Value& values);
// str.split and str.rsplit with a separator that is not empty.
Value Split(Rendering& rendering, const Text& text, const Text& separator, int64_t count);
Value SplitFromRight(Rendering& rendering, const Text& text, const Text& separator, int64_t count);
// str.split and str.rsplit at white space.
Value SplitAtSpace(Rendering& rendering, const Text& text, int64_t count, bool from_right);
Value SplitLines(Rendering& rendering, const Text& text, bool keep_ends);

// str.upper and others, of ASCII texts. Own, whatever the text is.
enum class Case : uint8_t { kUpper, kLower, kCapitalized, kTitle };
const Text* ChangeCase(Rendering& rendering, const Text& text, Case to);

}  // namespace mlc_native::templates
