"""Whole GGUF models of every type against transformers, on the numbers that gguf-py reads from the files."""

import gguf
import pytest
import torch

from engine.api import PromptOptions, SamplingParams, StopRules
from engine.api.errors import ModelLoadError
from engine.loading.loader import load_model
from tests.engine.loading.gguf_models import write_model
from tests.engine.models.test_decoder import run, small_model
from tests.engine.quantization.gguf_rows import TYPES
from tests.engine.real_engine import RealEngine, tokens_of
from tests.engine.tiny_tokenizer import VOCAB_SIZE, tiny_metadata
from tests.oracle.greedy import disagreements

SHAPE = {"vocab_size": VOCAB_SIZE, "hidden_size": 256, "intermediate_size": 256, "num_hidden_layers": 1}
SHAPE |= {"num_key_value_heads": 2, "head_dim": 64}
TIED = {"tie_word_embeddings": True}
Q4_K_M = {"token_embd": "Q6_K", "attn_v": "Q6_K", "ffn_down": "Q6_K", "output": "Q6_K"}
IQ2_XXS = {"token_embd": "IQ3_S", "attn_v": "Q4_K", "ffn_down": "Q3_K", "output": "Q5_K"}
MODELS = {
    **{type_name: ("Qwen3", {}, type_name, {}) for type_name in TYPES},
    "a mixture as Q4_K_M": ("Llama", {}, "Q4_K", Q4_K_M),
    "a mixture as Q4_K_M with tied output": ("Llama", TIED, "Q4_K", Q4_K_M),
    "a mixture as IQ2_XXS": ("Qwen3", {}, "IQ2_XXS", IQ2_XXS),
    "a mixture of floats": ("Qwen3", TIED, "BF16", {"token_embd": "F16", "attn_k": "F32", "ffn_up": "F16"}),
}
"""Name -> family, changes to the shape, the type of most matrices, and the types of others by name."""
PROMPT = torch.arange(60)


def written(path, name, max_tensors=0, **more):
    """Write a model of MODELS; return transformers' model of the same numbers. Files have at most `max_tensors`."""
    family, changes, most, others = MODELS[name]
    reference = small_model(family, SHAPE | changes | more)
    writer = gguf.GGUFWriter(path, family.lower(), split_max_tensors=max_tensors)
    for key, value in tiny_metadata().items():
        writer.add_key_value(key, value, gguf.GGUFValueType.get_type(value))
    write_model(writer, reference, type_of=lambda tensor: others.get(tensor.split(".")[-2], most))
    return reference


@pytest.mark.parametrize("name", MODELS)
def test_a_model_of_every_type_gives_the_logits_of_transformers(tmp_path, name):
    """Exactly in float32, closely in what is chosen for this machine."""
    check_logits(tmp_path / "m.gguf", written(tmp_path / "m.gguf", name))


def check_logits(path, reference):
    with torch.inference_mode():
        expected = reference(PROMPT[None]).logits[0]
    exact, chosen = (run(load_model(path, weights=weights), [PROMPT], cuts=[7])[0] for weights in ("float32", "auto"))
    torch.testing.assert_close(exact, expected, atol=1e-4, rtol=0)
    assert (chosen - expected).std() < 0.05 * expected.std()


def scaled(path, **more):
    """Write a model in NVFP4 whose matrices have scales in tensors of their own; return transformers' of the same."""
    reference = small_model("Qwen3", SHAPE)
    places = {"attn_q": "q_proj", "attn_k": "k_proj", "attn_v": "v_proj", "ffn_up": "up_proj", "ffn_down": "down_proj"}
    scales = {name: torch.tensor([0.5 + 0.3 * number]) for number, name in enumerate(places)}
    extra = {f"blk.0.{name}.scale": scale for name, scale in scales.items()}
    extra |= {f"blk.0.{name}.input_scale": torch.tensor([0.01]) for name in scales}
    write_model(gguf.GGUFWriter(path, "qwen3"), reference, extra | more, type_of=lambda tensor: "NVFP4")
    for name, parameter in reference.named_parameters():
        for place, ending in places.items():
            if name.endswith(f"{ending}.weight"):
                parameter.data.mul_(scales[place])
    return reference


def test_scales_of_matrices_in_tensors_of_their_own_are_applied(tmp_path, caplog):
    """llama.cpp's converter writes them beside NVFP4 matrices. The model was refused for them."""
    caplog.set_level("INFO")
    reference = scaled(tmp_path / "m.gguf")
    check_logits(tmp_path / "m.gguf", reference)
    assert "m.gguf: 5 scales of activations are left out" in caplog.text


@pytest.mark.parametrize("wrong", [[1.0, 2.0], [float("nan")], [float("inf")]])
def test_a_scale_that_is_not_one_finite_number_is_refused_by_name(tmp_path, wrong):
    scaled(tmp_path / "m.gguf", **{"output.scale": torch.tensor(wrong)})
    with pytest.raises(ModelLoadError, match=r"m\.gguf: tensor 'output.scale' must hold one finite number in float32"):
        load_model(tmp_path / "m.gguf")


def test_a_scale_of_no_matrix_is_refused_by_name(tmp_path):
    scaled(tmp_path / "m.gguf", **{"blk.0.attn_norm.scale": torch.ones(1)})
    with pytest.raises(ModelLoadError, match=r"tensors that its architecture does not have: 'blk.0.attn_norm.scale'"):
        load_model(tmp_path / "m.gguf")


@pytest.mark.parametrize(("weights", "margin"), [("float32", 0), ("auto", 0.2)])
@pytest.mark.parametrize("name", ["Q4_0", "a mixture as IQ2_XXS", "a mixture as Q4_K_M with tied output"])
def test_answers_of_a_file_in_parts_are_greedy(tmp_path, name, weights, margin):
    """Logits spread by 1.6, so a token within the margin of the best one is nearly as good."""
    reference = written(tmp_path / "m.gguf", name, max_tensors=5)
    engine = RealEngine(tmp_path / "m-00001-of-00003.gguf", weights=weights)
    payloads = engine.answer(
        sampling=SamplingParams(temperature=0.0),
        stop=StopRules(max_tokens=16, ignore_eos=True),
        prompt=PromptOptions(returns_ids=True),
    )
    engine.close()
    token_ids = tokens_of(payloads)
    assert len(token_ids) == 16
    assert all(missed <= margin for _, missed in disagreements(reference, payloads[0].prompt_ids, token_ids))


def test_a_model_in_parts_equals_the_whole(tmp_path):
    written(tmp_path / "m.gguf", "a mixture as Q4_K_M")
    written(tmp_path / "parts.gguf", "a mixture as Q4_K_M", max_tensors=5)
    whole, parts = (load_model(tmp_path / name, weights="float32") for name in ("m.gguf", "parts-00001-of-00003.gguf"))
    assert [file.name for file in parts.files] == [f"parts-{part:05}-of-00003.gguf" for part in (1, 2, 3)]
    assert torch.equal(*(run(model, [PROMPT], cuts=[7])[0] for model in (whole, parts)))


def test_a_part_of_a_model_of_another_size_is_refused_by_its_name(tmp_path):
    """The file of the first part was named."""
    first, second = tmp_path / "one-00001-of-00003.gguf", tmp_path / "one-00002-of-00003.gguf"
    written(tmp_path / "one.gguf", "Q8_0", max_tensors=5)
    second.unlink()
    with pytest.raises(ModelLoadError, match=f"{second}: part 2 of 3 is missing; all parts must lie in one folder"):
        load_model(first)
    written(tmp_path / "two.gguf", "Q8_0", max_tensors=5, intermediate_size=512)
    (tmp_path / "two-00002-of-00003.gguf").rename(second)
    with pytest.raises(ModelLoadError, match=rf"{second}: tensor 'blk.0.ffn_\w+.weight' must have the shape .*, got"):
        load_model(first)
