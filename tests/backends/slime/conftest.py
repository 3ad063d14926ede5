"""Recorded episodes, and a small job without slime behind a fake SGLang server."""

from __future__ import annotations

import importlib.util
import json
import random
import re
import shutil
from types import SimpleNamespace

import pytest
from small_runs import any_choice

from intraskill.core.records import Assignment, Episode, EpisodeJob, EpisodeStep, Group, Turn
from intraskill.policies.scripted import call_text


def pytest_collection_modifyitems(items):
    """Tests marked `slime` need slime itself (and what it imports)."""
    missing = [name for name in ("slime", "ray") if importlib.util.find_spec(name) is None]
    for item in items:
        if missing and item.get_closest_marker("slime"):
            item.add_marker(pytest.mark.skip(reason=f"{', '.join(missing)} not installed; docs/four_gpus.md says how"))


def make_turn(prompt, sampled, version="7", text="", cached=0) -> Turn:
    logs = tuple(-0.1 * (position + 1) for position in range(len(sampled)))
    usage = {"prompt_tokens": len(prompt), "completion_tokens": len(sampled), "cached_tokens": cached}
    return Turn(text, "", "", (), "stop", tuple(prompt), tuple(sampled), logs, None, version, usage)


def make_episode(reward, turns, task_id="1", sample_id=0, status="completed", termination="purchase") -> Episode:
    return Episode(
        job=EpisodeJob(task_id, sample_id, 0, "train"),
        status=status,
        skill_ids=(),
        reset=None,
        messages=(),
        steps=tuple(EpisodeStep(turn, None, None) for turn in turns),
        reward=reward,
        success=reward == 1.0,
        detail={},
        termination=termination,
        error=None if status == "completed" else {"stage": "policy", "type": "x", "message": "x"},
    )


def make_group(index, episodes) -> Group:
    return Group(index, "1", Assignment(index, True, ()), tuple(episodes))


@pytest.fixture(scope="session")
def recorded():
    """Builders of recorded turns, episodes and groups."""
    return SimpleNamespace(turn=make_turn, episode=make_episode, group=make_group)


def shopper(tokenizer, draw):
    """Prompt ids -> reply ids of somebody who buys the first thing at random options."""

    def reply(prompt_ids):
        text = tokenizer.decode(prompt_ids)
        page = text.removesuffix("<|im_start|>assistant\n").removesuffix("<|im_end|>\n")
        page = page.rsplit("<tool_response>\n", 1)[-1].removesuffix("\n</tool_response>")
        if page.endswith("search"):
            said = call_text("search", query=re.findall(r"[a-z]+", text.split("<|im_start|>user\n")[1])[-1])
        else:
            said = call_text("click", value=any_choice(page, draw))
        return [*tokenizer.encode(said, add_special_tokens=False), tokenizer.convert_tokens_to_ids("<|im_end|>")]

    return reply


SETTINGS = {
    "name": "job",
    "rounds": 2,
    "steps_per_round": 2,
    "environment": {"world": {"generate": "small"}, "max_steps": 6},
    "policy": {"sampling": {"max_tokens": 200}},
    "rollout": {"group_size": 2, "generated_groups": 4, "kept_groups": 2},
    "gate": {"tasks": 12, "candidates": 0, "first": "auto"},
    "evaluation": {"equipped": False, "greedy": False},
    "report": {"wandb": "disabled"},
    "slime": {"context_length": 16384, "concurrency": 16},
}


class JobKit:
    """Makes jobs as slime would: `args()` is slime's namespace, `job()` a fresh start of the process."""

    def __init__(self, folder, tokenizer_dir, server) -> None:
        self.folder, self.server = folder, server
        self.model = folder / "model"
        shutil.copytree(tokenizer_dir, self.model)
        (self.model / "config.json").write_text("{}")
        (self.model / "model.safetensors").write_bytes(b"weights")
        self.settings = {**SETTINGS, "policy": {**SETTINGS["policy"], "model": str(self.model)}}
        self.spec = {"run": str(folder / "runs" / "job"), "model_sha256": "0" * 64}
        self.jobs = []

    def args(self, **changes):
        from intraskill.backends.slime.arguments import load_slime_settings, method_arguments

        config = self.folder / "config.yaml"
        config.write_text(json.dumps(self.settings))
        port = self.server.port
        values = method_arguments(load_slime_settings(config)) | {
            "intraskill": {**self.spec, "settings": str(config)},
            "sglang_router_ip": "127.0.0.1",
            "sglang_router_port": port,
            "save": str(self.folder / "checkpoints"),
            "load": str(self.folder / "checkpoints"),
            **changes,
        }
        return SimpleNamespace(**values)

    def job(self, **changes):
        from intraskill.backends.slime.job import Job

        for job in self.jobs:
            job.close()
        self.jobs = [Job(self.args(**changes))]
        return self.jobs[0]


@pytest.fixture(scope="session")
def worlds(tmp_path_factory):
    """One generated world for all jobs."""
    return tmp_path_factory.mktemp("worlds")


@pytest.fixture
def kit(tmp_path, worlds, tokenizer, tokenizer_dir, fake_sglang):
    server = fake_sglang(tokens=shopper(tokenizer, random.Random(0)))
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / ".worlds").symlink_to(worlds, target_is_directory=True)
    made = JobKit(tmp_path, tokenizer_dir, server)
    yield made
    for job in made.jobs:
        job.close()
