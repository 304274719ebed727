"""The wheel: what is in it, what it requires, and that a C++ host can build on it.

Builds the wheel from the shared build directory, so it needs the build requirements (tools/test.sh
installs them) and is quick only after a build.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from packaging.specifiers import SpecifierSet

ROOT = Path(__file__).resolve().parents[2]
pytestmark = [
    pytest.mark.packaging,
    pytest.mark.skipif(
        any(importlib.util.find_spec(name) is None for name in ("Cython", "nanobind", "cmake")),
        reason="the build requirements of pyproject.toml are not installed",
    ),
]

FOREIGN_HEADERS = ["<torch/", "<ATen/", "<c10/", "<nanobind/", "<Python.h>", "<nlohmann/", "<tvm/"]

CONSUMER_CMAKE = """
cmake_minimum_required(VERSION 3.24)
project(consumer LANGUAGES CXX)
find_package(mlc_native 0.1 REQUIRED)
add_executable(consumer main.cc)
target_link_libraries(consumer PRIVATE mlc_native::mlc_native)

# A model of one's own, for model_lib=.
set(plugin_sources ${FAKE_MODEL}/fake_model/fake_model.cc ${FAKE_MODEL}/fake_model/fake_steps.cc
    ${FAKE_MODEL}/fake_model/plugin_export.cc)
add_library(my_model SHARED ${plugin_sources})
target_include_directories(my_model PRIVATE ${FAKE_MODEL} ${JSON})
target_link_libraries(my_model PRIVATE mlc_native::mlc_native)
"""

CONSUMER_CC = """
#include <mlc_native/grammar/grammar.h>
#include <mlc_native/support/error.h>
#include <mlc_native/threaded_engine.h>

#include <future>
#include <iostream>
#include <thread>

// The helper process included: a regex is never compiled here first.
bool GrammarsWork() {
  mlc_native::GrammarVocab vocab{{"a", "b", "</s>"}, {2}, 3};
  const auto compiler = mlc_native::CreateGrammarCompiler(vocab, {});
  const auto matcher = compiler->Compile({mlc_native::GrammarKind::kRegex, "ab*"})->NewMatcher(1);
  return matcher->AcceptToken(0) && !matcher->AcceptToken(0) && matcher->AcceptToken(1);
}

int main(int argc, char** argv) {
  if (argc < 3) {
    try {
      std::cout << (GrammarsWork() ? "grammars work" : "grammars are wrong");
    } catch (const mlc_native::InvalidConfig& error) {
      std::cout << error.what();
    }
    return 0;
  }
  const std::string model = argv[1], model_lib = argv[2];
  std::promise<size_t> finished;
  size_t num_tokens = 0;
  auto engine = mlc_native::ThreadedEngine::Create();
  engine->InitThreadedEngine("cpu", [&](std::vector<mlc_native::RequestStreamOutput> outputs) {
    for (const auto& output : outputs) {
      for (const auto& delta : output.group) num_tokens += delta.token_ids.size();
      if (output.is_final()) finished.set_value(num_tokens);
    }
  }, nullptr);
  std::thread loop([&] { engine->RunBackgroundLoop(); });
  std::thread stream_back([&] { engine->RunBackgroundStreamBackLoop(); });
  try {
    engine->Reload(R"({"model": "/does/not/exist"})");
  } catch (const mlc_native::LoadError&) {
    std::cout << "refused, ";
  }
  engine->Reload(R"({"model": ")" + model + R"(", "model_lib": ")" + model_lib + R"("})");
  mlc_native::GenerationConfig config;
  config.max_tokens = 7;
  engine->AddRequest(
      engine->CreateRequest("r", {mlc_native::TokenData{{1, 2, 3}}}, config));
  std::cout << finished.get_future().get() << " tokens";
  engine->ExitBackgroundLoop();
  loop.join();
  stream_back.join();
}
"""


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
    """The wheel as pip installs it, with its libraries beside it as in any site-packages."""
    where = tmp_path_factory.mktemp("site")
    pip = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--no-index"]
    run(*pip, "--target", where, wheel)
    for name in ("torch", "tvm_ffi", "xgrammar"):
        spec = importlib.util.find_spec(name)
        assert spec is not None
        assert spec.submodule_search_locations
        (where / name).symlink_to(spec.submodule_search_locations[0])
    return where


def test_contents(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    for wanted in [
        "mlc_native/__init__.py",
        "mlc_native/py.typed",
        "mlc_native/_core/__init__.pyi",
        "mlc_native/lib/libmlc_native.so",
        "mlc_native/lib/libmlc_native_grammar.so",
        "mlc_native/lib/libmlc_native_ops.so",
        "mlc_native/lib/torch_version.txt",
        "mlc_native/lib/mlc_native_grammar_worker",
        "mlc_native/lib/cmake/mlc_native/mlc_nativeConfig.cmake",
        "mlc_native/include/mlc_native/threaded_engine.h",
        "mlc_native/include/mlc_native/grammar/grammar.h",
        "mlc_native/include/mlc_native/models/model.h",
        "mlc_native/include/mlc_native/support/check.h",
        "mlc_native/demo_model/config.json",
        "mlc_native/demo_model/tokenizer.json",
        "mlc_native/demo_model/model.safetensors",
    ]:
        assert wanted in names
    for module in ("_core", "_stream_bridge"):
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
    assert {n.split("/")[0] for n in names} == {"mlc_native", "mlc_native-0.1.0.dist-info"}


def test_public_headers_are_free_of_torch_and_python(site: Path) -> None:
    headers = list((site / "mlc_native/include").rglob("*.h"))
    assert len(headers) > 15
    for header in headers:
        text = header.read_text()
        for foreign in FOREIGN_HEADERS:
            assert foreign not in text, header


def test_requires_the_torch_it_was_built_against(wheel: Path) -> None:
    archive = zipfile.ZipFile(wheel)
    metadata = archive.read("mlc_native-0.1.0.dist-info/METADATA").decode()
    major, minor = importlib.metadata.version("torch").split(".")[:2]
    torch = [line for line in metadata.splitlines() if line.startswith("Requires-Dist: torch")]
    assert len(torch) == 1
    assert f">={major}.{minor}" in torch[0]
    assert f"<{major}.{int(minor) + 1}" in torch[0]
    entry_points = archive.read("mlc_native-0.1.0.dist-info/entry_points.txt").decode()
    assert "mlc-native = mlc_native.cli.main:main" in entry_points


def test_requires_the_grammar_library(wheel: Path) -> None:
    archive = zipfile.ZipFile(wheel)
    metadata = archive.read("mlc_native-0.1.0.dist-info/METADATA").decode()
    for name in ("apache-tvm-ffi", "xgrammar"):
        version = importlib.metadata.version(name)
        (line,) = [r for r in metadata.splitlines() if r.startswith(f"Requires-Dist: {name}")]
        assert version in SpecifierSet(line.removeprefix(f"Requires-Dist: {name}"))


def test_installed_package_imports_by_itself(site: Path) -> None:
    program = "import mlc_native._core as c, sys; print(c.__file__, 'torch' in sys.modules)"
    environment = {**os.environ, "PYTHONPATH": str(site)}
    answer = run(sys.executable, "-c", program, env=environment, cwd=site)
    assert answer.startswith(str(site))
    # The grammar library finds tvm-ffi by itself.
    library = site / "mlc_native/lib/libmlc_native_grammar.so"
    program = f"import ctypes; print(ctypes.CDLL({str(library)!r}).mlc_native_grammar_abi())"
    assert int(run(sys.executable, "-c", program, cwd=site)) >= 1


def test_cpp_host_builds_on_it(site: Path, tmp_path: Path) -> None:
    """find_package, link, run; a plug-in model built against the installed headers; grammars."""
    json = importlib.util.find_spec("nlohmann_json")
    assert json is not None
    assert json.submodule_search_locations
    (tmp_path / "CMakeLists.txt").write_text(CONSUMER_CMAKE)
    (tmp_path / "main.cc").write_text(CONSUMER_CC)
    model = tmp_path / "model"
    model.mkdir()
    (model / "config.json").write_text('{"fake": {}}')
    build = tmp_path / "build"
    program = "import mlc_native; print(mlc_native.cmake_dir())"
    environment = {**os.environ, "PYTHONPATH": str(site)}
    options = {
        "mlc_native_DIR": run(sys.executable, "-c", program, env=environment, cwd=site).strip(),
        "FAKE_MODEL": ROOT / "tests/cpp",
        "JSON": Path(json.submodule_search_locations[0]) / "include",
    }
    run("cmake", "-S", tmp_path, "-B", build, *(f"-D{k}={v}" for k, v in options.items()))
    run("cmake", "--build", build, "-j", "2")
    answer = run(build / "consumer", model, build / "libmy_model.so")
    assert answer == "refused, 7 tokens"
    assert run(build / "consumer") == "grammars work"
    # Without what it needs, the reason and the remedy.
    bare = {**os.environ, "MLC_NATIVE_XGRAMMAR_LIB": str(tmp_path / "libxgrammar_bindings.so")}
    answer = run(build / "consumer", env=bare)
    assert "libxgrammar_bindings.so" in answer
    assert "pip install 'xgrammar>=" in answer
    bare = {**os.environ, "MLC_NATIVE_GRAMMAR_LIB": str(build / "libmy_model.so")}
    assert "does not export mlc_native_grammar_abi" in run(build / "consumer", env=bare)
