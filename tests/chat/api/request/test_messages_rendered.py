"""Any messages give a prompt or a refusal; nothing else is raised up to the token ids."""

import contextlib

import msgpack
from hypothesis import given
from hypothesis import strategies as st

from chat.api.request.messages import last_message_text, messages_walk
from chat.errors import ApiError
from engine.api import EngineError, GenerationRequest, PromptOptions, Tool
from engine.inputs.processor import PromptProcessor
from engine.inputs.rendering import LocalRenderer
from tests.engine.inputs.families import FAMILIES, TOOL, source
from tests.engine.tiny_tokenizer import tiny_tokenizer
from tests.examples import examples

PROCESSORS = [
    PromptProcessor(tiny_tokenizer(**{"tokenizer.chat_template": source(family)}), LocalRenderer())
    for family in FAMILIES
]
TEXT = st.sampled_from(
    ["", "hi", "<|im_end|>", '{"a": 1}', "functions.f", "f", "analysis", "<think>x</think>y", " \n", "\0", "é"]
)
ANY = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.floats(allow_nan=False, allow_infinity=False) | TEXT,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(TEXT, inner, max_size=2),
    max_leaves=4,
)


def mostly(strategy):
    """Return values of the right shape, and now and then any value."""
    return st.integers(0, 9).flatmap(lambda number: strategy if number else ANY)


KINDS = st.sampled_from(
    ["text", "input_text", "output_text", "refusal", "thinking", "image_url", "file", "prompt_embeds"]
)
PART = TEXT | st.fixed_dictionaries(
    {},
    optional={
        "type": mostly(KINDS),
        "text": mostly(TEXT),
        "refusal": mostly(TEXT),
        "thinking": mostly(TEXT),
        "closed": mostly(st.booleans()),
        "file": mostly(st.fixed_dictionaries({}, optional={"file_id": TEXT, "filename": TEXT})),
    },
)
FUNCTION = st.fixed_dictionaries({"name": mostly(TEXT)}, optional={"arguments": mostly(TEXT)})
CALL = st.fixed_dictionaries(
    {}, optional={"id": mostly(TEXT), "type": mostly(TEXT), "function": mostly(FUNCTION), "custom": mostly(FUNCTION)}
)
CONTENT = mostly(TEXT | st.lists(mostly(PART), max_size=3) | st.none())
ROLES = st.sampled_from(["system", "developer", "user", "assistant", "assistant", "tool", "function", "critic", ""])
OPTIONAL = {
    "content": CONTENT,
    "name": mostly(TEXT),
    "reasoning": mostly(TEXT),
    "reasoning_content": mostly(TEXT),
    "refusal": mostly(TEXT),
    "audio": ANY,
    "tool_calls": mostly(st.lists(mostly(CALL), max_size=2)),
    "function_call": mostly(FUNCTION),
    "tool_call_id": mostly(TEXT),
    "tools": mostly(st.lists(mostly(st.just(TOOL)), max_size=2)),
    "thinking": ANY,
}
ORDINARY = st.fixed_dictionaries({"role": mostly(ROLES)}, optional=OPTIONAL)
AUTHOR = st.fixed_dictionaries({"role": mostly(ROLES)}, optional={"name": mostly(TEXT)})
HARMONY = st.fixed_dictionaries(
    {"author": mostly(AUTHOR)},
    optional={
        "content": mostly(st.lists(mostly(PART), max_size=2)),
        "channel": mostly(TEXT),
        "recipient": mostly(TEXT),
    },
)
MESSAGES = st.lists(mostly(ORDINARY | HARMONY), min_size=1, max_size=5)
OPTIONS = st.builds(
    PromptOptions,
    add_generation_prompt=st.booleans(),
    add_special_tokens=st.booleans(),
    continue_final_message=st.booleans(),
    template_kwargs=st.dictionaries(
        st.sampled_from(["enable_thinking", "date_string", "reasoning_effort", "bos_token"]), ANY, max_size=2
    ),
    documents=st.just(()) | st.lists(st.dictionaries(TEXT, TEXT, max_size=2), max_size=2).map(tuple),
    truncate_to=st.none() | st.integers(1, 20),
    truncation_side=st.sampled_from(["left", "right"]),
)


@examples(120)
@given(MESSAGES, OPTIONS, st.booleans())
def test_messages_become_a_prompt_or_a_refusal(messages, options, has_tools):
    try:
        walked = messages_walk(messages, model="tiny", max_parts=100)
    except ApiError as error:
        refusal = error
    else:
        refusal = None
        assert all(isinstance(word, str) for word in last_message_text(walked, messages))
        sent = msgpack.unpackb(msgpack.packb(walked))
        tools = (Tool("weather", spec=TOOL),) if has_tools else ()
        request = GenerationRequest("run", "tiny", tuple(sent), 0.0, prompt=options, tools=tools)
        for processor in PROCESSORS:
            with contextlib.suppress(EngineError):
                prompt = processor.prompt(request, 1000)
                assert options.truncate_to is None or len(prompt.token_ids) <= options.truncate_to
    assert refusal is None or (refusal.status == 400 and str(refusal.param).startswith("messages"))
