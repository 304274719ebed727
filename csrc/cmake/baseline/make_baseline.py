"""Writes libraries to link against, so that the result runs on Linux systems older than this one.

    make_baseline.py --glibc 2.28 --compiler g++ DIR

A program that is linked here wants the newest version of each symbol of glibc and libstdc++ that
this machine has. The libraries that this program writes to DIR have the names of those of the
system and, of their symbols, the newest version that the older system has, too: glibc keeps every
version that it ever had. They contain no code. `-LDIR` makes the linker take them:

* libc, libm, libgcc_s and the dynamic linker: what is newer is missing. compat.c, beside this file,
  defines what the headers of a newer glibc make of older functions, and compat_start.c how a
  program starts (link with -Wl,--wrap=__libc_start_main). Both are linked statically, as
  DIR/libcompat.a. Functions that lived in libpthread, libdl, librt and libutil before glibc 2.34
  are wanted from there again.
* libstdc++: what is newer than that of GCC 8 is taken from the static libstdc++ of this compiler.
  Link with -Wl,--exclude-libs,ALL, which keeps that inside.

A symbol that neither has fails the link, if the linker is told --no-undefined.
"""

from __future__ import annotations

import argparse
import re
import shlex
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

HERE = Path(__file__).resolve().parent
# The newest versions of the C++ runtime of GCC 8, which systems with glibc 2.28 have.
RUNTIME_LIMITS = {"GLIBCXX": (3, 4, 24), "CXXABI": (1, 3, 11), "GCC": (7, 0, 0)}
# Where a symbol of libc.so.6 was before glibc 2.34, by its name; what is not here: libpthread.
FORMER_HOMES = {
    "libdl.so.2": re.compile(r"dl[a-z]"),
    "librt.so.1": re.compile(r"(aio|clock|lio|mq|shm|timer)_"),
    "libutil.so.1": re.compile(r"(forkpty|openpty|login|logout)"),
}
OTHER_HOME = "libpthread.so.0"
SYMBOL = re.compile(
    r"\s*\d+: [0-9a-f]+ +(?P<size>\S+) (?P<type>\S+) +(?P<bind>\S+) +\S+ +(?P<section>\S+)"
    r" (?P<name>[^\s@]+)@@?(?P<version>\S+)"
)


class Symbol(NamedTuple):
    """A definition of a name in a shared library."""

    name: str
    version: str
    type: str
    bind: str
    size: int


def numbers(version: str) -> tuple[int, ...]:
    """(2, 2, 5) of "GLIBC_2.2.5"."""
    return tuple(int(part) for part in version.partition("_")[2].split("."))


class Tools:
    """The compiler, and what lies beside it."""

    def __init__(self, compiler: str) -> None:
        self.compiler = shlex.split(compiler)
        self.readelf = self.run(*self.compiler, "-print-prog-name=readelf").strip()
        self.ar = self.run(*self.compiler, "-print-prog-name=ar").strip()

    @staticmethod
    def run(*command: str | Path) -> str:
        done = subprocess.run(list(map(str, command)), stdout=subprocess.PIPE, text=True)
        if done.returncode != 0:
            raise SystemExit(f"make_baseline.py: `{shlex.join(map(str, command))}` failed")
        return done.stdout

    def file(self, name: str) -> Path:
        """A library that the compiler links."""
        found = Path(self.run(*self.compiler, f"-print-file-name={name}").strip())
        if not found.is_absolute():
            raise SystemExit(f"make_baseline.py: {self.compiler[0]} has no {name}")
        return found

    def symbols(self, library: Path) -> Iterable[Symbol]:
        """What a shared library defines, with all its versions."""
        for line in self.run(self.readelf, "-W", "--dyn-syms", library).splitlines():
            found = SYMBOL.match(line)
            if found and found["section"] not in ("UND", "ABS"):
                size = int(found["size"], 0)
                yield Symbol(found["name"], found["version"], found["type"], found["bind"], size)


class Limits:
    """The newest versions that the older system has."""

    def __init__(self, glibc: str) -> None:
        self.newest = {"GLIBC": numbers(f"GLIBC_{glibc}"), **RUNTIME_LIMITS}

    def allow(self, version: str) -> bool:
        if re.fullmatch(r"[A-Z]+_\d+(\.\d+)*", version) is None:  # GLIBC_PRIVATE, CXXABI_FLOAT128
            return False
        newest = self.newest.get(version.partition("_")[0])
        return newest is not None and numbers(version) <= newest

    def apply(self, symbols: Iterable[Symbol]) -> tuple[list[Symbol], set[str]]:
        """Returns the newest allowed version of each symbol, and the names that have newer ones."""
        chosen: dict[str, Symbol] = {}
        renewed = set()
        for symbol in symbols:
            if not self.allow(symbol.version):
                renewed.add(symbol.name)
            elif symbol.name not in chosen or numbers(chosen[symbol.name].version) < numbers(
                symbol.version
            ):
                chosen[symbol.name] = symbol
        return [chosen[name] for name in sorted(chosen)], renewed


TYPES = {"OBJECT": "@object", "TLS": "@tls_object", "NOTYPE": "@notype"}
SECTIONS = {"OBJECT": ".data", "TLS": '.section .tbss,"awT",@nobits'}


def assembly(symbols: Iterable[Symbol]) -> str:
    """Definitions of the symbols, without code and with the size of data."""
    lines = ['.section .note.GNU-stack,"",%progbits']
    for s in symbols:
        type_ = TYPES.get(s.type, "@function")
        if s.bind == "UNIQUE":
            type_ = "@gnu_unique_object"
        lines += [
            SECTIONS.get(s.type, ".text"),
            f"{'.weak' if s.bind == 'WEAK' else '.globl'} {s.name}",
            f".type {s.name}, {type_.replace('@', '%')}",
            f".size {s.name}, {s.size}",
            f"{s.name}: .skip {max(1, s.size if s.type in SECTIONS else 1)}",
        ]
    return "\n".join(lines) + "\n"


def version_script(symbols: Iterable[Symbol]) -> str:
    by_version = defaultdict(list)
    for symbol in symbols:
        by_version[symbol.version].append(symbol.name)
    blocks = [
        f"{version} {{ global: {'; '.join(names)}; }};" for version, names in by_version.items()
    ]
    return "\n".join(blocks) + "\n"


def write_library(tools: Tools, folder: Path, name: str, symbols: list[Symbol]) -> None:
    """Writes a shared library that defines these symbols and nothing else."""
    source = folder / f"{name}.s"
    source.write_text(assembly(symbols))
    script = folder / f"{name}.map"
    script.write_text(version_script(symbols))
    link = ["-shared", "-nostdlib", f"-Wl,-soname,{name}", f"-Wl,--version-script={script}"]
    tools.run(*tools.compiler, *link, "-o", folder / name, source)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--glibc", default="2.28", help="the oldest glibc that shall do")
    parser.add_argument("--compiler", default="g++", help="the compiler that links")
    parser.add_argument("folder", type=Path)
    arguments = parser.parse_args()
    folder = arguments.folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    tools = Tools(arguments.compiler)
    limits = Limits(arguments.glibc)

    for name in ("libm.so.6", "libgcc_s.so.1", "libstdc++.so.6"):
        write_library(tools, folder, name, limits.apply(tools.symbols(tools.file(name)))[0])
    loader = next(p for p in tools.file("libc.so.6").parent.glob("ld-linux-*.so.*"))
    write_library(tools, folder, loader.name, limits.apply(tools.symbols(loader))[0])
    libc, renewed = limits.apply(tools.symbols(tools.file("libc.so.6")))
    homes = defaultdict(list)
    for symbol in libc:
        home = "libc.so.6"
        if symbol.name in renewed:
            former = (h for h, names in FORMER_HOMES.items() if names.match(symbol.name))
            home = next(former, OTHER_HOME)
        homes[home].append(symbol)
    for home, symbols in homes.items():
        write_library(tools, folder, home, symbols)

    flags = ["-x", "c", "-std=gnu11", "-O2", "-fPIC", "-Wall", "-Wextra", "-Werror"]
    sources = sorted(HERE.glob("*.c"))
    objects = [folder / f"{source.stem}.o" for source in sources]
    for source, product in zip(sources, objects, strict=True):
        tools.run(*tools.compiler, *flags, "-c", "-o", product, source)
    (folder / "libcompat.a").unlink(missing_ok=True)
    tools.run(tools.ar, "rcsD", folder / "libcompat.a", *objects)

    def join(name: str, *parts: str | Path) -> None:
        (folder / name).write_text(f"INPUT({' '.join(map(str, parts))})\n")

    former = [folder / home for home in sorted(homes) if home != "libc.so.6"]
    nonshared = tools.file("libc_nonshared.a")
    when_used = f"AS_NEEDED({' '.join(map(str, [*former, folder / loader.name]))})"
    join("libc.so", folder / "libc.so.6", folder / "libcompat.a", nonshared, when_used)
    join("libm.so", folder / "libm.so.6")
    join("libgcc_s.so", folder / "libgcc_s.so.1", "-lgcc")
    newer = (folder / "libcompat.a", tools.file("libstdc++.a"))
    join("libstdc++.so", folder / "libstdc++.so.6", *newer)
    for name in ("dl", "pthread", "rt", "util"):  # in libc.so, where they are used
        join(f"lib{name}.so", "-lc")


if __name__ == "__main__":
    sys.exit(main())
