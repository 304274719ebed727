#include "weights/block_checks.h"

#include <pthread.h>
#include <sched.h>

#include <algorithm>
#include <exception>
#include <utility>

#include "support/check.h"
#include "support/error.h"
#include "support/hash64.h"
#include "support/library_thread.h"

namespace mlc_native {
namespace {

template <typename Byte>
std::span<Byte> BlockOf(std::span<Byte> data, size_t block) {
  constexpr size_t kBlock = BlockChecks::kBlock;
  return data.subspan(block * kBlock, std::min(kBlock, data.size() - block * kBlock));
}

std::string Damage(const std::string& path, size_t block) {
  return path + ": is damaged in the 2 MiB at block " + std::to_string(block) +
         "; it was deleted, and the next load packs the weights anew";
}

}  // namespace

BlockChecks::BlockChecks(std::shared_ptr<const LeasedMap> map, RegularFile file, size_t data_begin,
                         std::vector<uint64_t> sums,
                         std::function<void(const std::string&)> on_damage)
    : map_(std::move(map)),
      file_(std::move(file)),
      data_begin_(data_begin),
      data_(map_->bytes().subspan(data_begin)),
      sums_(std::move(sums)),
      on_damage_(std::move(on_damage)),
      states_((data_.size() + kBlock - 1) / kBlock),
      num_left_(states_.size()) {
  MLC_CHECK(sums_.size() >= states_.size()) << sums_.size() << " checksums";
}

BlockChecks::~BlockChecks() {
  stop_ = true;
  if (reader_.joinable()) reader_.join();
}

bool BlockChecks::IsGood(size_t block) {
  if (states_[block].load(std::memory_order_acquire) == State::kGood) return true;
  if (Hash64(BlockOf(data_, block)) != sums_[block]) return false;
  Note(block, State::kGood);
  return true;
}

void BlockChecks::Require(std::span<const std::span<const std::byte>> parts, ThreadPool& pool) {
  std::vector<size_t> blocks;
  for (const std::span<const std::byte> part : parts) {
    if (part.empty()) continue;
    const auto begin = static_cast<size_t>(part.data() - data_.data());
    for (size_t i = begin / kBlock; i <= (begin + part.size() - 1) / kBlock; ++i) {
      if (states_[i].load(std::memory_order_acquire) != State::kGood) blocks.push_back(i);
    }
  }
  std::ranges::sort(blocks);
  blocks.erase(std::ranges::unique(blocks).begin(), blocks.end());
  pool.ParallelFor(std::ssize(blocks), [&](int64_t begin, int64_t end, int) {
    for (int64_t i = begin; i < end; ++i) {
      const size_t block = blocks[static_cast<size_t>(i)];
      if (IsGood(block)) continue;
      Note(block, State::kDamaged);
      throw LoadError("weight_cache_dir", Damage(file_.path(), block));
    }
  });
}

void BlockChecks::Note(size_t block, State state) {
  if (state == State::kGood) {
    const State before = states_[block].exchange(state, std::memory_order_acq_rel);
    if (before != State::kGood) num_left_.fetch_sub(1, std::memory_order_acq_rel);
    return;
  }
  State before = State::kUnchecked;
  if (!states_[block].compare_exchange_strong(before, state, std::memory_order_acq_rel)) return;
  if (is_damage_told_.exchange(true)) return;
  on_damage_(Damage(file_.path(), block));
}

void BlockChecks::CheckTheRest() {
  MLC_CHECK(!reader_.joinable()) << "the rest of " << file_.path() << " is checked already";
  reader_ = StartThread("mlcn-check", [this] {
    const sched_param none{};
    pthread_setschedparam(pthread_self(), SCHED_IDLE, &none);  // any thread may do so
    try {
      ReadTheRest();
    } catch (const std::exception&) {  // no memory: what is left is checked when it is required
      return;
    }
  });
}

// Another process may write to the file once the map has a copy of what it held (leased_map.h);
// what is left then is checked when it is required.
void BlockChecks::ReadTheRest() {
  std::vector<std::byte> buffer(std::min(kBlock, data_.size()));
  for (size_t block = 0; block < states_.size() && !stop_; ++block) {
    if (states_[block].load(std::memory_order_acquire) != State::kUnchecked) continue;
    const std::span<std::byte> bytes(buffer.data(), BlockOf(data_, block).size());
    try {
      file_.Read(data_begin_ + block * kBlock, bytes);
    } catch (const LoadError&) {
      return;  // it is cut short
    }
    const bool is_good = Hash64(bytes) == sums_[block];
    if (map_->has_copy()) return;
    Note(block, is_good ? State::kGood : State::kDamaged);
  }
}

}  // namespace mlc_native
