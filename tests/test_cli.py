"""Every verb through the shell: the installed command in a real process, on tiny tables."""

import csv
import json
import signal
import subprocess
import time

import numpy as np
import polars as pl
import pytest
from shell import BRIEF, EFATTN, ENVIRONMENT, QUICK, efattn, forked
from small import ratings, weather

import efattn as library

ROLES = ["--group", "user", "--item", "movie", "--value", "rating", "--order", "at", "--context", "past"]


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """A folder with ratings.csv and m.efattn, weather.parquet and w.efattn."""
    folder = tmp_path_factory.mktemp("cli")
    ratings().write_csv(folder / "ratings.csv")
    weather().write_parquet(folder / "weather.parquet")
    words = ["fit", "ratings.csv", *ROLES, "-o", "m.efattn", *QUICK, "--compare", "--json"]
    told = efattn(*words, cwd=folder).good()
    (folder / "fit.json").write_text(told.out)
    (folder / "fit.txt").write_text(told.err)
    roles = ["--group", "day", "--item", "station", "--item", "latitude_text", "--value", "tmax", "--value", "tmin"]
    table = weather().with_columns(pl.format("at {}", pl.col("latitude").round(1)).alias("latitude_text"))
    table.write_csv(folder / "weather.tsv", separator="\t")
    lags = ["--time", "day", "--lags", "1", "--terms", "value", "--family", "tmax,tmin=multivariate_gaussian"]
    forked("fit", "weather.tsv", *roles, *lags, "-o", "w.efattn", *QUICK, cwd=folder).good()
    return folder


def close(found, wanted, rel=1e-5):
    """Two answers of score."""
    assert found.keys() == wanted.keys()
    assert found["kind"] == wanted["kind"]
    assert found["terms"] == pytest.approx(wanted["terms"], rel=rel)
    plain = [{name: x for name, x in scores.items() if name not in ("terms", "kind")} for scores in (found, wanted)]
    assert plain[0] == pytest.approx(plain[1], rel=rel)


def test_fit_says_what_it_understood_and_gives_a_verdict(home):
    told, found = (home / "fit.txt").read_text(), json.loads((home / "fit.json").read_text())
    for words in ("75 rows in 16 groups (user) of 1 to 7 rows, median 5", "8 items (movie)", "Ordinal(levels=5"):
        assert words in told
    assert "whole numbers from 1 to 5" in told
    assert "no values missing" in told
    assert set(found["held_out"]) == {"item", "rating"}
    for scores in found["held_out"].values():
        assert set(scores) == {"model", "network", "latent", "marginal"}
        assert all(x is None or np.isfinite(x) for x in scores.values())
    assert found["held_out"]["item"]["latent"] is not None
    assert found["lengths"] == {"min": 1, "median": 5.0, "max": 7}


def test_the_verdict_is_the_score_of_the_held_out_groups(home):
    """In the table's units, also where values are standardised."""
    table = ratings()
    held = table.filter(pl.col("user").is_in(["u3", "u7"]))
    held.write_csv(home / "held.csv")
    words = ["--group", "user", "--item", "movie", "--value", "real", "--validation", "held.csv", "--terms", "value"]
    told = forked("fit", "ratings.csv", *QUICK, *words, "-o", "v.efattn", "--compare", "--json", cwd=home).good()
    assert told.json()["held_out"]["real"]["model"] == pytest.approx(
        library.load(home / "v.efattn").score(held), rel=1e-4
    )


def test_score_prints_the_contract(home):
    found = efattn("score", "m.efattn", "ratings.csv", "--json", cwd=home).good().json()
    close(found, library.load(home / "m.efattn").scores(home / "ratings.csv"))
    assert set(found) == {"mean_log_likelihood", "terms", "observations", "scored", "unknown", "kind"}
    assert found["kind"] == "log-likelihood"  # from the past it is one
    assert set(found["terms"]) == {"item", "rating"}


def test_predict_writes_the_rows_and_what_is_expected(home):
    told = efattn("predict", "m.efattn", "-", cwd=home, stdin=(home / "ratings.csv").read_bytes()).good()
    found = pl.read_csv(told.out.encode())
    wanted = library.load(home / "m.efattn").predict(ratings())
    assert found.columns == wanted.columns
    assert found[ratings().columns].equals(pl.read_csv(home / "ratings.csv"))
    for what in ("mean", "sd", "lower", "upper"):
        np.testing.assert_allclose(found[f"rating_{what}"], wanted[f"rating_{what}"], rtol=1e-5)


@pytest.mark.parametrize("name", ["p.tsv", "p.csv.gz", "p.parquet"])
def test_predictions_go_to_any_kind_of_file(home, name):
    forked("predict", "m.efattn", "ratings.csv", "-o", name, "--force", cwd=home).good()
    found = _read(home / name)
    assert "rating_mean" in found.columns
    assert len(found) == 75
    assert not list(home.glob(".*.part"))


def _read(path):
    from efattn.data import Table

    return Table.read(path).native


@pytest.mark.parametrize("kind", ["csv", pytest.param("csv.gz", marks=pytest.mark.slow), "parquet"])
def test_a_table_in_pieces_gives_the_same_as_at_once(home, kind):
    table = ratings(seed=3, users=60).drop("liked")
    whole = home / f"long.{kind}"
    if kind == "parquet":
        table.write_parquet(whole, row_group_size=50)
    else:
        forked("predict", "m.efattn", "-", "-o", whole.name, "--force", cwd=home, stdin=table.write_csv().encode())
    small = ["--piece-size", "0.001"]
    once, cut = (forked("score", "m.efattn", whole, "--json", *w, cwd=home).good() for w in ([], small))
    close(cut.json(), once.json())
    one, two = (forked("predict", "m.efattn", whole, *w, cwd=home).good().out for w in ([], small))
    for a, b in zip(csv.reader(one.splitlines()), csv.reader(two.splitlines()), strict=True):
        assert a[:11] == b[:11]
        if a[0] != "user":
            np.testing.assert_allclose(np.array(a[11:], float), np.array(b[11:], float), rtol=1e-4)


def test_scattered_groups_of_a_folder_are_brought_together_and_answered_in_order(home):
    table = ratings(seed=3, users=60).sample(fraction=1, shuffle=True, seed=1)
    (home / "scattered").mkdir()
    for k in range(3):
        table[k::3].write_parquet(home / "scattered" / f"{k}.parquet")
    table = pl.concat([table[k::3] for k in range(3)])
    model, small = library.load(home / "m.efattn"), ["--piece-size", "0.001"]
    found = forked("score", "m.efattn", "scattered", "--json", *small, cwd=home).good().json()
    close(found, model.scores(table))
    told = pl.read_csv(forked("predict", "m.efattn", "scattered/*.parquet", *small, cwd=home).good().out.encode())
    expected = model.predict(table)
    assert told.select(table.columns).rows() == table.rows()
    np.testing.assert_allclose(told["rating_mean"], expected["rating_mean"], rtol=1e-4)


def test_a_mistake_in_a_later_piece_names_the_row_of_the_table(home):
    table = ratings(seed=3, users=60)
    bad = table.with_columns(pl.when(pl.int_range(pl.len()) == 190).then(9).otherwise("rating").alias("rating"))
    bad.write_csv(home / "late.csv")
    told = forked("score", "m.efattn", "late.csv", "--piece-size", "0.005", cwd=home)
    assert told.code == 2
    assert "row 190" in told.err


def test_recommend(home):
    table = pl.read_csv(efattn("recommend", "m.efattn", "ratings.csv", "-k", "2", cwd=home).good().out.encode())
    assert table.columns == ["user", "rank", "movie", "probability"]
    first = forked("recommend", "m.efattn", "-k", "3", "--json", cwd=home).good().json()
    assert [row["rank"] for row in first] == [1, 2, 3]


def test_similar_takes_a_name_of_several_words(home):
    assert len(efattn("similar", "m.efattn", "m1", "-k", "3", "--json", cwd=home).good().json()) == 3
    name = pl.read_csv(home / "weather.tsv", separator="\t").row(0, named=True)["latitude_text"]
    found = forked("similar", "w.efattn", 0, name, "-k", "2", "--json", cwd=home).good().json()
    assert len(found) == 2
    assert "latitude_text" in found[0]
    assert "STATION LATITUDE_TEXT" in forked("similar", "w.efattn", 0, cwd=home).err


def test_attention_of_one_group_of_many_with_lags(home):
    found = efattn("attention", "w.efattn", "weather.tsv", "--group", "3", "--json", cwd=home).good().json()
    assert {row["lag"] for row in found} == {0, 1}
    shares: dict = {}
    for row in found:
        key = row["layer"], row["head"], row["target"]
        shares[key] = shares.get(key, 0) + row["weight"]
    np.testing.assert_allclose(list(shares.values()), 1, rtol=1e-5)
    matrix = forked("attention", "m.efattn", "ratings.csv", "--group", "u3", "--term", "item", cwd=home).good().out
    assert "in percent" in matrix
    assert matrix.count("\n") == 9


def test_summary(home):
    assert "Term 'item'" in efattn("summary", "m.efattn", cwd=home).good().out
    assert forked("summary", "m.efattn", "--json", cwd=home).good().json()["items"] == 8


# ---- a table like no other


ODD = """\ufeff"Nom de l'hôte; complet";"Ville, région";"Prix (EUR)";"Jour";"remarque"
"""


def odd_table(seed):
    draw, lines = np.random.default_rng(seed), [ODD.strip()]
    places = ["Lyon; Rhône", 'Nice "la belle"', "Brest", "Metz, Lorraine", "Saint-Étienne"]
    for host in range(12):
        for day, place in enumerate(draw.permutation(places)[: draw.integers(2, 6)]):
            price = f"{np.exp(draw.normal()) * 50:.2f}".replace(".", ",")
            quoted = place.replace('"', '""')
            lines.append(f'"Hôte n° {host}; SARL";"{quoted}";{price};2024-03-{day + 1:02d};"a, b"')
    return ("\r\n".join(lines) + "\r\n").encode()


def test_a_table_like_no_other_goes_all_the_way(tmp_path):
    (tmp_path / "prix été.csv").write_bytes(odd_table(0))
    (tmp_path / "test.csv").write_bytes(odd_table(1))
    roles = ["--group", "Nom de l'hôte; complet", "--item", "Ville, région", "--value", "Prix (EUR)"]
    words = [*roles, "--order", "Jour", "--context", "past", "-o", "un modèle.efattn", *QUICK]
    told = forked("fit", "prix été.csv", *words, cwd=tmp_path).good()
    assert "5 items" in told.err
    assert "Gamma" in told.err
    found = forked("score", "un modèle.efattn", "test.csv", "--json", cwd=tmp_path).good().json()
    assert found["unknown"] == 0
    assert found["scored"] == found["observations"] == odd_table(1).count(b"\n") - 1
    out = pl.read_csv(forked("predict", "un modèle.efattn", "test.csv", cwd=tmp_path).good().out.encode())
    assert out["Prix (EUR)_mean"].min() > 0
    assert "Hôte n° 3; SARL" in out["Nom de l'hôte; complet"].to_list()
    told = forked("recommend", "un modèle.efattn", "test.csv", "-k", "2", "--json", cwd=tmp_path).good()
    assert any(row["Ville, région"] == 'Nice "la belle"' for row in told.json())
    assert forked("similar", "un modèle.efattn", "Lyon; Rhône", "--json", cwd=tmp_path).good().json()


# ---- options


def test_options_of_every_kind_reach_the_model(home):
    words = [*ROLES, "--layers", "1", "--heads", "1", "--norm", "pre", "--feed-forward", "4", "--dropout", "0.2"]
    words += ["--rate", "0.01", "--patience", "0", "--clip", "0", "--optimiser", "adam", "--seed", "5"]
    words += ["--family", "rating=poisson", "--missing", "-1", "--validation", "none"]
    words += ["--max-length", "4", "--terms", "value", "--gaps"]
    forked("fit", "ratings.csv", *QUICK, *words, "-o", "o.efattn", cwd=home).good()
    model = library.load(home / "o.efattn")
    assert (model.layers, model.heads, model.norm, model.feed_forward, model.dropout) == (1, 1, "pre", 4, 0.2)
    assert (model.training.rate, model.training.patience, model.training.clip) == (0.01, None, None)
    assert (model.seed, model.terms, model.max_length, model.context) == (5, ["value"], 4, "past")
    assert model.schema_.roles.missing == (-1.0,)
    assert model.gaps is True
    assert "Poisson" in repr(model.family_)
    assert all(record["validation"] is None for record in model.history_)


def test_latent_factors_from_the_shell(home):
    words = ["--group", "user", "--item", "movie", "--value", "real", "--model", "latent", "-o", "l.efattn"]
    told = forked("fit", "ratings.csv", *words, *BRIEF, "--compare", cwd=home).good()
    assert "LatentFactor" in told.out
    assert isinstance(library.load(home / "l.efattn"), library.LatentFactor)
    assert "--layers" in forked("fit", "ratings.csv", *words, "--force", "--layers", "2", cwd=home).err


def test_force_replaces(home):
    words = ["fit", "ratings.csv", "--group", "user", "--item", "movie", "-o", "f.efattn", *QUICK]
    forked(*words, cwd=home).good()
    assert forked(*words, cwd=home).code == 2
    forked(*words, "--force", cwd=home).good()


# ---- the shell's manners


def test_verbose_may_stand_anywhere(home):
    for words in (["score", "m.efattn", "none.csv", "--debug"], ["-v", "score", "m.efattn", "none.csv", "-v"]):
        assert "Traceback" in forked(*words, cwd=home).err
    for words in (["score", "m.efattn", "none.csv", "-v"], ["score", "m.efattn", "none.csv"]):
        assert "Traceback" not in forked(*words, cwd=home).err


def test_no_colours_away_from_a_terminal(home):
    environment = {"NO_COLOR": "", "TERM": "xterm-256color"}
    told = efattn("--help", **environment)
    assert "\x1b" not in told.out + told.err


@pytest.mark.parametrize(
    "words", ["datasets export noaa-october", pytest.param("predict m.efattn many.csv", marks=pytest.mark.slow)]
)
def test_a_closed_pipe_is_quiet(home, words):
    user = pl.format("{}-{}", "user", "seed").alias("user")
    rows = pl.concat([ratings(seed=n).with_columns(seed=n).with_columns(user) for n in range(60)])
    rows.write_csv(home / "many.csv")
    command = ["bash", "-c", f"{EFATTN} {words} | head -n 1; echo ${{PIPESTATUS[0]}}"]
    done = subprocess.run(command, cwd=home, capture_output=True, text=True, check=False, env=ENVIRONMENT)
    assert done.stdout.endswith("\n0\n")
    assert "Broken" not in done.stderr
    assert "Traceback" not in done.stderr


def interrupted(home, words, wait):
    """Start, wait for a sign, press Ctrl-C; the exit code and what was said."""
    done = subprocess.Popen(
        [EFATTN, *words], cwd=home, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=ENVIRONMENT
    )
    for _ in range(600):
        time.sleep(0.1)
        if wait() or done.poll() is not None:
            break
    done.send_signal(signal.SIGINT)
    out, err = done.communicate(timeout=60)
    return done.returncode, out, err


def test_interrupting_a_fit_keeps_the_best_so_far(home):
    words = ["fit", "ratings.csv", *ROLES, "-o", "i.efattn", "--epochs", "100000", "--patience", "0"]
    words += ["--width", "8", "--device", "cpu", "--history", "i.jsonl", "--validation", "0.2"]
    words += ["--checkpoint", "i-state"]
    history = home / "i.jsonl"
    code, out, err = interrupted(home, words, lambda: history.exists() and history.read_text().count("\n") > 2)
    assert code == 130, err
    assert out == ""
    assert "'i.efattn'" in err.splitlines()[-1]
    assert "--resume and --force" in err.splitlines()[-1]
    assert "Traceback" not in err
    assert forked("score", "i.efattn", "ratings.csv", "--json", cwd=home).good().json()["scored"] == 75


@pytest.mark.slow
def test_an_interrupted_fit_resumes(home):
    words = ["fit", "ratings.csv", *ROLES, *QUICK, "--epochs", "30", "--patience", "0"]
    words += ["--checkpoint", "state", "--checkpoint-seconds", "0"]
    history = home / "r.jsonl"
    made = [*words, "-o", "cut.efattn", "--history", "r.jsonl"]
    code, _, _ = interrupted(home, made, lambda: history.exists() and history.read_text().count("\n") > 2)
    assert code == 130
    assert (home / "state").exists()
    efattn(*words, "-o", "rest.efattn", "--resume", cwd=home).good()
    efattn(*words[:-4], "-o", "once.efattn", cwd=home).good()
    scores = [forked("score", f"{n}.efattn", "ratings.csv", "--json", cwd=home).good().json() for n in ("rest", "once")]
    assert scores[0] == scores[1]


# ---- ensembles


def test_an_ensemble_is_fitted_and_its_members_are_asked(home):
    words = ["--group", "user", "--item", "movie", "--value", "real", "--ensemble", "2", *QUICK, "-o", "e.efattn"]
    forked("fit", "ratings.csv", *words, cwd=home).good()
    found, table = library.load(home / "e.efattn"), ratings()
    assert len(found.members_) == 2
    for which in (None, 0, 1):
        member = [] if which is None else ["--member", which]
        told = forked("score", "e.efattn", "ratings.csv", "--json", *member, cwd=home).good().json()
        assert told["mean_log_likelihood"] == pytest.approx(found.score(table, member=which), rel=1e-5)
        told = forked("recommend", "e.efattn", "--json", *member, cwd=home).good().json()
        assert [row["movie"] for row in told] == found.recommend(member=which)["movie"].to_list()
        told = pl.read_csv(forked("predict", "e.efattn", "ratings.csv", *member, cwd=home).good().out.encode())
        np.testing.assert_allclose(told["real_mean"], found.predict(table, member=which)["real_mean"], rtol=1e-5)
    told = forked("similar", "e.efattn", "m1", "--json", "--member", 1, cwd=home).good().json()
    assert [row["movie"] for row in told] == found.similar("m1", member=1)["movie"].to_list()
    look = ["attention", "e.efattn", "ratings.csv", "--group", "u0", "--json", "--member"]
    assert forked(*look, 0, cwd=home).good().out != forked(*look, 1, cwd=home).good().out
    assert "2 members" in forked("summary", "e.efattn", cwd=home).good().out
    for words in (["score", "e.efattn", "ratings.csv", "--member", 2], [*look, 2]):
        code, _, complaint = forked(*words, cwd=home)
        assert code == 2
        assert "0 to 1; found 2" in complaint


def test_only_attention_comes_as_an_ensemble(home):
    words = ["--group", "user", "--item", "movie", "--model", "latent", "--ensemble", "2", "-o", "never.efattn"]
    code, _, complaint = forked("fit", "ratings.csv", *words, cwd=home)
    assert code == 2
    assert "--ensemble is for --model efa" in complaint
