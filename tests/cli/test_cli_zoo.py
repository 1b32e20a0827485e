"""Named patterns and expressions on the command line."""


def test_the_zoo_is_listed(shell):
    assert "Longformer" in shell("zoo").stdout
    named = {each["name"]: each for each in shell.json("zoo")["patterns"]}
    assert named["Longformer"]["family"] == "sequence"
    assert set(named["full"]) == {"name", "family", "line", "code", "paper"}


def test_a_name_of_the_literature_and_an_expression_are_graphs(shell):
    code = "sliding_window(48, 9, causal=False) | global_tokens(48, (0, 20))"
    by_name = shell.json("show longformer")
    assert by_name["facts"] == shell.json(f"show '{code}'")["facts"]
    assert code in " ".join(by_name["notes"])


def test_what_is_no_expression(shell):
    assert "'(' was never closed" in shell.error("show 'full(3'")
    assert "an expression takes no options" in shell.error("show 'full(3)' --k 2")
    assert "did you mean Longformer" in shell.error("show longforme")
    assert "for another size type its code: 'sliding_window(48" in shell.error("show longformer --size 100")
    assert "no named pattern has 'qqq'" in shell.error("zoo qqq")


def test_the_zoo_about_a_word(shell):
    assert {each["family"] for each in shell.json("zoo mesh")["patterns"]} >= {"mesh"}
    assert "BigBird" in shell("zoo bigbird").stdout
    assert "Longformer  " not in shell("zoo bigbird").stdout
