"""The page in a real browser: it opens from disk, its controls work, and nothing complains."""

import json

import pytest

from vem.report import write_report

from .chromium import Browser, find_chromium

COMPLAINTS = ("Runtime.exceptionThrown", "Runtime.consoleAPICalled", "Log.entryAdded")


@pytest.fixture
def browser(tmp_path):
    binary = find_chromium()
    if binary is None:
        pytest.skip("no Chromium or Chrome is installed")
    with Browser(binary, tmp_path / "profile") as browser:
        for domain in ("Page", "Runtime", "Log", "Network"):
            browser.call(f"{domain}.enable")
        browser.call(
            "Network.emulateNetworkConditions", offline=True, latency=0, downloadThroughput=0, uploadThroughput=0
        )
        yield browser


@pytest.mark.slow
def test_the_page_works(browser, trained, tmp_path):
    report = write_report([trained["vem"], trained["bc"]], tmp_path / "out")
    browser.open(report.page.resolve().as_uri())
    assert browser.run("document.documentElement.dataset.ready") == "yes"

    def visible(selector: str) -> int:
        script = f"[...document.querySelectorAll({json.dumps(selector)})].filter(e => e.getClientRects().length).length"
        return browser.run(script)

    def change(selector: str, script: str, event: str = "change") -> None:
        browser.run(
            f"(() => {{ const e = document.querySelector({json.dumps(selector)}); {script}; "
            f"e.dispatchEvent(new Event('{event}')); }})()"
        )

    # The slider goes from one landscape to the next, and side by side shows all.
    assert visible("#landscape figure") == 1
    assert browser.run("document.querySelector('#landscape output').textContent") == "vem, τ = 0.3"
    change("#landscape [data-slider]", "e.value = 1", "input")
    assert browser.run("document.querySelector('#landscape output').textContent") == "vem, τ = 0.7"
    assert visible('[data-figure="landscape-1"]') == 1
    assert visible('[data-figure="landscape-0"]') == 0
    change("#landscape [data-all]", "e.checked = true")
    assert visible("#landscape figure") == 2

    # Layers and series disappear and come back.
    for control, parts in (
        ('[data-layer="trajectories"]', '#landscape [id*="--layer-trajectories"]'),
        ('[data-layer="data"]', '#landscape [id$="--layer-data"]'),
        ('[data-series="1"]', '#curves [id*="--series-1-line"]'),
    ):
        shown = visible(parts)
        assert shown > 0, parts
        change(control, "e.checked = false")
        assert visible(parts) == 0
        change(control, "e.checked = true")
        assert visible(parts) == shown

    # One curve alone.
    total = visible("#curves figure")
    change("#curves select", "e.value = 'curve-value-loss'")
    assert visible("#curves figure") == 1
    change("#curves select", "e.value = ''")
    assert visible("#curves figure") == total > 3

    # A phone: nothing sticks out to the side.
    browser.call("Emulation.setDeviceMetricsOverride", width=360, height=740, deviceScaleFactor=2, mobile=True)
    assert browser.run("document.documentElement.scrollWidth") <= 360

    complaints = [event for event in browser.events if event["method"] in COMPLAINTS]
    assert complaints == []
    asked = [e["params"]["request"]["url"] for e in browser.events if e["method"] == "Network.requestWillBeSent"]
    assert all(address.startswith(("file:", "data:")) for address in asked)
