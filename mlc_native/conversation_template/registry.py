"""ConvTemplateRegistry: conversations by name. Any thread may read; register before that."""

from __future__ import annotations

from typing import ClassVar

from mlc_native.conversation_template.templates import TEMPLATES
from mlc_native.errors import invalid_config
from mlc_native.protocol.conversation_protocol import Conversation


class ConvTemplateRegistry:
    """The conversations of ``TEMPLATES`` and those that a program registers."""

    _templates: ClassVar[dict[str, Conversation]] = {
        name: Conversation(name=name, **fields) for name, fields in TEMPLATES.items()
    }

    @classmethod
    def register_conv_template(cls, conv_template: Conversation, override: bool = False) -> None:
        """Adds a conversation under its name. ``override`` replaces one of the same name.

        Raises:
            InvalidConfig: it has no name, or the name is in use.
        """
        name = conv_template.name
        if name is None:
            raise invalid_config("name", "a conversation needs a name to be registered")
        if name in cls._templates and not override:
            raise invalid_config("name", f'the name "{name}" is in use; override=True replaces it')
        cls._templates[name] = conv_template.model_copy(deep=True)

    @classmethod
    def get_conv_template(cls, name: str) -> Conversation | None:
        """Returns a copy of a conversation, without messages; None if there is none."""
        found = cls._templates.get(name)
        return None if found is None else found.model_copy(deep=True)

    @classmethod
    def names(cls) -> list[str]:
        """All names, sorted."""
        return sorted(cls._templates)
