"""Bugs of the CUDA kernels of linear attention, which the emulator's tests find."""

from __future__ import annotations

from planted.bug import Bug

FILE = "kernels/cuda/delta_rule.cu"
TEST = "cuda_test DeltaRuleTest.*"


def _bug(name: str, old: str, new: str) -> Bug:
    return Bug(f"delta rule: {name}", FILE, old, new, TEST)


BUGS = [
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
        "state.Store(a.states + slice.slot * a.slot_floats + at)",
    ),
    _bug(
        "inputs go where they came from",
        "float* const to = a.states + write.slot * a.slot_floats;",
        "float* const to = a.states + slice.slot * a.slot_floats;",
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
        "keys of a head's end are not left out",
        "      if (key < dim_) f(run, key);",
        "      f(run, key);",
    ),
    _bug(
        "the sums of a column are those of one lane",
        "return ReduceWarp<kLanesPerColumn>((sums[0] + sums[1]) + (sums[2] + sums[3]), Plus());",
        "return 4.0f * ((sums[0] + sums[1]) + (sums[2] + sums[3]));",
    ),
    _bug(
        "keys are scaled like queries",
        "if (!is_value && !is_key) factor /= ",
        "if (!is_value) factor /= ",
    ),
    _bug("the decay has no bias", " + a.decay_bias[head]", ""),
    _bug(
        "rows in no slice are computed",
        "  if (index < 0) return;\n  const DeltaSlice slice = a.slices[index];\n"
        "  if (row == slice.row_begin)",
        "  const DeltaSlice slice = a.slices[max(index, 0)];\n  if (row == slice.row_begin)",
    ),
    _bug(
        "the recurrence does not wait for what it reads",
        "  alignas(16) __shared__ float keys[kRowsAtOnce][kKeys];\n  WaitForPrevious();\n",
        "  alignas(16) __shared__ float keys[kRowsAtOnce][kKeys];\n",
    ),
    _bug(
        "the norm does not wait for what it reads",
        "    DeltaFinishKernel(const __grid_constant__ DeltaKernelArgs args) {\n"
        "  WaitForPrevious();\n",
        "    DeltaFinishKernel(const __grid_constant__ DeltaKernelArgs args) {\n",
    ),
]
