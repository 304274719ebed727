// Program: a parsed template. Immutable; any thread.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "template/arena.h"
#include "template/syntax.h"

namespace mlc_native::templates {

class Program {
 public:
  std::string source;                   // which tokens and names point into
  Arena arena;                          // of the constants
  std::vector<std::string_view> names;  // of variables, by their numbers
  Body body;

  // The number of a name, which is given one if it has none.
  int NumberOf(std::string_view name) {
    for (size_t i = 0; i < names.size(); ++i) {
      if (names[i] == name) return static_cast<int>(i);
    }
    names.push_back(name);
    return static_cast<int>(names.size()) - 1;
  }
};

}  // namespace mlc_native::templates
