"""Order effects that a latent factor model cannot see, and where attention finds them.

Each user rates five movies in a random order, and the order decides the mean: movie 2 is rated 1 after movie 1 and 5
before it, movies 3 and 4 are rated 1 directly after one another, movie 5 is rated 5 when it comes last.
"""

from typing import Any

import numpy as np
import polars as pl

from efattn import datasets, plots
from efattn.errors import DataError
from efattn.estimators import EFA, LatentFactor
from efattn.experiments.demo.report import TRAINING, Report
from efattn.models import Term
from efattn.network import Context
from efattn.training import Training

ROLES = {"group": "user", "item": "movie", "value": "rating", "order": "position"}
SIGHT: dict[Context, str] = {"past": "earlier ratings", "others": "all other ratings"}
FEWEST = 40


def run(report: Report, users: int, epochs: int | None) -> dict[str, Any]:
    if users < FEWEST:
        raise DataError(f"The demo needs at least {FEWEST} users, not {users}.")
    frame = datasets.synthetic_ratings(users)
    train, test = frame.filter(pl.col("user") <= 3 * users // 4), frame.filter(pl.col("user") > 3 * users // 4)
    report.say("Order decides: the paper's synthetic ratings\n", "bold")
    report.say(
        f"{users:,} users rate five movies in a random order. Ratings are 3 on average, with noise of variance 1, but\n"
        "  movie 2 gets 1 if movie 1 came earlier, and 5 if not;\n"
        "  movies 3 and 4 get 1 directly after one another;\n"
        "  movie 5 gets 5 when it comes last.\n"
        f"The first {3 * users // 4:,} users train, the others test.\n"
    )
    floor = float(((test["rating"] - test["mean"]) ** 2).mean())  # type: ignore[arg-type]
    errors, models = [], {}
    for context in SIGHT:
        models[context] = fitted(report, context, train, epochs)
        errors += [{"context": context, "model": n, "error": error(m, test)} for n, m in models[context].items()]
    print_errors(report, errors, floor)
    draw(report, models, test)
    finish(report, models["past"]["EFA"], test)
    return {"errors": errors, "floor": floor}


def fitted(report: Report, context: Context, train: pl.DataFrame, epochs: int | None) -> dict[str, Any]:
    common: dict[str, Any] = {
        "family": "gaussian",
        "context": context,
        "terms": "value",
        "seed": 0,
    }
    how = {**TRAINING, "tokens": 640}
    latent = LatentFactor(
        width=32, intercept=True, standardise="item", training=Training(epochs=epochs or 6, **how), **common
    )
    sizes: dict[str, Any] = {"layers": 2, "heads": 2, "width": 32, "feed_forward": 0, "norm": None}
    sizes |= {"dropout": 0.0, "hide": 0.0, "standardise": "global"}
    efa = EFA(companions=None, training=Training(epochs=epochs or 12, **how), **sizes, **common)
    seen = SIGHT[context]
    return {
        "latent factors": report.fitted(latent, train, f"latent factors to {seen}", **ROLES, validation=0.1),
        "EFA": report.fitted(efa, train, f"EFA to {seen}", **ROLES, validation=0.1),
    }


def error(model: Any, test: pl.DataFrame) -> float:
    predicted = model.predict(test, interval=None)
    return float(((predicted["rating_mean"] - predicted["rating"]) ** 2).mean())


def print_errors(report: Report, errors: list[dict[str, Any]], floor: float) -> None:
    report.say("\nMean squared error on the test users:\n", "bold")
    lines = []
    for context, seen in SIGHT.items():
        mine = {e["model"]: e["error"] for e in errors if e["context"] == context}
        lines.append([seen, *(f"{mine[name]:.3f}" for name in ("latent factors", "EFA")), f"{floor:.3f}"])
    report.table(["each rating given", "latent factors", "EFA", "best possible"], lines)
    report.say("\nBest possible is the error of the rule that drew the ratings: all that is left is noise.")


def draw(report: Report, models: dict[Context, dict[str, Any]], test: pl.DataFrame) -> None:
    report.picture(order_effects(models["past"], test), "order-effects.png")
    for context in SIGHT:
        report.picture(where_heads_look(models[context]["EFA"], test), f"attention-{context}.png")


def finish(report: Report, model: EFA, test: pl.DataFrame) -> None:
    model.save(report.path("synthetic.efattn"))
    report.rows(test.drop("mean"), "test.csv")
    report.written(
        {
            "order-effects.png": "what EFA and latent factors predict in each situation",
            "attention-past.png": "where EFA looks when it finds the rules, given earlier ratings",
            "attention-others.png": "the same given all other ratings",
            "synthetic.efattn": "the model of earlier ratings, in one file",
            "test.csv": "the test users' ratings",
        }
    )
    model_, test_, all_, mine = map(report.shell, ("synthetic.efattn", "test.csv", "ratings.csv", "mine.efattn"))
    roles = "--group user --item movie --value rating --order position --context past"
    report.next("Predict each rating from the earlier ones", f"efattn predict {model_} {test_}")
    report.next("See what is in the model", f"efattn summary {model_}")
    report.next(
        "Fit your own",
        f"efattn datasets export synthetic -o {all_}",
        f"efattn fit {all_} {roles} -o {mine}",
    )
    report.next("See it on real temperatures", "efattn demo weather")


def order_effects(models: dict[str, Any], test: pl.DataFrame) -> Any:
    """What each model predicts in each situation, beside the mean that the ratings were drawn around."""
    place = {m: pl.col("position").filter(pl.col("movie") == m).first().over("user") for m in (1, 2, 3, 4)}
    movie, last = pl.col("movie"), pl.col("position") == 5
    follows = ((movie == 4) & (place[4] == place[3] + 1)) | ((movie == 3) & (place[3] == place[4] + 1))
    situations = {
        "movie 2, after movie 1": (1.0, (movie == 2) & (place[1] < place[2])),
        "movie 2, before movie 1": (5.0, (movie == 2) & (place[1] > place[2])),
        "movie 3 or 4, directly\nafter the other": (1.0, follows),
        "movie 3 or 4, elsewhere": (3.0, movie.is_in([3, 4]) & ~follows),
        "movie 5, last": (5.0, (movie == 5) & last),
        "movie 5, earlier": (3.0, (movie == 5) & ~last),
    }
    frames = {name: model.predict(test, interval=None) for name, model in models.items()}
    predicted = {
        name: {case: frame.filter(which)["rating_mean"].to_numpy() for case, (_, which) in situations.items()}
        for name, frame in frames.items()
    }
    return plots.predicted_by_case(
        {case: mean for case, (mean, _) in situations.items()},
        dict(reversed(predicted.items())),
        name="rating",
        truth="what the ratings were drawn around",
        title="EFA finds what order does to a rating; latent factors cannot",
        subtitle=f"Predictions for {test['user'].n_unique():,} test users, each from the user's earlier ratings.\n"
        "Dots are means, lines hold nine tenths of the predictions.",
    )


def where_heads_look(model: EFA, test: pl.DataFrame) -> Any:
    """Each head's weight on the movie that decides, by where that movie stood. Which head does what, and how cleanly,
    differs with the seed and the options; that predictions are right does not."""
    place, weights = by_movie(model, test)  # (user, movie); (user, layer, head, movie, movie)
    two, four = "Movie 2 looking at movie 1", "Movie 4 looking at movie 3"
    panels = {}
    for name, target, decides in ((two, 1, 0), (four, 3, 2)):
        distance = place[:, decides] - place[:, target]
        seen = distance < 0 if model.context == "past" else distance != 0
        panels[name] = (distance[seen], weights[seen, :, :, target, decides])
    return plots.attention_by_distance(
        panels,
        title=f"Heads watch where the deciding movie stood (given {SIGHT[model.context]})",
        subtitle="Movie 2 is rated 1 if movie 1 came at any time before it; movie 4 is rated 1 directly after movie 3. "
        f"\nAttention averaged over {len(place):,} test users, one line per head.",
        across="where that movie stood (\N{MINUS SIGN} before, + after)",
        shade={two: (-4.3, -0.5), four: (-1.5, -0.5)},
        shaded="the rule holds",
    )


def by_movie(model: EFA, test: pl.DataFrame) -> tuple[np.ndarray, np.ndarray]:
    """When each user rated each movie, and attention (user, layer, head, movie, movie looked at)."""
    groups = model.schema_.standardise(model.schema_.encode(test))
    assert groups.vocabulary is not None
    movies = [groups.vocabulary.number(movie) for movie in range(1, 6)]
    term, places, every = model.model_["rating"], [], []
    assert isinstance(term, Term)
    for batch in model.fitted_.batches(groups, term):
        assert batch.item is not None
        item = batch.item.numpy()
        place = np.stack([(item == number).argmax(1) for number in movies], 1)  # (user, movie)
        weights = term.attention(batch).detach().numpy()  # (user, layer, head, target, context)
        weights = np.take_along_axis(weights, place[:, None, None, :, None], 3)
        every.append(np.take_along_axis(weights, place[:, None, None, None, :], 4))
        places.append(place)
    return np.concatenate(places), np.concatenate(every)
