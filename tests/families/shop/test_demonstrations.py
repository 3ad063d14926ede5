"""The scripted teacher: careful where it should be, seeing what a policy sees; and what its data marks as learned."""

import asyncio
import math
import random
from pathlib import Path

import numpy as np
import pytest
from shopsimulator.generate import generate_world

from intraskill.agent.episode import EpisodeSettings
from intraskill.assets import bank_path
from intraskill.backends.embedded.models import build_model
from intraskill.backends.embedded.tiny import FORMAT_TOKENS, build_tokenizer, tiny_config
from intraskill.backends.embedded.warmup import WarmupSettings, measure, train
from intraskill.core.records import Episode, EpisodeJob, Sampling
from intraskill.families.shop import demonstrations as demo
from intraskill.families.shop.family import open_shop
from intraskill.families.shop.prompts import prompt_template
from intraskill.families.shop.settings import ShopSettings, WorldSettings
from intraskill.families.shop.shopper import Errand, Tried, next_action, read_errand
from intraskill.policies.chat import ChatTemplate
from intraskill.skills.bank import Chunk, read_bank

LIMITS = EpisodeSettings(max_steps=10, sampling=Sampling(temperature=1.0, max_tokens=32))
COMPACT = prompt_template("compact")


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> demo.Stage:
    folder = tmp_path_factory.mktemp("world")
    generate_world(folder, "small", 0)
    world = WorldSettings(generate=None, catalog=folder / "catalog.json.gz", splits=folder / "splits.json")
    source = open_shop(ShopSettings(world=world), Path(folder))
    return demo.Stage(source, source.splits().train, read_bank(bank_path("builtin:s0")), COMPACT, LIMITS, seed=0)


@pytest.fixture(scope="module")
def chat(stage: demo.Stage) -> ChatTemplate:
    return ChatTemplate(build_tokenizer(demo.shown_texts(stage, range(60)), 900, demo.WHOLE))


def play_all(stage: demo.Stage, chunks: tuple[Chunk, ...], seed: int, slips: bool = False) -> list[Episode]:
    async def every() -> list[Episode]:
        episodes = []
        for number, task_id in enumerate(stage.task_ids):
            script = demo.Script(random.Random(f"{seed}/{number}"), chunks, LIMITS.max_steps, slips=slips)
            job = EpisodeJob(task_id, number, number, "train")
            episodes.append(await demo.demonstrate(stage.family, job, script, COMPACT, LIMITS))
        return episodes

    return asyncio.run(every())


def success(episodes: list[Episode]) -> float:
    return sum(episode.success for episode in episodes) / len(episodes)


def useful(stage: demo.Stage) -> tuple[Chunk, ...]:
    return tuple(chunk for chunk in stage.bank.chunks if demo.mechanism(chunk) != "haste")


def test_full_care_solves_nearly_every_task_within_ten_steps(
    stage: demo.Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(demo, "FOLLOWED", 1.0)
    assert success(play_all(stage, useful(stage), 1)) >= 0.95


def test_no_care_solves_only_plain_tasks(stage: demo.Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo, "UNPROMPTED", 0.0)
    for episode in play_all(stage, (), 1):
        assert episode.reset is not None
        assert episode.success == (not read_errand(episode.reset).needs)


def test_chunks_make_the_difference_and_haste_undoes_it(stage: demo.Stage) -> None:
    bare, helped, hasty = (success(play_all(stage, chunks, 2)) for chunks in ((), useful(stage), stage.bank.chunks))
    assert bare < 0.4 < 0.85 < helped
    assert hasty < helped - 0.1


def test_one_chunk_helps_only_tasks_of_its_mechanism(stage: demo.Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo, "UNPROMPTED", 0.0)
    (brand,) = (chunk for chunk in stage.bank.chunks if demo.mechanism(chunk) == "brand")
    for episode in play_all(stage, (brand,), 3):
        assert episode.reset is not None
        assert not episode.success or set(read_errand(episode.reset).needs) <= {"brand"}


def test_the_teacher_sees_no_more_than_instruction_persona_and_page(stage: demo.Stage) -> None:
    session = stage.family.new_environment()
    reset = asyncio.run(session.reset(stage.task_ids[0]))
    errand = read_errand(reset)
    assert errand.stated[-1] in reset.instruction
    tool, query = next_action(errand, errand.needs, reset.state, Tried(), 10)
    assert tool == "search"
    assert set(query.split()) >= set(errand.stated)


def test_slips_are_recovered_from(stage: demo.Stage) -> None:
    episodes = play_all(stage, useful(stage), 4, slips=True)
    invalid = [
        step for episode in episodes for step in episode.steps if step.result and not step.result.feedback["valid"]
    ]
    assert len(invalid) > 0.3 * len(episodes)
    assert success(episodes) > 0.75


def test_demonstrations_are_reproducible_and_independent_of_the_range(stage: demo.Stage, chat: ChatTemplate) -> None:
    whole = list(demo.demonstrations(stage, chat, range(12)))
    tail = list(demo.demonstrations(stage, chat, range(6, 12)))
    assert [episode.token_ids.tolist() for episode in whole[6:]] == [episode.token_ids.tolist() for episode in tail]


def test_only_actions_of_the_teacher_are_learned(stage: demo.Stage, chat: ChatTemplate) -> None:
    slipped = 0
    for number in range(40):
        episode, script = stage.play(number, chat)
        (data,) = demo.demonstrations(stage, chat, range(number, number + 1))
        wanted = [step.turn.text for step, slip in zip(episode.steps, script.slipped) if not slip]
        assert chat.decode(data.token_ids[data.learned].tolist()) == "<|im_end|>".join(wanted)
        slipped += sum(script.slipped)
    assert slipped > 0


def test_training_text_is_the_text_met_at_run_time(stage: demo.Stage, chat: ChatTemplate) -> None:
    episode, _ = stage.play(5, chat)
    (data,) = demo.demonstrations(stage, chat, range(5, 6))
    rendered = chat.initial_ids(episode.messages, ())
    assert data.token_ids.tolist() == list(rendered[: len(data.token_ids)])


def test_floor_is_the_surprise_of_the_care_taken() -> None:
    needs, visible = ("brand", "budget"), frozenset({"brand"})
    probabilities = [
        demo.care_probability(frozenset(care), needs, visible)
        for care in ((), ("brand",), ("budget",), ("brand", "budget"))
    ]
    assert math.isclose(sum(probabilities), 1.0)
    assert math.isclose(probabilities[3], demo.FOLLOWED * demo.UNPROMPTED)
    hasty = demo.care_probability(frozenset(), needs, visible | {"haste"})
    assert math.isclose(hasty, demo.HASTE_OBEYED + (1 - demo.HASTE_OBEYED) * probabilities[0])


def test_floor_of_a_plain_task_is_zero(stage: demo.Stage, chat: ChatTemplate) -> None:
    floors = {}
    for number in range(len(stage.task_ids)):
        episode, script = stage.play(number)
        assert episode.reset is not None
        floors.setdefault(len(read_errand(episode.reset).needs), []).append(script.floor)
    assert max(floors[0]) == 0.0
    assert np.mean(floors[1]) > 0.1


def test_every_paraphrased_mechanism_is_in_the_bank(stage: demo.Stage) -> None:
    assert {demo.mechanism(chunk) for chunk in stage.bank.chunks} == set(demo.PARAPHRASES)


def test_whatever_is_clicked_is_a_few_tokens(stage: demo.Stage, chat: ChatTemplate) -> None:
    """A number is its head and two pairs, an option its axis and value, a button itself; three more frame the call."""
    episode, _ = stage.play(0, chat)
    lengths = {step.action: len(step.turn.token_ids) for step in episode.steps if step.action}
    clicked = {action[6:-1]: length for action, length in lengths.items() if action.startswith("click")}
    assert {length for value, length in clicked.items() if value.isdigit()} == {6}
    assert {length for value, length in clicked.items() if "=" in value} == {5}
    assert clicked["buy now"] == 4
    assert all(len(chat.encode(text)) == 1 for text in (*FORMAT_TOKENS, *demo.WHOLE))


def test_every_number_is_cut_alike_and_prices_are_no_pairs(chat: ChatTemplate) -> None:
    pieces = {
        tuple(map(len, map(chat.decode, ([i] for i in chat.encode(f"1000{n:04d}"))))) for n in range(0, 10_000, 37)
    }
    assert pieces == {(4, 2, 2)}
    row = chat.encode("10000530 oak shelf 30-55")
    assert [chat.decode([token]) for token in row[:3]] == ["1000", "05", "30"]
    assert [chat.decode([token]) for token in row[-2:]] == [" 30", "-55"]


def test_a_size_above_the_limit_is_changed_until_all_were_tried() -> None:
    errand = Errand((), ("oak", "shelf"), "norvik", "oak", "red", limit=30.0)
    state = {
        "page_type": "product_detail",
        "product": {"asin": "10000001", "title": "norvik oak shelf"},
        "available_options": {"colour": ["red"], "size": ["small", "large", "giant"]},
        "missing_option_axes": ["size"],
        "actions": [],
    }
    tried, chosen = Tried(), []
    for _ in range(4):
        action = next_action(errand, ("budget",), state, tried, 10)
        tried.note(action, state)
        chosen.append(action[1])
        state |= {"missing_option_axes": [], "selected_price": 45.0}
    assert chosen == ["size=small", "size=giant", "size=large", "< prev"]


def test_warm_up_lowers_the_excess_on_held_out_demonstrations(stage: demo.Stage, chat: ChatTemplate) -> None:
    data = list(demo.demonstrations(stage, chat, range(64)))
    model = build_model(tiny_config(chat.tokenizer), 0)
    before = measure(model, data[48:])
    losses: list[float] = []
    settings = WarmupSettings(updates=30, batch=8, warmup_updates=5)
    train(model, data[:48], settings, lambda update, loss: losses.append(loss))
    after = measure(model, data[48:])
    assert len(losses) == 30
    assert after.floor == before.floor >= 0
    assert after.excess < 0.5 * before.excess
