"""Encoders (BERT and its kin): embeddings, classes and scores of pairs, against transformers."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from c_library import CEngine, CError
from encoder_folders import (
    CONFIGS,
    MAX_LENGTH,
    bert_tokenizer,
    logits,
    make_classifier,
    make_encoder,
    pooled,
    states,
    xlm_roberta_tokenizer,
)
from fake_model import find_test_library
from families import some_at_night
from paged_driver import random_tokens
from safetensors.torch import load_file, save_file
from test_embedding_files import vectors

from mlc_native import MLCEngine, inspect_model
from mlc_native.errors import InvalidConfig, InvalidRequest, LoadError
from mlc_native.serve.embedding_engine import AsyncEmbeddingEngine

SETTINGS: dict[str, Any] = {
    **{"dtype": "float32", "num_threads": 2, "max_num_sequence": 4, "verbose": False},
    **{"max_total_sequence_length": 1024, "max_single_sequence_length": 256},
}
EMULATED = find_test_library("libmlc_native_cuda_emulated.so", "MLC_NATIVE_CUDA_EMULATED_LIB")
POOLINGS = ("cls", "last", "mean")
LENGTHS = (1, 2, 17, 100, 250)
TEXTS = ["Paris is in France.", "a cat sleeps", "where is Rome?"]


def texts() -> list[list[int]]:
    """As random tokens, none of which is special."""
    return [[5 + id_ for id_ in random_tokens(n, 590, seed=n)] for n in LENGTHS]


def assert_close(found: np.ndarray, expected: np.ndarray, tolerance: float = 1e-4) -> None:
    assert found.shape == expected.shape
    assert np.abs(found - expected).max() < tolerance * np.abs(expected).max()


def edit_config(folder: Path, **fields: Any) -> None:
    path = folder / "config.json"
    config = {**json.loads(path.read_text()), **fields}
    path.write_text(json.dumps({k: v for k, v in config.items() if v is not None}))


# ---- embeddings


@pytest.mark.parametrize("name", CONFIGS)
def test_embeddings_are_those_of_transformers(name: str, tmp_path: Path) -> None:
    folder = make_encoder(name, tmp_path)
    about = inspect_model(folder)
    assert about["problems"] == []
    assert about["decoder"]["attends_in_both_directions"] is True
    expected = [states(folder, ids) for ids in texts()]
    with MLCEngine(folder, "cpu", **SETTINGS) as engine:
        assert engine.embedding_pooling == "cls"
        for pooling in POOLINGS:
            found = vectors(engine, texts(), pooling=pooling, normalize=False)
            for vector, want in zip(found, expected, strict=True):
                assert_close(vector, pooled(want, pooling))
            alone = [vectors(engine, [ids], pooling=pooling, normalize=False) for ids in texts()]
            assert np.array_equal(np.concatenate(alone), found)
        with pytest.raises(InvalidRequest, match="attends in both directions"):
            engine.completions.create(prompt=texts()[2], max_tokens=1)


@pytest.mark.parametrize(("buckets", "farthest"), [(4, 3), (8, 20), (32, 9), (64, 300)])
def test_distances_have_the_buckets_of_transformers(
    buckets: int, farthest: int, tmp_path: Path
) -> None:
    fields = {
        "relative_attention_num_buckets": buckets,
        "relative_attention_max_distance": farthest,
    }
    folder = make_encoder("t5", tmp_path, **fields)
    with MLCEngine(folder, "cpu", **SETTINGS) as engine:
        found = vectors(engine, texts(), pooling="mean", normalize=False)
    for vector, ids in zip(found, texts(), strict=True):
        assert_close(vector, pooled(states(folder, ids), "mean"), 1e-5)


@pytest.mark.parametrize(
    "name",
    some_at_night(
        tuple(name for name in CONFIGS if name != "deberta"),
        every_push=("bert", "modernbert", "mpnet"),
    ),
)
def test_devices_agree(name: str, tmp_path: Path) -> None:
    folder = make_encoder(name, tmp_path)
    settings = {**SETTINGS, "model_lib": EMULATED}
    found = []
    with MLCEngine(folder, "cuda:0", **settings) as engine:
        found += [vectors(engine, texts()[:3], pooling=pooling) for pooling in POOLINGS]
    with MLCEngine(folder, "cpu", **SETTINGS) as engine:
        for pooling, vector in zip(POOLINGS, found, strict=True):
            assert_close(vector, vectors(engine, texts()[:3], pooling=pooling), 1e-5)


@pytest.mark.parametrize("name", ["bert", "modernbert"])
@pytest.mark.parametrize("form", [{"dtype": "bfloat16"}, {"quantization": "q8"}])
def test_other_weights_are_close(name: str, form: dict[str, str], tmp_path: Path) -> None:
    folder = make_encoder(name, tmp_path)
    with MLCEngine(folder, "cpu", **{**SETTINGS, **form}) as engine:
        found = vectors(engine, texts(), pooling="mean")
    for vector, ids in zip(found, texts(), strict=True):
        want = pooled(states(folder, ids), "mean")
        assert vector @ want / np.linalg.norm(want) > 0.999


TOKENIZERS: dict[str, Callable[[], Any]] = {
    "bert": bert_tokenizer,
    "xlm-roberta": xlm_roberta_tokenizer,
}


@pytest.mark.parametrize("name", TOKENIZERS)
def test_texts_are_tokenized_as_in_transformers(name: str, tmp_path: Path) -> None:
    folder = make_encoder(name, tmp_path)
    tokenizer = TOKENIZERS[name]()
    tokenizer.save_pretrained(folder)
    with MLCEngine(folder, "cpu", **SETTINGS) as engine:
        for text, vector in zip(TEXTS, vectors(engine, TEXTS, normalize=False), strict=True):
            ids = tokenizer(text)["input_ids"]
            assert len(ids) > 4
            assert tokenizer.unk_token_id not in ids
            assert_close(vector, states(folder, ids)[0])
            assert_close(vectors(engine, text, normalize=False)[0], vector, 1e-6)


@pytest.mark.parametrize("mode", ["cls_token", "mean_tokens"])
def test_folders_of_sentence_transformers(mode: str, tmp_path: Path) -> None:
    folder = make_encoder("bert", tmp_path)
    bert_tokenizer().save_pretrained(folder)
    kinds = ["Transformer", "Pooling", "Normalize"]
    modules = [
        {"idx": i, "path": f"{i}_{kind}" if i else "", "type": f"sentence_transformers.x.{kind}"}
        for i, kind in enumerate(kinds)
    ]
    (folder / "modules.json").write_text(json.dumps(modules))
    (folder / "1_Pooling").mkdir()
    pooling = {f"pooling_mode_{each}": each == mode for each in ("cls_token", "mean_tokens")}
    (folder / "1_Pooling" / "config.json").write_text(json.dumps(pooling))
    all_states = states(folder, bert_tokenizer()(TEXTS[0])["input_ids"])
    want = pooled(all_states, mode.partition("_")[0])
    with MLCEngine(folder, "cpu", **SETTINGS) as engine:
        assert_close(vectors(engine, TEXTS[0])[0], want / np.linalg.norm(want))
    with AsyncEmbeddingEngine(folder, None, "cpu", **SETTINGS) as embedder:
        assert embedder.model_type == "encoder"
        assert embedder.pooling_strategy == mode.partition("_")[0]


def test_a_long_text_keeps_its_beginning_and_its_last_token(tmp_path: Path) -> None:
    folder = make_encoder("bert", tmp_path)
    ids = texts()[3]
    longest = SETTINGS["max_single_sequence_length"]
    with MLCEngine(folder, "cpu", **SETTINGS) as engine:
        for kept in (1, 2, 30, 100, 101):
            found = vectors(engine, [ids], truncate_prompt_tokens=kept)
            cut = ids if kept > len(ids) else [*ids[: kept - 1], ids[-1]] if kept > 1 else ids[:1]
            assert np.array_equal(found, vectors(engine, [cut]))
        with pytest.raises(InvalidRequest, match="301 tokens in total"):
            vectors(engine, [[7] * 301])
        vectors(engine, [[7] * 301], truncate_prompt_tokens=longest)


def test_no_text_is_longer_than_the_positions(tmp_path: Path) -> None:
    settings = {**SETTINGS, "max_single_sequence_length": None}
    for name in ("bert", "roberta"):
        folder = make_encoder(name, tmp_path / name)
        with MLCEngine(folder, "cpu", **settings) as engine:
            ids = [5 + id_ for id_ in random_tokens(MAX_LENGTH, 590, seed=1)]
            assert_close(vectors(engine, [ids], normalize=False)[0], states(folder, ids)[0])
            with pytest.raises(InvalidRequest, match=f"{MAX_LENGTH + 1} tokens in total"):
                vectors(engine, [[*ids, 7]])


# ---- checkpoints


def test_spellings_of_the_hub(tmp_path: Path) -> None:
    """Names in front of tensors, LayerNorms of TensorFlow, and heads that are not read."""
    folder = make_encoder("bert", tmp_path / "plain")
    expected = states(folder, texts()[2])
    tensors = load_file(folder / "model.safetensors")
    prefixed = {f"bert.{name}": tensor for name, tensor in tensors.items()}
    old = {
        name.replace("LayerNorm.weight", "LayerNorm.gamma").replace(
            "LayerNorm.bias", "LayerNorm.beta"
        ): tensor
        for name, tensor in prefixed.items()
    }
    assert set(old) != set(prefixed)
    hidden = expected.shape[1]
    old["cls.predictions.transform.dense.weight"] = tensors["pooler.dense.weight"].clone()
    old["bert.embeddings.position_ids"] = tensors["pooler.dense.bias"][:hidden].long()[None]
    for number, stored in enumerate((prefixed, old)):
        copy = tmp_path / str(number)
        copy.mkdir()
        (copy / "config.json").write_text((folder / "config.json").read_text())
        edit_config(copy, architectures=["BertForMaskedLM"])
        save_file({k: v.contiguous() for k, v in stored.items()}, copy / "model.safetensors")
        with MLCEngine(copy, "cpu", strict_weights=True, **SETTINGS) as engine:
            assert_close(vectors(engine, [texts()[2]], normalize=False)[0], expected[0])


def test_modernbert_says_its_windows_and_ropes_in_two_ways(tmp_path: Path) -> None:
    folder = make_encoder("modernbert", tmp_path)
    expected = states(folder, texts()[3])
    edit_config(
        folder, layer_types=None, rope_parameters=None, global_attn_every_n_layers=3,
        global_rope_theta=160000.0, local_rope_theta=10000.0, position_embedding_type="absolute",
    )  # fmt: skip
    with MLCEngine(folder, "cpu", **SETTINGS) as engine:
        assert_close(vectors(engine, [texts()[3]], normalize=False)[0], expected[0])


HUB_OF_NOMIC: dict[str, Any] = {
    **{"architectures": ["NomicBertModel"], "model_type": "nomic_bert", "vocab_size": 600},
    **{"n_embd": 64, "n_head": 4, "n_inner": 128, "n_layer": 4, "n_positions": 8192},
    **{"max_trained_positions": MAX_LENGTH, "layer_norm_epsilon": 1e-12, "type_vocab_size": 2},
    **{"activation_function": "swiglu", "causal": False, "prenorm": False, "parallel_block": False},
    **{"qkv_proj_bias": False, "mlp_fc1_bias": False, "mlp_fc2_bias": False},
    **{"rotary_emb_base": 1000, "rotary_emb_fraction": 1.0, "rotary_emb_interleaved": False},
    **{"rotary_emb_scale_base": None, "rotary_scaling_factor": None, "use_rms_norm": False},
}


def hub_of_nomic(folder: Path, **fields: Any) -> None:
    """The config.json of the hub in place of that of transformers."""
    (folder / "config.json").write_text(json.dumps({**HUB_OF_NOMIC, **fields}))


def test_nomic_of_the_hub(tmp_path: Path) -> None:
    """With fields of its own, and names of tensors that transformers writes, too."""
    folder = make_encoder("nomic", tmp_path / "plain")
    expected = [states(folder, ids) for ids in texts()]
    tensors = load_file(folder / "model.safetensors")
    assert "encoder.layers.0.attn.Wqkv.weight" in tensors
    assert "encoder.layers.3.mlp.fc12.weight" in tensors
    prefixed = {f"bert.{name}": tensor for name, tensor in tensors.items()}
    for number, stored in enumerate((tensors, prefixed)):
        copy = tmp_path / str(number)
        copy.mkdir()
        hub_of_nomic(copy, rotary_scaling_factor=2.0 if number else None)
        save_file(stored, copy / "model.safetensors")
        with MLCEngine(copy, "cpu", strict_weights=True, **SETTINGS) as engine:
            found = vectors(engine, texts(), pooling="mean", normalize=False)
            for vector, want in zip(found, expected, strict=True):
                assert_close(vector, pooled(want, "mean"))
            with pytest.raises(InvalidRequest, match=f"{MAX_LENGTH + 1} tokens in total"):
                vectors(engine, [[7] * (MAX_LENGTH + 1)])


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"prenorm": True}, "prenorm.*norms in front of blocks"),
        ({"parallel_block": True}, "parallel_block"),
        ({"causal": True}, "causal"),
        ({"use_rms_norm": True}, "use_rms_norm"),
        ({"activation_function": "gelu"}, "activation_function.*another feed-forward block"),
        ({"rotary_emb_interleaved": True}, "rotary_emb_interleaved.*a rotation of neighbours"),
        ({"rotary_emb_fraction": 0.5}, "rotary_emb_fraction.*only 1"),
        ({"rotary_emb_fraction": 0.0}, "rotary_emb_fraction"),
        ({"rotary_emb_scale_base": 512.5}, "rotary_emb_scale_base.*512.5"),
        ({"qkv_proj_bias": True}, "qkv_proj_bias.*biases"),
        ({"mlp_fc1_bias": True}, "mlp_fc1_bias.*biases"),
        ({"mlp_fc2_bias": True}, "mlp_fc2_bias.*biases"),
        ({"moe_every_n_layers": 2}, "moe_every_n_layers.*experts"),
    ],
)
def test_other_models_of_nomic_are_refused(
    fields: dict[str, Any], message: str, tmp_path: Path
) -> None:
    folder = make_encoder("nomic", tmp_path)
    hub_of_nomic(folder, **fields)
    with pytest.raises(LoadError, match=message):
        MLCEngine(folder, "cpu", **SETTINGS)


@pytest.mark.parametrize(
    ("name", "fields", "message"),
    [
        ("bert", {"is_decoder": True}, "is_decoder"),
        ("bert", {"position_embedding_type": "relative_key"}, "attention biases by distance"),
        ("roberta", {"pad_token_id": 5}, "pad_token_id"),
        ("bert", {"max_position_embeddings": 0}, "max_position_embeddings"),
        ("roberta", {"max_position_embeddings": 2}, "max_position_embeddings"),
        ("bert", {"type_vocab_size": 0}, "type_vocab_size"),
        ("nomic", {"type_vocab_size": 0}, "type_vocab_size"),
        ("modernbert", {"norm_bias": True}, "norm_bias"),
        ("bert", {"hidden_act": "mish"}, "hidden_act"),
        ("mpnet", {"relative_attention_num_buckets": 64}, "other buckets of distances"),
        ("t5", {"feed_forward_proj": "gated-gelu"}, "gates in feed-forward blocks"),
        ("t5", {"relative_attention_num_buckets": 30}, "a multiple of 4"),
        ("t5", {"relative_attention_num_buckets": 0}, r"an integer in \[4, 4096\]"),
        ("t5", {"relative_attention_max_distance": 8}, r"an integer in \[9, 65536\]"),
    ],
)
def test_what_is_not_supported_is_refused(
    name: str, fields: dict[str, Any], message: str, tmp_path: Path
) -> None:
    folder = make_encoder(name, tmp_path)
    edit_config(folder, **fields)
    with pytest.raises(LoadError, match=message):
        MLCEngine(folder, "cpu", **SETTINGS)


def test_pooling_of_the_first_token_is_of_encoders() -> None:
    with (
        MLCEngine("demo", "cpu", verbose=False, max_num_sequence=2) as engine,
        pytest.raises(InvalidRequest, match="attend in both directions"),
    ):
        engine.embeddings.create(input="a", pooling="cls")


# ---- classifiers and rerankers


@pytest.mark.parametrize(
    ("name", "fields"),
    [
        *((name, {}) for name in CONFIGS if name not in ("eurobert", "t5")),
        ("modernbert", {"classifier_pooling": "mean", "classifier_activation": "silu"}),
        ("modernbert", {"classifier_bias": True}),
        ("eurobert", {"classifier_pooling": "mean"}),
        ("eurobert", {"classifier_pooling": "bos"}),
    ],
)
def test_classes_are_those_of_transformers(
    name: str, fields: dict[str, Any], tmp_path: Path
) -> None:
    folder = make_classifier(name, tmp_path, **fields)
    assert inspect_model(folder)["problems"] == []
    with MLCEngine(folder, "cpu", strict_weights=True, **SETTINGS) as engine:
        assert engine.num_classes == 3
        found = [each.probs for each in engine.classify(texts(), use_activation=False)]
        for ids, values in zip(texts(), found, strict=True):
            assert_close(np.array(values), logits(folder, {"input_ids": ids}))
        assert vectors(engine, [texts()[0]]).shape == (1, 64)  # it embeds, too


def test_tokens_of_encoders_classify_nothing(tmp_path: Path) -> None:
    folder = make_encoder("bert", tmp_path)
    bert_tokenizer().save_pretrained(folder)
    with pytest.raises(InvalidConfig, match="BertForMaskedLM is an encoder"):
        MLCEngine(folder, "cpu", classifier_from_token=["paris"], **SETTINGS)


def test_classifiers_that_are_refused(tmp_path: Path) -> None:
    folder = make_classifier("eurobert", tmp_path / "late")
    with pytest.raises(LoadError, match="classifier_pooling"):
        MLCEngine(folder, "cpu", **SETTINGS)
    folder = make_classifier("bert", tmp_path / "bert")
    tensors = load_file(folder / "model.safetensors")
    cut = {**tensors, "classifier.weight": tensors["classifier.weight"][:, :32].contiguous()}
    save_file(cut, folder / "model.safetensors")
    with pytest.raises(LoadError, match="takes 32 numbers"):
        MLCEngine(folder, "cpu", **SETTINGS)
    del tensors["bert.pooler.dense.weight"]
    save_file(tensors, folder / "model.safetensors")
    with pytest.raises(LoadError, match=r"bert\.pooler\.dense\.weight"):
        MLCEngine(folder, "cpu", **SETTINGS)


@pytest.mark.parametrize("device", ["cpu", "cuda:0"])
@pytest.mark.parametrize("name", TOKENIZERS)
def test_pairs_are_scored_as_in_transformers(name: str, device: str, tmp_path: Path) -> None:
    """BERT tells both texts apart by their types, which RoBERTa lacks."""
    folder = make_classifier(name, tmp_path, num_labels=1)
    tokenizer = TOKENIZERS[name]()
    tokenizer.save_pretrained(folder)
    query, documents = "where is Paris?", ["Paris is in France.", "a cat sleeps", "Rome"]
    settings = dict(SETTINGS)
    if device != "cpu":
        settings["model_lib"] = EMULATED
    with MLCEngine(folder, device, **settings) as engine:
        found = engine.score(query, documents, use_activation=False)
        first = engine.rerank(query, documents).results[0]
    want = [float(logits(folder, tokenizer(query, text))[0]) for text in documents]
    assert [each.score for each in found] == pytest.approx(want, rel=1e-4, abs=1e-5)
    assert first.index == int(np.argmax(want))


def test_callers_say_where_a_second_text_begins(tmp_path: Path) -> None:
    folder = make_classifier("bert", tmp_path)
    ids = texts()[2]
    with MLCEngine(folder, "cpu", **SETTINGS) as engine:
        for second in (0, 1, 9, len(ids)):
            found = engine.classify([ids], second_texts=[second], use_activation=False)
            types = [int(second > 0 and i >= second) for i in range(len(ids))]
            want = logits(folder, {"input_ids": ids, "token_type_ids": types})
            assert_close(np.array(found[0].probs), want)
        cut = engine.classify(
            [ids], second_texts=[9], truncate_prompt_tokens=5, use_activation=False
        )
        want = logits(folder, {"input_ids": [*ids[:4], ids[-1]]})
        assert_close(np.array(cut[0].probs), want)
        for wrong in ([1, 2], [-1], [len(ids) + 1], [2**70]):
            with pytest.raises(InvalidRequest, match="second_texts"):
                engine.classify([ids], second_texts=wrong)
    with MLCEngine("demo", "cpu", verbose=False, classifier_from_token=["a"]) as engine:
        plain, told = (
            engine.classify([[5, 6, 7]], second_texts=given)[0].probs for given in (None, [2])
        )
        assert plain == told  # it does not tell texts apart


def test_callers_in_c_say_it_too(tmp_path: Path) -> None:
    folder = make_classifier("bert", tmp_path)
    ids = texts()[2]
    settings = {name: value for name, value in SETTINGS.items() if name != "verbose"}
    with MLCEngine(folder, "cpu", **SETTINGS) as engine:
        told = engine.classify([ids], second_texts=[9], use_activation=False)[0].probs
        cls = vectors(engine, [ids], pooling="cls")[0]
    with CEngine(folder, **settings) as in_c:
        assert in_c.embedding(ids, classify=True, second_text=9) == told
        assert in_c.embedding(ids, classify=True) != told
        assert np.array_equal(np.float32(in_c.embedding(ids)), cls)
        for wrong in (-1, len(ids) + 1, "9"):
            with pytest.raises(CError) as error:
                in_c.answers({"input": ids, "classify": True, "second_text": wrong})
            assert error.value.field == "second_text"
