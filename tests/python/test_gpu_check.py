"""tools/gpu_check.sh with steps that take a second: what it leaves behind, whatever happens."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tarfile
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

STAGES = """
prepare() { step machine 5 echo "a GPU"; }
stage_good() { step good 5 cp {micro} "$results/micro.json"; }
stage_bad() { step bad 5 sh -c 'echo it broke; exit 3'; }
stage_slow() { step slow 1 sleep 60; }
stage_endless() { step endless 60 sh -c 'echo half a result >"$results/half.txt"; sleep 20'; }
stage_pair() {
  step left 5 sleep 0.1 &
  step right 5 false &
  wait
}
stage_missing() { step_with "$results/no_such_file" missing 5 true; }
"""
MICRO = [
    {"name": "edge", "order": "one by one", "blocks": 132, "seconds": 0.95e-6},
    {"name": "edge", "order": "dependent", "blocks": 132, "seconds": 0.3e-6},
]


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A folder with the script and what it reads, so that runs side by side do not meet."""
    for name in ("gpu_check.sh", "gpu_report.py", "gpu_decisions.py"):
        (tmp_path / "tools").mkdir(exist_ok=True)
        shutil.copy(ROOT / "tools" / name, tmp_path / "tools")
    for name in ("bench/cuda", "bench/results"):
        (tmp_path / name).mkdir(parents=True)
    for name in ("model.py", "model_machine.py", "model_sizes.py"):
        shutil.copy(ROOT / "bench/cuda" / name, tmp_path / "bench/cuda")
    micro = tmp_path / "micro.json"
    micro.write_text(json.dumps(MICRO))
    (tmp_path / "stages.sh").write_text(STAGES.replace("{micro}", str(micro)))
    return tmp_path


def start(checkout: Path, *args: str, **environment: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        ["bash", "tools/gpu_check.sh", *args, "out"],
        cwd=checkout,
        env=os.environ
        | {"PYTHON": sys.executable, "MLC_NATIVE_GPU_STAGES": "./stages.sh"}
        | environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def run(checkout: Path, *args: str, **environment: str) -> tuple[int, str]:
    process = start(checkout, *args, **environment)
    output, _ = process.communicate(timeout=60)
    return process.returncode, output


def archive(checkout: Path) -> dict[str, str]:
    """The files of the archive, by name."""
    out = {}
    with tarfile.open(checkout / "out/gpu_check.tar.gz") as files:
        for member in files.getmembers():
            if (file := files.extractfile(member)) is not None:
                out[Path(member.name).name] = file.read().decode()
    return out


def steps(checkout: Path) -> dict[str, str]:
    """The status of each step, as the report has it."""
    report = json.loads((checkout / "out/gpu_report.json").read_text())
    return {step["name"]: step["status"] for step in report["steps"]}


def test_a_step_that_fails_stops_no_other(checkout: Path) -> None:
    status, output = run(checkout, "--stages", "bad,slow,missing,nonsense,pair,good")
    assert status == 1
    assert "it broke" in output
    assert steps(checkout) == {
        "machine": "0",
        "bad": "3",
        "slow": "124",
        "missing": "not run: no_such_file is missing",
        "nonsense": "no such stage",
        "left": "0",
        "right": "1",
        "good": "0",
    }
    files = archive(checkout)
    assert files["bad.log"] == "it broke\n"
    assert set(files) >= {"gpu_report.json", "gpu_report.md", "machine.log", "micro.json"}


def test_all_well_is_zero_and_says_what_to_do_next(checkout: Path) -> None:
    status, output = run(checkout, "--stages", "good")
    assert status == 0
    assert "| what an edge of a graph costs | 0.95 us, expected 0.90 | keep edge_s in" in output
    assert "| 0.30 us, expected 0.60 | set dependent_edge_s to 0.30 us in" in output
    assert output == (checkout / "out/gpu_report.md").read_text()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_the_archive_is_there_when_the_script_is_killed(checkout: Path, number: int) -> None:
    process = start(checkout, "--stages", "good,endless")
    half = checkout / "build/gpu_check/results/half.txt"
    deadline = time.monotonic() + 30
    while not half.exists():
        assert time.monotonic() < deadline
        time.sleep(0.05)
    process.send_signal(number)
    begin = time.monotonic()
    process.wait(timeout=30)
    assert time.monotonic() - begin < 10
    files = archive(checkout)
    assert files["good.step"].startswith("good\t0\t")
    if number == signal.SIGTERM:
        assert process.returncode == 143
        assert files["half.txt"] == "half a result\n"
        assert steps(checkout)["endless"] == "did not end"
        assert "| endless | did not end |" in files["gpu_report.md"]


def test_no_stage_outlives_the_time_of_all(checkout: Path) -> None:
    begin = time.monotonic()
    status, _ = run(checkout, "--stages", "endless,good", MLC_NATIVE_GPU_SECONDS="2")
    assert status == 1
    assert time.monotonic() - begin < 20
    assert steps(checkout) == {"machine": "0", "endless": "124", "good": "124"}


def test_results_of_earlier_calls_stay_in_the_report(checkout: Path) -> None:
    assert run(checkout, "--stages", "bad")[0] == 1
    run(checkout, "--stages", "good")
    assert steps(checkout) == {"bad": "3", "machine": "0", "good": "0"}


def test_every_stage_exists() -> None:
    script = (ROOT / "tools/gpu_check.sh").read_text()
    listed = script.partition("\nstages=")[2].partition("\n")[0].split(",")
    defined = (ROOT / "tools/gpu_stages.sh").read_text()
    assert len(listed) > 5
    for name in [*listed, "others"]:
        assert f"\nstage_{name}() {{" in defined
        assert f"#         {name:8} " in script
