"""ServerConfig: what a server allows, and how long it waits."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Literal

from mlc_native.errors import invalid_config


def check_positive(settings: object, names: Iterable[str]) -> None:
    """Raises InvalidConfig for the first of the settings that is not None and not above 0."""
    for name in names:
        value = getattr(settings, name)
        if value is not None and not value > 0:
            raise invalid_config(name, f'"{name}" must be above 0, got {value!r}')


_POSITIVE = (
    *("max_body_bytes", "max_json_depth", "max_prompts", "max_stop_strings"),
    *("max_concurrent_requests", "body_timeout_s", "request_timeout_s"),
    *("keep_alive_interval_s", "stalled_reader_timeout_s", "stuck_step_timeout_s"),
)
_MAX_TIMEOUT_S = 1e9  # of a request's timeout_s


@dataclass(frozen=True, kw_only=True)
class ServerConfig:
    """Settings of ``create_app``. Times are in seconds; ``None`` is no limit.

    Raises:
        InvalidConfig: a value is out of range; it is named.

    Attributes:
        api_keys: a request must carry one of them as ``Authorization: Bearer KEY`` or
            ``x-api-key: KEY``, except for ``/health``, ``/ready``, ``/ping`` and the page.
            Empty: no key.
        metrics_key: "same" guards ``/metrics``, too; "none" leaves it open.
        allow_origins: origins of web pages that may call the server, "*" for all. Empty: CORS off.
        allow_methods: methods that those pages may use.
        allow_headers: headers that those pages may send, "*" for all. OpenAI's and Anthropic's
            clients for browsers send some of their own.
        allow_credentials: those pages may send cookies.
        max_body_bytes: size of a request.
        max_json_depth: objects and arrays within each other.
        max_prompts: prompts of one request to ``/v1/completions``, or texts of one that compares
            or embeds them.
        max_stop_strings: texts in ``stop``.
        max_concurrent_requests: requests that generate at the same time; more get status 429.
        body_timeout_s: until the body of a request must have arrived; each 64 KiB add a second.
        request_timeout_s: the longest that a request may take, (0, 1e9]; also the ``timeout_s`` of
            requests without one.
        keep_alive_interval_s: a stream without an event for this long gets a comment.
        stalled_reader_timeout_s: a client that takes nothing of its stream for this long is cut
            off, and its request ends.
        stuck_step_timeout_s: ``/health`` fails when a step of an engine takes longer.
        metrics_compat: "vllm" adds metrics with the names of vLLM's dashboards.
        page: serve the chat page at ``/``, which needs no key.
        trust_request_chat_template: a request may bring its own ``chat_template``, which runs in
            the sandbox of all templates.
        allow_adapter_loading: serve ``/v1/load_lora_adapter`` and ``/v1/unload_lora_adapter``. A
            client that may load adapters can find out which folders the machine has.
        enable_debug: serve MLC-LLM's ``/debug/*``, honour ``debug_config`` of requests, and put the
            times of a request into ``usage.extra``.
        request_log: log what each request asks for as a line of JSON, to the logger
            ``mlc_native.requests``, without its texts.
        max_log_len: log this many characters of the texts of a request, too.
        access_log: log a line of JSON for each request, to the logger ``mlc_native.access``.
    """

    api_keys: Sequence[str] = field(default=(), repr=False)
    metrics_key: Literal["same", "none"] = "same"
    allow_origins: Sequence[str] = ()
    allow_methods: Sequence[str] = ("GET", "POST")
    allow_headers: Sequence[str] = ("*",)
    allow_credentials: bool = False
    max_body_bytes: int = 32 << 20
    max_json_depth: int = 64
    max_prompts: int = 2048
    max_stop_strings: int = 16
    max_concurrent_requests: int | None = None
    body_timeout_s: float = 30
    request_timeout_s: float | None = None
    keep_alive_interval_s: float = 15
    stalled_reader_timeout_s: float = 30
    stuck_step_timeout_s: float = 120
    metrics_compat: Literal["vllm", "none"] = "vllm"
    page: bool = True
    trust_request_chat_template: bool = False
    allow_adapter_loading: bool = False
    enable_debug: bool = False
    request_log: bool = False
    max_log_len: int = 0
    access_log: bool = False

    def __post_init__(self) -> None:
        check_positive(self, _POSITIVE)
        if self.request_timeout_s is not None and self.request_timeout_s > _MAX_TIMEOUT_S:
            raise invalid_config(
                "request_timeout_s",
                f'"request_timeout_s" must be in (0, 1e9] seconds, got {self.request_timeout_s!r}',
            )
        if self.max_log_len < 0:
            raise invalid_config(
                "max_log_len", f'"max_log_len" must be 0 or more, got {self.max_log_len!r}'
            )
        if isinstance(self.api_keys, str) or not all(self.api_keys):
            raise invalid_config(
                "api_keys", '"api_keys" must be a list of texts that are not empty'
            )
        for name in ("allow_origins", "allow_methods", "allow_headers"):
            value = getattr(self, name)
            if isinstance(value, str):  # its characters would be taken for the entries
                raise invalid_config(name, f'"{name}" must be a list of texts, got {value!r}')
        for name, allowed in (
            ("metrics_key", ("same", "none")),
            ("metrics_compat", ("vllm", "none")),
        ):
            value = getattr(self, name)
            if value not in allowed:
                raise invalid_config(
                    name, f'"{name}" must be one of {list(allowed)}, got {value!r}'
                )
