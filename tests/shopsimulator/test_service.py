"""The HTTP surface: the published envelope, its refusals, and slots under stress."""

from __future__ import annotations

import socket
import subprocess
import sys
import time

import httpx
import pytest
from shopsimulator.errors import ShopError
from shopsimulator.service import run_service


@pytest.fixture
def shop(make_world, serve):
    """`shop(slots=.., lease_ttl_s=..)` -> a function that posts one request body and returns the response."""

    def start(world=None, **options):
        url = serve(world or make_world(), **{"slots": 2, **options}).url
        client = httpx.Client(base_url=url, trust_env=False, timeout=20)

        def post(**body) -> httpx.Response:
            return client.post("/api/shop_agent", json=body)

        post.client = client
        return post

    return start


def lease_of(response: httpx.Response) -> dict:
    assert response.status_code == 200, response.text
    result = response.json()["result"]
    return {"env_idx": result["env_idx"], "lease_id": result["lease_id"]}


def result_of(response: httpx.Response) -> dict:
    assert response.status_code == 200, response.text
    assert list(response.json()) == ["result"]
    return response.json()["result"]


def test_an_episode_over_http(shop):
    post = shop()
    opened = result_of(post(action="reset", idx=7, if_persona=True))
    assert opened["task_instruction"] == "a shelf in my colour under 40"
    assert opened["user_persona"] == {"用户ID": "U1", "用户标签": ["blue"]}
    lease = {"env_idx": opened["env_idx"], "lease_id": opened["lease_id"]}
    assert (lease["env_idx"], len(lease["lease_id"])) == (0, 32)
    answers = []
    for value in ["100000000001", "colour=blue", "size=small", "buy now"]:
        if value.isdigit():
            answers.append(result_of(post(action="interact", response="Thought: x\nAction: search[norvik]", **lease)))
        answers.append(result_of(post(action="interact", response=f"click[{value}]", **lease)))
    assert {answer["lease_id"] for answer in answers} == {lease["lease_id"]}
    assert {answer["idx"] for answer in answers} == {"slot-0-7"}
    assert [answer["over"] for answer in answers] == [False] * 4 + [True]
    assert (answers[-1]["reward"], answers[-1]["purchase"]["asin"]) == (1.0, "100000000001")
    assert result_of(post(action="release_one", **lease)) == {"message": "Environment 0 has been released"}


def test_defaults_are_those_of_the_published_service(shop):
    opened = result_of(shop()(action="reset", idx=7))
    assert (opened["task_mode"], opened["interaction_mode"]) == ("standard", "single_turn")
    assert "goal_options" not in opened
    assert opened["task_instruction"] == "a norvik oak shelf in blue under 40"


def test_health_tells_what_is_served(shop, make_world):
    post = shop(slots=3)
    lease = lease_of(post(action="reset", idx=7))
    health = post.client.get("/healthz").json()
    assert (health["ready"], health["environment_slots"], health["free_slots"], health["tasks"]) == (True, 3, 2, 2)
    assert health["primary_reward"] == "r_strict"
    assert health["observation_version"] == "shopping-observation-v7"
    assert health["identity"] == make_world().identity()
    post(action="release_one", **lease)
    assert post.client.get("/healthz").json()["free_slots"] == 3


@pytest.mark.parametrize(
    ("body", "status", "says"),
    [
        ({"action": "reset", "idx": 7, "env_idx": 0}, 400, "env_idx"),
        ({"action": "reset", "idx": 7, "wait_s": -1}, 400, "wait_s"),
        ({"action": "reset"}, 500, "idx"),
        ({"action": "reset", "idx": "seven"}, 500, "idx"),
        ({"action": "reset", "idx": True}, 500, "idx"),
        ({"action": "reset", "idx": 999}, 500, "999"),
        ({"action": "reset", "idx": 7, "interaction_mode": "chat"}, 500, "chat"),
        ({"action": "interact", "response": "search[x]"}, 400, "lease_id"),
        ({"action": "interact", "env_idx": 0, "response": "search[x]"}, 400, "lease_id"),
        ({"action": "interact", "env_idx": True, "lease_id": "x", "response": "search[x]"}, 400, "env_idx"),
        ({"action": "interact", "env_idx": "0", "lease_id": "x", "response": "search[x]"}, 400, "env_idx"),
        ({"action": "terminate", "termination_reason": "action_limit"}, 400, "lease_id"),
        ({"action": "release_one"}, 400, "lease_id"),
        ({"action": "release_one", "env_idx": 0, "lease_id": ""}, 400, "lease_id"),
        ({"action": "interact", "env_idx": 0, "lease_id": "nonsense", "response": "search[x]"}, 409, "lease"),
        ({"action": "interact", "env_idx": 77, "lease_id": 5, "response": "search[x]"}, 409, "lease"),
        ({"action": "dance"}, 400, "dance"),
        ({"action": ["reset"]}, 400, "action"),
        ({"action": "batch"}, 400, "requests"),
        ({"action": "batch", "requests": [{"action": "batch", "requests": []}]}, 400, "batch"),
        ({}, 400, "action"),
    ],
)
def test_refusals_say_what_is_wrong(shop, body, status, says):
    answer = shop()(**body)
    assert answer.status_code == status
    assert says in answer.json()["result"]["error"]


@pytest.mark.parametrize("content", [b"", b"{", b"\xff\xfe", b'{"action": "\\ud800"}'])
def test_a_body_that_is_no_json_is_an_error_with_status_200(shop, content):
    answer = shop().client.post("/api/shop_agent", content=content)
    assert answer.status_code == 200
    assert "JSON" in answer.json()["result"]["error"]


def test_a_body_that_is_no_object_is_refused(shop):
    assert shop().client.post("/api/shop_agent", json=["reset"]).status_code == 400


def test_what_the_engine_refuses_has_status_500_and_keeps_the_lease(shop):
    post = shop()
    lease = lease_of(post(action="reset", idx=7))
    assert post(action="interact", **lease).status_code == 500
    assert post(action="interact", response=5, **lease).status_code == 500
    assert post(action="terminate", termination_reason="boredom", **lease).status_code == 500
    assert post(action="interact", response="search[shelf]", **lease).status_code == 200


def test_a_reset_that_cannot_start_leaves_no_slot_taken(shop):
    post = shop(slots=1)
    assert post(action="reset", idx=999).status_code == 500
    lease = lease_of(post(action="reset", idx=7))
    assert post(action="reset", idx=999).status_code == 500  # at once, though no slot is free
    assert post(action="release_one", **lease).status_code == 200


def test_a_finished_episode_keeps_its_slot_until_it_is_released(shop):
    post = shop(slots=1)
    lease = lease_of(post(action="reset", idx=7))
    end = result_of(post(action="terminate", termination_reason="generation_length", **lease))
    assert (end["over"], end["reward"], end["termination_reason"]) == (True, 0.0, "generation_length")
    for again in ({"action": "interact", "response": "search[x]"}, {"action": "terminate"}):
        answer = post(**again, **lease)
        assert (answer.status_code, answer.json()["result"]["code"]) == (500, "episode_over")
    assert post.client.get("/healthz").json()["free_slots"] == 0


def test_released_and_reclaimed_leases_are_stale(shop):
    post = shop(slots=1, lease_ttl_s=1.0)
    released = lease_of(post(action="reset", idx=7))
    post(action="release_one", **released)
    idle = lease_of(post(action="reset", idx=7))
    answer = post(action="interact", response="search[x]", **released)
    assert (answer.status_code, answer.json()["result"]["code"]) == (409, "stale_lease")
    heir = lease_of(post(action="reset", idx=8))  # waits until the idle lease expires
    assert post(action="interact", response="search[x]", **idle).status_code == 409
    assert post(action="interact", response="search[x]", **heir).status_code == 200


def test_a_batch_answers_each_request_as_if_it_had_come_alone(shop):
    post = shop()
    one, two = lease_of(post(action="reset", idx=7)), lease_of(post(action="reset", idx=8))
    requests = [
        {"action": "interact", "response": "search[norvik]", **one},
        {"action": "interact", "response": "search[tarn]", **two},
        {"action": "interact", "response": "click[100000000001]", **one},
        {"action": "interact", "response": "search[x]", "env_idx": 0, "lease_id": "stale"},
        {"action": "release_one", **two},
        "nonsense",
    ]
    answers = result_of(post(action="batch", requests=requests))["answers"]
    assert [answer["status"] for answer in answers] == [200, 200, 200, 409, 200, 400]
    pages = [answer["result"]["observation_state"]["page_type"] for answer in answers[:3]]
    assert pages == ["search_results", "search_results", "product_detail"]


def test_the_protocol_can_be_read_in_the_service(shop):
    client = shop().client
    document = client.get("/openapi.json").json()
    assert document["openapi"].startswith("3.")
    body = document["paths"]["/api/shop_agent"]["post"]["requestBody"]["content"]["application/json"]["schema"]
    names = [reference["$ref"].rpartition("/")[2] for reference in body["oneOf"]]
    schemas = document["components"]["schemas"]
    actions = [schemas[name]["properties"]["action"]["const"] for name in names]
    assert actions == ["reset", "interact", "terminate", "release_one", "release_all", "batch"]
    page = client.get("/docs").text
    for name in names:
        for field, described in schemas[name]["properties"].items():
            assert field == "action" or (field in page and described["description"])


def test_reset_says_when_no_slot_became_free_in_time(shop):
    post = shop(slots=1)
    lease_of(post(action="reset", idx=7))
    answer = post(action="reset", idx=8, wait_s=0.05)
    assert (answer.status_code, answer.json()["result"]["code"]) == (503, "no_free_slot")
    freed = result_of(post(action="release_all"))
    assert freed == {"message": "All environments have been initialized", "released": 1}
    lease_of(post(action="reset", idx=8, wait_s=0))


def test_a_client_that_hangs_up_while_waiting_takes_no_slot(shop):
    post = shop(slots=1)
    lease = lease_of(post(action="reset", idx=7))
    with pytest.raises(httpx.ReadTimeout):
        post.client.post("/api/shop_agent", json={"action": "reset", "idx": 8}, timeout=0.2)
    time.sleep(0.5)  # the service notices the closed connection
    post(action="release_one", **lease)
    assert post.client.get("/healthz").json()["free_slots"] == 1


def test_a_client_killed_while_holding_the_only_slot_cannot_keep_it(shop):
    post = shop(slots=1, lease_ttl_s=0.5)
    program = (
        "import httpx, time\n"
        f"httpx.post('{post.client.base_url}/api/shop_agent', json={{'action': 'reset', 'idx': 7}}, trust_env=False)\n"
        "print('held', flush=True)\n"
        "time.sleep(60)\n"
    )
    holder = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    assert holder.stdout.readline() == "held\n"
    holder.kill()
    holder.wait()
    lease_of(post(action="reset", idx=8, wait_s=10))


def test_gold_stays_inside_until_the_end(shop):
    post = shop()
    opened = post(action="reset", idx=7, if_persona=True)
    lease = lease_of(opened)
    texts = [opened.text]
    for response in ["search[pine shelf]", "click[200000000001]", "what"]:
        answer = post(action="interact", response=response, **lease)
        assert result_of(answer)["goal"] == result_of(answer)["reward_detail"] == {}
        texts.append(answer.text)
    for text in texts:
        assert "goal_options" not in text
        assert "price_upper" not in text
        assert "a norvik oak shelf in blue under 40" not in text
    assert result_of(post(action="terminate", **lease))["goal"]["asin"] == "100000000001"


def test_a_taken_port_is_one_clear_error(make_world):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ShopError, match=f"127.0.0.1:{port}"):
            run_service(make_world(), port=port)
