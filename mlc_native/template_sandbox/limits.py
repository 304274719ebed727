"""What one rendering of a chat template may use. Whoever renders it keeps to these limits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, NoReturn

MAX_REASON = 200  # characters of what a template says about a request


class TemplateLimitError(Exception):
    """The template ran too long or produced too much."""


def refuse(reason: str) -> NoReturn:
    """Ends the rendering."""
    raise TemplateLimitError(reason)


@dataclass(frozen=True)
class Limits:
    """Limits of one rendering without input; what a request brings adds to each of them.

    Attributes:
        seconds: time of the processor. A million characters add 1 s, a value of the input 50 us.
        steps: iterations, calls and visited values. A character adds 1/4, a value of the input 64.
        memory_bytes: of all that is made. A character adds 16, a value of the input 256.
        output_chars: of the prompt. A character adds 4, a value of the input 64.
    """

    seconds: float = 0.2
    steps: int = 300_000
    memory_bytes: int = 48 << 20
    output_chars: int = 8 << 20

    def with_input(self, weight: Weight) -> Limits:
        """The limits of a rendering of this input."""
        return Limits(
            self.seconds + 1e-6 * weight.chars + 5e-5 * weight.values,
            self.steps + weight.chars // 4 + 64 * weight.values,
            self.memory_bytes + 16 * weight.chars + 256 * weight.values,
            self.output_chars + 4 * weight.chars + 64 * weight.values,
        )


class Weight(NamedTuple):
    """How large a value is: the values in it, itself included, as often as they can be reached.

    Attributes:
        values: the number of values.
        chars: of all texts, and about those of numbers.
        depth: of the containers.
        foreign: whether a text in it is not the template's own.
    """

    values: int
    chars: int
    depth: int
    foreign: bool
