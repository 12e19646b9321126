"""Templates in child processes give the same text; hostile ones are killed without delay for others."""

import threading

import pytest

from engine.api import GenerationRequest, ModelLoadError, PromptOptions, RequestError, Tool
from engine.inputs import rendering
from engine.inputs.processor import PromptProcessor
from engine.inputs.rendering import KillableRenderer, LocalRenderer, RenderJob
from engine.slow_work import SlowWork
from tests.engine.tiny_tokenizer import CHATML, tiny_tokenizer

MESSAGES = ({"role": "user", "content": "hi <|im_end|>"},)
ENDLESS = "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}"
HUGE_WHEN_COMPILED = "{{ 'x' | center(3000000000) }}"


@pytest.fixture(scope="module")
def child():
    made = PromptProcessor(tiny_tokenizer())
    yield made
    made.close()


def request(**options):
    return GenerationRequest("run", "model", MESSAGES, 0.0, prompt=PromptOptions(**options))


def refused(processor, template, **options) -> RequestError:
    with pytest.raises(RequestError) as caught:
        processor.prompt(request(chat_template=template, **options), 1000)
    return caught.value


def test_child_process_renders_the_same_text_as_this_process(child):
    here = PromptProcessor(tiny_tokenizer(), LocalRenderer())
    assert child.prompt(request(), 1000) == here.prompt(request(), 1000)


def test_a_request_may_bring_its_template(child):
    own = request(chat_template="{{ messages[0].content }}{{ word }}", template_kwargs={"word": "!"})
    assert child.prompt(own, 1000).text == "hi <|im_end|>!"
    assert child.prompt(request(), 1000).text.startswith("<|im_start|>user")


def test_the_form_of_content_follows_the_template_of_the_request(child):
    template = "{% for m in messages %}{% for part in m.content %}[{{ part.text }}]{% endfor %}{% endfor %}"
    assert child.prompt(request(chat_template=template), 1000).text == "[hi <|im_end|>]"


def test_a_child_that_is_killed_is_replaced_and_others_are_not_delayed(child, monkeypatch):
    """Templates of requests have separate processes, so that the model's template renders while they loop."""
    errors = []
    with monkeypatch.context() as patch:
        patch.setattr(rendering, "REQUEST_TEMPLATE_S", 0.3)
        loops = [threading.Thread(target=lambda: errors.append(refused(child, ENDLESS))) for _ in range(3)]
        for loop in loops:
            loop.start()
        assert child.prompt(request(), 1000).text.startswith("<|im_start|>user")
        for loop in loops:
            loop.join()
    assert [(error.param, "0.3 s" in error.message) for error in errors] == [("chat_template", True)] * 3
    assert child.prompt(request(chat_template="x"), 1000).text == "x"


def test_memory_is_bounded_from_the_compiling_on(child):
    """Jinja folds constants: this template asks for three gigabytes before it is rendered."""
    error = refused(child, HUGE_WHEN_COMPILED)
    assert (error.param, "512 MiB" in error.message) == ("chat_template", True)
    assert child.prompt(request(chat_template="x"), 1000).text == "x"


@pytest.mark.parametrize(
    "template",
    [
        "{{ ''.__class__.__mro__ }}",
        "{{ cycler.__init__.__globals__ }}",
        "{{ lipsum.__globals__['os'].popen('id').read() }}",
        "{{ ('' | attr('for' ~ 'mat')).__self__ }}",
        "{{ self.__init__.__globals__ }}",
        "{% include '/etc/passwd' %}",
        "{% import 'os' as os %}{{ os }}",
        "{{ raise_exception('no') }}",
        "{{ raise_exception(raise_exception) }}",
        "{{ raise_exception(cycler) }}",
        "{{ loop.nothing.at_all }}",
        "{% for m in messages %}{{ loop.nothing.at_all }}{% endfor %}",
        "{% if %}",
        "{{ 1 / 0 }}",
        "{{ '%c' % 55555555 }}",
        "{{ 'x' * 10 ** 9 }}",
        "{{ '\\ud800' }}",
        "{{" + "(" * 30000,
        "",
    ],
    ids=lambda template: template[:40],
)
def test_errors_of_a_request_template_name_chat_template(template):
    processor = PromptProcessor(tiny_tokenizer(), LocalRenderer())
    if template == "":
        assert processor.prompt(request(chat_template=template), 1000).token_ids == []
        return
    error = refused(processor, template)
    assert error.param == "chat_template"
    assert not any(word in error.message for word in (" at 0x", "jinja2.", "engine.", "Traceback", "/"))
    assert len(error.message) < 1000


@pytest.mark.parametrize(
    "template", ["{{ cycler.__init__.__globals__ }}", "{{ [].append(1) }}{{ messages.append(1) }}", "{% if %}"]
)
def test_a_model_with_a_hostile_template_does_not_load(template):
    with pytest.raises(ModelLoadError, match="chat template cannot be"):
        PromptProcessor(tiny_tokenizer(**{"tokenizer.chat_template": template}), LocalRenderer())


def test_a_model_whose_template_does_not_end_does_not_load(monkeypatch):
    renderer = KillableRenderer(SlowWork())
    try:
        renderer.check(CHATML)
        monkeypatch.setattr(rendering, "MODEL_TEMPLATE_S", 0.3)
        with pytest.raises(ModelLoadError, match=r"more than 0\.3 s"):
            renderer.check(ENDLESS)
    finally:
        renderer.close()


def test_model_template_is_stopped_at_messages_that_make_it_loop(monkeypatch):
    """The check at load cannot find loops that depend on the messages."""
    template = "{% if messages[0].content == 'loop' %}" + ENDLESS + "{% endif %}{{ messages[0].content }}"
    processor = PromptProcessor(tiny_tokenizer(**{"tokenizer.chat_template": template}))
    looping = GenerationRequest("run", "model", ({"role": "user", "content": "loop"},), 0.0)
    try:
        monkeypatch.setattr(rendering, "MODEL_TEMPLATE_S", 0.3)
        with pytest.raises(RequestError, match=r"more than 0\.3 s") as refusal:
            processor.prompt(looping, 1000)
        monkeypatch.undo()
        assert refusal.value.param == "messages"
        assert processor.prompt(request(), 1000).text == "hi <|im_end|>"
    finally:
        processor.close()


def test_model_whose_template_refuses_the_probe_loads():
    PromptProcessor(
        tiny_tokenizer(**{"tokenizer.chat_template": "{{ raise_exception('system first') }}"}), LocalRenderer()
    )


def test_free_template_variables_do_not_clash_with_function_arguments():
    """As keyword arguments, `self` or `context` would clash with those of Jinja's own functions."""
    names = (
        "self",
        "context",
        "args",
        "kwargs",
        "vars",
        "messages",
        "tools",
        "documents",
        "add_generation_prompt",
        "environment",
        "caller",
    )
    free = dict.fromkeys(names, "INTRUDER") | {"raise_exception": "INTRUDER", "range": "INTRUDER"}
    template = (
        "{{ messages[0].content }}{{ tools }}{{ documents }}{{ add_generation_prompt "
        "}}{{ context }}{{ range(2) | list }}"
    )
    job = RenderJob(
        [{"role": "user", "content": "hi"}], {"add_generation_prompt": True, "documents": None}, free, [], 1000
    )
    assert LocalRenderer().render(template, job, is_models=True) == "hiNoneNoneTrueINTRUDER[0, 1]"


def test_documents_and_tools_reach_the_template():
    template = "{{ documents | tojson }}{{ tools | tojson }}"
    processor = PromptProcessor(tiny_tokenizer(**{"tokenizer.chat_template": template}), LocalRenderer())
    spec = {"type": "function", "function": {"name": "f"}}
    asked = GenerationRequest(
        "run", "m", MESSAGES, 0.0, prompt=PromptOptions(documents=({"text": "d"},)), tools=(Tool("f", spec=spec),)
    )
    assert processor.prompt(asked, 1000).text == '[{"text": "d"}][{"type": "function", "function": {"name": "f"}}]'
    assert processor.prompt(request(), 1000).text == "nullnull"
