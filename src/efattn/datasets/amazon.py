"""Amazon reviews of beauty products, as sequences of items."""

from typing import TYPE_CHECKING

from efattn.datasets.origins import Origin, table

if TYPE_CHECKING:
    import polars as pl


def amazon_beauty() -> "pl.DataFrame":
    """What users reviewed, in the order of time: which product comes next.

    Users and products with at least five reviews each. As published, a user's last product tests, the one before
    it validates, and the others train.

    Size: 198,502 rows, 22,363 users with 5 to 204 products each, none twice; 12,101 products. Sorted by user and
    position. Nothing is missing. `amazon_beauty_categories` has the categories of the products.

        user        Int64  1 to 22363
        item        Int64  1 to 12101
        position    Int64  1, 2, 3, ... of each user

        user  item  position
        1     1     1
        1     2     2
        1     3     3

    Source: Amazon reviews 2014 (J. McAuley), as prepared by the authors of S3-Rec (Zhou and others, 2020).
    Licence: research use, no redistribution. Never downloaded by efattn.

        EFA(context="past", terms="item").fit(
            amazon_beauty(), group="user", item="item", order="position")
    """
    import polars as pl

    columns = {"user": pl.Int64, "item": pl.Int64, "position": pl.Int64}
    return table(ORIGIN.read()["sequences.csv"], "sequences.csv", columns).sort("user", "position")


def amazon_beauty_categories() -> "pl.DataFrame":
    """The categories of the products of `amazon_beauty`, one row per product and category: 45,037 rows, 12,101
    products, 637 categories.

        item        Int64
        category    Int64  1 to 637
    """
    import polars as pl

    columns = {"item": pl.Int64, "category": pl.Int64}
    return table(ORIGIN.read()["categories.csv"], "categories.csv", columns).sort("item", "category")


ORIGIN = Origin(
    name="amazon-beauty",
    files={"sequences.csv": "88b7e9dc05672aca46c5e5b8e151f5a7", "categories.csv": "d5c4e368e8a8d019ca0389d391aa5952"},
    source="Amazon reviews 2014, beauty, as prepared by the authors of S3-Rec",
    licence="research use, no redistribution",
    advice=(
        "Its licence does not let efattn fetch it: from the files published with S3-Rec write sequences.csv (user, "
        "position from 1 in order of time, item) and categories.csv (item, category; several rows an item)."
    ),
    derived=True,
)
