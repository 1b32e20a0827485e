"""The script that runs transformers' own tests on patched models, on tests of our own."""

import subprocess
import sys
from pathlib import Path

import own_tests
import pytest

TESTS = """
import unittest

import torch
from transformers import LlamaConfig, LlamaForCausalLM

SIZES = {"vocab_size": 9, "hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1}
TOKENS = torch.tensor([[1, 2, 3]])


def made():
    return LlamaForCausalLM(LlamaConfig(num_attention_heads=2, num_key_value_heads=2, **SIZES))


class TinyTest(unittest.TestCase):
    def test_a_call(self):
        self.assertEqual(made()(TOKENS).logits.shape, (1, 3, 9))

    def test_eager_set_of_a_model(self):
        model = made().eval()
        logits = model(TOKENS).logits
        model.set_attn_implementation("eager")
        torch.testing.assert_close(model(TOKENS).logits, logits)

    def test_eager_set_of_a_configuration(self):
        model = made()
        model.config._attn_implementation = "eager"
        model(TOKENS)

    def test_can_set_attention_dynamically(self):
        self.assertEqual(made().config._attn_implementation, "sdpa")

    def test_of_stock_models_alone(self):
        self.assertFalse(any("_graphattn" in vars(part) for part in made().modules()))

    def test_that_stock_models_fail(self):
        self.fail()
"""


@pytest.mark.slow
def test_what_stock_models_pass_and_patched_ones_fail_has_a_reason_or_is_named(tmp_path):
    folder = tmp_path / "tests" / "models" / "tiny"
    folder.mkdir(parents=True)
    (folder / "test_modeling_tiny.py").write_text(TESTS, encoding="utf-8")
    script = Path(own_tests.__file__)
    command = [sys.executable, script, tmp_path, "--families", "tiny", "--out", tmp_path / "out"]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 1
    assert result.stdout.splitlines() == [
        "tiny: 5 pass with stock models, 1 patched",
        "  TinyTest::test_of_stock_models_alone: AssertionError: True is not false",
        "  1 not, as it reads the name of the attention",
        "  2 not, as it sets another attention",
    ]


def test_a_folder_without_tests_is_refused(tmp_path):
    command = [sys.executable, own_tests.__file__, tmp_path]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 2
    assert "has no tests/models" in result.stderr
