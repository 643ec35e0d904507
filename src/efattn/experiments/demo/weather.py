"""Each station's temperature from the other stations of the same day, and which of them it listens to.

Sizes and epochs are chosen to be quick, and the test year was looked at when they were: a demonstration, not a
result. The experiments have the results.
"""

from typing import Any

import numpy as np
import polars as pl

from efattn import datasets, plots
from efattn.estimators import EFA, LatentFactor
from efattn.experiments.demo.report import TRAINING, Report
from efattn.training import Training

ROLES: dict[str, Any] = {
    "group": "date",
    "item": "station",
    "attributes": ["latitude", "longitude"],
    "value": "tmean",
}
TEST = 1993
CITIES = {
    "Chicago": (-87.63, 41.88),
    "Minneapolis": (-93.27, 44.98),
    "St. Louis": (-90.2, 38.63),
    "Kansas City": (-94.58, 39.1),
    "Atlanta": (-84.39, 33.75),
    "Dallas": (-96.8, 32.78),
    "Detroit": (-83.05, 42.33),
    "Nashville": (-86.78, 36.16),
}


def run(report: Report, epochs: int | None) -> dict[str, Any]:
    frame = datasets.noaa_october()
    year = pl.col("date").dt.year()
    train, test = frame.filter(year < TEST), frame.filter(year == TEST)
    report.say("What a station's temperature is, from all others of the day\n", "bold")
    report.say(
        f"{frame['station'].n_unique()} stations of the central United States, daily means around October. "
        f"The days of 1990 to {TEST - 1} train, those of {TEST} test.\n"
    )
    models = fitted(report, train, epochs)
    errors = {"station mean": station_mean_error(train, test)}
    predicted = {name: model.predict(test, interval=None) for name, model in models.items()}
    errors |= {name: float(((p["tmean_mean"] - p["tmean"]) ** 2).mean()) for name, p in predicted.items()}
    report.say(f"\nError on the days of {TEST}, in degrees Fahrenheit:\n", "bold")
    lines = [[name, f"{e:.2f}", f"{e**0.5:.2f}"] for name, e in errors.items()]
    report.table(["", "mean squared error", "its root"], lines)
    draw(report, models["EFA"], test, predicted["EFA"])
    finish(report, models["EFA"], test)
    return {"errors": errors}


def fitted(report: Report, train: pl.DataFrame, epochs: int | None) -> dict[str, Any]:
    common: dict[str, Any] = {"family": "gaussian", "context": "others", "terms": "value", "standardise": "item"}
    common["seed"] = 0
    how = {**TRAINING, "tokens": 440}
    latent = LatentFactor(width=32, neighbours=5, training=Training(epochs=epochs or 60, **how), **common)
    sizes: dict[str, Any] = {"layers": 1, "heads": 2, "width": 32, "feed_forward": 64, "norm": "pre"}
    sizes |= {"dropout": 0.0, "hide": 0.9}  # hidden stations: so that it does not lean on one
    efa = EFA(companions=None, training=Training(epochs=epochs or 60, **how), **sizes, **common)
    return {
        "latent factors, five nearest": report.fitted(latent, train, "latent factors", **ROLES, validation=0.15),
        "EFA": report.fitted(efa, train, "EFA", **ROLES, validation=0.15),
    }


def station_mean_error(train: pl.DataFrame, test: pl.DataFrame) -> float:
    """Of predicting each station's own mean."""
    means = train.group_by("station").agg(usual=pl.col("tmean").mean())
    return float(test.join(means, on="station").select(((pl.col("tmean") - pl.col("usual")) ** 2).mean()).item())


def draw(report: Report, model: EFA, test: pl.DataFrame, predicted: pl.DataFrame) -> None:
    report.picture(one_day(predicted), "one-day.png")
    report.picture(listening(model, test), "listening.png")
    scatter = plots.predicted_against_actual(
        predicted["tmean"],
        predicted["tmean_mean"],
        name="temperature (°F)",
        title=f"EFA on the {test['date'].n_unique()} test days of {TEST}",
        subtitle="Each station from the others of its day.\nOn the line, the prediction is right.",
    )
    report.picture(scatter, "predictions.png")


def one_day(predicted: pl.DataFrame) -> Any:
    """The test day with the widest range of temperatures."""
    by_day = predicted.group_by("date", maintain_order=True).agg(spread=pl.col("tmean").std())
    date = by_day.sort("spread")["date"][-1]
    day = predicted.filter(pl.col("date") == date)
    missed = (day["tmean_mean"] - day["tmean"]).to_numpy()
    return plots.station_map(
        day["longitude"],
        day["latitude"],
        {"measured": day["tmean"], "predicted from the others": day["tmean_mean"], "predicted minus measured": missed},
        errors=["predicted minus measured"],
        title=f"Each station's temperature, predicted from the others: {date:%B} {date.day}, {date.year}",
        subtitle=f"The test day with the sharpest contrasts. Half of the errors are below "
        f"{np.median(np.abs(missed)):.1f} °F, the largest is {np.abs(missed).max():.1f} °F.",
        unit="°F",
        places=CITIES,
    )


def listening(model: EFA, test: pl.DataFrame) -> Any:
    """Of the station nearest to the middle, averaged over the test days, layers and heads."""
    days = test.partition_by("date", maintain_order=True)
    day = days[0]
    x, y = day["longitude"].to_numpy(), day["latitude"].to_numpy()
    station = int(np.argmin((x - x.mean()) ** 2 + (y - y.mean()) ** 2))
    weights = np.mean([model.attention(one).mean()[station] for one in days], 0)
    alone, weights[station] = weights[station], 0.0
    top = np.sort(weights)[::-1][:10].sum()
    own = f" It keeps {alone:.0%} for itself: what is known of it without its temperature." if alone > 0.005 else ""
    return plots.listening_map(
        x,
        y,
        weights,
        station,
        title="A station learns to listen to its neighbours",
        subtitle=f"Attention of station {day['station'][station]} (star), averaged over {len(days)} test days and "
        f"{model.heads} heads.\nIt may look anywhere, but ten of the {len(x) - 1} others get "
        f"{top:.0%} of the weight.{own}",
        places=CITIES,
    )


def finish(report: Report, model: EFA, test: pl.DataFrame) -> None:
    model.save(report.path("weather.efattn"))
    report.rows(test, "test.csv")
    report.written(
        {
            "one-day.png": "a test day on the map: measured, predicted, and what was missed",
            "listening.png": "which stations one station listens to",
            "predictions.png": "predicted against measured, all test days",
            "weather.efattn": "the model, in one file",
            "test.csv": f"the days of {TEST}",
        }
    )
    model_, test_, all_, mine = map(report.shell, ("weather.efattn", "test.csv", "stations.csv", "mine.efattn"))
    roles = "--group date --item station --attributes latitude --attributes longitude --value tmean --terms value"
    report.next("Predict each station from the others", f"efattn predict {model_} {test_}")
    report.next("How probable is what happened", f"efattn score {model_} {test_}")
    report.next(
        "Fit your own",
        f"efattn datasets export noaa-october -o {all_}",
        f"efattn fit {all_} {roles} --family gaussian -o {mine}",
    )
