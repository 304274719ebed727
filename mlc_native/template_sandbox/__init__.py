"""The sandbox of chat templates: what they may use, and what of a prompt they wrote.

Nothing here brings jinja2, which ``chat`` imports for the templates that the C++ renderer leaves.
"""

from mlc_native.template_sandbox.limits import MAX_REASON, Limits, TemplateLimitError
from mlc_native.template_sandbox.prompt_text import PromptText

__all__ = ["MAX_REASON", "Limits", "PromptText", "TemplateLimitError"]
