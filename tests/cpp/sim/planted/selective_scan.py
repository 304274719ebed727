"""Bugs in Mamba-1 on the CPU, which its own tests find."""

from __future__ import annotations

from planted.bug import Bug

SHARES = "kernels/scan.cc"
LOOPS = "kernels/cpu/selective_scan.inl"


def _bug(name: str, file: str, old: str, new: str) -> Bug:
    return Bug(f"Mamba-1 on the CPU: {name}", file, old, new, "kernels_test *ScanTest*")


BUGS = [
    _bug(
        "all blocks of channels share the state of the first one",
        SHARES,
        ".at = ScanBlocksAt(a.shape) + block * floats",
        ".at = ScanBlocksAt(a.shape)",
    ),
    _bug(
        "only the last state has what the convolution reads",
        SHARES,
        "    WriteChannels(a.convolved_inputs(), s, write, first, count);\n",
        "    if (&write == &s.writes[s.num_writes - 1]) {\n"
        "      WriteChannels(a.convolved_inputs(), s, write, first, count);\n    }\n",
    ),
    _bug(
        "a state may be written where it is read",
        SHARES,
        "  for (int64_t i = 0; i < a.num_sequences; ++i) CheckSequence(a.sequences[i], i);\n",
        "",
    ),
    _bug(
        "keys are those of the slice's first rows",
        LOOPS,
        "a.keys + row * a.ld_keys;",
        "a.keys + (row - chunk.row_begin) * a.ld_keys;",
    ),
    _bug(
        "an odd element of a state adds nothing",
        LOOPS,
        "  if (i < state_dim) even = step(i, even);\n",
        "",
    ),
    _bug(
        "a key is written without its step",
        LOOPS,
        ".write = step * u};",
        ".write = u};",
    ),
    _bug(
        "the input is not added to what comes out",
        LOOPS,
        "Fma(skip, u, sum) * TimesSigmoid(gate, gate)",
        "sum * TimesSigmoid(gate, gate)",
    ),
    _bug(
        "rows behind the first of a chunk go on from the chunk's state",
        LOOPS,
        "      from = update.to;\n",
        "",
    ),
    _bug(
        "gates are what the convolution reads",
        LOOPS,
        "columns.Load(a.inputs + row * a.ld_inputs + a.shape.channels);",
        "columns.Load(a.inputs + row * a.ld_inputs);",
    ),
]
