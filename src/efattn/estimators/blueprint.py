"""What a model is built from and fitted to: schema, families, terms, the groups that are trained on and those held out.

Of a small table every group is held out once, in folds, each a blueprint of its own.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, final

from efattn.data import Groups, Schema
from efattn.data.sampling import few, many
from efattn.errors import Note
from efattn.estimators import families as choosing
from efattn.families import Categorical, Family, Product
from efattn.inference import Fitted
from efattn.models.scoring import ItemSupport
from efattn.network import Context, without_orders
from efattn.simple import Setting

SELDOM = 30  # rows of each item, below which items are seen seldom


@final
@dataclass(frozen=True, eq=False)
class Blueprint:
    """family: of the value columns, in the table's units; longest: group, or piece of one; groups: all of the table, in
    its units; train, held: as a model sees them; choices: which family each column got, and why. folds: where each
    group is held out once, the same for each; here train is then all of the table, and nothing is held. fold: which of
    them this is."""

    schema: Schema
    family: Product | None
    support: ItemSupport
    terms: tuple[str, ...]
    longest: int
    groups: Groups | None = None
    train: Groups | None = None
    held: Groups | None = None
    notes: tuple[Note, ...] = ()
    choices: tuple[choosing.Choice, ...] = ()
    may_refit: bool = False  # whether the groups held out are some of the table's own
    folds: tuple["Blueprint", ...] = ()
    fold: int | None = None
    network: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)  # by kind of term, the sizes of a network

    @classmethod
    def of(cls, fitted: Fitted) -> "Blueprint":
        """What the networks of a fitted model are built from."""
        support: ItemSupport = "distinct" if fitted.support == "distinct" else "all"
        return cls(fitted.schema, fitted.family, support, fitted.terms, fitted.longest, network=fitted.network)

    @property
    def items(self) -> int:
        return 0 if self.schema.vocabulary is None else len(self.schema.vocabulary)

    @property
    def value_name(self) -> str:
        """The value term's name: its columns'."""
        name = "+".join(self.schema.roles.of("value"))
        return f"{name}_value" if name == "item" and "item" in self.terms else name

    def term_name(self, kind: str) -> str:
        return "item" if kind == "item" else self.value_name

    @property
    def in_large_batches(self) -> list[str]:
        """The names of terms that are trained so, where nobody says otherwise."""
        return ["item"] if self.tied and not self.items_are_seldom else []

    @property
    def items_are_seldom(self) -> bool:
        return self.groups is not None and self.groups.count < SELDOM * self.items

    @property
    def tied(self) -> bool:
        """Whether items are predicted by the vectors that they have as context."""
        return bool(self.network.get("item", {}).get("tied"))

    @property
    def inside_family(self) -> Product:
        """Of the values as a model sees them."""
        assert self.family is not None
        return inside(self.family, self.schema)

    @property
    def counted(self) -> tuple[bool, ...]:
        """By value column, whether it is a count to which an exposure belongs."""
        parts = () if self.family is None else self.family.parts
        return tuple(bool(part.exposures) for part in parts for _ in range(part.columns))

    def family_of(self, kind: str) -> Family:
        return Categorical(max(self.items, 2)) if kind == "item" else self.inside_family

    def setting(self, kind: str, context: Context) -> Setting:
        """What a simple model of the item or the value term is built for."""
        roles = self.schema.roles
        support: ItemSupport = self.support if kind == "item" else "all"
        attributes, lags = len(self.schema.attribute_names), self.schema.lags
        return Setting(
            self.family_of(kind),
            self.items,
            without_orders(context),
            support,
            lags,
            attributes,
            roles.ordered,
            times=self.schema.when_kind is not None,
            own_time=self.schema.own_time,
            own_attributes=self.schema.own_attributes or (),
            positions=self.schema.positions,
        )

    def whole(self) -> "Blueprint":
        """The same with nothing held out, in the same units."""
        assert self.groups is not None
        return replace(self, train=self.schema.standardise(self.groups), held=None)

    @property
    def parts(self) -> tuple["Blueprint", ...]:
        """What is fitted on its own: the folds, or this."""
        return self.folds or (self,)

    def with_network(self, sizes: Mapping[str, Mapping[str, Any]]) -> "Blueprint":
        return replace(self, network=sizes, folds=tuple(replace(one, network=sizes) for one in self.folds))

    def with_features(self, known: Any) -> "Blueprint":
        """known: of items (`described`)."""
        first = known.features.first()
        each = tuple(replace(one, schema=replace(one.schema, features=first)) for one in self.folds)
        return replace(self, schema=replace(self.schema, features=first), folds=each).noted(*known.notes)

    def light(self) -> "Blueprint":
        """The same with some of the groups in memory, where all are on disk and many."""
        if self.groups is None or not many(self.groups):
            return self
        train, held = (None if part is None else few(part) for part in (self.train, self.held))
        return replace(self, groups=few(self.groups), train=train, held=held)

    def noted(self, *notes: Note) -> "Blueprint":
        return replace(self, notes=(*self.notes, *notes))


def inside(family: Product, schema: Schema) -> Product:
    """The family of values in the units in which models see them."""
    fitted = schema.standardiser
    if fitted is None:
        return family
    parts = [
        part.in_units(float(fitted.centre[columns.start]), float(fitted.scale[columns.start]))
        for part, _, columns in family.slices()
    ]
    return Product(tuple(parts))
