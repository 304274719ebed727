"""Reads machine code of NVIDIA GPUs, as `cuobjdump -sass` prints it, and counts what decides speed.

Each instruction is printed with the two 64-bit words of its encoding. Bits 41 to 61 of the second
word say what the hardware waits for: a load puts its number into one of six counters (the "write
barrier"), and an instruction that waits for a counter starts when all loads in it have arrived. So
"in flight" means here what it means to the hardware, not where a register is named next.

The code of a kernel is walked once in the order of its addresses: both sides of a branch count, and
a loop counts as one turn. Nothing is known to be in flight behind an unconditional jump or exit.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field

_ARCHITECTURE = re.compile(r"^\s*code for (sm_\d+)")  # sm_90a is sm_90's
_FUNCTION = re.compile(r"^\s*Function : (\S+)")
_INSTRUCTION = re.compile(
    r"^\s*/\*([0-9a-f]{4,})\*/\s+(?:(@!?U?P\w+)\s+)?([A-Z][\w.]*)(.*?);\s*/\* 0x([0-9a-f]{16}) \*/"
)
_SECOND_WORD = re.compile(r"^\s*/\* 0x([0-9a-f]{16}) \*/\s*$")
_TARGET = re.compile(r"\b0x([0-9a-f]+)\s*$")
_NO_COUNTER = 7
_ENDS = ("EXIT", "BRA", "RET", "BRX", "JMP")


@dataclass(frozen=True)
class Instruction:
    """One line: `operation` is the name with its suffixes."""

    address: int
    predicate: str
    operation: str
    operands: str
    control: int

    @property
    def name(self) -> str:
        return self.operation.split(".")[0]

    @property
    def suffixes(self) -> list[str]:
        return self.operation.split(".")[1:]

    @property
    def is_global_load(self) -> bool:
        return self.name == "LDG"

    @property
    def is_wide_load(self) -> bool:
        """Whether it loads 16 bytes or more from global memory."""
        return self.is_global_load and ("128" in self.suffixes or "256" in self.suffixes)

    @property
    def is_copy(self) -> bool:
        """Whether it starts an asynchronous copy to shared memory."""
        return self.name in ("LDGSTS", "UBLKCP")

    @property
    def groups_left(self) -> int | None:
        """Of copies, that may still be on their way behind this instruction."""
        found = re.match(r"SB0, 0x([0-9a-f]+)$", self.operands) if self.name == "DEPBAR" else None
        return int(found[1], 16) if found else None

    @property
    def counter(self) -> int:
        """The counter of what it loads; 7: none."""
        return self.control >> 5 & 7

    @property
    def waits(self) -> int:
        """A bit for each counter that it waits for."""
        return self.control >> 11 & 0x3F

    @property
    def target(self) -> int | None:
        """Where a branch goes."""
        found = _TARGET.search(self.operands)
        return int(found[1], 16) if self.name == "BRA" and found else None

    @property
    def ends_path(self) -> bool:
        """Whether the next instruction is not reached from this one."""
        always = not self.predicate and not re.search(r"\b!?U?P\d", self.operands)
        return always and self.name in _ENDS


@dataclass
class Figures:
    """What is counted of a kernel; `registers` is filled in from elsewhere."""

    registers: int = 0
    instructions: int = 0
    spills: int = 0  # accesses to local memory
    first_loads: int = 0  # 16-byte loads issued before one of them is waited for, at the beginning
    most_loads: int = 0  # the same, anywhere
    loop_loads: int = 0  # the same, in the loop (below) that has the fewest
    early_loads: int = 0  # the same, in flight when it waits for the kernel before it
    latencies: int = 0  # of global memory, one behind the other
    calls: int = 0  # in the loops (below)
    branches: int = 0  # there, too, beyond those that close the loops
    copies: int = 0  # to shared memory, asynchronous ones, in the loops
    groups: int = 0  # of them, that stay in flight where a loop waits for the oldest; fewest
    products: int = 0  # of tensor cores, in the loops
    matrix_loads: int = 0  # there, too: fragments from shared memory, four of 8 x 8 elements

    def as_dict(self) -> dict[str, int]:
        return asdict(self)


@dataclass
class Function:
    name: str
    architecture: str
    code: list[Instruction] = field(default_factory=list)


def read_functions(lines: Iterable[str]) -> Iterator[Function]:
    """The functions of a listing, in its order."""
    architecture, function, first = "", None, None
    for line in lines:
        if found := _SECOND_WORD.match(line):
            if function is not None and first is not None:
                address, predicate, operation, operands = first
                control = int(found[1], 16) >> 41 & 0x1FFFFF
                function.code.append(
                    Instruction(int(address, 16), predicate, operation, operands.strip(), control)
                )
            first = None
        elif found := _INSTRUCTION.match(line):
            first = (found[1], found[2] or "", found[3], found[4])
        elif found := _FUNCTION.match(line):
            if function is not None:
                yield function
            function = Function(found[1], architecture)
        elif found := _ARCHITECTURE.match(line):
            architecture = found[1]
    if function is not None:
        yield function


class _Loads:
    """The global loads in flight during the walk."""

    def __init__(self) -> None:
        self._wide: dict[int, int] = {}  # of each counter
        self._begun: dict[int, int] = {}  # the latencies that had passed when the last was issued
        self.passed = 0
        self.early = 0
        self.runs: list[int] = []  # of wide loads without a wait for one of them
        self._run = 0

    def forget(self) -> None:
        self._end_run()
        self._wide.clear()
        self._begun.clear()

    def step(self, instruction: Instruction) -> None:
        for counter in range(6):
            if instruction.waits >> counter & 1:
                self._wait(counter)
        if instruction.name == "ACQBULK":
            self.early = sum(self._wide.values())
        if instruction.is_global_load and instruction.counter != _NO_COUNTER:
            counter = instruction.counter
            self._begun[counter] = max(self._begun.get(counter, 0), self.passed)
            if instruction.is_wide_load:
                self._wide[counter] = self._wide.get(counter, 0) + 1
                self._run += 1

    def _wait(self, counter: int) -> None:
        if self._wide.pop(counter, 0) > 0:
            self._end_run()
        if counter in self._begun:
            self.passed = max(self.passed, self._begun.pop(counter) + 1)

    def _end_run(self) -> None:
        if self._run > 0:
            self.runs.append(self._run)
        self._run = 0


def _loops(code: list[Instruction]) -> list[list[Instruction]]:
    """The innermost loops that load 16 bytes at a time, copy to shared memory, or multiply.

    One that multiplies counts also where it has one within it that only loads or copies.
    """
    spans = [
        (instruction.target, instruction.address)
        for instruction in code
        if instruction.target is not None and instruction.target < instruction.address
    ]
    loops = [[i for i in code if begin <= i.address <= end] for begin, end in spans]
    multiply = [
        loop
        for loop in loops
        if any(i.name in ("HMMA", "HGMMA") for i in loop) and not _is_way_back(loop, loops)
    ]
    return [
        loop
        for loop in loops
        if (_is_innermost(loop, loops) and any(i.is_wide_load or i.is_copy for i in loop))
        or (loop in multiply and _is_innermost(loop, multiply))
    ]


def _is_innermost(loop: list[Instruction], loops: list[list[Instruction]]) -> bool:
    begin, end = loop[0].address, loop[-1].address
    return not any(
        begin <= other[0].address and other[-1].address <= end and other is not loop
        for other in loops
    )


def _is_way_back(loop: list[Instruction], loops: list[list[Instruction]]) -> bool:
    """Whether it is the way back from code behind a loop that belongs into it, and no loop."""
    begin, end = loop[0].address, loop[-1].address
    return loop[-1].ends_path and any(
        other[0].address < begin <= other[-1].address < end for other in loops
    )


def _walk(code: list[Instruction]) -> _Loads:
    loads = _Loads()
    for instruction in code:
        loads.step(instruction)
        if instruction.ends_path:
            loads.forget()
    loads.forget()
    return loads


def count(function: Function) -> Figures:
    """The figures of a kernel, without its registers."""
    code, figures = function.code, Figures()
    loads, loops = _walk(code), _loops(code)
    figures.instructions = sum(i.name != "NOP" for i in code)
    figures.spills = sum(i.name in ("STL", "LDL") for i in code)
    figures.first_loads = loads.runs[0] if loads.runs else 0
    figures.most_loads = max(loads.runs, default=0)
    figures.early_loads = loads.early
    figures.latencies = loads.passed
    of_loops = [max(_walk(loop).runs) for loop in loops if any(i.is_wide_load for i in loop)]
    figures.loop_loads = min(of_loops, default=0)
    for loop in loops:
        figures.calls += sum(i.name == "CALL" for i in loop)
        branches = sum(i.target is not None and i.target != loop[0].address for i in loop)
        figures.branches += branches
        figures.copies += sum(i.is_copy for i in loop)
        figures.products += sum(i.name in ("HMMA", "HGMMA", "IMMA", "QMMA") for i in loop)
        figures.matrix_loads += sum(i.name == "LDSM" for i in loop)
    if any(i.name == "LDGDEPBAR" for i in code):
        left = [i.groups_left for loop in loops for i in loop if i.groups_left is not None]
        figures.groups = min(left, default=0)
    return figures
