"""Bugs in the kernels of linear attention, and of Mamba-2 on the CPU, which their own tests find
(CUDA's on the emulator)."""

from __future__ import annotations

from planted.bug import Bug

LOOPS = "kernels/cpu/delta_rule.inl"
SHARES = "kernels/delta.cc"
HEADS = "kernels/delta_heads.h"
MAMBA = "kernels/state_space.cc"
MAMBA_LOOPS = "kernels/cpu/mamba.inl"
CUDA = "kernels/cuda/delta_rule.cu"
CUDA_STATES = "kernels/cuda/recurrent.cuh"


def _on_cpu(name: str, file: str, old: str, new: str) -> Bug:
    return Bug(f"delta rule on the CPU: {name}", file, old, new, "kernels_test *DeltaRule*")


def _mamba(name: str, file: str, old: str, new: str) -> Bug:
    return Bug(f"Mamba-2 on the CPU: {name}", file, old, new, "kernels_test *MambaTest*")


def _bug(name: str, old: str, new: str, file: str = CUDA) -> Bug:
    return Bug(f"delta rule in CUDA: {name}", file, old, new, "cuda_test DeltaRuleTest.*")


CPU_BUGS = [
    _on_cpu(
        "a chunk begins with the state of the slice",
        HEADS,
        "    chunk.from = chunk.to[chunk.num_rows - 1];\n",
        "    if (s.state == nullptr) chunk.from = chunk.to[chunk.num_rows - 1];\n",
    ),
    _on_cpu(
        "a first state is what was there before",
        HEADS,
        "    std::fill_n(first, of.floats, 0.0f);\n",
        "",
    ),
    _on_cpu(
        "a state is left one row late",
        HEADS,
        "if (write->num_rows == row + i) ++write;",
        "if (write->num_rows == row + i - 1) ++write;",
    ),
    _on_cpu(
        "inputs in front of a short slice are lost",
        HEADS,
        "row < 0 ? RowBefore(c, s, -row) :",
        "row < 0 ? nullptr :",
    ),
    _on_cpu(
        "the first head of a group alone keeps its values",
        SHARES,
        "    }\n    WriteChannels(convolution, s, write, 2 * shape.keys()",
        "    }\n    if (head % group == 0) WriteChannels(convolution, s, write, 2 * shape.keys()",
    ),
    _on_cpu(
        "a head that two threads share is left out",
        HEADS,
        "if (middle < begin || middle >= end) continue;",
        "if (done < begin || done + sequence.num_rows > end) continue;",
    ),
    _on_cpu(
        "the convolution reads rows of the sequence before",
        LOOPS,
        "      if (from >= 0) {",
        "      if (s.row_begin + from >= 0) {",
    ),
    _on_cpu(
        "the next key meets the state before its update",
        LOOPS,
        "next_sums[i] = Fma(state, Vec::Set(u.next_k[row]), next_sums[i]);",
        "next_sums[i] = Fma(Vec::Load(from), Vec::Set(u.next_k[row]), next_sums[i]);",
    ),
    _on_cpu(
        "the last key of an odd number is left out",
        LOOPS,
        "  if (row < key_dim) step(row, out.even, recalled.even);\n",
        "",
    ),
    _on_cpu(
        "the state does not decay before it is compared",
        LOOPS,
        "recalled.Total(j) : decay * recalled.Total(j);",
        "recalled.Total(j) : recalled.Total(j);",
    ),
    _on_cpu(
        "heads of values share the wrong keys",
        LOOPS,
        "chunk.value_head / (shape.value_heads / shape.key_heads) * shape.key_dim",
        "chunk.value_head % shape.key_heads * shape.key_dim",
    ),
]

MAMBA_BUGS = [
    _mamba(
        "a state may be written where it is read",
        MAMBA,
        "  for (int64_t i = 0; i < a.num_sequences; ++i) CheckSequence(a.sequences[i], i);\n",
        "",
    ),
    _mamba(
        "a first state is what was there before",
        HEADS,
        "    std::fill_n(first, of.floats, 0.0f);\n",
        "",
    ),
    _mamba(
        "rows of a slice that two threads share are left out",
        HEADS,
        "      if (from < to) fn(s, from, to);\n",
        "      if (from == 0 && to == s.num_rows) fn(s, from, to);\n",
    ),
    _mamba(
        "the first head of a group alone keeps its values",
        MAMBA,
        "    WriteChannels(convolution, s, write, head * shape.value_dim, shape.value_dim);\n"
        "    if (head % heads != 0) continue;\n",
        "    if (head % heads != 0) continue;\n"
        "    WriteChannels(convolution, s, write, head * shape.value_dim, shape.value_dim);\n",
    ),
    _mamba(
        "each group keeps what the first one's keys read",
        MAMBA,
        "shape.values() + head / heads * shape.key_dim;",
        "shape.values();",
    ),
    _mamba(
        "the longest step limits nothing",
        MAMBA,
        "a.shortest_step, a.longest_step);",
        "a.shortest_step, std::max(a.longest_step, 9.0f));",
    ),
    _mamba(
        "the shortest step limits nothing",
        MAMBA,
        "a.shortest_step, a.longest_step);",
        "0.0f, a.longest_step);",
    ),
    _mamba(
        "keys are those of the sequence's first rows",
        MAMBA_LOOPS,
        "(chunk.sequence->row_begin + chunk.row_begin) * 2 * shape.keys()",
        "chunk.sequence->row_begin * 2 * shape.keys()",
    ),
    _mamba(
        "heads share the wrong keys",
        MAMBA_LOOPS,
        "chunk.value_head / (shape.value_heads / shape.key_heads)",
        "chunk.value_head % shape.key_heads",
    ),
    _mamba(
        "the second vector of a pair is written without its step",
        MAMBA_LOOPS,
        "Vec::Load(v + Vec::kLanes) * step}",
        "Vec::Load(v + Vec::kLanes)}",
    ),
    _mamba(
        "the input is not added to what comes out",
        MAMBA_LOOPS,
        "store(out, Fma(skip, load(v), load(x))",
        "store(out, load(x)",
    ),
    _mamba(
        "all groups share a weight of the norm",
        MAMBA_LOOPS,
        "a.norm + group * size",
        "a.norm",
    ),
    _mamba(
        "the convolution has no bias",
        LOOPS,
        "Vec sum = c.bias == nullptr ? Vec::Zero() : load(c.bias + begin);",
        "Vec sum = Vec::Zero();",
    ),
]

CUDA_BUGS = [
    _bug(
        "rows are overwritten while others read them",
        "    __syncthreads();  // the rows before are not read any more\n",
        "",
    ),
    _bug(
        "rows are read before all are there",
        "    __syncthreads();\n    for (int32_t r = 0; r < rows; ++r) {",
        "    for (int32_t r = 0; r < rows; ++r) {",
    ),
    _bug(
        "the state goes where it came from",
        "state.Store(a.states + write->slot * a.slot_floats + at)",
        "state.Store(a.states + max(slice.slot, 0) * a.slot_floats + at)",
    ),
    _bug(
        "inputs go where they came from",
        "float* const to = a.states + write.slot * a.slot_floats;",
        "float* const to = a.states + max(slice.slot, 0) * a.slot_floats;",
    ),
    _bug(
        "inputs are kept one row late",
        "write.num_rows - (a.shape.conv_width - 1) + i",
        "write.num_rows - a.shape.conv_width + i",
    ),
    _bug(
        "a sequence begins with another one's inputs",
        "  if (slice.slot < 0) return 0.0f;\n  return a.states[slice.slot",
        "  return a.states[max(slice.slot, 0)",
    ),
    _bug(
        "a sequence begins with another one's state",
        "if (is_used && slice.slot >= 0) state.Load(a.states + slice.slot * a.slot_floats + at);",
        "if (is_used) state.Load(a.states + max(slice.slot, 0) * a.slot_floats + at);",
    ),
    _bug(
        "the first of several states is written alone",
        "      if (begin + r + 1 < slice.num_rows) ++write;\n",
        "",
    ),
    _bug(
        "a state is written one row early",
        "if (write->num_rows != begin + r + 1) continue;",
        "if (write->num_rows != min(begin + r + 2, slice.num_rows)) continue;",
    ),
    _bug(
        "heads of values share the wrong keys",
        "head / (shape.value_heads / shape.key_heads)",
        "head % shape.key_heads",
    ),
    _bug(
        "each block has the first columns",
        "blockIdx.y % blocks * kColumns + thread / kLanesPerColumn",
        "thread / kLanesPerColumn",
    ),
    _bug(
        "the state does not decay before it is compared",
        "(v - decay * recalled) * beta",
        "(v - recalled) * beta",
    ),
    _bug(
        "the convolution reads rows of the sequence before",
        "  if (row >= 0) {\n    const int64_t at",
        "  if (slice.row_begin + row >= 0) {\n    const int64_t at",
    ),
    _bug(
        "keys of the next head are read behind a head's end",
        "keys[r][key] = key < shape.key_dim ? args.k[from] : 0.0f;",
        "keys[r][key] = args.k[from];",
    ),
    _bug(
        "the next column is overwritten behind a column's end",
        "if (Key(run) < dim_) StoreFew",
        "StoreFew",
        CUDA_STATES,
    ),
    _bug(
        "the sums of a column are those of one lane",
        "return ReduceWarp<kLanesPerColumn>((sums[0] + sums[1]) + (sums[2] + sums[3]), Plus());",
        "return 4.0f * ((sums[0] + sums[1]) + (sums[2] + sums[3]));",
        CUDA_STATES,
    ),
    _bug(
        "keys are scaled like queries",
        "if (!is_value && !is_key) factor /= ",
        "if (!is_value) factor /= ",
    ),
    _bug("the decay has no bias", " + a.decay_bias[head * count + i]", ""),
    _bug(
        "the recurrence does not wait for what it reads",
        "float decays[kOfChannels ? kRowsAtOnce : 1][kKeys];\n  WaitForPrevious();\n",
        "float decays[kOfChannels ? kRowsAtOnce : 1][kKeys];\n",
    ),
    _bug(
        "the norm does not wait for what it reads",
        "    DeltaFinishKernel(const __grid_constant__ DeltaKernelArgs args) {\n"
        "  WaitForPrevious();\n",
        "    DeltaFinishKernel(const __grid_constant__ DeltaKernelArgs args) {\n",
    ),
]

BUGS = CPU_BUGS + MAMBA_BUGS + CUDA_BUGS
