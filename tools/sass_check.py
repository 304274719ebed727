"""Checks the machine code of the CUDA kernels: loads in flight, spills, branches in loops.

    sass_check.py FILE...             checks a library, object or cubin; compiles a .cu file first
    sass_check.py --record NAME FILE  writes what it counts into bench/cuda/sass.json, as NAME
    sass_check.py --table             writes bench/results/cuda_sass.md from bench/cuda/sass.json

bench/cuda/sass_limits.json names the kernels on which speed depends, with the limits that hold for
every architecture, and exceptions of some. Exit status 1 when a figure is beyond a limit, or when a
library lacks a kernel. What the figures mean is in tools/sass.py.

Needs cuobjdump and nvdisasm, from the CUDA toolkit or from the packages nvidia-cuda-cuobjdump and
nvidia-cuda-nvdisasm; without them it says that it was skipped, and succeeds. --arch: of a .cu file,
the architectures to compile for (default: 80, 90, 100).
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
import sass

ROOT = Path(__file__).parent.parent
LIMITS = ROOT / "bench/cuda/sass_limits.json"
FIGURES = ROOT / "bench/cuda/sass.json"
TABLE = ROOT / "bench/results/cuda_sass.md"

Kernels = dict[str, dict[str, dict[str, int]]]  # architecture, kernel, figure


def find_tool(name: str) -> str | None:
    """A program of the toolkit: from PATH, beside nvcc, or from a package of PyPI."""
    folders = [os.environ.get("PATH", "")]
    if nvcc := shutil.which(os.environ.get("CUDACXX", "nvcc")):
        folders.append(str(Path(nvcc).resolve().parent))
    packages = Path(sysconfig.get_paths()["purelib"])
    folders += [str(folder) for folder in packages.glob("nvidia/*/bin")]
    return shutil.which(name, path=os.pathsep.join(folders))


def output_of(*command: str) -> str:
    """Returns what a command prints. cuobjdump warns of each part of a library without a kernel."""
    run = subprocess.run(command, check=False, capture_output=True, text=True)
    if run.returncode != 0:
        sys.stderr.write(run.stderr)
        run.check_returncode()
    return run.stdout


def readable(mangled: list[str]) -> dict[str, str]:
    """Names of kernels without what all of them share: "GemvKernel<Q8Format<BFloat16>, 1, 2>"."""
    run = subprocess.run(
        ["c++filt"], input="\n".join(mangled), check=True, stdout=subprocess.PIPE, text=True
    )
    names = {}
    for raw, name in zip(mangled, run.stdout.splitlines(), strict=True):
        name = re.sub(r"mlc_native::kernels::cuda::(\w+_cu::)?", "", name)
        names[raw] = re.sub(r"^(?:void|static void) |\([^()]*\)$", "", name)
    return names


def read_registers(listing: str) -> dict[tuple[str, str], int]:
    """By architecture and mangled name, from cuobjdump's resource usage."""
    registers, architecture, function = {}, "", ""
    for line in listing.splitlines():
        if found := re.match(r"\s*arch = (sm_\d+)", line):
            architecture = found[1]
        elif found := re.match(r"\s*Function (\S+?):?$", line):
            function = found[1]
        elif found := re.match(r"\s*REG:(\d+)", line):
            registers[architecture, function] = int(found[1])
    return registers


def read_kernels(cuobjdump: str, file: Path, wanted: set[str]) -> Kernels:
    """The figures of those of the kernels that a file has."""
    registers = read_registers(output_of(cuobjdump, "--dump-resource-usage", str(file)))
    names = readable(sorted({function for _, function in registers}))
    chosen = [raw for raw, name in names.items() if name in wanted]
    kernels: Kernels = {}
    if not chosen:
        return kernels
    listing = output_of(cuobjdump, "--dump-sass", "--function", ",".join(chosen), str(file))
    for function in sass.read_functions(listing.splitlines()):
        if names.get(function.name) not in wanted:
            continue
        figures = sass.count(function)
        figures.registers = registers.get(
            (function.architecture, function.name), registers.get(("", function.name), 0)
        )  # a cubin does not say its architecture there
        of_architecture = kernels.setdefault(function.architecture, {})
        of_architecture[names[function.name]] = figures.as_dict()
    return kernels


def compile_cubin(source: Path, architecture: str, out: Path) -> Path:
    """Compiles as csrc/cmake/MlcNativeCuda.cmake does."""
    cubin = out / f"{source.stem}.{architecture}.cubin"
    options = ["-std=c++20", "-O3", "-DNDEBUG", "--expt-relaxed-constexpr", "-cubin"]
    root = next(folder for folder in source.resolve().parents if (folder / "csrc").is_dir())
    folders = [f"-I{root / 'csrc'}", f"-I{root / 'include'}"]
    nvcc = os.environ.get("CUDACXX", "nvcc")
    target = f"-arch=sm_{architecture}{'a' if architecture == '90' else ''}"
    output_of(nvcc, *options, *folders, target, "-o", str(cubin), str(source))
    return cubin


def merge(into: Kernels, other: Kernels) -> None:
    for architecture, kernels in other.items():
        into.setdefault(architecture, {}).update(kernels)


def check(kernels: Kernels, limits: list[dict[str, Any]], complete: bool) -> list[str]:
    """What is beyond a limit, in words; `complete`: every kernel has to be there."""
    findings = []
    for architecture, of_architecture in sorted(kernels.items()):
        for limit in limits:
            name = limit["kernel"]
            if name not in of_architecture:
                if complete:
                    findings.append(f"{architecture} {name}: not there")
                continue
            findings += [
                f"{architecture} {name}: {finding}"
                for finding in beyond(of_architecture[name], limit, architecture)
            ]
    return findings


def beyond(figures: dict[str, int], limit: dict[str, Any], architecture: str) -> list[str]:
    exceptions = limit.get(architecture, {})
    least = {**limit.get("at_least", {}), **exceptions.get("at_least", {})}
    most = {"spills": 0, **limit.get("at_most", {}), **exceptions.get("at_most", {})}
    return [
        f"{figure} {figures[figure]}, at least {value}"
        for figure, value in least.items()
        if figures[figure] < value
    ] + [
        f"{figure} {figures[figure]}, at most {value}"
        for figure, value in most.items()
        if figures[figure] > value
    ]


def table(data: dict[str, Any], limits: list[dict[str, Any]]) -> str:
    """The figures of all records, as Markdown."""
    columns = list(sass.Figures().as_dict())
    lines = ["# Machine code of the CUDA kernels", ""]
    lines += [str(data["about"]), ""]
    for architecture in sorted({arch for record in data["records"] for arch in record["kernels"]}):
        lines += [f"## {architecture}", ""]
        lines += ["| kernel | record | " + " | ".join(c.replace("_", " ") for c in columns) + " |"]
        lines += ["|---|---|" + "--:|" * len(columns)]
        for limit in limits:
            shown = ""
            for record in data["records"]:
                figures = record["kernels"].get(architecture, {}).get(limit["kernel"])
                if figures is None or shown == str(figures):
                    continue
                shown = str(figures)
                cells = " | ".join(str(figures.get(c, "")) for c in columns)
                name = limit["kernel"].replace("<", "&lt;")
                lines.append(f"| {name} | {record['name']} | {cells} |")
        lines.append("")
    return "\n".join(lines)


def record(name: str, kernels: Kernels) -> None:
    """Replaces the record of the same name by the figures, or appends them."""
    data = json.loads(FIGURES.read_text())
    new = {"name": name, "kernels": dict(sorted(kernels.items()))}
    names = [old["name"] for old in data["records"]]
    place = names.index(name) if name in names else len(names)
    data["records"][place : place + 1] = [new]
    FIGURES.write_text(json.dumps(data, indent=1) + "\n")


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("files", nargs="*", type=Path)
    parser.add_argument("--arch", nargs="+", default=["80", "90", "100"], metavar="N")
    parser.add_argument("--record", metavar="NAME")
    parser.add_argument("--table", action="store_true")
    args = parser.parse_args()
    limits = json.loads(LIMITS.read_text())
    if args.table:
        TABLE.write_text(table(json.loads(FIGURES.read_text()), limits))
        return 0
    cuobjdump = find_tool("cuobjdump")
    nvdisasm = find_tool("nvdisasm")
    if cuobjdump is None or nvdisasm is None:
        print("sass_check: skipped, no cuobjdump and nvdisasm (nvidia-cuda-cuobjdump, -nvdisasm)")
        return 0
    os.environ["PATH"] = str(Path(nvdisasm).parent) + os.pathsep + os.environ["PATH"]
    wanted = {limit["kernel"] for limit in limits}
    kernels: Kernels = {}
    with tempfile.TemporaryDirectory() as scratch:
        for file in args.files:
            compiled = [file]
            if file.suffix == ".cu":
                compiled = [compile_cubin(file, arch, Path(scratch)) for arch in args.arch]
            for part in compiled:
                merge(kernels, read_kernels(cuobjdump, part, wanted))
    if args.record:
        record(args.record, kernels)
    findings = check(kernels, limits, complete=any(f.suffix == ".so" for f in args.files))
    print(*findings, sep="\n", end="\n" if findings else "")
    if not findings:
        counted = {arch: len(of_arch) for arch, of_arch in kernels.items()}
        print(f"sass_check: within the limits, kernels: {counted}")
    return 1 if findings or not kernels else 0


if __name__ == "__main__":
    sys.exit(main())
