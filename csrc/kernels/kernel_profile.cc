#include "kernels/kernel_profile.h"

#include <algorithm>
#include <string_view>

#include "support/json.h"

namespace mlc_native::kernels {
namespace {

constexpr int kNumFixed = static_cast<int>(KernelKind::kLinear);
constexpr std::string_view kKernelNames[] = {"inputs of linears",
                                             "attention",
                                             "choose keys",
                                             "delta rule",
                                             "short convolution",
                                             "mamba",
                                             "normalize",
                                             "rope",
                                             "scale",
                                             "add",
                                             "move heads",
                                             "activate",
                                             "gate",
                                             "write K and V",
                                             "mix",
                                             "spread",
                                             "cut gates",
                                             "residual streams",
                                             "compress windows",
                                             "embedding",
                                             "cap logits",
                                             "choose experts",
                                             "linear"};
static_assert(std::size(kKernelNames) == kNumFixed + 1);

double Seconds(std::chrono::steady_clock::duration time) {
  return std::chrono::duration<double>(time).count();
}

}  // namespace

KernelProfile::KernelProfile(int num_threads)
    : kernels_(kNumFixed), slots_(static_cast<size_t>(num_threads)) {
  for (int i = 0; i < kNumFixed; ++i) {
    kernels_[static_cast<size_t>(i)].kind = static_cast<KernelKind>(i);
  }
}

int KernelProfile::IdOf(const PackedLinear& w) {
  const auto same = [&](const Kernel& kernel) {
    return kernel.kind == KernelKind::kLinear && kernel.format == w.format && kernel.n == w.n &&
           kernel.k == w.k;
  };
  const auto found = std::ranges::find_if(kernels_, same);
  if (found != kernels_.end()) return static_cast<int>(found - kernels_.begin());
  if (std::ssize(kernels_) == kMaxKernels) return kMaxKernels - 1;
  kernels_.push_back({.format = w.format, .n = w.n, .k = w.k});
  return static_cast<int>(std::ssize(kernels_)) - 1;
}

void KernelProfile::Count(int kernel, double bytes, double operations) {
  Kernel& counted = kernels_[static_cast<size_t>(kernel)];
  ++counted.calls;
  counted.bytes += bytes;
  counted.operations += operations;
}

std::string KernelProfile::Json() const {
  JsonWriter json;
  json.BeginObject().Add("num_threads", std::ssize(slots_)).Add("loops_s", Seconds(loops_));
  json.Name("kernels").BeginArray();
  for (size_t i = 0; i < kernels_.size(); ++i) {
    const Kernel& kernel = kernels_[i];
    if (kernel.calls == 0) continue;
    Clock::duration busy{};
    for (const Slot& slot : slots_) busy += slot.busy[i];
    json.BeginObject().Add("name", kKernelNames[static_cast<size_t>(kernel.kind)]);
    if (kernel.kind == KernelKind::kLinear) {
      json.Add("format", FormatName(kernel.format)).Add("n", kernel.n).Add("k", kernel.k);
    }
    json.Add("calls", kernel.calls).Add("busy_s", Seconds(busy));
    json.Add("wait_s", Seconds(kernel.wait));
    json.Add("bytes", kernel.bytes).Add("operations", kernel.operations);
    json.EndObject();
  }
  return json.EndArray().EndObject().Take();
}

KernelProfile::Clock::duration KernelProfile::Busy() const {
  Clock::duration sum{};
  for (const Slot& slot : slots_) sum += slot.all;
  return sum;
}

void KernelSpan::End() {
  const auto time = KernelProfile::Clock::now() - start_;
  KernelProfile::Slot& slot = profile_->slots_[static_cast<size_t>(thread_)];
  slot.busy[kernel_] += time;
  slot.all += time;
}

void ProfiledLoop::Begin() {
  busy_before_ = profile_->Busy();
  start_ = KernelProfile::Clock::now();
}

void ProfiledLoop::End() {
  const auto wall = KernelProfile::Clock::now() - start_;
  profile_->loops_ += wall;
  const auto busy = profile_->Busy() - busy_before_;
  const auto all = wall * std::ssize(profile_->slots_);
  profile_->kernels_[static_cast<size_t>(kernel_)].wait += all - busy;
}

}  // namespace mlc_native::kernels
