"""The longest steps of a batch that decodes into pages of K and V that nothing has used before.

    python bench/first_touch.py [--model DIR | --like qwen3-0.6b] [--quantization q8] [--threads 2]

16 sequences of 128 tokens get 600 more, twice. In the first round their pages reach new memory. A
step that waits for it shows as one that takes many times as long as the others of its round, and
those of the second round.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

from common import add_model_arguments, engine_config, model_folder, random_prompts

from mlc_native import SyncMLCEngine
from mlc_native.protocol.debug_protocol import DebugConfig
from mlc_native.protocol.generation_config import GenerationConfig

SEQUENCES, PROMPT, TOKENS = 16, 128, 600
PROMPT_STEPS = 20  # that may have prompts in them


class Timed:
    """An engine whose steps are timed."""

    def __init__(self, core: Any) -> None:
        self._core = core
        self.seconds: list[float] = []

    def __getattr__(self, name: str) -> Any:
        return self._timed_step if name == "step" else getattr(self._core, name)

    def _timed_step(self) -> Any:
        step: Callable[[], Any] = self._core.step
        start = time.perf_counter()
        result = step()
        self.seconds.append(time.perf_counter() - start)
        return result


def main(argv: list[str] | None = None) -> None:
    """Prints the median and the longest steps of each round, in milliseconds."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    add_model_arguments(parser, like="qwen3-0.6b")
    args = parser.parse_args(argv)
    config = engine_config(
        args,
        max_num_sequence=SEQUENCES,
        max_total_sequence_length=SEQUENCES * 1024,
        max_single_sequence_length=1024,
        prefill_chunk_size=512,
        prefix_cache_mode="disable",
    )
    with model_folder(args) as path:
        engine = SyncMLCEngine(path, device=args.device, engine_config=config)
        timed = engine._core = Timed(engine._core)
        prompts = random_prompts(SEQUENCES, PROMPT, 100_000, seed=0)
        generation = GenerationConfig(
            temperature=0.0, max_tokens=TOKENS, debug_config=DebugConfig(ignore_eos=True)
        )
        for name in ("first", "second"):
            timed.seconds.clear()
            engine.generate(prompts, generation)
            steps = sorted(1e3 * s for s in timed.seconds[PROMPT_STEPS:])
            longest = ", ".join(f"{ms:.0f}" for ms in steps[-5:])
            print(f"{name} round: median {steps[len(steps) // 2]:.1f} ms, longest {longest}")


if __name__ == "__main__":
    main()
