// InputBuilder: makes the values of a TemplateInput in the arena of the rendering to come. One
// thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "template/arena.h"
#include "template/dict.h"
#include "template/value.h"

namespace mlc_native::templates {

class InputBuilder {
 public:
  explicit InputBuilder(bool trusted) : trusted_(trusted) {}

  void Begin(bool is_object);
  void End();
  void Key(std::string_view name);
  void Add(const Value& value);
  void AddText(std::string_view text);

  bool trusted() const { return trusted_; }
  // What the request brings, and what is the template's own; null before it was built.
  const Dict* given() const { return tops_.empty() ? nullptr : tops_[0]; }
  const Dict* own() const { return tops_.size() < 2 ? nullptr : tops_[1]; }
  // The size of what the request brings.
  size_t num_values() const { return num_values_; }
  size_t num_bytes() const { return num_bytes_; }
  Arena TakeArena() { return std::move(arena_); }

 private:
  // A list or object that is being built.
  struct Open {
    Dict* dict;  // null: a list
    const Text* key = nullptr;
    bool is_role = false;  // whether the key is the name of a message's role
    size_t first_item = 0;
  };
  bool is_own() const { return trusted_ || !tops_.empty(); }

  const bool trusted_;
  Arena arena_;
  std::vector<Open> open_;
  std::vector<Value> items_;  // of the lists that are open, one behind another
  std::vector<const Dict*> tops_;
  size_t num_values_ = 0;
  size_t num_bytes_ = 0;
};

}  // namespace mlc_native::templates
