"""The tables of docs/models.md name what loads, and what is tested."""

from __future__ import annotations

import itertools
import json
import re
import sys
from pathlib import Path

import gguf
from families import ALL
from transformers.models.auto.modeling_auto import (
    MODEL_FOR_CAUSAL_LM_MAPPING_NAMES as CAUSAL,
)
from transformers.models.auto.modeling_auto import (
    MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES as IMAGES,
)

from mlc_native import inspect_model

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "tools"))
from image_shapes import IMAGE_SHAPES
from model_shapes import SHAPES

TABLES = Path(__file__).resolve().parents[3] / "docs" / "models.md"


def rows_of_table(heading: str) -> list[list[str]]:
    """The cells of the first table of docs/models.md below a heading, without its first row."""
    lines = TABLES.read_text().split(f"\n{heading}\n")[1].splitlines()
    begin = next(i for i, line in enumerate(lines) if line.startswith("|--"))
    table = itertools.takewhile(lambda line: line.startswith("|"), lines[begin + 1 :])
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in table]


def supported(folder: Path, config: dict[str, object]) -> set[str]:
    """The names that the refusal of an unknown one lists."""
    (folder / "config.json").write_text(json.dumps(config))
    problem = inspect_model(folder)["problems"][0]
    return set(problem.split("supported: ")[1].split(", "))


def test_the_table_of_families_is_complete(tmp_path: Path) -> None:
    rows = rows_of_table("## Families")
    listed = [name for row in rows for name in re.findall(r"`(\w+)`", row[1])]
    assert len(set(listed)) == len(listed)
    assert set(listed) == supported(tmp_path, {"architectures": ["Unknown"]})
    kinds = {SHAPES[name]["model_type"] for name in [*ALL, *IMAGE_SHAPES]}
    tested = {names.get(kind) for names in (CAUSAL, IMAGES) for kind in kinds}
    claimed = {n for row in rows if row[2] == "parity" for n in re.findall(r"`(\w+)`", row[1])}
    elsewhere = {  # as other folders
        "BitnetForCausalLM", "ExaoneMoEForCausalLM",
        "Gemma3nForConditionalGeneration", "InternLM3ForCausalLM",
        "KimiK25ForConditionalGeneration", "MPTForCausalLM", "Qwen2_5OmniForConditionalGeneration",
        "Qwen2_5OmniModel",
        "Qwen3OmniMoeForConditionalGeneration", "SarvamMLAForCausalLM", "SarvamMoEForCausalLM",
    }  # fmt: skip
    # test_encoders.py
    encoders = {name for name in claimed if name.endswith(("ForMaskedLM", "EncoderModel"))}
    assert claimed - tested == elsewhere | encoders


def test_the_table_of_gguf_families_is_complete(tmp_path: Path) -> None:
    writer = gguf.GGUFWriter(tmp_path / "x.gguf", "unknown")
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    problem = inspect_model(tmp_path / "x.gguf")["problems"][0]
    names = set(problem.split("supported: ")[1].split(", "))
    (row,) = rows_of_table("### GGUF")
    listed = re.sub(r" \([^)]*\)", "", ", ".join(row)).split(", ")
    assert sorted(listed) == sorted([*names, "llama"])  # Mixtral's is that of Llama
