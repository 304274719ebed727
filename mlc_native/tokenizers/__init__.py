"""Text to token ids and back, whole or streaming."""

from mlc_native.tokenizers.streamer import StopStrHandler, TextStreamer
from mlc_native.tokenizers.tokenizers import Tokenizer, TokenizerInfo

__all__ = ["StopStrHandler", "TextStreamer", "Tokenizer", "TokenizerInfo"]
