"""Bugs in CUDA's kernels of short convolutions and Mamba-2, and in what they share, which their own
tests find on the emulator."""

from __future__ import annotations

from planted.bug import Bug

STATES = "kernels/cuda/recurrent.cuh"


def _convolution(
    name: str, old: str, new: str, file: str = "kernels/cuda/short_convolution.cu"
) -> Bug:
    test = "cuda_test ShortConvolutionTest.*"
    return Bug(f"short convolutions in CUDA: {name}", file, old, new, test)


def _mamba(name: str, old: str, new: str, file: str = "kernels/cuda/mamba.cu") -> Bug:
    return Bug(f"Mamba-2 in CUDA: {name}", file, old, new, "cuda_test MambaTest.*")


CONVOLUTION_BUGS = [
    _convolution(
        "the kernel does not wait for what it reads",
        "a.channels, a.width, channel);\n  WaitForPrevious();\n",
        "a.channels, a.width, channel);\n",
    ),
    _convolution(
        "threads behind the last channel go on",
        "  if (channel >= a.channels) return;\n",
        "",
    ),
    _convolution(
        "rows that are not used are computed",
        "  if (index < 0) return;\n",
        "",
    ),
    _convolution(
        "the product has the gate in place of x",
        "LoadFew(from + 2 * a.channels)",
        "LoadFew(from + a.channels)",
    ),
    _convolution(
        "each block has the first channels",
        "static_cast<int64_t>(blockIdx.y) * kConvolutionThreads + threadIdx.x",
        "static_cast<int64_t>(threadIdx.x)",
    ),
    _convolution(
        "rows before are those of the batch",
        "return product_of(slice.row_begin + before);",
        "return product_of(before);",
    ),
    _convolution(
        "the weights begin with the oldest row",
        "LoadFew(from + max(width_ - 1 - back, 0) * channels)",
        "LoadFew(from + min(back, width_ - 1) * channels)",
        STATES,
    ),
    _convolution(
        "all widths are LFM2's",
        "if (back >= width_) continue;",
        "if (back >= 3) continue;",
        STATES,
    ),
    _convolution(
        "a sequence begins with another one's rows",
        "x[back][i] = slice.slot < 0 ? 0.0f : x[back][i];",
        "x[back][i] = x[back][i];",
        STATES,
    ),
    _convolution(
        "a slice begins with the newest row of the state alone",
        "const int64_t of_state = width - 1 + row - back;",
        "const int64_t of_state = width - 2;",
        STATES,
    ),
    _convolution(
        "the state is that of the first slot",
        "const float* const from = state + max(slice.slot, 0) * slot_floats;",
        "const float* const from = state;",
        STATES,
    ),
    _convolution(
        "the second row of a slice reads no state",
        "const bool reads_state = row < width - 1;",
        "const bool reads_state = row < 1;",
        STATES,
    ),
    _convolution(
        "the state goes where it came from",
        "float* const to = state + write.slot * slot_floats;",
        "float* const to = state + max(slice.slot, 0) * slot_floats;",
        STATES,
    ),
    _convolution(
        "a state is left one row early",
        "if (write.num_rows != row + 1) continue;",
        "if (write.num_rows != min(row + 2, int64_t{slice.num_rows})) continue;",
        STATES,
    ),
    _convolution(
        "the first of several states is left alone",
        "w < slice.num_writes; ++w",
        "w < min(slice.num_writes, 1); ++w",
        STATES,
    ),
    _convolution(
        "the rows of a state are in the wrong order",
        "StoreFew(to + (width - 2 - back) * channels, x[back]);",
        "StoreFew(to + back * channels, x[back]);",
        STATES,
    ),
]

MAMBA_BUGS = [
    _mamba(
        "the convolutions do not wait for what they read",
        "bias = LoadFew(a.conv_bias + channel);\n  WaitForPrevious();\n",
        "bias = LoadFew(a.conv_bias + channel);\n",
    ),
    _mamba(
        "the recurrence does not wait for what it reads",
        "  __shared__ MambaRows<kKeys> copied[2];\n  WaitForPrevious();\n",
        "  __shared__ MambaRows<kKeys> copied[2];\n",
    ),
    _mamba(
        "the norm does not wait for what it reads",
        ": a.norm + first, size);\n  WaitForPrevious();\n",
        ": a.norm + first, size);\n",
    ),
    _mamba(
        "rows are read before all are there",
        "    __syncthreads();  // the rows are there for all threads\n",
        "",
    ),
    _mamba(
        "rows are overwritten while others read them",
        "    __syncthreads();  // they are not read any more\n",
        "",
    ),
    _mamba(
        "a thread reads its own copies before they are there",
        "    WaitForCopies<1>();\n",
        "",
    ),
    _mamba(
        "the next rows go where the present ones are read",
        "&copied[begin / kMambaRows % 2 ^ 1]",
        "&copied[begin / kMambaRows % 2]",
    ),
    _mamba(
        "the steps of all heads are the first one's",
        "steps_ = args.steps + (first_row * heads + part.head) * 2;",
        "steps_ = args.steps + first_row * heads * 2;",
    ),
    _mamba(
        "the longest step limits nothing",
        "a.longest_step);\n",
        "fmaxf(a.longest_step, 9.0f));\n",
    ),
    _mamba("the shortest step limits nothing", ", a.shortest_step)", ", 0.0f)"),
    _mamba("steps have no bias", " + a.step_bias[head]", ""),
    _mamba(
        "the convolution has no bias",
        "if (a.conv_bias != nullptr && channel < channels) bias = LoadFew(a.conv_bias + channel);",
        "",
    ),
    _mamba(
        "heads share the wrong keys",
        "part.head / (heads / static_cast<int>(shape.key_heads))",
        "part.head % static_cast<int>(shape.key_heads)",
    ),
    _mamba(
        "queries are keys",
        "IsQuery(piece) ? shape.keys() : 0",
        "0",
    ),
    _mamba(
        "keys of the next group are read behind a group's end",
        "from, Key(piece) < key_dim_)",
        "from, true)",
    ),
    _mamba(
        "each block has the first columns",
        "static_cast<int>(part % blocks) * kMambaColumns",
        "0",
    ),
    _mamba(
        "a sequence begins with another one's state",
        "if (is_used && slice.slot >= 0) state.Load(a.states + slice.slot * a.slot_floats + at);",
        "if (is_used) state.Load(a.states + max(slice.slot, 0) * a.slot_floats + at);",
    ),
    _mamba(
        "the state goes where it came from",
        "state.Store(a.states + write.slot * a.slot_floats + at)",
        "state.Store(a.states + max(slice.slot, 0) * a.slot_floats + at)",
    ),
    _mamba(
        "the first of several states is written alone",
        "      if (row + 1 < slice.num_rows) write = *++next;\n",
        "",
    ),
    _mamba(
        "a state is written one row early",
        "if (write.num_rows != row + 1) continue;",
        "if (write.num_rows != min(row + 2, slice.num_rows)) continue;",
    ),
    _mamba(
        "the state does not decay",
        "state.Update(rows.steps[r][0], ",
        "state.Update(1.0f, ",
    ),
    _mamba(
        "the input is not added to what comes out",
        "*out = fmaf(skip, v, product);",
        "*out = product;",
    ),
    _mamba(
        "columns behind the last one are written",
        "if (is_used && lane == 0) *out",
        "if (lane == 0) *out",
    ),
    _mamba(
        "all groups share a weight of the norm",
        "nullptr : a.norm + first, size)",
        "nullptr : a.norm, size)",
    ),
    _mamba(
        "the norm is of all groups",
        "x.InverseNorm(size, a.norm_eps, sums)",
        "x.InverseNorm(shape.values(), a.norm_eps, sums)",
    ),
    _mamba(
        "without a norm, there is no gate either",
        "if constexpr (kEnd != MambaEnd::kNorm) {",
        "if constexpr (kEnd != MambaEnd::kNorm && kEnd != MambaEnd::kGate) {",
    ),
    _mamba(
        "without a norm, the rows end as sums of squares",
        "return LaunchMambaFinish<T, MambaEnd::kGate>(kernel, stream);",
        "return LaunchMambaFinish<T, MambaEnd::kSquareSums>(kernel, stream);",
    ),
    _mamba(
        "each of several devices normalizes its own elements",
        "a.square_sums[row] / static_cast<float>(a.whole_size)",
        "a.square_sums[row] / static_cast<float>(size)",
    ),
    _mamba(
        "several devices normalize what has no gate",
        "if (kEnd == MambaEnd::kSquareSums && is_used) {",
        "if (kEnd == MambaEnd::kAll && is_used) {",
    ),
    _mamba(
        "what comes out is gated behind the norm",
        "x.values[i][j] *= gates.values[i][j] * Sigmoid(gates.values[i][j]);",
        "x.values[i][j] *= gates.values[i][j];",
    ),
    _mamba(
        "norms of rows with several vectors per thread leave out some",
        "  if (vectors <= 2 * kNormThreads) return launch(std::integral_constant<int, 2>());\n",
        "  if (vectors > 0) return launch(std::integral_constant<int, 2>());\n",
    ),
    _mamba(
        "the state of the convolution is the one of the first slice",
        "const float* const from = state + max(slice.slot, 0) * slot_floats;",
        "const float* const from = state;",
        STATES,
    ),
]

BUGS = CONVOLUTION_BUGS + MAMBA_BUGS
