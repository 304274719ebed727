"""What MLC-LLM's modules of the protocol have besides OpenAI's requests and responses.

openai_api_protocol exports it under the same names.
"""

from __future__ import annotations

import json
import time
from typing import Any

from pydantic import BaseModel, Field

from mlc_native.errors import invalid_request
from mlc_native.protocol.chat_messages import ChatCompletionMessage
from mlc_native.protocol.conversation_protocol import Conversation


class ListResponse(BaseModel):
    """A list of objects, such as the models of a server."""

    object: str = "list"
    data: list[Any]


class ModelResponse(BaseModel):
    """A model of a server."""

    id: str
    created: int = Field(default_factory=lambda: int(time.time()))
    object: str = "model"
    owned_by: str = "MLC-LLM"


class MLCChatChecks:
    """The methods that MLC-LLM's ChatCompletionRequest has."""

    messages: list[ChatCompletionMessage]
    tool_choice: Any

    def template_tools(self) -> list[dict[str, Any]] | None:
        """The tools that the model may call."""
        raise NotImplementedError

    def check_message_validity(self) -> None:
        """Checks the roles of messages as MLC-LLM does, whose templates take fewer than others.

        Raises:
            InvalidRequest: a message stands where MLC-LLM takes none of its role.
        """
        for i, message in enumerate(self.messages):
            if message.role == "system" and i != 0:
                raise invalid_request(
                    "messages", f"System prompt at position {i} in the message list is invalid."
                )
            if message.tool_calls is not None:
                raise invalid_request(
                    "messages", "Assistant message having `tool_calls` is not supported yet."
                )

    def check_function_call_usage(self, conv_template: Conversation) -> None:
        """Writes the functions that the model may call into a conversation."""
        tools = self.template_tools()
        conv_template.use_function_calling = tools is not None
        if tools is not None:
            # MLC-LLM's order of the fields is that of their names.
            functions = [dict(sorted(tool["function"].items())) for tool in tools]
            one = isinstance(self.tool_choice, dict)
            conv_template.function_string = json.dumps(functions[0] if one else functions)


def openai_api_get_unsupported_fields(request: BaseModel) -> list[str]:
    """The names of the fields of a request whose values are not supported."""
    supported = {"best_of": (None, 1), "suffix": (None,)}
    return [
        name for name, values in supported.items() if getattr(request, name, None) not in values
    ]
