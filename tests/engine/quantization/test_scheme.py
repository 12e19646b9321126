import logging

import pytest
import torch

from engine.api.errors import ModelLoadError
from engine.kernels.cpu import integer_vectors
from engine.quantization import scheme as scheme_module
from engine.quantization.panel_weight import PanelWeight
from engine.quantization.scheme import ROW_BUCKETS, WeightScheme, measure, pick, possible_forms
from engine.quantization.stored import StoredMatrix
from engine.quantization.torch_forms import DenseWeight, Int4Weight, Int8PackedWeight

CPU = torch.device("cpu")
FLAT = [10.0] * len(ROW_BUCKETS)


def float_matrix(num_outputs: int = 32, num_inputs: int = 64) -> StoredMatrix:
    return StoredMatrix.from_float(torch.randn(num_outputs, num_inputs))


def four_bit_matrix(num_outputs: int = 32, num_inputs: int = 64) -> StoredMatrix:
    data = torch.randint(0, 100, (num_outputs, num_inputs // 32 * 18), dtype=torch.uint8)
    return StoredMatrix.from_blocks("Q4_0", data, (num_outputs, num_inputs))


def test_each_bucket_is_served_by_the_faster_of_two_forms():
    few, many = [1.0, 2, 4, 8, 16, 32, 64], [6.0] * len(ROW_BUCKETS)
    assert pick({"few": few, "many": many}, 2) == ("few", "few", "few", "many", "many", "many", "many")


def test_a_second_form_that_hardly_gains_is_not_kept():
    slightly_better = [9.8, *FLAT[1:]]
    assert pick({"a": FLAT, "b": slightly_better}, 2) in [("a",) * len(FLAT), ("b",) * len(FLAT)]


def test_a_single_possible_form_serves_all_row_counts():
    few = [1.0, 2, 4, 8, 16, 32, 64]
    assert len(set(pick({"few": few, "many": FLAT}, 1))) == 1


def test_a_rejected_form_is_never_chosen_for_its_row_counts():
    given_up = [1.0] * 4 + [float("inf")] * (len(ROW_BUCKETS) - 4)
    assert pick({"given up": given_up, "slow": FLAT}, 2)[-1] == "slow"


@pytest.mark.parametrize("shape", [(16, 64), (48, 64), (96, 64)])
@pytest.mark.parametrize("four_bit", [True, False])
def test_measuring_times_every_form_and_leaves_the_thread_count(shape, four_bit):
    threads = torch.get_num_threads()
    costs = measure(shape, four_bit=four_bit, num_threads=2)
    assert set(costs) == possible_forms(shape, four_bit=four_bit)
    assert all(len(cost) == len(ROW_BUCKETS) and min(cost) >= 0 for cost in costs.values())
    assert torch.get_num_threads() == threads


@pytest.mark.parametrize(("weights", "dtype"), [("bf16", torch.bfloat16), ("float32", torch.float32)])
def test_a_fixed_mode_uses_that_form_for_every_row_count_without_measuring(weights, dtype, monkeypatch):
    monkeypatch.setattr(scheme_module, "measure", None)
    forms = WeightScheme(weights, CPU, batch_invariant=False).build(four_bit_matrix()).by_rows
    assert {id(form) for form in forms} == {id(forms[0])}
    assert isinstance(forms[0], DenseWeight)
    assert forms[0].weight.dtype == dtype


def test_a_shape_with_one_possible_form_is_not_measured(monkeypatch):
    monkeypatch.setattr(scheme_module, "measure", None)
    monkeypatch.setattr(scheme_module, "possible_forms", lambda shape, four_bit: {"float32"})
    scheme = WeightScheme("auto", CPU, batch_invariant=False)
    scheme.build(four_bit_matrix())
    assert set(scheme.choices.values()) == {("float32",) * len(ROW_BUCKETS)}


@pytest.mark.parametrize(
    ("has_tiles", "batch_invariant", "form"),
    [(True, False, "panels_amx"), (True, True, "panels"), (False, False, "panels"), (False, True, "panels")],
)
def test_where_our_kernels_run_they_are_the_only_form_and_take_tiles_unless_rows_must_not_matter(
    has_tiles, batch_invariant, form, monkeypatch
):
    monkeypatch.setattr(PanelWeight, "fits", lambda shape: True)
    monkeypatch.setattr(scheme_module, "has_tiles", lambda: has_tiles)
    monkeypatch.setattr(scheme_module, "BUILDERS", dict.fromkeys(scheme_module.BUILDERS, lambda *_: None))
    scheme = WeightScheme("auto", CPU, batch_invariant)
    scheme.build(four_bit_matrix())
    assert set(scheme.choices.values()) == {(form,) * len(ROW_BUCKETS)}
    assert scheme.uses_own_kernels


def test_forms_that_serve_no_row_count_are_not_built_and_a_shape_is_measured_once(monkeypatch, caplog):
    monkeypatch.setattr(PanelWeight, "fits", lambda shape: False)
    calls = []

    def measured(shape, four_bit, num_threads):
        calls.append((shape, four_bit))
        return {"float32": [50.0, 50, 50, 50, 1, 1, 1], "int8": [9.0] * 7, "int4": [1.0, 1, 1, 1, 50, 50, 50]}

    monkeypatch.setattr(scheme_module, "measure", measured)
    scheme = WeightScheme("auto", CPU, batch_invariant=False)
    with caplog.at_level(logging.INFO):
        forms = scheme.build(four_bit_matrix()).by_rows
        scheme.build(four_bit_matrix())
    assert [type(forms[rows]) for rows in (1, 8, 9, 16, 128)] == [
        Int4Weight,
        Int4Weight,
        DenseWeight,
        DenseWeight,
        DenseWeight,
    ]
    assert len({id(form) for form in forms}) == 2
    assert calls == [((32, 64), True)]
    assert "32 x 64" in caplog.text


def test_a_matrix_that_is_wider_than_four_bits_is_never_narrowed_to_them(monkeypatch):
    monkeypatch.setattr(PanelWeight, "fits", lambda shape: False)
    asked = []
    monkeypatch.setattr(
        scheme_module, "measure", lambda shape, four_bit, num_threads: asked.append(four_bit) or {"int8": FLAT}
    )
    scheme = WeightScheme("auto", CPU, batch_invariant=False)
    scheme.build(float_matrix())
    scheme.build(StoredMatrix.stack([four_bit_matrix(), float_matrix()]))
    assert asked == [False, False]


@pytest.mark.skipif(not PanelWeight.fits((32, 32)), reason="needs a processor with AVX2")
def test_a_mixed_stack_keeps_each_part_at_its_own_width():
    """Files of "Q4_K_M" have values of six bits beside queries and keys of four."""
    wide, narrow = float_matrix(), four_bit_matrix(64)
    mixed = PanelWeight.of_matrix(StoredMatrix.stack([narrow, wide, narrow]))
    assert mixed.num_bytes == sum(PanelWeight.of_matrix(part).num_bytes for part in (narrow, wide, narrow))
    opened = torch.cat([part.to_dtype(torch.float32) for part in (narrow, wide, narrow)])
    x = torch.randn(5, 64)
    expected = x @ opened.T
    for rows in (slice(0, 64), slice(64, 96), slice(96, 160)):
        part = expected[:, rows]
        assert torch.linalg.norm(mixed(x)[:, rows] - part) < 0.02 * torch.linalg.norm(part)


@pytest.mark.skipif(not PanelWeight.fits((32, 32)), reason="needs a processor with AVX2")
def test_a_token_reads_at_most_five_percent_more_than_a_q4_k_m_file_holds(monkeypatch):
    """Matrices in the proportions of Qwen2.5-1.5B: half of the layers have values and down projections of six bits."""

    def stored(type_name: str, num_outputs: int, num_inputs: int = 256) -> StoredMatrix:
        width = num_inputs // 256 * {"Q4_K": 144, "Q6_K": 210}[type_name]
        return StoredMatrix.from_blocks(
            type_name, torch.randint(0, 60, (num_outputs, width), dtype=torch.uint8), (num_outputs, num_inputs)
        )

    matrices = [stored("Q6_K", 3584)]
    for wide in ("Q4_K", "Q6_K"):
        heads = [stored("Q4_K", 256), stored("Q4_K", 32), stored(wide, 32)]
        matrices += [StoredMatrix.stack(heads), stored("Q4_K", 256), stored("Q4_K", 3072), stored(wide, 256, 1536)] * 2
    monkeypatch.setattr(scheme_module, "measure", lambda *key: {"panels": FLAT})
    scheme = WeightScheme("auto", CPU, batch_invariant=False)
    read = sum(scheme.build(matrix).by_rows[1].num_bytes for matrix in matrices)
    assert read <= 1.05 * sum(matrix.num_bytes for matrix in matrices)


def test_batch_invariance_takes_one_form_whose_rows_do_not_depend_on_each_other(monkeypatch):
    monkeypatch.setattr(PanelWeight, "fits", lambda shape: False)
    monkeypatch.setattr(
        scheme_module,
        "measure",
        lambda shape, four_bit, num_threads: {"float32": [1.0] * 7, "int8": FLAT, "int4": [20.0] * 7},
    )
    scheme = WeightScheme("auto", CPU, batch_invariant=True)
    scheme.build(four_bit_matrix())
    assert set(scheme.choices.values()) == {("int8",) * len(ROW_BUCKETS)}


def without_onednn(matrix, device):
    raise RuntimeError("Unimplemented as onednn is not available.")


def without_operator(matrix, device):
    return torch.ops.aten.an_operator_of_another_torch


def test_a_form_that_this_torch_cannot_build_is_not_chosen(monkeypatch, caplog):
    """Torch for Macs has no oneDNN, but `auto` tried its product, so that no model could load."""
    monkeypatch.setattr(PanelWeight, "fits", lambda shape: False)
    monkeypatch.setattr(Int8PackedWeight, "is_exact", lambda: True)
    monkeypatch.setitem(scheme_module.BUILDERS, "int8_packed", without_onednn)
    monkeypatch.setitem(scheme_module.BUILDERS, "int4", without_operator)
    scheme = WeightScheme("auto", CPU, batch_invariant=False)
    scheme.build(four_bit_matrix())
    (names,) = scheme.choices.values()
    assert set(names) <= {"int8", "bf16", "float32"}
    assert "weights are not held as int8_packed: Unimplemented as onednn is not available." in caplog.text
    assert "weights are not held as int4: '_OpNamespace' 'aten' object has no attribute" in caplog.text


def test_where_no_integer_form_can_be_built_weights_are_floats(monkeypatch):
    monkeypatch.setattr(PanelWeight, "fits", lambda shape: False)
    for name in ("int8", "int8_packed", "int4"):
        monkeypatch.setitem(scheme_module.BUILDERS, name, without_onednn)
    assert set(measure((32, 64), True, 1)) == {"bf16", "float32"}
    with pytest.raises(ModelLoadError, match="batch_invariant needs weights of four or eight bits"):
        WeightScheme("auto", CPU, batch_invariant=True).build(four_bit_matrix())


def test_a_form_that_is_built_but_cannot_multiply_is_not_chosen(monkeypatch):
    monkeypatch.setattr(PanelWeight, "fits", lambda shape: False)

    class Broken(DenseWeight):
        def __call__(self, x):
            raise NotImplementedError("no kernel for this processor")

    monkeypatch.setitem(scheme_module.BUILDERS, "bf16", lambda matrix, device: Broken(matrix.to_dtype(torch.bfloat16)))
    assert "bf16" not in measure((32, 64), False, 1)


def test_own_kernels_are_used_only_if_torch_computes_no_product():
    scheme = WeightScheme("auto", CPU, batch_invariant=False)
    assert not scheme.uses_own_kernels
    scheme.choices[(32, 64), True] = ("panels",) * len(ROW_BUCKETS)
    scheme.choices[(32, 64), False] = ("panels",) * len(ROW_BUCKETS)
    assert scheme.uses_own_kernels
    scheme.choices[(64, 64), False] = ("panels",) * (len(ROW_BUCKETS) - 1) + ("bf16",)
    assert not scheme.uses_own_kernels


@pytest.mark.parametrize("four_bit", [True, False])
def test_products_with_one_input_scale_per_row_are_tried_only_without_our_kernel(four_bit, monkeypatch):
    coarse = {"int8", "int8_packed"}
    monkeypatch.setattr(PanelWeight, "fits", lambda shape: True)
    assert not possible_forms((96, 64), four_bit) & coarse
    monkeypatch.setattr(PanelWeight, "fits", lambda shape: False)
    monkeypatch.setattr(Int8PackedWeight, "is_exact", lambda: True)
    assert possible_forms((96, 64), four_bit) >= coarse


@pytest.mark.parametrize("features", [{"ssse3", "avx2"}, {"ssse3", "avx2", "avx512f", "avx512bw"}])
def test_products_whose_sums_overflow_are_not_tried(features, monkeypatch):
    """Processors without VNNI add two products of bytes in 16 bits: an error of half the output's spread."""
    monkeypatch.setattr(PanelWeight, "fits", lambda shape: False)
    monkeypatch.setattr(integer_vectors, "_has", lambda *names: set(names) <= features)
    tried = possible_forms((96, 64), False)
    features = features | {"avx512vnni"}
    tried_with_vnni = possible_forms((96, 64), False)
    assert (tried, tried_with_vnni) == ({"int8", "bf16", "float32"}, {"int8", "int8_packed", "bf16", "float32"})


def test_an_unknown_mode_is_refused_with_the_known_ones():
    with pytest.raises(ModelLoadError, match="weights must be one of auto, bf16, float32, int8, got 'fp8'"):
        WeightScheme("fp8", CPU, batch_invariant=False)


def test_eight_bit_weights_are_refused_on_a_cpu_with_the_remedy():
    with pytest.raises(ModelLoadError, match="weights 'int8' need a CUDA device: use 'auto'"):
        WeightScheme("int8", CPU, batch_invariant=False)


@pytest.mark.parametrize(("batch_invariant", "name"), [(False, "byte"), (True, "byte_invariant")])
def test_eight_bit_weights_are_one_form_for_all_rows_beside_bfloat16(batch_invariant, name, monkeypatch):
    """The output has its own matrix even if the model ties it to the embedding."""
    monkeypatch.setitem(scheme_module.BUILDERS, name, lambda matrix, device: (name, matrix))
    scheme = WeightScheme("int8", torch.device("cuda"), batch_invariant)
    matrix = float_matrix()
    with monkeypatch.context() as patch:
        patch.setattr(scheme_module, "RowForms", lambda forms, num_outputs: (set(forms), num_outputs))
        assert scheme.build(matrix) == ({(name, matrix)}, 32)
    assert not scheme.is_fixed
    assert scheme.table_dtype == scheme.activation_dtype == torch.bfloat16


def test_stacked_parts_of_different_types_open_as_one_matrix():
    upper, lower = float_matrix(), four_bit_matrix()
    stacked = StoredMatrix.stack([upper, lower])
    assert stacked.shape == (64, 64)
    assert torch.equal(
        stacked.to_dtype(torch.float32), torch.cat((upper.to_dtype(torch.float32), lower.to_dtype(torch.float32)))
    )


def test_reordered_rows_open_in_the_new_order():
    matrix, order = four_bit_matrix(), torch.randperm(32)
    assert torch.equal(matrix.take_rows(order).to_dtype(torch.float32), matrix.to_dtype(torch.float32)[order])
