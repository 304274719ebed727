"""The C library in a process with next to no memory: calls and requests fail, and nothing else."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from c_library import compiled_host

import mlc_native

MODEL = Path(mlc_native.__file__).parent / "demo_model"

LIMITED = r"""
#include <mlc_native/mlc_native.h>
#include <sys/resource.h>
#include <unistd.h>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

struct Seen {
  int finals = 0;
  int reason = 0;
};

static void see(const mlcn_output* output) {
  Seen* seen = static_cast<Seen*>(output->user_data);
  seen->finals += output->is_final;
  if (output->finish_reason != MLCN_FINISH_NONE) seen->reason = output->finish_reason;
}

// What the process has now and `extra` bytes; all that there is, if that is negative.
static void limit(long extra) {
  rlimit value{RLIM_INFINITY, RLIM_INFINITY};
  if (extra >= 0) {
    long pages = 0;
    FILE* const file = std::fopen("/proc/self/statm", "r");
    if (std::fscanf(file, "%ld", &pages) != 1) std::exit(3);
    std::fclose(file);
    value.rlim_cur = static_cast<rlim_t>(pages * sysconf(_SC_PAGESIZE) + extra);
  }
  if (setrlimit(RLIMIT_AS, &value) != 0) std::exit(3);
}

// Prints the code, the reason and the number of final outputs.
static void ask(mlcn_engine* engine, const char* body) {
  Seen seen;
  mlcn_submit_options options = MLCN_SUBMIT_OPTIONS_INIT;
  options.on_output = see;
  options.user_data = &seen;
  mlcn_request* request = nullptr;
  const int code =
      mlcn_submit(engine, body, MLCN_NUL_TERMINATED, &options, &request, nullptr);
  if (code == MLCN_OK) mlcn_request_wait(request, MLCN_FOREVER, nullptr);
  mlcn_request_release(request);
  std::printf("%d %d %d\n", code, seen.reason, seen.finals);
}

int main(int, char** argv) {
  const std::string when = argv[2];
  const long extra = std::atol(argv[3]);
  const char* const config = "{\"num_threads\": 2, \"max_num_sequence\": 2, "
                             "\"max_total_sequence_length\": 4096}";
  mlcn_engine* engine = nullptr;
  mlcn_error* error = nullptr;
  if (when == "create") limit(extra);
  const int code = mlcn_engine_create(argv[1], config, nullptr, &engine, &error);
  std::printf("%d %s\n", code, mlcn_error_field(error));
  mlcn_error_release(error);
  if (code != MLCN_OK) return engine != nullptr;
  if (when == "ask") limit(extra);
  ask(engine, argv[4]);
  limit(-1);
  ask(engine, "{\"prompt\": \"The sun is\", \"max_tokens\": 4, \"ignore_eos\": true}");
  return mlcn_engine_destroy(engine, nullptr) != MLCN_OK;
}
"""

COMPLETION = {"prompt": "The sun is", "max_tokens": 40, "ignore_eos": True, "n": 2}
FORCED = {
    "prompt": "The sun is",
    "max_tokens": 4,
    "response_format": {"type": "regex", "regex": "[a-z ]+"},
}
OK, BAD_CONFIG, LOAD, OUT_OF_MEMORY = 0, 4, 5, 8  # MLCN_...


@pytest.mark.skipif(shutil.which("g++") is None, reason="there is no C++ compiler")
@pytest.mark.parametrize(
    ("when", "body", "extras_kib", "codes"),
    [
        ("create", COMPLETION, range(0, 81_920, 2048), {BAD_CONFIG, LOAD, OUT_OF_MEMORY}),
        ("ask", COMPLETION, [*range(0, 64, 4), *range(64, 2048, 128)], set()),
        ("ask", FORCED, range(0, 200_000, 8192), {BAD_CONFIG, OUT_OF_MEMORY}),
    ],
    ids=["create", "ask", "grammar"],
)
def test_running_out_of_memory_ends_calls_and_not_the_process(
    tmp_path: Path, when: str, body: dict[str, Any], extras_kib: Sequence[int], codes: set[int]
) -> None:
    """Of the address space, from next to nothing to enough. Without a limit, all is well again."""
    if "response_format" in body:
        pytest.importorskip("xgrammar")
    program = compiled_host(LIMITED, tmp_path)
    seen = set()
    for extra in extras_kib:
        command = [program, MODEL, when, str(extra << 10), json.dumps(body)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, (extra, done.returncode, done.stdout, done.stderr)
        created, *asked = done.stdout.splitlines()
        code, field = created.split(" ", 1)
        if int(code) != OK:
            assert when == "create"
            assert field or int(code) == OUT_OF_MEMORY
            assert int(code) in codes
            seen.add(int(code))
            continue
        (limited, reason, finals), (free, free_reason, free_finals) = (
            map(int, line.split()) for line in asked
        )
        assert limited in codes | {OK, OUT_OF_MEMORY}
        assert (finals, reason != 0) == ((1, True) if limited == OK else (0, False))
        assert (free, free_reason, free_finals) == (OK, 2, 1)  # MLCN_FINISH_LENGTH
        seen.add(limited)
    assert OK in seen
    assert not codes or OUT_OF_MEMORY in seen
