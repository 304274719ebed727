// BlockChecks compares the blocks of a mapped cache file with their checksums, each before its
// first use. A block is checked when bytes of it are required; meanwhile a thread of the lowest
// priority checks the others. That thread reads the file, not the map, so that the process needs no
// memory for what it does not use.
//
// Invariant: Require returns only for bytes whose blocks had their checksums, and nothing changes
// the bytes of a leased map after that. The first damage is told to the owner of the file, which
// deletes it, so that the next load packs it anew; bytes of good blocks stay usable.
//
// Owned by the weights in the map. Any thread may require, many at a time.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "support/regular_file.h"
#include "support/thread_pool.h"
#include "weights/leased_map.h"

namespace mlc_native {

class BlockChecks {
 public:
  static constexpr size_t kBlock = size_t{2} << 20;  // bytes with one checksum

  // Blocks begin at `data_begin` of the file, which ends with the last one. `file` is that of the
  // map, opened again. `on_damage` gets what is wrong with it, on any thread.
  BlockChecks(std::shared_ptr<const LeasedMap> map, RegularFile file, size_t data_begin,
              std::vector<uint64_t> sums, std::function<void(const std::string&)> on_damage);
  ~BlockChecks();
  BlockChecks(const BlockChecks&) = delete;
  BlockChecks& operator=(const BlockChecks&) = delete;

  std::span<const std::byte> data() const { return data_; }
  const LeasedMap& map() const { return *map_; }
  size_t num_blocks() const { return states_.size(); }

  // Whether a block has its checksum. Reads the map.
  bool IsGood(size_t block);
  // Throws LoadError if a block of one of the parts of data() is damaged.
  void Require(std::span<const std::span<const std::byte>> parts, ThreadPool& pool);
  // Whether all blocks are good, so that nothing needs to be required any more.
  bool is_done() const { return num_left_.load(std::memory_order_acquire) == 0; }
  // Starts the thread. Requires: it was not called before.
  void CheckTheRest();

 private:
  enum class State : uint8_t { kUnchecked, kGood, kDamaged };

  void Note(size_t block, State state);
  void ReadTheRest();

  const std::shared_ptr<const LeasedMap> map_;
  const RegularFile file_;
  const size_t data_begin_;
  const std::span<const std::byte> data_;
  const std::vector<uint64_t> sums_;
  const std::function<void(const std::string&)> on_damage_;
  std::vector<std::atomic<State>> states_;
  std::atomic<size_t> num_left_;
  std::atomic<bool> is_damage_told_ = false;
  std::atomic<bool> stop_ = false;
  std::thread reader_;
};

}  // namespace mlc_native
