"""Conversation is the chat format of an MLC folder, `conv_template` in mlc-chat-config.json."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import Any, Self

from pydantic import BaseModel, ConfigDict, Field

from mlc_native.conversation import ChatTemplate
from mlc_native.errors import invalid_request


class MessagePlaceholders(Enum):
    """Where the templates of a Conversation take texts."""

    SYSTEM = "{system_message}"
    USER = "{user_message}"
    ASSISTANT = "{assistant_message}"
    TOOL = "{tool_message}"
    FUNCTION = "{function_string}"


# A Conversation as a chat template. ``function_string`` is shown at its last place.
_SOURCE = """
{%- set function = "{function_string}" -%}
{%- set found = namespace(system=conversation.system_message, last_user=-1, last_function=-1) -%}
{%- for message in messages -%}
  {%- if message.role == "system" -%}
    {%- if not loop.first -%}
      {{- raise_exception("this model takes a system message at position 0 only, got one at "
          ~ loop.index0) -}}
    {%- endif -%}
    {%- set found.system = message.content -%}
  {%- endif -%}
  {%- if message.role == "user" %}{% set found.last_user = loop.index0 %}{% endif -%}
  {%- if function in conversation.role_templates[message.role] | default("") -%}
    {%- set found.last_function = loop.index0 -%}
  {%- endif -%}
{%- endfor -%}
{%- set system = conversation.system_template | replace("{system_message}", found.system)
    | replace(function, conversation.function_string if found.last_function < 0 else "") -%}
{{- prefix ~ system -}}
{%- set first = namespace(turn=true) -%}
{%- for message in messages -%}
  {%- set role = message.role -%}
  {%- if role == "system" %}{% continue %}{% endif -%}
  {%- if role not in conversation.roles -%}
    {{- raise_exception("this model has no role " ~ role) -}}
  {%- endif -%}
  {%- set content = message.content -%}
  {%- if conversation.strip_reasoning_in_history and role == "assistant"
      and loop.index0 < found.last_user and "</think>" in content -%}
    {%- set content = content.split("</think>")[-1].lstrip("\n") -%}
  {%- endif -%}
  {%- if conversation.add_role_after_system_message or not system or not first.turn -%}
    {{- conversation.roles[role] ~ conversation.role_content_sep -}}
  {%- endif -%}
  {%- set first.turn = false -%}
  {{- conversation.role_templates[role] | replace("{" ~ role ~ "_message}", content)
      | replace(function, conversation.function_string if loop.index0 == found.last_function
      else "") -}}
  {{- conversation.seps[-1 if role == "assistant" else 0] -}}
{%- endfor -%}
{%- if add_generation_prompt %}{{ conversation.roles.assistant ~ conversation.role_empty_sep }}
{%- endif -%}
"""
# Fields that say nothing about how a model writes.
_NO_SHAPE = {"messages", "function_string", "use_function_calling"}
_MLC_ROLES = ("user", "assistant", "tool")


class Conversation(BaseModel):
    """The rules by which messages become a prompt.

    The prompt consists of the tokens of ``system_prefix_token_ids``, ``system_template`` with the
    system message, and for each message the name of its role, ``role_content_sep``, the role's
    template with the content, and a separator: ``seps[1]``, if given, after the assistant, and
    ``seps[0]`` otherwise. It ends with the assistant's name and ``role_empty_sep``. Without
    ``add_role_after_system_message``, the first message after a system message has no role name.

    For MLC-LLM's users it also holds a history: ``messages`` are pairs of a role and a content,
    which is None for the answer to come, and ``as_prompt`` is their prompt.
    """

    model_config = ConfigDict(extra="ignore")

    name: str | None = None
    system_template: str = "{system_message}"
    system_message: str = ""
    system_prefix_token_ids: list[int] | None = None
    add_role_after_system_message: bool = True
    roles: dict[str, str]
    role_templates: dict[str, str] = Field(default_factory=dict)
    messages: list[tuple[str, str | list[dict[str, Any]] | None]] = Field(default_factory=list)
    seps: list[str] = Field(min_length=1, max_length=2)
    role_content_sep: str = ""
    role_empty_sep: str = ""
    stop_str: list[str] = Field(default_factory=list)
    stop_token_ids: list[int] = Field(default_factory=list)
    strip_reasoning_in_history: bool = False
    function_string: str = ""
    use_function_calling: bool = False

    def model_post_init(self, _context: object) -> None:
        """Completes the roles' templates."""
        whole = {role: f"{{{role}_message}}" for role in (*_MLC_ROLES, *self.roles)}
        self.role_templates = {**whole, **self.role_templates}

    def chat_template(self, prefix: str) -> ChatTemplate:
        """Returns its chat template. ``prefix`` is the text of ``system_prefix_token_ids``."""
        variables = {"conversation": self.model_dump(exclude={"messages"}), "prefix": prefix}
        shape = self.model_dump_json(exclude=_NO_SHAPE)
        shape += "</think>" if self.strip_reasoning_in_history else ""
        return ChatTemplate(_SOURCE, variables=variables, stop_strs=self.stop_str, shape=shape)

    def as_prompt(self, config: object = None) -> list[str]:
        """Returns the prompt of ``messages`` as a list of one text.

        The text of ``system_prefix_token_ids`` is no part of it. ``config`` is MLC-LLM's, for
        images, and not used.

        Raises:
            InvalidRequest: a role is not known, or a content is no text.
        """
        history, opens = list(self.messages), False
        if history and history[-1] == ("assistant", None):
            del history[-1]
            opens = True
        messages = [{"role": role, "content": _text(content)} for role, content in history]
        return [self.chat_template("").render(messages, add_generation_prompt=opens)]

    def to_json_dict(self) -> dict[str, Any]:
        """Returns the fields that are not None."""
        return self.model_dump(exclude_none=True)

    @classmethod
    def from_json_dict(cls, json_dict: dict[str, Any]) -> Self:
        """The reverse of ``to_json_dict``."""
        return cls.model_validate(json_dict)


def _text(content: str | Sequence[dict[str, Any]] | None) -> str:
    if content is None:
        raise invalid_request("messages", "only the last message, the assistant's, may be None")
    if isinstance(content, str):
        return content
    for part in content:
        if part.get("type") != "text" or not isinstance(part.get("text"), str):
            raise invalid_request("messages", f"Unsupported content type: {part.get('type')}")
    return "".join(part["text"] for part in content)
