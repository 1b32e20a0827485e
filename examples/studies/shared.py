"""Helpers of these study files: a choice of arms, and plain classifiers to compare with."""

from typing import Any

from graphattn.errors import need_extra
from graphattn.study import Claim, Comparison, Data


def chosen(arms: dict[str, Any], names: list[str] | None) -> dict[str, Any]:
    """The arms of these names; all by default."""
    return {name: arm for name, arm in arms.items() if names is None or name in names}


def possible(claims: list[Claim], comparisons: list[Comparison]) -> list[Claim]:
    """The claims whose arms were chosen."""
    arms = {
        name: set(comparison.kinds)
        for comparison in comparisons
        for name in (None, comparison.name)
    }
    return [
        claim
        for claim in claims
        if {claim.better, claim.worse} <= arms.get(claim.comparison, set())
    ]


def forest(trees: int = 200) -> Any:
    """A plain classifier.

    Raises:
        MissingExtraError: If scikit-learn is not installed.
    """
    try:
        from sklearn.ensemble import RandomForestClassifier
    except ImportError as error:
        raise need_extra("scikit-learn", "study") from error
    return RandomForestClassifier(trees, random_state=0)


def scores_of(methods: dict[str, tuple[Any, Any]], data: Data, seeds: int = 3) -> dict[str, float]:
    """Scores of plain classifiers on the same data, by name; each is given features of the samples
    and a classifier.
    """
    label, scores = data.targets.numpy(), dict.fromkeys(methods, 0.0)
    for seed in range(seeds):
        train, test = (x.numpy() for x in data.split(seed, None))
        for name, (x, model) in methods.items():
            scores[name] += model.fit(x[train], label[train]).score(x[test], label[test]) / seeds
    return scores
