"""The rule-based analyst on episodes whose fault is known: decision, category, mechanism, and a real purchase."""

import pytest

from intraskill.evolution.cards import card_record, parse_card
from intraskill.evolution.firewall import release
from intraskill.families.analysis import Case
from intraskill.families.shop.analysts import repair
from intraskill.families.shop.analysts.needs import can_succeed
from intraskill.families.shop.analysts.rules import RulesAnalyst
from intraskill.skills.bank import Bank
from intraskill.storage.store import encode


@pytest.fixture
def analyse(analyst_world):
    async def run(row, bank, channel="failure"):
        return await RulesAnalyst(analyst_world).analyse(
            Case(row, bank, "ck-1", row["step"], row["group_index"], channel)
        )

    return run


async def failing(world, shopper, play, phrase):
    """The first careless episodes that fail, of tasks with this phrase."""
    for task in shopper.tasks(phrase):
        row = await play(task, shopper.first_of_all(world, task))
        if not row["final"]["success"]:
            yield task, row


@pytest.mark.parametrize(
    ("phrase", "mechanism"),
    [("usual brand", "brand"), ("last", "recent"), ("colour", "colour"), ("under", "budget")],
)
async def test_the_neglected_need_names_the_mechanism(world, shopper, play, analyse, facts, skills, phrase, mechanism):
    found = 0
    async for _, row in failing(world, shopper, play, phrase):
        card = await analyse(row, Bank())
        assert (card.outcome, card.target) == ("PROPOSE_ADD", None)
        assert card.deployable_abstraction.mechanism == mechanism
        assert card.privileged_audit.reward_detail["r_success"] == 1
        lesson, hits = release(card, facts)
        assert lesson is not None
        assert hits == ()
        found += 1
        if found == 4:
            break
    assert found >= 2


async def test_the_repair_really_buys(world, shopper, play, analyse):
    """Playing prefix and repair by hand, in a session of its own, earns the success that the card claims."""
    task, row = await anext(failing(world, shopper, play, "usual brand"))
    audit = (await analyse(row, Bank())).privileged_audit
    prefix = [step["action"] for step in row["steps"][: audit.decision_step]]
    again = await play(task, [*prefix, *audit.repair])
    assert again["final"]["success"]
    assert again["final"]["purchase"]["asin"] == audit.ending["purchase"]["asin"]


async def test_a_mechanism_in_the_bank_is_rewritten_not_added(world, shopper, play, analyse, skills):
    _, row = await anext(failing(world, shopper, play, "colour"))
    card = await analyse(row, skills)
    assert (card.outcome, card.target) == ("PROPOSE_REWRITE", "colour")
    old = skills.chunk("colour")
    new = card.deployable_abstraction
    assert (new.applies_when, new.procedure) != (old.applies_when, old.procedure)


async def test_the_last_repairable_decision_is_the_one_blamed(world, shopper, play, analyse):
    """Right query, right product, wrong value: only the option is at fault, not the search."""
    for task in shopper.tasks("colour"):
        goal = world.catalog.tasks[int(task)]
        colour = goal.instruction_options[0]
        query = f"{colour} {shopper.stated(task)}"
        opened = [f"search[{query}]", f"click[{shopper.found(query)}]"]
        state = (await play(task, opened))["steps"][1]["environment"]["observation_state"]
        values, size = state["available_options"]["colour"], state["available_options"]["size"][0]
        if colour not in values:
            continue
        wrong = next(value for value in values if value != colour)
        rest = [f"click[size={size}]", "click[buy now]"]
        row = await play(task, [*opened, f"click[colour={wrong}]", *rest])
        good = await play(task, [*opened, f"click[colour={colour}]", *rest])
        if row["final"]["success"] or not good["final"]["success"]:
            continue
        audit = (await analyse(row, Bank())).privileged_audit
        assert (audit.decision_step, audit.category) == (4, "wrong_option")
        assert audit.repair == (f"click[colour={colour}]", "click[buy now]")
        return
    pytest.fail("no task of the world fits this test")


async def test_every_product_is_judged_once(world, shopper, play, analyse, monkeypatch):
    judged = []

    def counted(score, bought):
        judged.append(bought.asin)
        return can_succeed(score, bought)

    monkeypatch.setattr(repair, "can_succeed", counted)
    task = shopper.tasks("usual brand")[0]
    await analyse(await play(task, [*shopper.first_of_all(world, task)[:1], *["click[next >]"] * 3]), Bank())
    assert len(judged) == len(set(judged)) > 1


async def test_any_satisfying_product_is_a_success(world, shopper, play, analyse):
    """Some repairs buy another product than the gold one."""
    for phrase in ("usual brand", "last", "colour", "under"):
        async for task, row in failing(world, shopper, play, phrase):
            card = await analyse(row, Bank())
            if (
                card.verified
                and card.privileged_audit.ending["purchase"]["asin"] != world.catalog.tasks[int(task)].asin
            ):
                return
    pytest.fail("every repair bought the gold product")


async def test_an_episode_that_gave_up_or_was_refused_again_and_again(world, shopper, play, analyse):
    won = None
    for task in shopper.train:
        row = await play(task, shopper.first_of_all(world, task))
        if row["final"]["success"]:
            won = shopper.first_of_all(world, task)
            break
    assert won
    idle = await play(task, [*won[:-1], *["click[nothing here]"] * 10])
    card = await analyse(idle, Bank())
    assert (card.privileged_audit.category, card.deployable_abstraction.mechanism) == ("wasted_steps", "recover")
    silent = await play(task, [])
    card = await analyse(silent, Bank())
    assert (card.privileged_audit.category, card.deployable_abstraction.mechanism) == ("wasted_steps", "recover")


async def test_protocol_errors_count_against_the_repair(world, shopper, play, analyse):
    """After seven unreadable replies the careless search is beyond repair: the wasted steps are to blame, not it."""
    task, _ = await anext(failing(world, shopper, play, "usual brand"))
    late = await play(task, [*[None] * 7, *shopper.first_of_all(world, task)[:3]])
    card = await analyse(late, Bank())
    assert card.deployable_abstraction.mechanism == "recover"
    assert card.privileged_audit.decision_step == 5


async def test_a_need_without_public_evidence_is_not_proposed(world, shopper, play, analyse):
    """A goal attribute that neither instruction nor persona tells can be bought, but not taught."""
    _, row = await anext(failing(world, shopper, play, "usual brand"))
    row["reset"]["user_persona"] = {"兴趣偏好": {}}
    card = await analyse(row, Bank())
    assert card.outcome == "NO_PROPOSAL"
    assert card.reason == "unobservable_need"


async def test_another_world_is_noticed(world, shopper, play, analyst_world):
    from intraskill.families.analysis import ReplayDiverged

    _, row = await anext(failing(world, shopper, play, "usual brand"))
    row["steps"][0]["environment"]["observation"] = "another page"
    with pytest.raises(ReplayDiverged):
        await RulesAnalyst(analyst_world).analyse(Case(row, Bank(), "ck-1", 1, 0))


async def test_success_cards_name_what_the_purchase_rested_on(world, shopper, play, analyse):
    for task in shopper.tasks("usual brand"):
        brand = world.catalog.tasks[int(task)].attributes[-2]  # the last one is the noun
        row = await play(task, shopper.first_of_all(world, task, f"{brand} {shopper.stated(task)}"))
        if row["final"]["success"]:
            card = await analyse(row, Bank(), "success")
            assert (card.channel, card.outcome) == ("success", "PROPOSE_ADD")
            assert card.deployable_abstraction.mechanism == "brand"
            return
    pytest.fail("no careful search succeeded")


async def test_a_card_survives_its_file(world, shopper, play, analyse):
    import orjson

    _, row = await anext(failing(world, shopper, play, "last"))
    card = await analyse(row, Bank())
    assert parse_card(orjson.loads(encode(card_record(card)))) == card


async def test_the_same_case_gives_the_same_card(world, shopper, play, analyse):
    _, row = await anext(failing(world, shopper, play, "under"))
    assert await analyse(row, Bank()) == await analyse(row, Bank())
