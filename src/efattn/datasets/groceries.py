"""Shopping baskets: the paper's subset of the Instacart orders of 2017."""

from typing import TYPE_CHECKING, Literal

from efattn.datasets.origins import Origin, table
from efattn.errors import DataError

if TYPE_CHECKING:
    import polars as pl

PARTS = ("train", "test", "all")


def instacart(part: Literal["train", "test", "all"] = "train") -> "pl.DataFrame":
    """Baskets of groceries, items in the order they were put in.

    The paper's subset: the 63 products in at least 50,000 orders, and the orders with at least 10 of them.

    Size: train 275,345 rows, 24,781 baskets; test 16,066 rows, 1,433 baskets; 10 to 24 items each, none twice. Sorted
    by basket and rank. Nothing is missing. No basket is in both parts.

        basket     Int64   Instacart's order_id
        item       Int64   1 to 63
        product    String  its name, one to one with `item`
        rank       Int64   1, 2, 3, ... among the items of the basket
        part       String  "train" or "test"; only with part="all"

        basket  item  product                rank
        251     1     Organic Baby Spinach   1
        251     2     Organic Cucumber       2
        251     3     Organic Ginger Root    3

    Source: The Instacart Online Grocery Shopping Dataset 2017.
    Licence: non-commercial use, no redistribution. Never downloaded by efattn.

        EFA(context="past", terms="item").fit(
            instacart(), group="basket", item="product", order="rank")
    """
    import polars as pl

    if part not in PARTS:
        raise DataError(f"part must be 'train', 'test' or 'all', not {part!r}.")
    files = ORIGIN.read()
    names = table(files["products.csv"], "products.csv", {"item": pl.Int64, "product_name": pl.String})
    baskets = []
    for one in ("train", "test") if part == "all" else (part,):
        file = f"baskets_{one}.csv"
        rows = table(files[file], file, {"order_id": pl.Int64, "product_id": pl.Int64, "rank": pl.Int64})
        baskets.append(rows.with_columns(part=pl.lit(one)))
    frame = (
        pl.concat(baskets)
        .join(names, left_on="product_id", right_on="item", how="left")
        .select(basket="order_id", item="product_id", product="product_name", rank="rank", part="part")
        .sort("part", "basket", "rank", descending=[True, False, False])
    )
    return frame if part == "all" else frame.drop("part")


ORIGIN = Origin(
    name="instacart",
    files={
        "baskets_train.csv": "8fe213a4fe98291edfcf3197c90e9d63",
        "baskets_test.csv": "80893da5ef64aff6a21c4f920ba0a42a",
        "products.csv": "cec79957283af66ca4edd393da1ecb55",
    },
    source="the Instacart Online Grocery Shopping Dataset 2017",
    licence="non-commercial use, no redistribution",
    advice=(
        "Its licence does not let efattn fetch it: get the 2017 release, keep the 63 products in at least 50,000 "
        "orders and the orders with at least 10 of them, and write baskets_train.csv and baskets_test.csv (order_id, "
        "product_id from 1 to 63, rank) and products.csv (item from 1 to 63, product_id, product_name)."
    ),
    derived=True,
)
