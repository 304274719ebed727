"""Files of images that are damaged, or say or hold more than they should."""

from __future__ import annotations

import io
import random
import struct
import zlib
from collections.abc import Callable, Iterator
from typing import Any

FORMS = ("PNG", "JPEG", "WEBP", "GIF", "BMP")
_MOST = 20_900_000  # bytes, which the limit just allows
Made = tuple[str, Callable[[], bytes], str | None]


def file_of(form: str, width: int = 24, height: int = 24, **options: Any) -> bytes:
    """An image file as it should be, of squares of several colours."""
    import PIL.Image

    colours = bytes(random.Random(1).randbytes(5 * 5 * 3))
    image = PIL.Image.frombytes("RGB", (5, 5), colours)
    buffer = io.BytesIO()
    image.resize((width, height), PIL.Image.Resampling.NEAREST).save(buffer, form, **options)
    return buffer.getvalue()


def files() -> Iterator[Made]:
    """A name, what makes the file, and the outcome if there is only one."""
    for form in FORMS:
        yield from _damaged(form)
    yield from _headers()
    yield from _many_pieces()
    yield from _sizes()


def _damaged(form: str) -> Iterator[Made]:
    yield f"{form} as it should be", lambda: file_of(form), "served"
    yield f"{form} cut in half", lambda: _cut(file_of(form), 2), "refused"
    yield f"{form} of which the end is missing", lambda: file_of(form)[:-9], None
    yield f"{form} of 12 bytes", lambda: file_of(form)[:12], "refused"
    yield f"{form} and zeros", lambda: file_of(form) + bytes(5000), "served"
    yield f"{form} behind zeros", lambda: bytes(64) + file_of(form), "refused"
    for seed in range(4):
        yield f"{form} with flipped bits ({seed})", lambda s=seed: _flipped(file_of(form), s), None


def _cut(data: bytes, parts: int) -> bytes:
    return data[: len(data) // parts]


def _flipped(data: bytes, seed: int) -> bytes:
    rng = random.Random(seed)
    damaged = bytearray(data)
    for _ in range(6):
        damaged[rng.randrange(12, len(data))] ^= 1 << rng.randrange(8)
    return bytes(damaged)


# ---------------------------------------------------------------------- what headers say


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def _png(
    width: int, height: int, between: bytes = b"", *, depth: int = 8, colour: int = 2,
    data: bytes | None = None,
) -> bytes:  # fmt: skip
    rows = zlib.compress(bytes((3 * width + 1) * height)) if data is None else data
    header = _chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, depth, colour, 0, 0, 0))
    image = header + between + _chunk(b"IDAT", rows)
    return b"\x89PNG\r\n\x1a\n" + image + _chunk(b"IEND", b"")


def _gif(width: int, height: int, frame: tuple[int, int]) -> bytes:
    screen = struct.pack("<HHBBB", width, height, 0x80, 0, 0) + bytes(6)
    image = b"," + struct.pack("<HHHHB", 0, 0, *frame, 0) + b"\x02\x02\x44\x01\x00"
    return b"GIF89a" + screen + image + b";"


def _bmp(width: int, height: int, *, body: bytes = b"", bits: int = 24, kind: int = 0) -> bytes:
    palette = bytes(1024) if bits == 8 else b""
    begin = 54 + len(palette)
    head = b"BM" + struct.pack("<IHHI", begin + len(body), 0, 0, begin)
    info = struct.pack("<IiiHHIIiiII", 40, width, height, 1, bits, kind, len(body), 0, 0, 256, 0)
    return head + info + palette + body


def _webp(width: int, height: int) -> bytes:
    sizes = (width - 1).to_bytes(3, "little") + (height - 1).to_bytes(3, "little")
    body = b"WEBPVP8X" + struct.pack("<I", 10) + b"\x02\0\0\0" + sizes
    return b"RIFF" + struct.pack("<I", len(body)) + body


def _jpeg_of(width: int, height: int) -> bytes:
    data = bytearray(file_of("JPEG"))
    at = data.index(b"\xff\xc0")
    data[at + 5 : at + 9] = struct.pack(">HH", height, width)
    return bytes(data)


def _headers() -> Iterator[Made]:
    huge, most = 2**31 - 1, 65535
    nothing = zlib.compress(b"\0")
    for width, height in (
        (huge, huge),
        (60_000, 60_000),
        (8000, 5001),
        (0, 4),
        (4, 0),
        (6000, 6000),
    ):
        yield (
            f"PNG of {width} x {height}",
            lambda w=width, h=height: _png(w, h, data=nothing),
            "refused",
        )
    yield "PNG of a strip", lambda: _png(30_000, 1), "refused"
    yield "PNG of 3 bits", lambda: _png(4, 4, depth=3), "refused"
    yield "PNG of an odd colour", lambda: _png(4, 4, colour=5), "refused"
    yield "PNG with a chunk of 4 GiB", lambda: _png(4, 4, b"\xff\xff\xff\xfftEXt"), "refused"
    yield "PNG whose data are no zlib", lambda: _png(4, 4, data=b"x" * 99), "refused"
    bomb = zlib.compress(bytes(200 << 20), 1)
    texts = (("zTXt", b"a\0\0"), ("iCCP", b"a\0\0"), ("iTXt", b"a\0\1\0\0\0"))
    for kind, head in texts:
        yield (
            f"PNG with a bomb in {kind}",
            lambda k=kind, h=head: _png(4, 4, _chunk(k.encode(), h + bomb)),
            None,
        )
    yield "PNG with rows that are a bomb", lambda: _png(24, 24, data=bomb), None
    yield "GIF of the largest screen", lambda: _gif(most, most, (4, 4)), "refused"
    yield "GIF of the largest frame", lambda: _gif(4, 4, (most, most)), "refused"
    yield "GIF of no screen", lambda: _gif(0, 0, (0, 0)), "refused"
    yield "WebP of the largest canvas", lambda: _webp(1 << 24, 1 << 24), "refused"
    yield "WebP without pixels", lambda: _webp(24, 24), "refused"
    yield "BMP of the largest size", lambda: _bmp(huge, huge), "refused"
    yield "BMP of the smallest height", lambda: _bmp(24, -(2**31)), "refused"
    yield "BMP of a negative width", lambda: _bmp(-24, 24, body=bytes(2000)), "refused"
    yield "BMP without pixels", lambda: _bmp(24, 24), "refused"
    yield "JPEG of the largest size", lambda: _jpeg_of(most, most), "refused"
    yield "JPEG of no height", lambda: _jpeg_of(24, 0), "refused"


# ------------------------------------------------------------------------- many small pieces


def _behind_magic(data: bytes, more: bytes) -> bytes:
    """A JPEG with more segments in front."""
    return data[:2] + more + data[2:]


def _many_pieces() -> Iterator[Made]:
    def png_with(kind: bytes, data: bytes) -> bytes:
        chunk = _chunk(kind, data)
        return _png(24, 24, chunk * (_MOST // len(chunk)))

    yield "PNG of empty chunks", lambda: png_with(b"abCd", b""), "refused"
    yield "PNG of empty data", lambda: png_with(b"IDAT", b""), "refused"
    yield "PNG of texts", lambda: png_with(b"tEXt", b"a\0b"), "refused"
    comments, fills = b"\xff\xfe\0\2" * (_MOST // 4), b"\xff" * _MOST
    yield "JPEG of comments", lambda: _behind_magic(file_of("JPEG"), comments), "refused"
    yield "JPEG of fill bytes", lambda: _behind_magic(file_of("JPEG"), fills), "refused"
    exif = (b"\xff\xe1\xff\xffExif\0\0" + b"MM\0*\0\0\0\x08\xff\xff" + bytes(65517)) * 300
    yield "JPEG of EXIF", lambda: _behind_magic(file_of("JPEG"), exif), None
    yield "JPEG of many scans", _scans, "refused"
    for size in (1, 255):
        yield f"GIF of comments of {size}", lambda s=size: _gif_with_comments(s), "refused"
    runs = b"\x01\x05" * (_MOST // 2)
    yield "BMP of short runs", lambda: _bmp(4000, 2600, bits=8, kind=1, body=runs), "refused"
    jumps = b"\x00\x02\xff\xff" * 5000
    yield "BMP of jumps", lambda: _bmp(4000, 2600, bits=8, kind=1, body=jumps), None
    frames = _gif(24, 24, (24, 24))[19:-1]
    yield "GIF of many frames", lambda: file_of("GIF")[:-1] + frames * 90_000 + b";", "served"


def _scans() -> bytes:
    data = file_of("JPEG", 5000, 5000, progressive=True, quality=5)
    last, end = data.rfind(b"\xff\xda"), data.rfind(b"\xff\xd9")
    count = (_MOST - len(data)) // (end - last)
    return data[:end] + data[last:end] * count + data[end:]


def _gif_with_comments(size: int) -> bytes:
    data = file_of("GIF")
    begin = 13 + (3 * (2 << (data[10] & 7)) if data[10] & 128 else 0)
    blocks = (bytes([size]) + b"x" * size) * (_MOST // (size + 1))
    return data[:begin] + b"!\xfe" + blocks + b"\0" + data[begin:]


# ------------------------------------------------------------------------------------ sizes


def _sizes() -> Iterator[Made]:
    for width, height in ((1, 1), (1, 2), (2, 1), (1, 100), (100, 1), (3000, 30)):
        yield f"{width} x {height} pixels", lambda w=width, h=height: file_of("PNG", w, h), None
    yield "nearly 40 million pixels", lambda: _png(6300, 6300), "served"
    for form in ("TIFF", "ICO", "PPM", "TGA", "PCX"):
        yield f"a {form}", lambda f=form: file_of(f), "refused"
    yield (
        "an SVG",
        lambda: b"<svg xmlns='http://www.w3.org/2000/svg'><image href='x'/></svg>",
        "refused",
    )
    yield (
        "a PostScript",
        lambda: b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n(x) run\n",
        "refused",
    )
    yield "an HTML", lambda: b"<html>" * 99, "refused"
