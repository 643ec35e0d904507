"""Daily temperatures around October: cities of the United States, and the stations bundled with efattn."""

from typing import TYPE_CHECKING, Literal

from efattn.datasets.origins import Origin, table
from efattn.errors import DataError

if TYPE_CHECKING:
    import polars as pl

MISSING = -99
INCOMPLETE = ("Arizona", "Connecticut", "South Dakota")  # with missing days; the paper drops them


def us_cities(cities: Literal["all", "paper"] = "all") -> "pl.DataFrame":
    """Daily mean temperatures of one city in each of 47 states, September 28 to October 31, 2007 to 2019.

    cities: "all", or "paper" for the paper's 44, which are complete: Phoenix (5 days missing), Bridgeport (4) and
    Rapid City (2) are dropped. Delaware, Alaska and Hawaii are not in the data; Maryland's city is Washington DC.

    Size: 20,774 rows, 47 cities (19,448 rows, 44 cities), 442 days: 34 in each of 13 years. Sorted by date and state.

        date           Date
        state          String
        city           String   two cities are called Charleston: the item is ["city", "state"]
        latitude       Float64  degrees north
        longitude      Float64  degrees east, so negative
        temperature    Float64  mean of the day in degrees Fahrenheit; null where it is missing (11 rows)

        date        state     city        latitude   longitude    temperature
        2007-09-28  Alabama   Birmingham  33.543682  -86.779633   75.8
        2007-09-28  Arizona   Phoenix     33.448376  -112.074036  86.4
        2007-09-28  Arkansas  Fort Smith  35.385803  -94.403229   70.6

    The paper trains on 2007-2012, validates on 2013-2016 and tests on 2017-2019, and scores October only: the days of
    September are there as lags.

    Source: University of Dayton, Average Daily Temperature Archive, from NOAA's Global Summary of the Day.
    Licence: research use, no redistribution. Never downloaded by efattn.

        EFA(family="gaussian", context="others", terms="value").fit(
            us_cities("paper"), group="date", item=["city", "state"], attributes=["latitude", "longitude"],
            value="temperature")
    """
    import polars as pl

    if cities not in ("all", "paper"):
        raise DataError(f"cities must be 'all' or 'paper', not {cities!r}.")
    files = CITIES.read()
    names = {"State": pl.String, "City": pl.String}
    places = {**names, "Latitude": pl.Float64, "Longitude": pl.Float64}
    days = {**names, "Month": pl.Int64, "Day": pl.Int64, "Year": pl.Int64, "AvgTemperature": pl.Float64}
    frame = (
        table(files["temperature.csv"], "temperature.csv", days)
        .join(table(files["cities.csv"], "cities.csv", places), on=["State", "City"], how="left")
        .select(
            date=pl.date("Year", "Month", "Day"),
            state="State",
            city="City",
            latitude="Latitude",
            longitude="Longitude",
            temperature=pl.col("AvgTemperature").replace(MISSING, None),
        )
        .sort("date", "state", "city")
    )
    return frame.filter(~pl.col("state").is_in(INCOMPLETE)) if cities == "paper" else frame


def noaa_october() -> "pl.DataFrame":
    """Daily temperatures of 110 stations of the central United States, September 28 to October 31, 1990 to 1993.

    Bundled with efattn: loads anywhere, without a network.

    Size: 14,960 rows, 110 stations, 136 days: 34 in each of 4 years. Sorted by date and station. Nothing is missing.

        station      Int64    WBAN number, which is written with five digits
        latitude     Float64  degrees north, 32.1 to 45.9
        longitude    Float64  degrees east, -99.8 to -80.0
        date         Date
        tmax         Float64  highest of the day in degrees Fahrenheit
        tmin         Float64  lowest
        tmean        Float64  halfway between the two

        station  latitude  longitude  date        tmax  tmin  tmean
        3804     39.35     -81.4333   1990-09-28  80.0  53.0  66.5
        3810     35.7333   -81.3833   1990-09-28  79.0  53.0  66.0
        3811     35.6      -88.9167   1990-09-28  91.0  59.0  75.0

    Source: NOAA, National Centers for Environmental Information, daily observations.
    Licence: public domain (a work of the United States government).

        EFA(family="gaussian", context="others", terms="value").fit(
            noaa_october(), group="date", item="station", attributes=["latitude", "longitude"], value="tmean")

    The file in the package was made once, from a CSV file with the MD5 below, by

        gzip -9 -n -c temperature.csv > src/efattn/datasets/files/noaa-october/temperature.csv.gz
    """
    import polars as pl

    columns = {
        "station_wban": pl.Int64,
        "lat": pl.Float64,
        "lon": pl.Float64,
        "year": pl.Int64,
        "month": pl.Int64,
        "day": pl.Int64,
        "tmax_f": pl.Float64,
        "tmin_f": pl.Float64,
        "tmean_f": pl.Float64,
    }
    return (
        table(NOAA.read()["temperature.csv"], "temperature.csv", columns)
        .select(
            station="station_wban",
            latitude="lat",
            longitude="lon",
            date=pl.date("year", "month", "day"),
            tmax="tmax_f",
            tmin="tmin_f",
            tmean="tmean_f",
        )
        .sort("date", "station")
    )


CITIES = Origin(
    name="us-cities",
    files={"temperature.csv": "bee1764049a86a2c1184c88900cc5e0f", "cities.csv": "60869d9a6f6c7fff74bc651db5373ef7"},
    source="the University of Dayton's Average Daily Temperature Archive",
    licence="research use, no redistribution",
    advice=(
        "Its licence does not let efattn fetch it: get the archive, keep one city per state, September 28 to October "
        "31, 2007-2019, and write temperature.csv (State, City, Month, Day, Year, AvgTemperature in Fahrenheit, -99 "
        "for missing) and cities.csv (State, City, Latitude, Longitude)."
    ),
    derived=True,
)
NOAA = Origin(
    name="noaa-october",
    files={"temperature.csv": "692d2cc7e962345e2987c1e0bbffa920"},
    source="NOAA, National Centers for Environmental Information",
    licence="public domain",
    advice="It is part of efattn: install the package again.",
)
