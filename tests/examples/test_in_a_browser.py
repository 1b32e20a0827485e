"""Pages in headless Chromium: the widget answers clicks, and pages fit the width of a phone."""

import browser
import layout
import pytest

import graphattn as ga

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(bool(browser.missing()), reason=f"NO BROWSER: {browser.missing()}"),
]
PLAY = layout.HERE / "play" / "play.html"


@pytest.fixture(scope="module")
def driver():
    with browser.browser() as opened:
        yield opened


def test_a_click_on_the_widget_adds_an_edge_and_its_code_makes_that_graph(driver):
    from selenium.webdriver.common.action_chains import ActionChains

    browser.resize(driver, browser.SCREEN)
    driver.get(PLAY.as_uri())
    before = driver.find_element("id", "facts").text
    canvas = driver.find_element("id", "m")
    size = canvas.size["width"]
    # from the middle to row 5, column 25 of 32: a later token
    across, down = (round((cell + 0.5) / 32 * size - size / 2) for cell in (25, 5))
    ActionChains(driver).move_to_element_with_offset(canvas, across, down).click().perform()
    after = driver.find_element("id", "facts").text
    assert int(after.split()[0]) == int(before.split()[0]) + 1
    assert "it leaks" in after
    assert "it leaks" not in before
    values = {}
    exec(driver.find_element("id", "code").text, values)
    assert values["graph"].contains(5, 25)
    assert values["graph"].num_edges == int(after.split()[0])
    assert isinstance(values["graph"], ga.AttentionGraph)


def test_the_widget_fits_a_phone_and_planted_faults_are_found(driver, tmp_path):
    assert browser.narrow_faults(driver, PLAY) == []
    page = tmp_path / "page.html"
    page.write_text(
        '<meta name="viewport" content="width=device-width"><div style="width:900px">wide',
        encoding="utf-8",
    )
    assert any("pixels wide" in fault for fault in browser.narrow_faults(driver, page))
    page.write_text(
        '<meta name="viewport" content="width=device-width">'
        '<p style="width:3em;overflow-wrap:anywhere">unbreakableword',
        encoding="utf-8",
    )
    assert browser.narrow_faults(driver, page) == ["words break within: unbreakableword"]
