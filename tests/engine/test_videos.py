"""Answers about videos equal those of transformers on the same float32 weights: alone, in a crowd, in small chunks.

Inputs of the encoder are made here by loops over pixels, as processors of transformers for videos need torchvision.
"""

from __future__ import annotations

import base64

import numpy as np
import pytest
import torch
from PIL import Image

from engine.api import PromptOptions, Rejected
from engine.api.media import MediaLimits
from engine.inputs.media.decoder import MediaDecoder
from engine.slow_work import SlowWork
from tests.engine.inputs.media.streams import film
from tests.engine.real_engine import RealEngine
from tests.engine.seeing_folders import encoded, image_of, write_seeing
from tests.engine.test_images import GREEDY, NO_END, NUM_TOKENS, token_ids

SIDE, PATCH = 16, 8
SIZE = (64, 48)
FAMILIES = ("qwen2_5_vl", "qwen2_vl", "qwen3_vl")
FILM = film(count=20, fps=10, size=SIZE)
FRAMES = tuple(image_of(*SIZE, seed) for seed in range(4))


class Clip:
    """A video of a message: what is sent, and the frames that the model sees at their times."""

    def __init__(self, part, frames, times):
        self.part = {"type": "video", "param": "messages.0.content.0.video_url", **part}
        self.frames = frames
        self.times = times


def listed(frames):
    data = ",".join(encoded(frame) for frame in frames)
    return Clip({"data": data, "frames": True}, [np.asarray(frame) for frame in frames], [0.0, 0.5, 1.0, 1.5])


@pytest.fixture(scope="module")
def filmed():
    decoder = MediaDecoder(SlowWork(), MediaLimits())
    found = decoder.video(FILM, param="", fps=2)
    decoder.close()
    assert found.times == (0.0, 0.5, 1.0, 1.5)
    return Clip({"data": base64.b64encode(FILM).decode()}, list(found.frames), found.times)


def patches_of(clip, images):
    """Return the patches of a video: tokens row by row, each a square of patches, each channel by channel."""
    frames = [*clip.frames, *clip.frames[-1:]][: len(clip.frames) + len(clip.frames) % 2]
    pixels = [(frame / 255 - np.array(images.image_mean)) / np.array(images.image_std) for frame in frames]
    rows = []
    for first in range(0, len(frames), 2):
        for top in range(0, SIZE[1], SIDE):
            for left in range(0, SIZE[0], SIDE):
                for y in (top, top + PATCH):
                    for x in (left, left + PATCH):
                        pair = [frame[y : y + PATCH, x : x + PATCH] for frame in pixels[first : first + 2]]
                        rows.append(np.stack(pair).transpose(3, 0, 1, 2).reshape(-1))
    return torch.tensor(np.array(rows), dtype=torch.float32), len(frames) // 2


def text_of(clip, family):
    num_pairs = -(-len(clip.frames) // 2)
    pads = "<|video_pad|>" * (SIZE[0] * SIZE[1] // SIDE**2)
    if family != "qwen3_vl":
        return f"<|vision_start|>{pads * num_pairs}<|vision_end|>"
    times = [*clip.times[: len(clip.frames)], clip.times[len(clip.frames) - 1]]
    pairs = [(times[place] + times[place + 1]) / 2 for place in range(0, 2 * num_pairs, 2)]
    return "".join(f"<{middle:.1f} seconds><|vision_start|>{pads}<|vision_end|>" for middle in pairs)


def message(parts, sent):
    """Return a message of the user. `sent`: as the engine gets it, else for the template of transformers."""
    content = []
    for part in parts:
        if isinstance(part, str):
            content.append({"type": "text", "text": part})
        elif isinstance(part, Clip):
            content.append(part.part if sent else {"type": "video"})
        else:
            content.append({"type": "image", "data": encoded(part)} if sent else {"type": "image"})
    return {"role": "user", "content": content}


@torch.inference_mode()
def expected(model, processor, family, conversation):
    """Return the prompt and the greedy answer of transformers."""
    parts = [part for parts in conversation for part in parts]
    clips, images = ([part for part in parts if isinstance(part, kind)] for kind in (Clip, Image.Image))
    text = processor.apply_chat_template([message(parts, False) for parts in conversation], add_generation_prompt=True)
    first, *others = text.split("<|vision_start|><|video_pad|><|vision_end|>")
    text = first + "".join(text_of(clip, family) + other for clip, other in zip(clips, others, strict=True))
    inputs = processor(text=[text], images=images or None)
    made = [patches_of(clip, processor.image_processor) for clip in clips]
    grids = [[count, SIZE[1] // PATCH, SIZE[0] // PATCH] for _, count in made]
    if made:
        inputs |= {"pixel_values_videos": torch.cat([one for one, _ in made]), "video_grid_thw": torch.tensor(grids)}
    if family == "qwen2_5_vl":
        inputs["second_per_grid_ts"] = torch.ones(len(clips))
    output = model.generate(**inputs, max_new_tokens=NUM_TOKENS, eos_token_id=NO_END, do_sample=False)
    prompt = inputs["input_ids"][0].tolist()
    return prompt, output[0].tolist()[len(prompt) :]


@pytest.mark.parametrize("family", FAMILIES)
def test_answers_about_videos_are_those_of_transformers(tmp_path, make_real_engine, filmed, family):
    model, processor = write_seeing(tmp_path, family)
    conversations = [
        [["hello", filmed, " what is it?"]],
        [[image_of(40, 30, 1), listed(FRAMES[:3]), "compare"]],
        [[listed(FRAMES), "first"], ["second ", listed(FRAMES[:2]), image_of(64, 64, 3)]],
    ]
    found = [expected(model, processor, family, conversation) for conversation in conversations]
    engine = make_real_engine(tmp_path, max_num_batched_tokens=24, media=MediaLimits(max_encoder_tokens=256))
    sent = [tuple(message(parts, True) for parts in conversation) for conversation in conversations]
    for messages, (prompt, answer) in zip(sent, found, strict=True):
        engine.submit("alone", messages=messages, **GREEDY)
        events = engine.events_to_end("alone")["alone"]
        assert token_ids(events) == answer
        assert events[0].payload.num_prompt_tokens == len(prompt)
    for number, messages in enumerate(sent * 2):
        engine.submit(str(number), messages=messages, **GREEDY)
    crowd = engine.events_to_end(*map(str, range(2 * len(sent))))
    assert [token_ids(crowd[run_id]) for run_id in crowd] == [answer for _, answer in found * 2]
    assert crowd["0"][-1].payload.usage.cached_tokens > 0


@pytest.fixture(scope="module")
def watching(tmp_path_factory):
    """A running engine of a model that takes videos."""
    folder = tmp_path_factory.mktemp("watching")
    write_seeing(folder, "qwen3_vl")
    engine = RealEngine(folder, max_num_batched_tokens=24)
    yield engine
    assert engine.core_stats().integrity == ""
    engine.close()


def asked(engine, part):
    engine.submit("run", messages=({"role": "user", "content": [part]},), **GREEDY)
    return engine.events_to_end("run")["run"]


def test_the_time_of_frames_makes_another_video(watching):
    first = asked(watching, Clip({"data": base64.b64encode(film(20, 10, SIZE)).decode()}, [], []).part)
    slower = asked(watching, Clip({"data": base64.b64encode(film(20, 5, SIZE)).decode()}, [], []).part)
    assert first[0].payload.num_prompt_tokens < slower[0].payload.num_prompt_tokens


def test_a_short_video_has_as_many_frames_as_the_model_was_trained_with(watching):
    short = asked(watching, Clip({"data": base64.b64encode(film(10, 10, SIZE)).decode()}, [], []).part)
    listed_ones = asked(watching, listed(FRAMES).part)
    assert short[0].payload.num_prompt_tokens == listed_ones[0].payload.num_prompt_tokens


BAD_VIDEOS = {
    "no base64": ({"data": "%%%"}, "base64"),
    "no video": ({"data": base64.b64encode(b"text").decode()}, "video"),
    "a frame of another size": (
        {"data": f"{encoded(FRAMES[0])},{encoded(image_of(32, 32))}", "frames": True},
        "one size",
    ),
    "frames without end": ({"data": "," * 100_000, "frames": True}, "at most 128 frames"),
    "no frames": ({"data": "", "frames": True}, "image"),
    "a cut video": ({"data": base64.b64encode(FILM[:300]).decode()}, "video"),
}


@pytest.mark.parametrize("name", BAD_VIDEOS)
def test_a_bad_video_is_refused_with_the_name_of_its_part(watching, name):
    part, expected_text = BAD_VIDEOS[name]
    (event,) = asked(watching, Clip(part, [], []).part)
    assert isinstance(event.payload, Rejected)
    assert event.payload.param == "messages.0.content.0.video_url"
    assert expected_text in event.payload.message


def test_a_model_that_sees_images_alone_refuses_videos(tmp_path, make_real_engine):
    write_seeing(tmp_path, "llava")
    (event,) = asked(make_real_engine(tmp_path), listed(FRAMES).part)
    assert isinstance(event.payload, Rejected)
    assert event.payload.message == "this model takes no videos"


def num_tokens(engine, part, **options):
    """Return the tokens of a prompt of one part. `options`: of media."""
    prompt = PromptOptions(media_options=options)
    engine.submit("run", messages=({"role": "user", "content": [part]},), prompt=prompt, **GREEDY)
    payload = engine.events_to_end("run")["run"][0].payload
    return payload if isinstance(payload, Rejected) else payload.num_prompt_tokens


SEEN = {"type": "image", "data": encoded(image_of(64, 64))}


def test_a_request_says_how_many_frames_are_decoded(watching, filmed):
    plain = num_tokens(watching, filmed.part)
    more = num_tokens(watching, filmed.part, media_io_kwargs={"video": {"fps": 4}})
    two = num_tokens(watching, filmed.part, media_io_kwargs={"video": {"num_frames": 2}})
    assert num_tokens(watching, filmed.part, media_io_kwargs={"video": {"num_frames": 8}}) == more
    assert two < plain < more
    slow = num_tokens(watching, listed(FRAMES).part, media_io_kwargs={"video": {"fps": 0.01}})
    assert slow > plain, "the times of the frames have more digits"


def test_a_request_bounds_the_pixels_of_images_and_frames(watching, filmed):
    for part in (SEEN, filmed.part):
        plain = num_tokens(watching, part)
        assert num_tokens(watching, part, mm_processor_kwargs={"max_pixels": 1024}) < plain
        assert num_tokens(watching, part, mm_processor_kwargs={"min_pixels": 8192}) > plain


@pytest.mark.parametrize(
    ("options", "param"),
    [
        ({"media_io_kwargs": {"video": {"fps": 0}}}, "media_io_kwargs.video.fps"),
        ({"media_io_kwargs": {"video": {"fps": True}}}, "media_io_kwargs.video.fps"),
        ({"media_io_kwargs": {"video": {"num_frames": 129}}}, "media_io_kwargs.video.num_frames"),
        ({"media_io_kwargs": {"video": {"num_frames": 2, "fps": 2}}}, "media_io_kwargs.video.num_frames"),
        ({"media_io_kwargs": {"video": {"seek": 2}}}, "media_io_kwargs.video.seek"),
        ({"media_io_kwargs": {"audio": {}}}, "media_io_kwargs.audio"),
        ({"mm_processor_kwargs": {"max_pixels": 1 << 40}}, "mm_processor_kwargs.max_pixels"),
        ({"mm_processor_kwargs": {"min_pixels": 1}}, "mm_processor_kwargs.min_pixels"),
        ({"mm_processor_kwargs": {"size": {}}}, "mm_processor_kwargs.size"),
        ({"mm_processor_kwargs": {"min_pixels": 2048, "max_pixels": 1024}}, "messages.0.content.0.video_url"),
    ],
    ids=str,
)
def test_options_that_a_model_has_not_are_refused(watching, filmed, options, param):
    found = num_tokens(watching, filmed.part, **options)
    assert isinstance(found, Rejected)
    assert found.param == param


def test_a_list_of_frames_is_taken_whole(watching):
    found = num_tokens(watching, listed(FRAMES).part, media_io_kwargs={"video": {"num_frames": 2}})
    assert "taken whole" in found.message


def test_models_without_videos_have_no_options_of_them(tmp_path, make_real_engine):
    write_seeing(tmp_path, "llava")
    found = num_tokens(make_real_engine(tmp_path), SEEN, media_io_kwargs={"video": {"fps": 2}})
    assert found.param == "media_io_kwargs.video"
    assert "it takes images, so image alone may have options" in found.message
