// Divides the short convolutions of a batch among threads by channels; the loop is in
// cpu/short_convolution.inl.
#include <algorithm>

#include "kernels/cpu/table.h"
#include "kernels/row_loop.h"
#include "kernels/short_convolution.h"
#include "support/check.h"

namespace mlc_native::kernels {
namespace {

constexpr int64_t kChannelsPerBlock = 64;

void Check(const ConvolutionArgs& a) {
  MLC_CHECK(a.channels > 0 && a.width > 1 && a.width <= kMaxConvolutionWidth)
      << a.channels << " channels, a width of " << a.width;
  MLC_CHECK(a.ld_inputs >= 3 * a.channels && a.ldo >= a.channels);
  for (int64_t i = 0; i < a.num_sequences; ++i) CheckSequence(a.sequences[i], i);
}

int64_t NumRows(const ConvolutionArgs& a) {
  int64_t rows = 0;
  for (int64_t i = 0; i < a.num_sequences; ++i) rows += a.sequences[i].num_rows;
  return rows;
}

void Count(KernelProfile& profile, const ConvolutionArgs& a) {
  double states = 0;
  for (int64_t i = 0; i < a.num_sequences; ++i) {
    states += static_cast<double>(a.sequences[i].num_writes + (a.sequences[i].state != nullptr));
  }
  const auto rows = static_cast<double>(NumRows(a));
  const auto channels = static_cast<double>(a.channels);
  const auto state = static_cast<double>(ConvolutionStateFloats(a.channels, a.width));
  profile.Count(KernelProfile::IdOf(KernelKind::kConvolution),
                sizeof(float) * (states * state + rows * 4 * channels),
                rows * channels * static_cast<double>(2 * a.width + 2));
}

}  // namespace

void ShortConvolution(const Cpu& cpu, const ConvolutionArgs& args) {
  Check(args);
  if (args.num_sequences == 0) return;
  if (cpu.profile != nullptr) Count(*cpu.profile, args);
  const int64_t blocks = (args.channels + kChannelsPerBlock - 1) / kChannelsPerBlock;
  const int64_t elements = NumRows(args) * kChannelsPerBlock * args.width;
  ForRows(cpu, KernelKind::kConvolution, blocks, elements, [&](int64_t begin, int64_t end) {
    for (int64_t i = 0; i < args.num_sequences; ++i) {
      cpu.isa->short_convolution(args, args.sequences[i], begin * kChannelsPerBlock,
                                 std::min(end * kChannelsPerBlock, args.channels));
    }
  });
}

}  // namespace mlc_native::kernels
