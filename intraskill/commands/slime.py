"""`intraskill slime`: what the launcher of a cluster job asks for, and the smoke run.

`arguments` and `preflight` take the same options: the job that is about to be started. The first prints slime's
command-line words, the second looks for everything that would stop or spoil the job.
"""

from __future__ import annotations

import hashlib
import json
import sys
from pathlib import Path
from typing import Annotated, Any

import typer
import yaml

from intraskill.errors import UserError

slime_app = typer.Typer(help="The four-GPU backend: slime, SGLang, Megatron.", no_args_is_help=True)

Config = Annotated[Path, typer.Argument(help="Settings of the run, e.g. configs/qwen35_4b_4gpu.yaml.")]
RunsDir = Annotated[Path, typer.Option(help="Folder that holds the run folders.")]
Checkpoints = Annotated[Path | None, typer.Option(help="slime's checkpoints; RUNS_DIR/NAME/checkpoints by default.")]
SlimeDir = Annotated[Path, typer.Option(help="A checkout of slime.")]
MegatronDir = Annotated[Path | None, typer.Option(help="A checkout of Megatron-LM.")]
TorchDist = Annotated[Path | None, typer.Option(help="The model converted to torch_dist; else HF weights are loaded.")]
EnvironmentUrl = Annotated[str | None, typer.Option(help="The environment service.")]
Gpus = Annotated[int, typer.Option(min=1, help="GPUs of the node.")]
TrainTp = Annotated[int, typer.Option(min=1, help="Tensor parallel size of the trainer.")]
RolloutTp = Annotated[int, typer.Option(min=1, help="Tensor parallel size of one inference engine.")]
SaveInterval = Annotated[int, typer.Option(help="Steps from checkpoint to checkpoint; 0 = one a round.")]


def _launch(config: Path, runs_dir: Path, checkpoints: Path | None, save_interval: int, **rest: Any) -> Any:
    from intraskill.slime_plugin.arguments import load_slime_settings
    from intraskill.slime_plugin.preflight import Launch

    settings = load_slime_settings(config)
    run = (runs_dir / settings.name).resolve()
    return Launch(
        settings=settings,
        run=run,
        checkpoints=(checkpoints or run / "checkpoints").resolve(),
        save_interval=save_interval or settings.steps_per_round,
        **rest,
    )


@slime_app.command()
def preflight(
    config: Config,
    runs_dir: RunsDir = Path("runs"),
    checkpoints: Checkpoints = None,
    slime_dir: SlimeDir = Path("third_party/slime"),
    megatron_dir: MegatronDir = None,
    torch_dist: TorchDist = None,
    environment_url: EnvironmentUrl = None,
    gpus: Gpus = 4,
    train_tp: TrainTp = 2,
    rollout_tp: RolloutTp = 1,
    save_interval: SaveInterval = 0,
) -> None:
    """Check everything that can be checked before a GPU is touched; one line a problem, exit code 2.

    Without a problem, writes RUN/slime.yaml for the job and prints what there is to do (train, close or done) and the
    id of the W&B run to continue.
    """
    from intraskill.assets import model_directory
    from intraskill.slime_plugin.preflight import model_sha256, plan, problems

    launch = _launch(
        config,
        runs_dir,
        checkpoints,
        save_interval,
        slime=slime_dir,
        megatron=megatron_dir,
        model_copy=torch_dist,
        environment_url=environment_url,
        gpus=gpus,
        train_tp=train_tp,
        rollout_tp=rollout_tp,
    )
    if found := problems(launch):
        for problem in found:
            print(f"error: {problem}", file=sys.stderr)
        raise typer.Exit(2)
    write_job_file(config, launch.run, environment_url, model_sha256(model_directory(launch.settings.policy.model)))
    wandb_id = hashlib.sha256(str(launch.run).encode()).hexdigest()[:8]
    print(plan(launch).action, f"{launch.settings.name[:40]}-{wandb_id}")


@slime_app.command()
def arguments(
    config: Config,
    runs_dir: RunsDir = Path("runs"),
    checkpoints: Checkpoints = None,
    slime_dir: SlimeDir = Path("third_party/slime"),
    megatron_dir: MegatronDir = None,
    torch_dist: TorchDist = None,
    environment_url: EnvironmentUrl = None,
    gpus: Gpus = 4,
    train_tp: TrainTp = 2,
    rollout_tp: RolloutTp = 1,
    save_interval: SaveInterval = 0,
) -> None:
    """Print slime's arguments for this run, one word a line. Nothing is checked or written."""
    from intraskill.slime_plugin.launch import job_arguments

    launch = _launch(
        config,
        runs_dir,
        checkpoints,
        save_interval,
        slime=slime_dir,
        megatron=megatron_dir,
        model_copy=torch_dist,
        environment_url=environment_url,
        gpus=gpus,
        train_tp=train_tp,
        rollout_tp=rollout_tp,
    )
    print("\n".join(job_arguments(launch, config.resolve())))


@slime_app.command()
def environment(
    config: Config,
    runs_dir: RunsDir = Path("runs"),
    host: Annotated[str, typer.Option(help="Address to bind; loopback unless you mean it.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="0 takes any free port.")] = 8000,
    slots: Annotated[int, typer.Option(help="Sessions open at once; 0 = slime.concurrency.")] = 0,
) -> None:
    """Serve the run's world over HTTP until interrupted; the first line printed is JSON with the URL."""
    from shopsimulator.catalog import read_catalog
    from shopsimulator.engine import ShopSettings, ShopWorld
    from shopsimulator.service import run_service

    from intraskill.envs.shop import world_files
    from intraskill.slime_plugin.arguments import load_slime_settings

    settings = load_slime_settings(config)
    shop = settings.environment
    catalog, _ = world_files(shop.world, runs_dir / ".worlds")
    limits = ShopSettings(page_size=shop.page_size, rendering=shop.rendering, max_steps=shop.max_steps)
    slots = slots or settings.slime.concurrency

    def announce(url: str) -> None:
        print(json.dumps({"url": url, "slots": slots}), flush=True)

    run_service(ShopWorld(read_catalog(catalog), limits), host=host, port=port, slots=slots, announce=announce)


@slime_app.command()
def smoke(
    out: Annotated[Path, typer.Option(help="Folder for the run and the logs; kept.")] = Path("runs/slime-smoke"),
    model: Annotated[str, typer.Option(help="A small model directory.")] = "builtin:tiny",
    slime_dir: SlimeDir = Path("third_party/slime"),
    seed: Annotated[int, typer.Option(help="Seed of the run.")] = 0,
    stop_after: Annotated[int, typer.Option(help="Kill the job after this many checkpoints; 0 = never.")] = 0,
    job_path: Annotated[str, typer.Option(help="First on the job's PYTHONPATH, e.g. an SGLang that slime knows.")] = "",
) -> None:
    """Run slime's real loop on the CPU: two rounds of two steps, a real SGLang server, gates in the loop.

    Needs slime and SGLang, but no GPU and no Megatron: the trainer is the embedded one. Takes minutes. Run it before
    paying for GPUs. Started again on the same folder, it continues.
    """
    try:
        from intraskill.slime_plugin.smoke import run_smoke
    except ImportError as error:
        raise UserError(
            f"the smoke run needs the package {error.name!r}; docs/four_gpus.md says how to install slime and SGLang"
        ) from None
    run_smoke(out, model, slime_dir, seed, stop_after, job_path)


def write_job_file(config: Path, run: Path, environment_url: str | None, model_sha256: str) -> Path:
    """RUN/slime.yaml: the file that `--custom-config-path` names."""
    from intraskill.slime_plugin.arguments import CONFIG_KEY
    from intraskill.store import write_bytes_atomic

    job = {"settings": str(config.resolve()), "run": str(run), "model_sha256": model_sha256}
    if environment_url:
        job["environment_url"] = environment_url
    path = run / "slime.yaml"
    write_bytes_atomic(path, yaml.safe_dump({CONFIG_KEY: job}, sort_keys=False).encode())
    return path
