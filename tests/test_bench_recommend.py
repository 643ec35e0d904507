"""What a list costs is measured both ways."""

from efattn.bench import recommend


def test_whole_histories_and_growing_ones_are_timed():
    found = recommend.measured(items=200, calls=2, warm=1)
    assert [one["kind"] for one in found] == ["whole", "follow"]
    assert all(0 < one["p50_ms"] <= one["p99_ms"] for one in found)
