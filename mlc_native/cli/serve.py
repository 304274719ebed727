"""Serve models over HTTP, with OpenAI's interface.

The server listens at once and answers /ready with 503 until its models are loaded. The first
SIGTERM or Ctrl-C lets running requests end, the second one ends them.
"""

from __future__ import annotations

import argparse
import logging
import os
import sys
import threading
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, get_args

from mlc_native.cli.failure import FAILED, exit_status, print_error
from mlc_native.cli.overrides import (
    add_engine_flags,
    engine_config_from_flags,
    engine_config_from_overrides,
)
from mlc_native.errors import InvalidConfig, InvalidRequest, LoadError, invalid_config
from mlc_native.serve.adapters import adapter_setting_names
from mlc_native.serve.async_engine import AsyncMLCEngine
from mlc_native.serve.config import EngineConfig
from mlc_native.serve.model_setup import Mode

if TYPE_CHECKING:
    from mlc_native.server.http_server import HttpServer
    from mlc_native.server.models import ServedModel

logger = logging.getLogger(__name__)

KEY_VARIABLES = ("MLC_NATIVE_API_KEY", "MLC_NATIVE_API_KEYS")
LOCAL_HOSTS = ("127.0.0.1", "::1", "localhost")
INSTALL = 'mlc-native serve needs further packages: pip install "mlc_native[serve]"'


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of ``mlc-native serve``."""
    _add_model_flags(parser)
    _add_address_flags(parser)
    _add_access_flags(parser)
    _add_limit_flags(parser)
    group = parser.add_argument_group("logs and metrics")
    group.add_argument(
        "--enable-debug", action="store_true", help="serve /debug/*, and read debug_config"
    )
    group.add_argument(
        "--enable-log-requests", action="store_true", help="log what each request asks for"
    )
    group.add_argument(
        "--max-log-len",
        type=int,
        default=0,
        metavar="N",
        help="log this many characters of the texts of a request, too; default 0",
    )
    group.add_argument(
        "--access-log", action="store_true", help="log a line of JSON for each answer"
    )
    group.add_argument(
        "--log-level",
        default="info",
        choices=["debug", "info", "warning", "error"],
        help="default info",
    )
    group.add_argument(
        "--metrics-compat",
        default="vllm",
        choices=["vllm", "none"],
        help="default vllm: serve the metrics under the names of its dashboards, too",
    )
    add_engine_flags(parser)


def _add_model_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", nargs="?", metavar="MODEL", help="model folder, demo or hub id")
    group = parser.add_argument_group("models")
    group.add_argument(
        "--model",
        dest="models",
        action="append",
        default=[],
        metavar="NAME=MODEL[;SETTING=VALUE]",
        help="a further model by its name; may be repeated. The settings are those of its engine, "
        'such as "max_total_sequence_length": each engine takes its memory as it is loaded',
    )
    group.add_argument(
        "--embedding-model",
        metavar="MODEL[;SETTING=VALUE]",
        help="a further model, for requests for embeddings that name none",
    )
    group.add_argument(
        "--served-model-name",
        nargs="+",
        metavar="NAME",
        help='names of MODEL in requests; answers carry the first one. "*" stands for all others',
    )
    group.add_argument("--device", default="auto", help='"cpu", "cuda[:i]" or "auto"')
    group.add_argument("--model-lib", help="plug-in library that creates the model")
    group.add_argument(
        "--mode",
        default="server",
        choices=get_args(Mode),
        help="how many sequences and tokens there is room for; default server: as many as fit",
    )
    group.add_argument(
        "--overrides", default="", metavar="K=V;...", help='engine settings, "name=value;..."'
    )
    group.add_argument(
        "--enable-auto-tool-choice", action="store_true", help="for vLLM's users: it always is"
    )
    group.add_argument(
        "--enable-request-id-headers",
        action="store_true",
        help="for vLLM's users: X-Request-Id is always there",
    )
    group.add_argument("--enable-lora", action="store_true", help="for vLLM's users: it always is")
    group.add_argument(
        "--lora-modules",
        dest="adapters",
        nargs="+",
        default=argparse.SUPPRESS,
        metavar="NAME=FOLDER",
        help="as in vLLM: the same as --adapters",
    )
    group.add_argument(
        "--generation-config",
        dest="sampling_defaults",
        type=_sampling_defaults,
        default=argparse.SUPPRESS,
        metavar="{auto,vllm}",
        help='as in vLLM: "vllm" is --sampling-defaults openai, "auto" is the default',
    )
    group.add_argument("--enable-tracing", action="store_true", help="record events of requests")


def _sampling_defaults(generation_config: str) -> str:
    try:
        return {"auto": "model", "vllm": "openai"}[generation_config]
    except KeyError:
        raise argparse.ArgumentTypeError(
            f'must be "auto" or "vllm", got "{generation_config}"'
        ) from None


def _add_address_flags(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("address")
    group.add_argument(
        "--host", default="127.0.0.1", help="default 127.0.0.1; 0.0.0.0 is every network"
    )
    group.add_argument("--port", type=int, default=8000, help="default 8000; 0 takes a free one")
    group.add_argument("--uds", metavar="PATH", help="a unix socket instead of host and port")
    group.add_argument("--root-path", default="", help="prefix that a reverse proxy takes away")
    group.add_argument("--ssl-keyfile", metavar="FILE", help="private key, for HTTPS")
    group.add_argument("--ssl-certfile", metavar="FILE", help="certificate, for HTTPS")
    group.add_argument("--ssl-ca-certs", metavar="FILE", help="clients need a certificate of these")


def _add_access_flags(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("access")
    group.add_argument(
        "--api-key",
        action="append",
        default=[],
        metavar="KEY",
        help="requests need this key or another one that is given; may be repeated. Better in "
        "$MLC_NATIVE_API_KEY, or several separated by commas in $MLC_NATIVE_API_KEYS",
    )
    group.add_argument("--disable-page", action="store_true", help="no chat page at /")
    group.add_argument(
        "--trust-request-chat-template",
        action="store_true",
        help="a request may bring its own chat_template",
    )
    group.add_argument(
        "--allow-adapter-loading",
        action="store_true",
        help="requests may load adapters from folders of this machine, and unload them",
    )
    group.add_argument(
        "--metrics-key",
        default="same",
        choices=["same", "none"],
        help="whether /metrics needs a key, too; default same: as the other paths",
    )
    group.add_argument(
        "--allow-origins",
        nargs="+",
        default=[],
        metavar="ORIGIN",
        help="web pages that may call the server (CORS); default: none",
    )
    group.add_argument(
        "--allow-methods", nargs="+", metavar="METHOD", help="that those pages may use"
    )
    group.add_argument(
        "--allow-headers", nargs="+", metavar="HEADER", help="that those pages may send"
    )
    group.add_argument(
        "--allow-credentials", action="store_true", help="those pages may send cookies"
    )


def _add_limit_flags(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("limits")
    numbers = {
        "--max-concurrent-requests": (int, None, "requests that generate; more get status 429"),
        "--max-connections": (int, None, "open connections; more get status 503"),
        "--max-body-bytes": (int, 32 << 20, "of a request"),
        "--request-timeout": (float, None, "seconds that a request may take"),
        "--body-timeout": (float, 30, "seconds until the body of a request must be there"),
        "--header-timeout": (float, 10, "seconds until its headers must be there"),
        "--sse-keep-alive-interval": (float, 15, "seconds between comments in a silent stream"),
        "--stalled-reader-timeout": (
            float,
            30,
            "seconds until a client that does not read is cut off",
        ),
        "--stuck-step-timeout": (float, 120, "seconds of a step after which /health fails"),
        "--shutdown-timeout": (float, 30, "seconds that running requests have to end"),
    }
    for flag, (kind, default, text) in numbers.items():
        shown = "none" if default is None else default
        group.add_argument(flag, type=kind, default=default, help=f"{text}; default {shown}")


def run(args: argparse.Namespace) -> int:
    """Serves until a signal ends the server. Returns the exit status."""
    logging.basicConfig(level=args.log_level.upper(), format="%(levelname)s %(name)s: %(message)s")
    try:
        from mlc_native.server import http_server
    except (ModuleNotFoundError, InvalidConfig) as error:
        if isinstance(error, ModuleNotFoundError) and (error.name or "").startswith("mlc_native"):
            raise
        print(INSTALL, file=sys.stderr)
        return FAILED
    try:
        plans = list(_model_plans(args))
        server, address = _make_server(args, [model for model, _ in plans])
        with address.bind() as listener:
            print(address.url(listener), flush=True)
            loading = _Loading(plans, args, server)
            loading.start()
            http_server.serve(server, listener)
            return loading.finish()
    except (InvalidConfig, InvalidRequest, LoadError, OSError) as error:
        print_error(error)
        return exit_status(error)


Plan = tuple[str, EngineConfig]  # a model and its settings


def _model_plans(args: argparse.Namespace) -> Iterable[tuple[ServedModel, Plan]]:
    """The models to serve."""
    from mlc_native.server.models import ServedModel, served_as

    if args.model is not None:
        served = served_as(args.model, args.served_model_name or ())
        yield _planned(served, args.model, engine_config_from_flags(args))
    for text in args.models:
        name, separator, plan = text.partition("=")
        model, _, settings = plan.partition(";")
        if not separator or not name or not model:
            raise invalid_config(
                "model", f'--model must be NAME=MODEL[;SETTING=VALUE], got "{text}"'
            )
        yield _planned(ServedModel((name,)), model, engine_config_from_overrides(settings))
    if args.embedding_model is not None:
        model, _, settings = args.embedding_model.partition(";")
        served = served_as(model)
        served.embeds = True
        yield _planned(served, model, engine_config_from_overrides(settings))
    if args.model is None and not args.models and args.embedding_model is None:
        raise invalid_config("model", "name a model: mlc-native serve MODEL")


def _planned(served: ServedModel, model: str, config: EngineConfig) -> tuple[ServedModel, Plan]:
    served.first_adapters = adapter_setting_names(config.adapters)
    return served, (model, config)


def _keys(args: argparse.Namespace) -> list[str]:
    if not all(args.api_key):  # such as "$KEY" of a variable that is not set
        raise invalid_config("api_key", "--api-key must not be empty")
    single, several = (os.environ.get(variable, "") for variable in KEY_VARIABLES)
    return [key for key in [*args.api_key, single, *several.split(",")] if key]


def _make_server(args: argparse.Namespace, models: list[ServedModel]) -> Any:
    from mlc_native.server.config import ServerConfig
    from mlc_native.server.http_protocol import HttpLimits
    from mlc_native.server.http_server import Address, HttpServer
    from mlc_native.server.models import Models
    from mlc_native.server.state import ServerState

    keys = _keys(args)
    if args.host not in LOCAL_HOSTS and args.uds is None and not keys:
        logger.warning("%s is open to other machines, and there is no --api-key", args.host)
    given = {name: getattr(args, name) for name in ("allow_methods", "allow_headers")}
    config = ServerConfig(
        api_keys=keys,
        metrics_key=args.metrics_key,
        allow_origins=args.allow_origins,
        allow_credentials=args.allow_credentials,
        max_body_bytes=args.max_body_bytes,
        max_concurrent_requests=args.max_concurrent_requests,
        body_timeout_s=args.body_timeout,
        request_timeout_s=args.request_timeout,
        keep_alive_interval_s=args.sse_keep_alive_interval,
        stalled_reader_timeout_s=args.stalled_reader_timeout,
        stuck_step_timeout_s=args.stuck_step_timeout,
        metrics_compat=args.metrics_compat,
        page=not args.disable_page,
        trust_request_chat_template=args.trust_request_chat_template,
        allow_adapter_loading=args.allow_adapter_loading,
        enable_debug=args.enable_debug,
        request_log=args.enable_log_requests or args.max_log_len > 0,
        max_log_len=args.max_log_len,
        access_log=args.access_log,
        **{name: value for name, value in given.items() if value is not None},
    )
    names = ("host", "port", "uds", "root_path", "ssl_keyfile", "ssl_certfile", "ssl_ca_certs")
    address = Address(**{name: getattr(args, name) for name in names})
    limits = HttpLimits(header_timeout_s=args.header_timeout, max_connections=args.max_connections)
    state = ServerState(Models(models), config)
    return HttpServer(state, address, limits, args.shutdown_timeout), address


class _Loading:
    """Loads the models, one after the other, on a thread alongside the server."""

    def __init__(
        self, plans: list[tuple[ServedModel, Plan]], args: argparse.Namespace, server: HttpServer
    ) -> None:
        self._plans = plans
        self._args = args
        self._server = server
        self._error: BaseException | None = None
        self._ended = False
        self._thread = threading.Thread(target=self._load, name="mlc-native-load", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def _load(self) -> None:
        try:
            for model, (name, config) in self._plans:
                engine = AsyncMLCEngine(
                    name,
                    self._args.device,
                    model_lib=self._args.model_lib,
                    mode=self._args.mode,
                    engine_config=config,
                    enable_tracing=self._args.enable_tracing,
                )
                model.engine = engine
            logger.info("ready")
        except BaseException as error:
            self._error = error
            self._server.should_exit = True

    def finish(self) -> int:
        """Ends the engines. Raises the error that ended the load."""
        if self._error is not None:
            raise self._error
        for model, _ in self._plans:
            if model.engine is not None:
                model.engine.terminate()
        return 0
