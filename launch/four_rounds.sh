#!/usr/bin/env bash
# Four rounds on one node with four GPUs, in one slime job: training steps and gates on the same engines. Started
# again, it continues from the last checkpoint, or says that there is nothing left to do.
#
#   launch/four_rounds.sh              start or continue
#   launch/four_rounds.sh --dry-run    print the exact command and stop
#   launch/four_rounds.sh KEY=VALUE    settings instead of CONFIG's, such as train.lr=5e-7 (checked like the file)
#   launch/four_rounds.sh -- WORDS     further arguments for slime, after all others
#
# The method is set in CONFIG. How it is spread over this machine is set by these variables:
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

CONFIG=${CONFIG:-configs/qwen35_4b_4gpu.yaml}       # settings of the run
RUNS_DIR=${RUNS_DIR:-runs}                          # run folder: RUNS_DIR/<name in CONFIG>
CHECKPOINTS=${CHECKPOINTS:-}                        # slime's checkpoints; inside the run folder by default
SLIME_DIR=${SLIME_DIR:-third_party/slime}           # checkout of slime
MEGATRON_DIR=${MEGATRON_DIR:-/root/Megatron-LM}     # checkout of Megatron-LM
MODEL_TORCH_DIST=${MODEL_TORCH_DIST:-}              # the model as torch_dist (launch/convert_checkpoint.md); else HF
MODEL_SCRIPT=${MODEL_SCRIPT:-qwen3.5-4B.sh}         # architecture: a file of SLIME_DIR/scripts/models
NUM_GPUS=${NUM_GPUS:-4}
TRAIN_TP=${TRAIN_TP:-2}                             # tensor parallel size of the trainer
ROLLOUT_TP=${ROLLOUT_TP:-1}                         # GPUs of one inference engine
MAX_TOKENS_PER_GPU=${MAX_TOKENS_PER_GPU:-16384}     # tokens of one training micro-batch
LOG_PROBS_CHUNK=${LOG_PROBS_CHUNK:-1024}            # positions whose logits exist at once
MEM_FRACTION=${MEM_FRACTION:-0.7}                   # of a GPU's memory, for SGLang
ROUTER_POLICY=${ROUTER_POLICY:-manual}              # by routing key: siblings meet on one engine; or cache_aware
SAVE_INTERVAL=${SAVE_INTERVAL:-0}                   # steps between checkpoints; 0: one a round
BASE_EVAL=${BASE_EVAL:-1}                           # score the untrained policy before step 1
ENV_URL=${ENV_URL:-}                                # an environment service; empty: start and stop our own
ENV_PORT=${ENV_PORT:-8765}
PYTHON=${PYTHON:-python3}                           # the Python that has slime, SGLang and this package

say() { printf '%s\n' "$*" >&2; }
fail() {
  say "error: $*"
  exit 2
}

dry_run=false
extra=()
overrides=()
while [ $# -gt 0 ]; do
  case $1 in
    --dry-run) dry_run=true ;;
    --resume) ;; # implied by a checkpoint
    --)
      shift
      extra=("$@")
      break
      ;;
    [!-]*=*) overrides+=("$1") ;;
    *) fail "unknown argument $1; it takes --dry-run, KEY=VALUE, and slime's own arguments after --" ;;
  esac
  shift
done

command -v "$PYTHON" >/dev/null || fail "PYTHON=$PYTHON: no such program"
"$PYTHON" -c "import intraskill.cli" 2>/dev/null ||
  fail "PYTHON=$PYTHON cannot run this package; install it there: $PYTHON -m pip install --editable '.[slime]'"
SLIME_DIR=$(cd "$SLIME_DIR" 2>/dev/null && pwd) || fail "SLIME_DIR: no such directory; clone slime there, or set it"
model_script=$SLIME_DIR/scripts/models/$MODEL_SCRIPT
[ -f "$model_script" ] || fail "$model_script does not exist; set SLIME_DIR to a checkout of slime, or MODEL_SCRIPT"

environment_pid=
job_pid=
cleanup() { # the job first: it still needs its environment while it stops
  for pid in $job_pid $environment_pid; do
    kill -TERM "$pid" 2>/dev/null && wait "$pid" || true
  done
}
trap cleanup EXIT
trap 'exit 143' TERM
trap 'exit 130' INT

environment_url=${ENV_URL:-http://127.0.0.1:$ENV_PORT}
launch=("$CONFIG" "${overrides[@]}" --runs-dir "$RUNS_DIR" --slime-dir "$SLIME_DIR" --megatron-dir "$MEGATRON_DIR"
  --environment-url "$environment_url" --gpus "$NUM_GPUS" --train-tp "$TRAIN_TP" --rollout-tp "$ROLLOUT_TP"
  --save-interval "$SAVE_INTERVAL")
[ -z "$CHECKPOINTS" ] || launch+=(--checkpoints "$CHECKPOINTS")
[ -z "$MODEL_TORCH_DIST" ] || launch+=(--torch-dist "$MODEL_TORCH_DIST")

MODEL_ARGS=()
# shellcheck source=/dev/null
source "$model_script"
run_words=$("$PYTHON" -m intraskill slime preflight "${launch[@]}" --arguments) || exit $?
mapfile -t RUN_ARGS <<<"$run_words"

CLUSTER_ARGS=(
  --actor-num-nodes 1
  --actor-num-gpus-per-node "$NUM_GPUS"
  --num-gpus-per-node "$NUM_GPUS"
  --colocate
  --rollout-num-gpus-per-engine "$ROLLOUT_TP"
  --sglang-mem-fraction-static "$MEM_FRACTION"
  --router-policy "$ROUTER_POLICY"
)
[ "$ROUTER_POLICY" != manual ] || CLUSTER_ARGS+=(--router-assignment-mode min_group)
TRAIN_ARGS=(
  --tensor-model-parallel-size "$TRAIN_TP"
  --pipeline-model-parallel-size 1
  --context-parallel-size 1
  --optimizer adam
  --use-dynamic-batch-size
  --max-tokens-per-gpu "$MAX_TOKENS_PER_GPU"
  --recompute-granularity full
  --recompute-method uniform
  --recompute-num-layers 1
  --recompute-loss-function
  --log-probs-chunk-size "$LOG_PROBS_CHUNK"
  --attention-dropout 0.0
  --hidden-dropout 0.0
  --accumulate-allreduce-grads-in-fp32
  --attention-softmax-in-fp32
  --attention-backend flash
)
[ "$TRAIN_TP" = 1 ] || TRAIN_ARGS+=(--sequence-parallel)
[ "$BASE_EVAL" = 1 ] || TRAIN_ARGS+=(--skip-eval-before-train)
command=("$PYTHON" "$SLIME_DIR/train.py" "${MODEL_ARGS[@]}" "${RUN_ARGS[@]}" "${CLUSTER_ARGS[@]}" "${TRAIN_ARGS[@]}"
  "${extra[@]}")

if $dry_run; then
  printf '%q ' "${command[@]}"
  echo
  exit 0
fi

if [ -z "$ENV_URL" ]; then
  PYTHON=$PYTHON launch/environment.sh "$CONFIG" "${overrides[@]}" --runs-dir "$RUNS_DIR" --port "$ENV_PORT" &
  environment_pid=$!
  for _ in $(seq 120); do
    if ! kill -0 "$environment_pid" 2>/dev/null; then
      environment_pid=
      fail "the environment service ended at once; see its message above (is port $ENV_PORT in use? set ENV_PORT)"
    fi
    "$PYTHON" -c "import sys, shopsimulator.client as c; c.read_health(sys.argv[1], 2.0)" "$environment_url" \
      2>/dev/null && break
    sleep 1
  done
fi

read -r action wandb_id < <("$PYTHON" -m intraskill slime preflight "${launch[@]}" || echo refused) || true
case $action in
  train | close) ;;
  done)
    say "$RUNS_DIR: all rounds are finished, nothing to do"
    exit 0
    ;;
  *) exit 2 ;;
esac

export PYTHONPATH="$SLIME_DIR:$MEGATRON_DIR${PYTHONPATH:+:$PYTHONPATH}"
export PYTHONUNBUFFERED=1 CUDA_DEVICE_MAX_CONNECTIONS=1 RAY_DEDUP_LOGS=0
export WANDB_RUN_ID=$wandb_id WANDB_RESUME=allow # keys stay in the environment: never on a command line
"${command[@]}" &
job_pid=$!
status=0
wait "$job_pid" || status=$?
job_pid=
exit "$status"
