"""The closed error vocabulary: who is at fault decides what happens next.

A **policy failure** (cut at the length limit, out of steps, wrong in the end) is data: the episode is scored and
trained on, and no exception is raised for it. A **technical failure** (endpoint down, environment gone) says
nothing about the policy: the episode is unscorable, is never given a reward of 0, and never trained on. A
**user error** is something only the user can mend: one clear line, exit code 2, nothing lost. Anything else is
a bug and keeps its traceback.
"""


class IntraSkillError(Exception):
    """Base of every error this package raises on purpose."""


class UserError(IntraSkillError):
    """Bad input. The message is one line: what is wrong, where, and how to mend it."""


class TechnicalFailure(IntraSkillError):
    """The episode could not be judged for a reason that is not the policy's. `stage` says where it broke."""

    def __init__(self, stage: str, message: str) -> None:
        super().__init__(f"{stage}: {message}")
        self.stage = stage
        self.message = message


class PolicyUnavailable(TechnicalFailure):
    """The model endpoint stayed unreachable or kept failing after all retries."""

    def __init__(self, message: str) -> None:
        super().__init__("policy", message)


class EnvironmentUnavailable(TechnicalFailure):
    """The environment service stayed unreachable, lost the lease, or broke its contract."""

    def __init__(self, message: str) -> None:
        super().__init__("environment", message)


class TooManyTechnicalFailures(IntraSkillError):
    """Eight groups in a row could not be scored: the run stops instead of training on what is left."""


class NotFinite(IntraSkillError):
    """A weight, a log-prob, a loss or a gradient became NaN or infinite: nothing computed from it means anything."""


class StateCorrupted(UserError):
    """A file of a run folder is damaged or contradicts itself, for the user to restore; the message names it."""
