// Dict: an object of a template, in the order in which its keys came. Keys are None, numbers and
// texts; as in Python, 1, 1.0 and true are one key. The memory is an arena's. Objects whose keys
// collide on purpose are not supported (TemplateError).
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "template/arena.h"
#include "template/value.h"

namespace mlc_native::templates {

struct DictEntry {
  Value key;
  Value value;
};

class Dict {
 public:
  std::span<const DictEntry> entries() const { return {entries_, size_}; }
  size_t size() const { return size_; }

  // A null pointer when there is none. Requires: CanBeKey(key).
  const Value* Find(const Value& key) const;
  const Value* Find(std::string_view key) const;
  // A key that is there keeps its place. Requires: CanBeKey(key).
  void Set(Arena& arena, const Value& key, const Value& value);

  static bool CanBeKey(const Value& value);

  bool given = false;  // as in List

 private:
  static constexpr uint32_t kMinIndexed = 9;  // fewer entries are searched one by one

  template <typename Key>
  const DictEntry* Search(uint64_t (*hash)(const Key&), bool (*equals)(const Value&, const Key&),
                          const Key& key) const;
  void Grow(Arena& arena);
  void AddToIndex(uint32_t position);
  static void CheckProbes(uint32_t probes);

  DictEntry* entries_ = nullptr;
  uint32_t* index_ = nullptr;  // positions + 1 by hash, 0 where free; twice the capacity
  uint32_t size_ = 0;
  uint32_t capacity_ = 0;
};

}  // namespace mlc_native::templates
