"""The page of the service: its files, and in a real browser what people do with it."""

import json
import re
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import uvicorn
from fastapi.testclient import TestClient
from tests.models.test_interactions import make_clicks, own_kind
from tests.serve.conftest import PATIENT
from tests.waiting import PATIENCE, wait_until

from deepmf.datasets import generate
from deepmf.matrix import TableForm
from deepmf.matrix.features import Features
from deepmf.matrix.matrix import ObservedMatrix
from deepmf.models.als import ALS
from deepmf.models.base import Model
from deepmf.models.ordinal.model import OrdinalDMF
from deepmf.serve.app import PAGE, create_app
from deepmf.serve.auth import ROLES, ApiKey, KeyRing, hash_key
from deepmf.serve.database import open_database
from deepmf.serve.ids import is_visitor
from deepmf.serve.service import Service

HOSTILE = [
    "<img src=x onerror=alert(1)>",
    "</title><script>alert(2)</script>",
    "\N{RIGHT-TO-LEFT OVERRIDE}txet",
    "unbroken" * 40,
    " ",
    "a/b?c=d&e#f%2F%00",
    "'; DROP TABLE entries; --",
    "\N{ARABIC LETTER BEH}\N{PILE OF POO}\N{COMBINING ACUTE ACCENT}",
    "${1+1}{{1+1}}",
    "__proto__",
]
SCRIPTED = [
    "<script>alert('script')</script>",
    '"><img src=x onerror="alert(\'attribute\')">',
    "<svg onload=\"alert('svg')\"><script>alert('inside')</script></svg>",
    "'><svg><animate onbegin=alert('begun') attributeName=x dur=1s>",
    "</title></bdi><iframe srcdoc=\"<script>parent.alert('frame')</script>\">",
    "javascript:alert('link')//",
]
TYPES = {".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}


def parts() -> dict[str, str]:
    return {path.name: path.read_text(encoding="utf-8") for path in sorted(PAGE.iterdir())}


def test_every_part_is_served_and_none_is_elsewhere(client: TestClient) -> None:
    index = client.get("/")
    assert index.status_code == 200
    assert index.headers["content-type"].startswith("text/html")
    named = set()
    for text in parts().values():
        named |= set(re.findall(r"""(?:\b(?:href|src)=|} from |url\()["']([^"']+)["']""", text))
    elsewhere = {name for name in named if not name.startswith(("/page/", "/swagger/", "#"))}
    assert elsewhere == {"/docs", "/openapi.json"}
    served = parts().keys() - {"index.html", "docs.html"}
    assert {name.removeprefix("/page/") for name in named if name.startswith("/page/")} == served
    for name in served:
        answer = client.get(f"/page/{name}")
        assert answer.status_code == 200
        assert answer.headers["content-type"].startswith(TYPES[Path(name).suffix])


def test_no_text_becomes_markup_and_no_host_is_named() -> None:
    for name, text in parts().items():
        assert not re.search(
            r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\b|new Function", text
        ), name
        assert not re.search(r"<style|\sstyle=|\son\w+=", text), name
        assert not re.findall(r"https?://(?!www\.w3\.org/2000/svg)", text), name


class Live(NamedTuple):
    """A service that listens on a port of its own."""

    address: str
    service: Service


@pytest.fixture
def live(tmp_path: Path) -> Iterator[Callable[..., Live]]:
    """Start a service over a model; all are stopped at the end."""
    running: list[tuple[uvicorn.Server, threading.Thread]] = []

    def start(model: Model, keys: KeyRing | None = None) -> Live:
        database = open_database(str(tmp_path / f"{len(running)}.sqlite"))
        service = Service(model, database, limits=PATIENT)
        app = create_app(service, keys=keys)
        server = uvicorn.Server(uvicorn.Config(app, port=0, ws="none", log_config=None))
        thread = threading.Thread(target=server.run)
        thread.start()
        running.append((server, thread))
        wait_until(lambda: server.started, between=0.01)
        return Live(f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}", service)

    yield start
    for server, thread in running:
        server.should_exit = True
        thread.join()


class Visitor:
    """Somebody with a browser profile of their own, and what their page said and asked for."""

    def __init__(self, browser: Any, address: str, **profile: Any) -> None:
        self.context = browser.new_context(reduced_motion="reduce", **profile)
        self.context.set_default_timeout(1000 * PATIENCE)
        self.address = address
        self.page = self.context.new_page()
        self.said: list[str] = []
        self.asked: list[str] = []
        self.page.add_init_script(
            "violations = []; addEventListener('securitypolicyviolation', one => violations.push(one.blockedURI));"
        )
        self.page.on("console", lambda message: self.said.append(message.text))
        self.page.on("pageerror", lambda error: self.said.append(str(error)))
        self.page.on("request", lambda request: self.asked.append(request.url))
        self.page.on("dialog", self._on_dialog)

    def _on_dialog(self, dialog: Any) -> None:
        self.said.append(dialog.message)
        dialog.dismiss()

    def arrive(self, view: str = "") -> None:
        self.page.goto(f"{self.address}/{view}")

    def card(self, number: int, inside: str = "found") -> Any:
        return self.page.locator(f"#{inside} .card[data-column]").nth(number)

    def rate(self, number: int, level: int, inside: str = "found") -> str:
        """Rate the card in a place of a list, and wait for the new list; return its column."""
        column: str = self.card(number, inside).get_attribute("data-column")
        with (
            self.page.expect_response(
                lambda answer: answer.request.method == "PATCH" and answer.ok
            ),
            # the first of two requests: the list is shown with it, and then why
            self.page.expect_response(
                lambda answer: (
                    answer.url.endswith("/v1/recommend")
                    and "reasons" not in answer.request.post_data_json
                )
            ),
        ):
            self.card(number, inside).locator(".level").nth(level - 1).click()
        self.page.wait_for_function("() => !document.querySelector('#best[aria-busy]')")
        return column

    def best(self, without: str = "") -> list[str]:
        """Wait until the list is there and still, without a column; return its columns."""
        ready = """without => {
            const list = document.getElementById("best"), cards = [...list.querySelectorAll("[data-column]")];
            const stays = cards.some(card => card.dataset.column === without);
            return cards.length > 0 && !stays && !list.hasAttribute("aria-busy");
        }"""
        self.page.wait_for_function(ready, arg=without)
        found: list[str] = self.page.eval_on_selector_all(
            "#best .card", "cards => cards.map(card => card.dataset.column)"
        )
        return found

    def own(self) -> dict[str, str]:
        """Return the entries that the page shows as the visitor's own."""
        shown = """lines => lines.map(
            line => [line.dataset.column, line.querySelector("[aria-pressed=true]").textContent]
        )"""
        return dict(self.page.eval_on_selector_all("#own .line", shown))

    def leave(self, *, said: tuple[str, ...] = ()) -> None:
        """Close the profile; nothing was said on the console but for this, and nobody else was
        asked."""
        self.context.close()
        assert [text for text in self.said if not any(known in text for known in said)] == []
        assert [url for url in self.asked if not url.startswith(f"{self.address}/")] == []


@pytest.mark.slow
def test_rated_kept_and_forgotten(
    browser: Any, live: Callable[..., Live], ordinal: OrdinalDMF
) -> None:
    address, service = live(ordinal)
    ann, bob = (Visitor(browser, address) for _ in range(2))
    for visitor in (ann, bob):
        visitor.arrive()
        visitor.card(0).wait_for()
    assert ann.page.locator("#best-state").inner_text().startswith("Your list begins")
    liked = ann.rate(0, 5)
    first, best_for_ann = ann.best(), ann.card(0, "best").locator(".number").inner_text()
    disliked = ann.rate(1, 1)
    assert bob.rate(0, 1) == liked
    bob.best()
    assert bob.card(0, "best").locator(".number").inner_text() < best_for_ann
    assert bob.card(0, "best").locator(".basis").inner_text() == "from 1 entry"
    assert ann.card(0, "best").locator(".basis").inner_text() == "from 2 entries"
    fits = "element => element.scrollWidth <= element.clientWidth"
    assert ann.card(0, "best").locator(".value").evaluate(fits)
    rated = ann.rate(0, 4, inside="best")
    changed = ann.best(without=rated)
    assert changed != first
    assert ann.own() == {liked: "5", disliked: "1", rated: "4"}
    assert bob.own() == {liked: "1"}

    ann.page.reload()
    assert ann.best() == changed
    assert ann.own() == {liked: "5", disliked: "1", rated: "4"}
    assert ann.page.locator("#own time:visible").count() == 3
    ann.card(0, inside="best").locator(".why").click()
    effects = ann.card(0, inside="best").locator(".reasons tbody tr")
    effects.first.wait_for()
    assert effects.count() == 3

    n_rows = service.current.describe().n_rows
    ann.page.click("#forget")
    ann.page.click("#forget-now")
    ann.page.locator("#best-state .state").wait_for()
    ann.page.reload()
    ann.card(0).wait_for()
    assert (ann.own(), ann.page.locator("#best .card").count()) == ({}, 0)
    assert bob.own() == {liked: "1"}
    assert service.current.describe().n_rows == n_rows - 1
    for visitor in (ann, bob):
        visitor.leave()


@pytest.mark.slow
def test_a_dismissed_column_leaves_the_list_until_that_is_taken_back(
    browser: Any, live: Callable[..., Live], als: ALS
) -> None:
    ann = Visitor(browser, live(als).address)
    ann.arrive()
    ann.card(0).wait_for()
    ann.rate(0, 5)
    before = ann.best()
    ann.card(0, inside="best").get_by_role("button", name="Not interested").click()
    after = ann.best(without=before[0])
    assert after[:-1] == before[1:]
    ann.page.reload()
    assert ann.best() == after
    ann.card(0, inside="best").get_by_role("button", name="Not interested").click()
    assert ann.best(without=after[0])[:-1] == after[1:]
    ann.page.get_by_role("button", name="Undo").click()
    ann.page.locator(f'#best [data-column="{after[0]}"]').wait_for()
    assert ann.best() == after
    ann.leave()


@pytest.mark.slow
def test_recommendations_are_filtered_by_a_feature(
    browser: Any, live: Callable[..., Live], featured: Model
) -> None:
    address, service = live(featured)
    ann = Visitor(browser, address)
    ann.arrive()
    ann.card(0).wait_for()
    assert ann.page.locator("#best-filter").is_hidden()
    liked = ann.rate(0, 5)
    guest = service.current.model.fold_in([liked], [5])
    assert ann.best() == guest.recommend(8).labels.tolist()

    def expect(where: dict[str, Any]) -> None:
        wanted = guest.recommend(8, where=where).labels.tolist()
        listed = "cards => cards.map(card => card.dataset.column)"
        ann.page.wait_for_function(
            f"wanted => ({listed})([...document.querySelectorAll('#best .card')]).join() === wanted",
            arg=",".join(wanted),
        )

    ann.page.get_by_label("Feature").select_option("genre")
    ann.page.get_by_label("genre", exact=True).select_option("b")
    expect({"genre": {"any": ["b"]}})
    ann.page.get_by_label("Feature").select_option("year")
    ann.page.get_by_label("year from").fill("1990")
    expect({"year": {"min": 1990}})
    ann.page.get_by_label("year to").fill("1980")
    ann.page.get_by_text("Nothing is left").wait_for()
    ann.page.get_by_label("Feature").select_option("")
    expect({})
    ann.leave()


@pytest.mark.slow
def test_by_keyboard_in_every_look(
    browser: Any, live: Callable[..., Live], ordinal: OrdinalDMF
) -> None:
    visitor = Visitor(browser, live(ordinal).address, viewport={"width": 1360, "height": 900})
    visitor.arrive()
    visitor.card(0).wait_for()
    keyboard, page = visitor.page.keyboard, visitor.page
    column = visitor.card(2).get_attribute("data-column")
    keyboard.press("/")
    keyboard.type(column[:-1].upper())
    page.wait_for_function(
        "() => document.querySelectorAll('#found .card[data-column]').length === 1"
    )
    for key in ("ArrowDown", "End", "ArrowLeft", "Enter"):
        keyboard.press(key)
    visitor.best()
    assert visitor.own() == {column: "4"}
    assert "Recommendations are new" in page.locator("#said").inner_text()
    backgrounds = []
    for look in ("light", "dark"):
        page.emulate_media(color_scheme=look)
        backgrounds.append(page.evaluate("getComputedStyle(document.body).backgroundColor"))
    assert backgrounds[0] != backgrounds[1]
    for view in ("you", "operator"):
        page.click(f"#tab-{view}")
        for width in (1360, 900, 360):
            page.set_viewport_size({"width": width, "height": 800})
            assert page.evaluate("document.documentElement.scrollWidth") <= width, (view, width)
    page.locator("#operator .facts").first.wait_for()
    assert "1, 2, 3, 4, 5" in page.locator("#operator .facts").inner_text()  # the levels
    shown = page.locator("#operator .tiles").inner_text()
    assert re.search(r"entries learned\s+1\b|1\s+entries learned", shown)
    page.focus("#tab-operator")
    keyboard.press("ArrowLeft")
    page.locator("#you").wait_for()  # a view follows its address, which takes a moment
    unnamed = """controls => controls.filter(
        one => !one.textContent && !one.ariaLabel && !one.labels?.length && !one.hidden
    ).map(one => one.outerHTML)"""
    assert page.eval_on_selector_all("button, input", unnamed) == []
    visitor.leave()


@pytest.mark.slow
def test_markup_in_ids_titles_and_features_stays_text(
    browser: Any, live: Callable[..., Live], ratings: ObservedMatrix
) -> None:
    n_hostile, (rows, columns, values) = (
        len(SCRIPTED),
        (part.tolist() for part in ratings.entries()),
    )
    row_names = dict(zip(ratings.row_labels.tolist(), SCRIPTED, strict=False))
    column_names = dict(zip(ratings.column_labels.tolist(), [*SCRIPTED, *HOSTILE], strict=False))
    rows, columns = (
        [row_names.get(one, one) for one in rows],
        [column_names.get(one, one) for one in columns],
    )
    matrix = ObservedMatrix.from_entries(rows, columns, values, scale=ratings.scale)
    people, films = matrix.row_labels.tolist(), matrix.column_labels.tolist()
    kinds = [SCRIPTED[number % n_hostile] for number in range(len(people))]
    model = ALS(latent_size=3, epochs=4, seed=0).fit(
        matrix,
        row_features=Features.from_columns(people, {SCRIPTED[1]: kinds}),
        column_features=Features.from_columns(
            films, {SCRIPTED[0]: kinds[: len(films)], SCRIPTED[2]: range(len(films))}
        ),
    )
    visitor = Visitor(browser, live(model).address)
    visitor.arrive()
    page = visitor.page
    visitor.card(0).wait_for()
    for name in [*SCRIPTED, *HOSTILE[:3]]:
        page.fill("#search", name)
        page.wait_for_function(
            "name => document.querySelector('#found .card')?.dataset.column === name", arg=name
        )
        assert visitor.card(0).locator("h3 .title").inner_text() == name
        assert any(kind in visitor.card(0).locator(".note").inner_text() for kind in SCRIPTED)
        assert visitor.rate(0, 5) == name
    row = page.evaluate("() => localStorage.getItem('deepmf.row')")
    others = {"entries": [{"column": name, "value": 5} for name in HOSTILE[3:]]}
    assert visitor.context.request.patch(f"{visitor.address}/v1/rows/{row}/entries", data=others).ok
    about = {"features": {SCRIPTED[1]: SCRIPTED[2]}}
    assert visitor.context.request.put(f"{visitor.address}/v1/rows/{row}/features", data=about).ok
    page.reload()
    visitor.best()
    assert visitor.own() == dict.fromkeys([*SCRIPTED, *HOSTILE], "5")
    page.set_viewport_size({"width": 360, "height": 700})
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
    visitor.card(0, inside="best").locator(".why").click()
    lines = visitor.card(0, inside="best").locator(".reasons tbody tr")
    lines.first.wait_for()
    assert [SCRIPTED[1], SCRIPTED[2]] in [
        lines.nth(at).locator("th, .given").all_inner_texts() for at in range(lines.count())
    ]
    page.click("#tab-operator")
    page.locator("#operator .facts").first.wait_for()
    foreign = "document.querySelectorAll('main script, main img, main iframe, main animate, svg svg').length"
    assert page.evaluate(foreign) == 0
    assert (page.evaluate("violations"), visitor.said) == ([], [])
    # Were markup ever to get in, the policy would keep it from running, and this test would know.
    page.evaluate("text => { document.querySelector('main').innerHTML = text; }", SCRIPTED[1])
    page.wait_for_function("() => violations.length > 0")
    visitor.leave(said=("Content Security Policy", "404"))


@pytest.mark.slow
def test_names_and_the_words_of_the_table_are_shown(
    browser: Any, live: Callable[..., Live], ratings: ObservedMatrix
) -> None:
    titles = {column: f"Title of {column}" for column in ratings.column_labels.tolist()}
    matrix = ratings.with_form(TableForm("person_id", "film", "stars"))
    ann = Visitor(
        browser, live(ALS(latent_size=4, seed=0).fit(matrix, column_names=titles)).address
    )
    ann.arrive()
    ann.card(0).wait_for()
    column = ann.rate(0, 5)
    assert ann.card(0).locator("h3 .title").inner_text() == titles[column]
    best = ann.best()
    assert ann.card(0, "best").locator("h3 .title").inner_text() == titles[best[0]]
    assert titles[column] in ann.page.locator("#own").inner_text()
    assert "films" in ann.page.locator("#lead").inner_text()
    assert ann.page.locator("#search").get_attribute("placeholder") == "Search films"
    ann.page.fill("#search", f"title of {best[0]}")
    ann.page.wait_for_function(
        "() => document.querySelectorAll('#found .card[data-column]').length === 1"
    )
    assert ann.card(0).get_attribute("data-column") == best[0]
    ann.page.click("#tab-operator")
    ann.page.locator("#operator .facts").first.wait_for()
    shown = ann.page.locator("#operator .facts").inner_text()
    assert "people" in shown and "films" in shown
    assert not {"rows", "columns"} & set(shown.split())
    ann.leave()


@pytest.mark.slow
def test_features_are_shown(browser: Any, live: Callable[..., Live], featured: Model) -> None:
    visitor = Visitor(browser, live(featured).address)
    visitor.arrive()
    visitor.card(0).wait_for()
    column = visitor.rate(0, 5)
    features = visitor.context.request.get(
        f"{visitor.address}/v1/columns/{column}/features"
    ).json()["features"]
    note = visitor.card(0).locator(".note").inner_text()
    assert note.endswith(f" · {features['genre']} · {features['year']:.0f}")
    visitor.best()
    row = visitor.page.evaluate("() => localStorage.getItem('deepmf.row')")
    about = {"features": {"group": "low", "age": 30}}
    assert visitor.context.request.put(f"{visitor.address}/v1/rows/{row}/features", data=about).ok
    visitor.page.reload()
    visitor.best()
    visitor.card(0, inside="best").locator(".why").click()
    lines = visitor.card(0, inside="best").locator(".reasons tbody tr")
    lines.first.wait_for()
    shown = [lines.nth(at).locator("th, .given").all_inner_texts() for at in range(lines.count())]
    assert shown[0] == [column, "5"] and sorted(shown[1:]) == [["age", "30"], ["group", "low"]]
    assert (
        "entry or feature" in visitor.card(0, inside="best").locator(".reasons thead").inner_text()
    )
    visitor.leave()


@pytest.mark.slow
def test_real_values_numbers_and_a_key(browser: Any, live: Callable[..., Live]) -> None:
    model = ALS(latent_size=3, seed=0).fit(
        generate(40, 30, density=0.4, levels=None, named=False, seed=0).matrix
    )
    keys = KeyRing([ApiKey(role, role, hash_key(f"the {role} key")) for role in ROLES])
    visitor = Visitor(browser, live(model, keys).address)
    page = visitor.page
    visitor.arrive()

    def give(key: str) -> None:
        page.locator("#key-dialog[open]").wait_for()
        page.fill("#key", key)
        with page.expect_response(lambda answer: "/v1/" in answer.url):
            page.keyboard.press("Enter")

    give("wrong")
    give("the read key")
    visitor.card(0).wait_for()
    column = visitor.card(0).get_attribute("data-column")
    visitor.card(0).locator("input").press("Home")
    visitor.card(0).locator(".rate").click()
    page.get_by_role("button", name="Use another key").click()
    give("the write key")
    assert column not in visitor.best()
    page.reload()
    visitor.best()
    assert page.locator("#own .line").count() == 1
    assert is_visitor(int(page.evaluate("() => localStorage.getItem('deepmf.row')")))
    assert page.locator("#own .rate").inner_text().startswith("Rated −")
    page.click("#own .dismiss")
    page.locator("#best-state .state").wait_for()
    visitor.leave(said=("401", "403"))


@pytest.mark.slow
def test_the_docs_page_tries_a_route_with_a_key(
    browser: Any, live: Callable[..., Live], als: ALS
) -> None:
    keys = KeyRing([ApiKey("reader", "read", hash_key("the read key"))])
    visitor = Visitor(browser, live(als, keys).address)
    visitor.arrive("docs")
    page = visitor.page
    page.click(".authorize")
    page.fill(".auth-container input", "the read key")
    page.click(".auth-btn-wrapper .authorize")
    page.click(".btn-done")
    route = page.locator(".opblock", has_text="/v1/recommend")
    route.locator(".opblock-summary").click()
    row = als.row_labels_[0]
    route.locator("textarea").first.fill(json.dumps({"row": row, "n": 2}))
    with page.expect_response("**/v1/recommend") as answer:
        route.locator(".execute").click()
    assert answer.value.json()["row"] == row
    route.locator(".live-responses-table").wait_for()
    assert page.evaluate("violations") == []
    visitor.leave()


@pytest.mark.slow
def test_what_fails_is_said_and_taken_back(
    browser: Any, live: Callable[..., Live], als: ALS
) -> None:
    visitor = Visitor(browser, live(als).address)
    visitor.arrive()
    visitor.card(0).wait_for()
    refused = {
        "status": 409,
        "json": {"error": {"code": "cannot", "message": "this <b>cannot</b> be"}},
    }
    visitor.page.route("**/entries", lambda route: route.fulfill(**refused))
    visitor.card(0).locator(".level").first.click()
    visitor.page.locator(".alert").wait_for()
    assert visitor.page.locator(".alert p").inner_text() == "This <b>cannot</b> be"
    assert visitor.own() == {}
    assert visitor.card(0).locator("[aria-pressed=true]").count() == 0
    visitor.page.unroute("**/entries")
    # Another worker, which has not yet seen the write.
    late = {
        "status": 404,
        "json": {"error": {"code": "unknown_row", "message": "row 'x' is not known"}},
    }
    visitor.page.route("**/v1/recommend", lambda route: route.fulfill(**late), times=2)
    visitor.page.get_by_role("button", name="Try again").click()
    visitor.best()
    assert len(visitor.own()) == 1
    visitor.leave(said=("409", "404"))


@pytest.mark.slow
def test_interactions_are_picked_by_one_button(browser: Any, live: Callable[..., Live]) -> None:
    address, _ = live(ALS(seed=0).fit(make_clicks()))
    ann = Visitor(browser, address)
    ann.arrive()
    ann.card(0).wait_for()
    assert ann.card(0).locator(".level").count() == 1
    clicked = ann.rate(0, 1)
    assert own_kind(f"u{clicked[1:]}", ann.best()[:3])
    assert "%" in ann.card(0, "best").locator(".number").inner_text()
    assert ann.card(0, "best").locator("svg.distribution").is_visible()
    assert list(ann.own()) == [clicked]
    words = ann.page.locator("#you").inner_text()
    assert "Pick a few" in words and not re.search(r"\brate", words, re.IGNORECASE)
    assert not ann.card(0).locator("svg.distribution").is_visible()  # a search predicts no presence
    button = ann.page.locator("#own .level")
    # its text is not cut off
    assert button.evaluate("button => button.scrollWidth <= button.clientWidth")
    ann.leave()
