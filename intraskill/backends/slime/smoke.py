"""The smoke run: slime's real loop on a CPU, to be done before paying for GPUs.

Everything is what the four-GPU job uses (slime's train loop, its rollout manager and router, a real SGLang server, the
HTTP environment service, this plugin), except the trainer: slime's Megatron actor gives way to one around the
embedded trainer (`smoke_actor`), put in place through slime's own `actor_cls` argument. Three processes are
started here and ended again, whatever happens: the environment service, the SGLang server, and the job.
"""

from __future__ import annotations

import importlib.util
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx
import yaml

from intraskill.assets import model_directory
from intraskill.backends.slime.arguments import command_line, load_slime_settings
from intraskill.backends.slime.launch import run_arguments, wandb_run_id, write_run_file
from intraskill.backends.slime.preflight import Launch, checkpoint_step, remaining
from intraskill.backends.slime.smoke_verdict import SmokeFailed, judge
from intraskill.core.errors import UserError
from intraskill.storage.run_folder import RunFolder

START_S = 1200.0  # a busy machine needs minutes for the imports alone
SERVER_OPTIONS = {
    "device": "cpu",
    "attention_backend": "torch_native",
    "dtype": "float32",
    "disable_overlap_schedule": True,
    "disable_cuda_graph": True,
    "mem_fraction_static": 0.3,  # an upper bound that counts other processes too; the next line decides
    "max_total_tokens": 40000,
    "skip_server_warmup": True,
    "enable_metrics": True,
}


def smoke_settings(model: str, seed: int) -> dict[str, Any]:
    """The settings file of the smoke run."""
    return {
        "name": "smoke",
        "seed": seed,
        "rounds": 2,
        "steps_per_round": 2,
        "environment": {"world": {"generate": "small"}, "rendering": "compact", "page_size": 4, "max_steps": 10},
        "policy": {"model": model, "prompt": "compact", "sampling": {"temperature": 1.0, "max_tokens": 32}},
        "rollout": {"group_size": 4, "generated_groups": 8, "kept_groups": 4},
        "train": {"lr": 1.0e-4, "updates_per_step": 2, "dtype": "float32"},
        "gate": {"tasks": 40},
        "evaluation": {"equipped": False, "greedy": False},
        "report": {"wandb": "offline" if importlib.util.find_spec("wandb") else "disabled"},
        "slime": {"context_length": 1000, "episode_timeout_s": 300.0, "concurrency": 64},
    }


def run_smoke(out: Path, model: str, slime_dir: Path, seed: int, stop_after: int, job_path: str = "") -> None:
    """Run, or continue, the smoke run in `out`. Raises `SmokeFailed`, and `UserError` when something is missing."""
    out, slime_dir = out.resolve(), slime_dir.resolve()
    _require(slime_dir)
    config = out / "smoke.yaml"
    out.mkdir(parents=True, exist_ok=True)
    config.write_text(yaml.safe_dump(smoke_settings(str(model_directory(model).resolve()), seed), sort_keys=False))
    launch = _launch(config, out, slime_dir)
    if remaining(launch).action == "done":
        print(f"{launch.run}: finished, nothing to do")
        return
    with ExitStack() as running:
        environment = running.enter_context(_environment(config, out))
        server = running.enter_context(_server(launch, out))
        _write_run_file(launch, config, environment)
        _job(launch, config, server, out, stop_after, job_path)
    if not stop_after:
        print(f"{judge(RunFolder(launch.run), launch.settings)}\nsmoke run passed")


def _job(launch: Launch, config: Path, server: str, out: Path, stop_after: int, job_path: str) -> None:
    """The slime process; killed after `stop_after` checkpoints if that is not 0."""
    words = [*run_arguments(launch, config), *_cluster_words(server)]
    paths = [job_path, str(launch.slime), os.environ.get("PYTHONPATH", "")]
    environment = {
        **_quiet(),
        "PYTHONPATH": os.pathsep.join(path for path in paths if path),
        "WANDB_RUN_ID": wandb_run_id(launch),
        "WANDB_RESUME": "allow",
        "SLIME_HOST_IP": "127.0.0.1",  # the router answers on loopback only
        "RAY_DEDUP_LOGS": "0",
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
        "RAY_worker_niceness": "0",
        "RAY_prestart_worker_first_driver": "0",  # idle workers would all import torch at once
    }
    environment.pop("CUDA_VISIBLE_DEVICES", None)  # Ray must see the GPU it was told of
    command = [sys.executable, "-m", "intraskill.backends.slime.smoke_process", *words]
    with _process("job", command, environment, out / "job.log") as job:
        while job.poll() is None:
            if stop_after and checkpoint_step(launch.checkpoints) >= stop_after:
                os.killpg(job.pid, signal.SIGKILL)
                print(f"killed after step {stop_after}; start again with the same folder to continue")
                return
            time.sleep(0.2)
        if job.returncode:
            raise SmokeFailed(f"the job ended with exit code {job.returncode}{_last_words(out / 'job.log')}")


def _cluster_words(server: str) -> list[str]:
    return command_line(
        {
            "actor_num_nodes": 1,
            "actor_num_gpus_per_node": 1,
            "num_gpus_per_node": 1,
            "rollout_external_engine_addrs": server.removeprefix("http://"),
            "rollout_num_gpus_per_engine": 1,
            "router_policy": "manual",
            "save_interval": 1,
            "use_dynamic_batch_size": True,
            "max_tokens_per_gpu": 100000,
        }
    )


def _launch(config: Path, out: Path, slime_dir: Path) -> Launch:
    return Launch(
        settings=load_slime_settings(config),
        run=out / "smoke",
        checkpoints=out / "smoke" / "checkpoints",
        slime=slime_dir,
        megatron=None,
        model_copy=None,
        environment_url=None,
        gpus=1,
        train_tp=1,
        rollout_tp=1,
        save_interval=1,
    )


def _write_run_file(launch: Launch, config: Path, environment_url: str) -> None:
    write_run_file(config, (), launch.run, environment_url, model_directory(launch.settings.policy.model))


@contextmanager
def _environment(config: Path, out: Path) -> Iterator[str]:
    """The environment service; yields its URL."""
    port = _free_port()
    command = [sys.executable, "-m", "intraskill", "slime", "environment", str(config)]
    command += ["--port", str(port), "--runs-dir", str(out)]
    url = f"http://127.0.0.1:{port}"
    with _process("environment", command, _quiet(), out / "environment.log") as process:
        _wait_for(url + "/healthz", process, out / "environment.log")
        yield url


@contextmanager
def _server(launch: Launch, out: Path) -> Iterator[str]:
    """A SGLang server on the CPU; yields its URL."""
    port = _free_port()
    model = model_directory(launch.settings.policy.model)
    options = {"model_path": model, "host": "127.0.0.1", "port": port, **SERVER_OPTIONS}
    environment = {**_quiet(), "CUDA_VISIBLE_DEVICES": ""}
    environment.pop("SGLANG_USE_CPU_ENGINE", None)
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, [_stand_in(out), os.environ.get("PYTHONPATH", "")]))
    command = [sys.executable, "-m", "sglang.launch_server", *command_line(options)]
    url = f"http://127.0.0.1:{port}"
    with _process("SGLang", command, environment, out / "sglang.log") as process:
        _wait_for(url + "/health", process, out / "sglang.log")
        yield url


def _stand_in(out: Path) -> str:
    """SGLang's CPU path imports one function of vLLM that it never calls; without vLLM, a stand-in satisfies it."""
    if importlib.util.find_spec("vllm") is not None:
        return ""
    package = out / ".stand-in" / "vllm"
    package.mkdir(parents=True, exist_ok=True)
    (package / "__init__.py").touch()
    (package / "_custom_ops.py").write_text("def rotary_embedding(*values, **named):\n    raise NotImplementedError\n")
    return str(package.parent)


@contextmanager
def _process(
    name: str, command: list[str], environment: Mapping[str, str], log: Path
) -> Iterator[subprocess.Popen[bytes]]:
    """A child in a process group of its own, ended with everything it started."""
    print(f"starting the {name}, log: {log}")
    with log.open("ab") as output:
        process = subprocess.Popen(
            command, env=dict(environment), stdout=output, stderr=subprocess.STDOUT, start_new_session=True
        )
    try:
        yield process
    finally:
        for sign in (signal.SIGTERM, signal.SIGKILL):
            _signal_group(process.pid, sign)
            try:
                process.wait(20)
                break
            except subprocess.TimeoutExpired:
                continue
        _signal_group(process.pid, signal.SIGKILL)


def _signal_group(leader: int, sign: int) -> None:
    with suppress(ProcessLookupError):
        os.killpg(leader, sign)


def _wait_for(url: str, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + START_S
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise SmokeFailed(f"a process ended before it was ready, exit code {process.returncode}{_last_words(log)}")
        if _answers(lambda: httpx.get(url, timeout=5.0, trust_env=False)):
            return
        time.sleep(0.5)
    raise SmokeFailed(f"{url} did not answer within {START_S:.0f} s; see {log}")


def _last_words(log: Path) -> str:
    """Where to look, and the last line that tells of an error, if any."""
    told = [line.strip() for line in log.read_text("utf-8", "replace").splitlines() if "Error: " in line]
    return f"; see {log}" + (f" ({told[-1][:300]})" if told else "")


def _answers(ask: Callable[[], httpx.Response]) -> bool:
    try:
        return ask().is_success
    except httpx.HTTPError:
        return False


def _quiet() -> dict[str, str]:
    return {**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _require(slime_dir: Path) -> None:
    if not (slime_dir / "train.py").is_file():
        raise UserError(f"{slime_dir} is no slime checkout; clone slime there, or give --slime-dir")
    missing = [name for name in ("ray", "sglang", "sglang_router", "torch") if importlib.util.find_spec(name) is None]
    if missing:
        raise UserError(f"the smoke run needs {', '.join(missing)}; docs/four_gpus.md says how to install them")
