"""The outcomes as one HTML page that needs nothing beside itself."""

import base64
from pathlib import Path

import jinja2
from markupsafe import Markup
from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import PythonLexer
from run import HEADS, WIDTH, Outcome

COMMON = f"""\
from run import embed

layer = ga.nn.GraphAttention(embed_dim={WIDTH}, num_heads={HEADS}).eval()
x, context = embed(scene.features, scene.context)
output, weights = layer(x, scene.graph, context=context, return_weights=True)
print(ga.verify(layer, scene.graph))
ga.plot(scene.graph, **scene.look).savefig("graph.png")
look = dict(scene.look, target=scene.target, heads="mean", relative=True)
ga.plot(scene.graph, values=weights, **look).savefig("weights.png")"""


def render(outcomes: list[Outcome], broken: dict[str, str], seconds: float, versions: str) -> str:
    """The page; pictures and styles are inside it."""
    here = jinja2.FileSystemLoader(Path(__file__).parent)
    environment = jinja2.Environment(
        loader=here,
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    environment.filters |= {
        "python": python,
        "picture": picture,
        "tiny": tiny,
        "short": short,
        "word": word,
    }
    template = environment.get_template("page.html.j2")
    told = {"seconds": seconds, "versions": versions}
    return template.render(outcomes=outcomes, broken=broken, common=COMMON, **told)


def python(code: str) -> Markup:
    """Code with a class on every token."""
    return Markup(highlight(code, PythonLexer(), HtmlFormatter(nowrap=True)).rstrip())


def picture(webp: bytes) -> str:
    """A data URI."""
    return "data:image/webp;base64," + base64.b64encode(webp).decode("ascii")


def tiny(error: float) -> str:
    """``3.1e-07``, or a dash where nothing was measured."""
    return f"{error:.1e}" if error == error else "–"  # noqa: RUF001


def short(number: float) -> str:
    """Two digits, and never an exponent: ``0.21``, ``8.4``, ``150``."""
    return f"{number:.2g}" if number < 10 else f"{number:.0f}"


def word(count: int) -> str:
    """``seven`` for 7, and digits beyond twelve."""
    words = [
        "none",
        "one",
        "two",
        "three",
        "four",
        "five",
        "six",
        "seven",
        "eight",
        "nine",
        "ten",
        "eleven",
        "twelve",
    ]
    return words[count] if count < len(words) else str(count)
