"""A dozen fitted models, for the tests of estimators; each is fitted once, and no test may change it."""

from small import efa, latent, ratings, weather

from efattn import Training

TABLE, WEATHER = ratings(), weather()
BOTH = {"group": "user", "item": "movie", "value": "real"}
PAST = {**BOTH, "order": "at"}
DAYS = {"group": "day", "item": "station", "value": "tmax"}
PLACES = {"group": "day", "attributes": ["latitude", "longitude"], "value": ["tmax", "tmin"]}
NUMBERS = ("mean", "sd", "lower", "upper")
MODELS = {
    "others": (efa(), TABLE, BOTH),
    "past": (efa(context="past"), TABLE, PAST),
    "three layers": (efa(layers=3, norm="pre", feed_forward=8), TABLE, BOTH),
    "ordinal": (efa(), TABLE, {**BOTH, "value": "rating"}),
    "places": (efa(neighbours=3), WEATHER, PLACES),
    "lags": (efa(lags=1, terms="value"), WEATHER, {**DAYS, "time": "day"}),
    "pieces": (efa(max_length=3), TABLE, BOTH),
    "alone": (efa(), TABLE, {"group": "user", "value": ["real", "count"]}),
    "latent": (latent(), TABLE, BOTH),
    "latent places": (latent(), WEATHER, {**PLACES, "value": "tmax"}),
}
_FITTED: dict = {}


def fitted(name):
    if name not in _FITTED:
        model, table, roles = MODELS[name]
        training = Training(epochs=3, tokens=128, rate=0.02, device="cpu")
        _FITTED[name] = model.set_params(training=training).fit(table, **roles), table, roles
    return _FITTED[name]
