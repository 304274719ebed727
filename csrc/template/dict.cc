#include "template/dict.h"

#include <algorithm>
#include <bit>
#include <functional>

#include "template/template_error.h"
#include "template/text.h"

namespace mlc_native::templates {
namespace {

uint64_t HashBytes(const std::string_view& bytes) { return std::hash<std::string_view>()(bytes); }

uint64_t HashKey(const Value& key) {
  if (key.is_text()) return HashBytes(key.text->bytes);
  if (!key.is_number()) return 1;
  const double number = key.AsDouble();
  const auto bits = std::bit_cast<uint64_t>(number == 0 ? 0.0 : number);
  const uint64_t mixed = (bits ^ bits >> 32) * 0x9E3779B97F4A7C15u;
  return mixed ^ mixed >> 32;
}

bool IsText(const Value& key, const std::string_view& bytes) {
  return key.is_text() && key.text->bytes == bytes;
}

bool IsKey(const Value& one, const Value& other) {
  if (other.is_text()) return IsText(one, other.text->bytes);
  if (one.is_integer() && other.is_integer()) return one.AsInt() == other.AsInt();
  if (one.is_number() && other.is_number()) return one.AsDouble() == other.AsDouble();
  return one.kind == other.kind;  // None
}

}  // namespace

bool Dict::CanBeKey(const Value& value) {
  return value.is_text() || value.is_number() || value.Is(Kind::kNone);
}

template <typename Key>
const DictEntry* Dict::Search(uint64_t (*hash)(const Key&),
                              bool (*equals)(const Value&, const Key&), const Key& key) const {
  if (index_ == nullptr) {
    for (const DictEntry& entry : entries()) {
      if (equals(entry.key, key)) return &entry;
    }
    return nullptr;
  }
  const uint32_t mask = 2 * capacity_ - 1;
  auto at = static_cast<uint32_t>(hash(key)) & mask;
  for (uint32_t probes = 0; index_[at] != 0; at = (at + 1) & mask) {
    const DictEntry& entry = entries_[index_[at] - 1];
    if (equals(entry.key, key)) return &entry;
    CheckProbes(++probes);
  }
  return nullptr;
}

const Value* Dict::Find(const Value& key) const {
  const DictEntry* const found = Search<Value>(HashKey, IsKey, key);
  return found == nullptr ? nullptr : &found->value;
}

const Value* Dict::Find(std::string_view key) const {
  const DictEntry* const found = Search<std::string_view>(HashBytes, IsText, key);
  return found == nullptr ? nullptr : &found->value;
}

void Dict::CheckProbes(uint32_t probes) {
  if (probes < 512) return;
  throw TemplateError(TemplateError::Kind::kNotSupported, "an object whose keys collide", 0);
}

void Dict::Set(Arena& arena, const Value& key, const Value& value) {
  if (const DictEntry* const found = Search<Value>(HashKey, IsKey, key)) {
    entries_[found - entries_].value = value;
    return;
  }
  if (size_ == capacity_) Grow(arena);
  entries_[size_++] = {key, value};
  if (index_ != nullptr) AddToIndex(size_ - 1);
}

void Dict::Grow(Arena& arena) {
  const uint32_t capacity = capacity_ == 0 ? 4 : 2 * capacity_;  // a power of two
  DictEntry* const entries = arena.NewArray<DictEntry>(capacity);
  std::copy(entries_, entries_ + size_, entries);
  entries_ = entries;
  capacity_ = capacity;
  if (capacity < kMinIndexed) return;
  index_ = arena.NewArray<uint32_t>(2 * size_t{capacity});
  std::fill_n(index_, 2 * size_t{capacity}, 0u);
  for (uint32_t i = 0; i < size_; ++i) AddToIndex(i);
}

void Dict::AddToIndex(uint32_t position) {
  const uint32_t mask = 2 * capacity_ - 1;
  auto at = static_cast<uint32_t>(HashKey(entries_[position].key)) & mask;
  for (uint32_t probes = 0; index_[at] != 0; at = (at + 1) & mask) CheckProbes(++probes);
  index_[at] = position + 1;
}

}  // namespace mlc_native::templates
