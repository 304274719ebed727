"""Types of pyx/text_event.pyx; tests/python/test_stub.py compares the names."""

class TextEvent:
    """An event of a stream whose JSON is the same every time except for one text."""

    def __init__(self, *parts: bytes) -> None: ...
    def write(self, text: str) -> bytes:
        """The event with a text. A lone surrogate becomes its escape."""
