"""graphattn zoo."""


def test_the_zoo_is_listed(shell):
    assert "Longformer" in shell("zoo").stdout
    named = {each["name"]: each for each in shell.json("zoo")["patterns"]}
    assert named["Longformer"]["family"] == "sequence"
    assert set(named["full"]) == {"name", "family", "line", "code", "paper"}


def test_the_zoo_about_a_word(shell):
    assert {each["family"] for each in shell.json("zoo mesh")["patterns"]} >= {"mesh"}
    assert "BigBird" in shell("zoo bigbird").stdout
    assert "Longformer  " not in shell("zoo bigbird").stdout
    assert "no named pattern has 'qqq'" in shell.error("zoo qqq")
