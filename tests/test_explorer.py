"""The page, by clicks and keys in a real browser: it shows what the engine says, and names are only ever text."""

import contextlib
import shutil
import socket
import threading
import time

import polars as pl
import pytest
from small import efa
from small_models import TABLE, WEATHER

from efattn.data import Table

pytest.importorskip("fastapi", reason="the extra 'serve' is not installed")
browsers = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium here (Debian: apt-get install chromium)")

EVIL = "<img src=x onerror=alert(1)>"
ITEMS = TABLE.with_columns(movie=pl.col("movie").replace({"m1": EVIL}))
PLACES = {"group": "day", "item": "station", "attributes": ["latitude", "longitude"], "value": "tmax"}


@pytest.fixture(scope="module")
def models():
    return {
        "baskets": (efa().fit(ITEMS, group="user", item="movie"), ITEMS),
        "ratings": (efa(terms="value", family="gaussian").fit(ITEMS, group="user", item="movie", value="real"), ITEMS),
        "places": (efa(terms="value", family="gaussian").fit(WEATHER, **PLACES), WEATHER),
    }


@pytest.fixture(scope="module")
def address(models):
    import uvicorn

    from efattn.explorer.app import application
    from efattn.explorer.examples import Examples

    engines = {name: model.fitted_ for name, (model, _) in models.items()}
    examples = {name: Examples(engines[name], Table.read(table)) for name, (_, table) in models.items()}
    sock = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn.Config(application(engines, examples=examples), log_config=None))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [sock]})
    thread.start()
    while not server.started:
        time.sleep(0.02)
    yield f"http://127.0.0.1:{sock.getsockname()[1]}/"
    server.should_exit = True
    thread.join()


@pytest.fixture(scope="module")
def browser():
    with browsers.sync_playwright() as play:
        launched = play.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        yield launched
        launched.close()


@contextlib.contextmanager
def opened(browser, address, name, width=1100, scheme="light"):
    """A page on which nothing goes wrong, and which asks nobody but this server."""
    page, trouble = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme), []
    page.set_default_timeout(20_000)
    page.on("pageerror", lambda error: trouble.append(str(error)))
    page.on("console", lambda line: trouble.append(line.text) if line.type == "error" else None)
    page.on("dialog", lambda dialog: (trouble.append("a dialog"), dialog.dismiss()))
    page.on("request", lambda asked: trouble.append(asked.url) if not asked.url.startswith(address) else None)
    page.goto(f"{address}#{name}")
    yield page
    page.close()
    assert trouble == []


def shown(page, text):
    browsers.expect(page.locator("main")).to_contain_text(text)


def test_a_basket_is_filled_by_clicks_and_keys(browser, address, models):
    with opened(browser, address, "baskets") as page:
        page.get_by_role("button", name="Start empty").click()
        page.get_by_role("group", name="Items to add").get_by_role("button", name=EVIL).click()
        first = page.locator("ol[aria-label=Probabilities] .name").first
        (best,) = models["baskets"][0].recommend(pl.DataFrame({"user": ["x"], "movie": [EVIL]}), 1)["movie"]
        browsers.expect(first).to_have_text(best)
        shown(page, EVIL)
        assert page.locator("main img").count() == 0
        first.click()
        browsers.expect(page.locator("tbody tr")).to_have_count(2)
        shown(page, "itself, unseen")
        page.get_by_label("Add", exact=True).fill("m5")
        page.keyboard.press("Enter")
        browsers.expect(page.locator("tbody tr")).to_have_count(3)
        page.get_by_role("button", name="Remove m5").press("Enter")
        browsers.expect(page.locator("tbody tr")).to_have_count(2)


def test_what_is_clicked_before_the_page_is_filled_stays(browser, address):
    with opened(browser, address, "ratings") as page:
        held = []
        page.route(lambda url: "/items" in url, lambda route: held.append(route))
        page.goto("about:blank")
        with page.expect_request(lambda asked: "/items" in asked.url):
            page.goto(f"{address}#baskets")
        page.get_by_role("button", name="Start empty").click()
        shown(page, "Nothing here yet.")
        held[-1].continue_()  # the first may be of the page before
        page.get_by_role("group", name="Items to add").get_by_role("button", name="m5").click()
        page.wait_for_load_state("networkidle")
        browsers.expect(page.locator("tbody tr")).to_have_count(1)


def test_ratings_are_edited_and_predicted_again(browser, address, models):
    model, table = models["ratings"]
    group = table.filter(pl.col("user") == table["user"][0]).select("user", "movie", "real")
    with opened(browser, address, "ratings") as page:
        cells = page.locator("td.number")
        browsers.expect(cells.first).to_have_text(plain(model.predict(group)["real_mean"][0]))
        page.locator("tbody input").nth(1).fill("9")
        changed = group.with_columns(real=pl.Series([group["real"][0], 9.0, *group["real"][2:]]))
        browsers.expect(cells.first).to_have_text(plain(model.predict(changed)["real_mean"][0]))
        page.locator("td .pick").first.click()
        shown(page, "of the mixture")


def plain(x):
    """As the page writes numbers between 0.001 and 1000."""
    return f"{float(f'{x:.3g}'):g}"


def test_places_are_clicked_walked_and_added(browser, address, models):
    model, table = models["places"]
    day = table.filter(pl.col("day") == 1)
    with opened(browser, address, "places") as page:
        page.get_by_label("Later day").click()
        page.locator("circle.place").nth(2).click()
        browsers.expect(page.locator("#mean")).to_have_text(plain(model.predict(day)["tmax_mean"][2]))
        browsers.expect(page.locator("line.listens")).to_have_count(4)
        browsers.expect(page.locator("ol[aria-label=Changes] li")).to_have_count(4)
        page.keyboard.press("ArrowLeft")
        browsers.expect(page.locator("circle.chosen")).not_to_have_attribute("data-row", "2")
        page.get_by_role("button", name="Put a point").click()
        page.locator("svg.map").click(position={"x": 80, "y": 90})
        shown(page, "New point")
        browsers.expect(page.locator("circle.place")).to_have_count(6)
        browsers.expect(page.locator("#mean")).not_to_be_empty()
        page.get_by_role("button", name="Surface").click()
        page.wait_for_selector(".map rect", state="attached")


@pytest.mark.parametrize("name", ["baskets", "places"])
def test_a_phone_in_the_dark_shows_all_of_it(browser, address, name):
    with opened(browser, address, name, width=390, scheme="dark") as page:
        shown(page, "Start empty")
        browsers.expect(page.locator("#card")).to_contain_text("About this model")
        assert page.evaluate("document.documentElement.scrollWidth") <= 390
        assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(20, 23, 27)"
