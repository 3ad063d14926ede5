"""Kill a short training run at random moments and check that it ends like a run that was never killed.

    python scripts/kill_test.py --kills 20 --seed 0

Starts a reference run, then the same run again and again with SIGKILL after a random time, resuming it each time;
when a killed run finishes before all kills are used up, the next one starts from nothing. Compares everything the
runs leave behind (state, metrics, groups, traces, tokens, gates, banks, final weights), the clock aside. Prints one
JSON line; exit code 1 when anything differs.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

CONFIG = """\
name: {name}
seed: 3
rounds: 2
steps_per_round: 3
environment:
  world: {{generate: small}}
rollout: {{group_size: 4, generated_groups: 6, kept_groups: 4}}
gate: {{tasks: 40}}
report: {{wandb: disabled}}
"""
CLOCK = ("times", "seconds")
OWN = ("run.json", "report", "events")  # run.json holds the run's own name, the report its own time


def start(folder: Path, name: str) -> subprocess.Popen[bytes]:
    config = folder / f"{name}.yaml"
    config.write_text(CONFIG.format(name=name))
    command = [sys.executable, "-m", "intraskill", "train", str(config), "--runs-dir", str(folder / "runs"), "--quiet"]
    return subprocess.Popen(command)


def finish(folder: Path, name: str) -> float:
    """Run to the end; returns the seconds it took. Raises on a failing run."""
    started = time.monotonic()
    code = start(folder, name).wait()
    if code:
        raise SystemExit(f"run {name} failed with exit code {code}")
    return time.monotonic() - started


def kill_after(folder: Path, name: str, seconds: float) -> bool:
    """Start the run and kill it after `seconds`; False when it finished before."""
    process = start(folder, name)
    try:
        code = process.wait(seconds)
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGKILL)
        process.wait()
        return True
    if code:
        raise SystemExit(f"run {name} failed with exit code {code} when it was started again")
    return False


def contents(run: Path) -> dict[str, Any]:
    """What the run left behind: JSON without the clock, hashes of weights."""
    found: dict[str, Any] = {}
    for file in sorted(run.rglob("*")):
        name = str(file.relative_to(run))
        if not file.is_file() or name.split("/")[0] in OWN or file.suffix in (".lock", ".torn") or ".tmp" in name:
            continue
        if file.suffix == ".jsonl":
            found[name] = [_timeless(json.loads(line)) for line in file.read_bytes().split(b"\n") if line]
        elif file.suffix == ".json":
            found[name] = _timeless(json.loads(file.read_bytes()))
        elif file.suffix == ".safetensors":
            found[name] = hashlib.sha256(file.read_bytes()).hexdigest()
    return found


def _timeless(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: _timeless(v) for k, v in value.items() if k not in CLOCK and not k.startswith("timing/")}
    return [_timeless(item) for item in value] if isinstance(value, list) else value


def differences(first: dict[str, Any], second: dict[str, Any]) -> list[str]:
    names = sorted(first.keys() | second.keys())
    return [name for name in names if first.get(name) != second.get(name)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    draw = random.Random(arguments.seed)
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        length = finish(folder, "reference")
        reference = contents(folder / "runs" / "reference")
        kills, runs, differing = 0, 0, {}
        while kills < arguments.kills:
            name = f"killed-{runs}"
            while kills < arguments.kills and kill_after(folder, name, draw.uniform(0.2, 0.8 * length)):
                kills += 1
            finish(folder, name)
            if wrong := differences(reference, contents(folder / "runs" / name)):
                differing[name] = wrong
            runs += 1
    result = {"kills": kills, "runs": runs, "files_compared": len(reference), "differing": differing}
    print(json.dumps({"benchmark": "kill", "unkilled_s": round(length, 1), **result}))
    sys.exit(1 if differing else 0)


if __name__ == "__main__":
    main()
