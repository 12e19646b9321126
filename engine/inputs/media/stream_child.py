"""Open audio and video with PyAV, and hand them to audio.py and video.py. The child processes of decoder.py run this.

The first bytes choose the reader, so none that opens other files or addresses (playlists) is ever asked. Sizes, rates
and lengths are checked as the header says them, and counted again while decoding. Errors have fixed texts.
"""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import av
import av.logging
from av.container import InputContainer

from engine.api.errors import ErrorCode, RequestError
from engine.api.media import MediaKind
from engine.api.media_formats import formats_of, media_format
from engine.inputs.media import audio, video
from engine.killable import LargeResult

READERS = {
    "AAC": "aac",
    "AIFF": "aiff",
    "AMR": "amr",
    "AVI": "avi",
    "FLAC": "flac",
    "Flash video": "flv",
    "GIF": "gif",
    "MP3": "mp3",
    "MP4": "mov",
    "MPEG": "mpeg",
    "Matroska or WebM": "matroska",
    "Ogg": "ogg",
    "WAV": "wav",
}
"""FFmpeg's reader of each format."""
CODECS = (
    *("aac", "alac", "amrnb", "amrwb", "flac", "mp2", "mp2float", "mp3", "mp3float", "opus", "libopus", "vorbis"),
    *("pcm_alaw", "pcm_mulaw", "pcm_u8", "pcm_s8", "pcm_s16le", "pcm_s16be", "pcm_s24le", "pcm_s24be", "pcm_s32le"),
    *("pcm_s32be", "pcm_f32le", "pcm_f32be", "pcm_f64le", "pcm_f64be", "adpcm_ms", "adpcm_ima_wav", "gsm_ms"),
    *("h264", "hevc", "vp8", "vp9", "libvpx", "libvpx-vp9", "av1", "libdav1d", "mpeg1video", "mpeg2video", "mpeg4"),
    *("h263", "flv", "mjpeg", "gif", "theora"),
)
"""FFmpeg's decoders that may run. It has four hundred more, hardly used and hardly tested."""
DECODERS: dict[str, Callable[..., LargeResult]] = {MediaKind.AUDIO: audio.decode, MediaKind.VIDEO: video.decode}

av.logging.set_level(None)  # its lines quote the file


def decode(data: bytes, kind: str, options: dict[str, Any]) -> LargeResult:
    """Return the samples or frames of a file, as audio.py and video.py say. Runs in the child. Raises RequestError."""
    found = media_format(data)
    if not data:
        raise RequestError(ErrorCode.INVALID_VALUE, f"the {kind} is empty; send the bytes of a file")
    if found is None or kind not in found.kinds:
        name = f"is of no known {kind} format" if found is None else f"is {found.name}, which is not read as {kind}"
        message = f"the {kind} {name}; send one of {formats_of(MediaKind(kind))}"
        raise RequestError(ErrorCode.INVALID_VALUE, message)
    try:
        with _opened(data, READERS[found.name]) as container:
            return DECODERS[kind](container, found.name, options)
    except (RequestError, MemoryError):
        raise
    except Exception:  # the bytes of a broken file can make the library raise anything
        message = (
            f"the {kind} cannot be decoded as {found.name}: it is damaged, incomplete or in an unknown encoding; "
            "save it anew and send it again"
        )
        raise RequestError(ErrorCode.INVALID_VALUE, message) from None


def _opened(data: bytes, reader: str) -> InputContainer:
    options = {"protocol_whitelist": "none", "codec_whitelist": ",".join(CODECS), "max_streams": "16"}
    return av.open(io.BytesIO(data), "r", format=reader, options=options, metadata_errors="replace")
