"""Text completions, tokens and embeddings of a served Lightcone, with the OpenAI client where it has them."""

from __future__ import annotations

import base64
import math
import struct

import httpx
import openai
import pytest

pytestmark = pytest.mark.live

PROMPT = "Once upon a time"
GREEDY = {"prompt": PROMPT, "temperature": 0, "max_tokens": 8}


@pytest.fixture(scope="module")
def client(lightcone):
    with openai.OpenAI(api_key=lightcone.api_key, base_url=lightcone.api_url, max_retries=0) as made:
        yield made


@pytest.fixture(scope="module")
def http(lightcone):
    with httpx.Client(
        base_url=lightcone.base_url, headers={"Authorization": f"Bearer {lightcone.api_key}"}, timeout=60
    ) as made:
        yield made


@pytest.fixture(scope="module", autouse=True)
def _warm(client, lightcone):
    """Put the prompt into the prefix cache: a cold one uses other kernels, whose last bits may choose another token."""
    create(client, lightcone)


def create(client, lightcone, **fields):
    return client.completions.create(model=lightcone.model, **{**GREEDY, **fields})


def post(http, path, body, status=200):
    response = http.post(path, json=body)
    assert response.status_code == status, response.text
    return response.json()


def tokens_of(http, text, **fields):
    return post(http, "/tokenize", {"prompt": text, **fields})["tokens"]


# Completions.


def test_a_text_is_continued(client, lightcone):
    answer = create(client, lightcone)
    assert (answer.object, answer.model) == ("text_completion", lightcone.model)
    assert answer.id.startswith("cmpl-")
    (choice,) = answer.choices
    assert choice.text
    assert choice.finish_reason in ("stop", "length")
    assert choice.logprobs is None
    assert answer.usage.completion_tokens <= 8
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens


def test_a_stream_joins_to_the_plain_answer(client, lightcone):
    *chunks, usage = create(client, lightcone, stream=True, stream_options={"include_usage": True})
    plain = create(client, lightcone)
    assert "".join(chunk.choices[0].text for chunk in chunks) == plain.choices[0].text
    assert [chunk.choices[0].finish_reason is not None for chunk in chunks] == [False] * (len(chunks) - 1) + [True]
    assert usage.choices == []
    assert usage.usage.completion_tokens == plain.usage.completion_tokens


async def test_the_async_client_answers_and_streams(lightcone):
    async with openai.AsyncOpenAI(api_key=lightcone.api_key, base_url=lightcone.api_url, max_retries=0) as client:
        plain = await client.completions.create(model=lightcone.model, **GREEDY)
        stream = await client.completions.create(model=lightcone.model, stream=True, **GREEDY)
        text = "".join([chunk.choices[0].text async for chunk in stream])
    assert text == plain.choices[0].text


def test_text_and_its_token_ids_are_the_same_prompt(client, lightcone, http):
    ids = tokens_of(http, PROMPT)
    assert create(client, lightcone, prompt=ids).choices[0].text == create(client, lightcone).choices[0].text


def test_several_prompts_and_choices_come_in_order(client, lightcone, http):
    prompts = ["The sea is", "My name is", "One, two,"]
    answer = create(client, lightcone, prompt=prompts, n=2, temperature=1, seed=3, echo=True, max_tokens=4)
    assert [choice.index for choice in answer.choices] == list(range(6))
    assert [choice.text.startswith(prompts[choice.index // 2]) for choice in answer.choices] == [True] * 6
    assert answer.usage.prompt_tokens == sum(len(tokens_of(http, prompt)) for prompt in prompts)
    chunks = create(client, lightcone, prompt=prompts, stream=True, max_tokens=4)
    ended = [chunk.choices[0].index for chunk in chunks if chunk.choices[0].finish_reason]
    assert sorted(ended) == [0, 1, 2]


def test_an_echo_has_the_log_probabilities_of_prompt_and_answer(client, lightcone, http):
    (choice,) = create(client, lightcone, echo=True, logprobs=2).choices
    ids = tokens_of(http, PROMPT)
    lists = choice.logprobs
    assert choice.text.startswith(PROMPT)
    assert "".join(lists.tokens) == choice.text
    assert lists.token_logprobs[0] is lists.top_logprobs[0] is None
    assert all(logprob <= 0 for logprob in lists.token_logprobs[1:])
    assert [
        choice.text[start:].startswith(token) for start, token in zip(lists.text_offset, lists.tokens, strict=True)
    ].count(False) == 0
    for token, logprob, top in list(zip(lists.tokens, lists.token_logprobs, lists.top_logprobs, strict=True))[1:]:
        assert top[token] == logprob
        assert len(top) in (2, 3)
    for top, token in list(zip(lists.top_logprobs, lists.tokens, strict=True))[len(ids) :]:
        assert max(top, key=top.get) == token, "the draw was greedy"


def test_a_text_is_scored_without_an_answer_as_harnesses_do(client, lightcone, http):
    """The likelihood of a continuation: its ids after those of the context, echoed, with nothing generated."""
    context, rest = tokens_of(http, "The capital of France is"), tokens_of(http, " Paris", add_special_tokens=False)
    answer = create(client, lightcone, prompt=[context + rest], echo=True, logprobs=1, max_tokens=0, seed=1)
    (scored,) = answer.choices
    assert (answer.usage.prompt_tokens, answer.usage.completion_tokens) == (len(context) + len(rest), 0)
    assert scored.text == "The capital of France is Paris"
    assert len(scored.logprobs.tokens) == len(context) + len(rest)
    (drawn,) = create(client, lightcone, prompt=context, logprobs=5, max_tokens=1).choices
    assert scored.logprobs.token_logprobs[-1] == pytest.approx(drawn.logprobs.top_logprobs[0][" Paris"], abs=0.05)


def test_the_best_of_several_is_returned_alone(client, lightcone):
    answer = create(client, lightcone, best_of=3, temperature=1, seed=5, max_tokens=4)
    assert len(answer.choices) == 1
    assert answer.usage.completion_tokens > 4, "all candidates are counted"


def test_constraints_and_stops_hold_for_texts_too(client, lightcone):
    extra = {"structured_outputs": {"choice": ["yes", "no"]}}
    assert create(client, lightcone, prompt="Is water wet?", extra_body=extra).choices[0].text in ("yes", "no")
    (choice,) = create(
        client, lightcone, stop=[" "], max_tokens=12, extra_body={"include_stop_str_in_output": True}
    ).choices
    assert (choice.finish_reason, choice.stop_reason) == ("stop", " ")


def test_a_model_without_tokens_for_it_does_not_fill_in_the_middle(client, lightcone):
    with pytest.raises(openai.BadRequestError) as refused:
        create(client, lightcone, suffix="the end")
    assert (refused.value.code, refused.value.param) == ("unsupported_parameter", "suffix")


def test_one_prompt_that_cannot_be_served_refuses_all(client, lightcone):
    with pytest.raises(openai.BadRequestError) as refused:
        create(client, lightcone, prompt=[PROMPT, "a " * 20_000])
    assert (refused.value.code, refused.value.param) == ("context_length_exceeded", "prompt.1")
    assert "maximum context length is" in refused.value.message
    with pytest.raises(openai.BadRequestError) as refused:
        create(client, lightcone, prompt=[[1, 2], [1, 10_000_000]])
    assert refused.value.param == "prompt.1.1"


# Tokens.


@pytest.mark.parametrize("text", ["Hello, world", "Grüße 👋 an alle\n\n", "<|im_start|>user", " ", "日本語のテキスト"])
def test_text_comes_back_from_its_tokens(http, text):
    tokenized = post(http, "/tokenize", {"prompt": text, "add_special_tokens": False, "return_token_strs": True})
    assert tokenized["count"] == len(tokenized["tokens"]) == len(tokenized["token_strs"])
    assert "".join(tokenized["token_strs"]) == text
    assert post(http, "/detokenize", {"tokens": tokenized["tokens"]})["prompt"] == text
    pieces = post(http, "/v1/tokenize", {"content": text, "with_pieces": True})["tokens"]
    assert [piece["id"] for piece in pieces] == tokenized["tokens"]
    assert "".join(piece["piece"] for piece in pieces) == text


def test_nothing_has_no_tokens_and_no_text(http):
    assert post(http, "/tokenize", {"content": ""})["tokens"] == []
    assert post(http, "/detokenize", {"tokens": []})["content"] == ""


def test_a_text_longer_than_the_context_can_be_counted(http):
    tokenized = post(http, "/tokenize", {"prompt": "word " * 30_000})
    assert tokenized["count"] > tokenized["max_model_len"]


def test_ids_that_the_model_does_not_have_are_refused(http):
    error = post(http, "/detokenize", {"tokens": [5, 10_000_000]}, 400)["error"]
    assert (error["code"], error["param"]) == ("invalid_value", "tokens.1")


def test_a_rendered_chat_is_the_prompt_that_is_used(http):
    chat = {"messages": [{"role": "user", "content": "Say hello."}], "max_tokens": 2, "temperature": 0}
    rendered = post(http, "/v1/chat/completions/render", chat)
    answer = post(http, "/v1/chat/completions", {**chat, "return_token_ids": True, "return_prompt_text": True})
    assert rendered["token_ids"] == answer["prompt_token_ids"]
    assert rendered["prompt"] == answer["prompt_text"]
    assert rendered["num_tokens"] == answer["usage"]["prompt_tokens"]
    assert rendered["sampling_params"]["max_tokens"] == 2
    assert post(http, "/tokenize", {"messages": chat["messages"]})["tokens"] == rendered["token_ids"]


# Embeddings.


def test_vectors_have_length_one_and_are_the_same_in_both_encodings(client, lightcone, http):
    inputs = ["The cat sat on the mat.", "A cat is on a mat.", "Interest rates rose in March."]
    answer = client.embeddings.create(model=lightcone.model, input=inputs, encoding_format="float")
    assert [item.index for item in answer.data] == [0, 1, 2]
    vectors = [item.embedding for item in answer.data]
    assert all(math.hypot(*vector) == pytest.approx(1, abs=1e-3) for vector in vectors)
    assert answer.usage.prompt_tokens == answer.usage.total_tokens == sum(len(tokens_of(http, text)) for text in inputs)
    assert _dot(vectors[0], vectors[1]) > _dot(vectors[0], vectors[2])
    floats, raw = (
        post(http, "/v1/embeddings", {"input": inputs[0], "encoding_format": encoding})["data"][0]["embedding"]
        for encoding in ("float", "base64")
    )
    assert list(struct.unpack(f"<{len(floats)}f", base64.b64decode(raw))) == floats
    assert floats == pytest.approx(vectors[0], abs=1e-3)
    by_default = client.embeddings.create(model=lightcone.model, input=inputs[0]).data[0].embedding
    assert list(by_default) == pytest.approx(vectors[0], abs=1e-3)


def _dot(first, second):
    return sum(a * b for a, b in zip(first, second, strict=True))


def test_fewer_dimensions_and_other_poolings_are_vectors_of_length_one_too(http):
    whole = post(http, "/v1/embeddings", {"input": "The sea"})["data"][0]["embedding"]
    short = post(http, "/v1/embeddings", {"input": "The sea", "dimensions": 8})["data"][0]["embedding"]
    last = post(http, "/v1/embeddings", {"input": "The sea", "pooling": "last"})["data"][0]["embedding"]
    length = math.hypot(*whole[:8])
    assert short == pytest.approx([number / length for number in whole[:8]], abs=1e-3)
    assert math.hypot(*last) == pytest.approx(1, abs=1e-3)
    assert last != pytest.approx(whole, abs=1e-2)
    assert post(http, "/v1/embeddings", {"input": "a", "dimensions": 100_000}, 400)["error"]["param"] == "dimensions"


def test_many_inputs_do_not_trip_the_limits_of_a_key(http):
    answer = post(
        http, "/v1/embeddings", {"input": [f"Sentence number {number}." for number in range(100)], "dimensions": 4}
    )
    assert [item["index"] for item in answer["data"]] == list(range(100))


def test_the_version_route_answers(http):
    assert list(http.get("/version").json()) == ["version"]


# Limits of a key.


def test_a_list_of_prompts_counts_once_and_keeps_its_keys_concurrency(lightcone):
    key = lightcone.make_key(requests_per_minute=2, max_concurrency=2)
    with httpx.Client(base_url=lightcone.base_url, headers={"Authorization": f"Bearer {key}"}, timeout=60) as http:
        vectors = http.post("/v1/embeddings", json={"input": ["one", "two", "three", "four", "five"], "dimensions": 2})
        texts = http.post("/v1/completions", json={"prompt": ["one", "two", "three", "four"], "max_tokens": 2})
        refused = http.post("/tokenize", json={"prompt": "one"})
    assert [answer.status_code for answer in (vectors, texts, refused)] == [200, 200, 429]
    assert vectors.headers["x-ratelimit-remaining-requests"] == "1"
    assert len(vectors.json()["data"]) == 5
    assert len(texts.json()["choices"]) == 4
    assert refused.json()["error"]["code"] == "rate_limit_exceeded"
