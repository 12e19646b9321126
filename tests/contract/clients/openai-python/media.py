"""OpenAI's Python client: images, files and sound for a model that sees and has sound written down."""

import base64
from pathlib import Path

import openai
from reporting import KEY, MODEL, SCRATCH, URL, feature, raised, run, same

CLIENT = openai.OpenAI(api_key=KEY, base_url=f"{URL}/v1", max_retries=0, timeout=60)
CHAT = {"model": MODEL, "temperature": 0, "max_tokens": 6}
ANSWER = {"model": MODEL, "temperature": 0, "max_output_tokens": 6}
WORDS = "What is it?"
IMAGE, OTHER, PAGE, SCAN, SOUND = (
    (Path(SCRATCH) / name).read_bytes() for name in ("image.png", "other.png", "page.pdf", "scan.pdf", "sound.wav")
)


def url_of(data, kind="image/png"):
    return f"data:{kind};base64,{base64.b64encode(data).decode()}"


def chat(*parts):
    content = [{"type": "text", "text": WORDS}, *parts]
    return CLIENT.chat.completions.create(**CHAT, messages=[{"role": "user", "content": content}])


def response(*parts):
    content = [{"type": "input_text", "text": WORDS}, *parts]
    return CLIENT.responses.create(**ANSWER, input=[{"role": "user", "content": content}])


def image(data, **options):
    return {"type": "image_url", "image_url": {"url": url_of(data), **options}}


def file(data, **options):
    return {"filename": "x.pdf", "file_data": url_of(data, "application/pdf"), **options}


@feature("images: chat, with detail and several")
def _():
    one, other, low = chat(image(IMAGE)), chat(image(OTHER)), chat(image(IMAGE, detail="low"))
    same(one.usage.prompt_tokens_details.image_tokens, 16)
    assert one.choices[0].message.content != other.choices[0].message.content
    same(low.usage.prompt_tokens, one.usage.prompt_tokens)
    same(chat(image(IMAGE), image(OTHER)).usage.prompt_tokens, one.usage.prompt_tokens + 16)


@feature("images: Responses")
def _():
    seen = response({"type": "input_image", "image_url": url_of(IMAGE), "detail": "auto"})
    expected = chat(image(IMAGE))
    same(
        (seen.output_text, seen.usage.input_tokens), (expected.choices[0].message.content, expected.usage.prompt_tokens)
    )


@feature("images: uploaded ones by their id, in chat and Responses")
def _():
    expected = chat(image(IMAGE)).choices[0].message.content
    for purpose in ("vision", "user_data"):
        made = CLIENT.files.create(file=("x.png", IMAGE), purpose=purpose)
        same(response({"type": "input_image", "file_id": made.id, "detail": "auto"}).output_text, expected)
        same(chat({"type": "image_url", "image_url": {"file_id": made.id}}).choices[0].message.content, expected)
    page = CLIENT.files.create(file=("x.pdf", PAGE), purpose="user_data")
    content = [{"type": "input_image", "file_id": page.id}]
    asked = {**ANSWER, "input": [{"role": "user", "content": content}]}
    error = raised(openai.BadRequestError, CLIENT.responses.create, **asked)
    same((error.param, "must be the id of an image" in error.message), ("input.0.content.0.file_id", True))


@feature("files: pages of a scan are seen, in chat and Responses")
def _():
    answers = [chat({"type": "file", "file": file(SCAN)}), chat({"type": "file", "file": file(PAGE)})]
    same([answer.usage.prompt_tokens_details.image_tokens for answer in answers], [16, None])
    seen = response({"type": "input_file", **file(SCAN)})
    same(seen.output_text, answers[0].choices[0].message.content)
    high = response({"type": "input_file", **file(PAGE), "detail": "high"})
    same(high.usage.input_tokens, answers[1].usage.prompt_tokens + 16)


@feature("files: an uploaded scan by its id")
def _():
    made = CLIENT.files.create(file=("x.pdf", SCAN), purpose="user_data")
    expected = chat({"type": "file", "file": file(SCAN)}).choices[0].message.content
    same(chat({"type": "file", "file": {"file_id": made.id}}).choices[0].message.content, expected)
    same(response({"type": "input_file", "file_id": made.id}).output_text, expected)
    CLIENT.files.delete(made.id)


@feature("files: an address is the server's to fetch or refuse")
def _():
    part = {"type": "input_file", "file_url": "https://files.example/x.pdf"}
    asked = {**ANSWER, "input": [{"role": "user", "content": [{"type": "input_text", "text": WORDS}, part]}]}
    error = raised(openai.BadRequestError, CLIENT.responses.create, **asked)
    same((error.param, "fetches no remote media" in error.message), ("input.0.content.1.file_url", True))


@feature("audio: a part of a message is written down")
def _():
    data = base64.b64encode(SOUND).decode()
    usage = chat({"type": "input_audio", "input_audio": {"data": data, "format": "wav"}}).usage
    same((usage.model_extra["transcription"]["model"], usage.model_extra["transcription"]["seconds"]), ("whisper", 2.0))


@feature("audio: transcriptions and translations")
def _():
    asked = {"model": "whisper", "file": ("sound.wav", SOUND)}
    text = CLIENT.audio.transcriptions.create(**asked).text
    assert text
    whole = CLIENT.audio.transcriptions.create(
        **asked, response_format="verbose_json", timestamp_granularities=["word"]
    )
    same((whole.text, whole.duration, bool(whole.words)), (text, 2.0, True))
    assert CLIENT.audio.transcriptions.create(**asked, response_format="srt").startswith("1\n00:00:")
    *_, done = CLIENT.audio.transcriptions.create(**asked, stream=True)
    same((done.type, done.text), ("transcript.text.done", text))
    assert CLIENT.audio.translations.create(**asked).text


run()
