"""What configurations say beside what the code of their models reads; ``graphattn audit`` of a
config.json.
"""

import json

import pytest
import transformers
from transformers.models.auto.configuration_auto import CONFIG_MAPPING
from typer.testing import CliRunner

import graphattn as ga
from graphattn.cli.app import app
from graphattn.errors import LoaderError

NAMES = ("mistral", "gemma3_text", "llama4_text", "modernbert", "gpt_oss", "bert", "t5", "gemma3")


@pytest.mark.sample(3)
@pytest.mark.parametrize("name", NAMES)
def test_configurations_that_say_what_their_code_does(name):
    config = CONFIG_MAPPING[name]()
    text = config.get_text_config()
    for part in (config, text):
        if hasattr(part, "num_hidden_layers"):
            part.num_hidden_layers = 6
    if getattr(text, "layer_types", None):
        text.layer_types = text.layer_types[:6]
    report = ga.hf.audit_config(config)
    assert report.ok, str(report)
    assert len(report.layers) == (12 if name == "t5" else 6)
    kinds = {audit.name for audit in report.layers.values()}
    assert len(kinds) == (
        2 if name in ("gemma3_text", "gemma3", "llama4_text", "modernbert", "gpt_oss", "t5") else 1
    )


def test_a_window_that_the_code_does_not_have():
    """A Mistral's window in a Llama's configuration: the code of Llama reads all earlier tokens."""
    report = ga.hf.audit_config(transformers.LlamaConfig(num_hidden_layers=3, sliding_window=4096))
    assert not report
    assert report.to_dict()["layers"]["layers.2.self_attn"]["too_many"] == 21 * 22 // 2
    assert (
        "layers.0.self_attn and 2 more\n  231 of 841 entries differ from sliding_window(29, 8, causal=True)"
        in str(report)
    )
    assert "run with sliding_window=8 in place of 4096" in str(report)
    assert (
        "diagnosis: the window is not applied: every earlier token is read, in sliding_window(29, 8, causal=True)"
        in str(report)
    )


def test_on_the_command_line(tmp_path):
    transformers.MistralConfig(num_hidden_layers=2, sliding_window=3).save_pretrained(tmp_path)
    run = CliRunner().invoke(app, ["audit", str(tmp_path)])
    assert run.exit_code == 0, run.output
    assert "are those of sliding_window(29, 3, causal=True)" in run.output
    (tmp_path / "config.json").write_text(
        json.dumps({"model_type": "llama", "sliding_window": 5, "num_hidden_layers": 1}),
        encoding="utf-8",
    )
    run = CliRunner().invoke(app, ["audit", str(tmp_path / "config.json"), "--json"])
    assert run.exit_code == 1
    assert not json.loads(run.stdout)["ok"]


def test_refusals(tmp_path):
    with pytest.raises(LoaderError, match="/nowhere: expected a configuration of transformers"):
        ga.hf.audit_config("/nowhere")
    with pytest.raises(LoaderError, match="expected a configuration of transformers"):
        ga.hf.audit_config(tmp_path)
    with pytest.raises(LoaderError, match="no small model of tokens can be made of this ViTConfig"):
        ga.hf.audit_config(transformers.ViTConfig(num_hidden_layers=1))


@pytest.mark.parametrize(
    "wrong", [{"layer_types": ["weird"]}, {"layer_types": [None]}, {"sliding_window": "8"}]
)
def test_fields_that_transformers_refuses(tmp_path, wrong):
    fields = {
        "model_type": "gemma3_text",
        "num_hidden_layers": 1,
        "layer_types": ["sliding_attention"],
    } | wrong
    (tmp_path / "config.json").write_text(json.dumps(fields), encoding="utf-8")
    with pytest.raises(
        LoaderError, match=f"(?s)expected a configuration of transformers: .*{next(iter(wrong))}"
    ):
        ga.hf.audit_config(tmp_path)


def test_a_model_that_does_not_run(tmp_path):
    config = transformers.Gemma3TextConfig(
        num_hidden_layers=1, layer_types=["sliding_attention"], sliding_window=None
    )
    with pytest.raises(
        LoaderError, match="no small model of tokens can be made of this Gemma3TextConfig"
    ):
        ga.hf.audit_config(config)


CODE = "from pathlib import Path\nPath(__file__).with_name('ran').touch()\nclass C: pass\n"


@pytest.mark.parametrize("load", [ga.hf.audit_config, ga.hf.from_pretrained])
@pytest.mark.parametrize("kind", ["unheard", "llama"])
def test_code_beside_a_configuration_is_not_run_and_nothing_is_asked(
    tmp_path, monkeypatch, load, kind
):
    """Not even where the answer to the question of transformers would be yes."""
    cache = tmp_path / "cache"
    monkeypatch.setattr("transformers.dynamic_module_utils.HF_MODULES_CACHE", str(cache))
    monkeypatch.setattr("builtins.input", lambda *args: pytest.fail("asked on the terminal"))
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "code.py").write_text(CODE, encoding="utf-8")
    fields = {
        "model_type": kind,
        "num_hidden_layers": 1,
        "sliding_window": 5,
        "architectures": None,
    }
    fields["auto_map"] = {"AutoConfig": "code.C", "AutoModel": "code.C"}
    (folder / "config.json").write_text(json.dumps(fields), encoding="utf-8")
    if kind == "llama" and load is ga.hf.audit_config:
        assert not load(folder)
    else:
        with pytest.raises((LoaderError, OSError)):
            load(folder)
    assert not list(tmp_path.rglob("ran"))


@pytest.mark.parametrize("number", [10**7, -1])
@pytest.mark.parametrize("name", ["num_hidden_layers", "num_labels"])
def test_numbers_of_layers_are_bounded_before_a_configuration_is_made(
    tmp_path, monkeypatch, name, number
):
    path = tmp_path / "config.json"
    path.write_text(
        json.dumps({"model_type": "gemma3", "text_config": {name: number}}), encoding="utf-8"
    )
    monkeypatch.setattr(
        transformers.AutoConfig, "from_pretrained", lambda *a, **k: pytest.fail("made")
    )
    with pytest.raises(
        LoaderError,
        match=rf"text_config\.{name} must be a whole number from 0 to 1,024, got {number}",
    ):
        ga.hf.audit_config(tmp_path)


def test_numbers_of_a_configuration_are_bounded_before_a_model_is_made():
    with pytest.raises(
        LoaderError, match="num_hidden_layers must be a whole number from 0 to 1,024, got -1"
    ):
        ga.hf.audit_config(transformers.LlamaConfig(num_hidden_layers=-1))
    with pytest.raises(LoaderError, match=r"a small T5Model has 8,0\d\d,\d\d\d,\d\d\d parameters"):
        ga.hf.audit_config(
            transformers.T5Config(num_layers=1, relative_attention_num_buckets=10**9)
        )


@pytest.mark.parametrize(
    "wrong", [{"num_hidden_layers": 0}, {"sliding_window": -1}, {"sliding_window": 0}]
)
def test_no_layer_and_no_window_are_refused_by_their_keys(wrong):
    ((name, value),) = wrong.items()
    with pytest.raises(
        LoaderError, match=f"{name} must be a whole number >= 1 for an audit, got {value}"
    ):
        ga.hf.audit_config(transformers.LlamaConfig(**{"num_hidden_layers": 1} | wrong))


def test_chunks_that_a_model_ignores_are_no_agreement():
    report = ga.hf.audit_config(
        transformers.LlamaConfig(num_hidden_layers=1, attention_chunk_size=8)
    )
    assert not report
    assert (
        "the blocks are not applied: every earlier token is read, in block_local(29, 8, causal=True)"
        in str(report)
    )
