"""Named patterns: sequence."""

from .pattern import Named

NAMED: tuple[Named, ...] = (
    Named("full", "sequence", "every token reads every token: an encoder", "full(48)", "Vaswani 2017"),
    Named("causal", "sequence", "a token reads itself and the past: a decoder", "causal(48)", "Vaswani 2017"),
    Named(
        "Longformer",
        "sequence",
        "a window on both sides, and a few tokens that read all and are read by all",
        "sliding_window(48, 9, causal=False) | global_tokens(48, (0, 20))",
        "Beltagy 2020",
    ),
)
