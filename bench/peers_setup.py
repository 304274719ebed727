"""What bench/peers.py compares with: installs the peers and converts a checkpoint, in one folder.

    python bench/peers_setup.py --folder build/peers [--like qwen3-0.6b] [--bits 16,8,4]
    python bench/peers_setup.py --bits Q4_K_M,Q6_K             # GGUF files alone, without OpenVINO

The folder gets a virtual environment with OpenVINO GenAI and what converts checkpoints for it, two
builds of llama.cpp from the source archive of llama-cpp-python on PyPI (one for this processor, one
for AVX2), the checkpoint and its conversions: about 10 GB. What is there is not made again. A
compiler and CMake are needed, and for GGUF files alone the package sentencepiece. The engine uses
nothing of this.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tarfile
import venv
from pathlib import Path

from machine import ROOT

TORCH = "torch==2.13.0"
PACKAGES = ("openvino-genai>=2026.4", "optimum-intel", "nncf", "gguf", "sentencepiece")
LLAMA_PROGRAMS = ("llama-batched-bench", "llama-quantize")
NO_AVX512 = ("GGML_NATIVE=OFF", "GGML_AVX=ON", "GGML_AVX2=ON", "GGML_FMA=ON", "GGML_F16C=ON",
             "GGML_BMI2=ON")  # fmt: skip
LLAMA_BUILDS = {"best": ("GGML_NATIVE=ON",), "avx2": NO_AVX512}
LLAMA_OPTIONS = ("CMAKE_BUILD_TYPE=Release", "BUILD_SHARED_LIBS=OFF", "GGML_CCACHE=OFF",
                 "LLAMA_CURL=OFF", "LLAMA_OPENSSL=OFF", "LLAMA_BUILD_TESTS=OFF",
                 "LLAMA_BUILD_EXAMPLES=OFF", "LLAMA_BUILD_SERVER=OFF")  # fmt: skip
# By the bits. GGUF files may also have one of the formats of llama-quantize: "Q4_K_M".
OPENVINO_FORMATS = {"16": "fp16", "8": "int8", "4": "int4"}
GGUF_FORMATS = {"16": "BF16", "8": "Q8_0", "4": "Q4_0"}
# Runs llama.cpp's converter on a folder whose tokenizer it does not know by its hash, and which has
# no merges, without which llama.cpp loads no model: it gets one, of the bytes a and b, whose token
# takes the place of the last unused one. The prompts are random ids, so how the
# tokenizer splits text does not matter.
CONVERT = """
import runpy, sys
root = sys.argv.pop(1)
sys.path[:0] = [root, root + "/gguf-py"]
from conversion import base
from gguf import SpecialVocab, TokenType
get_vocab_base = base.TextModel.get_vocab_base
def vocab_with_ab(self):
    tokens, types, pre = get_vocab_base(self)
    if "ab" not in tokens:
        tokens[-1], types[-1] = "ab", TokenType.NORMAL
    return tokens, types, pre
base.TextModel.get_vocab_base = vocab_with_ab
add_to_gguf = SpecialVocab.add_to_gguf
def add_with_merges(self, *arguments, **names):
    self.merges = self.merges or ["a b"]
    add_to_gguf(self, *arguments, **names)
SpecialVocab.add_to_gguf = add_with_merges
base.TextModel.get_vocab_base_pre = lambda self, tokenizer: "gpt-2"
sys.argv[0] = root + "/convert_hf_to_gguf.py"
runpy.run_path(sys.argv[0], run_name="__main__")
"""


class Peers:
    """The folder with everything that is measured."""

    def __init__(self, folder: Path, like: str = "qwen3-0.6b") -> None:
        self.folder = folder.resolve()
        self.like = like
        self.python = self.folder / "venv" / "bin" / "python"
        self.checkpoint = self.folder / like

    def openvino_model(self, bits: str) -> Path:
        """The folder with the model in OpenVINO's format."""
        return self.folder / f"{self.like}-openvino-{OPENVINO_FORMATS[bits]}"

    def gguf_model(self, bits: str) -> Path:
        """The GGUF file for llama.cpp, of so many bits or of a format."""
        return self.folder / f"{self.like}-{GGUF_FORMATS.get(bits, bits)}.gguf"

    def llama_program(self, name: str, isa: str) -> Path:
        """A program of llama.cpp; isa: "best" or "avx2"."""
        return self.folder / f"llama-{isa}" / "bin" / name

    def versions(self) -> dict[str, str]:
        """The versions of what is measured against."""
        (archive,) = self.folder.glob("llama_cpp_python-*.tar.gz")
        llama = {"llama.cpp": f"of {archive.name}"}
        if not self.python.exists():
            return llama
        names = ("openvino-genai", "nncf", "optimum-intel")
        show = f"import importlib.metadata as m; print(*(m.version(n) for n in {names}))"
        found = subprocess.run(
            [self.python, "-c", show], capture_output=True, text=True, check=True
        )
        return dict(zip(names, found.stdout.split(), strict=True)) | llama

    def set_up(self, bits: list[str]) -> None:
        """Makes what is missing."""
        self.folder.mkdir(parents=True, exist_ok=True)
        if any(each in OPENVINO_FORMATS for each in bits):
            self._install()
        self._build_llama()
        self._make_checkpoint()
        for each in bits:
            self._convert(each)

    def _install(self) -> None:
        if self.python.exists():
            return
        venv.create(self.python.parent.parent, with_pip=True)
        pip = [self.python, "-m", "pip", "install", "-q", "--no-compile"]
        _run(*pip, TORCH)
        _run(*pip, TORCH, *PACKAGES)
        # A torchvision that does not fit torch would keep transformers from importing models.
        _run(self.python, "-m", "pip", "uninstall", "-q", "-y", "torchvision")

    def _llama_source(self) -> Path:
        source = self.folder / "llama-source"
        if not source.exists():
            # Only the archive is source; what pip needs to read its metadata comes as wheels.
            pip = (sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--no-binary",
                   "llama-cpp-python")  # fmt: skip
            _run(*pip, "llama-cpp-python", "-d", self.folder)
            (archive,) = self.folder.glob("llama_cpp_python-*.tar.gz")
            with tarfile.open(archive) as tar:
                tar.extractall(source, filter="data")
        (found,) = source.glob("*/vendor/llama.cpp")
        return found

    def _build_llama(self) -> None:
        for isa, options in LLAMA_BUILDS.items():
            if all(self.llama_program(name, isa).exists() for name in LLAMA_PROGRAMS):
                continue
            build = self.folder / f"llama-{isa}"
            define = [f"-D{option}" for option in (*options, *LLAMA_OPTIONS)]
            _run("cmake", "-S", self._llama_source(), "-B", build, *define)
            jobs = str(len(os.sched_getaffinity(0)))
            _run("cmake", "--build", build, "-j", jobs, "--target", *LLAMA_PROGRAMS)

    def _make_checkpoint(self) -> None:
        if not (self.checkpoint / "config.json").exists():
            tool = ROOT / "tools" / "make_random_checkpoint.py"
            _run(sys.executable, tool, "--like", self.like, "--dtype", "bfloat16", "--out",
                 self.checkpoint)  # fmt: skip

    def _convert(self, bits: str) -> None:
        if bits in OPENVINO_FORMATS and not self.openvino_model(bits).exists():
            optimum = self.python.parent / "optimum-cli"
            _run(optimum, "export", "openvino", "--model", self.checkpoint, "--task",
                 "text-generation-with-past", "--weight-format", OPENVINO_FORMATS[bits],
                 self.openvino_model(bits))  # fmt: skip
        if not self.gguf_model("16").exists():
            self.convert(self.checkpoint, self.gguf_model("16"), "bf16")
        if not self.gguf_model(bits).exists():
            self.quantize(self.gguf_model("16"), self.gguf_model(bits),
                          GGUF_FORMATS.get(bits, bits))  # fmt: skip

    def convert(self, checkpoint: Path, out: Path, outtype: str) -> None:
        """Writes a GGUF file of a checkpoint with llama.cpp's converter."""
        python = self.python if self.python.exists() else sys.executable
        kind = json.loads((checkpoint / "config.json").read_text())["model_type"]
        # Otherwise it looks for the layer that guesses further tokens, which these lack here.
        options = ["--no-mtp"] if kind.startswith(("qwen3_5", "qwen3_next")) else []
        _run(python, "-c", CONVERT, self._llama_source(), checkpoint, "--outtype", outtype,
             "--outfile", out, *options)  # fmt: skip

    def quantize(self, gguf: Path, out: Path, format: str) -> None:
        """Quantizes a GGUF file with llama.cpp's program."""
        _run(self.llama_program("llama-quantize", "best"), gguf, out, format)


def _run(*command: object) -> None:
    """Runs a command; its output is shown only if it fails."""
    words = [str(word) for word in command]
    print("+", " ".join(words), file=sys.stderr, flush=True)
    done = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode != 0:
        raise SystemExit(f"{done.stdout[-4000:]}\nfailed: {' '.join(words)}")


def main() -> None:
    """Makes the folder."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--folder", type=Path, default=ROOT / "build" / "peers")
    parser.add_argument("--like", default="qwen3-0.6b")
    parser.add_argument("--bits", default="16,8,4")
    args = parser.parse_args()
    Peers(args.folder, args.like).set_up(args.bits.split(","))


if __name__ == "__main__":
    main()
