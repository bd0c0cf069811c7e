"""The rules of thumb, exactly as stated."""

from __future__ import annotations

import pytest

from tuneplan.economics import thumb

GB = 1e9


def test_eight_bytes_a_parameter() -> None:
    # 7e9 -> 14 + 14 + 28 = 56 GB
    rule = thumb.eight_bytes_per_parameter(7e9)
    assert dict(rule.terms) == {"weights": 14 * GB, "gradients": 14 * GB, "optimizer": 28 * GB}
    assert rule.total_bytes == 56 * GB


def test_activations_and_the_sum() -> None:
    # 32 x 1024 x 4096 x 32 x 2 = 8.6 GB; with 56 GB about 65 GB
    rule = thumb.activations(batch=32, length=1024, hidden_size=4096, num_layers=32)
    assert rule.total_bytes == 32 * 1024 * 4096 * 32 * 2
    assert rule.total_bytes / GB == pytest.approx(8.6, abs=0.05)
    total = rule.total_bytes + thumb.eight_bytes_per_parameter(7e9).total_bytes
    assert total / GB == pytest.approx(65, abs=0.5)


@pytest.mark.parametrize(("parameters", "gb"), [(7e9, 157.5), (13e9, 292.5), (70e9, 1575.0)])
def test_eighteen_bytes_a_parameter(parameters, gb) -> None:
    rule = thumb.eighteen_bytes_per_parameter(parameters)
    assert rule.total_bytes == pytest.approx(gb * GB)
    assert sum(size for _, size in rule.terms) == 18 * parameters


def test_a_four_bit_base() -> None:
    assert thumb.qlora_base(7e9).total_bytes == pytest.approx(4.2 * GB)


def test_seventy_billion_in_fp16() -> None:
    # 140 + 140 + 560 = 840 GB
    rule = thumb.four_times_weights_for_optimizer(70e9)
    assert [size / GB for _, size in rule.terms] == [140, 140, 560]
    assert rule.total_bytes == 840 * GB


@pytest.mark.parametrize(("bits", "gb"), [(8, 70), (4, 35), (16, 140)])
def test_quantised_weights(bits, gb) -> None:
    assert thumb.quantized_weights(70e9, bits=bits).total_bytes == gb * GB


@pytest.mark.parametrize(
    ("parameters", "qlora", "lora", "full", "cards"),
    [
        (7e9, (10, 10), (20, 20), (140, 160), (1, 1, 2)),
        (13e9, (16, 16), (35, 35), (260, 300), (1, 1, 4)),
        (70e9, (48, 48), (160, 180), (1300, 1300), (1, 4, 16)),
    ],
)
def test_the_table(parameters, qlora, lora, full, cards) -> None:
    row = thumb.table_row(parameters)
    assert row.parameters == parameters
    assert tuple(size / GB for size in row.qlora_bytes) == qlora
    assert tuple(size / GB for size in row.lora_bytes) == lora
    assert tuple(size / GB for size in row.full_bytes) == full
    assert (row.qlora_cards, row.lora_cards, row.full_cards) == cards


@pytest.mark.parametrize(("parameters", "nearest"), [(8e9, 7e9), (14e9, 13e9), (32e9, 70e9)])
def test_the_table_gives_the_nearest_line_by_ratio(parameters, nearest) -> None:
    assert thumb.table_row(parameters).parameters == nearest


def test_the_rule_for_experts_is_shown_as_wrong() -> None:
    rule = thumb.mixture_of_experts_lora(total_parameters=235e9, active_parameters=22e9)
    assert rule.total_bytes == 30 * GB
    # 235e9 x 2 B = 470 GB; 235e9 x 0.5625 B = 132 GB
    assert "470 GB" in str(rule.why_different)
    assert "132 GB" in str(rule.why_different)


def test_compute_of_a_mixture_of_experts_job() -> None:
    # 6 x 3.7e9 active x 10,000 x 1,024 tokens = 2.27e17 = 0.0026 PFLOP/s-day
    flop = thumb.training_flop(active_parameters=3.7e9, tokens=10_000 * 1024)
    assert thumb.petaflop_s_days(flop) == pytest.approx(0.0026, abs=0.00005)


def test_every_rule_says_why_it_is_off() -> None:
    rules = [
        thumb.eight_bytes_per_parameter(7e9),
        thumb.eighteen_bytes_per_parameter(7e9),
        thumb.four_times_weights_for_optimizer(7e9),
        thumb.qlora_base(7e9),
        thumb.quantized_weights(7e9, bits=4),
        thumb.activations(batch=1, length=1, hidden_size=1, num_layers=1),
        thumb.mixture_of_experts_lora(total_parameters=235e9, active_parameters=22e9),
    ]
    assert len({rule.code for rule in rules}) == len(rules)
    for rule in rules:
        assert str(rule.statement)
        assert str(rule.why_different)
