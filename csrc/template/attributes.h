// value.name and value[key], as jinja2's sandbox finds them. What is not there is undefined.
#pragma once

#include <span>

#include "template/rendering.h"
#include "template/text.h"
#include "template/value.h"

namespace mlc_native::templates {

// Methods come before the members of an object.
Value GetAttribute(Rendering& rendering, const Value& value, const Text* name);
// Members come before methods.
Value GetItem(Rendering& rendering, const Value& value, const Value& key);

// The argument `attribute` of filters: keys that are applied one after another, such as "a.b.0".
std::span<const Value> AttributePath(Rendering& rendering, const Value& attribute);
// An undefined value on the way becomes `missing`, if there is one.
Value FollowPath(Rendering& rendering, const Value& value, std::span<const Value> path,
                 const Value* missing = nullptr);

}  // namespace mlc_native::templates
