"""The tokenizers in C++ against the tokenizers package: equal tokens for any text."""

from __future__ import annotations

import json
import random
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from tokenizer_kinds import KINDS, LLAMA_3, a_text, falcon, some_texts
from tokenizers import AddedToken, Regex, decoders, models, normalizers, pre_tokenizers, processors
from tokenizers import Tokenizer as HFTokenizer

from mlc_native import _core
from mlc_native.errors import InvalidRequest, LoadError
from mlc_native.tokenizers import Tokenizer
from mlc_native.tokenizers.special_tokens import read_special_tokens

COUNTS = [1500, pytest.param(200_000, marks=[pytest.mark.slow, pytest.mark.nightly])]
SIZES = [60_000, pytest.param(1 << 20, marks=[pytest.mark.slow, pytest.mark.nightly])]


def load(path: Path) -> _core.Tokenizer:
    """The tokenizer of a file all of whose parts are supported."""
    tokenizer, reason = _core.Tokenizer.from_tokenizer_json(str(path))
    assert tokenizer is not None, reason
    return tokenizer


@pytest.fixture(scope="module", params=KINDS, ids=lambda kind: kind.__name__)
def pair(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[HFTokenizer, _core.Tokenizer]:
    """The same tokenizer.json, read by the package and by the engine."""
    path = tmp_path_factory.mktemp("tokenizer") / "tokenizer.json"
    tokenizer = request.param()
    tokenizer.save(str(path))
    return HFTokenizer.from_file(str(path)), load(path)


@pytest.mark.parametrize("count", COUNTS)
def test_tokens_are_those_of_the_package(
    pair: tuple[HFTokenizer, _core.Tokenizer], count: int
) -> None:
    theirs, ours = pair
    texts = [*some_texts(2, count), "", " ", "a", "\n"]
    expected = theirs.encode_batch(texts, add_special_tokens=False)
    for text, ids, encoding in zip(texts, ours.encode_batch(texts), expected, strict=True):
        assert ids == encoding.ids, (text, encoding.tokens, [ours.token_of(i) for i in ids])


def test_vocabularies_are_equal(pair: tuple[HFTokenizer, _core.Tokenizer]) -> None:
    theirs, ours = pair
    assert ours.vocab_size == theirs.get_vocab_size()
    for token, token_id in theirs.get_vocab().items():
        assert ours.id_of(token) == token_id
        assert ours.token_of(token_id) == token
    assert ours.id_of("no such token") is None
    assert ours.token_of(1 << 30) is None


def test_the_package_is_loaded_for_decoding_alone(tmp_path: Path) -> None:
    path = tmp_path / "tokenizer.json"
    for kind in KINDS:
        theirs = kind()
        theirs.save(str(path))
        ours = Tokenizer(path)
        size = theirs.get_vocab_size()
        assert ours.vocab_size == size
        added = theirs.get_added_tokens_decoder().values()
        assert sorted(ours.special_texts) == sorted({t.content for t in added if t.special})
        for token_id in {0, size // 2, size - 1, size + 1}:
            token = theirs.id_to_token(token_id)
            assert ours.id_to_token(token_id) == token
            assert token is None or ours.token_to_id(token) == theirs.token_to_id(token)
        text = "Hello, wörld <s> 1234\n"
        ids = theirs.encode(text, add_special_tokens=False).ids
        assert ours.encode_batch([text, "a"])[0] == ours.encode(text) == ids
        assert ours.special_tokens == read_special_tokens(theirs, tmp_path)
        assert ours.token_table.size >= size
        assert "library" not in vars(ours), kind.__name__
        assert ours.decode(ids) == theirs.decode(ids)
        assert "library" in vars(ours)


def test_a_program_that_encodes_does_not_import_the_package(tmp_path: Path) -> None:
    KINDS[0]().save(str(tmp_path / "tokenizer.json"))
    program = (
        "import sys; from mlc_native.tokenizers import Tokenizer\n"
        "print(len(Tokenizer(sys.argv[1]).encode('Hello')), 'tokenizers' in sys.modules)"
    )
    command = [sys.executable, "-c", program, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.endswith(" False\n")
    assert not done.stdout.startswith("0")


@pytest.mark.parametrize("size", SIZES)
def test_long_texts_take_little_time(pair: tuple[HFTokenizer, _core.Tokenizer], size: int) -> None:
    """A step that takes the square of the text would take minutes, and these take milliseconds."""
    theirs, ours = pair
    for text in ("ab", " ", "1", "{\n", "é", "\u0301", " \n", "'S", "<s> ", "Aa", "日"):
        long = text * (8192 // len(text))
        (expected,) = theirs.encode_batch([long], add_special_tokens=False)
        assert ours.encode(long) == expected.ids
    start = time.process_time()
    for text in ("ab", " \n", "é\u0301", "".join(some_texts(3, 100))):
        long = text * (size // len(text))
        ours.encode(long)
    assert time.process_time() - start < 60  # about 0.3 s for 1 MB


def test_a_token_between_spaces_that_are_taken_is_none(tmp_path: Path) -> None:
    """The one before it takes all spaces behind it, among them the token itself."""
    path = tmp_path / "tokenizer.json"
    tokenizer = HFTokenizer(models.BPE(vocab={"a": 0, "b": 1}, merges=[]))
    tokenizer.add_tokens([AddedToken("<x>", rstrip=True, normalized=False)])
    tokenizer.add_tokens([AddedToken("\n", lstrip=True, normalized=False)])
    tokenizer.save(str(path))
    ours = load(path)
    for text in ("a<x> \nb", "a<x>\nb", "a \n<x>b", "\n \nb"):
        assert ours.encode(text) == tokenizer.encode(text).ids, text


# ----------------------------------------------------------------------------- control tokens


def with_controls(path: Path) -> _core.Tokenizer:
    """Bytes as tokens, two special tokens, and one that looks so."""
    tokenizer = HFTokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer.model = models.BPE(vocab={c: i for i, c in enumerate(alphabet)}, merges=[])
    tokenizer.add_special_tokens(["<s>", "</s>"])
    tokenizer.add_tokens([AddedToken("<|user|>", normalized=False), "<tool>"])
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", special_tokens=[("<s>", 256), ("</s>", 257)]
    )
    tokenizer.save(str(path))
    return load(path)


def test_control_tokens_are_those_of_the_template(tmp_path: Path) -> None:
    tokenizer = with_controls(tmp_path / "tokenizer.json")
    text = "é<s><|user|><tool>"
    begin, user, tool = (tokenizer.id_of(name) for name in ("<s>", "<|user|>", "<tool>"))
    everywhere = tokenizer.encode(text)
    assert [i for i in everywhere if i >= 256] == [begin, user, tool]
    nowhere = tokenizer.encode_prompt(text, [])
    assert [i for i in nowhere if i >= 256] == [tool]
    assert tokenizer.decode(nowhere, False) == text
    first = tokenizer.encode_prompt(text, [(1, 4)])
    assert [i for i in first if i >= 256] == [begin, tool]
    assert tokenizer.decode(first, False) == text
    half = tokenizer.encode_prompt(text, [(1, 3), (4, 12)])
    assert [i for i in half if i >= 256] == [user, tool]
    assert tokenizer.encode_prompt(text, [(0, len(text))]) == everywhere


def test_special_tokens_around_a_text(tmp_path: Path) -> None:
    path = tmp_path / "tokenizer.json"
    assert with_controls(path).special_tokens == ([256], [257])
    config = tmp_path / "tokenizer_config.json"
    for choice, front in [(True, [256]), (False, [])]:
        config.write_text(json.dumps({"add_bos_token": choice, "bos_token": {"content": "<s>"}}))
        assert load(path).special_tokens == (front, [257])


def test_a_control_token_that_is_a_word_is_cut(tmp_path: Path) -> None:
    """Merges that make the text of a control token must not make the token."""
    path = tmp_path / "tokenizer.json"
    vocab = {"<": 0, "s": 1, ">": 2, "<s": 3, "<s>": 4}
    tokenizer = HFTokenizer(models.BPE(vocab=vocab, merges=[("<", "s"), ("<s", ">")]))
    tokenizer.add_special_tokens(["<s>"])
    tokenizer.save(str(path))
    ours = load(path)
    assert ours.encode("<s>s<s>") == [4, 1, 4]
    assert ours.encode_prompt("<s>s<s>", [(0, 3)]) == [4, 1, 0, 1, 2]


# ------------------------------------------------------------------- what is not supported, errors


def refused(tmp_path: Path, **parts: Any) -> str:
    """Why a tokenizer of bytes with other parts is not supported."""
    path = tmp_path / "tokenizer.json"
    with_controls(path)
    path.write_text(json.dumps(json.loads(path.read_text()) | parts))
    tokenizer, reason = _core.Tokenizer.from_tokenizer_json(str(path))
    assert tokenizer is None
    return str(reason)


def test_parts_that_are_not_supported_are_named(tmp_path: Path) -> None:
    def part(component: Any) -> Any:
        return json.loads(component.__getstate__())

    look_behind = pre_tokenizers.Split(Regex("(?<=a)b"), "isolated")
    word_level = json.loads(HFTokenizer(models.WordLevel({"a": 0}, "a")).to_str())["model"]
    assert refused(tmp_path, normalizer=part(normalizers.Nmt())) == 'normalizer "Nmt"'
    assert refused(tmp_path, normalizer=part(normalizers.BertNormalizer())).endswith(
        '"BertNormalizer"'
    )
    scripts = part(pre_tokenizers.UnicodeScripts())
    assert refused(tmp_path, pre_tokenizer=scripts) == 'pre-tokenizer "UnicodeScripts"'
    assert "Split" in refused(tmp_path, pre_tokenizer=part(look_behind))
    assert refused(tmp_path, model=word_level) == 'model type "WordLevel"'
    behind = json.loads(falcon().to_str())["pre_tokenizer"]
    assert refused(tmp_path, pre_tokenizer=behind) == 'pre-tokenizer "Digits" behind "ByteLevel"'
    assert "dropout" in refused(
        tmp_path, model={"type": "BPE", "dropout": 0.5, "vocab": {}, "merges": []}
    )


@pytest.mark.parametrize(
    "parts",
    [
        {"model": {"type": "BPE", "vocab": {"a": 0, "b": 1}, "merges": ["a b"]}},
        {"model": {"type": "BPE", "vocab": {"a": -1}, "merges": []}},
        {"model": {"type": "BPE", "vocab": {"a": "b"}, "merges": []}},
        {"model": {"type": "BPE", "vocab": {"a": 1 << 40}, "merges": []}},
        {"model": {"type": "BPE", "vocab": {"a": 0}, "merges": ["aa"]}},
        {"model": {"type": "BPE", "vocab": [], "merges": []}},
        {
            "model": {"type": "Unigram", "vocab": [["a", 0.0]], "unk_id": 7},
            "pre_tokenizer": None,
        },
        {"model": {"type": "Unigram", "vocab": [["a"]]}, "pre_tokenizer": None},
        {"normalizer": {"type": "Precompiled", "precompiled_charsmap": "AAAAAAAA"}},
        {"normalizer": {"type": "Precompiled", "precompiled_charsmap": "*"}},
        {"normalizer": {"type": "Prepend"}},
        {"pre_tokenizer": {"type": "Metaspace", "replacement": "ab"}},
        {"post_processor": {"type": "RobertaProcessing", "sep": ["a"], "cls": ["b", 1]}},
    ],
)
def test_damaged_files_are_errors(tmp_path: Path, parts: dict[str, Any]) -> None:
    path = tmp_path / "tokenizer.json"
    with_controls(path)
    path.write_text(json.dumps(json.loads(path.read_text()) | parts))
    with pytest.raises(LoadError) as error:
        _core.Tokenizer.from_tokenizer_json(str(path))
    assert "tokenizer.json" in str(error.value.field)


def test_texts_that_cannot_be_encoded_are_errors(tmp_path: Path) -> None:
    path = tmp_path / "tokenizer.json"
    unigram = HFTokenizer(models.Unigram([("a", 0.0)]))
    unigram.save(str(path))
    tokenizer = load(path)
    assert tokenizer.encode("aa") == [0, 0]
    with pytest.raises(InvalidRequest, match="without a token"):
        tokenizer.encode("ab")
    growing = HFTokenizer(models.BPE(vocab={"a": 0}, merges=[]))
    growing.normalizer = normalizers.Sequence([normalizers.Replace("a", "a" * 50)] * 20)
    growing.save(str(path))
    with pytest.raises(InvalidRequest, match="normalizers"):
        load(path).encode("aaaa")
    slow = HFTokenizer(models.BPE(vocab={"a": 0}, merges=[]))
    slow.pre_tokenizer = pre_tokenizers.Split(Regex("a+b|a"), "isolated")
    slow.save(str(path))
    with pytest.raises(InvalidRequest, match="too long"):
        load(path).encode("a" * 100_000)


def test_threads_share_a_tokenizer(pair: tuple[HFTokenizer, _core.Tokenizer]) -> None:
    from concurrent.futures import ThreadPoolExecutor

    _, ours = pair
    texts = list(some_texts(7, 200))
    expected = ours.encode_batch(texts)
    with ThreadPoolExecutor(4) as threads:
        assert list(threads.map(ours.encode, texts)) == expected


def test_any_pattern_splits_as_in_the_package(tmp_path: Path) -> None:
    """Expressions made of pieces, so that none is known beforehand."""
    rng = random.Random(8)
    atoms = [r"\s", r"\S", r"\p{L}", r"\p{N}", r"[^\s\p{L}]", "a", r"\d", r"\w", " ", "[a-f]", "'"]
    atoms += [r"[^\w\s]", r"[\w-]"]
    vocab = {c: i for i, c in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    path = tmp_path / "tokenizer.json"
    for _ in range(40):
        branches = [
            "".join(
                rng.choice(atoms) + rng.choice(["", "", "+", "?", "*", "{1,2}", "+?"])
                for _ in range(rng.randrange(3))
            )
            + rng.choice(atoms)
            + rng.choice(["", "+", "(?!a)", r"(?=\s)"])
            for _ in range(rng.randrange(1, 4))
        ]
        pattern = "|".join(branches)
        behavior = rng.choice(
            ["isolated", "removed", "merged_with_previous", "merged_with_next", "contiguous"]
        )
        splitter = pre_tokenizers.Split(Regex(pattern), behavior, invert=rng.random() < 0.3)
        tokenizer = HFTokenizer(models.BPE(vocab=vocab, merges=[], end_of_word_suffix="|"))
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
            [splitter, pre_tokenizers.ByteLevel(add_prefix_space=True, use_regex=False)]
        )
        tokenizer.save(str(path))
        ours = load(path)
        for text in (a_text(rng) for _ in range(30)):
            assert ours.encode(text) == tokenizer.encode(text).ids, (pattern, text)


def test_llama_3_is_not_a_special_case(tmp_path: Path) -> None:
    """The expression of a family with another spelling splits alike."""
    path = tmp_path / "tokenizer.json"
    respelled = LLAMA_3.replace(r"\p{N}{1,3}", r"\p{N}\p{N}?\p{N}?")
    vocab = {c: i for i, c in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    encoded = []
    for pattern in (LLAMA_3, respelled):
        tokenizer = HFTokenizer(models.BPE(vocab=vocab, merges=[]))
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
            [
                pre_tokenizers.Split(Regex(pattern), "isolated"),
                pre_tokenizers.ByteLevel(add_prefix_space=True, use_regex=False),
            ]
        )
        tokenizer.save(str(path))
        encoded.append(load(path).encode_batch(list(some_texts(9, 200))))
    assert encoded[0] == encoded[1]
