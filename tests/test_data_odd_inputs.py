"""Every row of docs/odd-inputs.md, walked."""

import re

import pytest
import test_data_odd_attributes  # noqa: F401  for its cases
import test_data_odd_tables  # noqa: F401  for its cases
from test_data_odd_columns import CASES, PAGE

LISTED = re.findall(r"^\| ([a-z0-9-]+) \|", PAGE.read_text(), re.MULTILINE)[1:]  # the first is the header


@pytest.mark.parametrize("name", LISTED)
def test_an_odd_input_gets_the_answer_on_the_page(name: str) -> None:
    assert name in CASES, f"docs/odd-inputs.md lists {name!r}, and no test walks it"
    CASES[name]()


def test_every_odd_input_is_on_the_page_once() -> None:
    assert sorted(CASES) == sorted(LISTED)
