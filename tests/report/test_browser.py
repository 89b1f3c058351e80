"""The page in a real browser: it opens from disk, its controls work, and nothing complains."""

import shutil

import pytest

from vem.reports.report import write_report

NAMES = ("chromium", "chromium-browser", "google-chrome")
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


@pytest.fixture
def page():
    """An empty page of a headless browser that is offline, with what it asked for and what it complained about."""
    playwright = pytest.importorskip("playwright.sync_api")
    binary = next((found for name in NAMES if (found := shutil.which(name))), None)
    if binary is None:
        pytest.skip(f"none of {', '.join(NAMES)} is installed")
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=binary, headless=True, args=FLAGS)
        context = browser.new_context(offline=True)
        yield context.new_page()
        browser.close()


@pytest.mark.slow
def test_the_page_works(page, trained, tmp_path):
    report = write_report([trained["vem"], trained["bc"]], tmp_path / "out")
    complaints, asked = [], []
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("console", lambda message: complaints.append(message.text))
    page.on("request", lambda request: asked.append(request.url))
    page.goto(report.page.resolve().as_uri())
    assert page.locator("html").get_attribute("data-ready") == "yes"

    def visible(selector: str) -> int:
        return page.locator(selector).evaluate_all(
            "all => all.filter(e => e.getClientRects().length && e.checkVisibility()).length"
        )

    # The slider goes from one landscape to the next, and side by side shows all.
    output = page.locator("#landscape output")
    assert visible("#landscape figure") == 1
    assert output.inner_text() == "vem, τ = 0.3"
    page.locator("#landscape [data-slider]").fill("1")
    assert output.inner_text() == "vem, τ = 0.7"
    assert visible('[data-figure="landscape-1"]') == 1
    assert visible('[data-figure="landscape-0"]') == 0
    page.locator("#landscape [data-all]").check()
    assert visible("#landscape figure") == 2

    # Layers and series disappear and come back.
    for control, parts in (
        ('[data-layer="trajectories"]', '#landscape [id*="--layer-trajectories"]'),
        ('[data-layer="data"]', '#landscape [id$="--layer-data"]'),
        ('[data-series="1"]', '#scores [id*="--series-1-line"]'),
    ):
        shown = visible(parts)
        assert shown > 0, parts
        page.locator(control).uncheck()
        assert visible(parts) == 0
        page.locator(control).check()
        assert visible(parts) == shown

    # The page is short, and a link opens what is folded away.
    assert page.evaluate("document.documentElement.scrollHeight") < 5000
    assert visible("#curves figure") == 0
    page.locator('nav a[href="#curves"]').click()
    assert visible("#curves figure") > 3

    # Nothing sticks out to the side, folded or not, and tables are never cut.
    page.evaluate("document.querySelectorAll('details').forEach(part => { part.open = true; })")
    for width in (1280, 360):
        page.set_viewport_size({"width": width, "height": 740})
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        for box in page.locator("table").evaluate_all("all => all.map(table => table.getBoundingClientRect().right)"):
            assert box <= width

    assert complaints == []
    assert asked
    assert all(address.startswith(("file:", "data:")) for address in asked)
