"""Reports compute percentiles correctly and show the configurations of the peers."""

from __future__ import annotations

import pytest

from bench.measures.agents.peer_settings import configurations
from bench.report import percentile
from bench.running.contenders import POSTGRES, SQLITE, TUSKPOINT, Contender, tuned


@pytest.mark.parametrize(
    ("share", "value"), [(0.5, 500), (0.99, 990), (0.999, 999), (1.0, 1000), (0.0, 1)]
)
def test_a_percentile_is_a_value_that_was_measured(share: float, value: float) -> None:
    assert percentile(range(1000, 0, -1), share) == value


def test_the_high_percentiles_of_few_values_are_the_greatest() -> None:
    assert percentile([3.0, 1.0, 2.0], 0.999) == 3.0


def test_no_values_have_no_percentile() -> None:
    with pytest.raises(ValueError, match="no values"):
        percentile([], 0.5)


def test_the_best_configurations_follow_the_defaults_and_are_among_those_measured() -> None:
    field = [Contender(TUSKPOINT, "t"), Contender(SQLITE, "s"), Contender(POSTGRES, "p")]
    best = [contender for contender in tuned(field) if contender.setting]
    assert [contender for contender in tuned(field) if not contender.setting] == field
    assert [contender.name for contender in best] == [SQLITE, POSTGRES]
    measured = [configured for contender in field for configured in configurations(contender)]
    assert set(best) <= set(measured)
