"""Every output has the timestamp of the record that it is of."""

import pytest

from weir.runtime.keyed import spread_stamps


@pytest.mark.parametrize(
    ("ends", "stamps"),
    [
        ([1, 2, 3], [10, None, 30]),
        ([0, 2, 3], [None, None, 30]),
        ([2, 2, 3], [10, 10, 30]),
        ([0, 0, 0], []),
    ],
)
def test_outputs_have_the_timestamps_of_their_inputs(ends, stamps):
    given = [10, None, 30]
    found = spread_stamps(given, ends)
    assert found == stamps
    assert found is not given
    assert given == [10, None, 30]


def test_records_without_timestamps_give_outputs_without():
    assert spread_stamps(None, None) is None
    assert spread_stamps([], []) == []


def test_an_end_is_missed():
    with pytest.raises(ValueError, match="zip"):
        spread_stamps([10, 20], [1])
