"""The rendering of messages as a prompt."""

from __future__ import annotations

import pytest

from tests.contract.parameters.conftest import QUESTION

HEADER = "<|im_start|>assistant\n"
OPENING = [*QUESTION, {"role": "assistant", "content": "The sea is"}]
TEMPLATE = (
    "{% for m in messages %}{{ m.content }}|{% endfor %}{% for d in documents or [] %}{{ d.title }}={{ d.text }};{% "
    "endfor %}tone={{ tone }} effort={{ reasoning_effort }} thinking={{ enable_thinking }} verbosity={{ verbosity }}"
)


@pytest.fixture(scope="module")
def templating(ask):
    """A client that may send templates."""
    asker = ask.with_rights("chat_template")
    yield asker
    asker.close()


@pytest.mark.parameter("add_generation_prompt")
def test_the_assistants_header_ends_the_prompt_or_not(ask):
    assert ask.prompt().endswith(HEADER)
    assert not ask.prompt(add_generation_prompt=False).endswith(HEADER)
    assert ask.message(add_generation_prompt=False)["role"] == "user"


@pytest.mark.parameter("continue_final_message")
def test_the_last_message_stays_open_and_only_the_continuation_comes_back(ask):
    assert ask.prompt(messages=OPENING, continue_final_message=True).endswith(HEADER + "The sea is")
    message = ask.message(messages=OPENING, continue_final_message=True)
    assert message["role"] == "assistant"
    assert "The sea is" + message["content"] == ask.text(max_tokens=11)[: len("The sea is" + message["content"])]
    assert (
        ask.refusal(messages=OPENING, continue_final_message=True, add_generation_prompt=True)[0]
        == "continue_final_message"
    )


@pytest.mark.parameter("echo")
def test_the_echo_is_put_before_the_continuation(ask):
    opened = {"messages": OPENING, "continue_final_message": True}
    assert ask.text(**opened, echo=True) == "The sea is" + ask.text(**opened)
    role, echo, *_ = ask.chunks(**opened, echo=True)
    assert (role["choices"][0]["delta"], echo["choices"][0]["delta"]) == (
        {"role": "assistant", "content": ""},
        {"content": "The sea is"},
    )
    assert ask.text(echo=True) == ask.text(), "the last message is of another role"


@pytest.mark.parameter("add_special_tokens")
def test_the_tokenizer_may_add_its_own_tokens(templating):
    bare = {"chat_template": "{{ messages[0].content }}", "return_token_ids": True}
    plain = templating.answer(**bare)["prompt_token_ids"]
    more = templating.answer(**bare, add_special_tokens=True)["prompt_token_ids"]
    assert more[1:] == plain
    assert templating.answer(**bare, add_special_tokens=True)["usage"]["prompt_tokens"] == len(plain) + 1


@pytest.mark.parameter("documents")
def test_documents_are_seen_by_templates_that_use_them(ask, templating):
    documents = [{"title": "A", "text": "alpha"}, {"title": "B", "text": "beta"}]
    assert "A=alpha;B=beta;" in templating.prompt(chat_template=TEMPLATE, documents=documents)
    assert ask.prompt(documents=documents) == ask.prompt()
    for bad in ([{"a": 5}], ["x"], {"a": "b"}):
        assert ask.refusal(documents=bad)[0].startswith("documents")


@pytest.mark.parameter("chat_template")
def test_a_template_of_the_request_replaces_the_models_own_where_permitted(ask, templating):
    assert templating.prompt(chat_template="Q: {{ messages[0].content }} A:") == "Q: Tell me about the sea. A:"
    assert ask.refusal(chat_template="x") == ("chat_template", "untrusted_chat_template")
    for bad in ("{% for %}", "{{ ''.__class__.__mro__ }}", "{% for i in range(10**9) %}x{% endfor %}", ""):
        assert templating.refusal(chat_template=bad)[0] in ("chat_template", "messages")


@pytest.mark.parameter("chat_template_kwargs")
def test_variables_reach_the_template_and_reserved_names_do_not(ask, templating):
    assert "tone=calm" in templating.prompt(chat_template=TEMPLATE, chat_template_kwargs={"tone": "calm"})
    assert ask.prompt(chat_template_kwargs={"tone": "calm"}) == ask.prompt(), "the model's template knows no tone"
    for name in ("tokenize", "messages", "chat_template", "self"):
        assert ask.refusal(chat_template_kwargs={name: 1})[0] == f"chat_template_kwargs.{name}"


@pytest.mark.parameter("reasoning_effort")
def test_the_effort_reaches_the_template_and_switches_thinking(ask, templating):
    def rendered(**fields):
        return templating.prompt(chat_template=TEMPLATE, **fields)

    assert "effort=high thinking=True" in rendered(reasoning_effort="high")
    assert "effort=none thinking=False" in rendered(reasoning_effort="none")
    assert "effort=low thinking=False" in rendered(
        reasoning_effort="low", chat_template_kwargs={"enable_thinking": False}
    )
    assert ask.refusal(reasoning_effort="much")[0] == "reasoning_effort"


@pytest.mark.parameter("verbosity")
def test_the_verbosity_reaches_the_template(ask, templating):
    assert "verbosity=low" in templating.prompt(chat_template=TEMPLATE, verbosity="low")
    assert ask.refusal(verbosity="loud")[0] == "verbosity"


@pytest.mark.parameter("truncate_prompt_tokens", "truncation_side")
def test_a_prompt_is_cut_to_its_end_or_its_beginning(ask):
    whole = ask.answer(return_token_ids=True)["prompt_token_ids"]
    end = ask.answer(return_token_ids=True, truncate_prompt_tokens=10)
    assert (end["prompt_token_ids"], end["usage"]["prompt_tokens"]) == (whole[-10:], 10)
    begin = ask.answer(return_token_ids=True, truncate_prompt_tokens=10, truncation_side="right")
    assert begin["prompt_token_ids"] == whole[:10]
    for enough in (-1, 2000):
        assert ask.answer(return_token_ids=True, truncate_prompt_tokens=enough)["prompt_token_ids"] == whole
    for bad in (0, -2, 100_000):
        assert ask.refusal(truncate_prompt_tokens=bad)[0] == "truncate_prompt_tokens"
    assert ask.refusal(truncate_prompt_tokens=10, truncation_side="middle")[0] == "truncation_side"


@pytest.mark.parameter("truncate_prompt_tokens")
def test_a_prompt_longer_than_the_context_can_be_cut_to_fit(ask):
    long = [{"role": "user", "content": "word " * 5000}]
    assert ask.refusal(messages=long) == ("messages", "context_length_exceeded")
    assert ask.answer(messages=long, truncate_prompt_tokens=-1)["usage"]["prompt_tokens"] == 2047


@pytest.mark.parametrize("field", ["mm_processor_kwargs", "media_io_kwargs"])
@pytest.mark.parameter("mm_processor_kwargs", "media_io_kwargs")
def test_options_of_media_are_refused_as_there_are_no_media(ask, field):
    assert ask.refusal(**{field: {"image": {"size": 5}}})[0].startswith(field)
    assert ask.post(**{field: {}}).status_code == 200
