"""graphattn zoo."""


def test_the_zoo_is_listed(shell):
    assert "Longformer" in shell("zoo").stdout
    named = {each["name"]: each for each in shell.json("zoo")["patterns"]}
    assert named["Longformer"]["family"] == "sequence"
    assert set(named["full"]) == {"name", "family", "line", "code", "paper", "also"}


def test_the_zoo_about_a_word(shell):
    assert {each["family"] for each in shell.json("zoo mesh")["patterns"]} >= {"mesh"}
    assert "BigBird" in shell("zoo bigbird").stdout
    assert "Longformer  " not in shell("zoo bigbird").stdout
    assert "no named pattern has 'qqq'" in shell.error("zoo qqq")


def test_the_zoo_is_searched_by_other_names_and_titles_of_papers(shell):
    axial = {"axial, rows", "axial, columns", "criss-cross (CCNet)"}
    for word in ("axial attention", "row and column"):
        assert {each["name"] for each in shell.json(f"zoo {word!r}")["patterns"]} >= axial
    found = shell.json("zoo 'for semantic segmentation'")["patterns"]
    assert [each["name"] for each in found] == ["criss-cross (CCNet)"]
