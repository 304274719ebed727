// KvStorage is the memory of the KV pages of all layers; kv/ decides which sequence holds a page.
// Owned by one model; its thread only.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "arch/model_config.h"
#include "kernels/compression.h"
#include "kernels/kernels.h"
#include "mlc_native/detail/page.h"
#include "support/memory_touch.h"
#include "weights/tensor_storage.h"

namespace mlc_native {

class KvStorage {
 public:
  KvStorage() = default;  // no pages
  // Throws InvalidConfig if there is not enough memory. The initial contents are unspecified. Where
  // the threads that read it are on several NUMA nodes, so is the memory: any of them may compute
  // any sequence.
  KvStorage(const ModelConfig& config, kernels::KvFormat format, int64_t num_pages,
            int num_nodes = 1);
  KvStorage(KvStorage&&) = default;
  KvStorage& operator=(KvStorage&& other) noexcept;

  static int64_t BytesPerToken(const ModelConfig& config, kernels::KvFormat format);

  int64_t num_pages() const { return num_pages_; }
  // Without pages where the layer has no keys and values. A layer with entries has no k_pages.
  const kernels::KvPages& layer(size_t i) const { return layers_[i]; }
  // The keys of its index, if the layer chooses keys or entries; their v_pages are null.
  const kernels::KvPages& index(size_t i) const { return indices_[i]; }
  // The entries of a layer with compressed attention, without k_pages, and what its tokens leave
  // for them.
  const kernels::KvPages& entries(size_t i) const { return entries_[i]; }
  const kernels::TokenRows& token_rows(size_t i) const { return token_rows_[i]; }
  void CopyPages(std::span<const PageCopy> copies);

  // The last page that is about to be written. Pages are used in ascending order, and a step that
  // reached new memory would wait until it is full of zeros. So the memory of the first blocks is
  // provided in the background from the start, and that of the next ones before they are reached.
  void Expect(int64_t page) {
    if (page + kernels::kKvBlockPages >= num_ready_) Provide(page);
  }
  void WaitForMemory();  // until what has been begun is provided

 private:
  // Of what follows the keys and values. Returns where it ends.
  std::byte* PlaceIndices(const ModelConfig& config, kernels::KvFormat format, std::byte* data);
  std::byte* PlaceEntries(const ModelConfig& config, kernels::KvFormat format, std::byte* data);
  void Provide(int64_t page);  // and more

  int64_t num_pages_ = 0;
  int64_t num_ready_ = 0;    // pages from 0 on whose memory is there, or will be soon
  int64_t block_bytes_ = 0;  // of kKvBlockPages pages of all layers, which lie together
  std::vector<kernels::KvPages> layers_;   // those of a layer that reads another's are the other's
  std::vector<kernels::KvPages> indices_;  // empty where no layer chooses keys
  std::vector<kernels::KvPages> entries_;  // empty without compressed attention
  std::vector<kernels::TokenRows> token_rows_;
  std::vector<size_t> own_;  // the layers that have pages of their own
  TensorStorage storage_;
  std::unique_ptr<MemoryTouch> touch_;  // of the memory above
};

}  // namespace mlc_native
