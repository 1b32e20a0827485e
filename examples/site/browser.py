"""Pages in a real browser, headless Chromium: what is wrong with them at the width of a phone."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

PHONE, SCREEN = 400, 1300  # pixels
_CHROMIUM = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
#: What sticks out of the page although nothing around it scrolls, and words that break within,
#: but in the drawers of the theme, which are shut.
_FAULTS = r"""
const wide = document.documentElement.clientWidth, faults = [];
const scrolls = (element) => {
  for (let box = element; box && box !== document.body; box = box.parentElement)
    if (getComputedStyle(box).overflowX !== "visible") return true;
  return false;
};
if (document.documentElement.scrollWidth > wide)
  faults.push(`the page is ${document.documentElement.scrollWidth} pixels wide`);
for (const element of document.body.querySelectorAll("*")) {
  const box = element.getBoundingClientRect();
  if (box.width && box.right > wide + 1 && !scrolls(element)) {
    faults.push(`${element.tagName.toLowerCase()} sticks out: ${element.textContent.trim().slice(0, 40)}`);
    break;
  }
}
const range = document.createRange(), broken = new Set();
const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
while (texts.nextNode()) {
  const text = texts.currentNode;
  if (text.parentElement.closest("pre, script, style, select, dialog, nav")) continue;
  const data = text.data.replace(/\S*\/\S*/g, (path) => " ".repeat(path.length));  // breaks anywhere
  for (const word of data.matchAll(/[A-Za-z]{4,}/g)) {
    range.setStart(text, word.index);
    range.setEnd(text, word.index + word[0].length);
    const boxes = [...range.getClientRects()].filter((box) => box.width);
    if (boxes.length > 1 && boxes[1].top > boxes[0].top + 3) broken.add(word[0]);
  }
}
if (broken.size) faults.push(`words break within: ${[...broken].slice(0, 5).join(", ")}`);
return faults;
"""


def missing() -> str:
    """What a browser here lacks, and how to get it; "" if nothing."""
    try:
        import selenium  # noqa: F401
    except ImportError:
        return "no selenium: pip install selenium"
    if not any(map(shutil.which, _CHROMIUM)) or not shutil.which("chromedriver"):
        return "no Chromium with its driver: apt-get install chromium chromium-driver"
    return ""


@contextmanager
def browser(width: int = SCREEN, height: int = 900) -> Iterator[Any]:
    """A browser of its own, without windows and network; ``resize`` gives it another width."""
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    options = webdriver.ChromeOptions()
    options.binary_location = next(filter(None, map(shutil.which, _CHROMIUM)))
    # a container has no sandbox, and little shared memory
    for switch in ("headless=new", "no-sandbox", "disable-dev-shm-usage", "hide-scrollbars"):
        options.add_argument(f"--{switch}")
    options.add_argument("--host-resolver-rules=MAP * ~NOTFOUND")
    driver = webdriver.Chrome(options=options, service=Service(shutil.which("chromedriver")))
    try:
        resize(driver, width, height)
        yield driver
    finally:
        driver.quit()


def resize(driver: Any, width: int, height: int = 900) -> None:
    """The size of the page in pixels, smaller than a window of the browser may be."""
    size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width <= PHONE}
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)


def narrow_faults(driver: Any, page: Path) -> list[str]:
    """What is wrong with a page at the width of a phone."""
    from selenium.webdriver.support.ui import WebDriverWait

    resize(driver, PHONE)
    driver.get(page.resolve().as_uri())
    ready = "return document.readyState === 'complete' && document.body !== null"
    WebDriverWait(driver, 30).until(lambda driver: driver.execute_script(ready))
    return driver.execute_script(_FAULTS)
