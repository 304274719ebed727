"""ReasoningFormat: how a family of models marks the text that it thinks in."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class ReasoningFormat:
    """The reasoning is at the beginning of an answer, between an opening and a closing text.

    The opening text may be the end of the prompt instead of the beginning of the answer.

    Attributes:
        name: the name in ``reasoning_parser``.
        opens: the opening text; further spellings follow the usual one.
        closes: the same of the closing text.
    """

    name: str
    opens: tuple[str, ...]
    closes: tuple[str, ...]

    @property
    def texts(self) -> list[str]:
        """All texts that mark reasoning."""
        return [*self.opens, *self.closes]

    def is_open(self, prompt: str) -> bool:
        """Whether a prompt ends inside of the reasoning, at its beginning."""
        return prompt.rstrip().endswith(self.opens)

    def last_is_open(self, text: str) -> bool:
        """Whether a text that the answer continues ends inside of the reasoning."""
        opened = max(text.rfind(marker) for marker in self.opens)
        return opened > max(text.rfind(marker) for marker in self.closes)


_THINK = (("<think>",), ("</think>",))

REASONING_FORMATS = {
    name: ReasoningFormat(name, opens, closes)
    for name, (opens, closes) in {
        "qwen3": _THINK,
        "deepseek_r1": _THINK,
        "glm45": _THINK,
        "kimi_k2": _THINK,
        "minimax_m2": _THINK,
        "olmo3": _THINK,
        "mistral": (("[THINK]",), ("[/THINK]",)),
        "seed_oss": (("<seed:think>",), ("</seed:think>",)),
        "kimi_vl": (("◁think▷",), ("◁/think▷",)),
        "granite": (
            ("Here is my thought process:", "Here's my thought process:"),
            ("Here is my response:", "Here's my response:"),
        ),
    }.items()
}
