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
    assert "graphattn zoo" in shell.error("show longforme")
