"""The plugin's samples in slime's own hands; needs slime, not SGLang."""

from types import SimpleNamespace

import pytest

pytestmark = pytest.mark.slime


@pytest.fixture
def groups(recorded):
    """Two groups of four; every second episode has two segments, one has nothing sampled."""
    one, two = [recorded.turn((1, 2), (3, 4))], [recorded.turn((1, 2), (3,)), recorded.turn((9, 2, 3), (5,))]
    empty = [recorded.turn((1, 2, 3), ())]
    return [
        recorded.group(0, [recorded.episode(float(n == 0), two if n % 2 else one, sample_id=n) for n in range(4)]),
        recorded.group(1, [recorded.episode(0.5 * n, empty if n == 2 else one, sample_id=n) for n in range(4)]),
    ]


def test_slime_accepts_the_nesting_and_counts_episodes(groups):
    from slime.observability.rollout_data_utils import validate_rollout_id_annotated
    from slime.utils.dp_schedule import build_dp_schedule

    from intraskill.backends.slime.rollout import slime_group

    nested = [slime_group(group, 4) for group in groups]
    validate_rollout_id_annotated(nested)
    flat = [sample for group in nested for episode in group for sample in episode]
    assert len(flat) == 10
    args = SimpleNamespace(
        use_dynamic_batch_size=True,
        max_tokens_per_gpu=100,
        micro_batch_size=1,
        balance_data=False,
        balance_by_flops=False,
    )
    parallel = {"dp_size": 1, "cp_size": 1, "vpp_size": 1, "microbatch_group_size_per_vp_stage": 1}
    partitions, _, _, batches = build_dp_schedule(
        args,
        parallel,
        [len(sample.tokens) for sample in flat],
        global_batch_size=4,
        rollout_indices=[sample.rollout_id for sample in flat],
    )
    assert batches == [4, 4], "two updates of four episodes each"
    assert sorted(partitions[0]) == list(range(10)), "nothing is dropped"


def test_masks_and_log_probs_have_the_response_length(groups):
    from intraskill.backends.slime.rollout import slime_group

    for group in groups:
        for episode in slime_group(group, 4):
            for sample in episode:
                assert len(sample.loss_mask) == len(sample.rollout_log_probs) == sample.response_length
                assert sample.response_length < len(sample.tokens)


def test_the_data_source_hands_out_nothing_behind_the_drivers_back(kit, monkeypatch):
    from intraskill.backends.slime import data_source

    source = data_source.TaskSource(kit.args())
    kit.jobs.append(source.run)
    with pytest.raises(RuntimeError, match="round driver"):
        source.get_samples(1)
    assert len(source) == len(source.run.driver.run.splits.train)


def test_slimes_entry_point_trains_and_evaluates(kit):
    from slime.rollout.base_types import call_rollout_fn

    from intraskill.backends.slime.data_source import TaskSource
    from intraskill.backends.slime.rollout import generate_rollout

    args = kit.args()
    source = TaskSource(args)
    kit.jobs.append(source.run)
    source.load(-1)
    started = call_rollout_fn(generate_rollout, args, 0, source, evaluation=True)
    assert started.data["skill_free"]["rewards"]
    trained = call_rollout_fn(generate_rollout, args, 0, source, evaluation=False)
    assert len(trained.samples) == 2
    assert trained.metrics["rollout/shopsim/train_group_count"] == 2
