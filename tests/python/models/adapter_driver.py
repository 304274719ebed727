"""Runs requests with adapters through an engine, and the model of transformers with their updates
merged into its weights.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from adapter_folders import weight_updates
from paged_driver import random_tokens, reference_model

from mlc_native import _core

NUM_NEW_TOKENS = 24


@dataclass
class AdapterAnswer:
    """One of the answers to a prompt, with its log probabilities as they are written."""

    tokens: list[int] = field(default_factory=list)
    logprobs: list[str] = field(default_factory=list)
    error: str = ""


@dataclass(frozen=True)
class AdapterWork:
    """A prompt, and the adapter that answers it; "" is the model itself."""

    prompt: list[int]
    adapter: str = ""


class AdapterDriver:
    """An engine with adapters, whose requests are all greedy and report log probabilities."""

    def __init__(self, path: Path, adapters: Mapping[str, Path], **settings: object) -> None:
        config = {
            "model": str(path),
            "dtype": "float32",
            "num_threads": 2,
            "max_num_sequence": 8,
            "max_single_sequence_length": 512,
            "max_total_sequence_length": 4096,
            "verbose": False,
            **settings,
        }
        self.engine = _core.Engine.create(json.dumps(config), "cpu", self._receive)
        self._answers: dict[str, list[AdapterAnswer]] = {}
        self._may_fail: Sequence[str] = ()
        for name, folder in adapters.items():
            self.engine.load_adapter(name, str(folder))

    def _receive(self, outputs: list[_core.RequestStreamOutput]) -> None:
        for output in outputs:
            if output.error_message:
                assert output.request_id in self._may_fail, output.error_message
                self._answers[output.request_id][0].error = output.error_message
            deltas = output.unpack_deltas()
            for answer, (_, tokens, logprobs, _) in zip(
                self._answers[output.request_id], deltas, strict=False
            ):
                answer.tokens += tokens
                answer.logprobs += logprobs or []

    def add(self, request_id: str, work: AdapterWork, n: int = 1, **fields: Any) -> None:
        """Queues a request."""
        config = _core.GenerationConfig()
        settings = {"n": n, "temperature": 0.0, "max_tokens": NUM_NEW_TOKENS, "ignore_eos": True}
        settings |= {"logprobs": True, "top_logprobs": 2, "adapter": work.adapter, **fields}
        for name, value in settings.items():
            setattr(config, name, value)
        self._answers[request_id] = [AdapterAnswer() for _ in range(n)]
        self.engine.add_request(self.engine.create_request(request_id, work.prompt, config))

    def finish(self) -> None:
        """Steps until no request is left."""
        while not self.engine.empty():
            self.engine.step()
        self.engine.debug_call("audit_pages")

    def run(
        self, works: Sequence[AdapterWork], may_fail: Sequence[str] = (), **fields: Any
    ) -> list[AdapterAnswer]:
        """The answers to prompts that are served together; those of ``may_fail`` may have none."""
        self._may_fail = may_fail
        return [answers[0] for answers in self.answers(works, 1, **fields)]

    def answers(
        self, works: Sequence[AdapterWork], n: int, **fields: Any
    ) -> list[list[AdapterAnswer]]:
        """n answers to each of the prompts, which are served together."""
        for i, work in enumerate(works):
            self.add(str(i), work, n, **fields)
        self.finish()
        return [self._answers[str(i)] for i in range(len(works))]

    def tokens(self, works: Sequence[AdapterWork], **fields: Any) -> list[list[int]]:
        """The tokens of the answers."""
        return [answer.tokens for answer in self.run(works, **fields)]

    def metric(self, name: str) -> int:
        """A counter of the engine."""
        return int(json.loads(self.engine.json_metrics())[name])


def prompts_of(lengths: Sequence[int], vocab_size: int, seed: int = 7) -> list[list[int]]:
    """Random prompts."""
    return [random_tokens(length, vocab_size, seed + i) for i, length in enumerate(lengths)]


def merged_reference(path: Path, folder: Path | None) -> Any:
    """The model of transformers in float32, with an adapter's updates added to its weights."""
    model = reference_model(path, torch.float32)
    with torch.no_grad():
        for module, update in ({} if folder is None else weight_updates(folder)).items():
            model.get_submodule(module).weight += torch.from_numpy(update).float()
    return model


@torch.inference_mode()
def check_greedy(model: Any, prompt: list[int], answer: AdapterAnswer, tolerance: float) -> None:
    """Each token of an answer has the greatest logit after those before it, and its log
    probability."""
    tokens = torch.tensor([[*prompt, *answer.tokens[:-1]]])
    rows = model(tokens, use_cache=False).logits[0, len(prompt) - 1 :]
    assert rows.argmax(-1).tolist() == answer.tokens
    expected = torch.log_softmax(rows.double(), -1)
    for row, token, text in zip(expected, answer.tokens, answer.logprobs, strict=True):
        found = json.loads(text)["logprob"]
        assert math.isclose(found, row[token].item(), abs_tol=tolerance)
