"""ReasoningFormat: how a family of models marks the text that it thinks in."""

from __future__ import annotations

from dataclasses import dataclass

from mlc_native.parsers.harmony import ANALYSIS, CHANNEL, CONSTRAIN, ENDS, MESSAGE, START


@dataclass(frozen=True)
class ReasoningFormat:
    """The reasoning is between an opening and a closing text, mostly at the beginning of an answer.

    The opening text may be the end of the prompt instead of the beginning of the answer.

    Attributes:
        name: the name in ``reasoning_parser``.
        opens: the opening text; further spellings follow the usual one.
        closes: the same of the closing text.
        answer: the text between the prompt and an answer without reasoning; empty for most.
        in_messages: the answer is a list of messages (``harmony``), some of which are reasoning.
        others: further texts that are no part of the content.
    """

    name: str
    opens: tuple[str, ...]
    closes: tuple[str, ...]
    answer: str = ""
    in_messages: bool = False
    others: tuple[str, ...] = ()

    @property
    def texts(self) -> list[str]:
        """All texts that mark reasoning."""
        return [*self.opens, *self.closes, *self.others]

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
        "gemma4": (("<|channel>thought",), ("<channel|>",)),
    }.items()
} | {
    "harmony": ReasoningFormat(
        "harmony",
        opens=(f"{CHANNEL}{ANALYSIS}{MESSAGE}",),
        closes=ENDS[:1],
        answer=f"{CHANNEL}final{MESSAGE}",
        in_messages=True,
        others=(START, CONSTRAIN, *ENDS),
    )
}
