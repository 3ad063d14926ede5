#!/usr/bin/env bash
# The environment service of a run: serves the world that CONFIG describes until it is stopped. The first line on
# standard output is JSON with the URL. Binds to loopback; other options: `intraskill slime environment --help`.
#
#   launch/environment.sh configs/qwen35_4b_4gpu.yaml --port 8765
set -euo pipefail
exec "${PYTHON:-python3}" -m intraskill slime environment "$@"
