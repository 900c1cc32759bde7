"""Tables line up, and sizes have three digits."""

import pytest

from distarray.tables import format_nbytes, format_seconds, format_table, html_table


@pytest.mark.parametrize(
    ("n", "text"),
    [
        (0, "0"),
        (1, "1 B"),
        (1023, "1023 B"),
        (1024, "1 KiB"),
        (1536, "1.5 KiB"),
        (1023 << 10, "1023 KiB"),
        ((1 << 20) - 1, "1 MiB"),
        (100 << 20, "100 MiB"),
        (5 << 40, "5 TiB"),
        (5 << 60, "5120 PiB"),
    ],
)
def test_sizes_are_read_in_the_largest_unit(n, text):
    assert format_nbytes(n) == text


@pytest.mark.parametrize(("seconds", "text"), [(1.5, "1.5 s"), (0.001, "1 ms"), (2e-6, "2 us")])
def test_durations_are_read_in_the_largest_unit(seconds, text):
    assert format_seconds(seconds) == text


def test_columns_line_up():
    lines = format_table(["a", "long title", "n"], [["xyz", "b", "1"], ["", "c", "100"]], right=[2]).splitlines()
    assert lines == ["a    long title    n", "xyz  b             1", "     c           100"]


def test_html_is_escaped():
    assert '">&lt;b&gt;</td>' in html_table(["x"], [["<b>"]])
