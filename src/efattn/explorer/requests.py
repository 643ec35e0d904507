"""What a request may hold: one body a verb, with the names and defaults that Python has.

A table is a list of rows or a mapping of columns. Nothing in a request is ever taken for a path.
"""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StrictBool, StrictFloat, StrictInt, StrictStr

Cell = StrictBool | StrictInt | StrictFloat | StrictStr | None
Rows = list[dict[str, Cell]]
Columns = dict[str, list[Cell]]
Item = Cell | Annotated[list[Cell], Field(max_length=64)]
Items = Annotated[list[Item], Field(max_length=10_000)]
Count = Annotated[StrictInt, Field(ge=1, le=1000, description="How many to give.")]
Member = Annotated[StrictInt | None, Field(description="One network of an ensemble, from 0; null for all together.")]
Levels = Annotated[list[StrictFloat | StrictInt], Field(max_length=100, description="Probabilities between 0 and 1.")]
Entries = Annotated[Rows | Columns, Field(description="A list of rows, or a list of entries for each column.")]


class Body(BaseModel):
    model_config = ConfigDict(extra="forbid")


class Predict(Body):
    """What is expected of each row, from its context, never from itself."""

    table: Entries
    interval: StrictFloat | None = Field(0.9, description="How likely a value lies between lower and upper.")
    quantiles: Levels = []
    member: Member = None


class Event(Body):
    """One of: y > above, y < below, low <= y <= high."""

    above: StrictFloat | StrictInt | None = None
    below: StrictFloat | StrictInt | None = None
    between: tuple[StrictFloat | StrictInt, StrictFloat | StrictInt] | None = None


class Distributions(Body):
    """The law of each row: mean, standard deviation, quantiles and probabilities of events."""

    table: Entries
    quantiles: Levels = [0.05, 0.25, 0.5, 0.75, 0.95]
    events: Annotated[list[Event], Field(max_length=20)] = []
    member: Member = None


class Recommend(Body):
    """The most probable further items of each group: the next one, or a missing one. Without a table, the first."""

    table: Entries | None = None
    k: Count = 10
    at: Cell | dict[str, Cell] = None
    attributes: dict[str, Cell | dict[str, Cell]] | None = None
    among: Items | dict[str, list[Cell]] | None = None
    exclude: Items | dict[str, list[Cell]] | None = None
    at_least: StrictFloat | StrictInt = 0.0
    diversity: Annotated[StrictFloat | StrictInt, Field(ge=0, le=1)] = 0.0
    why: Annotated[StrictInt, Field(ge=0, le=20)] = 0
    member: Member = None


class Similar(Body):
    """The items that go best with one, and how well. An item of several columns is a list of its keys."""

    item: Item
    k: Count = 10
    member: Member = None


class Attention(Body):
    """What each row of one group looks at."""

    table: Entries
    term: StrictStr | None = None
    member: Annotated[StrictInt, Field(description="Which network of an ensemble, from 0.")] = 0
    layers: StrictBool = Field(False, description="Every layer and head, and not only their mean.")


class Impute(Body):
    """The table with its missing values filled in; with draws, so many completed tables, told apart by `draw`."""

    table: Entries
    draws: Annotated[StrictInt, Field(ge=0, le=100)] = 0
    seed: Annotated[StrictInt, Field(ge=0, lt=2**63)] = 0
    interval: StrictFloat | None = 0.9


class Sample(Body):
    """New groups, items and values drawn jointly; or the groups of a table completed, `groups` times each."""

    table: Entries | None = None
    groups: Annotated[StrictInt, Field(ge=1, le=1000)] | None = None
    length: Annotated[StrictInt, Field(ge=1, le=1000)] | None = None
    seed: Annotated[StrictInt, Field(ge=0, lt=2**63)] = 0
    member: Member = None


class Joint(Body):
    """How probable whole groups are: of a model with context any, a mixture over so many orders; or of the past."""

    table: Entries
    orders: Annotated[StrictInt, Field(ge=1, le=1000)] = 8
    seed: Annotated[StrictInt, Field(ge=0, lt=2**63)] = 0
    member: Member = None


class Forecast(Body):
    """What follows the last group of each series, by paths that are drawn; of a model with lags. Send the last groups
    alone: each row of the table counts as if it came again in every step of every path."""

    table: Entries
    steps: Annotated[StrictInt, Field(ge=1, le=1000)] = 5
    draws: Annotated[StrictInt, Field(ge=1, le=1000)] = 200
    interval: StrictFloat = 0.9
    paths: StrictBool = False
    seed: Annotated[StrictInt, Field(ge=0, lt=2**63)] = 0
    member: Member = None


class WhereNext(Body):
    """Which of the candidates to measure: those first that would lower the expected variance of the others most."""

    table: Entries
    candidates: Entries | None = None
    draws: Annotated[StrictInt, Field(ge=1, le=1000)] = 20
    seed: Annotated[StrictInt, Field(ge=0, lt=2**63)] = 0
    member: Member = None


class Explain(Body):
    """What each row of its context changes in the prediction of one row, by leaving it out."""

    table: Entries
    row: Annotated[StrictInt, Field(ge=0, description="Which row is explained, from 0.")] | None = None
    item: Item = None
    term: StrictStr | None = None
    member: Member = None


class Score(Body):
    """The log-likelihood of a table, in nats per scored row."""

    table: Entries
    member: Member = None


class Evaluate(Body):
    """How well rows are predicted, each from its context."""

    table: Entries
    k: Annotated[list[Count], Field(min_length=1, max_length=20)] = [1, 5, 10, 20]
    rows: Literal["auto", "target", "last", "all"] = "auto"
    target: StrictStr | None = None
    seen: StrictBool | None = None
    member: Member = None


def options(body: BaseModel) -> dict[str, Any]:
    """The options of a body, without its table."""
    return {name: getattr(body, name) for name in type(body).model_fields if name != "table"}
