"""Papers that named patterns and docstrings cite: well-formed, and each with one year."""

import re
from collections import Counter
from pathlib import Path

import pytest

import graphattn
from graphattn.graphs import zoo
from graphattn.graphs.catalogue.papers import _AUTHORS, _PAPERS

CITED = sorted({pattern.paper for pattern in zoo().values() if pattern.paper})
#: Other papers of authors whose papers named patterns cite.
NAMESAKES = {
    ("Chen", "2023"),  # position interpolation
    ("Huang", "2016"),  # stochastic depth
    ("Wu", "2025"),  # Sonata
    ("Zhang", "2003"),  # ground in laser scans
    ("Zhang", "2023"),  # GD-WL
    ("Zhou", "2024"),  # Transfusion
}


def texts():
    for path in sorted(Path(graphattn.__file__).parent.rglob("*.py")):
        yield path.name, " ".join(path.read_text(encoding="utf-8").split())


def test_every_paper_is_cited_and_has_one_key():
    assert sorted({key.split(": ")[0] for key in _PAPERS}) == CITED
    assert list(_PAPERS) == sorted(_PAPERS)
    assert set(_AUTHORS) <= set(CITED)
    for column in (0, 1):  # titles, addresses
        assert max(Counter(paper[column] for paper in _PAPERS.values()).values()) == 1


@pytest.mark.parametrize("key", _PAPERS)
def test_a_paper_has_a_year_and_an_address_of_about_that_year(key):
    cited = key.split(": ")[0]
    year = re.fullmatch(r"[A-Z][\w -]+ (\d{4})", cited)[1]
    title, place = _PAPERS[key][:2]
    assert title == title.strip(" .")
    if "://" in place:
        assert place.startswith("https://")
        return
    month = re.fullmatch(r"(\d\d)(0[1-9]|1[0-2])\.\d{4,5}", place)
    assert 0 <= int(year) - 2000 - int(month[1]) <= 2  # a preprint comes before


def test_docstrings_cite_the_papers_of_patterns_by_the_same_years():
    years = {}
    for cited in CITED:
        author, _, year = cited.rpartition(" ")
        years.setdefault(author, set()).add(year)
    wrong = []
    for name, text in texts():
        for author, year in re.findall(r"([A-Z][\w-]+) et al\.,? (\d{4})", text):
            known = years.get(author, {year}) | {y for a, y in NAMESAKES if a == author}
            if year not in known:
                wrong.append(f"{name}: {author} et al. {year}, not {sorted(known)}")
    assert not wrong
