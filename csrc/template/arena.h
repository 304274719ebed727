// Arena: the memory of one rendering, or of the constants of one template. What is made in it lives
// as long as the arena, so that values are plain pointers, may hold each other in circles, and need
// no destructor. It counts its bytes and refuses to exceed its limit. One thread.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

namespace mlc_native::templates {

class Arena {
 public:
  Arena() = default;
  Arena(Arena&& other) noexcept = default;
  Arena& operator=(Arena&& other) noexcept = default;

  // Throws TemplateError (kLimit) before the limit is exceeded.
  void* Allocate(size_t bytes) {
    bytes = (bytes + kAlignment - 1) & ~(kAlignment - 1);
    if (bytes > left_) return AllocateBlock(bytes);
    std::byte* const memory = next_;
    next_ += bytes;
    left_ -= bytes;
    used_ += bytes;
    return memory;
  }

  template <typename T, typename... Args>
  T* New(Args&&... args) {
    static_assert(std::is_trivially_destructible_v<T> && alignof(T) <= kAlignment);
    return new (Allocate(sizeof(T))) T(std::forward<Args>(args)...);
  }

  // Room for values that the caller writes. Requires: count > 0.
  template <typename T>
  T* NewArray(size_t count) {
    static_assert(std::is_trivially_destructible_v<T> && alignof(T) <= kAlignment);
    if (count > SIZE_MAX / sizeof(T)) Refuse(SIZE_MAX);
    T* const array = static_cast<T*>(Allocate(count * sizeof(T)));
    std::uninitialized_default_construct_n(array, count);
    return array;
  }

  template <typename T>
  std::span<const T> Copy(std::span<const T> values) {
    if (values.empty()) return {};
    T* const array = NewArray<T>(values.size());
    std::copy(values.begin(), values.end(), array);
    return {array, values.size()};
  }

  std::string_view Copy(std::string_view bytes) {
    if (bytes.empty()) return {};
    char* const array = static_cast<char*>(Allocate(bytes.size()));
    std::memcpy(array, bytes.data(), bytes.size());
    return {array, bytes.size()};
  }

  size_t used() const { return used_; }
  // Throws if there is no room for so many bytes. They are not taken.
  void Reserve(size_t bytes) const {
    if (bytes > limit_ || used_ > limit_ - bytes) Refuse(bytes);
  }
  // The same for a text that is put together elsewhere, in a string that doubles, and then copied.
  void ReserveText(size_t bytes) const { Reserve(bytes > SIZE_MAX / 3 ? SIZE_MAX : 3 * bytes); }
  // Further bytes that may be used.
  void SetRoom(size_t bytes) { limit_ = bytes > SIZE_MAX - used_ ? SIZE_MAX : used_ + bytes; }

 private:
  static constexpr size_t kAlignment = 16;
  void* AllocateBlock(size_t bytes);
  [[noreturn]] void Refuse(size_t bytes) const;

  std::vector<std::unique_ptr<std::byte[]>> blocks_;
  std::byte* next_ = nullptr;
  size_t left_ = 0;
  size_t used_ = 0;
  size_t limit_ = SIZE_MAX;
  size_t block_bytes_ = 4096;
};

}  // namespace mlc_native::templates
