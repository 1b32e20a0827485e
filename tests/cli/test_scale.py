"""``graphattn scale``: the plan on paper, as closed forms have it."""

import re

import pytest


def test_a_window_as_its_closed_form(shell):
    told = shell.json(
        "scale 'sliding_window(10000, 129, causal=False)' --processes 1,8,100 --width 1024"
    )
    one, eight, hundred = told["plans"]
    assert one["remote"] == [0]
    for plan, own in ((eight, 1250), (hundred, 100)):
        assert plan["targets"] == [own] * (10000 // own)
        assert plan["remote"] == [64] + [128] * (10000 // own - 2) + [64]
        assert plan["plan"] == "halo"
        # SCALE: 4 KB a row of both
        assert plan["bytes_per_layer"] == [rows * 4096 for rows in plan["remote"]]
    assert eight["boundary"] == [64] + [128] * 6 + [64]
    assert eight["milliseconds"]["exchange"] == pytest.approx(128 * 4096 / 50e6)
    assert hundred["milliseconds"]["compute"] == pytest.approx(4 * 1024 * 100 * 129 / 200e9)


def test_a_grid_is_cut_into_boxes(shell):
    told = shell.json(
        "scale 'grid_neighbourhood((64, 64), 5, causal=False)' --processes 16 --heads 16"
    )
    (plan,) = told["plans"]
    assert plan["partition"] == "rcb"
    assert max(plan["remote"]) == (16 + 4) ** 2 - 16**2  # (1 + 2 r / L)^d - 1 of its own rows
    line = shell("scale 'grid_neighbourhood((64, 64), 5, causal=False)' --processes 4,16").stdout
    assert re.search(r"\n +16 +256 +144 +0.56 +66%  halo ", line)
    assert "16 processes, not heads: it brings a process 480 rows of keys and values" in line


def test_queries_of_few_targets_travel(shell):
    told = shell.json("scale 'cross(16, 100000)' --processes 8,1000 --width 1024")
    eight, thousand = told["plans"]
    assert (eight["plan"], thousand["plan"]) == ("queries", "queries")
    assert (eight["asked"], eight["answered"]) == ([2 * 7] * 8, [2 * 7] * 8)
    # queries and outputs in bfloat16, log-sum-exp in float32
    assert eight["bytes_per_layer"] == [28 * 2048 + 14 * 64] * 8
    assert max(thousand["bytes_per_layer"]) == (999 + 15) * 2048 + 999 * 64
    assert thousand["balance"] == 1
    assert thousand["milliseconds"]["compute"] == pytest.approx(4 * 1024 * 16 * 100 / 200e9)
    assert "not fewer" in shell("scale 'causal(64)' --processes 8").stdout


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("--processes 0,8", "--processes must be whole numbers from 1 to 100,000"),
        ("--processes 200000", "to 100,000"),
        (
            "--processes 30000",
            "between 30,000 processes would take 7,200,000,000 bytes .* take fewer processes",
        ),
        ("--width 1000", "a multiple"),
        ("--memory 40", "--memory requires --gpus, .*; got --memory 40"),
    ],
)
def test_what_is_no_plan_is_refused(shell, words, said):
    done = shell(f"scale 'cross(8, 9)' {words}")
    assert done.exit_code == 2
    assert re.search(said, done.stderr)


@pytest.mark.slow
def test_a_number_of_gpus_is_answered_with_a_launch_line(shell):
    # 17 values of the width, keys and values received, parameters with AdamW's, edges
    grid = "'grid_neighbourhood((256, 256), 5, causal=False)'"
    told = shell.json(f"scale {grid} --gpus 6 --memory 3 --layers 3 --width 128")
    assert [len(plan["targets"]) for plan in told["plans"]] == [1, 2, 4, 6]
    answer = told["answer"]
    assert (answer["processes"], answer["plan"], answer["partition"]) == (1, "halo", "rcb")
    own = 256 * 256
    edges = told["plans"][0]["edges"][0]
    assert answer["bytes"] == 3 * 17 * 128 * 2 * own + 3 * 12 * 128**2 * 16 + 16 * edges
    assert answer["launch"] == "python train.py"
    line = shell(
        f"scale {grid} --gpus 16 --memory 0.4 --layers 3 --width 128 --bandwidth 5e4"
    ).stdout
    assert re.search(r"\n16 of 16 GPUs: partition rcb, plan halo, 0.\d+ GB of 0.4 GB a pro", line)
    assert "assumed: 3 blocks of width 128 (--layers, --width, --heads) in bfloat16" in line
    assert "\ntorchrun --nnodes 2 --nproc_per_node 8 --rdzv_backend c10d" in line
    small = f"scale {grid} --gpus 2 --memory 0.01 --layers 3"
    assert re.search(r"--memory: a process holds .* GB at least, got 0.01", shell.error(small))
    odd = f"scale {grid} --gpus 12 --memory 0.4 --layers 3 --width 128 --bandwidth 5e4"
    assert "\ntorchrun --nnodes 2 --nproc_per_node 6 --rdzv_backend c10d" in shell(odd).stdout
    assert "leave out --processes" in shell.error(f"scale {grid} --gpus 2 --processes 2")


def test_gpus_begin_at_the_number_whose_sources_can_be_counted(shell, monkeypatch):
    monkeypatch.setattr("graphattn.distributed.paper._MOST", 100)
    window = "scale 'sliding_window(1000, 16, causal=True)'"
    told = shell.json(f"{window} --gpus 64 --layers 2")
    assert [len(plan["targets"]) for plan in told["plans"]] == [16, 32, 64]
    assert told["answer"]["fewest"] == 16
    assert "--gpus must be at least 10 for this graph, got 4" in shell.error(f"{window} --gpus 4")
    assert "take at least 10 processes" in shell.error(f"{window} --processes 2")
