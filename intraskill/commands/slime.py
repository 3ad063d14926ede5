"""`intraskill slime`: what the launcher of a cluster job asks for, and the smoke run.

`preflight` is told of the job that is about to be started: it looks for everything that would stop or spoil it, or
prints slime's arguments for it.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated

import typer

from intraskill.commands.options import OVERRIDES
from intraskill.core.errors import UserError

slime_app = typer.Typer(help="The four-GPU backend: slime, SGLang, Megatron.", no_args_is_help=True)

Config = Annotated[Path, typer.Argument(help="Settings of the run, e.g. configs/qwen35_4b_4gpu.yaml.")]
RunsDir = Annotated[Path, typer.Option(help="Folder that holds the run folders.")]
SlimeDir = Annotated[Path, typer.Option(help="A checkout of slime.")]


@slime_app.command()
def preflight(
    config: Config,
    overrides: list[str] = OVERRIDES,
    runs_dir: RunsDir = Path("runs"),
    checkpoints: Annotated[Path | None, typer.Option(help="slime's; RUNS_DIR/NAME/checkpoints by default.")] = None,
    slime_dir: SlimeDir = Path("third_party/slime"),
    megatron_dir: Annotated[Path | None, typer.Option(help="A checkout of Megatron-LM.")] = None,
    torch_dist: Annotated[
        Path | None, typer.Option(help="The model as torch_dist; else HF weights are loaded.")
    ] = None,
    environment_url: Annotated[str | None, typer.Option(help="The environment service.")] = None,
    gpus: Annotated[int, typer.Option(min=1, help="GPUs of the node.")] = 4,
    train_tp: Annotated[int, typer.Option(min=1, help="Tensor parallel size of the trainer.")] = 2,
    rollout_tp: Annotated[int, typer.Option(min=1, help="Tensor parallel size of one inference engine.")] = 1,
    save_interval: Annotated[int, typer.Option(help="Steps from checkpoint to checkpoint; 0 = one a round.")] = 0,
    arguments: Annotated[bool, typer.Option("--arguments", help="Only print slime's arguments, one a line.")] = False,
) -> None:
    """Check what can be checked before a GPU is touched.

    One line a problem, exit code 2. Without a problem, writes RUN/slime.yaml for the job and prints what there is to
    do (train, close or done) and the id of the W&B run to continue. With --arguments nothing is checked or written.
    """
    from intraskill.assets import model_directory
    from intraskill.backends.slime.arguments import load_slime_settings
    from intraskill.backends.slime.launch import run_arguments, wandb_run_id, write_run_file
    from intraskill.backends.slime.preflight import Launch, problems, remaining

    settings = load_slime_settings(config, overrides)
    run = (runs_dir / settings.name).resolve()
    launch = Launch(
        settings=settings,
        run=run,
        checkpoints=(checkpoints or run / "checkpoints").resolve(),
        slime=slime_dir,
        megatron=megatron_dir,
        model_copy=torch_dist,
        environment_url=environment_url,
        gpus=gpus,
        train_tp=train_tp,
        rollout_tp=rollout_tp,
        save_interval=save_interval or settings.steps_per_round,
    )
    if arguments:
        print("\n".join(run_arguments(launch, config.resolve())))
        return
    if found := problems(launch):
        for problem in found:
            print(f"error: {problem}", file=sys.stderr)
        raise typer.Exit(2)
    write_run_file(config, overrides, run, environment_url, model_directory(settings.policy.model))
    print(remaining(launch).action, wandb_run_id(launch))


@slime_app.command()
def environment(
    config: Config,
    overrides: list[str] = OVERRIDES,
    runs_dir: RunsDir = Path("runs"),
    host: Annotated[str, typer.Option(help="Address to bind; loopback unless you mean it.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="0 takes any free port.")] = 8000,
    slots: Annotated[int, typer.Option(help="Sessions open at once; 0 = slime.concurrency.")] = 0,
) -> None:
    """Serve the run's world over HTTP until interrupted.

    The first line printed is JSON with the URL.
    """
    from intraskill.backends.slime.arguments import load_slime_settings
    from intraskill.families.registry import open_family

    settings = load_slime_settings(config, overrides)
    family = open_family(settings.environment.offline(), runs_dir / ".worlds")
    slots = slots or settings.slime.concurrency

    def announce(url: str) -> None:
        print(json.dumps({"url": url, "slots": slots}), flush=True)

    family.serve(host=host, port=port, sessions=slots, announce=announce)


@slime_app.command()
def smoke(
    out: Annotated[Path, typer.Option(help="Folder for the run and the logs; kept.")] = Path("runs/slime-smoke"),
    model: Annotated[str, typer.Option(help="A small model directory.")] = "builtin:tiny",
    slime_dir: SlimeDir = Path("third_party/slime"),
    seed: Annotated[int, typer.Option(help="Seed of the run.")] = 0,
    stop_after: Annotated[int, typer.Option(help="Kill the job after this many checkpoints; 0 = never.")] = 0,
    job_path: Annotated[str, typer.Option(help="First on the job's PYTHONPATH, e.g. an SGLang that slime knows.")] = "",
) -> None:
    """Run slime's real loop on the CPU, in miniature.

    Two rounds of two steps, a real SGLang server, gates in the loop. Needs slime and SGLang, but no GPU and no
    Megatron: the trainer is the embedded one. Takes minutes. Run it before paying for GPUs. Started again on the same
    folder, it continues.
    """
    try:
        from intraskill.backends.slime.smoke import run_smoke
    except ImportError as error:
        raise UserError(
            f"the smoke run needs the package {error.name!r}; docs/four_gpus.md says how to install slime and SGLang"
        ) from None
    run_smoke(out, model, slime_dir, seed, stop_after, job_path)
