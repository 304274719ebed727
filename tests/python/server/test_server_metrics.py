"""``/metrics``: valid, complete for vLLM's dashboard, and equal to what was served."""

from __future__ import annotations

import asyncio
import gc
from typing import Any

import pytest
from live_server import CHAT, COMPLETIONS, USER, LiveServer, error_of
from prometheus_client.openmetrics.parser import (
    text_string_to_metric_families as parse_openmetrics,
)
from prometheus_client.parser import text_string_to_metric_families

from mlc_native import EngineConfig
from mlc_native.server import ServerConfig, prometheus

# What vLLM's Grafana dashboard draws.
DASHBOARD = {
    "vllm:generation_tokens_total",
    "vllm:prompt_tokens_total",
    "vllm:kv_cache_usage_perc",
    "vllm:num_requests_running",
    "vllm:num_requests_waiting",
    "vllm:request_success_total",
    "vllm:request_decode_time_seconds_sum",
    "vllm:request_prefill_time_seconds_sum",
    "vllm:request_queue_time_seconds_sum",
    "vllm:request_generation_tokens_bucket",
    "vllm:request_prompt_tokens_bucket",
    "vllm:request_max_num_generation_tokens_sum",
    *(
        f"vllm:{name}_{part}"
        for name in (
            *("inter_token_latency_seconds", "time_to_first_token_seconds"),
            *("e2e_request_latency_seconds", "request_time_per_output_token_seconds"),
        )
        for part in ("bucket", "count", "sum")
    ),
}


def samples_of(text: str) -> dict[str, list[tuple[dict[str, str], float]]]:
    samples: dict[str, list[tuple[dict[str, str], float]]] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            samples.setdefault(sample.name, []).append((sample.labels, sample.value))
    return samples


def total(server: LiveServer, name: str, **labels: str) -> float:
    samples = samples_of(server.client.get("/metrics").text)[name]
    return sum(value for found, value in samples if labels.items() <= found.items())


def test_the_metrics_of_the_dashboard(serve: Any) -> None:
    server = serve(answer="abc")
    prompts = ["x" * length for length in (3, 40, 700)]
    for i, prompt in enumerate(prompts):
        body = {"prompt": prompt, "max_tokens": 2 + i, "n": 1 + i % 2, "stream": i == 1}
        assert server.post(COMPLETIONS, body).status_code == 200
    samples = samples_of(server.client.get("/metrics").text)
    assert samples.keys() >= DASHBOARD
    for name, found in samples.items():
        for labels, _ in found:
            assert labels["model_name"] == "fake", name
            assert name.startswith("mlc_native_") or labels["engine"] == "0", name
    tokens = 2 + 2 * 3 + 4  # the last answer has 3 characters and its end
    assert total(server, "vllm:prompt_tokens_total") == sum(map(len, prompts))
    assert total(server, "vllm:generation_tokens_total") == tokens
    assert total(server, "mlc_native_completion_tokens_sum_total") == tokens
    assert total(server, "vllm:request_generation_tokens_sum") == tokens
    assert total(server, "vllm:request_prompt_tokens_count") == 3
    assert total(server, "vllm:request_prompt_tokens_bucket", le="50.0") == 2
    assert total(server, "vllm:request_success_total", finished_reason="length") == 2
    assert total(server, "vllm:request_success_total", finished_reason="stop") == 1
    assert total(server, "vllm:num_requests_running") == 0
    assert total(server, "vllm:e2e_request_latency_seconds_count") == 3
    assert total(server, "vllm:request_params_n_sum") == 4
    e2e, queue, inference = (
        total(server, f"vllm:{name}_seconds_sum")
        for name in ("e2e_request_latency", "request_queue_time", "request_inference_time")
    )
    assert abs(e2e - queue - inference) < 1e-9


def test_formats(serve: Any) -> None:
    server = serve(answer="abc")
    server.chat()
    plain = server.client.get("/metrics")
    assert plain.headers["content-type"].startswith("text/plain; version=")
    headers = {"accept": "application/openmetrics-text; version=1.0.0"}
    openmetrics = server.client.get("/metrics", headers=headers)
    assert openmetrics.headers["content-type"].startswith("application/openmetrics-text")
    families = {family.name for family in parse_openmetrics(openmetrics.text)}
    assert "vllm:prompt_tokens" in families
    assert "mlc_native_num_steps" in families


@pytest.mark.parametrize(
    "accept",
    [
        "application/openmetrics-text",
        "application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.4",
        "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6",
        "text/plain;version=1.0.0;escaping=underscores",
    ],
)
def test_names_are_the_same_in_every_format(make_engine: Any, accept: str) -> None:
    engines = {name: make_engine(answer="abc") for name in ("a", '"\\\n{}')}
    server = LiveServer(engines)
    try:
        for name in engines:
            server.chat(model=name)
        plain = samples_of(server.client.get("/metrics").text)
        response = server.client.get("/metrics", headers={"accept": accept})
        is_open = response.headers["content-type"].startswith("application/openmetrics-text")
        assert is_open == accept.startswith("application/openmetrics-text")
        parse = parse_openmetrics if is_open else text_string_to_metric_families
        samples = [sample for family in parse(response.text) for sample in family.samples]
        assert {sample.name for sample in samples} == plain.keys()
        assert {sample.labels["model_name"] for sample in samples} == engines.keys()
        assert len(samples) == sum(map(len, plain.values()))
    finally:
        server.stop()


def test_each_prompt_of_a_list_is_a_request(serve: Any) -> None:
    server = serve(answer="abc")
    for stream in (False, True):
        body = {"prompt": ["x", "xx", 7 * "x"], "n": 2, "max_tokens": 3, "stream": stream}
        assert server.post(COMPLETIONS, body).status_code == 200
    assert total(server, "vllm:request_success_total") == 6
    for name, expected in {
        "request_prompt_tokens": 2 * (1 + 2 + 7),
        "request_generation_tokens": 6 * 2 * 3,
        "request_max_num_generation_tokens": 6 * 3,
        "request_params_n": 6 * 2,
        "request_params_max_tokens": 6 * 3,
        "request_num_preemptions": 0,
    }.items():
        assert total(server, f"vllm:{name}_count") == 6, name
        assert total(server, f"vllm:{name}_sum") == expected, name
    assert total(server, "vllm:request_prompt_tokens_bucket", le="2.0") == 4
    assert total(server, "vllm:e2e_request_latency_seconds_count") == 6


def test_a_query_of_metrics_is_no_request(serve: Any) -> None:
    server = serve(ServerConfig(enable_debug=True), answer="abc")
    server.chat()
    query = {"debug_config": {"special_request": "query_engine_metrics"}}
    options = {"stream": True, "stream_options": {"include_usage": True}}
    answer = server.post(CHAT, {"messages": USER, **query, **options})
    assert "prefix_cache_lookups" in answer.text
    for name in ("request_prompt_tokens", "request_num_preemptions", "request_params_n"):
        assert total(server, f"vllm:{name}_count") == 1
    assert total(server, "vllm:request_success_total") == 1


def test_hits_are_some_of_the_queries(serve: Any) -> None:
    # Two of the eight answers run at a time; the others find the prompt in the cache.
    server = serve(engine_config=EngineConfig(max_num_sequence=2), answer="abc")
    body = {"prompt": 64 * "x", "n": 8, "max_tokens": 2}
    for hits in (0, 63):
        assert server.post(COMPLETIONS, body).status_code == 200
        assert total(server, "vllm:prefix_cache_hits_total") == hits
    assert total(server, "vllm:prefix_cache_queries_total") == 2 * 64


def test_times_of_a_request_that_ends_in_the_queue(serve: Any) -> None:
    engine_config = EngineConfig(max_num_sequence=1)
    server = serve(engine_config=engine_config, us_per_step=1000, cost="sleep")
    body = {"messages": USER, "max_tokens": 4000, "ignore_eos": True, "stream": True}
    with server.client.stream("POST", CHAT, json=body) as response:
        lines = response.iter_lines()
        next(lines)
        late = server.post(CHAT, {"messages": USER, "timeout_s": 0.05})
        assert late.status_code == 504
    times = {
        name: total(server, f"vllm:{name}_seconds_sum")
        for name in (
            *("e2e_request_latency", "request_queue_time", "request_inference_time"),
            *("request_prefill_time", "request_decode_time"),
        )
    }
    assert times["e2e_request_latency"] >= 0.05
    assert times == {
        **dict.fromkeys(times, 0),
        "e2e_request_latency": times["e2e_request_latency"],
        "request_queue_time": times["e2e_request_latency"],
    }


def test_steps_and_preemptions(serve: Any) -> None:
    # Two sequences have room for one: the later one gives way, and is computed again.
    engine_config = EngineConfig(
        max_num_sequence=2, max_single_sequence_length=128, max_total_sequence_length=128
    )
    server = serve(engine_config=engine_config)
    server.chat(n=2, max_tokens=80, temperature=0, ignore_eos=True)
    engine = server.metrics()
    assert engine["num_preemptions"] > 0
    assert total(server, "vllm:iteration_tokens_total_count") == engine["num_steps"]
    assert total(server, "vllm:iteration_tokens_total_sum") >= engine["completion_tokens_sum"]
    assert total(server, "vllm:request_num_preemptions_count") == 1
    assert total(server, "vllm:request_num_preemptions_sum") == engine["num_preemptions"]


def test_guesses(serve: Any) -> None:
    """The counters of vLLM's speculation, from those of MLC-LLM."""
    names = ("num_drafts", "num_draft_tokens", "num_accepted_tokens", "draft_failures")
    without = serve(answer="abc")
    without.chat()
    assert [total(without, f"vllm:spec_decode_{name}_total") for name in names] == [0] * 4
    engine_config = EngineConfig(speculative_mode="ngram", spec_draft_length=3)
    server = serve(engine_config=engine_config, answer=20 * "abcdef" + "ghi" + 3 * "abcdxf")
    server.chat(max_tokens=200, temperature=0)
    spec = server.metrics()["spec_decode"]
    drafted, accepted = spec["draft_count"], spec["accept_count"]
    assert len(accepted) == 1 + 3
    assert accepted[3] > 10
    assert sum(accepted[1:]) < sum(drafted[1:])
    counts = [drafted[0], sum(drafted[1:]), sum(accepted[1:]), 0]
    assert [total(server, f"vllm:spec_decode_{name}_total") for name in names] == counts
    name = "vllm:spec_decode_num_accepted_tokens_per_pos_total"
    assert [total(server, name, position=str(i)) for i in range(3)] == accepted[1:]
    counters = (*names[:3], "num_failures", "num_steps_ahead")
    for name in counters:
        assert total(server, f"mlc_native_spec_decode_{name}_total") == spec[name]


def test_without_the_names_of_vllm(serve: Any) -> None:
    text = serve(ServerConfig(metrics_compat="none"), answer="abc").client.get("/metrics").text
    assert "mlc_native_num_steps" in text
    assert "vllm:" not in text


def test_no_label_comes_from_a_request(serve: Any) -> None:
    server = serve(answer="abc")

    def labels_of(text: str) -> set[str]:
        found = samples_of(text).items()
        return {str((name, sorted(labels.items()))) for name, each in found for labels, _ in each}

    seen = []
    for i in range(5):
        body = {"messages": USER, "user": f"u{i}", f"field{i}": 1}
        response = server.post(CHAT, body, headers={"x-request-id": f"r{i}"})
        assert response.status_code == 200
        seen.append(labels_of(server.client.get("/metrics").text))
    assert seen == [seen[0]] * 5


def test_models_have_samples_of_their_own(make_engine: Any) -> None:
    server = LiveServer({"a": make_engine(answer="1"), "b": make_engine(answer="22")})
    try:
        for name in ("a", "b", "b"):
            server.chat(model=name)
        assert total(server, "vllm:generation_tokens_total", model_name="a") == 2
        assert total(server, "vllm:generation_tokens_total", model_name="b") == 6
        assert total(server, "vllm:request_prompt_tokens_count", model_name="b") == 2
    finally:
        server.stop()


def test_refused_requests_are_those_of_a_model(make_engine: Any) -> None:
    engines = {"a": make_engine(us_per_step=1000, cost="sleep"), "b": make_engine(answer="2")}
    server = LiveServer(engines, ServerConfig(max_concurrent_requests=1))
    try:
        body = {"model": "a", "messages": USER, "max_tokens": 4000, "stream": True}
        with server.client.stream("POST", CHAT, json=body) as response:
            lines = response.iter_lines()
            next(lines)
            for name in ("b", "a", "b"):
                assert server.post(CHAT, {"model": name, "messages": USER}).status_code == 429
        for name, count in (("a", 1), ("b", 2)):
            labels = {"reason": "concurrency", "model_name": name}
            assert total(server, "vllm:admission_rejections_total", **labels) == count
    finally:
        server.stop()


def test_a_model_that_says_nothing_hides_no_other(
    make_engine: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(prometheus, "WAIT_S", 0.01)
    engines = {"a": make_engine(us_per_step=2_000_000, cost="sleep"), "b": make_engine(answer="2")}
    server = LiveServer(engines)
    try:
        server.chat(model="b")
        body = {"model": "a", "messages": USER, "stream": True}
        with server.client.stream("POST", CHAT, json=body) as response:
            lines = response.iter_lines()
            next(lines)  # the first step takes 2 s from here
            names = {labels["model_name"] for labels, _ in num_steps(server)}
            assert names == {"b"}
        server.engines[0].terminate()
        assert [labels["model_name"] for labels, _ in num_steps(server)] == ["b"]
        server.engines[1].terminate()
        response = server.client.get("/metrics")
        assert response.status_code == 503
        assert error_of(response)["code"] == "engine_not_running"
        gc.collect()
        assert not [r for r in caplog.records if r.name == "asyncio"]  # the probe of the long step
    finally:
        server.stop()


def num_steps(server: LiveServer) -> list[tuple[dict[str, str], float]]:
    response = server.client.get("/metrics")
    assert response.status_code == 200
    return samples_of(response.text)["mlc_native_num_steps_total"]


def test_refused_requests_are_counted(serve: Any) -> None:
    server = serve(ServerConfig(max_concurrent_requests=1), us_per_step=1000, cost="sleep")
    body = {"messages": USER, "max_tokens": 4000, "stream": True}
    with server.client.stream("POST", CHAT, json=body) as response:
        lines = response.iter_lines()
        next(lines)
        for _ in range(3):
            assert server.post(CHAT, {"messages": USER}).status_code == 429
    server.wait_until_idle()
    assert total(server, "vllm:admission_rejections_total", reason="concurrency") == 3
    assert total(server, "vllm:request_success_total", finished_reason="abort") == 1


def test_health_of_a_stuck_step(serve: Any) -> None:
    # One step takes 3 s; a step of more than 0.2 s counts as stuck.
    server = serve(ServerConfig(stuck_step_timeout_s=0.2), us_per_step=3_000_000, cost="sleep")
    assert server.client.get("/health").status_code == 200
    with server.client.stream("POST", CHAT, json={"messages": USER, "stream": True}) as response:
        lines = response.iter_lines()
        next(lines)
        statuses = [server.client.get("/health").status_code for _ in range(2)]
        assert statuses[-1] == 503
    server.wait_until_idle()
    asyncio.run(server.engine.metrics())  # returns behind the step
    assert server.client.get("/health").status_code == 200
