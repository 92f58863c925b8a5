"""Take the screenshots of docs/pictures: the upper part of a report, and the page of the service,
also for a guest with a single rating.

Run `python tools/screenshots.py` after their looks have changed. It needs Chromium (Debian's
package `chromium`).
"""

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from playwright.sync_api import sync_playwright

from deepmf import ALS, ObservedMatrix
from deepmf.data import split_areas
from deepmf.datasets import generate
from deepmf.report import write_report

PICTURES = Path(__file__).parents[1] / "docs" / "pictures"
FLAGS = ("--headless", "--no-sandbox", "--disable-gpu")
RATINGS = (5, 2, 4, 1, 3, 5)  # of the columns that the page lists first


def show_report(page: Any, folder: Path) -> None:
    """Open a report on generated ratings and take its part down to the errors by area."""
    ratings = generate(1500, 700, density=0.1, noise=0.6, seed=0).matrix
    split = split_areas(ratings, new_rows=0.2, new_columns=0.2, seed=0)
    model = ALS(seed=0).fit(split.train, split.validation).extend(split.extension)
    parts = zip(*(part.entries() for part in split.test.values()), strict=True)
    rows, columns, values = (np.concatenate(part) for part in parts)
    test = ObservedMatrix.from_entries(rows, columns, values, ratings.scale)
    write_report(model, test, folder / "report.html", title="Our films")
    page.set_viewport_size({"width": 1040, "height": 1780})
    page.goto((folder / "report.html").as_uri())
    page.screenshot(path=PICTURES / "report.png")


def show_page(page: Any) -> None:
    """Serve the demo, rate a few columns, open the reasons of the first recommendation and take the
    page."""
    command = [sys.executable, "-m", "deepmf", "serve", "--demo", "--port", "8799"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as server:
        try:
            assert server.stdout is not None and "serving" in server.stdout.readline()
            page.goto("http://127.0.0.1:8799/")
            for number, level in enumerate(RATINGS):
                if number == 1:
                    show_guest(page)
                with page.expect_response(lambda response: response.request.method == "PATCH"):
                    page.locator("#found .card[data-column]").nth(number).locator(".level").nth(
                        level - 1
                    ).click()
            page.locator("#best:not([aria-busy]) button.why").first.click()
            page.wait_for_timeout(2000)  # animations
            page.mouse.move(0, 0)
            page.evaluate("scrollTo(0, 0)")
            page.screenshot(path=PICTURES / "serve.png")
        finally:
            server.terminate()


def show_guest(page: Any) -> None:
    """Take the first recommendations for a guest with a single rating."""
    page.locator("#best:not([aria-busy]) .basis").first.wait_for()
    page.wait_for_timeout(2000)  # animations
    page.mouse.move(0, 0)
    first, third = (page.locator("#best .card").nth(place).bounding_box() for place in (0, 2))
    height = third["y"] + third["height"] - first["y"]
    margin = 16  # pixels beside the cards
    clip = {"x": first["x"] - margin, "y": first["y"], "width": first["width"] + 2 * margin}
    page.screenshot(path=PICTURES / "guest.png", clip=clip | {"height": height}, full_page=True)


def main() -> None:
    """Take all screenshots."""
    with sync_playwright() as started, tempfile.TemporaryDirectory() as folder:
        browser = started.chromium.launch(executable_path=shutil.which("chromium"), args=[*FLAGS])
        show_report(browser.new_page(), Path(folder))
        show_page(
            browser.new_page(viewport={"width": 1320, "height": 860}, device_scale_factor=1.5)
        )
        browser.close()


if __name__ == "__main__":
    main()
