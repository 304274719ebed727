"""Installs a wheel in an environment of its own and sees that it works; writes what it measured.

    check_wheel.py WHEEL --python python3.12 [--seconds FILE]

The environment has the wheel and what it requires, not this repository. In it, the demo model
answers the questions of tests/python/data/demo_questions.json, torch is not loaded, a program in C
(examples/c/chat.c) is built on the installed library and answers, too, and no library of the wheel
wants a symbol that neither the system nor Python has. For a wheel of another machine than this one
(--cross PREFIX), only the program in C is built and run, in qemu. The wheel of CUDA is installed
--beside one of mlc_native, which must find its library and can load it, without a GPU. In a
free-threaded Python, none of this switches the GIL on.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
QUESTIONS = ROOT / "tests" / "python" / "data" / "demo_questions.json"
ASK = """
import json, sys, time
began = time.perf_counter()
from mlc_native import MLCEngine
imported = time.perf_counter() - began
answers = []
with MLCEngine("demo") as engine:
    for question in json.load(sys.stdin):
        messages = [{"role": "user", "content": question}]
        answer = engine.chat.completions.create(messages=messages, temperature=0)
        answers.append(answer.choices[0].message.content.strip())
import mlc_native
json.dump({
    "answers": answers, "import_s": imported, "torch": "torch" in sys.modules,
    "package": mlc_native.__path__[0], "gil": getattr(sys, "_is_gil_enabled", lambda: True)(),
}, sys.stdout)
"""
# Undefined symbols without a version: Python's, and those that the linker makes weak.
KNOWN_BY_NAME = re.compile(r"_?Py|_ITM_|__gmon_start__|mlc_native|_ZN10mlc_native|_ZNK10mlc_native")


def run(*command: str | Path, text: str = "", env: dict[str, str] | None = None) -> str:
    """The output of a command that must succeed, in a folder without this repository."""
    with tempfile.TemporaryDirectory() as elsewhere:
        done = subprocess.run(
            list(map(str, command)),
            input=text,
            capture_output=True,
            text=True,
            cwd=elsewhere,
            env=env,
        )
    if done.returncode != 0:
        raise SystemExit(f"check_wheel.py: {command} failed:\n{done.stdout}\n{done.stderr}")
    return done.stdout


def expect(holds: bool, what: str) -> None:
    if not holds:
        raise SystemExit(f"check_wheel.py: {what}")


def clean_environment() -> dict[str, str]:
    """This environment without what leads to this repository."""
    ours = ("PYTHONPATH", "VIRTUAL_ENV", "LD_LIBRARY_PATH")
    return {
        name: value
        for name, value in os.environ.items()
        if name not in ours and not name.startswith("MLC_NATIVE_")
    }


def undefined_symbols(package: Path) -> dict[str, list[str]]:
    """By library: undefined symbols that no version ties to a system library."""
    ours: set[str] = set()
    wanted: dict[str, list[str]] = {}
    libraries = sorted(p for p in package.rglob("*.so") if p.is_file())
    for library in libraries:
        defined = run("nm", "-D", "--defined-only", library)
        ours |= {line.split()[2].partition("@")[0] for line in defined.splitlines()}
    for library in libraries:
        names = [line.split()[-1] for line in run("nm", "-D", "-u", library).splitlines()]
        unversioned = [name for name in names if "@" not in name and name not in ours]
        strange = [name for name in unversioned if not KNOWN_BY_NAME.match(name)]
        if "_ops" not in library.name and "grammar" not in library.name:  # on torch, on tvm-ffi
            wanted[library.name] = strange
    return {name: strange for name, strange in wanted.items() if strange}


def check_traces(package: Path) -> None:
    """No library tells where it was built, and each looks for others only beside itself."""
    here = str(ROOT).encode()
    for library in (
        p for p in package.rglob("*") if p.suffix == ".so" or p.stem.endswith("_worker")
    ):
        if library.is_dir() or library.suffix == ".cuh":
            continue
        expect(here not in library.read_bytes(), f"{library.name} names {ROOT}")
        paths = re.findall(r"\(R(?:UN)?PATH\).*\[(.*)\]", run("readelf", "-d", library))
        strange = [p for p in ":".join(paths).split(":") if p and not p.startswith("$ORIGIN")]
        expect(not strange, f"{library.name} looks for libraries in {strange}")


def chat_in_c(package: Path, compiler: str, launcher: list[str], folder: Path) -> None:
    """Builds examples/c/chat.c on the package and asks it the questions."""
    program = folder / "chat"
    library = package / "lib"
    run(
        *(compiler, ROOT / "examples" / "c" / "chat.c", f"-I{package / 'include'}", f"-L{library}"),
        *("-lmlc_native_c", f"-Wl,-rpath,{library}", "-o", program),
    )
    for entry in json.loads(QUESTIONS.read_text())[:3]:
        said = run(*launcher, program, package / "demo_model", text=entry["question"] + "\n")
        expect(entry["answer"] in said, f"the program in C says {said!r}, not {entry['answer']!r}")


def requirements(wheel: Path, without: list[str]) -> list[str]:
    """What pip is given to install the wheel with all that it requires, except for some."""
    if not without:
        return [str(wheel)]
    with zipfile.ZipFile(wheel) as archive:
        (name,) = [n for n in archive.namelist() if n.endswith(".dist-info/METADATA")]
        text = archive.read(name).decode()
    lines = re.findall(r"^Requires-Dist: ([^;\n]*)$", text, re.MULTILINE)
    kept = [line for line in lines if re.match(r"[\w.-]+", line).group() not in without]  # type: ignore
    return ["--only-binary=:all:", *kept]


def check_here(
    wheel: Path, python: str, without: list[str], folder: Path
) -> dict[str, float | str]:
    """Installs the wheel with its requirements, and asks."""
    environment = clean_environment()
    venv = folder / "venv"
    run(python, "-m", "venv", venv, env=environment)
    inside = venv / "bin" / "python"
    pip = [inside, "-m", "pip", "--disable-pip-version-check", "install", "-q"]
    began = time.perf_counter()
    run(*pip, "--no-deps", wheel, env=environment)
    install_s = time.perf_counter() - began
    began = time.perf_counter()
    run(*pip, *requirements(wheel, without), env=environment)
    requirements_s = time.perf_counter() - began
    entries = json.loads(QUESTIONS.read_text())
    questions = json.dumps([entry["question"] for entry in entries])
    asked = [inside, "-I", "-c", ASK]
    json.loads(run(*asked, text=questions, env=environment))  # the first one writes bytecode
    said = json.loads(run(*asked, text=questions, env=environment))
    expect(said["answers"] == [entry["answer"] for entry in entries], f"{said['answers']}")
    expect(not said["torch"], "torch was loaded")
    flags = run(inside, "-c", "import sysconfig as s; print(s.get_config_var('Py_GIL_DISABLED'))")
    expect(said["gil"] == (flags.strip() != "1"), f"the GIL is {said['gil']}")
    package = Path(said["package"])
    expect(package.is_relative_to(venv), f"{package} is not in {venv}")
    check_traces(package)
    strange = undefined_symbols(package)
    expect(not strange, f"undefined and of no system library: {strange}")
    chat_in_c(package, "cc", [], folder)
    return {
        "python": run(inside, "-c", "import sys; print(sys.version.split()[0], end='')"),
        "install_s": round(install_s, 2),
        "requirements_s": round(requirements_s, 2),
        "import_s": round(said["import_s"], 3),
    }


def check_cross(wheel: Path, prefix: str, folder: Path) -> dict[str, float | str]:
    """Unpacks a wheel of another machine, and runs the program in C in qemu."""
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder)
    check_traces(folder / "mlc_native")
    machine = prefix.partition("-")[0]
    qemu = shutil.which(f"qemu-{machine}")
    expect(qemu is not None, f"qemu-{machine} is not installed")
    launcher = [str(qemu), "-cpu", "max", "-L", f"/usr/{prefix}"]
    chat_in_c(folder / "mlc_native", f"{prefix}-gcc", launcher, folder)
    return {"python": "none, the program in C in qemu"}


FIND_CUDA = """
import ctypes
from mlc_native import _core
library = ctypes.CDLL(_core.cuda_library_path())
print(_core.cuda_library_path(), library.mlc_native_plugin_abi())
"""


def check_cuda(wheel: Path, beside: Path, python: str, folder: Path) -> dict[str, float | str]:
    """Installs both wheels; the engine's library loads that of CUDA."""
    environment = clean_environment()
    venv = folder / "venv"
    run(python, "-m", "venv", venv, env=environment)
    inside = venv / "bin" / "python"
    pip = [inside, "-m", "pip", "--disable-pip-version-check", "install", "-q", "--no-deps"]
    began = time.perf_counter()
    run(*pip, beside, wheel, env=environment)
    install_s = time.perf_counter() - began
    path, abi = run(inside, "-I", "-c", FIND_CUDA, env=environment).split()
    package = Path(path).resolve().parents[1]
    expect(package.name == "mlc_native_cuda", f"{path} was found")
    header = (package.parent / "mlc_native/include/mlc_native/model.h").read_text()
    expect(f"kModelPluginAbi = {abi};" in header, f"{path} has plug-in ABI {abi}")
    check_traces(package)
    return {"python": "any", "install_s": round(install_s, 2)}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("wheel", type=Path)
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--cross", metavar="PREFIX", help="of the cross compiler")
    parser.add_argument("--beside", type=Path, metavar="WHEEL", help="of mlc_native")
    parser.add_argument("--without", nargs="*", default=[], help="requirements not to install")
    parser.add_argument("--seconds", type=Path, help="add a line of JSON to this file")
    arguments = parser.parse_args()
    wheel = arguments.wheel.resolve()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if arguments.cross:
            measured = check_cross(wheel, arguments.cross, folder)
        elif arguments.beside:
            measured = check_cuda(wheel, arguments.beside.resolve(), arguments.python, folder)
        else:
            measured = check_here(wheel, arguments.python, arguments.without, folder)
    size = wheel.stat().st_size
    line = json.dumps({"wheel": wheel.name, "megabytes": round(size / 1e6, 2), **measured})
    print(line)
    if arguments.seconds:
        with arguments.seconds.open("a") as file:
            file.write(line + "\n")


if __name__ == "__main__":
    main()
