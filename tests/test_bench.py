"""Benches: what is kept says where it was measured, two runs are compared figure by figure, and aims are judged."""

import json

import pytest

from efattn import DataError
from efattn.bench import BENCHES, compare, page
from efattn.bench.aims import AIMS
from efattn.bench.figures import OF, figures
from efattn.bench.keeping import keep, machine


def conditionals(times, context="others", length=50):
    return {"context": context, "length": length, "fast_over_ordinary": times, "literal_over_fast": 10.0}


def tables(seconds):
    return {"rows": 1000, "case": "sorted", "read_seconds": seconds, "batch_seconds": 1.0, "peak_bytes": 1e9}


def test_what_is_kept_names_the_machine_and_the_commit(tmp_path):
    keep(tmp_path, "conditionals", [conditionals(3.0)], threads=1)
    about = json.loads((tmp_path / "conditionals.json").read_text())["about"]
    assert about["machine"] == machine()
    assert {"bench", "version", "python", "commit", "threads"} <= set(about)
    assert {"processor", "cores", "torch", "gpu"} <= set(about["machine"])


def test_two_runs_are_compared_figure_by_figure(tmp_path):
    for folder, times, seconds in (("old", 4.0, 10.0), ("new", 3.0, 10.5)):
        keep(tmp_path / folder, "conditionals", [conditionals(times)])
        keep(tmp_path / folder, "tables", [tables(seconds)])
    keep(tmp_path / "new", "race", [{"seconds": 3.0}])
    lines = {x.figure: x for x in compare.compared(tmp_path / "old", tmp_path / "new")}
    assert lines["others, length 50: times one ordinary pass"].verdict == "better"
    assert lines["others, length 50: times one ordinary pass"].ratio == 0.75
    assert lines["others, length 50: times as fast as the literal form"].verdict == "level"
    assert lines["1,000 rows, sorted: seconds to read"].verdict == "level"
    assert lines["mean seconds"].verdict == "new"
    back = {x.figure: x.verdict for x in compare.compared(tmp_path / "new", tmp_path / "old")}
    assert back["others, length 50: times one ordinary pass"] == "worse"
    assert back["mean seconds"] == "gone"
    told = compare.told(list(lines.values()))
    assert "0.75  better" in told
    assert told.endswith("1 better, 4 level, 1 new.")


def test_seconds_of_another_machine_get_no_verdict(tmp_path):
    keep(tmp_path / "old", "tables", [tables(10.0)], machine={"processor": "another"})
    keep(tmp_path / "new", "tables", [tables(1.0)])
    assert {x.verdict for x in compare.compared(tmp_path / "old", tmp_path / "new")} == {"other machine"}


def test_single_files_are_compared_whatever_they_are_called(tmp_path):
    keep(tmp_path, "conditionals", [conditionals(4.0)])
    (tmp_path / "conditionals.json").rename(tmp_path / "before.json")
    keep(tmp_path, "conditionals", [conditionals(2.0)])
    assert compare.compared(tmp_path / "before.json", tmp_path / "conditionals.json")[0].verdict == "better"


@pytest.mark.parametrize("text", [None, "{", "[1]", '{"a": 1}'])
def test_what_is_no_result_is_an_error(tmp_path, text):
    if text is not None:
        (tmp_path / "odd.json").write_text(text)
    with pytest.raises(DataError, match=r"odd\.json"):
        compare.compared(tmp_path / "odd.json", tmp_path / "odd.json")


def test_the_page_says_of_each_aim_whether_it_is_met(tmp_path):
    keep(tmp_path, "conditionals", [conditionals(3.6), conditionals(1.5, "past")])
    text = page.write(tmp_path / "docs", tmp_path).read_text()
    assert "| at most 3.5 | 3.60 | missed |" in text
    assert "| at most 1.6 | 1.50 | **met** |" in text
    assert f"1 met, 1 missed, {len(AIMS) - 2} not run yet." in text


def test_every_aim_is_about_a_figure_of_a_bench():
    names = {bench.name for bench in BENCHES}
    assert {aim.bench for aim in AIMS} <= names & set(OF)
    assert set(OF) <= names
    assert all((aim.most is None) != (aim.least is None) for aim in AIMS)


@pytest.mark.parametrize("bench", OF)
def test_kept_results_have_figures(request, bench):
    path = request.config.rootpath / "benchmarks" / "results" / f"{bench}.json"
    if path.exists():
        assert figures(bench, json.loads(path.read_text())["records"])


def test_the_shell_compares(tmp_path, capsys):
    from efattn.cli.benching import bench

    keep(tmp_path / "old", "conditionals", [conditionals(4.0)])
    keep(tmp_path / "new", "conditionals", [conditionals(2.0)])
    bench(["compare", str(tmp_path / "old"), str(tmp_path / "new")])
    assert "better" in capsys.readouterr().out
    with pytest.raises(DataError, match="compare OLD NEW"):
        bench(["compare", "old"])
    with pytest.raises(DataError, match="no bench 'nothing'"):
        bench(["nothing"])
