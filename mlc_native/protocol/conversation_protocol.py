"""Conversation is the chat format of an MLC folder, `conv_template` in mlc-chat-config.json."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field

from mlc_native.conversation import ChatTemplate

# A Conversation as a chat template. It does not show tools, since a Conversation has none.
_SOURCE = """
{%- set found = namespace(system=conversation.system_message, last_user=-1) -%}
{%- for message in messages -%}
  {%- if message.role == "system" -%}
    {%- if not loop.first -%}
      {{- raise_exception("this model takes a system message at position 0 only, got one at "
          ~ loop.index0) -}}
    {%- endif -%}
    {%- set found.system = message.content -%}
  {%- endif -%}
  {%- if message.role == "user" %}{% set found.last_user = loop.index0 %}{% endif -%}
{%- endfor -%}
{%- set system = conversation.system_template | replace("{system_message}", found.system) -%}
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
      | replace("{function_string}", "") -}}
  {{- conversation.seps[-1 if role == "assistant" else 0] -}}
{%- endfor -%}
{%- if add_generation_prompt %}{{ conversation.roles.assistant ~ conversation.role_empty_sep }}
{%- endif -%}
"""
_ROLE_TEMPLATES = {
    "user": "{user_message}",
    "assistant": "{assistant_message}",
    "tool": "{tool_message}",
}


class Conversation(BaseModel):
    """The rules by which messages become a prompt.

    The prompt consists of the tokens of ``system_prefix_token_ids``, ``system_template`` with the
    system message, and for each message the name of its role, ``role_content_sep``, the role's
    template with the content, and a separator: ``seps[1]``, if given, after the assistant, and
    ``seps[0]`` otherwise. It ends with the assistant's name and ``role_empty_sep``. Without
    ``add_role_after_system_message``, the first message after a system message has no role name.
    """

    model_config = ConfigDict(extra="ignore")

    name: str | None = None
    system_template: str = "{system_message}"
    system_message: str = ""
    system_prefix_token_ids: list[int] | None = None
    add_role_after_system_message: bool = True
    roles: dict[str, str]
    role_templates: dict[str, str] = Field(default_factory=dict)
    seps: list[str] = Field(min_length=1, max_length=2)
    role_content_sep: str = ""
    role_empty_sep: str = ""
    stop_str: list[str] = Field(default_factory=list)
    stop_token_ids: list[int] = Field(default_factory=list)
    strip_reasoning_in_history: bool = False

    def model_post_init(self, _context: object) -> None:
        """Completes the roles' templates."""
        self.role_templates = {**_ROLE_TEMPLATES, **self.role_templates}

    def chat_template(self, prefix: str) -> ChatTemplate:
        """Returns its chat template. ``prefix`` is the text of ``system_prefix_token_ids``."""
        variables = {"conversation": self.model_dump(), "prefix": prefix}
        shape = self.model_dump_json() + ("</think>" if self.strip_reasoning_in_history else "")
        return ChatTemplate(_SOURCE, variables=variables, stop_strs=self.stop_str, shape=shape)
