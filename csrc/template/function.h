// The functions of templates: filters, tests, methods of values and functions of the environment,
// with the names of their parameters as in Python.
#pragma once

#include <array>
#include <cstddef>
#include <initializer_list>
#include <span>
#include <string_view>

#include "template/rendering.h"
#include "template/text.h"
#include "template/value.h"

namespace mlc_native::templates {

struct NamedValue {
  std::string_view name;
  Value value;
};

struct CallArguments {
  std::span<const Value> positional;
  std::span<const NamedValue> named;
};

// What the parameters of a call got.
class Bound {
 public:
  static constexpr size_t kMax = 5;

  bool has(size_t i) const { return has_[i]; }
  const Value& operator[](size_t i) const { return values_[i]; }
  // The value, or what stands for a missing one.
  Value Or(size_t i, const Value& missing) const { return has_[i] ? values_[i] : missing; }
  void Set(size_t i, const Value& value) {
    values_[i] = value;
    has_[i] = true;
  }

 private:
  std::array<Value, kMax> values_;
  std::array<bool, kMax> has_{};
};

struct Signature {
  std::string_view name;
  std::array<std::string_view, Bound::kMax> parameters = {};
  size_t num_required = 0;
};

// Fails for arguments that the signature does not take.
Bound Bind(Rendering& rendering, const Signature& signature, const CallArguments& arguments);

// Whether a text of the input is among the arguments.
bool HasForeign(Rendering& rendering, const CallArguments& arguments);

// The arguments of functions. Each fails, and names the function, for a value of another type.
int64_t IntArgument(Rendering& rendering, const Signature& signature, const Value& value);
const Text& TextArgument(Rendering& rendering, const Signature& signature, const Value& value);

// The entry of a table that has a name; null if there is none.
template <typename Entry>
const Entry* FindNamed(std::span<const Entry> table, std::string_view name) {
  for (const Entry& entry : table) {
    if (entry.signature.name == name) return &entry;
  }
  return nullptr;
}

}  // namespace mlc_native::templates
