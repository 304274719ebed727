#include "template/arena.h"

#include <string>

#include "template/template_error.h"

namespace mlc_native::templates {

namespace {
constexpr size_t kMaxBlockBytes = 1u << 20;
}

void* Arena::AllocateBlock(size_t bytes) {
  // The small blocks are not counted again: less than a block is wasted for each value that is
  // larger than what the last one had left.
  Reserve(bytes);
  if (bytes > block_bytes_ / 4) {  // a block of its own
    blocks_.push_back(std::make_unique_for_overwrite<std::byte[]>(bytes));
    used_ += bytes;
    return blocks_.back().get();
  }
  blocks_.push_back(std::make_unique_for_overwrite<std::byte[]>(block_bytes_));
  next_ = blocks_.back().get();
  left_ = block_bytes_;
  block_bytes_ = std::min(2 * block_bytes_, kMaxBlockBytes);
  return Allocate(bytes);
}

void Arena::Refuse(size_t bytes) const {
  throw TemplateError(TemplateError::Kind::kLimit,
                      "it would make " + std::to_string(bytes) + " bytes on top of " +
                          std::to_string(used_) + ", more than it may",
                      0);
}

}  // namespace mlc_native::templates
