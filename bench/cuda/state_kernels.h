// The kernels of layers with states at the shapes of real models: a step of decode, where each row
// reads a state and writes one, and a prompt. For kernels.cc.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "kernels/cuda/delta_rule.h"
#include "kernels/cuda/mamba.h"
#include "kernels/cuda/short_convolution.h"
#include "timing.h"

namespace mlc_native::kernels::cuda {

// Rows that are sequences of their own, or one prompt, and the states that they read and write.
class StateRows {
 public:
  StateRows(int64_t rows, bool is_prompt, int64_t state_floats)
      : rows_(rows),
        num_slices_(is_prompt ? 1 : rows),
        slot_floats_((state_floats + 63) / 64 * 64),
        groups_(std::clamp<int64_t>(kRotated / GroupBytes(), 1, 16)),
        states_(groups_ * GroupBytes()) {
    std::vector<DeltaSlice> slices;
    std::vector<DeltaWrite> writes;
    std::vector<int32_t> of_row;
    const auto of_slice = static_cast<int32_t>(rows / num_slices_);
    for (int32_t i = 0; i < static_cast<int32_t>(num_slices_); ++i) {
      slices.push_back({.row_begin = i * of_slice,
                        .num_rows = of_slice,
                        .slot = is_prompt ? -1 : 2 * i,
                        .first_write = i,
                        .num_writes = 1});
      writes.push_back({.num_rows = of_slice, .slot = 2 * i + 1});
      of_row.insert(of_row.end(), static_cast<size_t>(of_slice), i);
    }
    slices_ = Buffer(slices);
    writes_ = Buffer(writes);
    of_row_ = Buffer(of_row);
  }

  // Sets what the arguments of these kernels have in common. Other states for each call.
  template <typename Args>
  Args With(Args args, int call) const {
    args.m = rows_;
    args.slices = slices_.data<DeltaSlice>();
    if constexpr (requires { args.num_slices; }) args.num_slices = num_slices_;
    args.slice_of_row = of_row_.data<int32_t>();
    args.writes = writes_.data<DeltaWrite>();
    args.states = states_.data<float>(call % groups_ * GroupBytes());
    args.slot_floats = slot_floats_;
    return args;
  }
  // What a call reads and writes of states: a prompt writes one.
  double bytes() const {
    const int64_t read = num_slices_ == rows_ ? rows_ : 0;
    return 4.0 * static_cast<double>((read + num_slices_) * slot_floats_);
  }

 private:
  static constexpr int64_t kRotated = 256 << 20;  // more than any cache
  int64_t GroupBytes() const { return 2 * num_slices_ * slot_floats_ * 4; }

  const int64_t rows_, num_slices_, slot_floats_, groups_;
  Buffer states_;
  Buffer slices_{0}, writes_{0}, of_row_{0};
};

inline void MambaLayers(Bench& bench, const char* name, int64_t heads, int64_t rows,
                        bool is_prompt) {
  const std::string full =
      std::string("mamba ") + name + (is_prompt ? " length=" : " rows=") + std::to_string(rows);
  if (!bench.MayWant(full)) return;
  const DeltaShape shape{.key_heads = 1,
                         .value_heads = bench.Size(heads, 2),
                         .key_dim = bench.Size(128, 8),
                         .value_dim = bench.Size(64, 8),
                         .conv_width = 4};
  rows = bench.Size(rows, 2);
  const StateRows of(rows, is_prompt, DeltaStateFloats(shape));
  const int64_t ld = (shape.values() + shape.channels() + shape.value_heads + 7) / 8 * 8;
  const Buffer inputs(rows * ld * 2), out(rows * shape.values() * 2);
  const Buffer weights(4 * (shape.conv_width + 2) * shape.channels());
  const Buffer workspace(4 * MambaWorkspaceFloats(shape, rows));
  const auto* const floats = weights.data<float>();
  const double moved = of.bytes() + 2.0 * static_cast<double>(rows * (ld + shape.values()));
  bench.Run(full, {.bytes = moved}, 10, [&](int call, Stream stream) {
    Mamba(of.With(MambaArgs{.shape = shape,
                            .inputs = inputs.data(),
                            .ld_inputs = ld,
                            .convolution = floats,
                            .conv_bias = floats,
                            .decay = floats,
                            .step_bias = floats,
                            .skip = floats,
                            .norm = floats,
                            .out = out.data(),
                            .workspace = workspace.data<float>()},
                  call),
          stream);
  });
}

// Of Kimi Linear each channel of the keys has a decay of its own.
inline void DeltaLayers(Bench& bench, bool is_kimi, int64_t rows, bool is_prompt) {
  const std::string full = std::string("delta_rule ") + (is_kimi ? "kimi-linear" : "qwen3-next") +
                           (is_prompt ? " length=" : " rows=") + std::to_string(rows);
  if (!bench.MayWant(full)) return;
  const DeltaShape shape{.key_heads = is_kimi ? bench.Size(32, 2) : bench.Size(16, 1),
                         .value_heads = bench.Size(32, 2),
                         .key_dim = bench.Size(128, 8),
                         .value_dim = bench.Size(128, 8),
                         .conv_width = 4,
                         .decays_channels = is_kimi};
  rows = bench.Size(rows, 2);
  const StateRows of(rows, is_prompt, DeltaStateFloats(shape));
  const int64_t ld = shape.channels() + (is_kimi ? 2 * shape.key_dim : shape.values());
  const Buffer inputs(rows * ld * 2), out(rows * shape.values() * 2);
  const Buffer gates(rows * shape.gates() * 4), out_gates(rows * ld * 2);
  const Buffer decays(rows * shape.decays() * 4);
  const Buffer weights(4 * shape.conv_width * shape.channels());
  const Buffer workspace(4 * DeltaWorkspaceFloats(shape, rows));
  const auto* const floats = weights.data<float>();
  const int64_t width = shape.channels() + 2 * shape.values() + (is_kimi ? 2 * shape.decays() : 0);
  const double moved = of.bytes() + 2.0 * static_cast<double>(rows * width);
  bench.Run(full, {.bytes = moved}, 10, [&](int call, Stream stream) {
    DeltaRule(of.With(DeltaRuleArgs{.shape = shape,
                                    .inputs = inputs.data(),
                                    .ld_inputs = ld,
                                    .out_gates = out_gates.data(),
                                    .ld_out_gates = shape.decays_channels ? shape.values() : ld,
                                    .sigmoid_out_gates = shape.decays_channels,
                                    .gates = gates.data<float>(),
                                    .channel_decays =
                                        shape.decays_channels ? decays.data<float>() : nullptr,
                                    .convolution = floats,
                                    .decay = floats,
                                    .decay_bias = floats,
                                    .norm = floats,
                                    .out = out.data(),
                                    .workspace = workspace.data<float>()},
                      call),
              stream);
  });
}

inline void Convolutions(Bench& bench, int64_t rows, bool is_prompt) {
  const std::string full = std::string("short_convolution lfm2-1.2b") +
                           (is_prompt ? " length=" : " rows=") + std::to_string(rows);
  if (!bench.MayWant(full)) return;
  const int64_t channels = bench.Size(2048, 16), width = 3;
  rows = bench.Size(rows, 2);
  const StateRows of(rows, is_prompt, ConvolutionStateFloats(channels, width));
  const Buffer inputs(rows * 3 * channels * 2), out(rows * channels * 2);
  const Buffer weights(4 * width * channels);
  const double moved = of.bytes() + 8.0 * static_cast<double>(rows * channels);
  bench.Run(full, {.bytes = moved}, 10, [&](int call, Stream stream) {
    ShortConvolution(of.With(ShortConvolutionArgs{.channels = channels,
                                                  .width = width,
                                                  .inputs = inputs.data(),
                                                  .weights = weights.data<float>(),
                                                  .out = out.data()},
                             call),
                     stream);
  });
}

inline void LayersWithStates(Bench& bench) {
  for (const int64_t rows : {1, 64}) {
    Convolutions(bench, rows, false);
    MambaLayers(bench, "granite-4-h-tiny", 48, rows, false);
    MambaLayers(bench, "granite-4-h-small", 128, rows, false);
    for (const bool is_kimi : {false, true}) DeltaLayers(bench, is_kimi, rows, false);
  }
  constexpr int64_t kPrompt = 2048;
  Convolutions(bench, kPrompt, true);
  MambaLayers(bench, "granite-4-h-small", 128, kPrompt, true);
  for (const bool is_kimi : {false, true}) DeltaLayers(bench, is_kimi, kPrompt, true);
}

}  // namespace mlc_native::kernels::cuda
