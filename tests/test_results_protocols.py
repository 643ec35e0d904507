"""The results page: defaults beside the peer that validation chose, under both protocols, and which aims are met."""

import copy

import numpy as np
import pytest
from test_results_page import made_up, made_up_stranger

from efattn.comparing import Comparison
from efattn.experiments.aims import AIMS
from efattn.experiments.page import aims, markdown, protocols
from efattn.experiments.page.results import Results, efa, named
from efattn.experiments.presets import BEYOND, SETTINGS
from efattn.experiments.settings import REFITTED, TRAIN, Setting
from efattn.experiments.strangers.tables import STRANGERS


def shifted(record, entry, by: float, **more):
    """The same run of another model, every group's loss changed by so much."""
    found = {**copy.deepcopy(record), "model": entry.model, "preset": entry.preset, "value": record["value"] + by}
    found["groups"]["value"] = (np.array(record["groups"]["value"]) + by).tolist()
    return {**found, **more}


def cells_of(results: Results, setting: Setting, protocol: str) -> list[str]:
    text = markdown.page("", list(protocols.blocks(results))).replace("\N{NO-BREAK SPACE}", " ")
    (row,) = (line for line in text.splitlines() if line.startswith(f"| {named(setting)} | {protocol} |"))
    return [cell.strip() for cell in row.strip("|").split(" | ")]


def test_the_peer_that_validation_chose_is_the_one_to_compare_with_under_both_protocols():
    setting = BEYOND[2]
    one, two = (e for e in setting.entries if e.model in ("item mean", "low-rank Gaussian"))
    first = {**made_up(setting, one, 0), "held_out": {"value": 0.5}}
    records = [
        first,
        shifted(first, two, -0.5, held_out={"value": 0.75}),
        shifted(first, efa(setting, "defaults"), 0.25),
    ]
    records += [{**record, "protocol": REFITTED} for record in records]
    for record in records[3:]:
        del record["held_out"]
    for protocol in (TRAIN, REFITTED):
        cells = cells_of(Results(records, {}), setting, protocol)
        assert cells[2] == "item mean", "although the other is lower on test rows"
        assert cells[-2:] == ["+0.250 ± 0.000", "behind"]
    del records[1]["held_out"]
    cells = cells_of(Results(records, {}), setting, TRAIN)
    assert cells[2] == r"low-rank Gaussian\*", "without a score on validation rows, peers get the test rows"
    assert cells[-2:] == ["+0.750 ± 0.000", "behind"]


def test_peers_are_chosen_by_the_seeds_that_all_have():
    """Another seed has other rows, and what is easy there says nothing."""
    setting = BEYOND[2]
    one, two = (e for e in setting.entries if e.model in ("item mean", "low-rank Gaussian"))
    first = {**made_up(setting, one, 0), "held_out": {"value": 0.5}}
    records = [first, shifted(first, two, -0.5, held_out={"value": 0.75})]
    records.append({**shifted(made_up(setting, one, 1), two, -0.5), "held_out": {"value": 0.125}})
    assert cells_of(Results(records, {}), setting, TRAIN)[2] == "item mean"


def test_a_peer_that_is_told_more_is_none_to_compare_with():
    setting = BEYOND[0]
    more, less = (next(e for e in setting.entries if e.competes and bool(e.sees) is told) for told in (True, False))
    hidden, known = (e for e in setting.entries if e.preset == "defaults" and e.model.startswith("EFA"))
    first = {**made_up(setting, more, 0), "held_out": {"value": 0.5}}
    records = [first, shifted(first, less, 0.5, held_out={"value": 0.75})]
    records += [shifted(first, hidden, 0.25), shifted(first, known, 0.25)]
    found = Results(records, {})
    against = [found.summary_of(setting, entry)["against"] for entry in (hidden, known)]
    assert [one["model"] for one in against] == [less.model, more.model]
    assert [one["standing"] for one in against] == ["ahead", "behind"]


def every_run() -> list:
    return [made_up(s, entry, 0, protocol) for s in SETTINGS for entry in s.entries for protocol in entry.protocols]


def test_shares_the_network_alone_and_covers_are_shown():
    section = markdown.page("", list(protocols.blocks(Results(every_run(), {}))))
    assert section.count("| network 75 %, LinearModel 25 % |") == sum(1 for _ in protocols.every())
    values = sum("value" in setting.roles for setting, _, _ in protocols.every())
    assert section.count("| 0.510 | 0.810 | 0.910 |") == values
    assert "Train only, of " in section
    assert "Refitted, of " in section


# ---- aims


@pytest.mark.parametrize("aim", AIMS, ids=str)
def test_an_aim_is_met_as_the_records_say(aim):
    setting = next(s for s in SETTINGS if s.title == aim.setting)
    entry = next(e for e in setting.entries if (e.model, e.preset) == (aim.model, "defaults"))
    peer = next(e for e in setting.entries if e.competes)
    for good in (True, False):
        run = {**made_up(setting, entry, 0, aim.protocol), "value": (aim.most or 1.0) + (-0.1 if good else 0.1)}
        if aim.cover:
            run["coverage"]["0.9"]["all"] = 0.9 if good else 0.86
        theirs = shifted(run, peer, 0.1 if good else -0.1)
        assert aims._row(Results([run, theirs], {}), aim)[-1].text == ("met" if good else "missed")


def test_aims_are_not_met_by_what_has_not_run():
    section = markdown.page("", list(aims.blocks(Results([], {}))))
    assert f"0 met, 0 missed, {len(AIMS) + 7} not run yet." in section
    one = STRANGERS[0]
    record = made_up_stranger(one, 0.5)
    strangers = {one.name: (record, Comparison.from_json(record))}
    section = markdown.page("", list(aims.blocks(Results(every_run(), {}, strangers))))
    assert "not run yet" not in section
    assert "| ahead on at least half | 1 of 1 | – | **met** |" in section  # noqa: RUF001
