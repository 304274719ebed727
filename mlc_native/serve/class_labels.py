"""The names of a classifier's classes, and what becomes of their logits."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from mlc_native.errors import invalid_request, load_error, shown
from mlc_native.support.json_file import read_optional_json_object

_CONFIG = "config.json"
_SENTENCE_TRANSFORMERS = "config_sentence_transformers.json"

Activation = Callable[[Sequence[float]], list[float]]


def softmax(logits: Sequence[float]) -> list[float]:
    """Probabilities that add up to 1."""
    largest = max(logits)
    powers = [math.exp(logit - largest) for logit in logits]
    total = sum(powers)
    return [power / total for power in powers]


def sigmoid(logits: Sequence[float]) -> list[float]:
    """A probability of each logit."""
    return [
        1 / (1 + math.exp(-logit)) if logit >= 0 else math.exp(logit) / (1 + math.exp(logit))
        for logit in logits
    ]


def _softmax_of_several(logits: Sequence[float]) -> list[float]:
    return sigmoid(logits) if len(logits) == 1 else softmax(logits)


_OF_PROBLEMS: dict[str, Activation] = {
    "regression": list,
    "single_label_classification": _softmax_of_several,
    "multi_label_classification": sigmoid,
}
# By the last name of torch's class.
_OF_MODULES: dict[str, Activation] = {"Identity": list, "Sigmoid": sigmoid, "Softmax": softmax}


class ClassLabels:
    """What config.json says of classes. Immutable."""

    def __init__(
        self,
        labels: dict[str, str] | None = None,
        problem: str | None = None,
        module: str | None = None,
    ) -> None:
        """
        Args:
            labels: names by the number of the class, as in ``id2label``.
            problem: ``problem_type`` of transformers.
            module: torch's class for logits, of sentence-transformers.
        """
        self._labels = labels or {}
        self._problem = problem
        self._module = module

    @classmethod
    def of_folder(cls, folder: Path) -> ClassLabels:
        """Those of a model folder.

        Raises:
            LoadError: a file is damaged.
        """
        config = read_optional_json_object(folder / _CONFIG)
        labels = config.get("id2label") or {}
        is_right = isinstance(labels, dict) and all(isinstance(x, str) for x in labels.values())
        if not is_right:
            raise load_error(
                _CONFIG,
                f'{folder / _CONFIG}: "id2label" must be an object of texts, got {shown(labels)}',
            )
        problem = config.get("problem_type")
        if problem is not None and not (isinstance(problem, str) and problem in _OF_PROBLEMS):
            raise load_error(
                _CONFIG,
                f'{folder / _CONFIG}: "problem_type" must be one of {", ".join(_OF_PROBLEMS)}, got '
                f"{shown(problem)}",
            )
        return cls(labels, problem, _module_of(folder, config))

    def label(self, index: int) -> str:
        """The name of a class."""
        return self._labels.get(str(index), f"LABEL_{index}")

    def activated(self, logits: Sequence[float]) -> list[float]:
        """The probabilities that logits stand for.

        Raises:
            InvalidRequest: the folder names an activation that is not supported.
        """
        if self._problem is not None:
            return _OF_PROBLEMS[self._problem](logits)
        if self._module is None:
            return _softmax_of_several(logits)
        activation = _OF_MODULES.get(self._module.rpartition(".")[2])
        if activation is None:
            raise invalid_request(
                "use_activation",
                f"the model folder asks for the activation {self._module[:64]}, which is not "
                f'supported: {", ".join(_OF_MODULES)}; with "use_activation" false there are '
                "logits",
            )
        return activation(logits)


def _module_of(folder: Path, config: dict[str, Any]) -> str | None:
    """The activation that sentence-transformers has written for a cross-encoder."""
    own = config.get("sentence_transformers")
    found = own.get("activation_fn") if isinstance(own, dict) else None
    found = found or config.get("sbert_ce_default_activation_function")
    found = found or read_optional_json_object(folder / _SENTENCE_TRANSFORMERS).get("activation_fn")
    return found if isinstance(found, str) else None
