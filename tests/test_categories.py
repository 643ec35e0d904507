"""What categories of products bring: the page shows the files of the runs."""

from pathlib import Path

from efattn.experiments import categories

HOME = Path(__file__).parents[1]


def test_the_page_shows_the_result_files(tmp_path):
    shown, page = (HOME / "docs/recommending.md").read_text(), tmp_path / "page.md"
    assert f"{categories.MARKS[0]}\n{categories.markdown(HOME / 'results/categories')}\n{categories.MARKS[1]}" in shown
    page.write_text("before\n" + "\nold\n".join(categories.MARKS) + "\nafter\n")
    categories.main(["-o", str(HOME / "results/categories"), "--page", str(page)])
    table = page.read_text()
    assert table.startswith("before\n" + categories.MARKS[0] + "\n| |")
    assert table.endswith(categories.MARKS[1] + "\nafter\n")
    assert table.count("\n| with categories |") == 4


def test_removed_products_are_a_tenth_and_the_same_for_both_kinds(monkeypatch):
    import polars as pl

    known = pl.DataFrame({"item": range(1000), "category": ["a"] * 1000})
    monkeypatch.setattr(categories.datasets, "amazon_beauty_categories", lambda: known)
    cold = categories.cold_items(0.1, 0)
    assert 80 <= len(cold) <= 120
    assert cold.to_list() == categories.cold_items(0.1, 0).to_list()
    assert not len(categories.cold_items(0.0, 0))
