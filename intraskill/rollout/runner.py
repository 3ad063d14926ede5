"""What one episode needs besides its job: where it acts, who answers, how it is told, and its limits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from intraskill.agent.episode import EpisodeSettings, run_episode
from intraskill.core.protocol import Policy
from intraskill.core.records import Episode, EpisodeJob
from intraskill.families.base import Prompt, TaskFamily
from intraskill.skills.bank import Chunk


@dataclass(frozen=True)
class EpisodeRunner:
    """Runs single episodes; training, retries, the gate and evaluations all go through `run`."""

    family: TaskFamily
    policy: Policy
    prompt: Prompt
    settings: EpisodeSettings

    async def run(self, job: EpisodeJob, chunks: Sequence[Chunk], group: str) -> Episode:
        """One episode in a fresh environment; `group` names the siblings that share its prompt."""
        env = self.family.new_environment(job)
        return await run_episode(job, self.family, env, self.policy, self.prompt, chunks, self.settings, group)

    def greedy(self) -> EpisodeRunner:
        """The same runner at temperature 0."""
        sampling = replace(self.settings.sampling, temperature=0.0)
        return replace(self, settings=replace(self.settings, sampling=sampling))

    def protocol(self) -> dict[str, Any]:
        """Everything that must be equal for two runs to be comparable, the skills aside."""
        sampling = self.settings.sampling
        return {
            "policy": self.policy.identity(),
            "environment": self.family.identity(),
            "prompt_sha256": self.prompt.sha256,
            "tool_schema": self.settings.tool_schema,
            "max_steps": self.settings.max_steps,
            "sampling": {
                "temperature": sampling.temperature,
                "top_p": sampling.top_p,
                "top_k": sampling.top_k,
                "max_tokens": sampling.max_tokens,
            },
        }
