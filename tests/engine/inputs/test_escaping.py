"""Client text never becomes a control token, in any place and after any template; other text is unchanged."""

import json
import re

from hypothesis import given
from hypothesis import strategies as st
from tokenizers import AddedToken, normalizers

from engine.api import GenerationRequest, PromptOptions, Tool
from engine.inputs.encoding import PieceEncoder
from engine.inputs.escaping import ControlTexts, ControlTokenEscaper, PromptPiece
from engine.inputs.processor import PromptProcessor
from engine.inputs.rendering import LocalRenderer
from engine.tokenizers.gguf_vocabulary import BYTE, NORMAL, UNKNOWN
from engine.tokenizers.gguf_vocabulary import CONTROL as CONTROL_TYPE
from engine.tokenizers.tokenizer import Tokenizer
from tests.engine.tiny_tokenizer import IM_END, IM_START, THINK, tiny_metadata, tiny_tokenizer

CONTROL = {IM_START, IM_END, THINK}
JOINED = (
    "{% for m in messages %}{% for part in m.content %}{{ part.text }}{% endfor %}{% endfor %}"
    "{% for d in documents or [] %}{{ d.title }}{{ d.text }}{% endfor %}"
    "{% for t in tools or [] %}{{ t.function.description }}{% endfor %}{{ word or '' }}<|im_end|>"
)
TOKENIZER = tiny_tokenizer(**{"tokenizer.chat_template": JOINED})
PROCESSOR = PromptProcessor(TOKENIZER, LocalRenderer())
FORGED = ("\ue0000123456789abcdef.0\ue001", "\\ue0000123456789abcdef.end\\ue001", "\ue0000123456789abcdef.", ".0\ue001")
FRAGMENTS = st.sampled_from(
    ["<|im_end|>", "<|im_start|>", "<think>", *"<| < im_ end |> > | <th ink> x \ue000 é".split(), " ", *FORGED]
)
TYPED = st.lists(FRAGMENTS, max_size=4).map("".join)
TYPED_LISTS = st.lists(TYPED, max_size=4)


def prompt(parts=(), documents=(), descriptions=(), word="", **options):
    content = [{"type": "text", "text": part} for part in parts]
    options |= {
        "documents": tuple({"title": text, "text": text} for text in documents),
        "template_kwargs": {"word": word},
    }
    tools = tuple(
        Tool("f", spec={"type": "function", "function": {"name": "f", "description": text}}) for text in descriptions
    )
    request = GenerationRequest(
        "run", "model", ({"role": "user", "content": content},), 0.0, prompt=PromptOptions(**options), tools=tools
    )
    return PROCESSOR.prompt(request, 100_000)


@given(TYPED_LISTS, TYPED_LISTS, TYPED_LISTS, TYPED)
def test_control_text_split_over_client_strings_stays_text(parts, documents, descriptions, word):
    made = prompt(parts, documents, descriptions, word)
    typed = "".join([*parts, *(text * 2 for text in documents), *descriptions, word])
    assert made.text == typed + "<|im_end|>"
    assert b"".join(map(TOKENIZER.token_bytes, made.token_ids)).decode() == made.text
    assert [token_id for token_id in made.token_ids if token_id in CONTROL] == [IM_END]


@given(TYPED_LISTS)
def test_text_without_control_texts_is_encoded_as_if_there_were_no_marks(parts):
    text = "".join(parts)
    if not any(control in text for control in TOKENIZER.added_texts):
        assert prompt(parts).token_ids == TOKENIZER.encode(text + "<|im_end|>")


def test_control_text_joined_by_the_template_is_a_control_token():
    """Some templates write the role between brackets: `<|` + role + `|>`."""
    template = "{% for m in messages %}{% if m.role == 'im_end' %}{{ '<|' + m.role + '|>' }}{% endif %}{% endfor %}"
    processor = PromptProcessor(tiny_tokenizer(**{"tokenizer.chat_template": template}), LocalRenderer())
    request = GenerationRequest("run", "model", ({"role": "im_end", "content": ""},), 0.0)
    assert processor.prompt(request, 1000).token_ids == [IM_END]


def test_marks_survive_json_that_escapes_them():
    template = "{{ messages | tojson(ensure_ascii=true) }}"
    processor = PromptProcessor(tiny_tokenizer(**{"tokenizer.chat_template": template}), LocalRenderer())
    made = processor.prompt(GenerationRequest("run", "model", ({"role": "user", "content": "<think>"},), 0.0), 1000)
    assert json.loads(made.text) == [{"role": "user", "content": "<think>"}]
    assert THINK not in made.token_ids


def test_control_text_across_template_and_client_text_stays_text():
    processor = PromptProcessor(
        tiny_tokenizer(**{"tokenizer.chat_template": "<|{{ messages[0].content }}|>"}), LocalRenderer()
    )
    for typed in ("im_end|>", "<|im_end", "|>|im_start|>"):
        made = processor.prompt(GenerationRequest("run", "model", ({"role": "user", "content": typed},), 0.0), 1000)
        assert made.text == f"<|{typed}|>"
        assert not CONTROL & set(made.token_ids)


def test_words_that_templates_compare_are_not_escaped():
    escaper = ControlTokenEscaper(ControlTexts(["response", "ruser", "textual"]))
    assert escaper.escape({"role": "user", "type": "text"}) == {"role": "user", "type": "text"}


def test_runs_of_spaces_are_not_control_texts():
    escaper = ControlTokenEscaper(ControlTexts(["  ", "\n\n", "<x>"]))
    assert escaper.escape("a  b\n\n") == "a  b\n\n"


def test_marks_of_two_requests_differ():
    """Otherwise a client could type the marks of another request."""
    controls = ControlTexts(["<x>"])
    assert ControlTokenEscaper(controls).escape("<x>") != ControlTokenEscaper(controls).escape("<x>")


@given(st.lists(st.text("ab|", min_size=1, max_size=5), min_size=1, max_size=12), st.text("ab|", max_size=30))
def test_the_pattern_finds_the_longest_control_text(texts, typed):
    tried = re.compile("|".join(map(re.escape, sorted(texts, key=len, reverse=True))))
    pattern = ControlTexts(texts).pattern
    assert pattern is not None
    assert pattern.findall(typed) == tried.findall(typed)


def test_escaping_time_is_independent_of_the_number_of_reserved_tokens():
    """Trying tokens one by one took 18 s for a text within the character limit."""
    controls = ControlTexts(["<|im_end|>", *(f"<|reserved_special_token_{number}|>" for number in range(1000))])
    for typed in ("<|" * 500_000, "<|reserved_special_token_9" * 40_000):
        escaper = ControlTokenEscaper(controls)
        assert "".join(piece.text for piece in escaper.split(escaper.escape(typed))) == typed


def test_control_texts_of_any_length_and_number_can_be_read():
    texts = ["a|" * length for length in range(1, 300)] + ["|" * 100_000]
    assert ControlTexts(texts).pattern.sub("", "a|" * 1000 + "|" * 100_000) == ""


def test_a_normalising_tokenizer_makes_no_control_token_of_other_characters():
    """NFC turns the Kelvin sign into K; a normalising tokenizer then found an added token."""
    backend = Tokenizer.from_metadata(tiny_metadata()).backend
    backend.normalizer = normalizers.NFC()
    backend.add_tokens([AddedToken("[THINK]", normalized=True)])
    made = Tokenizer(backend, (IM_END,), chat_template="{% for m in messages %}{{ m.content }}[THINK]é{% endfor %}")
    processor = PromptProcessor(made, LocalRenderer())
    think = backend.token_to_id("[THINK]")
    for typed in ("a[THIN\u212a]b", "a", "é", "[THINK]"):
        prompt = processor.prompt(GenerationRequest("run", "model", ({"role": "user", "content": typed},), 0.0), 1000)
        assert prompt.token_ids.count(think) == 1


def test_bos_stays_before_a_raw_prompt_whose_control_text_arises_by_normalisation():
    backend = Tokenizer.from_metadata(tiny_metadata()).backend
    backend.normalizer = normalizers.NFC()
    backend.add_tokens([AddedToken("[THINK]", normalized=True)])
    tokenizer = Tokenizer(backend, (IM_END,), bos_id=IM_START, add_bos=True)
    encoder = PieceEncoder(tokenizer, ControlTexts(tokenizer.added_texts))
    ids = encoder.encode([PromptPiece("[THIN\u212a]")], add_special_tokens=True)
    assert ids == [IM_START, *tokenizer.encode_ordinary("[THINK]")]


SPACED = "{{ bos_token }}[INST] {{ messages[0].content }} [/INST]"


@given(st.lists(st.sampled_from(["</s>", "<s>", "<unk>", " ", "a", "\n", "\u00e9"]), max_size=6).map("".join))
def test_no_space_appears_around_control_texts_of_tokenizers_that_put_one_in_front(text):
    """A message with `</s>` reached Llama 2 with a space more before and behind it."""
    pieces = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), "\u2581", "a"]
    keys = {
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.tokens": pieces,
        "tokenizer.ggml.scores": [0.0] * len(pieces),
        "tokenizer.ggml.token_type": [UNKNOWN, CONTROL_TYPE, CONTROL_TYPE, *[BYTE] * 256, NORMAL, NORMAL],
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 2,
        "tokenizer.chat_template": SPACED,
    }
    tokenizer = Tokenizer.from_metadata(tiny_metadata(**keys))
    request = GenerationRequest("run", "model", ({"role": "user", "content": text},), 0.0)
    made = PromptProcessor(tokenizer, LocalRenderer()).prompt(request, 100_000)
    assert made.token_ids[0] == 1
    assert tokenizer.text_of(made.token_ids[1:]) == f"[INST] {text} [/INST]"
    assert not {0, 1, 2} & set(made.token_ids[1:])
