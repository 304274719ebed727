"""The chat templates of templates.py in the C++ renderer alone, which refuses some of them."""

from __future__ import annotations

from hostile import templates
from hostile.frame import HostileClass


def hostile_class() -> HostileClass:
    """The class."""
    cases = templates.hostile_class().cases
    return HostileClass("native_templates", cases, _attempt, cpu_s=0.3, memory_mib=64, sample=120)


def _attempt(source: str) -> str:
    from mlc_native.template_sandbox import Limits, TemplateLimitError
    from mlc_native.template_sandbox.native import NativeTemplate, TemplateRaisedError

    template = NativeTemplate.compile(source)
    given = {"messages": templates.MESSAGES, "tools": templates.TOOLS, "enable_thinking": True}
    try:
        text = None if template is None else template.render(given, {}, Limits(), trusted=False)
    except (TemplateLimitError, TemplateRaisedError):
        return "refused"
    assert text is None or templates.SECRET not in text, "it reads the environment"
    return "refused" if text is None else "served"
