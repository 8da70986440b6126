"""The page in a browser: what a reader does with it, by mouse and keyboard, wide and narrow, light, dark, on paper."""

import json
from dataclasses import replace

import numpy as np
import pytest

from mpibayes.hpc.crosscat.report.heat_map import heat_map
from mpibayes.hpc.crosscat.report.profiles import ColumnProfile
from mpibayes.hpc.crosscat.report.traits import MANY_CLUSTERS, MANY_COLUMNS
from mpibayes.hpc.report.document import Figure, Section
from mpibayes.hpc.report.page import page as module
from mpibayes.hpc.report.page.page import page
from mpibayes.text import visible
from tests.page.browser import PROGRAM, Browser
from tests.page.made import HOSTILE, report

pytestmark = pytest.mark.skipif(
    PROGRAM is None, reason="there is no Chromium here (Debian, Ubuntu: apt-get install chromium)"
)
FIRST = "#clusters-0 tbody tr"


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    made = Browser(tmp_path_factory.mktemp("chromium"))
    yield made
    made.close()


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("pages")


@pytest.fixture(scope="module")
def plain(folder):
    return written(folder / "plain.html", report(n_clusters=120, n_columns=30, n_numeric=10))


@pytest.fixture(scope="module")
def hostile(folder):
    return written(folder / "hostile.html", report(n_clusters=16, n_columns=16, levels=16, names=HOSTILE))


def written(path, made):
    path.write_text(page(made), encoding="utf-8")
    return path


def count(browser, selector):
    return browser.run(f"document.querySelectorAll({json.dumps(selector)}).length")


def texts(browser, selector):
    return browser.run(f"[...document.querySelectorAll({json.dumps(selector)})].map((e) => e.textContent)")


def test_a_table_is_sorted_searched_and_made_as_it_is_looked_at(browser, plain):
    browser.open(plain)
    assert count(browser, FIRST) < 120
    heading = "document.querySelectorAll('#clusters-0 thead button')[2]"
    for sorted_, state in ((-1, "descending"), (1, "ascending")):
        browser.run(f"{heading}.click()")
        assert browser.run(f"{heading}.parentElement.getAttribute('aria-sort')") == state
        sizes = [int(t.replace(",", "")) for t in texts(browser, f"{FIRST} td:nth-child(3)")]
        assert sizes == sorted(sizes, key=lambda n: sorted_ * n) and len(sizes) >= 40
    down = "document.querySelector('#clusters-0 .scroll').scrollTo(0, 1e6)"
    assert browser.until(f"{down}, document.querySelectorAll('{FIRST}').length === 120")
    field = "document.querySelector('#clusters-0 input')"
    browser.run(f"{field}.value = 'cluster OF 11'; {field}.dispatchEvent(new Event('input'))")
    assert texts(browser, f"{FIRST} td:nth-child(2)") and count(browser, FIRST) == 11  # 11, 110 to 119
    assert texts(browser, "#clusters-0 output") == ["11 of 120"]
    assert browser.messages == []


def test_a_cluster_by_keyboard(browser, plain):
    browser.open(plain)
    browser.run(f"document.querySelector('{FIRST} button').focus()")
    browser.press("Enter")
    assert browser.until("document.querySelector('dialog').open")
    assert texts(browser, "#details-title") == ["cluster of 0"] and count(browser, "dialog .column") >= 25
    browser.press("ArrowRight")
    assert texts(browser, "#details-title") == ["cluster of 1"]
    browser.press("ArrowLeft")
    browser.press("ArrowLeft")
    assert texts(browser, "#details-title") == ["cluster of 119"] and browser.run("location.hash") == "#clusters-0/120"
    far = [float(t) for t in texts(browser, "dialog .column > div:first-child span")]
    assert far == sorted(far, reverse=True) and len(far) == 30
    browser.press("Escape")
    assert browser.until("!document.querySelector('dialog').open && location.hash === ''")
    browser.open(f"{plain}#clusters-0/7")
    assert browser.until("document.querySelector('dialog').open") and texts(browser, "#details-title") == [
        "cluster of 6"
    ]
    assert browser.messages == []


def test_links_and_matrix(browser, plain):
    browser.open(plain)
    places = browser.run("[...document.querySelectorAll('nav a')].map((a) => !!document.querySelector(a.hash))")
    assert len(places) == 4 and all(places)
    browser.run("document.querySelectorAll('nav a')[1].click()")
    assert browser.until(
        "document.querySelector('#views canvas') && document.querySelector('#views canvas').width > 100"
    )
    browser.run("document.querySelector('#views canvas').focus()")
    browser.press("ArrowDown")
    assert browser.until(
        "/column 1 .* with column 0 .*: [\\d.]+ %/.test(document.querySelector('.readout').textContent)"
    )
    assert browser.messages == []


def test_a_slider_shows_one_table_at_a_time(browser, plain):
    browser.open(plain)
    browser.run("document.getElementById('groups').scrollIntoView()")
    assert browser.until("document.querySelectorAll('#groups tbody tr').length === 3")
    slider = "document.querySelector('#groups input[type=range]')"
    assert browser.run(f"{slider}.getAttribute('aria-valuetext')").startswith("3 groups")
    browser.run(f"{slider}.focus()")
    browser.press("ArrowLeft")
    assert browser.until("document.querySelectorAll('#groups tbody tr').length === 2")
    browser.run("document.querySelectorAll('#groups .push')[1].click()")
    assert browser.until("document.querySelectorAll('#groups tbody tr').length === 3")
    assert browser.run("document.querySelector('#groups p').className") == "level-good"
    browser.run("document.querySelector('#groups tbody button').click()")
    assert browser.run("document.querySelector('dialog').open")
    assert texts(browser, "#details-title")[0].startswith("cluster of 0") and browser.messages == []


def test_hostile_names_do_nothing(browser, hostile):
    browser.open(hostile)
    shown = "\n".join(texts(browser, f"{FIRST} td:nth-child(2)"))
    assert [name for name in HOSTILE if visible(name) not in shown] == []
    browser.run(f"document.querySelectorAll('{FIRST} button')[0].click()")
    inside = "\n".join(texts(browser, "dialog .column"))
    assert sum(visible(name) in inside for name in HOSTILE) >= 10
    assert browser.run("window.owned") is None and count(browser, "main img, dialog img, main script") == 0
    assert browser.messages == [] and {url.split(":")[0] for url in browser.asked} <= {"file", "data"}


@pytest.mark.thorough
def test_a_page_that_does_not_escape_is_seen(browser, folder, monkeypatch):
    """The policy of the page stops what its texts would have run; the same checks see it."""
    monkeypatch.setattr("mpibayes.hpc.report.page.markup.escaped", str)
    path = written(folder / "raw.html", report(names=["<img src=x onerror=window.owned=1>"]))
    browser.open(path)
    assert count(browser, "main img") > 0
    assert browser.complains() and browser.run("window.owned") is None
    monkeypatch.undo()
    monkeypatch.setattr(module, "as_json", lambda data: json.dumps(data, ensure_ascii=False))
    browser.open(written(folder / "raw.html", report(names=["</script><script>window.owned=1</script>"])))
    assert count(browser, FIRST) == 0 and browser.complains()


@pytest.mark.parametrize("width", [1280, 390])
def test_it_fits(browser, plain, hostile, width):
    for path in (plain, hostile):
        browser.open(path, width)
        browser.run("scrollTo(0, 1e6)")
        assert browser.run("document.documentElement.scrollWidth <= innerWidth")
        browser.run(f"document.querySelector('{FIRST} button').click()")
        assert browser.run("document.querySelector('dialog').getBoundingClientRect().width <= innerWidth")
        assert browser.run(
            "document.querySelector('dialog').scrollWidth <= document.querySelector('dialog').clientWidth"
        )
    assert browser.messages == []


def test_the_menu_is_whole_and_warnings_have_the_width(browser, folder):
    made = report()
    sections = [Section(f"view-{i}", f"Groups of view {i}: more", ["words"]) for i in range(16)]
    path = written(folder / "menu.html", replace(made, sections=sections))
    for width in (1280, 390):
        browser.open(path, width)
        assert browser.run("document.querySelector('nav').scrollWidth <= document.querySelector('nav').clientWidth")
        ends = "[...document.querySelectorAll('nav a')].every((a) => a.getBoundingClientRect().right <= innerWidth)"
        assert browser.run(ends) and browser.run("document.documentElement.scrollWidth <= innerWidth")
        wide = "document.querySelector('.warnings').clientWidth / document.querySelector('.answers').clientWidth"
        assert browser.run(wide) > 0.95
    assert browser.run("document.querySelector('nav').scrollHeight <= document.querySelector('nav').clientHeight")


@pytest.mark.thorough
def test_letters_of_a_picture_can_be_read(browser, folder, pictures):
    """Profiles of as many clusters and columns as a picture has, the names of whose levels take several lines."""
    g = np.random.default_rng(2)
    levels = tuple(f"very long level number {v}" for v in range(4))
    columns = []
    for i in range(MANY_COLUMNS):
        p, one = g.dirichlet(np.ones(4), MANY_CLUSTERS).T, np.ones(MANY_CLUSTERS)
        columns.append(
            ColumnProfile(
                f"column {i}", f"column {i}", "categorical", one, 0 * one, 0 * one, 0.0, 1.0, np.zeros((0, 0)),
                np.full(4, 0.25), levels, p,
            )
        )  # fmt: skip
    names = ["column 1 = very long level number 2 71 %, column 3 = very long level number 1"] * MANY_CLUSTERS
    image = heat_map(columns, np.arange(MANY_CLUSTERS, 0, -1), names, 210, "Profiles", MANY_CLUSTERS, columns)
    shown = Section("picture", "Picture", [Figure("profiles.png", image, "Profiles of clusters")])
    path = written(folder / "picture.html", replace(report(), sections=[shown]))
    least = """(() => { const svg = document.querySelector('.paper svg');
        const scale = svg.getBoundingClientRect().width / svg.viewBox.baseVal.width;
        const drawn = [...svg.querySelectorAll('text')].map((t) => parseFloat(getComputedStyle(t).fontSize));
        return Math.min(...drawn) * scale;
    })()"""
    for width in (1280, 390):
        browser.open(path, width)
        assert browser.run(least) >= 7.5  # pixels
        assert browser.run("document.documentElement.scrollWidth <= innerWidth")


def test_dark_and_on_paper(browser, plain):
    def lightness():
        rgb = browser.run("getComputedStyle(document.body).backgroundColor.match(/\\d+/g).map(Number)")
        return sum(rgb) / 765

    browser.open(plain, dark=True)
    assert lightness() < 0.2
    browser.open(plain)
    assert lightness() > 0.9
    assert browser.paper().startswith(b"%PDF") and browser.messages == []


def test_500_clusters_of_500_columns(browser, folder):
    path = written(folder / "large.html", report(n_clusters=500, n_columns=500, n_numeric=100))
    assert browser.open(path) < 30.0  # 1 to 2 s, on a machine that does nothing else
    assert count(browser, FIRST) < 200  # rows are made as they come into sight
    browser.run(f"document.querySelector('{FIRST} button').click()")
    assert 40 <= count(browser, "dialog .column") < 300
    browser.run("document.querySelector('dialog').scrollTo(0, 1e6)")
    assert browser.until("document.querySelectorAll('dialog .column').length >= 100")
    assert browser.messages == []


def test_one_more_level_and_a_share_that_can_be_read(browser, folder):
    """A count of one is no plural; the bar of a share is below its number."""
    browser.open(written(folder / "few.html", report(n_clusters=5, n_columns=4, n_numeric=0, levels=4)))
    browser.run(f"document.querySelector('{FIRST} button').click()")
    assert browser.until("document.querySelector('dialog').open")
    assert set(texts(browser, "dialog summary")) == {"1 more level"}
    look = browser.run("getComputedStyle(document.querySelector('.share')).backgroundSize")
    line = browser.run("parseFloat(getComputedStyle(document.querySelector('.share')).paddingBottom)")
    heights = [float(size.split()[-1].removesuffix("px")) for size in look.split(",")]
    assert max(heights) <= line
