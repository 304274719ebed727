"""The wheel: what is in it, what it requires, and that a C++ host can build on it.

Builds the wheel from the shared build directory, so it needs the build requirements (tools/test.sh
installs them) and is quick only after a build.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tomllib
import zipfile
from pathlib import Path

import pytest
from cpp_host import CONSUMER_CC, CONSUMER_CMAKE, MY_MODEL_CC
from packaging.metadata import Metadata
from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parents[2]
pytestmark = [
    pytest.mark.packaging,
    pytest.mark.skipif(
        any(importlib.util.find_spec(name) is None for name in ("Cython", "nanobind", "cmake")),
        reason="the build requirements of pyproject.toml are not installed",
    ),
]

VERSION = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
DIST_INFO = f"mlc_native-{VERSION}.dist-info"
FOREIGN_HEADERS = ["<torch/", "<ATen/", "<c10/", "<nanobind/", "<Python.h>", "<nlohmann/", "<tvm/"]


def run(*command: str | Path, **kwargs: object) -> str:
    """Output of a command that must succeed."""
    done = subprocess.run(
        [str(c) for c in command],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        **kwargs,  # type: ignore[call-overload]
    )
    assert done.returncode == 0, done.stdout[-8000:]
    return str(done.stdout)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("wheel")
    # The options of the build directory stay as tools/test.sh has set them: nothing is compiled.
    environment = {**os.environ, "MLC_NATIVE_BUILD_TESTS": "1", "MLC_NATIVE_BUILD_BENCH": "1"}
    pip = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation"]
    run(*pip, "-w", out, ROOT, env=environment)
    (built,) = out.glob("mlc_native-*.whl")
    return built


@pytest.fixture(scope="module")
def site(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel as pip installs it, next to its libraries as in any site-packages."""
    where = tmp_path_factory.mktemp("site")
    pip = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--no-index"]
    run(*pip, "--target", where, wheel)
    for name in ("tvm_ffi", "xgrammar"):
        spec = importlib.util.find_spec(name)
        assert spec is not None
        assert spec.submodule_search_locations
        (where / name).symlink_to(spec.submodule_search_locations[0])
    return where


def test_a_source_distribution_has_the_documents() -> None:
    included = (ROOT / "MANIFEST.in").read_text(encoding="utf-8").split()
    assert [path.name for path in ROOT.glob("*.md") if path.name not in included] == []


def test_a_source_distribution_has_no_products_of_the_examples() -> None:
    manifest = (ROOT / "MANIFEST.in").read_text(encoding="utf-8").splitlines()
    for ignored in ROOT.glob("examples/*/.gitignore"):
        for name in ignored.read_text(encoding="utf-8").split():
            command = "prune" if name.endswith("/") else "exclude"
            path = (ignored.parent / name).relative_to(ROOT)
            assert f"{command} {path}" in manifest


def test_a_build_by_hand(tmp_path: Path) -> None:
    configure = ["cmake", "-S", ROOT / "csrc", f"-DPython_EXECUTABLE={sys.executable}"]
    configure += ["-DMLC_NATIVE_CUDA=OFF"]
    run(*configure, "-B", tmp_path / "user")
    # Compilers that we do not have warn of other things. With tests, warnings are errors.
    assert "-Werror" not in (tmp_path / "user/compile_commands.json").read_text()
    run(*configure, "-B", tmp_path / "tests", "-DMLC_NATIVE_BUILD_TESTS=ON")
    assert "-Werror" in (tmp_path / "tests/compile_commands.json").read_text()
    # The grammar library works in any prefix.
    spec = importlib.util.find_spec("tvm_ffi")
    assert spec is not None
    assert spec.submodule_search_locations
    installation = (tmp_path / "user/cmake_install.cmake").read_text()
    assert f":{spec.submodule_search_locations[0]}/lib" in installation


def test_contents(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    for wanted in [
        "mlc_native/__init__.py",
        "mlc_native/py.typed",
        "mlc_native/_core/__init__.pyi",
        "mlc_native/lib/libmlc_native.so",
        "mlc_native/lib/libmlc_native_grammar.so",
        "mlc_native/lib/libmlc_native_ops.so",
        "mlc_native/lib/mlc_native_grammar_worker",
        "mlc_native/lib/cmake/mlc_native/mlc_nativeConfig.cmake",
        "mlc_native/demo_model/config.json",
        "mlc_native/server/page.html",
        "mlc_native/demo_model/tokenizer.json",
        "mlc_native/demo_model/model.safetensors",
    ]:
        assert wanted in names
    for module in ("_core", "_stream_bridge", "_text_event"):
        assert any(n.startswith(f"mlc_native/{module}.") and n.endswith(".so") for n in names)
    built_later = [n for n in names if n.startswith("mlc_native/lib/cuda_src/")]
    assert "mlc_native/lib/cuda_src/kernels/cuda/gemv.cu" in built_later
    assert "mlc_native/lib/cuda_src/models/cuda/decoder.cc" in built_later
    strangers = [
        n
        for n in set(names) - set(built_later)
        if "fake_model" in n or "emulated" in n or n.endswith((".cc", ".cu", ".pyx", ".c", ".cpp"))
    ]
    assert strangers == []
    assert {n.split("/")[0] for n in names} == {"mlc_native", DIST_INFO}


PUBLIC_HEADERS = {
    *("config.h", "data.h", "engine.h", "errors.h", "grammar.h", "mlc_native.h", "model.h"),
    *("threaded_engine.h", "tokenizer.h"),
}


def test_public_headers_are_few_and_free_of_torch_and_python(site: Path) -> None:
    headers = list((site / "mlc_native/include").rglob("*.h"))
    by_hosts = {header.name for header in headers if header.parent.name != "detail"}
    assert by_hosts == PUBLIC_HEADERS
    for header in headers:
        text = header.read_text()
        for foreign in FOREIGN_HEADERS:
            assert foreign not in text, header


def requirements(wheel: Path, extra: str = "") -> dict[str, Requirement]:
    """What pip installs with the wheel, by name; without an extra, what it always installs."""
    text = zipfile.ZipFile(wheel).read(f"{DIST_INFO}/METADATA")
    required = Metadata.from_email(text, validate=False).requires_dist or []
    return {
        r.name: r
        for r in required
        if (r.marker.evaluate({"extra": extra}) if r.marker else extra == "")
    }


def test_requirements(wheel: Path) -> None:
    """No torch, nor anything that draws it, except in extras."""
    assert set(requirements(wheel)) == {
        "httptools",
        "huggingface_hub",
        "jinja2",
        "markdown-it-py",
        "numpy",
        "prometheus-client",
        "pydantic",
        "rich",
        "tokenizers",
        "tqdm",
    }
    assert set(requirements(wheel, "grammar")) == {"apache-tvm-ffi", "xgrammar"}
    assert set(requirements(wheel, "ops")) == {"torch"}
    serve = {"starlette", "uvicorn", "uvloop"}
    assert set(requirements(wheel, "serve")) == serve
    (everything,) = requirements(wheel, "all").values()
    assert everything.extras == {"chat", "grammar", "ops", "serve"}
    for extra in ("chat", "grammar", "ops", "serve"):  # what was tested is what users get
        for name, required in requirements(wheel, extra).items():
            assert required.specifier.contains(importlib.metadata.version(name))
    entry_points = zipfile.ZipFile(wheel).read(f"{DIST_INFO}/entry_points.txt")
    assert "mlc-native = mlc_native.cli.main:main" in entry_points.decode()


def test_metadata(wheel: Path) -> None:
    """What an index shows: a description without links into the sources, and all licenses."""
    archive = zipfile.ZipFile(wheel)
    text = archive.read(f"{DIST_INFO}/METADATA")
    metadata = Metadata.from_email(text, validate=False)
    assert metadata.description_content_type == "text/markdown"
    assert (metadata.description or "").startswith("# mlc_native")
    for target in re.findall(r"\]\(([^)]*)\)", metadata.description or ""):
        assert re.match(r"https?://", target), target
    assert metadata.license_files == ["LICENSE", "THIRD_PARTY_NOTICES.txt"]
    notices = archive.read(f"{DIST_INFO}/licenses/THIRD_PARTY_NOTICES.txt").decode()
    for project in ("nanobind", "robin_map", "JSON for Modern C++", "TVM FFI", "Cython"):
        assert project in notices


# Of a C++ program on any Linux.
SYSTEM_LIBRARIES = r"(libstdc\+\+|libm|libgcc_s|libc|libpthread|libdl|ld-linux-[\w-]+)\.so\.\d+"


def test_the_library_needs_nothing_but_the_system(site: Path) -> None:
    """libmlc_native finds no torch, Python or CUDA, because it does not look for them."""
    dynamic = run("readelf", "-d", site / "mlc_native/lib/libmlc_native.so")
    needed = re.findall(r"\(NEEDED\).*\[(.*)\]", dynamic)
    assert "libc.so.6" in needed
    assert [name for name in needed if not re.fullmatch(SYSTEM_LIBRARIES, name)] == []
    assert re.findall(r"\(R(?:UN)?PATH\).*\[(.*)\]", dynamic) == ["$ORIGIN"]


EXPORT = re.compile(r"MLC_NATIVE_(?:PRIVATE_)?API\b[^;{(]*?(\w+)(?=\s*(?:[({]|:(?!:)|final\b))")


def test_the_library_exports_what_is_declared_so(site: Path) -> None:
    """Of libmlc_native: what public headers declare, and what our other libraries need."""
    declared = set()
    for root in (ROOT / "include", ROOT / "csrc"):
        for header in root.rglob("*.h"):
            declared |= set(EXPORT.findall(header.read_text()))
    symbols = run("nm", "-DC", "--defined-only", site / "mlc_native/lib/libmlc_native.so")
    exported = set()
    for line in symbols.splitlines():
        name = line.split(maxsplit=2)[2]
        found = re.match(r"(?:(?:typeinfo|typeinfo name|vtable) for )?mlc_native::([\w:]+)", name)
        assert found, name
        exported |= {part for part in found[1].split("::") if part != "kernels"}
        assert declared & set(found[1].split("::")), name
    assert {"Engine", "ThreadedEngine", "LoadModel"} <= exported


def test_the_libraries_that_are_loaded_export_functions_called_by_name(site: Path) -> None:
    """And nothing of what they have inside, which other libraries of a process may have, too."""
    grammar = {"mlc_native_grammar_abi", "mlc_native_create_grammar_backend"}
    for library, functions in (("grammar", grammar), ("ops", set())):
        path = site / f"mlc_native/lib/libmlc_native_{library}.so"
        symbols = run("nm", "-D", "--defined-only", path)
        assert {line.split()[-1] for line in symbols.splitlines()} == functions


def test_ops_use_only_the_stable_abi_of_torch(site: Path) -> None:
    """C functions of torch, no C++: one build works with many releases."""
    undefined = run("nm", "-D", "--undefined-only", site / "mlc_native/lib/libmlc_native_ops.so")
    symbols = re.findall(r" U (\S*(?:torch|3c10|N2at)\S*)", undefined)
    assert "aoti_torch_library_init_def" in symbols
    assert [name for name in symbols if not re.fullmatch(r"(aoti_)?torch_\w+", name)] == []


def base_requirements(wheel: Path) -> list[importlib.metadata.Distribution]:
    """The packages that come with the wheel, and with those."""
    found: dict[str, importlib.metadata.Distribution] = {}
    wanted = list(requirements(wheel).values())
    while wanted:
        required = wanted.pop()
        if required.name in found:
            continue
        found[required.name] = importlib.metadata.distribution(required.name)
        for text in found[required.name].requires or []:
            further = Requirement(text)
            if further.marker is None or further.marker.evaluate({"extra": ""}):
                wanted.append(further)
    return list(found.values())


@pytest.fixture(scope="module")
def lean_python(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Python that has the wheel with its base requirements and nothing else."""
    venv = tmp_path_factory.mktemp("lean")
    run(sys.executable, "-m", "venv", "--without-pip", venv)
    (packages,) = venv.glob("lib/python*/site-packages")
    pip = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--no-index"]
    run(*pip, "--target", packages, wheel)
    for distribution in base_requirements(wheel):
        for name in {file.parts[0] for file in distribution.files or []} - {"..", "__pycache__"}:
            if not (packages / name).exists():
                (packages / name).symlink_to(Path(str(distribution.locate_file(name))))
    return venv / "bin/python"


WITHOUT_EXTRAS = """
import json, sys
from mlc_native import MLCEngine

def ask(engine, question, **options):
    messages = [{"role": "user", "content": question}]
    answer = engine.chat.completions.create(messages=messages, temperature=0, **options)
    return answer.choices[0].message.content.strip()

refused = []
try:
    import mlc_native.ops
except ImportError as error:
    refused.append(str(error))
with MLCEngine("demo") as engine:
    try:
        ask(engine, "What is 2 + 2?", response_format={"type": "json_object"})
    except ValueError as error:
        refused.append(str(error))
    answers = [ask(engine, question) for question in json.load(sys.stdin)]
json.dump({"answers": answers, "refused": refused}, sys.stdout)
"""


def test_the_wheel_works_without_torch(lean_python: Path, tmp_path: Path) -> None:
    """It answers the demo's questions in any folder; what needs an extra names it."""
    entries = json.loads((ROOT / "tests/python/data/demo_questions.json").read_text())
    questions = json.dumps([entry["question"] for entry in entries])
    # -I: nothing of this environment or this folder.
    said = json.loads(run(lean_python, "-I", "-c", WITHOUT_EXTRAS, cwd=tmp_path, input=questions))
    assert said["answers"] == [entry["answer"] for entry in entries]
    ops, grammar = said["refused"]
    assert "pip install 'mlc_native[ops]'" in ops
    assert "pip install 'mlc_native[grammar]'" in grammar


def test_installed_package_imports_by_itself(site: Path) -> None:
    program = "import mlc_native._core as c, sys; print(c.__file__, 'torch' in sys.modules)"
    environment = {**os.environ, "PYTHONPATH": str(site)}
    answer = run(sys.executable, "-c", program, env=environment, cwd=site)
    assert answer.startswith(str(site))
    # The grammar library finds tvm-ffi by itself.
    library = site / "mlc_native/lib/libmlc_native_grammar.so"
    program = f"import ctypes; print(ctypes.CDLL({str(library)!r}).mlc_native_grammar_abi())"
    assert int(run(sys.executable, "-c", program, cwd=site)) >= 1


def test_the_cuda_library_is_found_in_its_own_package(site: Path, tmp_path: Path) -> None:
    """mlc_native_cuda beside mlc_native: by the engine, and by find_package."""
    environment = {**os.environ, "PYTHONPATH": str(site)}
    environment.pop("MLC_NATIVE_CUDA_LIB", None)
    program = "from mlc_native import _core; print(_core.cuda_library_path())"
    assert run(sys.executable, "-c", program, env=environment, cwd=tmp_path) == "\n"
    (tmp_path / "CMakeLists.txt").write_text(CUDA_HOST_CMAKE)
    configure = ["cmake", "-S", tmp_path, f"-Dmlc_native_DIR={cmake_package(site)}"]
    refused = subprocess.run([*configure, "-B", tmp_path / "refused"], capture_output=True)
    assert refused.returncode != 0
    library = site / "mlc_native_cuda/lib/libmlc_native_cuda.so"
    library.parent.mkdir(parents=True)
    library.touch()
    try:
        found = run(sys.executable, "-c", program, env=environment, cwd=tmp_path).strip()
        assert Path(found).samefile(library)
        run(*configure, "-B", tmp_path / "build")
    finally:
        shutil.rmtree(site / "mlc_native_cuda")


def test_the_versions_of_both_wheels_agree() -> None:
    """mlc_native_cuda links the private interface of one release of mlc_native."""
    main = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    cuda = tomllib.loads((ROOT / "wheels/mlc_native_cuda/pyproject.toml").read_text())["project"]
    assert cuda["version"] == main["version"]
    assert cuda["dependencies"] == [f"mlc_native=={main['version']}"]
    assert main["optional-dependencies"]["cuda"] == [f"mlc_native_cuda=={main['version']}"]
    assert cuda["requires-python"] == main["requires-python"]


def test_the_library_has_the_version_of_the_wheel() -> None:
    """mlcn_version() and find_package have what CMake says."""
    cmake = (ROOT / "csrc/CMakeLists.txt").read_text()
    assert f"project(mlc_native VERSION {VERSION} " in cmake


CUDA_HOST_CMAKE = """
cmake_minimum_required(VERSION 3.24)
project(host LANGUAGES CXX)
find_package(mlc_native 0.1 REQUIRED COMPONENTS cuda)
"""


def cmake_package(site: Path) -> str:
    """Where find_package finds the installed wheel, as users ask for it."""
    program = "import mlc_native; print(mlc_native.cmake_dir())"
    environment = {**os.environ, "PYTHONPATH": str(site)}
    return run(sys.executable, "-c", program, env=environment, cwd=site).strip()


def test_cpp_host_builds_on_it(site: Path, tmp_path: Path) -> None:
    """find_package, link, run; a plug-in model built against the installed headers; grammars."""
    (tmp_path / "CMakeLists.txt").write_text(CONSUMER_CMAKE)
    (tmp_path / "main.cc").write_text(CONSUMER_CC)
    (tmp_path / "my_model.cc").write_text(MY_MODEL_CC)
    model = tmp_path / "model"
    for folder in (model, model / "refused"):
        folder.mkdir()
        (folder / "config.json").write_text("{}")
    (model / "refused/refuse").touch()
    build = tmp_path / "build"
    run("cmake", "-S", tmp_path, "-B", build, f"-Dmlc_native_DIR={cmake_package(site)}")
    run("cmake", "--build", build, "-j", "2")
    answer = run(build / "consumer", model, build / "libmy_model.so")
    assert answer == "model, refuse, 4 5 6 7 "
    assert run(build / "consumer") == "grammars work"
    # Without what it needs, the reason and the remedy.
    bare = {**os.environ, "MLC_NATIVE_XGRAMMAR_LIB": str(tmp_path / "libxgrammar_bindings.so")}
    answer = run(build / "consumer", env=bare)
    assert "libxgrammar_bindings.so" in answer
    assert "pip install 'mlc_native[grammar]'" in answer
    bare = {**os.environ, "MLC_NATIVE_GRAMMAR_LIB": str(build / "libmy_model.so")}
    assert "does not export mlc_native_grammar_abi" in run(build / "consumer", env=bare)


def test_the_example_of_a_cpp_host(site: Path, tmp_path: Path) -> None:
    """examples/embed continues a text with the demo model, and names what is wrong."""
    source = ROOT / "examples/embed"
    run("cmake", "-S", source, "-B", tmp_path, f"-Dmlc_native_DIR={cmake_package(site)}")
    run("cmake", "--build", tmp_path)
    model = site / "mlc_native/demo_model"
    answer = run(tmp_path / "embed", model, "The capital of France is")
    assert answer.startswith("The capital of France is Paris")
    refused = subprocess.run(
        [tmp_path / "embed", "/no/such/model", "x"], capture_output=True, text=True
    )
    assert refused.returncode == 1
    assert "/no/such/model" in refused.stderr


C_HOST_CMAKE = """
cmake_minimum_required(VERSION 3.24)
project(host LANGUAGES C)
find_package(mlc_native 0.1 REQUIRED COMPONENTS c cxx grammar)
add_executable(host SOURCE)
target_link_libraries(host PRIVATE mlc_native::c)
"""


def test_a_host_in_c_builds_on_it(site: Path, tmp_path: Path) -> None:
    """find_package and pkg-config find the C library; a component that is not there is named."""
    source = ROOT / "examples/c/event_loop.c"
    text = C_HOST_CMAKE.replace("SOURCE", str(source))
    (tmp_path / "CMakeLists.txt").write_text(text)
    package = f"-Dmlc_native_DIR={cmake_package(site)}"
    run("cmake", "-S", tmp_path, "-B", tmp_path / "build", package)
    run("cmake", "--build", tmp_path / "build")
    model = site / "mlc_native/demo_model"
    expected = "The capital of France is Paris"
    assert expected in run(tmp_path / "build/host", model, "The capital of France is")
    (tmp_path / "CMakeLists.txt").write_text(text.replace("c cxx grammar", "c rust"))
    refused = subprocess.run(
        ["cmake", "-S", tmp_path, "-B", tmp_path / "refused", package],
        capture_output=True,
        text=True,
    )
    assert refused.returncode != 0
    assert "rust" in refused.stderr
    if shutil.which("pkg-config") is None:
        return
    where = {**os.environ, "PKG_CONFIG_PATH": str(site / "mlc_native/lib/pkgconfig")}
    flags = run("pkg-config", "--cflags", "--libs", "mlc_native_c", env=where).split()
    run("cc", source, *flags, "-o", tmp_path / "by_pkg_config")
    assert expected in run(tmp_path / "by_pkg_config", model, "The capital of France is")


def test_an_editable_install_looks_for_tvm_ffi_where_it_stays(tmp_path: Path) -> None:
    """A build with isolation sees a tvm-ffi of its own, which is gone afterwards."""
    for name in ("cmake", "tvm_ffi"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").touch()
    log = tmp_path / "arguments"
    (tmp_path / "cmake/__init__.py").write_text(f"CMAKE_BIN_DIR = {str(tmp_path / 'cmake')!r}\n")
    (tmp_path / "cmake/cmake").write_text(f"#!/bin/sh\nprintf '%s\\n' \"$@\" >'{log}'\nexit 1\n")
    (tmp_path / "cmake/cmake").chmod(0o755)
    environment = {**os.environ, "PYTHONPATH": str(tmp_path), "TMPDIR": str(tmp_path)}
    build = [sys.executable, "setup.py", "build_ext", "--inplace"]
    subprocess.run(build, cwd=ROOT, env=environment, capture_output=True)
    places = re.findall(r"^-DMLC_NATIVE_EXTRA_RPATH=(.*)$", log.read_text(), re.MULTILINE)
    assert places == [f"{sysconfig.get_path('platlib')}/tvm_ffi/lib"]


def test_an_editable_install_is_a_path(tmp_path: Path) -> None:
    """Type checkers follow a path in a .pth file; the import hooks of setuptools they cannot."""
    environment = {**os.environ, "MLC_NATIVE_BUILD_TESTS": "1", "MLC_NATIVE_BUILD_BENCH": "1"}
    build = [sys.executable, "setup.py", "-q", "editable_wheel", "--dist-dir", tmp_path]
    run(*build, cwd=ROOT, env=environment)
    (built,) = tmp_path.glob("mlc_native-*.whl")
    with zipfile.ZipFile(built) as archive:
        (name,) = [name for name in archive.namelist() if name.endswith(".pth")]
        assert archive.read(name).decode().strip() == str(ROOT)


def test_a_release_refuses_what_it_does_not_know(tmp_path: Path) -> None:
    """Before it deletes the wheels that are there."""
    (tmp_path / "old.whl").touch()
    for arguments in (["--only", "cp311 abi33"], ["--help"]):
        command = [ROOT / "tools/release.sh", *arguments, tmp_path]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
        assert done.returncode != 0
        assert "abi3 " in done.stdout + done.stderr
    assert (tmp_path / "old.whl").exists()
