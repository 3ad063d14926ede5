"""The talk itself: what the user says, and how replies are read."""

import pytest

from intraskill.core.records import EpisodeJob, ToolCall, Turn
from intraskill.families.base import ProtocolError
from intraskill.families.guess.family import Guess
from intraskill.families.guess.settings import GuessSettings

JOB = EpisodeJob("40", 0, 3, "train")


@pytest.fixture
def family(tmp_path):
    return Guess(GuessSettings(max_steps=8), tmp_path)


async def said(family, seed, *guesses):
    user = family.new_environment(EpisodeJob("40", 0, seed, "train"))
    await user.reset("40")
    return [(await user.step(str(guess))).observation for guess in guesses]


async def test_the_user_says_where_the_number_lies(family):
    for seed in range(20):
        more, less = await said(family, seed, 20, 60)
        assert more in ("higher", "no, more")
        assert less in ("lower", "no, less")


async def test_users_differ_in_how_they_say_it_and_a_seed_repeats_it(family):
    talks = [tuple(await said(family, seed, 20, 60, 30, 50)) for seed in (*range(12), 0)]
    assert len(set(talks)) > 4
    assert talks[0] == talks[-1]


async def test_halving_finds_every_number_in_time(family):
    for task in (*family.splits().train, *family.splits().val, *family.splits().test):
        user, low, high = family.new_environment(JOB), 1, 64
        await user.reset(task)
        while True:
            guess = (low + high) // 2
            result = await user.step(str(guess))
            if result.done:
                break
            low, high = (guess + 1, high) if int(task) > guess else (low, guess - 1)
        assert result.success
        assert result.detail["speed"] >= 1 / 7


@pytest.mark.parametrize(("content", "action"), [("7", "7"), ("I say 12!", "12"), ("<b>3</b> or 4", "3")])
def test_the_first_number_of_a_reply_is_the_guess(family, content, action):
    decoded = family.decode(Turn(content, content, "", (), "stop"), {}, ())
    assert (decoded.action, decoded.call_ids) == (action, ())


@pytest.mark.parametrize("turn", [Turn("hm", "hm", "", (), "stop"), Turn("7", "7", "", (ToolCall("f", {}),), "stop")])
def test_no_number_and_a_call_are_protocol_errors(family, turn):
    with pytest.raises(ProtocolError):
        family.decode(turn, {}, ())
