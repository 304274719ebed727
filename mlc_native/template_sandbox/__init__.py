"""The sandbox of chat templates: what they may use, and what of a prompt they wrote."""

from mlc_native.template_sandbox.budget import Limits, TemplateLimitError
from mlc_native.template_sandbox.chat import MAX_REASON, chat_environment
from mlc_native.template_sandbox.prompt_text import PromptText

__all__ = ["MAX_REASON", "Limits", "PromptText", "TemplateLimitError", "chat_environment"]
