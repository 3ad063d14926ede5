"""The wordings of the mechanisms: the same ones in every language, and recognised again."""

from dataclasses import replace

import pytest
from small_runs import Shopper

from intraskill.evolution.cards import Lesson
from intraskill.evolution.compiler import Limits, clusters, compile_candidates
from intraskill.evolution.firewall import release
from intraskill.families.analysis import Abstraction, Case
from intraskill.families.shop.analysts.rules import RulesAnalyst
from intraskill.families.shop.analysts.world import AnalystWorld
from intraskill.families.shop.family import open_shop
from intraskill.families.shop.mechanisms import MECHANISMS, ShopMechanisms, known_mechanism, mechanism_of, mechanisms
from intraskill.families.shop.settings import ShopSettings, WorldSettings
from intraskill.skills.bank import Bank, Chunk


def test_both_languages_word_the_same_mechanisms():
    assert list(mechanisms("zh")) == list(mechanisms("en")) == list(MECHANISMS)
    for name, chinese in mechanisms("zh").items():
        english = MECHANISMS[name]
        assert (len(chinese.short), len(chinese.full)) == (len(english.short), len(english.full))
        assert not any(c.isascii() and c.isalpha() for wording in chinese.full for c in wording.applies_when)
        assert known_mechanism(name, chinese.title) is chinese
        assert known_mechanism(name, english.title) is english
        assert known_mechanism(name, "another title") is None


@pytest.mark.parametrize("language", ["en", "zh"])
@pytest.mark.parametrize("name", ["brand", "recent", "colour", "budget", "further", "recover"])
def test_a_chunk_without_a_name_is_recognised_by_its_words(language, name):
    item = mechanisms(language)[name]
    for wording in item.full:
        assert mechanism_of(Chunk("c", 1, item.title, wording.applies_when, wording.procedure)) == name


def test_chinese_lessons_that_say_the_same_are_one_cluster():
    def lesson(number, mechanism, *steps):
        text = Abstraction(mechanism, "常用品牌", "没有说明品牌时", steps)
        return Lesson(f"card-{number}", "failure", "ADD", None, text)

    same = [lesson(0, "常用品牌", "先看用户画像里的品牌，再搜索"), lesson(1, "品牌偏好", "先看画像里的品牌，再去搜索")]
    assert len(clusters([*same, lesson(2, "翻页", "结果都不合适时点击下一页继续看")], ShopMechanisms())) == 2


@pytest.mark.parametrize("style", ["compact", "full"])
async def test_a_chinese_shop_gets_chinese_chunks(play, tmp_path, style):
    settings = ShopSettings(world=WorldSettings(generate="small", language="zh"))
    world = open_shop(settings, tmp_path)
    catalog, facts = world.catalog, world.evolution().facts()
    analyst, shopper = RulesAnalyst(AnalystWorld(world.world, world.new_environment), style), Shopper(world)
    lessons = []
    for task in world.splits().train[:60]:
        wish = catalog.tasks[int(task)].instruction_simple
        row = await play(task, shopper.first_of_all(world, task, wish), source=world)
        if row["final"] and not row["final"]["success"]:
            card = await analyst.analyse(Case(row, Bank(), "ck", 1, 0))
            lesson, hits = release(card, facts)
            assert hits == ()
            lessons += [lesson] if lesson else []
    assert {"brand", "colour", "budget"} <= {lesson.abstraction.mechanism for lesson in lessons}
    compiled = compile_candidates(lessons, Bank(), (), facts, ShopMechanisms(), Limits(6, 2, style))
    chinese = mechanisms("zh")
    for candidate in compiled.candidates:
        chunk = candidate.chunk
        item = chinese[mechanism_of(chunk)]
        assert chunk.title == item.title
        assert (chunk.applies_when, chunk.procedure) in {(w.applies_when, w.procedure) for w in item.wordings(style)}
        assert mechanism_of(replace(chunk, metadata={})) is not None
    assert len(compiled.candidates) >= 3
