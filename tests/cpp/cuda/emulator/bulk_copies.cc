#include "cuda/emulator/bulk_copies.h"

#include <algorithm>
#include <cstring>

namespace mlc_native::emulator {

void BulkCopies::Clear() {
  barriers_.clear();
  late_.clear();
}

const char* BulkCopies::Init(const void* barrier) {
  if (reinterpret_cast<uintptr_t>(barrier) % sizeof(uint64_t) != 0) return "a barrier out of line";
  return barriers_.emplace(barrier, Barrier()).second ? nullptr : "a barrier that is there already";
}

void BulkCopies::Fence() {
  for (auto& [address, barrier] : barriers_) barrier.is_fenced = true;
}

const char* BulkCopies::Check(const void* barrier) const {
  const auto found = barriers_.find(barrier);
  if (found == barriers_.end()) return "a barrier that has not been made";
  return found->second.is_fenced ? nullptr : "a barrier that copies do not know of";
}

const char* BulkCopies::Expect(const void* barrier, int bytes) {
  if (const char* wrong = Check(barrier)) return wrong;
  Barrier& at = barriers_[barrier];
  if (at.is_announced) return "a phase whose bytes are announced twice";
  at.is_announced = true;
  at.bytes_left += bytes;
  EndIfComplete(at);
  return nullptr;
}

const char* BulkCopies::Copy(void* to, const void* from, int bytes, const void* barrier,
                             bool late) {
  if (const char* wrong = Check(barrier)) return wrong;
  const auto is_odd = [](const void* address) {
    return reinterpret_cast<uintptr_t>(address) % 16 != 0;
  };
  if (is_odd(to) || is_odd(from) || bytes <= 0 || bytes % 16 != 0) return "a copy out of line";
  // The hardware may read at once.
  static_cast<void>(*static_cast<const volatile std::byte*>(from));
  const Pending copy{to, from, bytes, barrier};
  if (late) {
    late_.push_back(copy);
  } else {
    Arrive(copy);
  }
  return nullptr;
}

bool BulkCopies::IsOnItsWay(const void* barrier) const {
  return std::ranges::any_of(late_, [&](const Pending& copy) { return copy.barrier == barrier; });
}

bool BulkCopies::ArriveOne(const void* barrier, uint64_t chosen) {
  std::vector<size_t> candidates;
  for (size_t i = 0; i < late_.size(); ++i) {
    if (barrier == nullptr || late_[i].barrier == barrier) candidates.push_back(i);
  }
  if (candidates.empty()) return false;
  const size_t at = candidates[chosen % candidates.size()];
  const Pending copy = late_[at];
  late_.erase(late_.begin() + static_cast<std::ptrdiff_t>(at));
  Arrive(copy);
  return true;
}

void BulkCopies::Arrive(const Pending& copy) {
  std::memcpy(copy.to, copy.from, static_cast<size_t>(copy.bytes));
  Barrier& at = barriers_[copy.barrier];
  at.bytes_left -= copy.bytes;
  EndIfComplete(at);
}

// Bytes may arrive before they are announced.
void BulkCopies::EndIfComplete(Barrier& barrier) {
  if (!barrier.is_announced || barrier.bytes_left != 0) return;
  barrier.is_announced = false;
  ++barrier.phase;
}

bool BulkCopies::HasEnded(const void* barrier, uint32_t parity) const {
  return barriers_.at(barrier).phase % 2 != parity;
}

}  // namespace mlc_native::emulator
