"""IntraSkill: GRPO for tool-calling agents whose skill text co-evolves with the policy."""

__version__ = "0.1.0"
