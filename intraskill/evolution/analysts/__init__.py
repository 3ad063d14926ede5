"""Analysts: who find out what a failed episode lacked. `rules` needs no language model, `llm` asks one."""
