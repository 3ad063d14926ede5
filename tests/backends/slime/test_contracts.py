"""slime's own contract suites for plugins, run on thin wrappers around ours; one process a suite, as they ask."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slime

ROOT = Path(__file__).resolve().parents[3]
W = "contract_wrappers"
SUITES = {
    "test_plugin_rollout_contracts.py": {"ROLLOUT_FUNCTION_PATH": f"{W}.rollout"},
    "test_plugin_generate_contracts.py": {"CUSTOM_GENERATE_FUNCTION_PATH": f"{W}.generate"},
    "test_plugin_path_loading_contracts.py": {
        "EVAL_FUNCTION_PATH": f"{W}.rollout",
        "DYNAMIC_SAMPLING_FILTER_PATH": f"{W}.keep",
        "DATA_SOURCE_PATH": f"{W}.Tasks",
    },
    "test_plugin_runtime_hook_contracts.py": {
        "CUSTOM_ROLLOUT_LOG_FUNCTION_PATH": f"{W}.log_rollout",
        "CUSTOM_EVAL_ROLLOUT_LOG_FUNCTION_PATH": f"{W}.log_evaluation",
        "CUSTOM_REWARD_POST_PROCESS_PATH": "intraskill.backends.slime.rewards.post_process",
    },
}


@pytest.mark.timeout(600)
@pytest.mark.parametrize("suite", SUITES)
def test_the_suite_passes(suite):
    slime = Path(os.environ.get("SLIME_DIR", ROOT / "third_party" / "slime"))
    file = slime / "tests" / "plugin_contracts" / suite
    if not file.exists():
        pytest.skip(f"{file} does not exist; set SLIME_DIR to a checkout of slime")
    paths = [str(Path(__file__).parent), str(ROOT), str(ROOT / "ShopSimulator"), os.environ.get("PYTHONPATH", "")]
    environment = {
        **os.environ,
        **{f"SLIME_CONTRACT_{name}": path for name, path in SUITES[suite].items()},
        "PYTHONPATH": os.pathsep.join(filter(None, paths)),
    }
    command = [sys.executable, "-m", "pytest", str(file), "-q", "-p", "no:cacheprovider"]
    done = subprocess.run(command, cwd=slime, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
    assert " passed" in done.stdout
