"""schemathesis: requests made from /openapi.json, and answers held against it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import Server
from demo_chat import KEY

# Many at night.
MAX_EXAMPLES = os.environ.get("MLC_NATIVE_OPENAPI_EXAMPLES", "3")
SAME_WITHOUT_V1 = "^/(chat|completions|responses|messages|models|tokenize|detokenize)"
# Not positive_data_acceptance: a schema cannot say which roles a template has, or how many tokens a
# model has.
CHECKS = (
    "not_a_server_error,status_code_conformance,content_type_conformance,"
    "response_headers_conformance,response_schema_conformance,negative_data_rejection,"
    "missing_required_header,unsupported_method"
)


@pytest.fixture
def url() -> Iterator[str]:
    """A server whose answers are short, whatever a request says."""
    limit = ("--max-single-sequence-length", "64")
    server = Server("demo", "--device", "cpu", "--api-key", KEY, *limit)
    yield server.url
    server.stop()


def test_answers_are_as_described(url: str, tmp_path: Path) -> None:
    command = [
        *(str(Path(sys.executable).parent / "st"), "run", f"{url}/openapi.json"),
        *("-H", f"Authorization: Bearer {KEY}", "--checks", CHECKS),
        *("--phases", "examples,coverage,fuzzing", "--max-examples", MAX_EXAMPLES),
        *("--exclude-path-regex", SAME_WITHOUT_V1),
        *("--seed", "1", "--no-color", "--request-timeout", "120"),
    ]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stdout[-8000:]
