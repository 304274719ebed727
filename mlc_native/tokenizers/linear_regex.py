"""Which regular expressions of a tokenizer take a time that grows as the text does.

The tokenizers package runs them by backtracking. A pattern such as ``(a+)+$`` takes a time that
doubles with each character, and one such as ``a+b`` the square of the text. The patterns of model
families are of a few forms that do neither:

* a branch in which at most a bounded beginning can fail: after its first part that is repeated
  without bound, everything is optional, as in `` ?[^\\s\\p{L}]+[\\r\\n]*``;
* a branch that can fail behind such a part, as in ``\\s+(?!\\S)``, followed by one that then takes
  all of what the part took, as ``\\s+`` does.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

_MAX_CHOICES = 4096  # ways in which the bounded beginning of a branch can match
_MAX_REPEATS = 1000
_ESCAPE = re.compile(
    r"\\(?:[pP]\{\^?\w+\}|x\{[0-9A-Fa-f]+\}|x[0-9A-Fa-f]{2}|u[0-9A-Fa-f]{4}|.)", re.S
)
_QUANTIFIER = re.compile(r"([?*+])([?+]?)|\{(\d*)(,?)(\d*)\}")
_GROUP = re.compile(r"\((\?(?:[imsx]*:|!|=))?")
_WITHOUT_WIDTH = {"\\b", "\\B", "\\A", "\\z", "\\Z", "\\G", "^", "$"}
_REFUSED_ESCAPES = re.compile(r"\\[1-9kgKXR]")


class _NotLinearError(Exception):
    pass


@dataclass
class _Part:
    """An atom with its quantifier. ``most`` None: without bound. ``choices``: ways to match."""

    text: str
    least: int = 1
    most: int | None = 1
    choices: int = 1


@dataclass
class _Branch:
    parts: list[_Part] = field(default_factory=list)

    def first_unbounded(self) -> int | None:
        """The position of the first part that is repeated without bound."""
        found = (i for i, part in enumerate(self.parts) if part.most is None)
        return next(found, None)

    def choices(self) -> int:
        """The ways in which the bounded beginning can match."""
        product = 1
        for part in self.parts[: self.first_unbounded()]:
            product *= part.choices
            if product > _MAX_CHOICES:
                raise _NotLinearError
        return product


def is_linear(pattern: str, *, skips_runs: bool = False) -> bool:
    """Whether a pattern surely takes a time that grows as the text does. False: it is not known.

    ``skips_runs``: what finds the matches tries a repeated class before a look, as in ``\\s+$``,
    once in each run of the class, as C++ does.
    """
    try:
        branches, end = _branches(pattern, 0)
        if skips_runs and end == len(pattern) and len(branches) == 1 and _is_run(branches[0]):
            return True
        return end == len(pattern) and all(
            _cannot_fail(branch) or _has_fallback(branch, branches[i + 1 :])
            for i, branch in enumerate(branches)
        )
    except _NotLinearError:
        return False


def _is_run(branch: _Branch) -> bool:
    looks = branch.parts[1:]
    return branch.first_unbounded() == 0 and all(
        part.text in ("$", "\\z") or part.text.startswith(("(?!", "(?=")) for part in looks
    )


def _cannot_fail(branch: _Branch) -> bool:
    branch.choices()
    first = branch.first_unbounded()
    return first is None or all(part.least == 0 for part in branch.parts[first + 1 :])


def _has_fallback(branch: _Branch, later: list[_Branch]) -> bool:
    """Whether a later branch takes what this one took in vain."""
    first = branch.first_unbounded()
    assert first is not None
    rest = branch.parts[first + 1 :]
    # One part can fail, and only once: what follows it is optional.
    if not rest or rest[0].choices > 1 or any(part.least > 0 for part in rest[1:]):
        return False
    if any(part.most is None for part in rest[1:]) and rest[0].most is None:
        return False
    for other in later:
        if not _begins_alike(other, branch):
            return False  # it might take less, and leave the rest to be tried again
        if _cannot_fail(other):
            return True
    return False


def _begins_alike(one: _Branch, other: _Branch) -> bool:
    """Whether both repeat the same thing without bound, behind the same beginning."""
    ends = one.first_unbounded(), other.first_unbounded()
    if ends[0] is None or ends[1] is None or one.parts[ends[0]].text != other.parts[ends[1]].text:
        return False
    begins = [
        [(part.text, part.least, part.most) for part in branch.parts[:end]]
        for branch, end in zip((one, other), ends, strict=True)
    ]
    return begins[0] == begins[1]


# ------------------------------------------------------------------------------------ the parser


def _branches(pattern: str, at: int) -> tuple[list[_Branch], int]:
    """The branches up to the end or a closing parenthesis."""
    branches = [_Branch()]
    while at < len(pattern) and pattern[at] != ")":
        if pattern[at] == "|":
            branches.append(_Branch())
            at += 1
            continue
        part, at = _atom(pattern, at)
        at = _quantify(pattern, at, part)
        branches[-1].parts.append(part)
    return branches, at


def _atom(pattern: str, at: int) -> tuple[_Part, int]:
    if pattern[at] == "(":
        return _group(pattern, at)
    if pattern[at] == "[":
        end = _end_of_class(pattern, at)
        return _Part(pattern[at:end]), end
    if pattern[at] == "\\":
        escape = _ESCAPE.match(pattern, at)
        if escape is None or _REFUSED_ESCAPES.match(escape[0]):
            raise _NotLinearError
        return _Part(escape[0]), escape.end()
    if pattern[at] in "*+?{":
        raise _NotLinearError
    return _Part(pattern[at]), at + 1


def _group(pattern: str, at: int) -> tuple[_Part, int]:
    """A group, in which everything is bounded."""
    opening = _GROUP.match(pattern, at)
    assert opening is not None
    if pattern.startswith("(?", at) and opening[1] is None:
        raise _NotLinearError
    branches, end = _branches(pattern, opening.end())
    if end >= len(pattern) or any(branch.first_unbounded() is not None for branch in branches):
        raise _NotLinearError
    choices = sum(branch.choices() for branch in branches)
    return _Part(pattern[at : end + 1], choices=choices), end + 1


def _end_of_class(pattern: str, at: int) -> int:
    depth = 0
    while at < len(pattern):
        if pattern[at] == "\\":
            at += 2
            continue
        depth += (pattern[at] == "[") - (pattern[at] == "]")
        at += 1
        if depth == 0:
            return at
    raise _NotLinearError


def _quantify(pattern: str, at: int, part: _Part) -> int:
    """Reads the quantifier of a part. Returns where it ends."""
    found = _QUANTIFIER.match(pattern, at)
    if found is None:
        return at
    if part.text in _WITHOUT_WIDTH or part.text.startswith(("(?!", "(?=")):
        raise _NotLinearError
    if found[1]:
        if found[2] == "?":  # as few as possible: what follows decides
            raise _NotLinearError
        part.least, part.most = {"?": (0, 1), "*": (0, None), "+": (1, None)}[found[1]]
    else:
        part.least = int(found[3] or 0)
        part.most = part.least if not found[4] else int(found[5]) if found[5] else None
        if max(part.least, part.most or 0) > _MAX_REPEATS:
            raise _NotLinearError
    if part.most is None:
        if part.text.startswith("("):
            raise _NotLinearError
        return found.end()
    each = part.choices
    part.choices = 0
    for count in range(part.least, part.most + 1):
        part.choices += each**count
        if part.choices > _MAX_CHOICES:
            raise _NotLinearError
    return found.end()
