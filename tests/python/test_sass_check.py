"""What tools/sass_check.py counts in machine code, on listings made by hand."""

from __future__ import annotations

import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools"))

import sass
import sass_check

NO_COUNTER = 7


def line(address: int, text: str, counter: int = NO_COUNTER, waits: tuple[int, ...] = ()) -> str:
    """An instruction as cuobjdump prints it, with the control bits that the hardware reads."""
    control = 7 << 8 | counter << 5 | sum(1 << wait for wait in waits) << 11
    return (
        f"        /*{address:04x}*/                   {text} ;   /* 0x000000040a147981 */\n"
        f"                                               /* 0x{control << 41:016x} */\n"
    )


def listing(*instructions: tuple) -> str:
    """(text), (text, counter) or (text, counter, counters waited for), one behind the other."""
    lines = [line(16 * i, *instruction) for i, instruction in enumerate(instructions)]
    return "\tcode for sm_90\n\t\tFunction : kernel\n" + "".join(lines)


def count(*instructions: tuple) -> sass.Figures:
    (function,) = sass.read_functions(listing(*instructions).splitlines())
    assert function.architecture == "sm_90"
    assert len(function.code) == len(instructions)
    return sass.count(function)


LOAD = "LDG.E.128.CONSTANT R4, desc[UR4][R2.64]"


def test_loads_are_in_flight_until_their_counter_is_waited_for() -> None:
    figures = count((LOAD, 0), (LOAD, 1), ("FADD R1, R4, R5", 7, (0,)), (LOAD, 0), ("EXIT",))
    assert (figures.first_loads, figures.most_loads, figures.latencies) == (2, 2, 1)
    one_by_one = count(*[(LOAD, 0), ("PRMT R1, R4", 7, (0,))] * 3, ("EXIT",))
    assert (one_by_one.first_loads, one_by_one.most_loads, one_by_one.latencies) == (1, 1, 3)
    together = count(*[(LOAD, 0)] * 4, ("PRMT R1, R4", 7, (0,)), ("EXIT",))
    assert (together.first_loads, together.latencies) == (4, 1)


def test_small_loads_count_as_latencies_only() -> None:
    page, rows = ("LDG.E R8, desc[UR4][R2.64]", 0), (LOAD, 1, (0,))
    figures = count(page, rows, ("FADD R1, R4, R5", 7, (1,)), ("EXIT",))
    assert (figures.most_loads, figures.latencies) == (1, 2)


def test_other_counters_and_predicates_do_not_end_a_run() -> None:
    shared = ("LDS.128 R8, [R2]", 2)
    figures = count((LOAD, 0), shared, ("@P0 BRA 0x40", 7, (2,)), (LOAD, 0), ("EXIT",))
    assert figures.most_loads == 2
    assert count((LOAD, 0), ("BRA 0x20",), (LOAD, 0), ("EXIT",)).most_loads == 1


def test_early_loads_are_in_flight_at_the_wait_for_the_kernel_before() -> None:
    waits = [("PREEXIT",), ("ACQBULK",)]
    figures = count((LOAD, 0), (LOAD, 1), *waits, (LOAD, 0), ("EXIT",))
    assert (figures.early_loads, figures.first_loads) == (2, 3)
    assert count((LOAD, 0), ("MOV R1, R4", 7, (0,)), *waits, ("EXIT",)).early_loads == 0
    assert count(*waits, (LOAD, 0), ("EXIT",)).early_loads == 0


def test_the_loop_with_the_fewest_loads_counts() -> None:
    one = [(LOAD, 0), ("FADD R1, R4, R5", 7, (0,)), (LOAD, 0), ("FADD R1, R4, R5", 7, (0,))]
    two = [(LOAD, 0), (LOAD, 1), ("FADD R1, R4, R5", 7, (0, 1))]
    figures = count(*one, ("@P0 BRA 0x00",), *two, ("@P0 BRA 0x50",), ("EXIT",))
    assert (figures.most_loads, figures.loop_loads) == (2, 1)


def test_calls_and_branches_are_those_of_the_inner_loops() -> None:
    figures = count(
        ("CALL.REL.NOINC 0x100",),
        ("HMMA.16816.F32.BF16 R4, R4, R8, R4",),  # 0x10
        ("@P1 BRA 0x30",),
        ("CALL.REL.NOINC 0x100",),  # 0x30
        ("STL [R1], R4",),
        ("@!P0 BRA 0x10",),
        ("@!P2 BRA 0x00",),
        ("EXIT",),
        ("BRA 0x80",),  # padding
    )
    assert (figures.calls, figures.branches, figures.spills) == (1, 1, 1)


def test_a_loop_that_multiplies_counts_with_the_loops_within_it() -> None:
    copy, multiply = "UBLKCP.S.G [UR18], [UR16], UR4", "HMMA.16816.F32.BF16 R4, R4, R8, R4"
    loop = [
        ("SYNCS.PHASECHK.TRANS64.TRYWAIT P0, [R15], R12",),  # 0x00
        ("@!P0 BRA 0xa0",),
        (multiply,),
        (LOAD, 0),  # 0x30: the next item
        ("CALL.REL.NOINC 0x100",),
        ("@P1 BRA 0x30",),
        (copy,),
        (multiply,),
        ("@P2 BRA 0x00",),  # 0x80
        ("EXIT",),
        ("SYNCS.PHASECHK.TRANS64.TRYWAIT P0, [R15], R12",),  # 0xa0: and back, no loop of its own
        ("BRA 0x20",),
    ]
    figures = count(*loop)
    assert (figures.copies, figures.groups) == (1, 0)
    assert (figures.calls, figures.branches) == (2, 2)  # the inner loop and the outer one


def test_groups_of_copies_are_those_that_stay_in_flight() -> None:
    copies = [("LDGSTS.E.BYPASS.128 [R2], desc[UR4][R4.64]",), ("LDGDEPBAR",)]

    def with_waits(*left: int) -> sass.Figures:
        waits = [(f"DEPBAR.LE SB0, {n:#x}",) for n in left]
        return count(*copies, *waits, ("@P0 BRA 0x00",), ("DEPBAR.LE SB0, 0x0",), ("EXIT",))

    assert (with_waits(3).copies, with_waits(3).groups) == (1, 3)
    assert with_waits(3, 1).groups == 1  # the wait for more of them
    assert count(("DEPBAR.LE SB0, 0x3",), ("@P0 BRA 0x00",), ("EXIT",)).groups == 0


def test_products_and_their_fragments_are_those_of_the_inner_loops() -> None:
    fragments, product = "LDSM.16.M88.4 R8, [R2]", "HMMA.16816.F32.BF16 R4, R8, R12, R4"
    loop = [(fragments, 0), (product, 7, (0,)), (product,), ("@P0 BRA 0x10",)]
    figures = count((fragments, 0), *loop, (product,), ("EXIT",))
    assert (figures.products, figures.matrix_loads) == (2, 1)


def test_a_lost_load_a_spill_and_a_missing_kernel_are_found() -> None:
    limits = [{"kernel": "K", "at_least": {"first_loads": 2}, "sm_80": {"at_most": {"spills": 1}}}]
    good = count((LOAD, 0), (LOAD, 0), ("EXIT",)).as_dict()
    assert sass_check.check({"sm_90": {"K": good}}, limits, complete=True) == []
    lost = {**good, "first_loads": 1}
    assert sass_check.check({"sm_90": {"K": lost}}, limits, complete=True) == [
        "sm_90 K: first_loads 1, at least 2"
    ]
    spilled = {**good, "spills": 1}
    found = sass_check.check({"sm_80": {"K": spilled}, "sm_90": {"K": spilled}}, limits, True)
    assert found == ["sm_90 K: spills 1, at most 0"]
    assert sass_check.check({"sm_90": {}}, limits, complete=True) == ["sm_90 K: not there"]
    assert sass_check.check({"sm_90": {}}, limits, complete=False) == []


def test_registers_are_read_with_their_architecture() -> None:
    usage = "arch = sm_80\n Function a:\n  REG:40 STACK:0\narch = sm_90\n Function a:\n  REG:50\n"
    assert sass_check.read_registers(usage) == {("sm_80", "a"): 40, ("sm_90", "a"): 50}


def test_the_committed_figures_are_within_the_limits_and_in_the_table() -> None:
    limits = json.loads(sass_check.LIMITS.read_text())
    figures = json.loads(sass_check.FIGURES.read_text())
    now = figures["records"][-1]["kernels"]
    assert set(now) == {"sm_80", "sm_90", "sm_100"}
    assert sass_check.check(now, limits, complete=True) == []
    assert sass_check.TABLE.read_text() == sass_check.table(figures, limits)
