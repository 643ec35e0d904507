"""Five small public tables of other trades than ours: votes, firms, patients, air and counties, split by group.

strangers("grunfeld", "test")  =  grunfeld("test")
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal

from efattn.datasets.origins import Origin, table
from efattn.errors import DataError

if TYPE_CHECKING:
    import polars as pl

Part = Literal["train", "test", "all"]
PARTS = ("train", "test", "all")


def strangers(name: str, part: Part = "train") -> "pl.DataFrame":
    """One of "house-votes", "grunfeld", "epil", "airquality" and "county-murders"."""
    if name not in LOADERS:
        raise DataError(f"name must be one of {', '.join(map(repr, LOADERS))}, not {name!r}.")
    return LOADERS[name](part)


def house_votes(part: Part = "train") -> "pl.DataFrame":
    """Votes of the members of the United States House of Representatives on 16 bills, 1984.

    Size: train 5,248 rows, 328 members; test 1,584 rows, 99 members; 16 rows each. Sorted by member and bill. Of the
    training votes 287 are missing, of the test votes 94.

        member    String
        party     String   "democrat" or "republican"
        bill      String   16 of them, by their first letters
        vote      Boolean  true for yes
        part      String   "train" or "test"; only with part="all"

        member    party       bill  vote
        member 0  republican  abr   False
        member 0  republican  anc   False
        member 0  republican  astb  False

    Source: UCI Machine Learning Repository, Congressional Voting Records.
    Licence: public.

        EFA(family="bernoulli", context="others", terms="value").fit(
            house_votes(), group="member", item="bill", value="vote")
    """
    import polars as pl

    columns = {"member": pl.String, "party": pl.String, "bill": pl.String, "vote": pl.Boolean}
    return _load("house-votes", part, columns, "member", "bill")


def grunfeld(part: Part = "train") -> "pl.DataFrame":
    """Yearly investment of 10 American firms, 1935 to 1954.

    Size: train 150 rows, 15 years; test 50 rows, 5 other years; 10 firms in each. Sorted by year and firm. Nothing is
    missing.

        year       Int64
        firm       Int64    1 to 10
        inv        Float64  gross investment in millions of dollars of 1947
        value      Float64  of the firm on the market, known beforehand
        capital    Float64  stock of plant and equipment, known beforehand
        part       String   "train" or "test"; only with part="all"

        year  firm  inv    value   capital
        1935  1     317.6  3078.5  2.8
        1935  2     209.9  1362.4  53.8
        1935  3     33.1   1170.6  97.8

    Source: Y. Grunfeld (1958), The Determinants of Corporate Investment; R package plm.
    Licence: public.

        EFA(family="gaussian", context="others", terms="value").fit(
            grunfeld(), group="year", item="firm", value="inv", attributes=["value", "capital"])
    """
    import polars as pl

    columns = {"year": pl.Int64, "firm": pl.Int64, "inv": pl.Float64, "value": pl.Float64, "capital": pl.Float64}
    return _load("grunfeld", part, columns, "year", "firm")


def epil(part: Part = "train") -> "pl.DataFrame":
    """Seizures of patients with epilepsy in four periods of two weeks, under a drug or a placebo.

    Size: train 176 rows, 44 patients; test 60 rows, 15 patients; 4 periods each. Sorted by subject and period.
    Nothing is missing.

        subject    Int64
        period     Int64    1 to 4
        y          Int64    seizures in the period
        trt        String   "placebo" or "progabide"
        treated    Int64    0 or 1, the same
        base       Int64    seizures in the eight weeks before
        age        Int64    in years
        lbase      Float64  log base, centred
        lage       Float64  log age, centred
        part       String   "train" or "test"; only with part="all"

        subject  period  y  trt      treated  base  age  lbase      lage
        1        1       5  placebo  0        11    31   -0.756354  0.114204
        1        2       3  placebo  0        11    31   -0.756354  0.114204
        1        3       3  placebo  0        11    31   -0.756354  0.114204

    Source: P. F. Thall and S. C. Vail (1990), Biometrics 46, 657-671; R package MASS.
    Licence: public.

        EFA(family="negative_binomial", context="past", terms="value").fit(
            epil(), group="subject", order="period", value="y", attributes=["lbase", "lage", "treated"])
    """
    import polars as pl

    columns: dict[str, Any] = {**dict.fromkeys(("subject", "period", "y"), pl.Int64), "trt": pl.String}
    columns |= {**dict.fromkeys(("treated", "base", "age"), pl.Int64), "lbase": pl.Float64, "lage": pl.Float64}
    return _load("epil", part, columns, "subject", "period")


def airquality(part: Part = "train") -> "pl.DataFrame":
    """Ozone, sunlight, temperature and wind in New York, May to September 1973.

    Size: train 452 rows, 113 days; test 160 rows, 40 days; 4 measurements each. Sorted by day and what. Of the
    training measurements 39 are missing, of the test ones 5.

        day      Int64    1 to 153
        Month    Int64    5 to 9
        what     String   "Ozone", "Solar.R", "Temp" or "Wind"
        x        Float64  parts per billion, langleys, degrees Fahrenheit, miles per hour
        part     String   "train" or "test"; only with part="all"

        day  Month  what     x
        1    5      Ozone    41.0
        1    5      Solar.R  190.0
        1    5      Temp     67.0

    Source: J. M. Chambers and others (1983), Graphical Methods for Data Analysis; R's datasets.
    Licence: public.

        EFA(family="gaussian", context="others", terms="value", standardise="item").fit(
            airquality(), group="day", item="what", value="x")
    """
    import polars as pl

    columns = {"day": pl.Int64, "Month": pl.Int64, "what": pl.String, "x": pl.Float64}
    return _load("airquality", part, columns, "day", "what")


def county_murders(part: Part = "train") -> "pl.DataFrame":
    """Murders in counties of the United States, 1980 to 1996.

    Size: train 29,580 rows, 1,740 counties; test 7,769 rows, 457 counties; 17 years each. Sorted by county and year.
    Nothing is missing.

        countyid     Int64
        year         Int64    1980 to 1996
        murders      Int64
        popul        Int64    people of the county: the exposure
        percblack    Float64  per cent of them that are black
        part         String   "train" or "test"; only with part="all"

        countyid  year  murders  popul  percblack
        1001      1980  2        32216  22.33
        1001      1981  1        31984  22.07
        1001      1982  3        32036  21.8

    Source: J. M. Wooldridge, Introductory Econometrics; R package wooldridge.
    Licence: public.

        EFA(family="poisson", context="past", terms="value").fit(
            county_murders(), group="countyid", order="year", value="murders", exposure="popul")
    """
    import polars as pl

    columns: dict[str, Any] = {
        **dict.fromkeys(("countyid", "year", "murders", "popul"), pl.Int64),
        "percblack": pl.Float64,
    }
    return _load("county-murders", part, columns, "countyid", "year")


def _load(name: str, part: Part, columns: dict[str, Any], *keys: str) -> "pl.DataFrame":
    import polars as pl

    if part not in PARTS:
        raise DataError(f"part must be 'train', 'test' or 'all', not {part!r}.")
    files, frames = ORIGINS[name].read(), []
    for one in ("train", "test") if part == "all" else (part,):
        file = f"{name}-{one}.csv"
        rows = table(files[file], file, columns).sort(*keys)
        frames.append(rows.with_columns(part=pl.lit(one)) if part == "all" else rows)
    return pl.concat(frames)


LOADERS: dict[str, Callable[[Part], "pl.DataFrame"]] = {
    "house-votes": house_votes,
    "grunfeld": grunfeld,
    "epil": epil,
    "airquality": airquality,
    "county-murders": county_murders,
}
MD5 = {
    "house-votes": ("ef65ecfcb84be021b75b4b1e82f27805", "9f608317cf647f9f156d81ca8450b6bb"),
    "grunfeld": ("a10f72f45aa11923b468080f0c5d9d02", "a1f4d78a53139d943650fa8b9a7c097f"),
    "epil": ("040fdeaa91848a03d00b6ba8649e7580", "8d36ef0d9dbb16765d175cd8a531fd22"),
    "airquality": ("d33c909d1a534541b3f7d63a21c85e04", "ae6c76effb06c1f8621a58a820fbd12b"),
    "county-murders": ("6692fe6cdc87ec7bdb58fb72d06bc978", "e9e10be7feded5bd7fc9f739bc29520f"),
}
ORIGINS = {
    name: Origin(
        name="strangers",
        files=dict(zip((f"{name}-train.csv", f"{name}-test.csv"), md5, strict=True)),
        source="R's packages of data sets, and UCI",
        licence="public",
        advice=f"Write {name}-train.csv and {name}-test.csv with the columns that its docstring names, split by group.",
        derived=True,
    )
    for name, md5 in MD5.items()
}
