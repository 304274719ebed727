"""Tokenizer, token table, TextStreamer and StopStrHandler on byte-level and byte-fallback files."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest
from fake_model import EOS, write_tokenizer
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer as HFTokenizer
from tokenizers import decoders, models, normalizers, pre_tokenizers, trainers

from mlc_native.errors import InvalidRequest, LoadError
from mlc_native.tokenizers import StopStrHandler, TextStreamer, Tokenizer, TokenizerInfo

EMOJI_PARAGRAPH = (
    "I recently traveled to Japan 🇯🇵, where I experienced the rich culture 🌸, ate sushi 🍣 and "
    "ramen 🍜, and visited shrines ⛩️. 日本の桜は美しい。 Zażółć gęślą jaźń 👩‍👩‍👧‍👦 "
    "naïve café. 🤔 Done!\n\n"
)


def byte_level(folder: Path) -> Path:
    """A trained byte-level BPE: tokens of several bytes that split characters."""
    tokenizer = HFTokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=400,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        special_tokens=["<|end|>"],
        show_progress=False,
    )
    tokenizer.train_from_iterator([EMOJI_PARAGRAPH] * 3, trainer)
    tokenizer.save(str(folder / "tokenizer.json"))
    return folder


def byte_fallback(folder: Path) -> Path:
    """A vocabulary like Llama-2's: U+2581 for spaces, <0xHH> for what is not in it."""
    pieces = ["<unk>", "<s>", *(f"<0x{byte:02X}>" for byte in range(256))]
    pieces += ["▁", *sorted(set("abcdefghijklmnopqrstuvwxyz,.!é"))]
    tokenizer = HFTokenizer(
        models.BPE(
            vocab={piece: i for i, piece in enumerate(pieces)},
            merges=[],
            unk_token="<unk>",
            byte_fallback=True,
            fuse_unk=True,
        )
    )
    tokenizer.normalizer = normalizers.Sequence(
        [normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]
    )
    tokenizer.decoder = decoders.Sequence(
        [
            decoders.Replace("▁", " "),
            decoders.ByteFallback(),
            decoders.Fuse(),
            decoders.Strip(" ", 1, 0),
        ]
    )
    tokenizer.add_special_tokens(["<s>"])
    tokenizer.save(str(folder / "tokenizer.json"))
    return folder


KINDS = {"byte_level": byte_level, "byte_fallback": byte_fallback}


@pytest.fixture(scope="module", params=KINDS)
def tokenizer(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Tokenizer:
    return Tokenizer(KINDS[request.param](tmp_path_factory.mktemp(request.param)))


@pytest.fixture
def bytes_tokenizer(tmp_path: Path) -> Tokenizer:
    """One token per byte, id = byte."""
    write_tokenizer(tmp_path)
    return Tokenizer(tmp_path)


# ------------------------------------------------------------------------------------- Tokenizer


def test_encode_and_decode(tokenizer: Tokenizer) -> None:
    for text in (EMOJI_PARAGRAPH, "", " ", "a", "  two  spaces"):
        ids = tokenizer.encode(text)
        assert tokenizer.decode(ids) == text
        assert tokenizer.encode_batch([text, "b"]) == [ids, tokenizer.encode("b")]


def test_no_special_tokens_are_added(tmp_path: Path) -> None:
    from tokenizers.processors import TemplateProcessing

    write_tokenizer(tmp_path)
    path = tmp_path / "tokenizer.json"
    hf = HFTokenizer.from_file(str(path))
    hf.post_processor = TemplateProcessing(single="<|end|> $A", special_tokens=[("<|end|>", EOS)])
    hf.enable_truncation(2)
    hf.enable_padding(length=9)
    hf.save(str(path))
    assert hf.encode("abc").ids != [97, 98, 99]
    assert Tokenizer(path).encode("abc") == [97, 98, 99]


def test_special_tokens_in_text(bytes_tokenizer: Tokenizer) -> None:
    assert bytes_tokenizer.encode("a<|end|>") == [97, EOS]
    assert bytes_tokenizer.decode([97, EOS]) == "a"
    assert bytes_tokenizer.decode([97, EOS], skip_special_tokens=False) == "a<|end|>"
    assert bytes_tokenizer.token_to_id("<|end|>") == EOS
    assert bytes_tokenizer.vocab_size == 257


@pytest.mark.parametrize("text", ["\ud800", "a\udcffb"])
def test_invalid_unicode_is_refused(bytes_tokenizer: Tokenizer, text: str) -> None:
    for encode in (bytes_tokenizer.encode, lambda t: bytes_tokenizer.encode_batch(["a", t])):
        with pytest.raises(InvalidRequest, match="not valid Unicode") as error:
            encode(text)
        assert error.value.field == "prompt"


def test_missing_and_damaged_files(tmp_path: Path) -> None:
    with pytest.raises(LoadError, match=r"tokenizer\.json is missing"):
        Tokenizer(tmp_path)
    (tmp_path / "tokenizer.json").write_text("{")
    with pytest.raises(LoadError, match="is damaged"):
        Tokenizer(tmp_path)


def test_tokenizer_info(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    assert Tokenizer.detect_tokenizer_info(byte_level(tmp_path / "a")) == TokenizerInfo(
        token_postproc_method="byte_level"
    )
    info = Tokenizer.detect_tokenizer_info(byte_fallback(tmp_path / "b"))
    assert info == TokenizerInfo("byte_fallback", True, True)
    assert TokenizerInfo.from_json(info.asjson()) == info


def prepended(tokenizer: Tokenizer) -> bytes:
    """What the tokenizer puts before a text; it is part of the bytes of the first token."""
    info = Tokenizer.detect_tokenizer_info(tokenizer.path)
    return b" " if info.prepend_space_in_encode else b""


# ------------------------------------------------------------------------------- the token table


def test_token_table_is_bytes(tokenizer: Tokenizer) -> None:
    table = tokenizer.token_table
    ids = tokenizer.encode(EMOJI_PARAGRAPH)
    text = b"".join(table.bytes(i) for i in ids)
    assert text == prepended(tokenizer) + EMOJI_PARAGRAPH.encode()
    fields = json.loads(tokenizer.path.read_text())
    for token in fields["added_tokens"]:
        assert table.is_special(token["id"]) == token["special"]


def test_token_table_of_single_bytes(bytes_tokenizer: Tokenizer) -> None:
    table = bytes_tokenizer.token_table
    assert [table.bytes(i) for i in range(256)] == [bytes([i]) for i in range(256)]
    assert table.size == 257
    assert table.is_special(EOS)
    assert not table.is_special(97)


# --------------------------------------------------------------------------------- TextStreamer


def stream(tokenizer: Tokenizer, ids: list[int], sizes: list[int] | None = None) -> str:
    """All pieces, each of which is valid Unicode."""
    streamer = TextStreamer(tokenizer)
    pieces = []
    rest = list(ids)
    for size in sizes or [1] * len(ids):
        pieces.append(streamer.put(rest[:size]))
        rest = rest[size:]
    pieces.append(streamer.put(rest))
    pieces.append(streamer.finish())
    for piece in pieces:
        piece.encode("utf-8")
    return "".join(pieces)


def test_text_streamer_token_by_token(tokenizer: Tokenizer) -> None:
    ids = tokenizer.encode(EMOJI_PARAGRAPH)
    assert stream(tokenizer, ids) == EMOJI_PARAGRAPH


@pytest.mark.parametrize("text", [" ", "  two  spaces", "a", "", " é"])
def test_text_streamer_strips_what_the_decoder_strips(tokenizer: Tokenizer, text: str) -> None:
    ids = tokenizer.encode(text)
    assert stream(tokenizer, ids) == text
    assert stream(tokenizer, ids[1:]) == tokenizer.decode(ids[1:])


def test_text_streamer_in_chunks(tokenizer: Tokenizer) -> None:
    ids = tokenizer.encode(EMOJI_PARAGRAPH)
    rng = random.Random(7)
    for _ in range(20):
        sizes = [rng.randrange(6) for _ in range(len(ids) // 3)]
        assert stream(tokenizer, ids, sizes) == EMOJI_PARAGRAPH


def test_text_streamer_holds_back_half_characters(bytes_tokenizer: Tokenizer) -> None:
    streamer = TextStreamer(bytes_tokenizer)
    assert [streamer.put([byte]) for byte in "é🤔".encode()] == ["", "é", "", "", "", "🤔"]
    assert streamer.finish() == ""
    assert streamer.put([0xF0, 0x9F]) == ""
    assert streamer.finish() == "\ufffd"


@given(st.binary(max_size=40), st.lists(st.integers(1, 5), max_size=20))
def test_text_streamer_equals_whole_decode(data: bytes, sizes: list[int]) -> None:
    tokenizer = shared_bytes_tokenizer()
    assert stream(tokenizer, list(data), sizes) == data.decode("utf-8", errors="replace")


_SHARED: dict[str, Any] = {}


def shared_bytes_tokenizer() -> Tokenizer:
    """The bytes tokenizer for property tests, which take no function fixtures."""
    if not _SHARED:
        import tempfile

        _SHARED["folder"] = tempfile.TemporaryDirectory()
        write_tokenizer(Path(_SHARED["folder"].name))
        _SHARED["tokenizer"] = Tokenizer(_SHARED["folder"].name)
    tokenizer: Tokenizer = _SHARED["tokenizer"]
    return tokenizer


# ------------------------------------------------------------------------------- StopStrHandler


def run_stop(
    tokenizer: Tokenizer, ids: list[int], stops: list[str]
) -> tuple[list[int], bytes, bool]:
    handler = StopStrHandler(stops, tokenizer)
    released: list[int] = []
    for token_id in ids:
        released += handler.put(token_id)
        if handler.stop_triggered:
            break
    else:
        released += handler.finish()
    return released, handler.take_text(), handler.stop_triggered


def test_stop_string_ends_the_text(bytes_tokenizer: Tokenizer) -> None:
    ids = bytes_tokenizer.encode(EMOJI_PARAGRAPH)
    released, text, triggered = run_stop(bytes_tokenizer, ids, [" 🤔"])
    assert triggered
    before = EMOJI_PARAGRAPH[: EMOJI_PARAGRAPH.index(" 🤔")]
    assert text.decode() == before
    assert bytes(released).decode() == before


def test_no_stop_string_releases_all(bytes_tokenizer: Tokenizer) -> None:
    ids = bytes_tokenizer.encode(EMOJI_PARAGRAPH)
    assert run_stop(bytes_tokenizer, ids, ["^^"]) == (ids, EMOJI_PARAGRAPH.encode(), False)


def test_finish_releases_a_partial_match(bytes_tokenizer: Tokenizer) -> None:
    ids = bytes_tokenizer.encode("end\n\n")
    handler = StopStrHandler(["\n\n\n"], bytes_tokenizer)
    put = [i for token_id in ids for i in handler.put(token_id)]
    assert bytes(put) == b"end"
    assert bytes(handler.finish()) == b"\n\n"
    assert not handler.stop_triggered


def test_text_before_the_stop_inside_a_token_is_kept(tokenizer: Tokenizer) -> None:
    ids = tokenizer.encode("abc, ramen. Done!")
    _, text, triggered = run_stop(tokenizer, ids, ["en."])
    assert triggered
    assert text == prepended(tokenizer) + b"abc, ram"


@given(
    st.text("ab", max_size=30),
    st.lists(st.text("ab", min_size=1, max_size=4), min_size=1, max_size=4),
)
def test_the_earliest_stop_string_wins(text: str, stops: list[str]) -> None:
    tokenizer = shared_bytes_tokenizer()
    released, released_text, triggered = run_stop(tokenizer, tokenizer.encode(text), stops)
    # The match that ends first; of those that end together, the longest.
    ends = [
        (i + len(stop), -len(stop))
        for stop in stops
        for i in range(len(text))
        if text.startswith(stop, i)
    ]
    assert triggered == bool(ends)
    expected = text
    if ends:
        end, negative_length = min(ends)
        expected = text[: end + negative_length]
    assert released_text.decode() == expected
    assert released == list(expected.encode())


@pytest.mark.parametrize("stops", [[""], ["a", ""], ["x"] * 10_000])
def test_bad_stop_strings(bytes_tokenizer: Tokenizer, stops: list[str]) -> None:
    with pytest.raises(InvalidRequest):
        StopStrHandler(stops, bytes_tokenizer)
