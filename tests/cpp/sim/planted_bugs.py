"""Does the simulation find bugs? Plants them one at a time and counts the seeds it takes.

    python tests/cpp/sim/planted_bugs.py [--seeds 2000] [--jobs 2] [--table FILE] [NAME ...]

Each bug (planted/) is one replacement in a scratch copy of the C++ sources, below TMPDIR, which is
built and given to mlc_native_sim, or to the named test of a bug that costs no more than speed. Exit
status 1 when one is missed. --table writes the results as a table in Markdown;
bench/results/planted_bugs.md is one. A few minutes.
tests/python/test_planted_bugs.py checks that the replacements still fit the sources.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from planted import (
    adapters,
    adapters_on_gpus,
    blocks_on_gpus,
    chunks_and_gates,
    compression,
    decays_of_channels,
    delta_rule,
    distances,
    embeddings,
    encoders,
    engine,
    guesses_ahead,
    heads_of_layers,
    input_rows,
    key_balance,
    key_choice,
    latent_experts,
    learned_positions,
    norms_by_state,
    parallel_experts,
    recurrent,
    recurrent_drafts,
    residual_streams,
    row_sight,
    selective_scan,
    shards,
    short_values,
    speculation,
    states_on_gpus,
    ternary,
)
from planted.bug import Bug

ROOT = Path(__file__).resolve().parents[3]

PARTS_OF_BUGS = (
    engine,
    adapters,
    embeddings,
    input_rows,
    speculation,
    guesses_ahead,
    recurrent,
    recurrent_drafts,
    delta_rule,
    selective_scan,
    shards,
    states_on_gpus,
    ternary,
    key_balance,
    key_choice,
    compression,
    latent_experts,
    blocks_on_gpus,
    chunks_and_gates,
    decays_of_channels,
    learned_positions,
    residual_streams,
    row_sight,
    encoders,
    distances,
    heads_of_layers,
    norms_by_state,
    parallel_experts,
    short_values,
    adapters_on_gpus,
)
BUGS = [bug for part in PARTS_OF_BUGS for bug in part.BUGS]

# A bug may leave a variable without a use, which the build treats as an error.
UNUSED = "".join(
    f'#pragma GCC diagnostic ignored "-Wunused-{what}"\n'
    for what in ("variable", "parameter", "function", "but-set-variable")
)


PARTS = ("csrc", "include", "tests/cpp", "tests/fuzz", "bench/cuda")  # what a build of csrc reads


def apply_bug(bug: Bug, csrc: Path) -> str:
    """Plants the bug; the file's text before that. Raises ValueError when it does not fit."""
    path = csrc / bug.file
    text = path.read_text()
    if text.count(bug.old) != 1:
        raise ValueError(f"{bug.name}: {bug.file} has {text.count(bug.old)} places for it")
    path.write_text(UNUSED + text.replace(bug.old, bug.new))
    return text


BUILD = "build/core"  # as tools/test.sh has it, so that a compiler cache knows the files


def copy_sources(scratch: Path) -> None:
    """Copies the sources to ``scratch`` and configures a build of them there."""
    for part in PARTS:
        shutil.copytree(ROOT / part, scratch / part)
    configure = ["cmake", "-S", str(scratch / "csrc"), "-B", str(scratch / BUILD)]
    for option in ("PYTHON=OFF", "CUDA=OFF", "BUILD_TESTS=ON"):
        configure.append(f"-DMLC_NATIVE_{option}")
    configure.append(f"-DPython_EXECUTABLE={sys.executable}")
    # As tools/setup_env.sh has it: the sources compile the same wherever they lie.
    os.environ |= {"CCACHE_BASEDIR": str(scratch), "CCACHE_NOHASHDIR": "1"}
    os.environ["CCACHE_SLOPPINESS"] = "pch_defines,time_macros"
    subprocess.run([*configure, "-G", "Ninja"], check=True, capture_output=True)


def build(bug: Bug, scratch: Path, jobs: int) -> bool:
    """Whether the simulation, or the program of the bug's test, could be built."""
    target = bug.test.split()[0] if bug.test else "mlc_native_sim"
    command = ["cmake", "--build", str(scratch / BUILD), "--target", target]
    run = subprocess.run([*command, "-j", str(jobs)], check=False, capture_output=True, text=True)
    if run.returncode != 0:
        print(run.stdout[-2000:], file=sys.stderr)
    return run.returncode == 0


def find(bug: Bug, scratch: Path, seeds: int, jobs: int) -> str | None:
    """The first failure that the simulation or the test reports, None when there is none."""
    program, tests = bug.test.split() if bug.test else ("mlc_native_sim", "")
    command = [str(next((scratch / BUILD).rglob(program)))]
    if bug.test:
        command += [f"--gtest_filter={tests}", "--gtest_brief=0"]
    else:
        command += ["--seeds", f"1..{seeds}", "--jobs", str(jobs)]
    if bug.focus:
        command += ["--only", bug.focus]
    try:
        run = subprocess.run(command, check=False, capture_output=True, text=True, timeout=600)
    except subprocess.TimeoutExpired:
        return "hangs"
    found = re.search(r"^seed .*|(?<=^\[  FAILED  \] )\S+", run.stdout, re.MULTILINE)
    if found is None and run.returncode != 0:
        return f"status {run.returncode}"
    return found.group(0) if found else None


def table(rows: list[tuple[Bug, str | None, float]], arguments: argparse.Namespace) -> str:
    """The results as a document."""
    lines = [
        "# Planted bugs",
        "",
        "The seed of the simulation that finds each known kind of bug, and what it reports. Seeds",
        f"run from 1 to {arguments.seeds} on {arguments.jobs} threads; the seconds are wall time",
        "of the simulation, without the build. A seed with an asterisk is one with the features",
        "that the bug needs only (`focus` in tests/cpp/sim/planted).",
        "",
        "    python tests/cpp/sim/planted_bugs.py --table bench/results/planted_bugs.md",
        "",
        "| bug | seed | seconds | found by |",
        "|---|--:|--:|---|",
    ]
    for bug, found, seconds in rows:
        seed = re.match(r"seed (\d+): (.*)", found or "missed")
        number, what = seed.groups() if seed else ("", found or "**missed**")
        number += "*" if number and bug.focus else ""
        what = re.sub(r"\S*/csrc/([\w/.]+):\d+", r"csrc/\1", what).replace("|", "\\|")
        lines.append(f"| {bug.name} | {number} | {seconds:.1f} | {what[:120]} |")
    return "\n".join(lines) + "\n"


def main() -> int:
    """Plants every bug (or those named) and prints what the simulation says to it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("names", nargs="*", help="parts of the names of bugs; default: all")
    parser.add_argument("--seeds", type=int, default=2000)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--table", type=Path, help="write the results to this file")
    arguments = parser.parse_args()
    missed = 0
    rows = []
    with tempfile.TemporaryDirectory(prefix="planted_bugs_") as folder:
        scratch = Path(folder)
        copy_sources(scratch)
        for bug in BUGS:
            if arguments.names and not any(name in bug.name for name in arguments.names):
                continue
            original = apply_bug(bug, scratch / "csrc")
            built = build(bug, scratch, arguments.jobs)
            start = time.monotonic()
            found = "does not compile"
            if built:
                found = find(bug, scratch, arguments.seeds, arguments.jobs)
            rows.append((bug, found, time.monotonic() - start))
            (scratch / "csrc" / bug.file).write_text(original)
            is_missed = not built or found is None
            missed += is_missed
            print(f"{'MISSED' if is_missed else 'found '}  {bug.name}: {found}", flush=True)
    if arguments.table:
        arguments.table.write_text(table(rows, arguments))
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
