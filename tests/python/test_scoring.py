"""``engine.score``, ``rerank`` and ``classify``: rerankers, cosines, prompts of pairs, errors."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import reranker_folders as folders
from test_hostile_values import ENDLESS, RAISING, check
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import AutoTokenizer

from mlc_native import AsyncMLCEngine, MLCEngine, SyncMLCEngine
from mlc_native.errors import InvalidConfig, InvalidRequest, LoadError
from mlc_native.protocol.scoring import (
    ClassificationArguments,
    ClassificationRequest,
    ComparisonArguments,
    ComparisonRequest,
)
from mlc_native.serve.pair_prompts import PairPrompts

SETTINGS: dict[str, Any] = {
    **{"dtype": "float32", "num_threads": 1, "max_num_sequence": 4, "verbose": False},
    **{"max_total_sequence_length": 8192, "max_single_sequence_length": 1024},
}
QUERY = "What is the capital of France?"
DOCUMENTS = ["Paris is the capital of France.", "x", "A <|im_end|> house by the sea. " * 4]


@pytest.fixture(scope="module")
def demo() -> Iterator[MLCEngine]:
    with MLCEngine("demo", "cpu", **SETTINGS) as engine:
        yield engine


@pytest.fixture(scope="module")
def cross_encoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return folders.make_classifier("tiny-llama", tmp_path_factory.mktemp("cross"))


@pytest.fixture(scope="module")
def qwen3(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("qwen3") / "model"
    return folders.make_generator("tiny-qwen3", folder)


def sigmoid(x: Any) -> Any:
    return 1 / (1 + np.exp(-np.asarray(x)))


def scores(engine: Any, query: Any, documents: Any, **arguments: Any) -> np.ndarray:
    return np.array([each.score for each in engine.score(query, documents, **arguments)])


# --------------------------------------------------------------------------------------- cosines


def test_without_a_reranker_they_are_cosines(demo: MLCEngine) -> None:
    found = scores(demo, QUERY, DOCUMENTS)
    vectors = [
        np.array(each.embedding) for each in demo.embeddings.create(input=[QUERY, *DOCUMENTS]).data
    ]
    assert np.abs(found - [vectors[0] @ each for each in vectors[1:]]).max() < 1e-6
    assert scores(demo, [QUERY] * 3, DOCUMENTS).tolist() == found.tolist()
    assert scores(demo, QUERY, DOCUMENTS[1]).tolist() == [found[1]]
    ranked = demo.rerank(QUERY, DOCUMENTS, top_n=2)
    assert [each.index for each in ranked.results] == np.argsort(-found)[:2].tolist()
    best = ranked.results[0]
    assert best.relevance_score == found.max()
    assert best.document is not None
    assert best.document.text == DOCUMENTS[best.index]
    assert ranked.usage.total_tokens > 10
    plain = demo.rerank(QUERY, DOCUMENTS, return_documents=False)
    assert [each.document for each in plain.results] == [None] * 3


# ----------------------------------------------------------------------------------- classifiers


def test_a_cross_encoder_reads_what_the_tokenizer_makes_of_a_pair(cross_encoder: Path) -> None:
    tokenizer = AutoTokenizer.from_pretrained(cross_encoder)
    expected = [
        folders.class_logits(cross_encoder, tokenizer(QUERY, text).input_ids)[0]
        for text in DOCUMENTS
    ]
    with MLCEngine(cross_encoder, "cpu", **SETTINGS) as engine:
        assert np.abs(scores(engine, QUERY, DOCUMENTS) - sigmoid(expected)).max() < 1e-5
        logits = scores(engine, QUERY, DOCUMENTS, use_activation=False)
        assert np.abs(logits - expected).max() < 1e-4
        ranked = engine.rerank(QUERY, DOCUMENTS)
        assert [each.index for each in ranked.results] == np.argsort(-np.array(expected)).tolist()
        num_tokens = sum(len(tokenizer(QUERY, text).input_ids) for text in DOCUMENTS)
        assert ranked.usage.total_tokens == num_tokens
        (single,) = engine.classify(QUERY)
        assert np.abs(single.probs[0] - sigmoid(
            folders.class_logits(cross_encoder, tokenizer(QUERY).input_ids)
        )[0]) < 1e-5  # fmt: skip


def test_all_engines_say_the_same(cross_encoder: Path) -> None:
    with MLCEngine(cross_encoder, "cpu", **SETTINGS) as engine:
        expected = (
            [each.probs for each in engine.classify(DOCUMENTS)],
            scores(engine, QUERY, DOCUMENTS).tolist(),
            [each.index for each in engine.rerank(QUERY, DOCUMENTS).results],
        )

    async def ask() -> Any:
        async with await AsyncMLCEngine.create(cross_encoder, "cpu", **SETTINGS) as engine:
            classified, scored, ranked = await asyncio.gather(
                engine.classify(DOCUMENTS),
                engine.score(QUERY, DOCUMENTS),
                engine.rerank(QUERY, DOCUMENTS),
            )
        return (
            [each.probs for each in classified],
            [each.outputs.score for each in scored],
            [each.index for each in ranked.results],
        )

    assert asyncio.run(ask()) == expected
    sync = SyncMLCEngine(cross_encoder, "cpu", **SETTINGS)
    assert [each.probs for each in sync.classify(DOCUMENTS)] == expected[0]
    assert scores(sync, QUERY, DOCUMENTS).tolist() == expected[1]
    assert [each.index for each in sync.rerank(QUERY, DOCUMENTS).results] == expected[2]
    assert len(sync.embeddings.create(input="x").data[0].embedding) > 1


def test_a_chat_template_may_show_pairs(tmp_path: Path) -> None:
    folder = folders.make_classifier("tiny-qwen2", tmp_path)
    (folder / "chat_template.jinja").write_text(
        "{% for m in messages %}{% if m.role == 'query' %}Q:{{ m.content }}{% elif m.role == "
        "'document' %}<|sep|>D:{{ m.content }}{% else %}{{ m.content }}|{% endif %}{% endfor %}"
    )
    prompts = {"prompts": {"a": "Be fair"}, "default_prompt_name": None}
    tokenizer = folders.make_tokenizer()
    core = tokenizer.backend_tokenizer

    def expected(front: str) -> float:
        ids = [
            *core.encode(f"{front}Q:{QUERY}<|sep|>D:", add_special_tokens=False).ids,
            *folders.plain_ids(DOCUMENTS[2]),
        ]
        return float(folders.class_logits(folder, ids)[0])

    for front, default, arguments in (
        ("", None, {}),
        ("Be fair|", "a", {}),
        ("Other|", "a", {"instruction": "Other"}),
    ):
        prompts["default_prompt_name"] = default
        (folder / "config_sentence_transformers.json").write_text(json.dumps(prompts))
        with MLCEngine(folder, "cpu", **SETTINGS) as engine:
            (found,) = scores(engine, QUERY, DOCUMENTS[2], use_activation=False, **arguments)
        assert abs(found - expected(front)) < 1e-4


# ------------------------------------------------------------------------- models that generate


def test_qwen3_reranker_as_published(qwen3: Path) -> None:
    expected = []
    for text in DOCUMENTS:
        no, yes = folders.next_logits(qwen3, folders.qwen3_ids(QUERY, text), ["no", "yes"])
        expected.append(yes - no)
    with MLCEngine(qwen3, "cpu", classifier_from_token=["no", "yes"], **SETTINGS) as engine:
        assert engine.num_classes == 1
        assert np.abs(scores(engine, QUERY, DOCUMENTS) - sigmoid(expected)).max() < 1e-5
        logits = scores(engine, QUERY, DOCUMENTS, use_activation=False)
        assert np.abs(logits - expected).max() < 1e-4
        # A caller who has put the prompt around the texts, as for vLLM, gets it once.
        whole = (
            f"{folders.PREFIX}<Instruct>: {folders.INSTRUCTION}\n<Query>: {QUERY}\n",
            f"<Document>: {DOCUMENTS[0]}{folders.SUFFIX}",
        )
        assert scores(engine, *whole)[0] == scores(engine, QUERY, DOCUMENTS[0])[0]
        asked = scores(engine, QUERY, DOCUMENTS[1], instruction="Find it", use_activation=False)
        no, yes = folders.next_logits(
            qwen3, folders.qwen3_ids(QUERY, DOCUMENTS[1], "Find it"), ["no", "yes"]
        )
        assert abs(asked[0] - (yes - no)) < 1e-4
        # It still generates.
        assert engine.completions.create(prompt="x", max_tokens=1).choices


@pytest.mark.emulated(slow=True)
def test_every_device_says_the_same(device: dict[str, Any], qwen3: Path) -> None:
    settings: dict[str, Any] = {"classifier_from_token": ["no", "yes"], **SETTINGS}
    with MLCEngine(qwen3, **device, **settings) as engine:
        found = scores(engine, QUERY, DOCUMENTS[:2], use_activation=False)
    for each, text in zip(found, DOCUMENTS, strict=False):
        no, yes = folders.next_logits(qwen3, folders.qwen3_ids(QUERY, text), ["no", "yes"])
        assert abs(each - (yes - no)) < 1e-3


@pytest.mark.parametrize(
    ("fields", "tokens", "weights"),
    [
        ({"classifier_from_token": ["no", "yes"]}, ["no", "yes"], [[-1, 1]]),
        (
            {
                "architectures": ["Qwen3ForSequenceClassification"],
                "classifier_from_token": ["no", "yes"],
                "is_original_qwen3_reranker": True,
            },
            ["no", "yes"],
            [[-1, 1]],
        ),
        ({"classifier_from_token": ["yes"]}, ["yes"], [[1]]),
        (
            {"classifier_from_token": ["no", "yes"], "method": "no_post_processing"},
            ["no", "yes"],
            [[1, 0], [0, 1]],
        ),
        (
            {"classifier_from_token": ["no", "yes", "Yes"]},
            ["no", "yes", "Yes"],
            [[1, 0, 0], [0, 1, 0], [0, 0, 1]],
        ),
    ],
)
def test_config_json_may_name_the_tokens(
    fields: dict[str, Any], tokens: list[str], weights: list[list[float]], tmp_path: Path
) -> None:
    folder = folders.make_generator("tiny-qwen3", tmp_path / "model", **fields)
    plain = folders.make_generator("tiny-qwen3", tmp_path / "plain")
    ids = folders.qwen3_ids(QUERY, DOCUMENTS[0])
    expected = np.array(weights) @ folders.next_logits(plain, ids, tokens)
    with MLCEngine(folder, "cpu", **SETTINGS) as engine:
        (found,) = engine.classify(ids, use_activation=False)
    assert np.abs(np.array(found.probs) - expected).max() < 1e-4


def test_sentence_transformers_names_the_tokens_by_id(qwen3: Path, tmp_path: Path) -> None:
    folder = folders.make_generator("tiny-qwen3", tmp_path / "model")
    tokenizer = folders.make_tokenizer()
    no, yes = (tokenizer.convert_tokens_to_ids(token) for token in ("no", "yes"))
    modules = [
        {"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.base.Transformer"},
        {
            **{"idx": 1, "name": "1", "path": "1_LogitScore"},
            "type": "sentence_transformers.cross_encoder.modules.logit_score.LogitScore",
        },
    ]
    (folder / "modules.json").write_text(json.dumps(modules))
    (folder / "1_LogitScore").mkdir()
    ids = folders.qwen3_ids(QUERY, DOCUMENTS[0])
    logits = folders.next_logits(qwen3, ids, ["no", "yes"])
    for false_id, expected in ((no, logits[1] - logits[0]), (None, logits[1])):
        config = {"true_token_id": yes, "false_token_id": false_id}
        (folder / "1_LogitScore" / "config.json").write_text(json.dumps(config))
        with MLCEngine(folder, "cpu", **SETTINGS) as engine:
            (found,) = engine.classify(ids, use_activation=False)
        assert abs(found.probs[0] - expected) < 1e-4


@pytest.mark.parametrize("quantization", ["q8", "off"])
def test_an_untied_head_and_quantized_layers(quantization: str, tmp_path: Path) -> None:
    folder = folders.make_generator("tiny-llama", tmp_path / "model")
    settings: Any = {**SETTINGS, "quantization": quantization}
    ids = folders.qwen3_ids(QUERY, DOCUMENTS[0])
    no, yes = folders.next_logits(folder, ids, ["no", "yes"])
    with MLCEngine(folder, "cpu", classifier_from_token=["no", "yes"], **settings) as engine:
        (found,) = engine.classify(ids, use_activation=False)
    assert abs(found.probs[0] - (yes - no)) < (1e-4 if quantization == "off" else 0.2)


def test_the_prompt_of_bge_reranker_v2_gemma(tmp_path: Path) -> None:
    fields = {"classifier_from_token": ["Yes"], "method": "no_post_processing"}
    folder = folders.make_generator("tiny-gemma", tmp_path / "model", **fields)
    core = folders.make_tokenizer().backend_tokenizer
    text = f"<|bos|>A: {QUERY}\nB: {DOCUMENTS[0]}\n{folders.GEMMA_PROMPT}"
    ids = core.encode(text, add_special_tokens=False).ids
    expected = folders.next_logits(folder, ids, ["Yes"])
    with MLCEngine(folder, "cpu", **SETTINGS) as engine:
        (found,) = scores(engine, QUERY, DOCUMENTS[0], use_activation=False)
    assert abs(found - expected[0]) < 1e-4


# ----------------------------------------------------------------------- the pair of a tokenizer


def pair_templates() -> list[Any]:
    special = [("[CLS]", 1), ("[SEP]", 2)]
    template = processors.TemplateProcessing(
        single="[CLS] $A", pair="[CLS] $B [SEP] $A [SEP] [CLS]", special_tokens=special
    )
    return [
        None,
        template,
        processors.BertProcessing(("[SEP]", 2), ("[CLS]", 1)),
        processors.RobertaProcessing(("[SEP]", 2), ("[CLS]", 1)),
        processors.ByteLevel(),
        processors.Sequence([processors.ByteLevel(), template]),
    ]


@pytest.mark.parametrize("processor", pair_templates(), ids=lambda each: type(each).__name__)
def test_pairs_are_those_of_the_tokenizers_package(processor: Any, tmp_path: Path) -> None:
    vocab = {word: i for i, word in enumerate(["[UNK]", "[CLS]", "[SEP]", "a", "b", "c"])}
    core = Tokenizer(models.WordLevel(vocab, unk_token="[UNK]"))
    core.pre_tokenizer = pre_tokenizers.Whitespace()
    if processor is not None:
        core.post_processor = processor
    core.save(str(tmp_path / "tokenizer.json"))
    config = {"architectures": ["LlamaForSequenceClassification"]}
    (tmp_path / "config.json").write_text(json.dumps(config))
    made = PairPrompts.of_folder(tmp_path, (), None, None)  # type: ignore[arg-type]
    ids: list[int] = []
    for piece in made.prompt("a b", "c", None):  # type: ignore[union-attr]
        is_text = isinstance(piece, str)
        ids += core.encode(piece, add_special_tokens=False).ids if is_text else [piece]
    assert ids == core.encode("a b", "c").ids


def template(**token: Any) -> dict[str, Any]:
    """A post_processor with one special token."""
    pair = [{"SpecialToken": {"id": "t"}}, {"Sequence": {"id": "A"}}, {"Sequence": {"id": "B"}}]
    return {"type": "TemplateProcessing", "pair": pair, "special_tokens": {"t": token}}


@pytest.mark.parametrize(
    "processor",
    [
        *(template(ids=[value]) for value in (-1, 1 << 31, 1e999, 2.5, "2", None, True)),
        *({"type": "BertProcessing", "cls": ["x", id_], "sep": ["y", 3]} for id_ in (-1, 1e999)),
        *(template(), template(ids=None), {"type": "RobertaProcessing"}, {}, 5),
        {"type": "TemplateProcessing", "pair": [{"Sequence": {"id": "A", "type_id": 1e999}}]},
    ],
)
def test_a_damaged_post_processor_is_named(processor: Any, tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_text(json.dumps({"post_processor": processor}))
    config = {"architectures": ["LlamaForSequenceClassification"]}
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(LoadError, match=r"tokenizer\.json.*post_processor"):
        PairPrompts.of_folder(tmp_path, (), None, None)  # type: ignore[arg-type]


# ----------------------------------------------------------------------------------------- errors


@pytest.mark.parametrize("make", [*RAISING, *ENDLESS])
def test_objects_that_raise_or_have_no_end(
    make: Callable[[], Any], demo: MLCEngine, cross_encoder: Path
) -> None:
    check(lambda: demo.score("a", make()), InvalidRequest)
    check(lambda: demo.score(make(), "a"), InvalidRequest)
    check(lambda: demo.rerank(make(), ["a"]), InvalidRequest)
    with MLCEngine(cross_encoder, "cpu", **SETTINGS) as engine:
        check(lambda: engine.classify(make()), InvalidRequest)
        check(lambda: engine.classify([[1]], second_texts=make()), InvalidRequest)


def test_wrong_arguments_are_named(demo: MLCEngine, cross_encoder: Path) -> None:
    def refused(field: str, match: str, ask: Any, *values: Any, **arguments: Any) -> None:
        with pytest.raises(InvalidRequest, match=match) as caught:
            ask(*values, **arguments)
        assert caught.value.field == field

    refused("text_1", "as many as", demo.score, ["a", "b"], ["c"])
    refused("text_1", "a text or a list", demo.score, 3, ["c"])
    refused("text_2", "none of them empty", demo.score, "a", [""])
    refused("text_2", "none of them empty", demo.score, "a", [])
    refused("query", "one text", demo.rerank, ["a"], ["c"])
    with MLCEngine(cross_encoder, "cpu", **SETTINGS) as reranker:
        refused("text_1", "text 1 .* surrogates", reranker.score, ["a", "\ud800"], ["c", "d"])
        refused("documents", "text 0 .* surrogates", reranker.rerank, "a", ["\ud800"])
    refused("documents", "a list of texts", demo.rerank, "a", [3])
    refused("top_n", "at least 0", demo.rerank, "a", ["b"], -1)
    refused("top_n", "at least 0", demo.rerank, "a", ["b"], True)
    refused("return_documents", "true or false", demo.rerank, "a", ["b"], return_documents=1)
    refused("instruction", "no reranker", demo.score, "a", "b", instruction="x")
    refused("priority", "priority", demo.score, "a", "b", priority="none")
    refused("model", "no classes", demo.classify, "x")
    with pytest.raises(TypeError, match="nothing"):
        demo.score("a", "b", nothing=1)  # type: ignore[call-arg]
    with MLCEngine(cross_encoder, "cpu", **SETTINGS) as engine:
        refused("input", "at least 1 token", engine.classify, [])
        refused("instruction", "no place", engine.score, "a", "b", instruction="x")
        refused("text_2", "pair 1: .*1024", engine.score, "a", ["b", "c" * 3000])
        refused("model", "generates none", engine.completions.create, prompt="x")


def test_several_classes_are_no_score(tmp_path: Path) -> None:
    folder = folders.make_classifier("tiny-qwen3", tmp_path, 3)
    with MLCEngine(folder, "cpu", **SETTINGS) as engine:
        with pytest.raises(InvalidRequest, match="3 classes") as caught:
            engine.score("a", "b")
        assert caught.value.field == "model"
        assert len(engine.classify("a")[0].probs) == 3


@pytest.mark.parametrize(
    ("tokens", "match"),
    [(["nothing"], "nothing"), (["yes"] * 65, "1 to 64"), ([""], "which is none")],
)
def test_wrong_tokens_are_named(tokens: list[str], match: str, qwen3: Path, tmp_path: Path) -> None:
    with pytest.raises(InvalidConfig, match=match) as caught:
        MLCEngine(qwen3, "cpu", classifier_from_token=tokens, **SETTINGS)
    assert caught.value.field == "classifier_from_token"
    folder = folders.make_generator("tiny-qwen3", tmp_path / "model", classifier_from_token=tokens)
    with pytest.raises(LoadError, match="classifier_from_token"):
        MLCEngine(folder, "cpu", **SETTINGS)


def test_arguments_are_the_fields_of_requests() -> None:
    for kind, arguments, own in (
        (ClassificationRequest, ClassificationArguments, {"input"}),
        (ComparisonRequest, ComparisonArguments, set()),
    ):
        there = {*arguments.__optional_keys__} - {"extra_body", "request_id"}
        assert there == {*kind.model_fields} - own
