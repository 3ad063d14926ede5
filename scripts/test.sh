#!/usr/bin/env bash
# The whole check, from nothing: makes .venv, installs, then ruff, mypy, import-linter and the tests.
#   ./scripts/test.sh          everything but the tests marked slow
#   ./scripts/test.sh --slow   those too
# Other arguments are handed to pytest. All checks run even if one fails; pytest's summary comes last.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
. scripts/environment.sh

marks="not slow and not slime"
if [ "${1:-}" = "--slow" ]; then
  marks="not slime"
  shift
fi

prepare_environment dev
status=0
check() {
  if "$@" >.venv/check.log 2>&1; then
    say "ok      ${*#.venv/bin/}"
  else
    cat .venv/check.log >&2
    say "FAILED  ${*#.venv/bin/}"
    status=1
  fi
}
check .venv/bin/ruff check .
check .venv/bin/ruff format --check .
check .venv/bin/mypy
check .venv/bin/lint-imports
.venv/bin/python -m pytest -m "$marks" "$@" || status=$?
exit "$status"
