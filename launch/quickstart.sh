#!/usr/bin/env bash
# Four real rounds on this machine's CPUs, from nothing: makes .venv, installs, trains configs/quick.yaml, shows where
# the curves are. Started again, it continues a run that was stopped, or says that it is finished.
# Arguments are handed to `intraskill train`, for example: ./launch/quickstart.sh --seed 1
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
. scripts/environment.sh

prepare_environment local
.venv/bin/intraskill train configs/quick.yaml "$@"
if [ $# -eq 0 ]; then
  printf 'The curves: %s\n' "$PWD/runs/quick/report/index.html"
fi
