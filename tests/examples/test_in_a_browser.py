"""Pages in headless Chromium: they answer clicks and words, and fit the width of a phone."""

import re
import shutil
import sys

import browser
import layout
import patterns
import pytest
import shape_folders

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


def until(driver, condition):
    from selenium.webdriver.support.ui import WebDriverWait

    return WebDriverWait(driver, 20).until(lambda _: condition())


def pasted(driver):
    """What a reader gets who pastes."""
    from selenium.webdriver.common.keys import Keys

    driver.execute_script("document.body.append(document.createElement('textarea'))")
    area = driver.find_elements("tag name", "textarea")[-1]
    area.send_keys(Keys.CONTROL, "v")
    return area.get_property("value")


def test_the_field_above_the_patterns_finds_them_and_hides_the_others(
    driver, tmp_path, monkeypatch
):
    monkeypatch.setattr(patterns, "pictures", lambda named: "")
    named = [patterns.catalogue()[name] for name in ("full", "causal", "Swin", "kNN")]
    text = patterns.gallery(named).partition("```{toctree}")[0]
    text = re.sub(r"(?m)^```.*$", "", text)
    text = re.sub(r"(?m)^## (.*)$", r"</section><section><h2>\1</h2>", text)
    page = tmp_path / "zoo.html"
    page.write_text(f"<!doctype html><section><section>{text}</section></section>", "utf-8")
    (tmp_path / "_static").mkdir()
    shutil.copy(layout.HERE / "_static" / "filter.js", tmp_path / "_static")
    browser.resize(driver, browser.SCREEN)
    driver.get(page.as_uri())

    def seen(selector):
        found = driver.find_elements("css selector", selector)
        return [each.text.split("\n")[0] for each in found if each.is_displayed()]

    names, families = seen(".patterns > a"), seen("h2")
    assert len(names) == 4
    field = driver.find_element("css selector", ".filter input")
    field.send_keys("causal")
    assert seen(".patterns > a") == [name for name in names if name.startswith("causal")]
    assert len(seen("h2")) == 1
    assert seen("output") == ["1 of 4"]
    driver.refresh()  # the address has the words
    assert seen("output") == ["1 of 4"]
    driver.find_element("css selector", ".filter input").clear()
    driver.find_element("css selector", ".filter input").send_keys("shifted_nothing")
    assert seen("h2") == seen(".patterns > a") == []
    driver.get(page.as_uri())
    assert (seen(".patterns > a"), seen("h2")) == (names, families)


def test_the_demo_page_is_copied_whole_and_opens_its_reports(driver, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(layout.ROOT / "examples" / "demo")
    monkeypatch.delitem(sys.modules, "run", raising=False)
    from page import COMMON, render
    from play import SCRIPTS
    from run import Outcome, Pictures
    from scene import Scene

    graph = ga.graphs.causal(9)
    report = ga.verify(graph, backends=("dense",), gradients=False)
    drawn = Pictures(wide=b"", tall=b"", weights=b"", small=b"", caption="A caption.")
    scene = Scene(graph, features=None, claim=True, target=3)
    outcome = Outcome(SCRIPTS[0], scene, report, "dense", 1.0, drawn)
    page = tmp_path / "index.html"
    page.write_text(render([outcome], {}, 1.0, "versions"), encoding="utf-8")
    assert browser.narrow_faults(driver, page) == []
    browser.resize(driver, browser.SCREEN)
    table = driver.find_element("css selector", "pre.report")
    assert not table.is_displayed()
    driver.find_element("xpath", "//summary[contains(., 'EXACT')]").click()
    assert table.is_displayed()
    button = driver.find_element("css selector", ".copy")
    button.click()
    until(driver, lambda: button.text == "copied")
    program = pasted(driver)
    assert program == f"{SCRIPTS[0].code.strip()}\n\n{COMMON}\n"
    compile(program, "pasted", "exec")


def test_the_page_of_a_training_names_the_next_command_and_its_shapes_turn(driver, tmp_path):
    shape_folders.labelled_points(tmp_path / "shapes")
    ga.training.train(tmp_path / "shapes", tmp_path / "run", epochs=1, control=False)
    page = tmp_path / "run" / "report.html"
    assert browser.narrow_faults(driver, page) == []
    browser.resize(driver, browser.SCREEN)
    assert "graphattn predict" in driver.find_element("tag name", "body").text
    details = driver.find_element("xpath", "//details[.//iframe]")
    details.find_element("tag name", "summary").click()
    frame = details.find_element("tag name", "iframe")
    driver.switch_to.frame(frame)
    canvas = driver.find_element("id", "object")
    until(driver, canvas.is_displayed)
    from selenium.webdriver.common.action_chains import ActionChains

    before = canvas.screenshot_as_base64
    ActionChains(driver).drag_and_drop_by_offset(canvas, 60, 10).perform()
    until(driver, lambda: canvas.screenshot_as_base64 != before)
    driver.switch_to.default_content()
