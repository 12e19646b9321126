"""Formats of media by their first bytes. What a client or a server says of a type is not believed.

chat.media looks at what it has fetched, engine.inputs.media at what it decodes.
"""

from __future__ import annotations

from dataclasses import dataclass

from engine.api.media import MediaKind

HEAD_BYTES = 64
"""The bytes that are looked at."""

IMAGE = frozenset((MediaKind.IMAGE,))
AUDIO = frozenset((MediaKind.AUDIO,))
VIDEO = frozenset((MediaKind.VIDEO,))
STREAMS = AUDIO | VIDEO
NOTHING: frozenset[MediaKind] = frozenset()


@dataclass(frozen=True, slots=True)
class MediaFormat:
    """A format. `kinds`: what a file of it can be read as; nothing if it is known by name alone."""

    name: str
    kinds: frozenset[MediaKind]


GIF = MediaFormat("GIF", IMAGE | VIDEO)
TIFF = MediaFormat("TIFF", IMAGE)
AVIF = MediaFormat("AVIF", IMAGE)
HEIC = MediaFormat("HEIC", NOTHING)
MP4 = MediaFormat("MP4", STREAMS)
MP3 = MediaFormat("MP3", AUDIO)
JPEG_2000 = MediaFormat("JPEG 2000", NOTHING)
JPEG_XL = MediaFormat("JPEG XL", NOTHING)
PDF = MediaFormat("PDF", frozenset((MediaKind.DOCUMENT,)))
SVG = MediaFormat("SVG", NOTHING)

PREFIXES = (
    (b"\x89PNG\r\n\x1a\n", MediaFormat("PNG", IMAGE)),
    (b"\xff\xd8\xff", MediaFormat("JPEG", IMAGE)),
    (b"GIF87a", GIF),
    (b"GIF89a", GIF),
    (b"BM", MediaFormat("BMP", IMAGE)),
    (b"II*\0", TIFF),
    (b"MM\0*", TIFF),
    (b"II+\0", TIFF),
    (b"MM\0+", TIFF),
    (b"\x1aE\xdf\xa3", MediaFormat("Matroska or WebM", STREAMS)),
    (b"OggS", MediaFormat("Ogg", STREAMS)),
    (b"fLaC", MediaFormat("FLAC", AUDIO)),
    (b"ID3", MP3),
    (b"\xff\xfb", MP3),
    (b"\xff\xfa", MP3),
    (b"\xff\xf3", MP3),
    (b"\xff\xf2", MP3),
    (b"\xff\xe3", MP3),
    (b"\xff\xf1", MediaFormat("AAC", AUDIO)),
    (b"\xff\xf9", MediaFormat("AAC", AUDIO)),
    (b"#!AMR", MediaFormat("AMR", AUDIO)),
    (b"\0\0\x01\xba", MediaFormat("MPEG", VIDEO)),
    (b"\0\0\x01\xb3", MediaFormat("MPEG", VIDEO)),
    (b"FLV\x01", MediaFormat("Flash video", VIDEO)),
    (b"\0\0\0\x0cjP  \r\n\x87\n", JPEG_2000),
    (b"\xff\x4f\xff\x51", JPEG_2000),
    (b"\xff\x0a", JPEG_XL),
    (b"\0\0\0\x0cJXL \r\n\x87\n", JPEG_XL),
    (b"%PDF-", PDF),
    (b"<svg", SVG),
    (b"<?xml", SVG),
    (b"8BPS", MediaFormat("PSD", NOTHING)),
    (b"\0\0\x01\0", MediaFormat("ICO", NOTHING)),
)
RIFF = {
    b"WEBP": MediaFormat("WebP", IMAGE),
    b"WAVE": MediaFormat("WAV", AUDIO),
    b"AVI ": MediaFormat("AVI", VIDEO),
}
HEIC_BRANDS = frozenset((b"heic", b"heix", b"heim", b"heis", b"hevc", b"hevx", b"mif1", b"msf1"))
AVIF_BRANDS = frozenset((b"avif", b"avis"))


def media_format(data: bytes) -> MediaFormat | None:
    """Return the format of a file, or None if its first bytes are of none that is known."""
    head = bytes(data[:HEAD_BYTES])
    if head[:4] == b"RIFF":
        return RIFF.get(head[8:12])
    if head[:4] == b"FORM" and head[8:12] in (b"AIFF", b"AIFC"):
        return MediaFormat("AIFF", AUDIO)
    if head[4:8] == b"ftyp":
        return _boxed(head)
    return next((found for prefix, found in PREFIXES if head.startswith(prefix)), None)


def formats_of(kind: MediaKind) -> str:
    """Return the names of the formats of a kind, for a sentence."""
    known = [found for _, found in PREFIXES] + list(RIFF.values()) + [AVIF, MP4]
    return ", ".join(sorted({found.name for found in known if kind in found.kinds}))


def _boxed(head: bytes) -> MediaFormat:
    """Return the format of a file of ISO boxes: by its major brand, then by those that it is compatible with."""
    size = min(int.from_bytes(head[:4], "big"), len(head))
    brands = [head[8:12], *(head[place : place + 4] for place in range(16, size - 3, 4))]
    if AVIF_BRANDS.intersection(brands):
        return AVIF
    return HEIC if HEIC_BRANDS.intersection(brands) else MP4
