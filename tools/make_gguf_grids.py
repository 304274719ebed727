"""Writes the grids of GGUF's types IQ1, IQ2 and IQ3 to csrc/weights/gguf_grids.inc.

    python tools/make_gguf_grids.py

A grid lists the patterns of 8 (IQ3: 4) neighbouring weights that the format knows. They are part of
the format, and come from the package gguf. An entry has its numbers, which are indices of the few
that there are, in 2 (IQ3: 3) bits each, the first one lowest.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
from gguf import quants

OUT = Path(__file__).resolve().parents[1] / "csrc/weights/gguf_grids.inc"
KINDS = (quants.IQ2_XXS, quants.IQ2_XS, quants.IQ2_S, quants.IQ3_XXS, quants.IQ3_S, quants.IQ1_S)
PER_LINE = 12


def entries_of(kind: type) -> list[int]:
    """The packed entries of a grid."""
    kind.init_grid()
    grid = kind.grid.reshape(kind.grid_shape)
    numbers = np.searchsorted(np.array(kind.grid_map), grid)
    bits = 2 if len(kind.grid_map) == 3 else 3
    shifts = np.arange(grid.shape[1]) * bits
    return (numbers << shifts).sum(1).tolist()


def main() -> None:
    """Writes the file."""
    argparse.ArgumentParser(description=__doc__.partition("\n")[0]).parse_args()
    lines = [
        "// Written by tools/make_gguf_grids.py, which describes it. The grids are those of ggml",
        "// (MIT License, THIRD_PARTY_NOTICES.txt).",
    ]
    for kind in KINDS:
        name = kind.__name__.title().replace("_", "")
        entries = [f"{entry:#06x}," for entry in entries_of(kind)]
        lines.append(f"constexpr uint16_t k{name}Grid[] = {{")
        lines += [
            "    " + " ".join(entries[at : at + PER_LINE])
            for at in range(0, len(entries), PER_LINE)
        ]
        lines.append("};")
    OUT.write_text("\n".join(lines) + "\n", encoding="ascii")


if __name__ == "__main__":
    main()
