from __future__ import annotations

import pytest

from turnwire.bench.metrics.statistics import Interval
from turnwire.bench.soak import Sample, flat, growth, verdict


def _samples(per_rollout: float, *, noise: int = 0, warm: int = 0) -> list[Sample]:
    """A hundred samples, ten rollouts apart, after a warm-up that takes so many bytes."""
    samples: list[Sample] = []
    for number in range(100):
        filled = min(number, 20) * warm // 20
        jitter = noise if number % 3 else -noise
        samples.append(Sample(float(number), number * 10, 10**8 + filled + jitter + int(number * 10 * per_rollout)))
    return samples


def test_growth_is_the_bytes_that_each_rollout_leaves() -> None:
    grown = growth(_samples(1_000))
    assert (grown.value, grown.low, grown.high) == (1_000, 1_000, 1_000)
    assert not flat(grown)


def test_noise_of_the_allocator_is_no_growth() -> None:
    grown = growth(_samples(0, noise=40_000))
    assert abs(grown.value) < 64
    assert flat(grown)


def test_growth_is_seen_through_noise() -> None:
    grown = growth(_samples(500, noise=20_000))
    assert grown.low > 64
    assert not flat(grown)


def test_what_fills_during_the_warm_up_is_no_growth() -> None:
    assert flat(growth(_samples(0, warm=50_000_000)))
    assert growth(_samples(0, warm=50_000_000), warm_up=0.0).high > 1_000


def test_a_single_step_is_not_taken_for_growth() -> None:
    samples = _samples(0)
    stepped = [Sample(s.seconds, s.rollouts, s.resident + (1_000_000 if s.rollouts > 900 else 0)) for s in samples]
    assert flat(growth(stepped))


def test_memory_that_shrinks_is_flat() -> None:
    assert flat(growth(_samples(-300)))


@pytest.mark.parametrize(
    ("grown", "expected"),
    [
        pytest.param(Interval(200.0, -10.0, 400.0), True, id="nothing is among what it may be"),
        pytest.param(Interval(20.0, 10.0, 30.0), True, id="less than could be kept of a rollout"),
        pytest.param(Interval(110.0, 6.0, 223.0), True, id="more than that, but not for sure"),
        pytest.param(Interval(110.0, 65.0, 223.0), False, id="more than that for sure"),
    ],
)
def test_flat_is_what_leaves_nothing_or_next_to_nothing(grown: Interval, expected: bool) -> None:
    assert flat(grown) is expected


def test_too_few_samples_say_nothing() -> None:
    with pytest.raises(ValueError, match="expected at least 8 samples after the warm-up, found 5"):
        growth(_samples(0)[:10])


@pytest.mark.parametrize(
    ("is_flat", "words"), [pytest.param(True, "stays flat", id="flat"), pytest.param(False, "GROWS", id="grows")]
)
def test_the_verdict_says_what_each_rollout_leaves(is_flat: bool, words: str) -> None:
    said = verdict(
        {
            "growth_bytes_per_rollout": [1234.0, 1000.0, 1500.0],
            "flat": is_flat,
            "failed": 2,
            "samples": [[1.0, 10, 1024**2], [60.0, 5000, 100 * 1024**2]],
        }
    )
    assert f"Memory {words}: 1,234 bytes a rollout (1,000 to 1,500) over 5,000 rollouts in 60 s, 2 of them" in said
    assert "100 MB at the end" in said
