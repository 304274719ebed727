"""What programs that use the C API are compiled against, as a dump of abidw (abigail-tools).

    python tools/mlcn_abi.py include/mlc_native/mlc_native.h /tmp/dump.abi

The dump describes a library with empty functions of the header's declarations, compiled with
debug information, so it needs no build of the engine and is small. The tests compare the header
with the dump of version 1.0 in tests/python/data (abidiff).
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

DECLARATION = re.compile(r"^MLCN_API\s+(?P<head>[^;]*?\bmlcn_\w+\([^;]*\));", re.MULTILINE)


def stubs(header: Path) -> str:
    """A C source that defines each function of the header, with an empty body."""
    text = re.sub(r"/\*.*?\*/", "", header.read_text(encoding="utf-8"), flags=re.DOTALL)
    lines = [f'#include "{header.name}"']
    for found in DECLARATION.finditer(text):
        head = " ".join(found["head"].split())
        is_void = re.match(r"void mlcn_", head) is not None
        lines.append(f"{head} {{ {'' if is_void else 'return 0;'} }}")
    return "\n".join(lines) + "\n"


def dump(header: Path, out: Path) -> None:
    """Writes the dump of a header."""
    with tempfile.TemporaryDirectory() as folder:
        shutil.copy(header, folder)
        (Path(folder) / "mlcn.c").write_text(stubs(header), encoding="utf-8")
        compiler = ["gcc", "-g", "-O0", "-w", "-shared", "-fPIC", f"-ffile-prefix-map={folder}=."]
        subprocess.run([*compiler, "-o", "libmlcn.so", "mlcn.c"], cwd=folder, check=True)
        options = ["--no-show-locs", "--no-corpus-path", "--no-comp-dir-path", "--no-elf-needed"]
        options += ["--out-file", str(out.resolve())]
        subprocess.run(["abidw", *options, "libmlcn.so"], cwd=folder, check=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("header", type=Path)
    parser.add_argument("out", type=Path)
    arguments = parser.parse_args()
    dump(arguments.header, arguments.out)


if __name__ == "__main__":
    main()
