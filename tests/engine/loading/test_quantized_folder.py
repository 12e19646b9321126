"""Quantised folders against transformers' float32 model on the numbers that they stand for.

tests/oracle/test_greedy_equality.py has their answers in a crowd.
"""

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch.nn import functional

from engine.api.errors import ModelLoadError
from engine.loading.inspection import describe_model
from engine.loading.loader import load_model, open_checkpoint
from engine.loading.quantization_config import take_quantization
from engine.loading.quantized_folder import QuantizedFolder
from engine.loading.safetensors_file import SafetensorsFolder
from engine.quantization.panel_weight import PanelWeight
from engine.quantization.torch_forms import quantize_rows
from tests.engine.loading.quantized_folders import (
    FORMATS,
    GPTQ,
    compressed,
    edit_config,
    four_bits,
    mxfp4,
    write_quantized,
)
from tests.engine.models.test_decoder import run, small_model
from tests.engine.tiny_tokenizer import write_tokenizer

pytest.importorskip("transformers")
PROMPTS = [torch.arange(length) * 7 % 96 for length in (40, 1, 17)]
needs_panels = pytest.mark.skipif(not PanelWeight.fits((32, 32)), reason="needs a processor with AVX2")


def check_logits(folder, reference, atol=1e-4):
    model = load_model(folder, weights="float32")
    for prompt, logits in zip(PROMPTS, run(model, PROMPTS, cuts=[1, 30]), strict=True):
        with torch.inference_mode():
            expected = reference(prompt[None]).logits[0]
        torch.testing.assert_close(logits, expected, atol=atol, rtol=0)


@pytest.mark.parametrize("name", FORMATS)
def test_matrices_that_a_file_stacks_are_cut_apart(tmp_path, name):
    """Phi-3 has queries, keys and values in one matrix, gate and up in another. By default it is near, too."""
    reference = small_model("Phi3", {"num_key_value_heads": 2, "pad_token_id": 0, "num_hidden_layers": 2})
    config, writer, _ = FORMATS[name]
    write_quantized(tmp_path, reference, config, writer)
    check_logits(tmp_path, reference)
    exact, computed = (run(load_model(tmp_path, weights=mode), PROMPTS[:1], [])[0] for mode in ("float32", "auto"))
    assert (computed - exact).std() < 0.05 * exact.std()


@pytest.mark.parametrize("name", ["AWQ", "GPTQ", "compressed-tensors W4A16", "FP8, scales of blocks"])
def test_an_output_may_be_quantised_too(tmp_path, name):
    reference = small_model("Llama", {"num_key_value_heads": 2, "num_hidden_layers": 1})
    config, writer, _ = FORMATS[name]
    write_quantized(tmp_path, reference, config, writer, ("proj.weight", "lm_head.weight"))
    check_logits(tmp_path, reference)


@pytest.mark.parametrize("name", ["AWQ", "GPTQ by activation order", "bitsandbytes NF4"])
def test_layers_of_transformers_take_quantised_folders(tmp_path, name):
    reference = small_model("Cohere", {"num_key_value_heads": 2, "pad_token_id": 0})
    config, writer, _ = FORMATS[name]
    write_quantized(tmp_path, reference, config, writer)
    check_logits(tmp_path, reference)


def test_experts_of_gpt_oss_are_read_from_blocks_and_scales(tmp_path):
    experts = {"num_local_experts": 4, "num_experts_per_tok": 2, "head_dim": 16, "sliding_window": 20}
    reference = small_model("GptOss", experts | {"num_key_value_heads": 2, "num_hidden_layers": 2, "pad_token_id": 0})
    reference.save_pretrained(tmp_path)
    file = tmp_path / "model.safetensors"
    tensors = load_file(file)
    for name, parameter in reference.named_parameters():
        if name.endswith(("gate_up_proj", "down_proj")):
            two, exponents, values = mxfp4(parameter.detach().transpose(1, 2))
            parameter.data.copy_(values.transpose(1, 2))
            del tensors[name]
            tensors |= {f"{name}_blocks": two.unflatten(-1, (-1, 16)), f"{name}_scales": exponents}
    save_file(tensors, file)
    edit_config(tmp_path, quantization_config={"quant_method": "mxfp4", "modules_to_not_convert": ["lm_head"]})
    check_logits(tmp_path, reference)


def stored(folder, name, weight, **changes):
    """Write one matrix and read it back: as stored, and the numbers that it stands for. `changes` to its tensors."""
    config, writer, _ = FORMATS[name]
    tensors, values = writer(weight)
    tensors |= changes
    save_file({f"m.{suffix}": tensor for suffix, tensor in tensors.items()}, folder / "model.safetensors")
    quantization = take_quantization("config.json", {"quantization_config": config})
    return QuantizedFolder(SafetensorsFolder.open(folder), quantization).matrix("m.weight"), values


@needs_panels
@pytest.mark.parametrize("name", FORMATS)
def test_integer_products_of_every_format_are_close_to_float32(tmp_path, name):
    """The mean KL divergence must stay below 0.005; one product of the largest error here has 0.0003."""
    draw = torch.Generator().manual_seed(0)
    matrix, values = stored(tmp_path, name, torch.randn(128, 512, generator=draw))
    x = torch.randn(32, 512, generator=draw)
    form, exact = PanelWeight.of_matrix(matrix), x @ values.T
    computed, expected = ((2.5 / exact.std() * logits).log_softmax(-1) for logits in (form(x), exact))
    assert functional.kl_div(computed, expected, log_target=True, reduction="batchmean") < 0.0005
    num_bytes = {"four": 0.625, "table": 0.5625}.get(FORMATS[name][2], 1.0625)
    assert form.num_bytes / values.numel() == pytest.approx(num_bytes, abs=0.012)


@pytest.mark.parametrize("name", [name for name, (_, _, held) in FORMATS.items() if held == "bytes"])
def test_bytes_with_a_scale_per_output_are_kept(tmp_path, name):
    matrix, values = stored(tmp_path, name, torch.randn(40, 64, generator=torch.Generator().manual_seed(1)))
    levels, scale = quantize_rows(matrix)
    torch.testing.assert_close(levels * scale[:, None], values, atol=0, rtol=1e-6)


@pytest.mark.parametrize("size", [1e-9, 1e5])
def test_four_bit_groups_beyond_half_precision_take_eight_bits(tmp_path, size):
    scale = torch.full((32, 2), size)
    matrix, _ = stored(tmp_path, "compressed-tensors W4A16", torch.randn(32, 64), weight_scale=scale)
    assert not matrix.is_packed
    assert matrix.to_dtype(torch.float32).abs().max() == 8 * scale.max()


def test_an_order_of_compressed_tensors_that_was_never_set_is_none(tmp_path):
    """Files that ask for an order by activation, but are written without calibration, have -1 for each input."""
    weight = torch.randn(32, 64, generator=torch.Generator().manual_seed(1))
    unset = {"weight_g_idx": torch.full((64,), -1, dtype=torch.int32)}
    matrix, values = stored(tmp_path, "compressed-tensors W4A16", weight, **unset)
    torch.testing.assert_close(matrix.to_dtype(torch.float32), values)


def test_the_description_of_a_model_names_its_format(tmp_path):
    write_quantized(tmp_path, small_model("Llama", {}), *FORMATS["GPTQ by activation order"][:2])
    write_tokenizer(tmp_path)
    assert "MiB, weights in GPTQ, 4 bits in groups of 32, by activation order" in describe_model(tmp_path)


def test_scales_of_activations_and_of_the_cache_are_left_out_with_a_line_in_the_log(tmp_path, caplog):
    caplog.set_level("INFO")
    tensors = {"m.k_scale": torch.ones(()), "m.self_attn.v_scale": torch.ones(())}
    stored(tmp_path, "FP8, a scale of each matrix", torch.randn(32, 32), **tensors)
    assert "3 scales of activations and of the cache are left out" in caplog.text


def test_biases_of_nothing_but_zeros_are_taken_where_the_architecture_has_none(tmp_path):
    """As older GPTQ files have them."""
    reference = small_model("Llama", {})
    write_quantized(tmp_path, reference, *FORMATS["GPTQ"][:2])
    name = "model.layers.0.self_attn.q_proj.bias"
    change(tmp_path, {name: torch.zeros(64)})
    check_logits(tmp_path, reference)
    for wrong in (torch.ones(64), torch.zeros(0), torch.zeros(()), torch.zeros(2, 2, 2)):
        change(tmp_path, {name: wrong})
        with pytest.raises(ModelLoadError, match=f"tensors that its architecture does not have: '{name}'"):
            load_model(tmp_path)


def change(folder, tensors):
    """Replace tensors of a folder, or remove those that are None."""
    file = folder / "model.safetensors"
    kept = load_file(file) | tensors
    save_file({name: tensor for name, tensor in kept.items() if tensor is not None}, file)


def of_groups(size):
    return {"weights": {"num_bits": 8, "strategy": "group", "group_size": size}}


@pytest.mark.parametrize(
    ("config", "what"),
    [
        ({"quant_method": "hqq"}, "weights quantised by 'hqq' cannot be served; supported are awq, gptq.*GGUF"),
        ({}, "weights quantised by 'None' cannot be served"),
        ([1], "quantization_config must be an object"),
        ({"quant_method": "awq", "bits": 3, "group_size": 32}, "quantization_config.bits must be 4, got '3'"),
        (
            {"quant_method": "awq", "bits": 4, "group_size": 16},
            "must be -1 or a multiple of 32 up to .*got '16'",
        ),
        ({"quant_method": "awq", "bits": 4, "group_size": 32, "version": "gemv"}, "version must be 'gemm'"),
        (GPTQ | {"bits": 2}, "bits must be 4 or 8"),
        (GPTQ | {"group_size": 1 << 40}, "group_size must be -1 or a multiple of 32 up to"),
        (GPTQ | {"checkpoint_format": "marlin"}, "checkpoint_format must be 'gptq' or 'gptq_v2'"),
        (GPTQ | {"dynamic": {"+:mlp": {"bits": 8}}}, "dynamic must give all modules the same bits"),
        ({"quant_method": "fp8", "weight_block_size": [128, 100]}, "width that is a multiple of 32"),
        ({"quant_method": "modelopt", "quant_algo": "NVFP4"}, "quant_algo must be 'FP8', got 'NVFP4'"),
        (compressed("nvfp4-pack-quantized"), "format must be 'pack-quantized' or .*got 'nvfp4-pack-quantized'"),
        (compressed("pack-quantized", num_bits=3), "num_bits must be 4 or 8"),
        (compressed("int-quantized") | {"config_groups": {}}, "config_groups must be an object with entries"),
        (
            compressed("int-quantized") | {"config_groups": {size: of_groups(size) for size in (32, 64)}},
            r"config_groups must have scales of blocks of one size, got '\[\(1, 32\), \(1, 64\)\]'",
        ),
        (compressed("int-quantized") | {"sparsity_config": {"format": "sparse-24"}}, "must have the format 'dense'"),
        (compressed("int-quantized") | {"transform_config": {"R1": {}}}, "transform_config must be empty"),
        (four_bits("nf4") | {"bnb_4bit_quant_storage": "bfloat16"}, "bnb_4bit_quant_storage must be 'uint8'"),
    ],
)
def test_what_is_not_served_is_refused_by_name_before_tensors_are_looked_at(tmp_path, config, what):
    small_model("Llama", {}).config.save_pretrained(tmp_path)
    edit_config(tmp_path, architectures=["LlamaForCausalLM"], quantization_config=config)
    with pytest.raises(ModelLoadError, match=what):
        open_checkpoint(tmp_path)


Q = "model.layers.0.self_attn.q_proj."
STATE = f"{Q}weight.quant_state.bitsandbytes__nf4"
INDEX = torch.arange(64, dtype=torch.int32) // 32
LIES = {
    "a tensor is missing": ("AWQ", {f"{Q}scales": None}, r"q_proj\.scales' is missing"),
    "zero points of another width": ("AWQ", {f"{Q}qzeros": torch.zeros(2, 4).int()}, r"must have the shape \(2, 8\)"),
    "words that are no words": ("AWQ", {f"{Q}qweight": torch.zeros(64, 8)}, "must be a matrix of I32, got F32"),
    "more groups than there are": ("GPTQ", {f"{Q}scales": torch.ones(3, 64)}, r"must have the shape \(2, 64\), got"),
    "an infinite scale": ("GPTQ", {f"{Q}scales": torch.full((2, 64), torch.inf)}, "must hold finite numbers"),
    "a group beyond the last": ("GPTQ", {f"{Q}g_idx": INDEX + 1}, "must give 32 inputs to each of 2 groups"),
    "a group below the first": ("GPTQ", {f"{Q}g_idx": INDEX - 1}, "must give 32 inputs to each of 2 groups"),
    "an index for other inputs": ("GPTQ", {f"{Q}g_idx": INDEX[:32]}, r"must have the shape \(64,\), got \(32,\)"),
    "a size without words": (
        "compressed-tensors W4A16",
        {f"{Q}weight_shape": torch.tensor([64, 1 << 40])},
        r"weight_packed' must have the shape",
    ),
    "a negative size": (
        "compressed-tensors W4A16",
        {f"{Q}weight_shape": torch.tensor([64, -64])},
        "must have inputs in a multiple of 32, got -64",
    ),
    "scales of other blocks": (
        "FP8, scales of blocks",
        {f"{Q}weight_scale_inv": torch.ones(3, 1)},
        r"must have the shape .* or \(2, 1\), got \(3, 1\)",
    ),
    "no scale": ("compressed-tensors W8A8", {f"{Q}weight_scale": None}, r"weight_scale' is missing"),
    "bytes in tiles of a GPU": (
        "bitsandbytes INT8",
        {f"{Q}weight_format": torch.tensor(2, dtype=torch.uint8)},
        "weight_format' must be 0",
    ),
    "exponents of other blocks": (
        "MXFP4, blocks and scales",
        {f"{Q}weight_scales": torch.zeros(64, 3).byte()},
        r"must have the shape \(64, 2\)",
    ),
    "a state that is no JSON": ("bitsandbytes NF4", {STATE: torch.zeros(8).byte()}, "cannot be read as JSON"),
    "a state without a shape": ("bitsandbytes NF4", {STATE: torch.tensor(list(b"{}")).byte()}, "a shape of two sizes"),
    "levels of another type": ("bitsandbytes NF4", {f"{Q}weight.quant_map": torch.ones(16)}, "the levels of NF4"),
    "fewer blocks than there are": (
        "bitsandbytes NF4",
        {f"{Q}weight.absmax": torch.ones(3)},
        r"absmax' must have the shape \(64,\)",
    ),
    "a tensor of nobody": ("AWQ", {f"{Q}extra": torch.ones(1)}, "does not have: '.*q_proj.extra'"),
    "a matrix of another size": ("MXFP4, blocks and scales", {}, "must have the shape .*, got"),
}


def fp8_bytes(broken: int) -> torch.Tensor:
    data = torch.zeros(64, 64, dtype=torch.uint8)
    data[63, 40] = broken
    return data.view(torch.float8_e4m3fn)


EXPONENTS = torch.full((64, 2), 120, dtype=torch.uint8).index_fill(0, torch.tensor([7]), 255)
BROKEN = {
    "NaN in FP8": ("FP8, scales of blocks", {f"{Q}weight": fp8_bytes(0x7F)}),
    "negative NaN in FP8": ("compressed-tensors FP8", {f"{Q}weight": fp8_bytes(0xFF)}),
    "numbers beyond float32": (
        "FP8, scales of blocks",
        {f"{Q}weight": fp8_bytes(0x7E), f"{Q}weight_scale_inv": torch.full((2, 1), 3e38)},
    ),
    "NaN as an exponent": ("MXFP4, blocks and scales", {f"{Q}weight_scales": EXPONENTS}),
    "NaN as a scale of rows": ("compressed-tensors W8A8", {f"{Q}weight_scale": torch.full((64, 1), torch.nan)}),
    "NaN as the largest of a block": ("bitsandbytes NF4", {f"{Q}weight.absmax": torch.full((64,), torch.nan)}),
    "NaN beside": ("AWQ", {"model.norm.weight": torch.full((64,), torch.nan)}),
}


@pytest.mark.parametrize("weights", ["auto", "float32"])
@pytest.mark.parametrize("fault", BROKEN)
def test_numbers_that_are_not_finite_are_refused_by_the_name_of_their_tensor(tmp_path, fault, weights):
    """NaN in FP8 made answers of no sense, as it became the scale of a group."""
    name, tensors = BROKEN[fault]
    write_quantized(tmp_path, small_model("Llama", {"num_hidden_layers": 1}), *FORMATS[name][:2])
    found = load_file(tmp_path / "model.safetensors")
    assert all(found[key].shape == tensor.shape for key, tensor in tensors.items())
    change(tmp_path, tensors)
    with pytest.raises(ModelLoadError, match=f"tensor '({'|'.join(tensors)})' .*finite"):
        load_model(tmp_path, weights=weights)


@pytest.mark.parametrize("lie", LIES)
def test_a_folder_whose_tensors_do_not_fit_each_other_is_refused_by_name(tmp_path, lie):
    name, tensors, what = LIES[lie]
    write_quantized(tmp_path, small_model("Llama", {"num_hidden_layers": 1}), *FORMATS[name][:2])
    change(tmp_path, tensors)
    if not tensors:
        edit_config(tmp_path, intermediate_size=64)
    with pytest.raises(ModelLoadError, match=what):
        load_model(tmp_path, weights="float32")
