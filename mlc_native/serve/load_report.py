"""What a load shows: its progress, and a summary as one line.

A terminal gets a bar with an estimate of the time that is left, and the line. Without one, the
progress is logged at level INFO, at most once per second, and so is the line. Tensors that the
model does not use are named in a warning.
"""

from __future__ import annotations

import json
import logging
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mlc_native.errors import one_line
from mlc_native.support.quantity import quantity
from mlc_native.support.terminal import stderr_is_terminal

logger = logging.getLogger(__name__)

PROGRESS_BAR_AFTER_S = 0.5
PROGRESS_EVERY_S = 1.0  # in a log
_MAX_NAMES = 8


@dataclass(frozen=True)
class LoadSummary:
    """What an engine has loaded.

    Attributes:
        num_parameters: of the model; 0 if its plug-in does not say.
        weight_format: "bfloat16", or for example "q4 and q8 with bfloat16".
        weight_bytes: memory of the weights.
        kv_tokens: tokens that the KV cache holds.
        kv_bytes: memory of the KV cache.
        kv_format: of keys and values.
        compute: threads and instruction set, or the GPU.
        unused_tensors: names of the checkpoint's tensors that the model does not use.
        seconds: time that the load took.
    """

    num_parameters: int
    weight_format: str
    weight_bytes: int
    kv_tokens: int
    kv_bytes: int
    kv_format: str
    compute: str
    unused_tensors: tuple[str, ...]
    seconds: float

    @staticmethod
    def from_json(text: str, seconds: float) -> LoadSummary:
        """Reads the engine's "load_summary"."""
        fields = json.loads(text)
        fields["unused_tensors"] = tuple(fields["unused_tensors"])
        return LoadSummary(**fields, seconds=seconds)

    def __str__(self) -> str:
        size = quantity(self.weight_bytes, "B") if self.weight_bytes else ""
        weights = ", ".join(filter(None, (self.weight_format, size)))
        count = quantity(self.num_parameters, "parameters") if self.num_parameters else ""
        cache = ", ".join(filter(None, (self.kv_format, quantity(self.kv_bytes, "B"))))
        parts = [
            " in ".join(filter(None, (count, weights))),
            f"KV cache of {self.kv_tokens:,} tokens in {cache}",
            self.compute,
            f"loaded in {self.seconds:.2f} s",
        ]
        return "; ".join(filter(None, parts))


class LoadReport:
    """Follows one load: the engine calls it with the progress, and ``finish`` ends it.

    Args:
        model: the name of the model.
        verbose: show anything on the terminal, and log the summary.
    """

    def __init__(self, model: str, verbose: bool) -> None:
        self._model = model
        self._verbose = verbose
        self._on_terminal = verbose and stderr_is_terminal()
        self._bar: Any = None
        self._begin = self._logged = time.monotonic()
        self._stopped_by: BaseException | None = None

    def __call__(self, done: int, total: int) -> None:
        """The progress in bytes. Raises the error of ``stop``, which ends the load."""
        if self._stopped_by is not None:
            raise self._stopped_by
        if not self._on_terminal:
            if self._verbose:
                self._log(done, total)
            return
        if self._bar is None:
            from tqdm import tqdm

            self._bar = tqdm(
                total=total,
                desc=f"Loading {Path(self._model).name}",
                unit="B",
                unit_scale=True,
                unit_divisor=1000,
                delay=PROGRESS_BAR_AFTER_S,
                leave=False,
            )
        self._bar.update(done - self._bar.n)

    def _log(self, done: int, total: int) -> None:
        now = time.monotonic()
        if now - self._logged < PROGRESS_EVERY_S or not 0 < done < total:
            return
        self._logged = now
        left = (now - self._begin) * (total - done) / done
        progress = f"{quantity(done, 'B')} of {quantity(total, 'B')}"
        logger.info("loading %s: %s, about %.0f s left", self._model, progress, left)

    def stop(self, error: BaseException | None = None) -> None:
        """Ends the load with an error, or KeyboardInterrupt, at its next report. Any thread."""
        self._stopped_by = error or KeyboardInterrupt()

    def close(self) -> None:
        """Removes the bar."""
        if self._bar is not None:
            self._bar.close()

    def finish(self, summary_json: str, device: str) -> LoadSummary:
        """Shows the summary of a load that succeeded, and returns it."""
        self.close()
        summary = LoadSummary.from_json(summary_json, time.monotonic() - self._begin)
        self._warn(summary.unused_tensors)
        if self._verbose:
            line = f"{self._model} on {device}: {summary}"
            logger.info("%s", line)
            if self._on_terminal and not logger.isEnabledFor(logging.INFO):
                print(line, file=sys.stderr)
        return summary

    def _warn(self, unused_tensors: tuple[str, ...]) -> None:
        if not unused_tensors:
            return
        names = ", ".join(one_line(name[:200]) for name in unused_tensors[:_MAX_NAMES])
        if len(unused_tensors) > _MAX_NAMES:
            names += f" and {len(unused_tensors) - _MAX_NAMES} more"
        logger.warning(
            "the checkpoint of %s has tensors that the model does not use: %s", self._model, names
        )
