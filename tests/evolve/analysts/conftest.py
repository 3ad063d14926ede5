"""The scripted model server of the policy tests, here as well."""

import importlib.util
from pathlib import Path

_PATH = Path(__file__).parents[2] / "policies" / "conftest.py"
_SPEC = importlib.util.spec_from_file_location("policy_fixtures", _PATH)
_MODULE = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(_MODULE)
model_server = _MODULE.model_server
