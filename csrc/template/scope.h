// Scope: the variables of a part of a template, within those of the parts around it. Lies in the
// arena, so that a macro can keep the scope in which it was defined. A loop clears its scope for
// each value.
#pragma once

#include <cstdint>

#include "template/arena.h"
#include "template/value.h"

namespace mlc_native::templates {

class Scope {
 public:
  explicit Scope(const Scope* outer) : outer_(outer) {}

  // A null pointer if neither this scope nor one around it has the name.
  const Value* Find(int name) const {
    for (const Scope* scope = this; scope != nullptr; scope = scope->outer_) {
      for (uint32_t i = 0; i < scope->size_; ++i) {
        if (scope->variables_[i].name == name) return &scope->variables_[i].value;
      }
    }
    return nullptr;
  }

  void Set(Arena& arena, int name, const Value& value) {
    for (uint32_t i = 0; i < size_; ++i) {
      if (variables_[i].name == name) {
        variables_[i].value = value;
        return;
      }
    }
    if (size_ == capacity_) {
      capacity_ = capacity_ == 0 ? 4 : 2 * capacity_;
      Variable* const grown = arena.NewArray<Variable>(capacity_);
      std::copy(variables_, variables_ + size_, grown);
      variables_ = grown;
    }
    variables_[size_++] = {name, value};
  }

  void Clear() { size_ = 0; }

 private:
  struct Variable {
    int name;
    Value value;
  };

  const Scope* const outer_;
  Variable* variables_ = nullptr;
  uint32_t size_ = 0;
  uint32_t capacity_ = 0;
};

}  // namespace mlc_native::templates
