"""Parts below the engine, for tests only."""

from collections.abc import Sequence
from typing import Annotated

import numpy
from numpy.typing import NDArray


MODEL_PLUGIN_ABI: int = 24

def read_weight(path: str, name: str, rows: int, columns: int, as_codes: bool = False) -> Annotated[NDArray[numpy.float32], dict(shape=(None, None))]:
    """
    A matrix of a model folder as the loader sees it, whatever form it is stored in; with as_codes, what the integers and scales mean that kernels take instead. Raises LoadError, ValueError.
    """

class TestModel:
    """A model without an engine."""

    def __init__(self, path: str, dtype: str = 'auto', num_threads: int = 1, model_lib: str = '', quantization: str = '', weight_cache_dir: str = '', kv_cache_dtype: str = 'auto', longest_sequence: int | None = None, strict_weights: bool = True) -> None:
        """Load a model folder. Raises LoadError, InvalidConfig."""

    def allocate(self, num_pages: int, max_num_rows: int, max_num_logits: int) -> None: ...

    def forward(self, sequences: Sequence[tuple[Sequence[int], int, Sequence[int]]], logits: str = 'last') -> Annotated[NDArray[numpy.float32], dict(shape=(None, None))]:
        """
        One batch of (token_ids, position, block_table). Returns float32 logits [rows, vocab] of each sequence's last row (logits="last"), of "all" rows or of "none".
        """

    def copy_pages(self, pairs: Sequence[tuple[int, int]]) -> None:
        """pairs: (from, to) page ids."""

    def forward_states(self, sequences: Sequence[tuple[Sequence[int], int, Sequence[int]]], streams: Sequence[int], rows: Sequence[int] = [], logits: str = 'last') -> tuple[Annotated[NDArray[numpy.float32], dict(shape=(None, None))], Annotated[NDArray[numpy.float32], dict(shape=(None, None))]]:
        """
        As forward. Returns also the hidden states float32 [rows, streams * hidden] of these rows of the batch, of all without any.
        """

    @property
    def metadata(self) -> dict: ...

class TestDraftHead:
    """A draft head without an engine."""

    def __init__(self, path: str, target: TestModel, quantization: str = '') -> None:
        """Load the draft head of a folder. Raises LoadError, InvalidConfig."""

    def allocate(self, num_pages: int, max_num_rows: int, max_num_sequences: int) -> None: ...

    def propose(self, work: Sequence[tuple[Sequence[int], Annotated[NDArray[numpy.float32], dict(shape=(None, None), order='C', device='cpu', writable=False)], int, Sequence[int]]], length: int) -> list[list[int]]:
        """
        Drafts of (next tokens, states, position, block_table), one list per sequence.
        """

    @property
    def target_streams(self) -> list[int]: ...

class TextEncoder:
    """Texts to tokens, as the engine encodes them."""

    def __init__(self, path: str) -> None:
        """
        Read a tokenizer.json. Raises LoadError, also for a kind that is not encoded.
        """

    def encode(self, text: bytes) -> list[int] | None:
        """Token ids, or None when a byte of the text has no token."""
