#include "template/function.h"

#include <algorithm>
#include <string>

#include "template/operators.h"

namespace mlc_native::templates {

Bound Bind(Rendering& rendering, const Signature& signature, const CallArguments& arguments) {
  const std::string name(signature.name);
  const auto& parameters = signature.parameters;
  const auto end = std::ranges::find(parameters, std::string_view());
  const auto count = static_cast<size_t>(end - parameters.begin());
  if (arguments.positional.size() > count) {
    rendering.Fail(name + "() takes at most " + std::to_string(count) + " arguments, got " +
                   std::to_string(arguments.positional.size()));
  }
  Bound bound;
  for (size_t i = 0; i < arguments.positional.size(); ++i) bound.Set(i, arguments.positional[i]);
  for (const NamedValue& named : arguments.named) {
    const auto found = std::find(parameters.begin(), end, named.name);
    const auto i = static_cast<size_t>(found - parameters.begin());
    if (found == end || bound.has(i)) {
      rendering.Fail(name + "() got an unexpected argument '" + std::string(named.name) + "'");
    }
    bound.Set(i, named.value);
  }
  for (size_t i = 0; i < signature.num_required; ++i) {
    if (!bound.has(i))
      rendering.Fail(name + "() misses the argument '" + std::string(parameters[i]) + "'");
  }
  return bound;
}

bool HasForeign(Rendering& rendering, const CallArguments& arguments) {
  const auto foreign = [&](const Value& value) { return HasForeign(rendering, value); };
  return std::ranges::any_of(arguments.positional, foreign) ||
         std::ranges::any_of(arguments.named, foreign, &NamedValue::value);
}

int64_t IntArgument(Rendering& rendering, const Signature& signature, const Value& value) {
  if (!value.is_integer()) {
    if (value.Is(Kind::kUndefined)) rendering.FailOnUndefined(value);
    rendering.Fail(std::string(signature.name) + "() takes an integer, got a value of type " +
                   TypeName(value));
  }
  constexpr int64_t kMaxArgument = 100'000;  // widths, counts, the numbers of a range
  if (value.AsInt() > kMaxArgument || value.AsInt() < -kMaxArgument) {
    rendering.Refuse(std::string(signature.name) + "() was called with " +
                     std::to_string(value.AsInt()));
  }
  return value.AsInt();
}

const Text& TextArgument(Rendering& rendering, const Signature& signature, const Value& value) {
  if (!value.is_text()) {
    if (value.Is(Kind::kUndefined)) rendering.FailOnUndefined(value);
    rendering.Fail(std::string(signature.name) + "() takes a text, got a value of type " +
                   TypeName(value));
  }
  return *value.text;
}

}  // namespace mlc_native::templates
