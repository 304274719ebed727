"""EventTraceRecorder: what happened to each request and when, as Chrome trace JSON.

``add_event(request_id, event)`` records "start X", "finish X" (a span) or anything else (an
instant); ``dump_json()`` returns the trace for chrome://tracing or Perfetto. Bounded (the oldest
events go first), thread-safe, and a dump may be taken while events come in.
"""

from mlc_native._core import EventTraceRecorder

__all__ = ["EventTraceRecorder"]
