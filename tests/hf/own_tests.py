"""transformers' own test classes on patched models: what stock models pass and patched ones fail.

    python tests/hf/own_tests.py PATH [--families llama gpt2] [-k "not compile"]

PATH is a checkout of transformers at the installed version: its source release lacks
``tests/models``. The tests import packages that this project does not: ``pip install parameterized
timeout-decorator httpx datasets``. Every model that a test makes or loads is patched with its own
connectivity, ``ga.patch(model, "model")``. The exit code is 1 if a test passes with stock models
and fails with patched ones without a reason in :data:`REASONS`, which
``examples/guide/hugging_face.md`` explains. Tests that set another attention by name run once more:
a model of which it is set is unpatched, a name in a configuration ignored; then they must pass.
"""

import argparse
import functools
import json
import os
import re
import subprocess
import sys
from pathlib import Path

FAMILIES = [
    "llama",
    "gpt2",
    "gemma3",
    "t5",
    "vit",
    "clip",
    "whisper",
    "bart",
    "mistral",
    "modernbert",
    "gpt_oss",
    "qwen2_vl",
    "qwen3",
]
#: Tests that download, that need several devices or another kernel, or that are about files.
LEFT_OUT = (
    "Integration fsdp tensor_parallel test_tp_ test_ep_ flash_attn flash_attention gguf deepspeed"
)
OTHER_ATTENTION = "it sets another attention"
#: Why a patched model fails a test: a pattern of its name and error, and the reason.
REASONS = {
    "the patched model's attention was set to": OTHER_ATTENTION,
    "test_can_set_attention_dynamically": "it reads the name of the attention",
    "test_sdpa_can_dispatch_": "it reads the name of the attention",
    "test_attn_implementation_composite_models": "it reads the name of the attention",
    "test_generate_compile_model_forward_fullgraph": "it compiles without a graph break",
    "test_torch_export": "it exports",
}
ATTENTION = "GRAPHATTN_OWN_TESTS"  # "stock", "patched" or "followed"
RESULTS = "GRAPHATTN_OWN_TESTS_RESULTS"
OURS = "graphattn"  # at the start of the name of a patch in a configuration


class Models:
    """Every model that a test makes or loads, patched unless ``attention`` is "stock".

    Args:
        attention: "followed" if a test may name another attention.
    """

    def __init__(self, attention: str) -> None:
        self.attention = attention
        self.depth = 0
        self.patched = 0
        self.refused: list[str] = []

    def change(self, model) -> None:
        """Patch a model once it is made."""
        import graphattn as ga

        if self.attention == "stock":
            return
        try:
            ga.patch(model, "model")
        except ga.errors.GraphAttnError as error:
            self.refused.append(f"{type(model).__name__}: {str(error)[:200]}")
        else:
            self.patched += 1

    def outermost(self, function, of_result: bool):
        """A constructor or loader, after which the outermost model is changed."""

        @functools.wraps(function)
        def call(first, *args, **options):
            self.depth += 1
            try:
                result = function(first, *args, **options)
            finally:
                self.depth -= 1
            if self.depth:
                return result
            model = first
            if of_result:
                model = result
            if isinstance(model, tuple):  # with loading information
                model = model[0]
            self.change(model)
            return result

        return call

    def watch(self) -> None:
        """Wrap constructors of all classes of models, and the loaders that call them."""
        from transformers import PreTrainedModel

        subclass = PreTrainedModel.__dict__["__init_subclass__"].__func__
        models = self

        def wrapped(cls, **options):
            subclass(cls, **options)
            if "__init__" in cls.__dict__:
                cls.__init__ = models.outermost(cls.__init__, of_result=False)

        PreTrainedModel.__init_subclass__ = classmethod(wrapped)
        for name in ("from_pretrained", "_from_config"):
            loader = PreTrainedModel.__dict__[name].__func__
            setattr(PreTrainedModel, name, classmethod(self.outermost(loader, of_result=True)))
        if self.attention == "followed":
            self.follow()

    def follow(self) -> None:
        """Unpatch a model that is given another attention; ignore names in its configuration."""
        from transformers import PreTrainedConfig, PreTrainedModel

        import graphattn as ga

        name = PreTrainedConfig._attn_implementation
        choose = PreTrainedModel.set_attn_implementation

        def named(config, value) -> None:
            if not str(config.__dict__.get("_attn_implementation_internal")).startswith(OURS):
                name.fset(config, value)

        def chosen(model, *args, **options) -> None:
            ga.unpatch(model)
            choose(model, *args, **options)

        PreTrainedConfig._attn_implementation = property(name.fget, named)
        PreTrainedModel.set_attn_implementation = chosen


class Record:
    """A line of JSON for each test: its outcome, its error, and how many models were patched."""

    def __init__(self, models: Models, path: str) -> None:
        self.models = models
        self.path = path

    def pytest_runtest_logreport(self, report) -> None:
        if report.when != "call" and report.outcome == "passed":
            return
        line = {"test": report.nodeid, "outcome": report.outcome}
        line |= {"models": self.models.patched, "refused": self.models.refused[:2]}
        if report.outcome == "failed":
            crash = getattr(report.longrepr, "reprcrash", None)
            line["error"] = getattr(crash, "message", str(report.longrepr))[:1200]
            line["place"] = f"{getattr(crash, 'path', '')}:{getattr(crash, 'lineno', '')}"
        self.models.patched = 0
        self.models.refused = []
        with open(self.path, "a") as file:
            file.write(json.dumps(line) + "\n")


def pytest_configure(config) -> None:
    """As a plugin: change the models of this process."""
    models = Models(os.environ[ATTENTION])
    models.watch()
    config.pluginmanager.register(Record(models, os.environ[RESULTS]))


def outcomes(path: Path) -> dict[str, dict]:
    """The tests of a file of results; one that failed at any of its parts has failed."""
    found: dict[str, dict] = {}
    if not path.exists():
        return found
    for text in path.read_text("utf-8").splitlines():
        line = json.loads(text)
        known = found.get(line["test"])
        if known is None or known["outcome"] != "failed":
            found[line["test"]] = line
    return found


def run(checkout: Path, family: str, attention: str, chosen: str, out: Path) -> dict[str, dict]:
    """The results of a family's tests with one attention."""
    path = out / f"{family}_{attention}.jsonl"
    path.unlink(missing_ok=True)
    here = Path(__file__).resolve().parent
    search = [str(here.parent.parent), str(here), str(checkout), os.environ.get("PYTHONPATH", "")]
    environment = {"HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"} | os.environ
    environment |= {"PYTHONPATH": os.pathsep.join(search)}
    environment |= {ATTENTION: attention, RESULTS: str(path)}
    file = f"tests/models/{family}/test_modeling_{family}.py"
    command = [sys.executable, "-m", "pytest", file, "-q", "-p", "no:cacheprovider", "-k", chosen]
    command += ["-p", "own_tests", "--noconftest", "-c", os.devnull, "--rootdir", str(checkout)]
    with open(out / f"{family}_{attention}.log", "w") as log:
        subprocess.run(command, cwd=checkout, env=environment, stdout=log, stderr=log, check=False)
    return outcomes(path)


def reason(test: str, line: dict) -> str | None:
    """Why a patched model fails a test."""
    for pattern, words in REASONS.items():
        if re.search(pattern, f"{test} {line['error']}"):
            return words
    return None


def compare(checkout: Path, family: str, chosen: str, out: Path) -> int:
    """Print the tests that a family's stock models pass and its patched models fail.

    Returns:
        The number of those without a reason.
    """
    stock = run(checkout, family, "stock", chosen, out)
    patched = run(checkout, family, "patched", chosen, out)
    passed = [test for test, line in stock.items() if line["outcome"] == "passed"]
    absent = {"outcome": "absent", "error": f"did not run; see {out}/{family}_patched.log"}
    failed = {
        test: patched.get(test, absent)
        for test in passed
        if patched.get(test, absent)["outcome"] != "passed"
    }
    named = [test for test, line in failed.items() if reason(test, line) == OTHER_ATTENTION]
    followed = {}
    if named:
        names = " or ".join(sorted({test.rpartition("::")[2] for test in named}))
        followed = run(checkout, family, "followed", names, out)
    good = len(passed) - len(failed)
    print(f"{family}: {len(passed)} pass with stock models, {good} patched", flush=True)
    if not passed:
        print(f"  no test ran; see {out}/{family}_stock.log")
        return 1
    reasons: dict[str, int] = {}
    unexplained = 0
    for test, line in failed.items():
        words = reason(test, line)
        if words == OTHER_ATTENTION and followed.get(test, absent)["outcome"] != "passed":
            line = followed.get(test, absent)
            words = None
        if words is not None:
            reasons[words] = reasons.get(words, 0) + 1
            continue
        unexplained += 1
        print(f"  {test.partition('::')[2]}: {line['error'].splitlines()[0][:200]}", flush=True)
    for words, number in sorted(reasons.items()):
        print(f"  {number} not, as {words}", flush=True)
    return unexplained


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("checkout", type=Path, help="a checkout of transformers, with its tests")
    parser.add_argument("--families", nargs="*", default=FAMILIES)
    parser.add_argument("-k", default=None, help="pytest's choice of tests")
    parser.add_argument("--out", type=Path, default=Path("own_tests"), help="a folder for results")
    options = parser.parse_args()
    checkout = options.checkout.resolve()
    if not (checkout / "tests" / "models").is_dir():
        parser.error(f"{checkout} has no tests/models; a checkout of the repository has")
    chosen = " and ".join(f"not {name}" for name in LEFT_OUT.split())
    if options.k is not None:
        chosen = f"({options.k}) and {chosen}"
    out = options.out.resolve()
    out.mkdir(parents=True, exist_ok=True)
    unexplained = sum(compare(checkout, family, chosen, out) for family in options.families)
    return min(unexplained, 1)


if __name__ == "__main__":
    sys.exit(main())
