"""`launch/four_rounds.sh` as a user runs it, with a stand-in for slime's train.py."""

import json
import os
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from intraskill.backends.slime.arguments import check_arguments, load_slime_settings, method_arguments
from intraskill.backends.slime.launch import write_run_file
from intraskill.backends.slime.preflight import SUPPORTED_SLIME
from intraskill.storage.run_folder import RunFolder, RunState

pytestmark = pytest.mark.timeout(300)
ROOT = Path(__file__).resolve().parents[3]
KEY = "secret-key-of-a-test"
JOB = """
import json, os, pathlib, subprocess, sys, time
words = sys.argv[1:]
def value(name):
    return words[words.index(name) + 1]
save = pathlib.Path(value("--save"))
(save / "iter_0000001").mkdir(parents=True)
(save / "iter_0000001" / "model.safetensors").write_bytes(b"weights")
(save / "latest_checkpointed_iteration.txt").write_text("1")
seen = subprocess.run(["ps", "-efww"], capture_output=True, text=True).stdout
known = {name: os.environ.get(name) for name in ("WANDB_API_KEY", "WANDB_RUN_ID", "WANDB_RESUME")}
said = {"pid": os.getpid(), "ps": seen, "environment": known}
pathlib.Path(os.environ["SAID"]).write_text(json.dumps(said))
time.sleep(float(os.environ.get("JOB_S", "0")))
"""


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Launcher:
    """A run folder, a tiny model, a directory that looks like the supported slime, and the script over them."""

    def __init__(self, folder: Path, model: Path) -> None:
        self.folder, self.slime, self.said_file = folder, folder / "slime", folder / "said.json"
        (self.slime / "scripts" / "models").mkdir(parents=True)
        (self.slime / "slime").mkdir()
        (self.slime / "slime" / "__init__.py").touch()
        (self.slime / "train.py").write_text(JOB)
        (self.slime / "scripts" / "models" / "tiny.sh").write_text("MODEL_ARGS=(--num-layers 2)\n")
        (folder / "megatron" / "megatron" / "training").mkdir(parents=True)
        subprocess.run(["git", "init", "-q", str(self.slime)], check=True)
        (self.slime / ".git" / "HEAD").write_text(SUPPORTED_SLIME[-1] + "\n")
        config = folder / "config.yaml"
        settings = {
            "name": "launched",
            "environment": {"world": {"generate": "small"}},
            "policy": {"model": str(model)},
            "gate": {"tasks": 12, "candidates": 0},
            "report": {"wandb": "offline"},
            "slime": {"concurrency": 8},
        }
        config.write_text(json.dumps(settings))
        self.environment = {
            **os.environ,
            "CONFIG": str(config),
            "RUNS_DIR": str(folder / "runs"),
            "SLIME_DIR": str(self.slime),
            "MEGATRON_DIR": str(folder / "megatron"),
            "MODEL_SCRIPT": "tiny.sh",
            "SAVE_INTERVAL": "1",
            "PYTHON": sys.executable,
            "ENV_PORT": str(free_port()),
            "SAID": str(self.said_file),
            "WANDB_API_KEY": KEY,
        }

    def start(self, *words: str, **variables: str) -> subprocess.Popen[str]:
        command = [str(ROOT / "launch" / "four_rounds.sh"), *words]
        environment, pipe = {**self.environment, **variables}, subprocess.PIPE
        return subprocess.Popen(command, env=environment, stdout=pipe, stderr=pipe, text=True)

    def run(self, *words: str, **variables: str) -> tuple[int, str, str]:
        process = self.start(*words, **variables)
        out, err = process.communicate(timeout=200)
        return process.returncode, out, err

    def said(self) -> dict:
        """What the stand-in saw once it ran."""
        deadline = time.monotonic() + 90
        while not self.said_file.exists() or not self.said_file.read_text():
            assert time.monotonic() < deadline, "the job did not start"
            time.sleep(0.05)
        return json.loads(self.said_file.read_text())


@pytest.fixture
def launcher(tmp_path, tokenizer_dir):
    (tokenizer_dir / "config.json").write_text("{}")
    (tokenizer_dir / "model.safetensors").write_bytes(b"weights")
    return Launcher(tmp_path, tokenizer_dir)


@pytest.fixture
def ready(launcher, worlds):
    """A launcher whose world is made already."""
    (launcher.folder / "runs").mkdir()
    (launcher.folder / "runs" / ".worlds").symlink_to(worlds, target_is_directory=True)
    return launcher


def test_the_launcher_is_sound_shell():
    for script in ("four_rounds.sh", "environment.sh"):
        subprocess.run(["bash", "-n", str(ROOT / "launch" / script)], check=True)


def test_a_dry_run_prints_the_command_and_starts_nothing(launcher):
    code, out, err = launcher.run("--dry-run", "--", "--ci-test")
    assert code == 0, err
    words = out.split()
    assert words[1].endswith("slime/train.py")
    for flag, value in (("--tensor-model-parallel-size", "2"), ("--max-tokens-per-gpu", "16384"), ("--lr", "0.00015")):
        assert words[words.index(flag) + 1] == value
    for flag in ("--colocate", "--sequence-parallel", "--recompute-loss-function", "--use-rollout-logprobs"):
        assert flag in words
    assert words[-1] == "--ci-test"
    assert not (launcher.folder / "runs").exists()
    assert KEY not in out + err


def test_a_problem_is_one_line_and_exit_code_2(launcher):
    code, out, err = launcher.run(ENV_URL="http://127.0.0.1:9")
    assert (code, out) == (2, "")
    lines = err.strip().splitlines()
    assert lines
    assert all(line.startswith("error: ") for line in lines)
    assert any("environment service" in line for line in lines)


def test_a_python_without_the_package_is_one_line(launcher, tmp_path):
    bare = tmp_path / "python"
    bare.write_text(f'#!/bin/sh\nexec "{sys.executable}" -I -S "$@"\n')
    bare.chmod(0o755)
    code, out, err = launcher.run("--dry-run", PYTHON=str(bare))
    assert (code, out) == (2, "")
    assert err == (
        f"error: PYTHON={bare} cannot run this package; install it there: {bare} -m pip install --editable '.[slime]'\n"
    )


def test_an_unknown_argument_is_refused(launcher):
    code, _, err = launcher.run("--dryrun")
    assert code == 2
    assert err.startswith("error: unknown argument --dryrun")


def test_the_job_runs_with_its_service_and_keys_stay_in_the_environment(ready):
    code, out, err = ready.run()
    assert code == 0, err
    said = ready.said()
    assert said["environment"]["WANDB_API_KEY"] == KEY
    assert said["environment"]["WANDB_RESUME"] == "allow"
    assert said["environment"]["WANDB_RUN_ID"].startswith("launched-")
    assert "train.py" in said["ps"]
    assert KEY not in said["ps"] + out + err
    written = [file for file in (ready.folder / "runs").rglob("*") if file.is_file()]
    assert written
    assert not [file for file in written if KEY.encode() in file.read_bytes()]
    assert not alive(service_pids(ready, said["ps"])), "the service it started is stopped"


def test_a_terminated_launcher_ends_what_it_started_and_leaves_the_checkpoint(ready):
    process = ready.start(JOB_S="600")
    said = ready.said()
    services = service_pids(ready, said["ps"])
    assert alive([said["pid"], *services])
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=60)
    assert process.returncode == 143
    assert not alive([said["pid"], *services])
    checkpoints = ready.folder / "runs" / "launched" / "checkpoints"
    assert (checkpoints / "latest_checkpointed_iteration.txt").read_text() == "1"
    assert (checkpoints / "iter_0000001" / "model.safetensors").read_bytes() == b"weights"


def test_a_finished_run_has_nothing_to_do(ready):
    settings = load_slime_settings(ready.environment["CONFIG"])
    run = RunFolder(ready.folder / "runs" / "launched")
    run.claim(settings.method(), {})
    run.write_state(RunState(step=80, rounds_closed=4, opened=True, finished=True))
    (run.path / "checkpoints").mkdir()
    (run.path / "checkpoints" / "latest_checkpointed_iteration.txt").write_text("79")
    code, out, err = ready.run()
    assert (code, out.count("\n")) == (0, 1), err
    assert "nothing to do" in err
    assert not ready.said_file.exists(), "no job was started"


def test_a_service_that_somebody_else_started_is_left_alone(ready):
    command = [sys.executable, "-m", "intraskill", "slime", "environment", ready.environment["CONFIG"]]
    command += ["--runs-dir", ready.environment["RUNS_DIR"], "--port", "0"]
    service = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        url = json.loads(service.stdout.readline())["url"]
        code, _, err = ready.run(ENV_URL=url)
        assert code == 0, err
        assert service.poll() is None
    finally:
        service.terminate()
        service.wait()


def service_pids(launcher: Launcher, ps: str) -> list[int]:
    """The processes of this launcher's environment service in a `ps -efww` listing."""
    command = f"intraskill slime environment {launcher.environment['CONFIG']}"
    found = [int(line.split()[1]) for line in ps.splitlines() if command in line]
    assert found
    return found


def alive(pids: list[int]) -> list[int]:
    return [pid for pid in pids if Path(f"/proc/{pid}").exists() and "Z" not in state(pid)]


def state(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except FileNotFoundError:
        return "Z"


PARSE = """
import json, sys, types
import torch
torch.cuda.get_device_properties = lambda *device: types.SimpleNamespace(major=9, minor=0)  # Megatron asks for it
sys.argv = json.load(sys.stdin)
from slime.utils.arguments import parse_args
args = parse_args()
kept = {name: value for name, value in vars(args).items() if value is None or type(value) in (int, float, str, bool)}
print("PARSED " + json.dumps(kept))
"""
QWEN = {
    "model_type": "qwen3_5",
    "architectures": ["Qwen3_5ForConditionalGeneration"],
    "tie_word_embeddings": True,
    "text_config": {
        "model_type": "qwen3_5_text",
        "hidden_size": 2560,
        "num_attention_heads": 16,
        "num_key_value_heads": 4,
        "head_dim": 256,
        "num_hidden_layers": 32,
        "intermediate_size": 9216,
        "vocab_size": 248320,
        "rms_norm_eps": 1e-6,
        "tie_word_embeddings": True,
        "rope_parameters": {"rope_type": "default", "rope_theta": 10000000, "partial_rotary_factor": 0.25},
    },
}


@pytest.mark.slime
@pytest.mark.timeout(600)
def test_the_dry_run_of_the_published_settings_parses_through_slimes_own_parser(tmp_path, tokenizer_dir):
    slime = Path(os.environ.get("SLIME_DIR", ROOT / "third_party" / "slime"))
    megatron = Path(os.environ.get("MEGATRON_DIR", ROOT / "third_party" / "Megatron-LM"))
    if not (megatron / "megatron" / "training").is_dir() or not (slime / "train.py").exists():
        pytest.skip("needs checkouts of slime and Megatron-LM; set SLIME_DIR and MEGATRON_DIR")
    model, config, runs = tmp_path / "model", tmp_path / "config.yaml", tmp_path / "runs"
    shutil.copytree(tokenizer_dir, model)
    (model / "config.json").write_text(json.dumps(QWEN))
    published = (ROOT / "configs" / "qwen35_4b_4gpu.yaml").read_text()
    config.write_text(published.replace("models/Qwen3.5-4B", str(model)))
    environment = {
        **os.environ,
        "CONFIG": str(config),
        "RUNS_DIR": str(runs),
        "SLIME_DIR": str(slime),
        "MEGATRON_DIR": str(megatron),
        "PYTHON": sys.executable,
    }
    script = [str(ROOT / "launch" / "four_rounds.sh"), "--dry-run"]
    words = shlex.split(subprocess.run(script, env=environment, capture_output=True, text=True, check=True).stdout)
    write_run_file(config, (), runs / "qwen35-4b", None, "0" * 64)
    paths = [os.environ.get("SLIME_JOB_PATH", ""), str(slime), str(megatron), os.environ.get("PYTHONPATH", "")]
    environment |= {"PYTHONPATH": os.pathsep.join(filter(None, paths)), "CUDA_DEVICE_MAX_CONNECTIONS": "1"}
    parser = [sys.executable, "-c", PARSE]
    done = subprocess.run(parser, env=environment, input=json.dumps(words[1:]), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-4000:]
    args = json.loads(done.stdout.rsplit("PARSED ", 1)[1])
    check_arguments(SimpleNamespace(**args), load_slime_settings(config))
    wanted = {
        "router_policy": "manual",
        "router_assignment_mode": "min_group",
        "sglang_mem_fraction_static": 0.7,
        "tensor_model_parallel_size": 2,
        "sequence_parallel": True,
        "max_tokens_per_gpu": 16384,
        "log_probs_chunk_size": 1024,
        "recompute_loss_function": True,
        "save_interval": 20,
        "colocate": True,
        "world_size": 4,
        "wandb_mode": "offline",
        "wandb_key": None,
    }
    assert {name: args[name] for name in wanted} == wanted
    assert not [name for name in method_arguments(load_slime_settings(config)) if name not in args]
