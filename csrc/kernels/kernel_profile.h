// KernelProfile: where the threads of a forward spend their time, kernel by kernel.
//
// Cpu::profile is null in production, which costs a branch per kernel; with a profile, a thread
// reads the clock twice per part of a loop and per row-wise step of a block of rows. Every parallel
// loop of the kernels is a ProfiledLoop. Of the time of all threads in a loop, what they do not
// spend in a KernelSpan is the wait of the loop's kernel: for the slowest thread at the end, until
// workers wake up, and on the other threads while one runs a loop that is too short to be shared.
// Time between loops is what is left of the forward.
//
// A thread writes its own slot only; the thread that calls kernels reads all of them between loops.
// Owned by the model.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "kernels/kernels.h"

namespace mlc_native::kernels {

// Kernels by number: these, and then one for each shape and format of linears.
enum class KernelKind : uint8_t {
  kInputs,  // the inputs of linears converted to what their formats multiply with
  kAttention,
  kChooseKeys,
  kDelta,
  kConvolution,
  kMamba,
  kNormalize,
  kRope,
  kScale,
  kAdd,
  kMoveHeads,
  kActivate,
  kGate,
  kWriteKv,
  kMix,
  kSpread,
  kCut,
  kStreams,
  kCompress,
  kEmbedding,
  kSoftCap,
  kRoute,
  kLinear,
};

class MLC_NATIVE_PRIVATE_API KernelProfile {
 public:
  explicit KernelProfile(int num_threads);

  static int IdOf(KernelKind kind) { return static_cast<int>(kind); }
  int IdOf(const PackedLinear& w);

  // A call of a kernel: what it reads and writes at least, and the operations that it takes (two
  // per multiply-add).
  void Count(int kernel, double bytes, double operations);

  // {"num_threads", "loops_s": wall time of all loops, "kernels": [{"name", "format", "n", "k" (of
  // linears), "calls", "busy_s", "wait_s": sums over threads, "bytes", "operations"}, ...]}
  std::string Json() const;

 private:
  friend class KernelSpan;
  friend class ProfiledLoop;
  using Clock = std::chrono::steady_clock;

  // Linears of more shapes than that share the last number.
  static constexpr int kMaxKernels = 48;
  struct Kernel {
    KernelKind kind = KernelKind::kLinear;
    WeightFormat format = WeightFormat::kFloat32;
    int64_t n = 0;
    int64_t k = 0;
    int64_t calls = 0;
    double bytes = 0;
    double operations = 0;
    Clock::duration wait{};
  };
  struct alignas(64) Slot {
    Clock::duration busy[kMaxKernels] = {};
    Clock::duration all{};
  };

  Clock::duration Busy() const;

  std::vector<Kernel> kernels_;
  std::vector<Slot> slots_;  // [threads]
  Clock::duration loops_{};
};

// Counts a thread's time for a kernel while it lives. `profile` may be null.
class KernelSpan {
 public:
  KernelSpan(KernelProfile* profile, int kernel, int thread)
      : profile_(profile), kernel_(kernel), thread_(thread) {
    if (profile_ != nullptr) start_ = KernelProfile::Clock::now();
  }
  ~KernelSpan() {
    if (profile_ != nullptr) End();
  }
  KernelSpan(const KernelSpan&) = delete;
  KernelSpan& operator=(const KernelSpan&) = delete;

 private:
  MLC_NATIVE_PRIVATE_API void End();

  KernelProfile* const profile_;
  const int kernel_;
  const int thread_;
  KernelProfile::Clock::time_point start_;
};

// Counts the waits of one parallel loop for its kernel while it lives. `profile` may be null.
class ProfiledLoop {
 public:
  ProfiledLoop(KernelProfile* profile, int kernel) : profile_(profile), kernel_(kernel) {
    if (profile_ != nullptr) Begin();
  }
  ~ProfiledLoop() {
    if (profile_ != nullptr) End();
  }
  ProfiledLoop(const ProfiledLoop&) = delete;
  ProfiledLoop& operator=(const ProfiledLoop&) = delete;

 private:
  MLC_NATIVE_PRIVATE_API void Begin();
  MLC_NATIVE_PRIVATE_API void End();

  KernelProfile* const profile_;
  const int kernel_;
  KernelProfile::Clock::time_point start_;
  KernelProfile::Clock::duration busy_before_{};
};

// Runs a loop that consists of one kernel.
template <typename F>
void RunLoop(const Cpu& cpu, int kernel, int64_t n, F fn, int64_t grain = 1) {
  const ProfiledLoop loop(cpu.profile, kernel);
  const auto run = [&](int64_t begin, int64_t end, int thread) {
    const KernelSpan span(cpu.profile, kernel, thread);
    fn(begin, end, thread);
  };
  cpu.pool->ParallelFor(n, run, grain);
}

}  // namespace mlc_native::kernels
