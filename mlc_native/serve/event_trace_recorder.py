"""EventTraceRecorder records the events of each request as Chrome trace JSON.

``add_event(request_id, event)`` records "start X" and "finish X" as a span and any other event as
an instant. ``dump_json()`` returns the trace for chrome://tracing or Perfetto. The recorder is
bounded (the oldest events are dropped first) and thread-safe; a dump may be taken at any time.
"""

from mlc_native._core import EventTraceRecorder

__all__ = ["EventTraceRecorder"]
