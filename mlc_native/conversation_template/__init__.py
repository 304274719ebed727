"""Chat formats by MLC-LLM's names."""

from mlc_native.conversation_template.registry import ConvTemplateRegistry
from mlc_native.protocol.conversation_protocol import Conversation

__all__ = ["ConvTemplateRegistry", "Conversation"]
