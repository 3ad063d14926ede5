# Sourced by launch/quickstart.sh and scripts/test.sh: finds a Python and keeps `.venv` up to date.
# PYTHON names the interpreter to build the environment with; pip's own variables (PIP_*) are honoured.

say() { printf '%s\n' "$*" >&2; }

fail() {
  say "error: $*"
  exit 2
}

is_recent() { [ "$("$1" -c 'import sys; print(sys.version_info >= (3, 10))' 2>/dev/null)" = True ]; }

find_python() {
  if [ -n "${PYTHON:-}" ]; then
    command -v "$PYTHON" >/dev/null 2>&1 || fail "PYTHON=$PYTHON: no such program; give the path of a Python 3.10 or newer"
    is_recent "$PYTHON" || fail "PYTHON=$PYTHON is not a working Python 3.10 or newer; give the path of one"
    printf '%s\n' "$PYTHON"
    return
  fi
  for candidate in python3 python3.13 python3.12 python3.11 python3.10 python; do
    if command -v "$candidate" >/dev/null 2>&1 && is_recent "$candidate"; then
      printf '%s\n' "$candidate"
      return
    fi
  done
  fail "no Python 3.10 or newer found; install one, or name it: PYTHON=/path/to/python3 $0"
}

make_venv() {
  local python
  python=$(find_python) || exit $?
  say "making .venv with $("$python" --version)"
  rm -rf .venv
  "$python" -m venv .venv >/dev/null 2>&1 && return
  # Some distributions ship venv without ensurepip: borrow the interpreter's own pip, or virtualenv.
  rm -rf .venv
  if "$python" -m venv --without-pip .venv >/dev/null 2>&1 &&
    "$python" -m pip --python .venv/bin/python install --quiet pip >/dev/null 2>&1; then
    return
  fi
  rm -rf .venv
  "$python" -m virtualenv --quiet .venv >/dev/null 2>&1 && return
  rm -rf .venv
  fail "$python cannot make a virtual environment; install its venv module (Debian, Ubuntu: apt install python3-venv)"
}

# What of pip's talk tells that it goes on: downloads of a megabyte or more, and the last, silent part.
large_steps() {
  grep --line-buffered -oE '^ *Downloading [^ ]+ \([0-9.]+ [MG]B\)|^Installing collected packages' || true
}

setup_hash() { .venv/bin/python -c 'import hashlib; print(hashlib.sha256(open("setup.py", "rb").read()).hexdigest())'; }

# prepare_environment EXTRA: `.venv` holds this checkout with the extra's packages; quick when nothing changed.
# The stamp is written last, so an installation that was cut short is done again.
prepare_environment() {
  local extra=$1 hash
  if [ ! -x .venv/bin/python ] || ! is_recent .venv/bin/python || ! .venv/bin/python -m pip --version >/dev/null 2>&1; then
    make_venv
  fi
  hash=$(setup_hash)
  if [ "$(cat ".venv/installed-$extra" 2>/dev/null)" = "$hash" ]; then
    return
  fi
  say "installing the packages of .[$extra] into .venv (the first time this takes a few minutes)"
  PYTHONUNBUFFERED=1 .venv/bin/python -m pip install --disable-pip-version-check --editable ".[$extra]" |
    large_steps >&2 ||
    fail "the installation failed, see pip's message above; start again when that is mended"
  printf '%s\n' "$hash" >".venv/installed-$extra"
}
