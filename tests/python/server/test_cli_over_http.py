"""``mlc-native chat --url`` and ``bench`` against a live server, and their HTTP client."""

from __future__ import annotations

import asyncio
import io
import itertools
import json
import random
import socket
import sys
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from mlc_native.cli.http_response import ResponseParser, ServerUrl, error_of
from mlc_native.cli.load import (
    Outcome,
    Schedule,
    dataset_prompts,
    percentiles,
    run_load,
    summarize,
)
from mlc_native.cli.main import main
from mlc_native.errors import InvalidConfig, InvalidRequest, QueueFull
from mlc_native.server import ServerConfig

ANSWER = "Hello!"
Serve = Callable[..., Any]
BENCH = ("--num-requests", "6", "--warmup", "1", "--prompt-tokens", "8", "--output-tokens", "5")


@pytest.fixture
def chat(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Callable[..., tuple[int, str, str]]:
    """chat(url, input, *arguments) -> (status, stdout, stderr)."""

    def run(url: str, text: str, *arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "stdin", io.StringIO(text))
        status = main(["chat", "--url", url, *arguments])
        return (status, *capsys.readouterr())

    return run


# ---- chat --url ----


def test_a_chat_with_a_server(serve: Serve, chat: Callable[..., Any]) -> None:
    server = serve(answer=ANSWER)
    assert chat(server.url, "hi\nagain\n") == (0, f"{ANSWER}\n{ANSWER}\n", "")
    status, out, err = chat(server.url + "/v1", "hi\n/set temperature=0\n/stats\n/undo\n", "fake")
    assert (status, out) == (0, f"{ANSWER}\n")
    assert "answer 7 tokens" in err  # with the end of the sequence
    assert "ttft_s" in err
    assert "forgotten: hi" in err


def test_a_chat_needs_the_key(serve: Serve, chat: Callable[..., Any]) -> None:
    server = serve(ServerConfig(api_keys=["secret"]), answer=ANSWER)
    status, out, err = chat(server.url, "hi\n")
    assert (status, out) == (1, "")
    assert "status 401" in err
    assert chat(server.url, "hi\n", "--api-key", "secret") == (0, f"{ANSWER}\n", "")


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("/set temperature=-1\n", "should be non-negative"),
        ("/set nothing=1\n", 'no setting "nothing"'),
        ("/metrics\n", "under /metrics"),
    ],
)
def test_errors_of_a_chat(serve: Serve, chat: Callable[..., Any], line: str, message: str) -> None:
    status, out, err = chat(serve(answer=ANSWER).url, f"{line}hi\n")
    assert (status, out) == (1, f"{ANSWER}\n")
    assert message in err


def event(**choice: Any) -> str:
    return f"data: {json.dumps({'choices': [choice]})}\n\n"


GOOD = event(index=0, delta={"content": ANSWER}, finish_reason="stop")
CUT = event(index=0, delta={"content": ANSWER})


class _Bare(BaseHTTPRequestHandler):
    """A server that sends the same answer, whatever it is asked."""

    models = '{"data": [{"id": "bare"}]}'
    answer = GOOD + "data: [DONE]\n\n"
    kind = ""

    def log_message(self, *_arguments: object) -> None:
        pass

    def do_GET(self) -> None:
        self._send(self.models)

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["content-length"]))
        self._send(self.answer)

    def _send(self, text: str) -> None:
        self.send_response(200)
        if self.kind:
            self.send_header("content-type", self.kind)
        self.end_headers()
        self.wfile.write(text.encode())


@contextmanager
def bare_server(**attributes: str) -> Iterator[str]:
    """The URL of a _Bare with these attributes."""
    handler = type("Handler", (_Bare,), attributes)
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as bare:
        thread = threading.Thread(target=bare.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{bare.server_port}"
        finally:
            bare.shutdown()
            thread.join()


def test_statistics_of_a_server_that_has_none(chat: Callable[..., Any]) -> None:
    with bare_server() as url:
        status, out, err = chat(url, "/stats\nhi\n/stats\n", "--stats")
    assert (status, out) == (0, f"{ANSWER}\n")
    assert err == "no answer yet\n" + 2 * "[no token counts of the last answer]\n"


@pytest.mark.parametrize(
    "answer",
    [
        GOOD,  # without [DONE]
        CUT + "data: [DONE]\n\n",
        'data: {"choices": null, "usage": [1]}\n\n' + GOOD,
        'data: {"choices": [1, {"delta": 2}]}\n\n' + GOOD,
        GOOD + 'data: {"usage": {"completion_tokens": "x"}}\n\n',
    ],
)
def test_answers_that_lack_something(chat: Callable[..., Any], answer: str) -> None:
    with bare_server(answer=answer, kind="text/event-stream; charset=utf-8") as url:
        assert chat(url, "hi\n") == (0, f"{ANSWER}\n", "")


@pytest.mark.parametrize(
    ("attributes", "message"),
    [
        ({"answer": "data: null\n\n"}, "no JSON object: null"),
        ({"answer": "data: {bad\n\n"}, "no JSON object: {bad"),
        ({"answer": f"data: {'[' * 100_000}\n\n"}, "no JSON object: [[["),
        ({"answer": CUT}, "ended its answer without a finish reason"),
        ({"kind": "text/html", "answer": "<p>"}, 'sent "text/html" and no stream of events'),
        ({"kind": "application/json", "answer": "{}"}, "no stream of events"),
        ({"models": "<p>"}, "no list of models: <p>"),
        ({"models": "{}"}, "no list of models: {}"),
    ],
)
def test_servers_that_send_something_else(
    chat: Callable[..., Any],
    capsys: pytest.CaptureFixture[str],
    attributes: dict[str, str],
    message: str,
) -> None:
    with bare_server(**attributes) as url:
        status, _, err = chat(url, "hi\n")
        assert status == 1
        assert err.startswith("error: the server ")
        assert message in err
        if attributes != {"answer": CUT}:
            assert main(["bench", "--url", url, *BENCH]) == 1
            assert message in capsys.readouterr().err


def test_chats_that_cannot_begin(
    serve: Serve, chat: Callable[..., Any], capsys: pytest.CaptureFixture[str]
) -> None:
    status, _, err = chat(serve(answer=ANSWER).url, "hi\n", "other")
    assert status == 2
    assert 'no model "other"' in err
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))  # then nothing listens on this port
        address = f"127.0.0.1:{closed.getsockname()[1]}"
        status, _, err = chat(f"http://{address}", "hi\n")
        assert (status, err) == (1, f"error: no connection to {address}: Connection refused\n")
        assert main(["bench", "--url", f"http://{address}"]) == 1
    assert f"error: no connection to {address}: " in capsys.readouterr().err


# ---- bench ----


@pytest.mark.parametrize("endpoint", ["completions", "chat"])
@pytest.mark.parametrize("load", [("--concurrency", "3"), ("--request-rate", "500")])
def test_a_bench_of_a_server(
    serve: Serve, capsys: pytest.CaptureFixture[str], endpoint: str, load: tuple[str, ...]
) -> None:
    url = serve().url
    status = main(["bench", "--url", url, "--endpoint", endpoint, *load, *BENCH, "--json"])
    figures = json.loads(capsys.readouterr().out)
    assert status == 0
    assert (figures["requests"], figures["failed"]) == (6, 0)
    assert figures["completion_tokens"] == 30
    assert figures["model"] == "fake"
    assert figures["output_tokens_per_s"] == pytest.approx(30 / figures["seconds"])
    for name in ("ttft_ms", "end_to_end_ms"):
        assert 0 < figures[name]["p50"] <= figures[name]["p99"] <= figures[name]["max"]
    assert figures["end_to_end_ms"]["p50"] >= figures["ttft_ms"]["p50"]


def test_a_bench_of_an_engine_and_a_data_set(
    make_model: Callable[..., str],
    fake_lib: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    lines = [{"messages": [{"role": "user", "content": "a"}]}, {"body": {"prompt": "b"}}]
    for i, line in enumerate(lines):
        path = tmp_path / f"{i}.jsonl"
        path.write_text(json.dumps(line) + "\n")
        command = ["bench", make_model(), "--model-lib", fake_lib, "--dataset", str(path), *BENCH]
        assert main(command) == 0
        out = capsys.readouterr().out
        assert "30 output tokens" in out
        assert "ttft_ms" in out


@pytest.mark.parametrize("name", ["content", "reasoning_content", "reasoning"])
def test_every_kind_of_text_counts(name: str) -> None:
    class Server:
        async def stream(self, _fields: Any) -> AsyncIterator[Any]:
            for text in ("", "a", "b"):
                yield {"choices": [{"index": 0, "delta": {name: text}}]}

        async def close(self) -> None:
            pass

    (outcome,), _ = asyncio.run(run_load(Server(), iter([{}]), Schedule(1, None, 1)))
    assert outcome.ttft_s is not None
    assert len(outcome.gaps_s) == 1


def test_a_bench_counts_what_fails(serve: Serve, capsys: pytest.CaptureFixture[str]) -> None:
    status = main(["bench", "--url", serve().url, *BENCH, "--set", "top_p=7", "--json"])
    out, err = capsys.readouterr()
    assert status == 1
    assert json.loads(out)["failed"] == 6
    assert "in range [0, 1]" in err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--concurrency", "0"), "must be an integer of at least 1"),
        (("--request-rate", "0"), "must be a number greater than 0"),
        (("--prompt-tokens", "many"), 'got "many"'),
    ],
)
def test_flags_name_their_ranges(
    capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], message: str
) -> None:
    with pytest.raises(SystemExit) as exit_status:
        main(["bench", *arguments])
    assert exit_status.value.code == 2
    assert message in capsys.readouterr().err


def test_benches_that_cannot_begin(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bad = tmp_path / "bad"
    bad.write_text('{"no prompt": 1}')
    for arguments, message, status in (
        ((), "name a model or a server", 2),
        (("--dataset", str(bad)), "no data set", 2),
        (("--dataset", str(tmp_path / "none")), "No such file", 1),
        (("--url", "ftp://x"), "must be like http://", 2),
    ):
        assert main(["bench", *arguments]) == status
        assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    "data",
    [
        *(b"", b"null", b"[1]", b"[[]]", b'"x"', b"\xff", b"[" * 100_000),
        *(b'{"prompt": []}', b'{"prompt": 5}', b'{"prompt": ""}', b'{"body": null}'),
        *(b'{"messages": []}', b'{"messages": "x"}', b'{"messages": {"a": 1}}'),
    ],
    ids=lambda data: data[:20].decode("latin-1"),
)
def test_files_that_are_no_data_set(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "data"
    path.write_bytes(data)
    with pytest.raises(InvalidConfig, match="no data set"):
        next(dataset_prompts(path))


def test_a_line_of_a_data_set_ends_with_its_line_feed(tmp_path: Path) -> None:
    path = tmp_path / "data"
    prompts = ["a\u2028b\x85c", "d"]
    lines = [json.dumps({"prompt": prompt}, ensure_ascii=False) for prompt in prompts]
    path.write_text("\n".join(lines) + "\r\n", encoding="utf-8", newline="")
    assert [*itertools.islice(dataset_prompts(path), 3)] == [*prompts, prompts[0]]


def test_figures() -> None:
    assert percentiles([]) is None
    found = percentiles([i / 1000 for i in range(1, 101)])
    assert found == {"mean": 50.5, "p50": 50, "p90": 90, "p95": 95, "p99": 99, "max": 100}
    good = Outcome(None, 0.5, [0.25, 0.25], 1.0, 10, 3)
    figures = summarize([good, Outcome("bad")], 2.0)
    assert (figures["failed"], figures["errors"]) == (1, ["bad"])
    assert figures["total_tokens_per_s"] == 6.5
    assert figures["time_per_output_token_ms"]["mean"] == 250


# ---- the client ----

EVENTS = b'data: {"a": 1}\n\n: a comment\n\ndata:{"b": 2}\r\n\r\nevent: x\ndata: [DONE]\n\n'
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"


def chunked(body: bytes, sizes: list[int]) -> bytes:
    parts, rest = [], body
    for size in [*sizes, len(body)]:
        part, rest = rest[:size], rest[size:]
        if part:
            parts.append(b"%x;x=y\r\n%s\r\n" % (len(part), part))
    return HEAD + b"Transfer-Encoding: chunked\r\n\r\n" + b"".join(parts) + b"0\r\n\r\n"


@pytest.mark.parametrize("seed", range(20))
def test_a_response_may_be_cut_anywhere(seed: int) -> None:
    draw = random.Random(seed)
    length = HEAD + b"content-length: %d\r\n\r\n" % len(EVENTS) + EVENTS
    to_the_end = HEAD + b"\r\n" + EVENTS
    whole = chunked(EVENTS, [draw.randrange(1, 9) for _ in range(4)])
    for data in (whole, length, to_the_end):
        parser, found, rest = ResponseParser(), [], data
        while rest:
            size = draw.randrange(1, 12)
            parser.feed(rest[:size])
            rest = rest[size:]
            if draw.random() < 0.5:
                found += parser.events()
        if data is to_the_end:
            assert not parser.done
            parser.feed(b"")
        assert parser.done
        assert [*found, *parser.events()] == [b'{"a": 1}', b'{"b": 2}', b"[DONE]"]


@pytest.mark.parametrize(
    "pieces", [[b"SSH-2.0-x\r\n\r\n"], [HEAD, b""], [chunked(EVENTS, [])[:-20], b""], [b""]]
)
def test_responses_that_are_none(pieces: list[bytes]) -> None:
    parser = ResponseParser()
    for piece in pieces[:-1]:
        parser.feed(piece)
    with pytest.raises(ConnectionError):
        parser.feed(pieces[-1])


def test_errors_of_servers() -> None:
    long = {"error": {"message": "too long", "code": "context_length_exceeded", "param": "x"}}
    error = error_of(400, json.dumps(long).encode())
    assert isinstance(error, InvalidRequest)
    assert (error.field, error.code) == ("x", "context_length_exceeded")
    assert isinstance(error_of(429, b"busy"), QueueFull)
    assert isinstance(error_of(502, b"<html>"), ConnectionError)
    assert "oops" in str(error_of(422, b'{"error": "oops"}'))


def test_urls() -> None:
    assert ServerUrl.parse("http://a:1/p/") == ServerUrl("a", 1, "/p/v1", False)
    assert ServerUrl.parse("https://[::1]/v1") == ServerUrl("::1", 443, "/v1", True)
    assert b"Host: [::1]:443" in ServerUrl.parse("https://[::1]").request("GET", "/x", None)
    for url in ("a:1", "http://", "http://a:x", "ftp://a"):
        with pytest.raises(InvalidConfig, match="must be like"):
            ServerUrl.parse(url)


def test_a_server_that_dies_within_an_answer(chat: Callable[..., Any]) -> None:
    """What it sent is shown, and the turn fails."""
    listener = socket.create_server(("127.0.0.1", 0))
    models = b'{"data": [{"id": "m"}]}'
    delta = b'data: {"choices": [{"delta": {"content": "Hel"}}]}\n\n'
    answers = [
        HEAD + b"Content-Length: %d\r\n\r\n" % len(models) + models,
        chunked(delta, [])[:-5],  # without the last chunk
    ]

    def serve_answers() -> None:
        for answer in answers:
            connection, _ = listener.accept()
            with connection:
                while b"\r\n\r\n" not in connection.recv(1 << 16):
                    pass
                connection.sendall(answer)

    thread = threading.Thread(target=serve_answers)
    thread.start()
    status, out, err = chat(f"http://127.0.0.1:{listener.getsockname()[1]}", "hi\n")
    thread.join(60)
    listener.close()
    assert (status, out) == (1, "Hel\n")
    assert "closed the connection" in err
