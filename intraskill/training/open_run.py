"""The composition root: the one place where a run is put together.

    settings --> tasks and environments --> who answers --> runner (one episode) --> proposer --> `Run`

A **backend** is whoever computes: it names the weights it starts from, and gives the policy that samples from them.
Everything else of a run is the same for all backends and is wired here: training in this process or under slime,
`gate complete`, a cold start and frozen evaluations all get their parts from these functions. Whatever can be refused
is refused before a backend loads anything.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from intraskill.agent.episode import EpisodeSettings
from intraskill.assets import bank_path
from intraskill.core.errors import UserError
from intraskill.core.progress import Reporter
from intraskill.core.protocol import Policy
from intraskill.core.records import Sampling
from intraskill.evolution.proposer import open_proposer
from intraskill.families.base import FamilySettings, TaskFamily, TaskSplits
from intraskill.families.registry import open_family
from intraskill.gate.design import check_columns
from intraskill.rollout.runner import EpisodeRunner
from intraskill.settings.models import PolicySettings, RunSettings
from intraskill.skills.bank import Bank, read_bank
from intraskill.storage.fingerprint import fingerprint
from intraskill.storage.run_folder import RunFolder
from intraskill.training.run import Run


class Backend(Protocol):
    """Who computes."""

    @property
    def wave_size(self) -> int:
        """Episodes run at once outside of training steps."""

    @property
    def episode_timeout_s(self) -> float | None:
        """When an episode that hangs is ended, where the backend needs such a limit."""

    def identity(self) -> Mapping[str, Any]:
        """Which model a run starts from, and what else changes what is sampled: part of the run's fingerprint."""

    def policy(self) -> Policy:
        """The policy at the run's last finished step; may take long."""


def open_run(
    settings: RunSettings,
    folder: RunFolder,
    backend: Backend,
    reporter: Reporter,
    overrides: Sequence[str] = (),
    environment_url: str | None = None,
) -> Run:
    """Everything of the run in `folder` but its driver.

    `overrides` are those of the command line that `settings` hold already, to be recorded; `environment_url` is where
    the environment is served, when not where the settings say.

    Raises `UserError` for what cannot be run, and when the folder belongs to another run.
    """
    environment = settings.environment
    if environment_url is not None:
        environment = environment.at(environment_url)
    family = open_family(environment, folder.path.parent / ".worlds")
    bank, splits = read_bank(bank_path(settings.bank)), family.splits()
    check_run(settings, splits, bank)
    folder.claim(
        settings,
        {
            **backend.identity(),
            "environment": family.identity(),
            "tasks_sha256": fingerprint([splits.train, splits.val, splits.test]),
            "prompt_sha256": family.prompt(settings.policy.prompt).sha256,
            "bank_sha256": bank.sha256,
        },
        overrides,
    )
    proposer = open_proposer(settings, folder, family)
    return Run(
        settings=settings,
        folder=folder,
        runner=open_runner(environment, settings.policy, family, backend.policy(), backend.episode_timeout_s),
        splits=splits,
        bank=bank,
        proposer=proposer,
        reporter=reporter,
        wave_size=backend.wave_size,
    )


def open_runner(
    environment: FamilySettings,
    policy_settings: PolicySettings,
    family: TaskFamily,
    policy: Policy,
    timeout_s: float | None = None,
) -> EpisodeRunner:
    """What runs single episodes: a place to act, who answers, how it is told, and its limits."""
    sampling = Sampling(**policy_settings.sampling.model_dump())
    limits = EpisodeSettings(environment.max_steps, sampling, policy_settings.tool_schema, timeout_s)
    return EpisodeRunner(family, policy, family.prompt(policy_settings.prompt), limits)


def check_run(settings: RunSettings, splits: TaskSplits, bank: Bank) -> None:
    """Raise `UserError` when these settings cannot be run with these tasks and this bank."""
    if not splits.train:
        raise UserError("the train split is empty; there is nothing to train on")
    if len(splits.val) < settings.gate.tasks:
        raise UserError(
            f"gate.tasks is {settings.gate.tasks} but the validation split has {len(splits.val)} tasks; "
            "lower gate.tasks or use a larger world"
        )
    gate, analyst = settings.gate, settings.analyst
    candidates = 0 if analyst.kind == "none" else gate.candidates
    check_columns(gate.tasks, len(bank.chunks), candidates, gate.budget, settings.rounds)
    if bank.draft_only:
        raise UserError(
            "the initial bank is a draft that no gate has measured; run `intraskill coldstart gate` on it and "
            "train with the selected_skill_bank.json it writes"
        )
    if settings.gate.first == "never" and any(chunk.contribution is None for chunk in bank.chunks):
        raise UserError(
            "gate.first is never, but the initial bank carries no contributions, so no chunk has an inclusion "
            "probability; set gate.first to auto"
        )
