"""The limits of requests in two frozen tables, read once at the start. Each limit is a setting, `LIGHTCONE_<NAME>`.

docs/operations.md has the answer to a request over each.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import TypeVar

from django.core.exceptions import ImproperlyConfigured

from engine.api.media import MediaLimits
from lightcone_site import env

KIB, MIB = 2**10, 2**20
UPLOAD_PATH, UPLOAD_ROOM = "/v1/files", 64 * KIB


@dataclass(frozen=True, slots=True)
class HttpLimits:
    """The limits that the HTTP server enforces. Times in seconds, sizes in bytes."""

    max_body_bytes: int = 32 * MIB
    max_upload_bytes: int = 64 * MIB
    max_page_body_bytes: int = MIB
    max_bodies_bytes: int = 512 * MIB
    max_headers_bytes: int = 65_536
    max_header_bytes: int = 16_384
    max_headers: int = 128
    max_target_bytes: int = 8_192
    header_timeout: int = 10
    body_timeout: int = 60
    idle_timeout: int = 60
    max_connections: int = 4_096
    max_connections_per_address: int = 1_024
    stream_buffer_bytes: int = 8 * MIB
    max_unread_bytes: int = 256 * MIB
    write_timeout: int = 60
    min_read_bytes: int = 16 * KIB
    max_ws_message_bytes: int = MIB

    def body_bytes(self, path: str) -> int:
        """Return the limit of a body on this path. An upload has room for boundaries and fields beside its file."""
        return self.max_upload_bytes + UPLOAD_ROOM if path.rstrip("/") == UPLOAD_PATH else self.max_body_bytes


@dataclass(frozen=True, slots=True)
class RequestLimits:
    """The limits of one request, and of attempts with a wrong key. Times in seconds."""

    max_json_depth: int = 256
    max_json_digits: int = 64
    max_json_values: int = 500_000
    max_messages: int = 10_000
    max_parts: int = 10_000
    max_n: int = 128
    max_prompts: int = 128
    max_inputs: int = 2_048
    max_tokenize_chars: int = MIB
    max_output_tokens: int = 0
    """Of one choice; 0: the model's context."""
    max_choice_tokens: int = 262_144
    max_stop_strings: int = 32
    max_stop_chars: int = 1_024
    max_stop_token_ids: int = 1_024
    max_logprobs: int = 20
    max_logprob_token_ids: int = 128
    max_logit_bias: int = 4_096
    max_allowed_token_ids: int = 262_144
    max_bad_words: int = 128
    max_bad_word_chars: int = 1_024
    max_logits_processors: int = 32
    max_xargs: int = 64
    max_xargs_bytes: int = 64 * KIB
    max_tools: int = 1_024
    max_tool_bytes: int = MIB
    max_documents: int = 1_024
    max_template_bytes: int = 64 * KIB
    max_file_bytes: int = 10 * MIB
    max_choice_strings: int = 10_000
    max_choice_bytes: int = MIB
    max_regex_bytes: int = 16 * KIB
    max_grammar_bytes: int = 256 * KIB
    max_schema_bytes: int = 256 * KIB
    max_schema_depth: int = 64
    max_structural_tag_depth: int = 80
    max_schema_nodes: int = 20_000
    max_schema_bound: int = 100_000
    max_repeat: int = 10_000
    grammar_compile_timeout: int = 5
    grammar_cache_bytes: int = 256 * MIB
    max_stored_bytes: int = 4 * MIB
    max_id_chars: int = 128
    max_label_chars: int = 256
    max_auth_failures: int = 20
    auth_failure_window: int = 600
    request_timeout: int = 600
    sse_keep_alive: int = 15
    """Seconds between comments on a silent stream; 0: none."""


MAY_BE_ZERO = {"max_output_tokens", "max_image_tokens", "max_encoder_tokens", "max_logprobs", "sse_keep_alive"}
MAXIMUM = {
    "max_json_depth": 480,
    "max_schema_depth": 80,
    "max_structural_tag_depth": 80,
    "max_file_bytes": 10 * MIB,
    "max_media_bytes": 256 * MIB,
    "max_media_decoded_bytes": 512 * MIB,
    "max_image_pixels": 50_000_000,
    "max_image_tokens": 16_384,
    "max_page_images": 32,
    "max_encoder_tokens": 65_536,
    "max_video_frames": 1_024,
}
"""Upper ends of the settings. Packing a request fails at 511 levels; writing a schema fails at 254, up to three for
each level of the schema. The memory for reading files is enough for 10 MiB of them, and
that for decoding media for the figures here."""
Table = TypeVar("Table", HttpLimits, RequestLimits, MediaLimits)


def http_limits_read() -> HttpLimits:
    """Return the limits of the HTTP server, with room for two of the largest bodies. Raises ImproperlyConfigured."""
    limits = limits_read(HttpLimits)
    least = 2 * max(limits.max_body_bytes, limits.max_upload_bytes + UPLOAD_ROOM)  # as one project may take half of it
    if limits.max_bodies_bytes >= least:
        return limits
    if env.text("MAX_BODIES_BYTES"):
        raise ImproperlyConfigured(
            f"LIGHTCONE_MAX_BODIES_BYTES must be at least {least}, twice the largest body "
            f"(LIGHTCONE_MAX_BODY_BYTES, LIGHTCONE_MAX_UPLOAD_BYTES), got {limits.max_bodies_bytes}"
        )
    return replace(limits, max_bodies_bytes=least)


def limits_read(table: type[Table]) -> Table:
    """Return a table with the overrides of the environment. Raises ImproperlyConfigured for a bad value."""
    values = {}
    for name, default in asdict(table()).items():
        minimum, maximum = int(name not in MAY_BE_ZERO), MAXIMUM.get(name, 2**62)
        values[name] = env.integer(name.upper(), int(default), minimum=minimum, maximum=maximum)
    return table(**values)
