"""Adapters of every family, on all matrices of its layers: each is supported or refused by name.

With all that are supported, greedy tokens are those of transformers with the updates merged, and
the same in a mixed batch, in other chunks and on more threads.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from adapter_driver import (
    AdapterDriver,
    AdapterWork,
    check_greedy,
    merged_reference,
    module_of,
    prompts_of,
)
from adapter_folders import linear_modules, write_adapter
from families import FAMILIES, vocab_size

from mlc_native.errors import InvalidConfig, LoadError

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "tools"))
from make_random_checkpoint import make_checkpoint

LAYER = re.compile(r"(^|\.)(layers|h|blocks)\.\d+\.")
OF_OTHER_MODELS = re.compile(r"visual|vision|audio")  # of images and sounds
# Whose checkpoints have matrices as [in, out].
TRANSPOSED = {"tiny-gpt2"}
# Whose files name other modules than transformers, and so adapters, do.
OTHER_NAMES = {"tiny-deepseek_v4"}
# Modules of layers that adapters cannot change, by the end of their names.
REFUSED = re.compile(
    r"\.experts\.\d+\.\w+$"
    r"|\.kv_b_proj$"  # matrices of heads
    r"|\.indexer\.\w+$"  # the choice of keys
    r"|\.(q|k)_norm$|\.conv1d$|\.altup\.\w+$"  # no linears
    r"|\.hc_\w+$"
)


@pytest.fixture(autouse=True)
def single_threaded_reference() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize("like", FAMILIES)
def test_a_family(like: str, tmp_path: Path) -> None:
    if like in OTHER_NAMES:
        pytest.skip("no adapter of transformers fits: docs/adapters.md")
    path = make_checkpoint(like, tmp_path / "model")
    settings = {"fan_in_fan_out": like in TRANSPOSED, "r": 4}
    modules = [
        name
        for name in linear_modules(path)
        if LAYER.search(name) and not OF_OTHER_MODELS.search(name)
    ]
    engine = AdapterDriver(path, {}).engine
    supported = set()
    kinds = {re.sub(r"\.\d+\.", ".0.", name): name for name in modules}  # one of each kind
    for kind, module in kinds.items():
        folder = write_adapter(
            *(tmp_path / f"{len(supported)} {kind}", path),
            targets=[module.split(".")[-1]],
            keeps=lambda name, module=module: name == module,
            **settings,
        )
        refusal = None
        try:
            engine.load_adapter(module, str(folder))
            supported.add(kind)
        except (LoadError, InvalidConfig) as error:
            refusal = str(error)
        assert (refusal is not None) == (REFUSED.search(kind) is not None), refusal or kind
        assert refusal is None or module in refusal
    reference = merged_reference(path, None)

    def keeps(name: str) -> bool:
        return (
            re.sub(r"\.\d+\.", ".0.", name) in supported and module_of(reference, name) is not None
        )

    targets = {name.split(".")[-1] for name in modules if keeps(name)}
    folder = write_adapter(
        *(tmp_path / "all", path), targets=sorted(targets), strength=0.4, keeps=keeps, **settings
    )
    prompts = prompts_of((150, 17), vocab_size(like))
    works = [AdapterWork(prompt, name) for prompt in prompts for name in ("a", "")]
    driver = AdapterDriver(path, {"a": folder}, prefill_chunk_size=64)
    alone = [driver.run([work])[0] for work in works]
    other = AdapterDriver(path, {"a": folder}, prefill_chunk_size=48, num_threads=3)
    assert other.run(works) == alone
    merged = merged_reference(path, folder)
    for work, answer in zip(works, alone, strict=True):
        check_greedy(merged if work.adapter else reference, work.prompt, answer, 5e-3)
