"""GGUF files of encoders: embeddings, scores and tokens are those of the folder."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from encoder_folders import bert_tokenizer, make_classifier, make_encoder, xlm_roberta_tokenizer
from gguf import GGMLQuantizationType as Type
from gguf_encoders import write_encoder, write_tokenizer
from safetensors.torch import load_file, save_file
from test_embedding_files import vectors
from test_encoders import POOLINGS, SETTINGS, TEXTS, assert_close, edit_config, texts
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, processors, trainers
from tokenizers import pre_tokenizers as splits
from trained_pieces import corpus, strings
from transformers import PreTrainedTokenizerFast

from mlc_native import MLCEngine, inspect_model
from mlc_native import tokenizers as ours
from mlc_native.errors import InvalidRequest, LoadError

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from charsmaps import charsmap

# Of the key pooling_type.
NUMBERS = {"mean": 1, "cls": 2, "last": 3}
RANK = 4
NAMES = ("bert", "roberta", "xlm-roberta", "distilbert", "modernbert", "eurobert", "nomic")


# ---- embeddings


@pytest.mark.parametrize("name", NAMES)
def test_embeddings_are_those_of_the_folder(name: str, tmp_path: Path) -> None:
    folder = make_encoder(name, tmp_path / "folder")
    with MLCEngine(folder, "cpu", **SETTINGS) as engine:
        want = {each: vectors(engine, texts(), pooling=each) for each in POOLINGS}
    for pooling, number in NUMBERS.items():
        path = write_encoder(folder, tmp_path / f"{pooling}.gguf", pooling=number)
        with MLCEngine(path, "cpu", strict_weights=True, **SETTINGS) as engine:
            assert engine.embedding_pooling == pooling
            assert_close(vectors(engine, texts()), want[pooling], 1e-5)
            for other in POOLINGS:
                assert_close(vectors(engine, texts(), pooling=other), want[other], 1e-5)
    about = inspect_model(path)
    assert about["problems"] == []
    assert about["decoder"]["attends_in_both_directions"] is True


def test_a_file_need_not_say_its_pooling_and_may_join_tensors(tmp_path: Path) -> None:
    folder = make_encoder("bert", tmp_path / "folder")
    with MLCEngine(folder, "cpu", **SETTINGS) as engine:
        want = vectors(engine, texts(), pooling="cls")
    plain = write_encoder(folder, tmp_path / "plain.gguf")
    fused = write_encoder(folder, tmp_path / "fused.gguf", fused=True)
    for path in (plain, fused):
        with MLCEngine(path, "cpu", strict_weights=True, **SETTINGS) as engine:
            assert_close(vectors(engine, texts()), want, 1e-5)
            with pytest.raises(InvalidRequest, match="attends in both directions"):
                engine.completions.create(prompt=texts()[2], max_tokens=1)


@pytest.mark.parametrize("kind", [Type.F16, Type.Q8_0, Type.Q4_0], ids=lambda kind: kind.name)
@pytest.mark.parametrize("name", ["bert", "xlm-roberta", "modernbert", "nomic"])
def test_stored_types(name: str, kind: Type, tmp_path: Path) -> None:
    """Also without a dtype of the caller: tables that stay floats do not choose it."""
    folder = make_encoder(name, tmp_path / "folder")
    path = write_encoder(folder, tmp_path / "x.gguf", lambda _: kind, pooling=1)
    tables = [each for each in inspect_model(path)["matrices"] if "position" in each["name"]]
    found = [(each["stored"], each["loads_as"]) for each in tables]
    has_table = name not in ("modernbert", "nomic")
    assert found == ([("F32", "float16")] if has_table else [])
    with MLCEngine(folder, "cpu", **SETTINGS) as engine:
        want = vectors(engine, texts(), pooling="mean")
    for dtype in ("float32", "auto"):
        with MLCEngine(path, "cpu", **{**SETTINGS, "dtype": dtype}) as engine:
            found = vectors(engine, texts())
        similar = (found * want).sum(axis=1)
        assert similar.min() > (0.98 if kind == Type.Q4_0 else 0.999)


@pytest.mark.parametrize(
    "fields",
    [
        {"num_hidden_layers": 7, "layer_types": None, "global_attn_every_n_layers": 2},
        {"hidden_activation": "silu"},
        {"local_attention": 0, "layer_types": ["full_attention"] * 4},
    ],
)
def test_layers_of_modernbert(fields: dict[str, Any], tmp_path: Path) -> None:
    folder = make_encoder("modernbert", tmp_path / "folder", **fields)
    edit_config(folder, **{"layer_types": None, "local_attention": 16, **fields})
    path = write_encoder(folder, tmp_path / "x.gguf", pooling=1)
    edit_config(folder, local_attention=fields.get("local_attention", 16) or 16)
    with MLCEngine(folder, "cpu", **SETTINGS) as engine:
        want = vectors(engine, texts(), pooling="mean")
    with MLCEngine(path, "cpu", strict_weights=True, **SETTINGS) as engine:
        assert_close(vectors(engine, texts()), want, 1e-5)


def test_what_fills_masks_of_modernbert_is_not_read(tmp_path: Path) -> None:
    folder = make_classifier("modernbert", tmp_path / "folder")
    tensors = load_file(folder / "model.safetensors")
    kept = {name: t for name, t in tensors.items() if not name.startswith("classifier.")}
    save_file(kept, folder / "model.safetensors")
    edit_config(folder, architectures=["ModernBertForMaskedLM"], id2label=None)
    path = write_encoder(folder, tmp_path / "x.gguf", pooling=2)
    with MLCEngine(folder, "cpu", **SETTINGS) as engine:
        want = vectors(engine, texts())
    with MLCEngine(path, "cpu", strict_weights=True, **SETTINGS) as engine:
        assert engine.num_classes == 0
        assert_close(vectors(engine, texts()), want, 1e-5)


# ---- classes


def rank_file(name: str, folder: Path, **options: Any) -> Path:
    return write_encoder(
        folder, folder / "x.gguf", pooling=RANK, with_pooler=name == "bert", **options
    )


@pytest.mark.parametrize("name", ["bert", "roberta", "xlm-roberta", "distilbert", "modernbert"])
@pytest.mark.parametrize("count", [1, 3])
def test_classes_are_those_of_the_folder(name: str, count: int, tmp_path: Path) -> None:
    of_modern = {"classifier_pooling": "mean" if count == 1 else "cls"}
    fields = of_modern if name == "modernbert" else {}
    folder = make_classifier(name, tmp_path, num_labels=count, **fields)
    with MLCEngine(folder, "cpu", **SETTINGS) as engine:
        want = engine.classify(texts(), use_activation=False)
        embedded = vectors(engine, texts())
    for is_vector in (False, True):
        path = rank_file(name, folder, vectors_of_rows=is_vector)
        with MLCEngine(path, "cpu", strict_weights=True, **SETTINGS) as engine:
            assert engine.num_classes == count
            found = engine.classify(texts(), use_activation=False)
            assert_close(vectors(engine, texts()), embedded, 1e-5)
        for each, other in zip(found, want, strict=True):
            assert each.label == other.label
            assert_close(np.array(each.probs), np.array(other.probs), 1e-5)


def test_labels_are_those_of_the_file(tmp_path: Path) -> None:
    labels = {0: "sad", 1: "neutral", 2: "glad"}
    folder = make_classifier("xlm-roberta", tmp_path, id2label=labels)
    with MLCEngine(rank_file("xlm-roberta", folder), "cpu", **SETTINGS) as engine:
        for each in engine.classify(texts()):
            assert each.label == labels[int(np.argmax(each.probs))]
            assert sum(each.probs) == pytest.approx(1)


@pytest.mark.parametrize("kind", [Type.F16, Type.Q8_0], ids=lambda kind: kind.name)
def test_heads_may_be_quantized(kind: Type, tmp_path: Path) -> None:
    folder = make_classifier("xlm-roberta", tmp_path)
    with MLCEngine(folder, "cpu", **SETTINGS) as engine:
        want = np.array([each.probs for each in engine.classify(texts(), use_activation=False)])
    path = rank_file("xlm-roberta", folder, type_of=lambda _: kind)
    with MLCEngine(path, "cpu", **SETTINGS) as engine:
        found = np.array([each.probs for each in engine.classify(texts(), use_activation=False)])
    assert np.abs(found - want).max() < 0.03 * np.abs(want).max()


@pytest.mark.parametrize("name", ["bert", "xlm-roberta"])
def test_pairs_are_scored_as_from_the_folder(name: str, tmp_path: Path) -> None:
    """Those of BERT have types, and those of RoBERTa two tokens between the texts."""
    folder = make_classifier(name, tmp_path, num_labels=1)
    (bert_tokenizer if name == "bert" else xlm_roberta_tokenizer)().save_pretrained(folder)
    query, documents = "where is Paris?", ["Paris is in France.", "a cat sleeps", "Rome"]
    found = []
    for model in (folder, rank_file(name, folder)):
        with MLCEngine(model, "cpu", **SETTINGS) as engine:
            scored = engine.score(query, documents, use_activation=False)
            found.append([each.score for each in scored])
            assert engine.rerank(query, documents).usage.total_tokens > 0
    assert len({round(score, 4) for score in found[0]}) == 3
    assert found[1] == pytest.approx(found[0], rel=1e-5, abs=1e-6)


# ---- tokenizers

MARKS = [
    *["Café", "CAFÉ", "E\u0301cole", "naïve Ä ß İ", "ǅ", "中文字", "日本語 テキスト", "한국어"],
    *[
        "ไทย",
        "🙂",
        "don't",
        "U.S.A.",
        "a-b_c",
        "¿qué?",
        "½ ﬁ Ω",
        "\u200bzero\u00a0width",
        "\tTab\n",
    ],
    *["x" * 120, "[UNK]", "[MASK] rome", "<mask> rome", "▁", "##s", "", "  two  spaces "],
]


BERT = {f"{token.lower()}_token": f"[{token}]" for token in ("CLS", "SEP", "UNK", "PAD", "MASK")}
ROBERTA = {
    **{"bos_token": "<s>", "cls_token": "<s>", "eos_token": "</s>", "sep_token": "</s>"},
    **{"unk_token": "<unk>", "pad_token": "<pad>"},
}


def saved(core: Tokenizer, folder: Path, **special: str) -> Tokenizer:
    """The tokenizer, as the folder then has it."""
    PreTrainedTokenizerFast(tokenizer_object=core, **special).save_pretrained(folder)
    return Tokenizer.from_file(str(folder / "tokenizer.json"))


def train_word_pieces(folder: Path, **options: Any) -> Tokenizer:
    core = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    core.normalizer = normalizers.BertNormalizer(**options)
    core.pre_tokenizer = splits.BertPreTokenizer()
    core.decoder = decoders.WordPiece()
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    trainer = trainers.WordPieceTrainer(
        vocab_size=1500, show_progress=False, special_tokens=special
    )
    core.train_from_iterator([*corpus(), *MARKS[:8] * 20], trainer)
    core.add_tokens([AddedToken("covid", normalized=False)])
    core.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[(token, core.token_to_id(token)) for token in ("[CLS]", "[SEP]")],
    )
    return saved(core, folder, **BERT)


def around_roberta(core: Tokenizer) -> None:
    core.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>",
        pair="<s> $A </s> </s> $B </s>",
        special_tokens=[("<s>", core.token_to_id("<s>")), ("</s>", core.token_to_id("</s>"))],
    )


def train_unigram(folder: Path, removes_spaces: bool) -> Tokenizer:
    core = Tokenizer(models.Unigram())
    replaced = {"ﬁ": "fi", "½": "1/2", "\t": " ", "\n": " ", "\u00a0": " ", "é": "e", "\u200b": ""}
    normalizer = {"type": "Precompiled", "precompiled_charsmap": charsmap(replaced)}
    pre: splits.PreTokenizer = splits.Metaspace()
    if removes_spaces:
        pre = splits.Sequence([splits.WhitespaceSplit(), pre])
    core.pre_tokenizer = pre
    core.decoder = decoders.Metaspace()
    special = ["<s>", "<pad>", "</s>", "<unk>"]
    trainer = trainers.UnigramTrainer(
        vocab_size=1000, show_progress=False, special_tokens=special, unk_token="<unk>"
    )
    core.train_from_iterator(corpus()[:4000], trainer)
    core.add_special_tokens(special)
    around_roberta(core)
    file = json.loads(core.to_str()) | {"normalizer": normalizer}
    for piece in file["model"]["vocab"]:
        piece[1] = float(np.float32(piece[1]))  # as SentencePiece has them
    return saved(Tokenizer.from_str(json.dumps(file)), folder, **ROBERTA)


def train_modern(folder: Path) -> Tokenizer:
    """Of bytes, as that of ModernBERT."""
    core = Tokenizer(models.BPE())
    core.normalizer = normalizers.NFC()
    core.pre_tokenizer = splits.ByteLevel(add_prefix_space=False)
    core.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=1000, show_progress=False,
                                  initial_alphabet=splits.ByteLevel.alphabet())  # fmt: skip
    core.train_from_iterator(corpus(), trainer)
    core.add_tokens(["  ", "    "])
    core.add_special_tokens(list(BERT.values()))
    core.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B [SEP]",
        special_tokens=[(token, core.token_to_id(token)) for token in ("[CLS]", "[SEP]")],
    )
    return saved(core, folder, **BERT)


def train_bytes(folder: Path) -> Tokenizer:
    """As that of RoBERTa."""
    core = Tokenizer(models.BPE())
    core.pre_tokenizer = splits.ByteLevel(add_prefix_space=False)
    core.decoder = decoders.ByteLevel()
    special = ["<s>", "<pad>", "</s>", "<unk>"]
    alphabet = splits.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=1000, show_progress=False, special_tokens=special,
                                  initial_alphabet=alphabet)  # fmt: skip
    core.train_from_iterator(corpus(), trainer)
    core.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 0))
    return saved(core, folder, **ROBERTA)


TRAINED: dict[str, Callable[[Path], Tokenizer]] = {
    "uncased": train_word_pieces,
    "cased": lambda folder: train_word_pieces(folder, lowercase=False),
    "accents": lambda folder: train_word_pieces(folder, strip_accents=False),
    "unigram": lambda folder: train_unigram(folder, removes_spaces=True),
    "unigram-spaces": lambda folder: train_unigram(folder, removes_spaces=False),
    "bytes": train_bytes,
    "modern": train_modern,
}


@pytest.mark.parametrize("kind", TRAINED)
def test_ids_are_those_of_the_folder(kind: str, tmp_path: Path) -> None:
    core = TRAINED[kind](tmp_path)
    tokenizer = ours.Tokenizer(write_tokenizer(tmp_path, tmp_path / "x.gguf"))
    tried = [*MARKS, "a covid test", *strings(300), *(text.upper() for text in strings(50))]
    expected = [each.ids for each in core.encode_batch(tried, add_special_tokens=False)]
    for text, found, want in zip(tried, tokenizer.encode_batch(tried), expected, strict=True):
        assert found == want, text
    alone = core.encode("a").ids
    assert tokenizer.special_tokens.front == (alone[0],)
    assert tokenizer.special_tokens.back == (alone[-1],)
    pair = tokenizer.library.encode("where is it?", "in a box.")
    want_pair = core.encode("where is it?", "in a box.")
    assert pair.ids == want_pair.ids
    assert pair.type_ids == want_pair.type_ids
    for ids in expected[:100]:
        plain = core.decode(ids, skip_special_tokens=False)
        assert tokenizer.decode(ids, skip_special_tokens=False) == plain


@pytest.mark.parametrize("lowercase", [False, True])
def test_case_of_files_that_do_not_say_it(lowercase: bool, tmp_path: Path) -> None:
    """Such as the first converters wrote: a vocabulary with upper case says it."""
    core = train_word_pieces(tmp_path, lowercase=lowercase)
    path = write_tokenizer(tmp_path, tmp_path / "x.gguf", says_case=False)
    for text in MARKS:
        want = core.encode(text, add_special_tokens=False).ids
        assert ours.Tokenizer(path).encode(text) == want, text


@pytest.mark.parametrize("name", ["bert", "xlm-roberta", "nomic"])
def test_texts_are_embedded_as_from_the_folder(name: str, tmp_path: Path) -> None:
    folder = make_encoder(name, tmp_path)
    (xlm_roberta_tokenizer if name == "xlm-roberta" else bert_tokenizer)().save_pretrained(folder)
    found = []
    for model in (folder, write_encoder(folder, tmp_path / "x.gguf", pooling=2)):
        with MLCEngine(model, "cpu", **SETTINGS) as engine:
            found.append(vectors(engine, TEXTS))
    assert_close(found[1], found[0], 1e-5)


# ---- refusals


def refused(path: Path, field: str, message: str) -> None:
    with pytest.raises(LoadError, match=message) as error:
        MLCEngine(path, "cpu", **SETTINGS)
    assert error.value.field == field


def with_value(content: bytes, key: str, value: int, size: int) -> bytes:
    """With another number, of ``size`` bytes, for a key."""
    place = content.index(key.encode()) + len(key) + 4
    return content[:place] + value.to_bytes(size, "little") + content[place + size :]


def test_parts_of_classifiers_that_are_missing_are_named(tmp_path: Path) -> None:
    """llama.cpp's converter leaves out the pooler of BERT, without which scores are others."""
    path = tmp_path / "x.gguf"
    folder = make_classifier("bert", tmp_path / "bert")
    refused(write_encoder(folder, path, pooling=RANK), "cls.weight", "is missing")
    config = json.loads((folder / "config.json").read_text())
    del config["id2label"]
    (folder / "config.json").write_text(json.dumps(config))
    refused(write_encoder(folder, path, pooling=RANK), "cls.output.weight", "is missing")
    folder = make_classifier("modernbert", tmp_path / "modernbert")
    content = write_encoder(folder, path, pooling=RANK).read_bytes()
    path.write_bytes(content.replace(b"cls.norm.weight", b"cls.norm.weigh_"))
    refused(path, "cls.norm.weight", "is missing")
    key = "modern-bert.classifier.pooling_type"
    path.write_bytes(with_value(content, key, 3, 4))
    refused(path, key, r"= 3 must be 1 \(mean\) or 2")
    for name in ("eurobert", "nomic"):
        content = write_encoder(make_encoder(name, tmp_path / name), path).read_bytes()
        path.write_bytes(content.replace(b"token_embd.weight", b"cls.output.weight"))
        refused(path, "cls.output.weight", "is not supported for this family")


def test_what_is_not_supported_is_named(tmp_path: Path) -> None:
    folder = make_encoder("bert", tmp_path / "bert")
    path = write_encoder(folder, tmp_path / "x.gguf")
    good = path.read_bytes()

    path.write_bytes(with_value(good, "bert.attention.causal", 1, 1))
    refused(path, "bert.attention.causal", "is not supported for this family")
    path.write_bytes(with_value(good, "bert.context_length", 299, 4))
    table = "bert.embeddings.position_embeddings.weight"
    refused(path, table, r"shape \[300, 64\], the configuration asks for \[299, 64\]")
    for key in ("bert.context_length", "bert.attention.layer_norm_epsilon"):
        path.write_bytes(good.replace(key.encode(), key[:-1].encode() + b"_"))
        refused(path, key, "is missing")
    path.write_bytes(good.replace(b"token_embd_norm.bias", b"token_embd_norm.bia_"))
    refused(path, "bert.embeddings.LayerNorm.bias", "lacks tensor")
    refused(write_encoder(folder, path, metadata={"bert.pooling_type": 7}), "pooling_type", "7")


def test_vocabularies_that_are_no_word_pieces_are_named(tmp_path: Path) -> None:
    bert_tokenizer().save_pretrained(tmp_path)
    file = json.loads((tmp_path / "tokenizer.json").read_text())
    vocab = file["model"]["vocab"]
    path = tmp_path / "x.gguf"
    for gone, field, message in (
        ("##", "tokenizer.ggml.tokens", "has no token that continues a word"),
        ("[SEP]", "tokenizer.ggml.seperator_token_id", r"is missing, and no token is \[SEP\]"),
    ):
        kept = [text for text in vocab if not text.startswith(gone)]
        file["model"]["vocab"] = {text: i for i, text in enumerate(kept)}
        file["added_tokens"] = [t for t in file["added_tokens"] if t["content"] in kept]
        for token in file["added_tokens"]:
            token["id"] = kept.index(token["content"])
        file["post_processor"] = None
        (tmp_path / "tokenizer.json").write_text(json.dumps(file))
        with pytest.raises(LoadError, match=message) as error:
            ours.Tokenizer(write_tokenizer(tmp_path, path))
        assert error.value.field == field
