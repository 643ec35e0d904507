"""The results page: made from files only, shows what is there, names what is missing, needs nothing from outside."""

import base64
import copy
import html
import json
import re
from html.parser import HTMLParser
from zlib import crc32

import numpy as np
import pytest

from efattn.comparing import Comparison
from efattn.comparing.comparison import write
from efattn.experiments import page, runner, theory
from efattn.experiments.page import leading_table, markdown, sections, theorems
from efattn.experiments.page.blocks import MOST_BYTES, Heading, Text, listing, table
from efattn.experiments.page.html import page as as_html
from efattn.experiments.page.numbers import MINUS
from efattn.experiments.page.results import Results, efa, named, papers
from efattn.experiments.presets import EXPERIMENTS, OF_THE_PAPER, SETTINGS
from efattn.experiments.presets.groceries import REPRESENTATIVE
from efattn.experiments.settings import FLOOR, REFITTED, TRAIN, Setting
from efattn.experiments.strangers.tables import STRANGERS
from efattn.inference.embeddings import principal

PIXEL = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)
EVIL = "<script>alert(1)</script> $x_1 | `a` *b*"


def made_up(setting: Setting, entry, seed: int, protocol: str = TRAIN):
    """A record as the runner writes them, with numbers that mean nothing."""
    draw = np.random.default_rng(crc32(f"{setting.title} {entry.model} {seed}".encode()))
    value = entry.paper or (0.5 if entry.model == FLOOR else 1.0)
    groups = (value + 0.1 * draw.normal(size=8)).tolist()
    found = {"experiment": setting.experiment, "setting": setting.name, "model": entry.model, "preset": entry.preset}
    found |= {"seed": seed, "metric": setting.metric.name, "value": float(np.mean(groups)), "log_likelihood": -1.5}
    by_group = {
        "names": [f"2017-0{k}-01" for k in range(1, 9)],
        "rows": [2] * 8,
        "value": groups,
        "log_likelihood": groups,
    }
    found |= {"rows": 16, "groups": by_group, "seconds": 2.0, "protocol": protocol}
    if protocol == TRAIN:
        found["held_out"] = {"value": 1.0 + 0.1 * draw.random(), "log_likelihood": -1.0}
    if entry.preset == "defaults" and entry.model.startswith("EFA"):
        found |= {"shares": {"network": 0.75, "LinearModel": 0.25}, "alone": {"value": 1.25, "log_likelihood": -1.0}}
        if "value" in setting.roles:
            ends = {"items": [0.7, 0.95], "by_chance": [0.8, 0.94]}
            found["coverage"] = {f"{level}": {"all": level + 0.01, **ends} for level in (0.5, 0.8, 0.9)}
    found |= {"versions": {"efattn": "0", "torch": EVIL}, "device": EVIL, "epochs": 1, "parameters": {}}
    if setting.experiment == "recommending":
        names = ("ndcg@10", "recall@10", "mrr", "mass@10", "excess@10")
        found["lists"] = {**{name: [0.05, 0.01] for name in names}, "coverage@10": [0.3]}
    if setting.experiment == "ratings":
        found["mean_by_rating"] = [1.9, 2.0, 2.2]
    if setting.experiment == "cities":
        found["cities"] = {"city": [EVIL, "b", "c"], "state": ["A", "B", "C"], "error": [1.0, 2.0, 9.0]}
        found["cities"] |= {"latitude": [30.0, 40.0, 45.0], "longitude": [-120.0, -100.0, -80.0]}
    if setting.experiment == "instacart" and entry.preset != "peer":
        found["companions"] = {key: [EVIL, "b", "c"] for key in REPRESENTATIVE}
        if entry.model == "EFA" and entry.preset == "paper":
            weights = np.tril(np.ones((2, 3, 3))).tolist()
            found["attention"] = [{"items": [EVIL, "b", "c"], "weights": weights}] * 2
            vectors = draw.normal(size=(3, 2, 5, 4)).tolist()
            names = [EVIL, "b", "c", "d", "Asparagus"]
            found["vectors"] = {"items": names, **dict(zip(("query", "key", "value"), vectors, strict=True))}
    return found


THEORY = {
    "propositions": {
        "difference": 1e-15,
        "columns": {
            "proposition": [1],
            "model": ["items"],
            "context": ["past"],
            "intercept": [False],
            "rows": [9],
            "largest": [2.0],
            "difference": [1e-15],
        },
    },
    "excess": {
        "slope": -0.8,
        "floor": 0.5,
        "without_context": 0.9,
        "columns": {
            "groups": [64, 64, 256, 256],
            "seed": [0, 1, 0, 1],
            "excess": [0.3, 0.2, 0.1, -0.01],
            "norm": [1.0] * 4,
            "term": [9.0] * 4,
        },
    },
    "bound": {"columns": {"groups": [310], "layers": [2], "term": [812.5], "marginal_loss": [0.5], "vacuous": [True]}},
    "identifiability": {
        "columns": {
            key: [0.25]
            for key in (
                "data",
                "term",
                "quantity",
                "n",
                "dimensions",
                "r2",
                "r2_untrained",
                "r2_permuted",
            )
        }
        | {key: [0.5] for key in ("correlation", "correlation_untrained", "correlation_permuted")}
        | {"identified": [False], "reason": ["I fails"], "above_controls": [False]}
    },
    "diversity": {
        "columns": {
            key: [1] for key in ("data", "term", "diversity", "holds", "size", "rank", "points", "worst_of", "share")
        }
        | {"condition": [float("inf")]}
    },
}


def made_up_stranger(one, gap):
    """EFA ahead of its only peer by gap in every row."""

    def run(model, more):
        draw = np.random.default_rng(0).normal(size=10) + more
        terms = {
            "y": {"group": list(range(10)), "rows": [2.0] * 10, "sum": [*(2 * draw + 0.01 * more * np.arange(10))]}
        }
        shares = {"shares": {"y": {"network": 0.25, "LinearModel": 0.75}}} if model == "EFA" else {}
        return {"model": model, "fold": 0, "options": "", "seconds": 2.0, "terms": terms, **shares}

    about = {"context": one.context, "rows": 20, "groups": 10, "folds": 1, "seed": 0}
    found = Comparison(about, ("EFA", "LinearModel"), {}, [run("EFA", gap), run("LinearModel", 0.0)])
    return {**found.to_json(), "name": one.name, "kind": one.kind, "source": one.source, "seed": 0, "seconds": 2.0}


@pytest.fixture(scope="module")
def full(tmp_path_factory):
    """Everything has run, with two seeds; the page."""
    folder = tmp_path_factory.mktemp("results")
    for run in runner.planned(seeds=2):
        for setting, path in zip(run.settings, run.paths, strict=True):
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            record = made_up(setting, run.setting_and_entry[1], run.seed, run.protocol)
            (folder / path).write_text(json.dumps(record))
    (folder / "theory").mkdir()
    for name, part in THEORY.items():
        record = {"part": name, "seeds": [0, 1], "seconds": 1.0, **part}
        (folder / "theory" / f"{name}.json").write_text(json.dumps(record))
    (folder / "strangers").mkdir()
    for k, one in enumerate(STRANGERS):
        write(folder / "strangers" / f"{one.name}.json.gz", made_up_stranger(one, (k % 3 - 1) * 0.5))
    page.write(folder / "pages", folder)
    return folder / "pages"


@pytest.fixture(scope="module")
def empty(tmp_path_factory):
    folder = tmp_path_factory.mktemp("empty")
    page.write(folder / "pages", folder / "nothing")
    return folder / "pages"


class Reader(HTMLParser):
    """Tags, what they refer to, and the text; void elements and closing tags are counted."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.references, self.open = [], [], []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        self.references += [value for name, value in attributes if name in ("src", "href", "srcset", "action", "data")]
        if tag not in ("meta", "img", "br", "hr", "link"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


@pytest.mark.parametrize("which", ["full", "empty"])
def test_every_setting_has_a_row_and_a_section(which, request):
    text = (request.getfixturevalue(which) / "results.md").read_text()
    leading_rows, others = text.split("## Synthetic")[0].split("## Defaults beside the best peer")
    for setting in SETTINGS:
        assert (f"| {named(setting)} |" in leading_rows) == (setting in OF_THE_PAPER)
        for protocol in efa(setting, "defaults").protocols:
            assert f"| {named(setting)} | {protocol} |" in others
        assert f"### {named(setting)}: {setting.metric.name}" in text


@pytest.mark.parametrize("which", ["full", "empty"])
def test_the_page_refers_to_nothing_outside_itself(which, request):
    text = (request.getfixturevalue(which) / "results.html").read_text()
    read = Reader(text)
    assert not read.open, "every tag is closed"
    assert "script" not in read.tags
    assert "link" not in read.tags
    ids = set(re.findall(r' id="([^"]+)"', text))
    for reference in read.references:
        assert reference.startswith(("#", "data:image/png;base64,")), reference[:80]
        assert not reference.startswith("#") or reference[1:] in ids
    assert "@import" not in text
    assert not re.search(r"url\s*\(|https?://", text)


def test_names_from_files_are_escaped(full):
    page_, text = (full / "results.html").read_text(), (full / "results.md").read_text()
    assert "<script" not in page_
    assert "<script" not in text
    assert html.escape("<script>alert(1)</script>") in page_
    cells = [line for line in text.splitlines() if "alert(1)" in line]
    assert cells
    for line in cells:
        assert len(re.findall(r"(?<!\\)\|", line)) in (6, 7, 12), "a name adds no column"


def test_pictures_are_small_and_each_is_on_both_pages(full):
    text, read = (full / "results.md").read_text(), Reader((full / "results.html").read_text())
    files = sorted((full / "figures").iterdir())
    assert len(files) == read.tags.count("img") == 12
    for file in files:
        assert file.read_bytes().startswith(b"\x89PNG")
        assert file.stat().st_size <= MOST_BYTES
        assert f"](figures/{file.name})" in text
    assert set(re.findall(r"figures/([\w-]+\.png)", text)) == {file.name for file in files}


def test_nothing_is_missing_where_all_has_run(full):
    text = (full / "results.md").read_text()
    assert "not run yet" not in text.lower()
    for setting in SETTINGS:
        section = text.split(f"### {named(setting)}: ")[1].split("\n#")[0]
        for entry in setting.entries:
            assert re.search(rf"^\| {re.escape(entry.model)} \| ", section, re.M), (setting.title, entry.model)


def test_missing_runs_are_named(empty):
    text = (empty / "results.md").read_text()
    for setting in SETTINGS:
        section = text.split(f"### {named(setting)}: ")[1].split("\n#")[0]
        (missing,) = (line for line in section.splitlines() if line.startswith("Not run yet: "))
        for entry in setting.entries:
            assert f"{entry.model} ({entry.preset})" in missing
            assert (f"{entry.model} ({entry.preset}, refitted)" in missing) == (REFITTED in entry.protocols)
    for part in theory.PARTS:
        assert part.__name__ in text.split("## Theory")[1]
    assert "Nothing has run yet." in text


def test_the_paper_s_numbers_are_there_before_anything_runs(empty):
    text = (empty / "results.md").read_text()
    for setting in SETTINGS:
        for entry in setting.entries:
            if entry.paper is not None:
                assert f"| {entry.model} | {entry.preset} | {entry.paper:.3f} | not run yet |" in text


@pytest.mark.parametrize("experiment", EXPERIMENTS)
def test_one_run_of_each_setting_makes_a_page(experiment, monkeypatch):
    """The pictures are drawn, and not made into files, which takes longer."""
    monkeypatch.setattr("matplotlib.figure.Figure.savefig", lambda self, file, **how: file.write(PIXEL))
    chosen = [setting for setting in SETTINGS if setting.experiment == experiment]
    for which in (0, -1):
        records = [made_up(setting, setting.entries[which], 4) for setting in chosen]
        blocks = page.page(Results(records, {}))
        assert len(markdown.page("", blocks)) > 5000


# ---- what the leading table says


def results(gap: float, spread: float = 0.0) -> tuple[Results, Setting]:
    """EFA's defaults are above the only peer by this much, which differs from group to group by so much."""
    setting = SETTINGS[0]
    peer = next(e for e in setting.entries if e.preset == "peer" and e.model != FLOOR)
    one = made_up(setting, peer, 0)
    entry = efa(setting, "defaults")
    two = {**copy.deepcopy(one), "model": entry.model, "preset": entry.preset}
    differences = gap + spread * np.tile([1, -1], 4)
    two["groups"]["value"] = (np.array(one["groups"]["value"]) + differences).tolist()
    two["value"] = one["value"] + gap
    return Results([one, two], {}), setting


@pytest.mark.parametrize(
    ("gap", "spread", "kind"),
    [(0.2, 0.1, "behind the best peer"), (-0.2, 0.1, "ahead of it"), (0.01, 0.1, "level with it")],
)
def test_it_is_said_where_efa_is_behind(gap, spread, kind):
    found, setting = results(gap, spread)
    (told,) = (line for line in leading_table._standing(found) if line.startswith("EFA, defaults"))
    assert f"{kind} in {named(setting)}" in told
    assert told.count("in no setting") == 2


def test_the_lowest_of_our_runs_is_bold_and_the_floor_never_is(full):
    text = (full / "results.md").read_text()
    for line in text.splitlines():
        assert not (line.startswith(f"| {FLOOR}") and "**" in line)
    found, setting = results(-0.2)
    row = leading_table._row(found, setting)
    bold = [k for k, cell in enumerate(row) if getattr(cell, "bold", False)]
    assert bold == [leading_table.HEAD.index("EFA, defaults")]
    row = leading_table._row(results(0.2)[0], setting)
    assert [k for k, cell in enumerate(row) if getattr(cell, "bold", False)] == [leading_table.HEAD.index("best peer")]


def test_numbers_far_from_the_paper_s_are_pointed_out():
    setting = SETTINGS[0]
    for share, told in (
        (1.01, "Within 2 % of the paper's numbers: EFA."),
        (1.1, "EFA (+10.0 %)"),
        (0.9, f"EFA ({MINUS}10.0 %)"),
    ):
        entry = papers(setting, "EFA")
        record = {**made_up(setting, entry, 0), "value": entry.paper * share}
        texts = [b.text for b in sections._table(Results([record], {}), setting) if isinstance(b, Text)]
        assert any(told in text for text in texts), texts


def test_where_splits_move_means_are_over_the_seeds_that_all_have():
    setting = next(s for s in SETTINGS if s.moving)
    one, two = papers(setting, "latent factors"), papers(setting, "EFA")
    for seeds in ((0, 1), (1,)):
        found = [made_up(setting, one, 0), made_up(setting, one, 1), *(made_up(setting, two, seed) for seed in seeds)]
        results = Results(found, {})
        mine, theirs = results.on_shared_seeds(setting, [one, two])
        assert mine["seeds"] == theirs["seeds"] == len(seeds)
        assert mine["mean"] == pytest.approx(np.mean([made_up(setting, one, seed)["value"] for seed in seeds]))
        told = [line for line in leading_table._standing(results) if "Splits move" in line]
        assert len(told) == (len(seeds) == 1)


# ---- strangers


def test_every_stranger_is_in_the_table_and_counted_once(full):
    section = (full / "results.md").read_text().split("## Strangers")[1].split("\n## ")[0]
    for one in STRANGERS:
        assert f"| {one.name} ({one.source}) |" in section
    third = len(STRANGERS) // 3
    ahead, level, behind = len(range(2, len(STRANGERS), 3)), len(range(1, len(STRANGERS), 3)), third + 1
    assert f"ahead of the best peer on {ahead}, level on {level} and behind on {behind}." in section
    assert "generous to peers" in section
    assert "25%" in section


# ---- theory


def theory_section(**parts) -> str:
    text = markdown.page("", list(theorems.blocks(Results([], {**THEORY, **parts}))))
    return text.replace("\N{NO-BREAK SPACE}", " ")


def test_identified_is_what_the_diversity_check_says_and_controls_are_weighed():
    text = theory_section()
    assert "| no: I fails |" in text
    assert "No better than a control, so that the agreement says nothing: 0.25 of 0.25 (0.25)." in text
    columns = {**THEORY["identifiability"]["columns"], "identified": [True], "reason": ["I and II hold"]}
    text = theory_section(identifiability={"columns": columns | {"above_controls": [True]}})
    assert "| yes: I and II hold |" in text
    assert "Every R² is above those of its controls." in text


def test_a_vacuous_bound_is_called_so():
    text = theory_section()
    assert "The bound is vacuous: its term 812.5 is larger than 0.5, the loss of predicting the mean" in text
    assert "The bound itself is vacuous at every F: its term, 9 to 9, is larger than that" in text
    columns = {**THEORY["excess"]["columns"], "term": [9.0, 9.0, 0.5, 0.5]}
    text = theory_section(excess={**THEORY["excess"], "columns": columns})
    assert "The bound itself is vacuous up to F = 64:" in text
    text = theory_section(excess={**THEORY["excess"], "columns": columns | {"term": [0.1] * 4}})
    assert "The bound's term is below that at every F." in text


# ---- small parts


def test_anchors_are_unique(full):
    ids = re.findall(r' id="([^"]+)"', (full / "results.html").read_text())
    assert len(ids) == len(set(ids))


def test_text_between_backticks_is_code_and_the_rest_is_plain():
    blocks = [Heading("a & b"), Text("x < y is `a|b <c>`"), table(("h",), [["1 | 2"]])]
    assert markdown.page("t", blocks) == (
        "# t\n\n## a &amp; b\n\nx &lt; y is `a\\|b <c>`\n\n| h |\n| --- |\n| 1 \\| 2 |\n"
    )
    shown = as_html("t", blocks)
    assert "<p>x &lt; y is <code>a|b &lt;c&gt;</code></p>" in shown
    assert '<h2 id="a---b">a &amp; b</h2>' in shown


def test_lists_read_as_english():
    assert [listing(list(names)) for names in ("", "a", "ab", "abc")] == ["", "a", "a and b", "a, b and c"]


def test_principal_components_keep_distances_of_points_in_a_plane():
    draw = np.random.default_rng(0)
    x = draw.normal(size=(9, 2)) @ draw.normal(size=(2, 7)) + 3
    at, share = principal(x)
    assert share == pytest.approx(1)
    gaps = np.linalg.norm(x[:, None] - x, axis=-1)
    np.testing.assert_allclose(np.linalg.norm(at[:, None] - at, axis=-1), gaps, atol=1e-10)
    assert principal(np.ones((3, 1))).at.shape == (3, 2)
