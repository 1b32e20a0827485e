"""Build the site: `python examples/site [--out DIR] [--no-run]`.

The sources are laid out (layout.py); Sphinx runs, a warning is an error; then every link of the
built pages is followed (links.py), and each page is looked at as on a phone (browser.py). What of
that takes seconds is a test (sources.py).
"""

import argparse
import subprocess
import sys
from pathlib import Path

import browser
import layout
import links


def main() -> int:
    ask = argparse.ArgumentParser(description=__doc__)
    ask.add_argument("--out", type=Path, default=layout.ROOT / "site")
    ask.add_argument(
        "--no-run", action="store_true", help="show the chapters' code without executing it"
    )
    given = ask.parse_args()
    source, html = given.out / "source", given.out / "html"
    layout.lay_out(source)
    run = ["-D", "plot_gallery=0"] if given.no_run else []
    words = [
        "-W",
        "--keep-going",
        "-q",
        "-b",
        "html",
        "-c",
        str(layout.HERE),
        "-d",
        str(given.out / "doctrees"),
        *run,
    ]
    if subprocess.call([sys.executable, "-m", "sphinx", *words, str(source), str(html)]):
        return 1
    links.remove_stale(html, source, layout.HERE / "play")
    faults = links.faults(html) + narrow(html)
    print(*faults, sep="\n")
    print(f"{html / 'index.html'}: {len(faults)} faults")
    return bool(faults)


def narrow(html: Path) -> list[str]:
    """What is wrong with pages at the width of a phone; nothing, said aloud, without a browser."""
    if browser.missing():
        print(f"NOT LOOKED AT IN A BROWSER: {browser.missing()}", file=sys.stderr)
        return []
    faults = []
    with browser.browser() as driver:
        for page in sorted(html.rglob("*.html")):
            found = browser.narrow_faults(driver, page)
            faults += [f"{page.relative_to(html)}: {fault}" for fault in found]
    return faults


if __name__ == "__main__":
    sys.exit(main())
