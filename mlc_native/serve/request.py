"""Request is a validated request, made by ``create_request`` of an engine. Immutable.

Attributes: ``id``; ``inputs``, lists of token ids; ``generation_config``, a copy with the model's
defaults filled in; ``prompt_len`` in tokens.
"""

from mlc_native._core import Request

__all__ = ["Request"]
