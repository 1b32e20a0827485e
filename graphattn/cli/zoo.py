"""``graphattn zoo``: the named patterns of the literature."""

from .output import document, say


def zoo(json: bool) -> None:
    """All names, with a line each."""
    from ..graphs import zoo as named

    if json:
        fields = ("name", "family", "line", "code", "paper")
        document({"command": "zoo", "patterns": [{f: getattr(each, f) for f in fields} for each in named()]})
        return
    say(f"{named()}\n\nLook at one: graphattn show Longformer, or any expression of builders:")
    say("graphattn show 'sliding_window(64, 9) | global_tokens(64, (0,))'")
