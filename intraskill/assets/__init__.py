"""Data that ships with the package: `banks/s0.json` (`builtin:s0`) and the warm-up checkpoint `tiny/` (`builtin:tiny`)."""
